//! The audit log: one line of JSON for each greeting, refusal, administrator's action and change of keys.
//!
//! ```json
//! {"time":"2026-11-23T05:48:33.120000Z","server":"node0","event":"action","action":"target.drain",
//!  "detail":"target 3","peer":"10.0.0.7:41234","key":"00112233445566ff","uid":0,"outcome":"done"}
//! ```
//!
//! | event | when |
//! | --- | --- |
//! | `greeting` | a peer has proven itself |
//! | `refusal` | a greeting was refused |
//! | `action` | an administrator's action was done or refused |
//! | `key` | a key was issued or revoked, or the root secret changed |
//!
//! `key` and `uid` are null if unknown. The outcome is `done`, or `refused` with the reason in `reason`. A refusal that
//! repeats is one line a minute with the number in `repeated` (`refusals.rs`). The server passes events to a [`Sink`],
//! which must not wait.

use serde::Serialize;
use std::sync::Arc;
use weft_core::Timestamp;
use weft_env::Peer;
use weft_wire::WireError;
use weft_wire::cluster::ServerChange;
use weft_wire::data::DataRequest;
use weft_wire::keys::KeyId;
use weft_wire::meta::{InodePath, MetaReply, MetaRequest, TargetChange};
use weft_wire::status::AuditStatus;

/// Maximum number of characters of a text.
const TEXT_MAX: usize = 1024;

/// Receiver of events. Must return at once, whatever the state of the disk.
pub trait Sink: Send + Sync {
    /// Takes one event.
    fn record(&self, event: &Event<'_>);
    /// Whether events are written.
    fn status(&self) -> AuditStatus;
}

/// Kind of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    /// A peer has proven itself.
    Greeting,
    /// A greeting was refused.
    Refusal,
    /// An administrator's action.
    Action,
    /// A change of keys.
    Key,
}

/// One event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event<'a> {
    /// Time of the event.
    pub at: Timestamp,
    /// Kind of the event.
    pub kind: EventKind,
    /// The action, such as `target.drain`.
    pub action: &'a str,
    /// Object of the action.
    pub detail: &'a str,
    /// Address of the peer; `pid 123` for a process of this host.
    pub peer: &'a str,
    /// Key that the peer named.
    pub key: Option<KeyId>,
    /// The user.
    pub uid: Option<u32>,
    /// Reason of a refusal; `None` if the action was done.
    pub refused: Option<&'a str>,
    /// Number of further refusals like the last one of this peer, key and reason, since its line; 0 for a first one.
    pub repeated: u64,
}

impl Event<'_> {
    /// The event as a line with its newline.
    pub fn to_line(&self, server: &str) -> String {
        #[derive(Serialize)]
        struct Line<'a> {
            time: String,
            server: &'a str,
            event: EventKind,
            action: &'a str,
            detail: &'a str,
            peer: &'a str,
            key: Option<String>,
            uid: Option<u32>,
            outcome: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            reason: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            repeated: Option<u64>,
        }
        let (_, nanos) = self.at.parts();
        let seconds = self.at.utc();
        let line = Line {
            time: format!("{}.{:06}Z", seconds.trim_end_matches('Z'), nanos / 1000),
            server: clip(server),
            event: self.kind,
            action: clip(self.action),
            detail: clip(self.detail),
            peer: clip(self.peer),
            key: self.key.map(|key| key.to_string()),
            uid: self.uid,
            outcome: if self.refused.is_none() { "done" } else { "refused" },
            reason: self.refused.map(clip),
            repeated: Some(self.repeated).filter(|&count| count > 0),
        };
        let mut text = serde_json::to_string(&line).expect("texts and numbers are JSON");
        text.push('\n');
        text
    }
}

/// Bounds a text that a peer may have chosen.
fn clip(text: &str) -> &str {
    text.char_indices().nth(TEXT_MAX).map_or(text, |(end, _)| &text[..end])
}

/// Name of a peer in the log.
pub(crate) fn name_of(peer: &Peer) -> String {
    match peer {
        Peer::Local { pid, .. } => format!("pid {pid}"),
        Peer::Remote { address } => address.clone(),
    }
}

/// Origin of the requests of a connection, and receiver of their events.
#[derive(Clone)]
pub(crate) struct Origin {
    pub sink: Arc<dyn Sink>,
    pub peer: String,
    pub key: Option<KeyId>,
    pub uid: Option<u32>,
}

/// Description of a request that is logged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Audited {
    kind: EventKind,
    action: &'static str,
    detail: String,
}

impl Audited {
    pub fn new(kind: EventKind, action: &'static str, detail: impl Into<String>) -> Self {
        Self { kind, action, detail: detail.into() }
    }
}

impl Origin {
    /// Records the outcome of a request.
    pub fn record(&self, at: Timestamp, what: &Audited, refused: Option<&WireError>) {
        self.record_repeated(at, what, refused, 0);
    }

    /// Records a request and how often its outcome was repeated.
    pub fn record_repeated(&self, at: Timestamp, what: &Audited, refused: Option<&WireError>, repeated: u64) {
        let refused = refused.map(|error| match error.detail.is_empty() {
            true => error.errno.name().to_owned(),
            false => error.detail.clone(),
        });
        self.sink.record(&Event {
            at,
            kind: what.kind,
            action: what.action,
            detail: &what.detail,
            peer: &self.peer,
            key: self.key,
            uid: self.uid,
            refused: refused.as_deref(),
            repeated,
        });
    }
}

