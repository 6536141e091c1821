//! Requests of the command line: state of servers, free space, and checks of namespace and datafiles.

use crate::attempts::Attempts;
use crate::call::Effect;
use crate::client::Client;
use crate::connect::ensure_data_connection;
use crate::connection::{Connection, unexpected_reply};
use crate::core::Core;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::server::Server;
use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use weft_core::{ByteLen, ClusterId, FileId, LocalOffset, Nanos, ObjectId, ServerId, TargetId};
use weft_env::{Conn, Env};
use weft_wire::activity::Activity;
use weft_wire::cluster::{DomainChange, ServerChange};
use weft_wire::data::{DataReply, DataRequest, DatafileId, ProbeWork, SCRUB_LEN_MAX, Samples, Scrubbed};
use weft_wire::meta::{
    ClusterLevels, InodePath, KnownPath, MetaReply, MetaRequest, NamespaceReport, Quota, ScannedInode,
    TargetChange, TargetRecord,
};
use weft_wire::status::{ServerStatus, StatusReply, StatusRequest};
use weft_wire::{ClusterMap, Family, KeyId, Level, WireError};

/// Space in the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct StatFs {
    /// Capacity of all targets that answered. A file system that several targets share is counted once.
    pub total: ByteLen,
    /// Free space on them.
    pub free: ByteLen,
    /// Inodes in use.
    pub inodes: u64,
    /// Inodes for which the metadata device has space, estimated.
    pub inodes_free: u64,
    /// Servers that did not answer; the sums are too small then.
    pub servers_missing: u32,
}

impl StatFs {
    /// Reduces the space to what a quota leaves.
    fn limit(&mut self, quota: &Quota) {
        let Quota { limits, usage, .. } = quota;
        if let (Some(max), Some(left)) = (limits.bytes, limits.bytes_left(usage)) {
            self.free = self.free.min(left);
            // `df` computes the used space as the difference.
            self.total = self.total.min(max.max(usage.bytes));
        }
        if let Some(left) = limits.inodes_left(usage) {
            self.inodes = usage.inodes;
            self.inodes_free = self.inodes_free.min(left);
        }
    }
}

/// Bytes of the metadata device per inode, for the estimate of free inodes.
const BYTES_PER_INODE: u64 = 1024;

fn status_of(reply: StatusReply) -> Result<ServerStatus> {
    match reply {
        StatusReply::Status(status) => Ok(*status),
        _ => Err(Error::unexpected_reply()),
    }
}

impl<E: Env> Core<E> {
    /// Returns the state of a server within the time that is left.
    pub(crate) async fn status_until(&self, server: ServerId, deadline: Deadline) -> Result<ServerStatus> {
        let request = async |connection: &mut Connection<E>| {
            connection.exchange(Family::Status, &StatusRequest::Status).await.map(Ok)
        };
        self.with_connection_until(self.server(server), deadline, request).await.and_then(status_of)
    }

    async fn request_status(&self, server: ServerId, request: StatusRequest) -> Result<StatusReply> {
        let send = async |connection: &mut Connection<E>| {
            let reply = connection.exchange(Family::Status, &request).await?;
            Ok(if let StatusReply::Failed(error) = reply { Err(error) } else { Ok(reply) })
        };
        self.with_connection(server, send).await
    }

    /// Sends a request to a server, and again over a new connection if one breaks.
    async fn with_connection<T>(
        &self,
        server: ServerId,
        request: impl AsyncFn(&mut Connection<E>) -> io::Result<std::result::Result<T, WireError>>,
    ) -> Result<T> {
        self.check_not_forked()?;
        let server = self.server(server);
        let deadline = Deadline::of_request(self);
        self.with_connection_until(server, deadline, request).await
    }

    /// Sends a request within the time that is left.
    async fn with_connection_until<T>(
        &self,
        server: &Server<E>,
        deadline: Deadline,
        request: impl AsyncFn(&mut Connection<E>) -> io::Result<std::result::Result<T, WireError>>,
    ) -> Result<T> {
        let usual = self.options.request_timeout;
        let mut pooled = server.connections.acquire().await;
        let mut attempts = Attempts::until(self, deadline);
        loop {
            let connection = ensure_data_connection(self, server, &mut pooled, deadline).await?;
            let limited = deadline.limit(&self.env, &mut connection.link, usual);
            limited.map_err(|e| server.unreachable(e.to_string()))?;
            let result = request(connection).await;
            if connection.link.conn().set_timeout(Some(usual)).is_err() {
                pooled.connection = None;
            }
            match result {
                Ok(reply) => return reply.map_err(|error| server.refused(error)),
                Err(error) => {
                    pooled.connection = None;
                    attempts.after(self, server, &error)?;
                }
            }
        }
    }
}

