//! Attaching targets: before a data server serves one, the metadata server confirms that its directory holds the disk that
//! joined the cluster as this target, and neither a blank one nor an older copy.

use crate::config::{Join, ServerConfig};
use crate::metadata;
use crate::peer::{Asker, ask};
use std::io;
use std::sync::Arc;
use weft_core::{AttachToken, ClusterId, Nanos, TargetId, TargetUuid};
use weft_env::Env;
use weft_store::error::TargetError;
use weft_store::identity::Identity;
use weft_store::target::{Target, TargetSpec, Unattached};
use weft_wire::cluster::ServerEntry;
use weft_wire::hello::{Identity as User, SessionId};
use weft_wire::keys::Revoked;
use weft_wire::meta::{MetaCall, MetaReply, MetaRequest, TargetClaim, TargetRefusal, TargetVerdict};
use weft_wire::{Family, Link, WireError};

/// How long the metadata server may take to answer.
const TIMEOUT: Nanos = Nanos::from_s(5);
/// Pause between attempts to reach the metadata server.
const AGAIN_AFTER: Nanos = Nanos::from_ms(200);
/// How often the log says that the metadata server does not answer.
const SAY_AGAIN_AFTER: Nanos = Nanos::from_s(60);

/// The way to the record of targets.
pub(crate) struct Registrar<E: Env> {
    env: E,
    way: Way<E>,
    format: bool,
}

enum Way<E: Env> {
    /// No record: targets are taken as they are.
    Nowhere,
    /// The metadata service of this server.
    Here(Arc<metadata::Service<E>>),
    /// The metadata service of another server.
    There(Box<There<E>>),
}

struct There<E: Env> {
    config: ServerConfig,
    entry: ServerEntry,
    asker: Asker<E>,
    link: Option<(Link<E::Conn>, ClusterId)>,
    requests: u64,
}

/// Why a server cannot attach its targets.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The process was told to end while the metadata server did not answer.
    #[error("ended before the metadata server answered: {0}")]
    Ended(String),
    /// The metadata server refuses the request.
    #[error("the metadata server refuses to attach {0}: {1}")]
    Refused(TargetId, WireError),
    /// The metadata server does not tell which keys are revoked.
    #[error("the metadata server does not tell which keys are revoked: {0}")]
    Keys(WireError),
    /// The directory cannot be used.
    #[error("{0}")]
    Target(#[from] TargetError),
}

/// A target that may be used, or why not.
pub(crate) enum Attached<E: Env> {
    Yes(Box<Target<E>>),
    No(TargetRefusal),
}

impl<E: Env> Registrar<E> {
    /// For the targets of a server, whose own metadata service this is if it has one.
    ///
    /// # Panics
    /// When the configuration names no metadata server to ask.
    pub fn new(env: &E, config: &ServerConfig, own: Option<&Arc<metadata::Service<E>>>) -> Self {
        let way = match (config.join, own, &config.metadata_server) {
            (Join::No, _, _) => Way::Nowhere,
            (_, Some(service), _) => Way::Here(Arc::clone(service)),
            (_, None, Some(entry)) => Way::There(Box::new(There {
                entry: entry.clone(),
                asker: Asker {
                    env: env.clone(),
                    server: config.server,
                    cluster: config.cluster.clone(),
                    cluster_id: ClusterId::NONE,
                    secret: config.secret.clone(),
                    timeout: TIMEOUT,
                },
                config: config.clone(),
                link: None,
                requests: 0,
            })),
            (_, None, None) => panic!("a server that attaches its targets knows its metadata server"),
        };
        Self { env: env.clone(), way, format: config.join == Join::Format }
    }

    /// Identity of the cluster; waits for the metadata server. [`ClusterId::NONE`] where there is no record.
    ///
    /// # Errors
    /// When the process is told to end meanwhile.
    pub async fn cluster_id(&mut self) -> Result<ClusterId, AttachError> {
        match &mut self.way {
            Way::Nowhere => Ok(ClusterId::NONE),
            Way::Here(service) => Ok(service.cluster_id()),
            Way::There(there) => Ok(there.link(&self.env).await?.1),
        }
    }

    /// The keys that are refused; waits for the metadata server. `None` where it is this server, which knows them, and where
    /// there is no record.
    ///
    /// # Errors
    /// When the process is told to end meanwhile, or the metadata server refuses.
    pub async fn revoked_keys(&mut self) -> Result<Option<Revoked>, AttachError> {
        let Way::There(there) = &mut self.way else { return Ok(None) };
        let call = MetaCall { seq: 0, on_behalf: None, request: MetaRequest::RevokedKeys };
        match there.ask(&self.env, &call).await? {
            MetaReply::Revoked(revoked) => Ok(Some(revoked)),
            MetaReply::Failed(error) => Err(AttachError::Keys(error)),
            other => Err(AttachError::Keys(WireError::new(
                weft_wire::Errno::EPROTO,
                format!("an answer to another question: {other:?}"),
            ))),
        }
    }