/// The event of a request to the metadata service; `None` for requests that are not logged.
pub(crate) fn of_metadata(request: &MetaRequest) -> Option<Audited> {
    let action = |action, detail: String| Some(Audited::new(EventKind::Action, action, detail));
    match request {
        MetaRequest::CheckNamespace { repair: true } => action("fsck.repair", String::new()),
        MetaRequest::CheckNamespace { repair: false } => action("fsck.check", String::new()),
        MetaRequest::DumpBegin => action("meta.dump", String::new()),
        MetaRequest::ChangeTarget { target, change } => {
            let word = match change {
                TargetChange::Add => "target.add",
                TargetChange::Accept => "target.accept",
                TargetChange::Drain => "target.drain",
                TargetChange::Activate => "target.activate",
                TargetChange::Replace { .. } => "target.replace",
                TargetChange::Remove => "target.remove",
            };
            let lost = matches!(change, TargetChange::Replace { data_lost: true });
            action(word, format!("{target}{}", if lost { ", data lost" } else { "" }))
        }
        MetaRequest::AttachTarget { target, .. } => action("target.attach", target.to_string()),
        MetaRequest::RegisterServer { name, .. } => action("server.register", format!("server {name}")),
        MetaRequest::RaiseLevel { to } => action("cluster.upgrade", format!("level {to}")),
        MetaRequest::SetDomain { name, .. } => action("server.domain", format!("server {name}")),
        MetaRequest::ChangeServer { name, change } => {
            let word = match change {
                ServerChange::Add => "server.add",
                ServerChange::Remove => "server.remove",
            };
            action(word, format!("server {name}"))
        }
        MetaRequest::SetLayout { at, .. } => action("layout.set", name(at)),
        MetaRequest::ChangeRules { at, .. } => action("rules.change", name(at)),
        MetaRequest::RevokeKeys { keys } => {
            let keys: Vec<_> = keys.iter().map(ToString::to_string).collect();
            Some(Audited::new(EventKind::Key, "key.revoke", keys.join(" ")))
        }
        _ => None,
    }
}

fn name(at: &InodePath) -> String {
    format!("directory {}, path {}", at.base, String::from_utf8_lossy(&at.path))
}

/// Reason why the metadata service refused a request.
pub(crate) fn refusal_of(reply: &MetaReply) -> Option<&WireError> {
    match reply {
        MetaReply::Failed(error) => Some(error),
        _ => None,
    }
}

/// The event of a request to a data service; `None` for requests that are not logged, such as removals by servers.
pub(crate) fn of_data(request: &DataRequest, is_server: bool) -> Option<Audited> {
    let action = |action, detail: String| Some(Audited::new(EventKind::Action, action, detail));
    match request {
        DataRequest::Remove { datafiles } if !is_server => {
            let mut files: Vec<_> = datafiles.iter().map(|datafile| datafile.file.to_string()).collect();
            files.dedup();
            action("datafile.remove", format!("{} datafiles of {}", datafiles.len(), files.join(" ")))
        }
        DataRequest::RevokeLeases { target } => action("lease.revoke", target.to_string()),
        DataRequest::Scrub { target, from: None, .. } => action("target.scrub", target.to_string()),
        DataRequest::Flush { target, from: None } => action("target.flush", target.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event<'a>(detail: &'a str, refused: Option<&'a str>) -> Event<'a> {
        Event {
            at: Timestamp::from_parts(1_800_000_000, 120_000_999),
            kind: EventKind::Action,
            action: "target.drain",
            detail,
            peer: "10.0.0.7:41234",
            key: Some(KeyId(255)),
            uid: Some(1000),
            refused,
            repeated: 0,
        }
    }

    #[test]
    fn lines_are_json_whatever_their_texts() {
        assert_eq!(
            event("target 3", None).to_line("node0"),
            "{\"time\":\"2027-01-15T08:00:00.120000Z\",\"server\":\"node0\",\"event\":\"action\",\
             \"action\":\"target.drain\",\"detail\":\"target 3\",\"peer\":\"10.0.0.7:41234\",\
             \"key\":\"00000000000000ff\",\"uid\":1000,\"outcome\":\"done\"}\n"
        );
        for text in ["\"},{\"event\":\"greeting\"", "new\nline", "\u{0}\u{1b}[2J\\", "é\u{2028}", ""] {
            let line = event(text, Some(text)).to_line("n");
            assert_eq!((line.matches('\n').count(), line.ends_with('\n')), (1, true), "{line}");
            let read: serde_json::Value = serde_json::from_str(&line).expect("JSON");
            assert_eq!(read["detail"], text);
            assert_eq!((read["reason"].as_str(), read["outcome"].as_str()), (Some(text), Some("refused")));
        }
    }

    #[test]
    fn lines_are_bounded() {
        let long = "é".repeat(100_000);
        let line = event(&long, Some(&long)).to_line(&long);
        assert!(line.len() < 8 * TEXT_MAX, "{}", line.len());
        assert!(serde_json::from_str::<serde_json::Value>(&line).is_ok());
    }
}
