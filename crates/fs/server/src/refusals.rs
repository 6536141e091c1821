//! Lines about refused greetings in the server's log and the audit log: one for a new peer, key and reason, then at most
//! one a minute with the number of repetitions. A client with a revoked key asks again as long as it runs.

use crate::audit::{Audited, EventKind, Origin};
use crate::config::Hooks;
use crate::pending::Source;
use parking_lot::Mutex;
use weft_core::repeats::Repeats;
use weft_core::{Nanos, Timestamp};
use weft_wire::WireError;
use weft_wire::keys::KeyId;

/// Maximum number of refusals whose repetitions are counted. A new one replaces the one that is oldest.
const REFUSALS_MAX: usize = 1024;

/// A refused greeting.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Refusal {
    /// Host or local user of the peer.
    pub source: Source,
    /// Key that the peer named, proven or not.
    pub key: Option<KeyId>,
    /// User that the peer named, proven or not.
    pub uid: Option<u32>,
    /// Reason of the refusal.
    pub why: String,
}

/// Refused greetings of a server.
pub(crate) struct Refusals {
    hooks: Hooks,
    /// With the name of the latest peer for the audit log, and the error that it got.
    known: Mutex<Repeats<Refusal, (String, WireError)>>,
}

impl Refusals {
    pub fn new(hooks: Hooks) -> Self {
        Self { hooks, known: Mutex::new(Repeats::new(REFUSALS_MAX)) }
    }

    /// Counts a refusal, and logs it if it is new or a line is due.
    pub fn note(&self, refusal: Refusal, peer: String, error: WireError, (now, at): (Nanos, Timestamp)) {
        let due = self.known.lock().note(refusal.clone(), (peer.clone(), error.clone()), now);
        if let Some(repeated) = due {
            self.log(at, &refusal, (peer, &error), repeated);
        }
    }

    /// Logs the number of repetitions where a line is due; with `all`, of all refusals.
    pub fn log_repeated(&self, now: Nanos, at: Timestamp, all: bool) {
        let due = self.known.lock().take_due(now, all);
        for (refusal, (peer, error), repeated) in due {
            self.log(at, &refusal, (peer, &error), repeated);
        }
    }

    fn log(&self, at: Timestamp, refusal: &Refusal, (peer, error): (String, &WireError), repeated: u64) {
        let suffix = match repeated {
            0 => String::new(),
            count => format!(" (repeated {count} times since the last line about it)"),
        };
        (self.hooks.log)(&format!("warn: refused a connection: {error}{suffix}"));
        if let Some(sink) = self.hooks.audit.clone() {
            let origin = Origin { sink, peer, key: refusal.key, uid: refusal.uid };
            let what = Audited::new(EventKind::Refusal, "greeting", "");
            origin.record_repeated(at, &what, Some(error), repeated);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Event, Sink};
    use std::sync::Arc;
    use weft_env::Peer;
    use weft_wire::Errno;
    use weft_wire::status::AuditStatus;

    type Lines = Arc<Mutex<Vec<String>>>;

    struct Kept(Lines);

    impl Sink for Kept {
        fn record(&self, event: &Event<'_>) {
            self.0.lock().push(event.to_line("s0"));
        }
        fn status(&self) -> AuditStatus {
            AuditStatus::default()
        }
    }

    fn taken(lines: &Lines) -> Vec<String> {
        std::mem::take(&mut lines.lock())
    }

    #[test]
    fn repeated_refusals_are_one_line_a_minute_for_each_host_key_and_reason() {
        let (log, audit) = (Lines::default(), Lines::default());
        let own = Arc::clone(&log);
        let hooks = Hooks {
            log: Arc::new(move |line| own.lock().push(line.to_owned())),
            audit: Some(Arc::new(Kept(Arc::clone(&audit)))),
            ..Hooks::none()
        };
        let refusals = Refusals::new(hooks);
        let refuse = |address: &str, key: u64, why: &str, s: u64| {
            let source = Source::of(&Peer::Remote { address: address.into() });
            let refusal = Refusal { source, key: Some(KeyId(key)), uid: Some(7), why: why.into() };
            let at = (Nanos::from_s(s), Timestamp(i128::from(s)));
            refusals.note(refusal, address.into(), WireError::new(Errno::EACCES, why), at);
        };
        for (address, key, why) in [
            ("10.0.0.1:1", 1, "it was revoked"),
            ("10.0.0.2:1", 1, "it was revoked"),
            ("10.0.0.1:2", 2, "it expired"),
        ] {
            refuse(address, key, why, 0);
        }
        assert_eq!((taken(&log).len(), taken(&audit).len()), (3, 3), "each has a first line");
        for port in 0..431 {
            refuse(&format!("10.0.0.1:{port}"), 1, "it was revoked", 1 + port / 10);
        }
        refusals.log_repeated(Nanos::from_s(59), Timestamp(0), false);
        assert_eq!((taken(&log).len(), taken(&audit).len()), (0, 0));
        refusals.log_repeated(Nanos::from_s(60), Timestamp(0), false);
        assert_eq!(
            taken(&log),
            [
                "warn: refused a connection: it was revoked (EACCES) (repeated 431 times since the last line about it)"
            ]
        );
        let lines = taken(&audit);
        let line: serde_json::Value = serde_json::from_str(&lines[0]).expect("JSON");
        assert_eq!(
            (lines.len(), &line["repeated"], &line["reason"]),
            (1, &431.into(), &"it was revoked".into())
        );
        assert_eq!(line["peer"], "10.0.0.1:430");
        refuse("10.0.0.1:9", 1, "it was revoked", 61);
        refusals.log_repeated(Nanos::from_s(62), Timestamp(0), true);
        assert!(taken(&log)[0].contains("repeated 1 times"), "the end of the server counts all");
    }
}