    /// Opens the target at `spec` if the record allows it.
    ///
    /// # Errors
    /// When that cannot be found out, or the target cannot be opened for another reason than its identity.
    pub async fn attach(&mut self, spec: &TargetSpec) -> Result<Attached<E>, AttachError> {
        if let Way::Nowhere = self.way {
            return Ok(Attached::Yes(Box::new(Target::open(&self.env, spec).await?)));
        }
        let cluster = self.cluster_id().await?;
        let mut found = match Target::look(&self.env, spec).await {
            Ok(found) => found,
            Err(error) => return refusal(error).map(Attached::No).map_err(AttachError::Target),
        };
        let format = self.format;
        let judge = MetaRequest::JudgeTarget { target: spec.id, claim: claim(&found), format };
        let from = match self.ask(spec.id, judge).await? {
            MetaReply::TargetVerdict(TargetVerdict::Attach(token)) => Some(token),
            MetaReply::TargetVerdict(TargetVerdict::Join) => None,
            MetaReply::TargetVerdict(TargetVerdict::Refused(refusal)) => return Ok(Attached::No(refusal)),
            other => return Err(odd(spec.id, &other)),
        };
        let identity = self.next(&found, spec, cluster, from);
        found.store(&identity).await?;
        let (uuid, to) = (identity.uuid, identity.latest);
        let attach = MetaRequest::AttachTarget { target: spec.id, uuid, from, to };
        match self.ask(spec.id, attach).await? {
            MetaReply::Done => {
                // From here on only this token is right: metadata with the one before is an older copy.
                found.store(&Identity { previous: to, ..identity }).await?;
                Ok(Attached::Yes(Box::new(found.open().await?)))
            }
            other => Err(odd(spec.id, &other)),
        }
    }

    /// The identity of the target from this attach on, when `from` is the token on record.
    fn next(
        &self,
        found: &Unattached<E>,
        spec: &TargetSpec,
        cluster: ClusterId,
        from: Option<AttachToken>,
    ) -> Identity {
        let before = found.found().copied().unwrap_or(Identity::new(&spec.cluster, spec.id));
        let counter = |token: AttachToken| token.counter;
        let previous = from.unwrap_or(AttachToken::NONE);
        // Behind all that either side knows: after an accepted restore the two differ.
        let last = counter(previous).max(counter(before.previous)).max(counter(before.latest));
        let (mut nonce, mut uuid) = ([0; 8], [0; 16]);
        self.env.random(&mut nonce);
        self.env.random(&mut uuid);
        Identity {
            cluster_id: cluster,
            uuid: if before.uuid.is_none() { TargetUuid::from_random(uuid) } else { before.uuid },
            previous,
            latest: AttachToken { counter: last + 1, nonce: u64::from_le_bytes(nonce) },
            ..before
        }
    }

    async fn ask(&mut self, target: TargetId, request: MetaRequest) -> Result<MetaReply, AttachError> {
        let call = MetaCall { seq: 0, on_behalf: None, request };
        let reply = match &mut self.way {
            Way::Nowhere => unreachable!("there is nobody to ask"),
            Way::Here(service) => {
                let root = User { uid: 0, gid: 0, groups: Vec::new() };
                let context = service.connected(SessionId(0), 0, root, 0, true);
                let reply = service.call(&context, call).await;
                service.disconnected(context).await;
                reply
            }
            Way::There(there) => there.ask(&self.env, &call).await?,
        };
        match reply {
            MetaReply::Failed(error) => Err(AttachError::Refused(target, error)),
            reply => Ok(reply),
        }
    }
}

impl<E: Env> There<E> {
    /// The connection to the metadata server, which is tried until it answers.
    async fn link(&mut self, env: &E) -> Result<&mut (Link<E::Conn>, ClusterId), AttachError> {
        let (began, mut said_at): (Nanos, Option<Nanos>) = (env.now(), None);
        while self.link.is_none() {
            match self.asker.connect_told(&self.entry).await {
                Ok(link) => self.link = Some(link),
                Err(why) => {
                    let waited = env.now().saturating_sub(began);
                    let is_idle = self.config.idle_exit.is_some_and(|limit| waited >= limit);
                    if is_idle || (self.config.hooks.is_ended)() {
                        return Err(AttachError::Ended(why));
                    }
                    if said_at.is_none_or(|at| env.now().saturating_sub(at) >= SAY_AGAIN_AFTER) {
                        said_at = Some(env.now());
                        let line =
                            format!("waits for the metadata server before it serves its targets: {why}");
                        (self.config.hooks.log)(&line);
                    }
                    env.sleep(AGAIN_AFTER).await;
                }
            }
        }
        Ok(self.link.as_mut().expect("connected above"))
    }

    async fn ask(&mut self, env: &E, call: &MetaCall) -> Result<MetaReply, AttachError> {
        loop {
            self.requests += 1;
            let request = self.requests;
            let (link, _) = self.link(env).await?;
            match ask(link, Family::Meta, request, call).await {
                Ok(reply) => return Ok(reply),
                // Asking again does no harm: an attach that was recorded is recognized.
                Err(_) => self.link = None,
            }
            env.sleep(AGAIN_AFTER).await;
        }
    }
}

fn claim<E: Env>(found: &Unattached<E>) -> TargetClaim {
    match found.found() {
        None => TargetClaim::Blank,
        Some(identity) if identity.uuid.is_none() => TargetClaim::Version1,
        Some(identity) => TargetClaim::Identity {
            cluster: identity.cluster_id,
            uuid: identity.uuid,
            tokens: [identity.previous, identity.latest],
        },
    }
}

/// Tells directories that are not the target from those that cannot be used for now.
fn refusal(error: TargetError) -> Result<TargetRefusal, TargetError> {
    match &error {
        TargetError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            Ok(TargetRefusal::Missing)
        }
        TargetError::NotEmpty { .. }
        | TargetError::IdentityGone { .. }
        | TargetError::Damaged { .. }
        | TargetError::Version { .. }
        | TargetError::Foreign { .. } => Ok(TargetRefusal::Unusable(error.to_string())),
        _ => Err(error),
    }
}

fn odd(target: TargetId, reply: &MetaReply) -> AttachError {
    let detail = format!("an answer to another question: {reply:?}");
    AttachError::Refused(target, WireError::new(weft_wire::Errno::EPROTO, detail))
}
