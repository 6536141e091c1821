//! Attaching targets. Before a data server serves a target, the metadata server confirms that the directory is the disk
//! that joined the cluster as this target, not a blank one or an older copy.

use crate::config::{Join, ServerConfig};
use crate::metadata;
use crate::peer::{PeerConnector, round_trip};
use std::io;
use std::sync::Arc;
use weft_core::{AttachToken, ClusterId, Nanos, ServerId, TargetId, TargetUuid};
use weft_env::Env;
use weft_store::error::TargetError;
use weft_store::identity::Identity;
use weft_store::target::{Target, TargetSpec, Unattached};
use weft_wire::cluster::{ServerEntry, TargetPlace};
use weft_wire::hello::{Identity as User, SessionId};
use weft_wire::keys::Revoked;
use weft_wire::meta::{MetaCall, MetaReply, MetaRequest, TargetClaim, TargetRefusal, TargetVerdict};
use weft_wire::{Family, Link, WireError};

/// Timeout of the metadata server's reply.
const TIMEOUT: Nanos = Nanos::from_s(5);
/// Pause between attempts to reach the metadata server.
const RETRY_PAUSE: Nanos = Nanos::from_ms(200);
/// Interval of log messages while the metadata server does not answer.
const LOG_INTERVAL: Nanos = Nanos::from_s(60);

/// Access to the record of targets.
pub(crate) struct Registrar<E: Env> {
    env: E,
    access: RecordAccess<E>,
    format: bool,
}

enum RecordAccess<E: Env> {
    /// There is no record: targets are used as they are.
    Unregistered,
    /// The metadata service of this server.
    Local(Arc<metadata::Service<E>>),
    /// The metadata service of another server.
    Remote(Box<RemoteRecord<E>>),
}

struct RemoteRecord<E: Env> {
    config: ServerConfig,
    entry: ServerEntry,
    connector: PeerConnector<E>,
    link: Option<(Link<E::Conn>, ClusterId)>,
    requests: u64,
}

/// Reason why a server cannot attach its targets.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The process was asked to stop before the metadata server answered.
    #[error("stopped before the metadata server answered: {0}")]
    Ended(String),
    /// The metadata server refuses the request.
    #[error("the metadata server refuses to attach {0}: {1}")]
    Refused(TargetId, WireError),
    /// The metadata server refuses the server.
    #[error("{0}")]
    Server(WireError),
    /// The metadata server does not report the revoked keys.
    #[error("the metadata server does not report the revoked keys: {0}")]
    Keys(WireError),
    /// The directory cannot be used.
    #[error("{0}")]
    Target(#[from] TargetError),
}

/// A target that may be used, or the reason why not.
pub(crate) enum Attached<E: Env> {
    Yes(Box<Target<E>>),
    No(TargetRefusal),
}

impl<E: Env> Registrar<E> {
    /// Creates the access for the targets of a server, which may run the metadata service itself.
    ///
    /// # Panics
    /// If the configuration names no metadata server.
    pub fn new(env: &E, config: &ServerConfig, own: Option<&Arc<metadata::Service<E>>>) -> Self {
        let access = match (config.join, own, &config.metadata_server) {
            (Join::No, _, _) => RecordAccess::Unregistered,
            (_, Some(service), _) => RecordAccess::Local(Arc::clone(service)),
            (_, None, Some(entry)) => RecordAccess::Remote(Box::new(RemoteRecord {
                entry: entry.clone(),
                connector: PeerConnector {
                    env: env.clone(),
                    server: config.server,
                    cluster: config.cluster.clone(),
                    cluster_id: ClusterId::NONE,
                    secret: config.secret.clone(),
                    levels: config.levels,
                    timeout: TIMEOUT,
                },
                config: config.clone(),
                link: None,
                requests: 0,
            })),
            (_, None, None) => panic!("a server that attaches its targets knows its metadata server"),
        };
        Self { env: env.clone(), access, format: config.join == Join::Format }
    }

    /// Identity of the cluster; waits for the metadata server. [`ClusterId::NONE`] if there is no record.
    ///
    /// # Errors
    /// The process was asked to stop.
    pub async fn cluster_id(&mut self) -> Result<ClusterId, AttachError> {
        match &mut self.access {
            RecordAccess::Unregistered => Ok(ClusterId::NONE),
            RecordAccess::Local(service) => Ok(service.cluster_id()),
            RecordAccess::Remote(remote) => Ok(remote.link(&self.env).await?.1),
        }
    }

    /// Revoked keys; waits for the metadata server. `None` if that is this server, which knows them, or there is no
    /// record.
    ///
    /// # Errors
    /// The process was asked to stop, or the metadata server refuses.
    pub async fn revoked_keys(&mut self) -> Result<Option<Revoked>, AttachError> {
        let RecordAccess::Remote(remote) = &mut self.access else { return Ok(None) };
        let call = MetaCall { seq: 0, on_behalf: None, request: MetaRequest::RevokedKeys };
        match remote.call(&self.env, &call).await? {
            MetaReply::Revoked(revoked) => Ok(Some(revoked)),
            MetaReply::Failed(error) => Err(AttachError::Keys(error)),
            other => Err(AttachError::Keys(WireError::new(
                weft_wire::Errno::EPROTO,
                format!("unexpected reply: {other:?}"),
            ))),
        }
    }