impl<E: Env> Client<E> {
    /// Returns the state of one server.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn status(&self, server: ServerId) -> Result<ServerStatus> {
        self.session.core.request_status(server, StatusRequest::Status).await.and_then(status_of)
    }

    /// Returns the activity on a server: of all users for administrators, else of the same user only.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn activity(&self, server: ServerId) -> Result<Activity> {
        match self.session.core.request_status(server, StatusRequest::Activity).await? {
            StatusReply::Activity(activity) => Ok(*activity),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Returns the paths of at most [`PATHS_MAX`](weft_wire::meta::PATHS_MAX) inodes, as far as the caller may see them.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn paths(&self, files: Vec<FileId>) -> Result<Vec<KnownPath>> {
        let count = files.len();
        match self.session.call(Effect::Repeatable, MetaRequest::Paths { files }).await? {
            MetaReply::Paths(paths) if paths.len() == count => Ok(paths),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Shuts a server down. For administrators and the user who runs the server only.
    ///
    /// # Errors
    /// `EPERM`; `Unreachable`.
    pub async fn shutdown(&self, server: ServerId) -> Result<()> {
        match self.session.core.request_status(server, StatusRequest::Shutdown).await? {
            StatusReply::ShuttingDown => Ok(()),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Returns the space on all targets and in the metadata database or, where they are smaller, what the quotas of the
    /// caller and of the tree of `at` leave.
    ///
    /// Servers that do not answer are counted; that is not an error as long as the metadata server answers.
    ///
    /// # Errors
    /// `Unreachable` for the metadata server.
    pub async fn statfs(&self, at: Option<&InodePath>) -> Result<StatFs> {
        let request = MetaRequest::StatFs { at: at.cloned() };
        let MetaReply::StatFs { inodes, free: metadata_free, quotas, .. } = (match at {
            Some(at) => self.session.call_at(at, Effect::Repeatable, request).await?,
            None => self.session.call(Effect::Repeatable, request).await?,
        }) else {
            return Err(Error::unexpected_reply());
        };
        let inodes_free = metadata_free.0 / BYTES_PER_INODE;
        let mut sum = StatFs { inodes, inodes_free, ..StatFs::default() };
        let mut counted = BTreeSet::new();
        // One time-out for all servers together.
        let core = &self.session.core;
        let deadline = Deadline::brief(core);
        for server in core.servers() {
            match core.status_until(server.id, deadline).await {
                Ok(status) => {
                    for target in &status.targets {
                        // Targets on one file system share its space.
                        if target.file_system != 0 && !counted.insert(target.file_system) {
                            continue;
                        }
                        sum.total.0 += target.total.0;
                        sum.free.0 += target.free.0;
                    }
                }
                Err(Error::Unreachable(_)) => sum.servers_missing += 1,
                Err(error) => return Err(error),
            }
        }
        quotas.iter().for_each(|quota| sum.limit(quota));
        Ok(sum)
    }

    /// Returns a page of all inodes after `after`; empty at the end. For administrators only.
    ///
    /// # Errors
    /// `EPERM`; `Unreachable`.
    pub async fn scan_inodes(&self, after: FileId, limit: u32) -> Result<Vec<ScannedInode>> {
        match self.session.call(Effect::Repeatable, MetaRequest::ScanInodes { after, limit }).await? {
            MetaReply::Inodes(inodes) => Ok(inodes),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Checks the namespace, and repairs it if `repair` is set. For administrators only.
    ///
    /// # Errors
    /// `EPERM`; `Unreachable`.
    pub async fn check_namespace(&self, repair: bool) -> Result<NamespaceReport> {
        match self.session.call(Effect::Once, MetaRequest::CheckNamespace { repair }).await? {
            MetaReply::Checked(report) => Ok(report),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Returns the id of the cluster and the targets recorded by its metadata server, in ascending order.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn targets(&self) -> Result<(ClusterId, Vec<TargetRecord>)> {
        match self.session.call(Effect::Repeatable, MetaRequest::Targets).await? {
            MetaReply::Targets { cluster, targets } => Ok((cluster, targets)),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Changes the state of a recorded target, and returns its record afterwards. For administrators only.
    ///
    /// # Errors
    /// `EINVAL` for an impossible change; `EBUSY` while files have data on the target; `EPERM`; `Unreachable`.
    pub async fn change_target(&self, target: TargetId, change: TargetChange) -> Result<Vec<TargetRecord>> {
        match self.session.call(Effect::Once, MetaRequest::ChangeTarget { target, change }).await? {
            MetaReply::Targets { targets, .. } => Ok(targets),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Lets a server join, or removes it, and returns the cluster map afterwards. For administrators only.
    ///
    /// # Errors
    /// `EINVAL` for an impossible change; `EBUSY` while its targets may hold data; `EPERM`; `Unreachable`.
    pub async fn change_server(&self, name: String, change: ServerChange) -> Result<ClusterMap> {
        let reply = self.session.call(Effect::Once, MetaRequest::ChangeServer { name, change }).await?;
        reply.into_map().ok_or_else(Error::unexpected_reply)
    }

    /// Names the failure domain of a server, and returns the cluster map afterwards. For administrators only.
    ///
    /// # Errors
    /// `EOPNOTSUPP` while the cluster has a lower feature level; `EINVAL` for an unknown server; `EPERM`; `Unreachable`.
    pub async fn set_domain(&self, name: String, change: DomainChange) -> Result<ClusterMap> {
        let reply = self.session.call(Effect::Once, MetaRequest::SetDomain { name, change }).await?;
        reply.into_map().ok_or_else(Error::unexpected_reply)
    }

    /// Returns the feature levels of the cluster and its servers.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn levels(&self) -> Result<ClusterLevels> {
        self.levels_after(Effect::Repeatable, MetaRequest::Levels).await
    }

    /// Raises the feature level of the cluster, which cannot be undone. For administrators only.
    ///
    /// # Errors
    /// `EBUSY` if a server does not know the level; `EINVAL` for an impossible level; `EPERM`; `Unreachable`.
    pub async fn raise_level(&self, to: Level) -> Result<ClusterLevels> {
        self.levels_after(Effect::Once, MetaRequest::RaiseLevel { to }).await
    }

    async fn levels_after(&self, effect: Effect, request: MetaRequest) -> Result<ClusterLevels> {
        match self.session.call(effect, request).await? {
            MetaReply::Levels(levels) => Ok(levels),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Returns for each file whether the current metadata database issued its id, as opposed to another copy of the
    /// database.
    ///
    /// At most [`LINEAGE_MAX`](weft_wire::meta::LINEAGE_MAX) files. For administrators only.
    ///
    /// # Errors
    /// `EPERM`; `Unreachable`.
    pub async fn issued_by_this_database(&self, files: Vec<FileId>) -> Result<Vec<bool>> {
        let count = files.len();
        match self.session.call(Effect::Repeatable, MetaRequest::Lineage { files }).await? {
            MetaReply::Lineage(own) if own.len() == count => Ok(own),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Revokes keys on all servers, and ends their connections. For administrators only.
    ///
    /// # Errors
    /// `EPERM`; `ENOSPC` when too many keys are revoked; `Unreachable`.
    pub async fn revoke_keys(&self, keys: &[KeyId]) -> Result<()> {
        match self.session.call(Effect::Once, MetaRequest::RevokeKeys { keys: keys.to_vec() }).await? {
            MetaReply::Done => Ok(()),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Returns the revoked keys. For administrators only.
    ///
    /// # Errors
    /// `EPERM`; `Unreachable`.
    pub async fn revoked_keys(&self) -> Result<Vec<KeyId>> {
        match self.session.call(Effect::Repeatable, MetaRequest::RevokedKeys).await? {
            MetaReply::Revoked(revoked) => Ok(revoked.keys),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Returns a page of the datafiles on `target` after `after`, with their lengths; empty at the end. A compressed
    /// datafile with a lost map has the length [`ByteLen::UNKNOWN`]. For administrators only.
    ///
    /// # Errors
    /// `EPERM`; `Unreachable`.
    pub async fn list_datafiles(
        &self,
        target: TargetId,
        after: Option<(FileId, ObjectId)>,
        limit: u32,
    ) -> Result<Vec<(FileId, ObjectId, ByteLen)>> {
        let server = self.session.core.route(target)?;
        let request = DataRequest::ListDatafiles { target, after, limit };
        match self.session.core.send_data_requests(vec![(server, request)]).await?.pop() {
            Some((DataReply::Datafiles(datafiles), _)) => Ok(datafiles),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Removes datafiles, each from its target. For servers and administrators only.
    ///
    /// # Errors
    /// `EPERM`; `Unreachable`.
    pub async fn remove_datafiles(&self, datafiles: &[DatafileId]) -> Result<()> {
        self.session.core.remove_datafiles(datafiles).await
    }

    /// Revokes every lease on the datafiles of `target`, and waits for operations in flight. For administrators only.
    ///
    /// # Errors
    /// `EPERM`; `Unreachable`.
    pub async fn revoke_leases(&self, target: TargetId) -> Result<()> {
        let server = self.session.core.route(target)?;
        match self
            .session
            .core
            .send_data_requests(vec![(server, DataRequest::RevokeLeases { target })])
            .await?
            .pop()
        {
            Some((DataReply::Done, _)) => Ok(()),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Writes the bytes that only the SSD of `target` has to its disk, and returns their number. For administrators
    /// only.
    ///
    /// `progress` is called after each step with the number of bytes written and the number still to be written.
    ///
    /// # Errors
    /// `EPERM`; errors of the devices; `Unreachable`.
    pub async fn flush_target(
        &self,
        target: TargetId,
        mut progress: impl FnMut(ByteLen, ByteLen),
    ) -> Result<ByteLen> {
        let server = self.session.core.route(target)?;
        let (mut from, mut sum) = (None, ByteLen(0));
        loop {
            match self
                .session
                .core
                .send_data_requests(vec![(server, DataRequest::Flush { target, from })])
                .await?
                .pop()
            {
                Some((DataReply::Flushed { next, written, dirty }, _)) => {
                    sum.0 += written.0;
                    progress(sum, dirty);
                    if next.is_none() {
                        return Ok(sum);
                    }
                    from = next;
                }
                _ => return Err(Error::unexpected_reply()),
            }
        }
    }

    /// Verifies about `len` bytes of the checksummed datafiles on `target`, from `from` on (`None` starts). For
    /// servers and administrators only.
    ///
    /// # Errors
    /// `EPERM`; errors of the device; `Unreachable`.
    pub async fn scrub(
        &self,
        target: TargetId,
        from: Option<(FileId, ObjectId, LocalOffset)>,
        len: ByteLen,
    ) -> Result<Scrubbed> {
        let server = self.session.core.route(target)?;
        let len = len.0.min(SCRUB_LEN_MAX.into()) as u32;
        match self
            .session
            .core
            .send_data_requests(vec![(server, DataRequest::Scrub { target, from, len })])
            .await?
            .pop()
        {
            Some((DataReply::Scrubbed(scrubbed), _)) => Ok(scrubbed),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Returns at most `limit` sampled requests of a data server, from number `from` of its run `run` on. For
    /// administrators only.
    ///
    /// Both numbers are 0 at first; the answer has the next ones.
    ///
    /// # Errors
    /// `EPERM`; `Unreachable`.
    pub async fn samples(&self, server: ServerId, run: u64, from: u64, limit: u32) -> Result<Samples> {
        match self
            .session
            .core
            .send_data_requests(vec![(server, DataRequest::Samples { run, from, limit })])
            .await?
            .pop()
        {
            Some((DataReply::Samples(samples), _)) => Ok(samples),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Measures a target with requests on a datafile of this session, which ends with the connection; see
    /// [`DataRequest::Probe`]. Returns the time of each request and of all together. For administrators only.
    ///
    /// # Errors
    /// `EPERM`; `ENOSPC` when the target has too little space; errors of the device; `Unreachable`.
    pub async fn probe(
        &self,
        target: TargetId,
        work: ProbeWork,
        len: u32,
        offsets: Vec<LocalOffset>,
        within: Nanos,
    ) -> Result<(Vec<Nanos>, Nanos)> {
        let server = self.session.core.route(target)?;
        let request = DataRequest::Probe { target, work, len, offsets, within };
        match self.session.core.send_data_requests(vec![(server, request)]).await?.pop() {
            Some((DataReply::Probed { times, elapsed }, _)) => Ok((times, elapsed)),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Measures a round trip: sends `payload` to a server, which answers with `reply_len` bytes, and returns the time
    /// it took. The time to connect does not count.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn echo(&self, server: ServerId, payload: &[u8], reply_len: u32) -> Result<Nanos> {
        let env = &self.session.core.env;
        let request = async |connection: &mut Connection<E>| {
            connection.link.set_waits_on(None);
            let begun = env.now();
            let echoed = exchange_echo(connection, payload, reply_len).await?;
            Ok(echoed.map(|()| env.now().saturating_sub(begun)))
        };
        self.session.core.with_connection(server, request).await
    }

    /// Waits until the server has handled all one-way messages of this session, such as closes.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn flush(&self) -> Result<()> {
        match self.session.call(Effect::Repeatable, MetaRequest::Flush).await? {
            MetaReply::Done => Ok(()),
            _ => Err(Error::unexpected_reply()),
        }
    }
}

/// Sends one echo over a connection.
async fn exchange_echo<E: Env>(
    connection: &mut Connection<E>,
    payload: &[u8],
    reply_len: u32,
) -> io::Result<std::result::Result<(), WireError>> {
    let request = StatusRequest::Echo { reply_len };
    let pieces = [IoSlice::new(payload)];
    connection.send_request(Family::Status, &request, if payload.is_empty() { &[] } else { &pieces }).await?;
    let incoming = connection.recv_reply().await?;
    let reply = connection.link.decode(&incoming)?;
    connection.link.skip_payload(u64::from(incoming.header.payload_len)).await?;
    match reply {
        StatusReply::Echo if incoming.header.payload_len == reply_len => Ok(Ok(())),
        StatusReply::Failed(error) => Ok(Err(error)),
        _ => Err(unexpected_reply()),
    }
}