    /// Reports the addresses of a server, and returns its number; `None` if it does not register.
    ///
    /// # Errors
    /// The process was asked to stop, or the metadata server refuses.
    pub async fn register(&mut self, config: &ServerConfig) -> Result<Option<ServerId>, AttachError> {
        if !config.registers || matches!(self.access, RecordAccess::Unregistered) {
            return Ok(None);
        }
        let register = MetaRequest::RegisterServer {
            name: config.name.clone(),
            addresses: config.addresses.clone(),
            targets: config.targets.iter().map(|target| target.id).collect(),
            format: self.format,
            levels: config.levels,
        };
        match self.call(register).await? {
            MetaReply::Registered { server, .. } => Ok(Some(server)),
            MetaReply::Failed(error) => Err(AttachError::Server(error)),
            other => {
                let detail = format!("unexpected reply: {other:?}");
                Err(AttachError::Server(WireError::new(weft_wire::Errno::EPROTO, detail)))
            }
        }
    }

    /// Opens the target at `spec` if the record allows it. `place` says where it is; `None` from a server that does not
    /// register.
    ///
    /// # Errors
    /// The metadata server refuses, or the target cannot be opened for another reason than its identity.
    pub async fn attach(
        &mut self,
        spec: &TargetSpec,
        place: Option<TargetPlace>,
    ) -> Result<Attached<E>, AttachError> {
        if let RecordAccess::Unregistered = self.access {
            return Ok(Attached::Yes(Box::new(Target::open(&self.env, spec).await?)));
        }
        let cluster = self.cluster_id().await?;
        let mut found = match Target::inspect(&self.env, spec).await {
            Ok(found) => found,
            Err(error) => return refusal(error).map(Attached::No).map_err(AttachError::Target),
        };
        let format = self.format;
        let judge = MetaRequest::JudgeTarget { target: spec.id, claim: claim(&found), format };
        let from = match self.request(spec.id, judge).await? {
            MetaReply::TargetVerdict(TargetVerdict::Attach(token)) => Some(token),
            MetaReply::TargetVerdict(TargetVerdict::Join) => None,
            MetaReply::TargetVerdict(TargetVerdict::Refused(refusal)) => return Ok(Attached::No(refusal)),
            other => return Err(unexpected(spec.id, &other)),
        };
        let identity = self.next(&found, spec, cluster, from);
        found.store(&identity).await?;
        let (uuid, to) = (identity.uuid, identity.latest);
        let attach = MetaRequest::AttachTarget { target: spec.id, uuid, from, to, place };
        match self.request(spec.id, attach).await? {
            MetaReply::Attached { capabilities_from_s } => {
                // From now on only this token is valid: metadata with the previous one is an older copy.
                found.store(&Identity { previous: to, ..identity }).await?;
                let target = found.open().await?;
                target.refuse_before(capabilities_from_s);
                Ok(Attached::Yes(Box::new(target)))
            }
            other => Err(unexpected(spec.id, &other)),
        }
    }

    /// Identity of the target from this attach on. `from` is the recorded token.
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
        // Higher than both sides know, which differ after an accepted restore.
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

    async fn request(&mut self, target: TargetId, request: MetaRequest) -> Result<MetaReply, AttachError> {
        match self.call(request).await? {
            MetaReply::Failed(error) => Err(AttachError::Refused(target, error)),
            reply => Ok(reply),
        }
    }

    async fn call(&mut self, request: MetaRequest) -> Result<MetaReply, AttachError> {
        let call = MetaCall { seq: 0, on_behalf: None, request };
        match &mut self.access {
            RecordAccess::Unregistered => unreachable!("there is no record"),
            RecordAccess::Local(service) => {
                let root = User { uid: 0, gid: 0, groups: Vec::new() };
                let context = service.connected(SessionId(0), 0, root, 0, true);
                let reply = service.call(&context, call).await;
                service.disconnected(context).await;
                Ok(reply)
            }
            RecordAccess::Remote(remote) => remote.call(&self.env, &call).await,
        }
    }
}

impl<E: Env> RemoteRecord<E> {
    /// Connection to the metadata server, which is tried until it answers.
    async fn link(&mut self, env: &E) -> Result<&mut (Link<E::Conn>, ClusterId), AttachError> {
        let (began, mut logged_at): (Nanos, Option<Nanos>) = (env.now(), None);
        while self.link.is_none() {
            match self.connector.connect_with_id(&self.entry).await {
                Ok(link) => self.link = Some(link),
                Err(why) => {
                    let waited = env.now().saturating_sub(began);
                    let is_idle = self.config.idle_exit.is_some_and(|limit| waited >= limit);
                    if is_idle || (self.config.hooks.is_ended)() {
                        return Err(AttachError::Ended(why));
                    }
                    if logged_at.is_none_or(|at| env.now().saturating_sub(at) >= LOG_INTERVAL) {
                        logged_at = Some(env.now());
                        let line =
                            format!("warn: waiting for the metadata server before serving targets: {why}");
                        (self.config.hooks.log)(&line);
                    }
                    env.sleep(RETRY_PAUSE).await;
                }
            }
        }
        Ok(self.link.as_mut().expect("connected above"))
    }

    async fn call(&mut self, env: &E, call: &MetaCall) -> Result<MetaReply, AttachError> {
        loop {
            self.requests += 1;
            let request = self.requests;
            let (link, _) = self.link(env).await?;
            match round_trip(link, Family::Meta, request, call).await {
                Ok(reply) => return Ok(reply),
                // Repeating is harmless: an attach that was recorded is recognized.
                Err(_) => self.link = None,
            }
            env.sleep(RETRY_PAUSE).await;
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

/// Separates directories that are not the target from those that cannot be used at the moment.
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

fn unexpected(target: TargetId, reply: &MetaReply) -> AttachError {
    let detail = format!("unexpected reply: {reply:?}");
    AttachError::Refused(target, WireError::new(weft_wire::Errno::EPROTO, detail))
}
