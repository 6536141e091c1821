//! What the command line asks: the state of servers, room, and checks of namespace and datafiles.

use crate::allowance::Allowance;
use crate::call::{Effect, give_up, unexpected};
use crate::client::Client;
use crate::connect::{Wire, connected_to_data};
use crate::control::odd_reply;
use crate::error::{Error, Result};
use crate::server::Server;
use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use weft_core::{ByteLen, ClusterId, FileId, LocalOffset, Nanos, ObjectId, ServerId, TargetId};
use weft_env::{Conn, Env};
use weft_wire::data::{DataReply, DataRequest, DatafileId, ProbeWork, SCRUB_LEN_MAX, Samples, Scrubbed};
use weft_wire::meta::{MetaReply, MetaRequest, NamespaceReport, ScannedInode, TargetChange, TargetRecord};
use weft_wire::status::{ServerStatus, StatusReply, StatusRequest};
use weft_wire::{Family, KeyId, WireError};

/// Room in the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct StatFs {
    /// Size of all targets that answered, each file system behind them counted once per target.
    pub total: ByteLen,
    /// Free on them.
    pub free: ByteLen,
    /// Inodes in use.
    pub inodes: u64,
    /// Inodes that the metadata device still has room for, estimated.
    pub inodes_free: u64,
    /// Servers that did not answer, so that sums are too small.
    pub servers_missing: u32,
}

/// Bytes of the metadata device per inode, for the estimate of how many more fit.
const BYTES_PER_INODE: u64 = 1024;

fn status_of(reply: StatusReply) -> Result<ServerStatus> {
    match reply {
        StatusReply::Status(status) => Ok(*status),
        _ => Err(odd_reply()),
    }
}

impl<E: Env> Client<E> {
    /// The state of one server.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn status(&self, server: ServerId) -> Result<ServerStatus> {
        self.ask_status(server, StatusRequest::Status).await.and_then(status_of)
    }

    /// Ends a server in order. Administrators and the user who runs it only.
    ///
    /// # Errors
    /// `EPERM`; `Unreachable`.
    pub async fn shutdown(&self, server: ServerId) -> Result<()> {
        match self.ask_status(server, StatusRequest::Shutdown).await? {
            StatusReply::ShuttingDown => Ok(()),
            _ => Err(odd_reply()),
        }
    }

    async fn ask_status(&self, server: ServerId, request: StatusRequest) -> Result<StatusReply> {
        let ask = async |wire: &mut Wire<E>| {
            let reply = wire.exchange(Family::Status, &request).await?;
            Ok(if let StatusReply::Failed(error) = reply { Err(error) } else { Ok(reply) })
        };
        self.ask_anew(server, ask).await
    }

    /// Asks over a line to the server, over a new connection when one breaks.
    async fn ask_anew<T>(
        &self,
        server: ServerId,
        ask: impl AsyncFn(&mut Wire<E>) -> io::Result<std::result::Result<T, WireError>>,
    ) -> Result<T> {
        let core = &*self.core;
        core.check_ours()?;
        let server = core.server(server);
        let allowance = Allowance::begin(&core.env, core.options.request_timeout);
        self.ask_within(server, allowance, ask).await
    }

    /// Asks in the time that is left.
    async fn ask_within<T>(
        &self,
        server: &Server<E>,
        allowance: Allowance,
        ask: impl AsyncFn(&mut Wire<E>) -> io::Result<std::result::Result<T, WireError>>,
    ) -> Result<T> {
        let core = &*self.core;
        let usual = core.options.request_timeout;
        let mut line = server.lines.lend().await;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let wire = connected_to_data(core, server, &mut line, allowance).await?;
            allowance.limit(&core.env, &mut wire.link).map_err(|e| server.unreachable(e.to_string()))?;
            let asked = ask(wire).await;
            if wire.link.conn().set_timeout(Some(usual)).is_err() {
                line.wire = None;
            }
            match asked {
                Ok(reply) => return reply.map_err(|error| server.refused(error)),
                Err(error) => {
                    line.wire = None;
                    if let Some(error) = give_up(core, server, &error, (attempt, allowance)) {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Room on all targets and in the metadata service. Servers that do not answer are counted, and are no error as
    /// long as the metadata service answers.
    ///
    /// # Errors
    /// `Unreachable` for the metadata service.
    pub async fn statfs(&self) -> Result<StatFs> {
        let MetaReply::StatFs { inodes, free: metadata_free, .. } =
            self.call(Effect::Repeatable, MetaRequest::StatFs).await?
        else {
            return Err(odd_reply());
        };
        let inodes_free = metadata_free.0 / BYTES_PER_INODE;
        let mut sum = StatFs { inodes, inodes_free, ..StatFs::default() };
        let mut counted = BTreeSet::new();
        // One time-out for all of them.
        let allowance = Allowance::begin(&self.core.env, self.core.options.request_timeout);
        let ask =
            async |wire: &mut Wire<E>| wire.exchange(Family::Status, &StatusRequest::Status).await.map(Ok);
        for server in &self.core.servers {
            match self.ask_within(server, allowance, ask).await.and_then(status_of) {
                Ok(status) => {
                    for target in &status.targets {
                        // Targets that share a file system share its room.
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
        Ok(sum)
    }

    /// A page of all inodes after `after`; empty at the end. Administrators only.
    ///
    /// # Errors
    /// `EPERM`; `Unreachable`.
    pub async fn scan_inodes(&self, after: FileId, limit: u32) -> Result<Vec<ScannedInode>> {
        match self.call(Effect::Repeatable, MetaRequest::ScanInodes { after, limit }).await? {
            MetaReply::Inodes(inodes) => Ok(inodes),
            _ => Err(odd_reply()),
        }
    }

    /// Checks the namespace, and mends it when asked to. Administrators only.
    ///
    /// # Errors
    /// `EPERM`; `Unreachable`.
    pub async fn check_namespace(&self, repair: bool) -> Result<NamespaceReport> {
        match self.call(Effect::Once, MetaRequest::CheckNamespace { repair }).await? {
            MetaReply::Checked(report) => Ok(report),
            _ => Err(odd_reply()),
        }
    }

    /// The cluster and the targets that its metadata server has on record, by rising numbers.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn targets(&self) -> Result<(ClusterId, Vec<TargetRecord>)> {
        match self.call(Effect::Repeatable, MetaRequest::Targets).await? {
            MetaReply::Targets { cluster, targets } => Ok((cluster, targets)),
            _ => Err(odd_reply()),
        }
    }

    /// Changes the state of a target on record; the record afterwards. Administrators only.
    ///
    /// # Errors
    /// `EINVAL` for what cannot be; `EBUSY` while files have data there; `EPERM`; `Unreachable`.
    pub async fn change_target(&self, target: TargetId, change: TargetChange) -> Result<Vec<TargetRecord>> {
        match self.call(Effect::Once, MetaRequest::ChangeTarget { target, change }).await? {
            MetaReply::Targets { targets, .. } => Ok(targets),
            _ => Err(odd_reply()),
        }
    }

    /// For each file whether its id was given out by the metadata database that is in use, as opposed to another copy of
    /// it. At most [`LINEAGE_MAX`](weft_wire::meta::LINEAGE_MAX) files. Administrators only.
    ///
    /// # Errors
    /// `EPERM`; `Unreachable`.
    pub async fn gave_out(&self, files: Vec<FileId>) -> Result<Vec<bool>> {
        let count = files.len();
        match self.call(Effect::Repeatable, MetaRequest::Lineage { files }).await? {
            MetaReply::Lineage(own) if own.len() == count => Ok(own),
            _ => Err(odd_reply()),
        }
    }

    /// Refuses keys from now on, on all servers, and ends their connections. Administrators only.
    ///
    /// # Errors
    /// `EPERM`; `ENOSPC` when too many keys are revoked; `Unreachable`.
    pub async fn revoke_keys(&self, keys: &[KeyId]) -> Result<()> {
        match self.call(Effect::Once, MetaRequest::RevokeKeys { keys: keys.to_vec() }).await? {
            MetaReply::Done => Ok(()),
            _ => Err(odd_reply()),
        }
    }

    /// The keys that are revoked. Administrators only.
    ///
    /// # Errors
    /// `EPERM`; `Unreachable`.
    pub async fn revoked_keys(&self) -> Result<Vec<KeyId>> {
        match self.call(Effect::Repeatable, MetaRequest::RevokedKeys).await? {
            MetaReply::Revoked(revoked) => Ok(revoked.keys),
            _ => Err(odd_reply()),
        }
    }

    /// A page of the datafiles on `target` after `after`, with their lengths; empty at the end. Administrators only.
    ///
    /// # Errors
    /// `EPERM`; `Unreachable`.
    pub async fn list_datafiles(
        &self,
        target: TargetId,
        after: Option<(FileId, ObjectId)>,
        limit: u32,
    ) -> Result<Vec<(FileId, ObjectId, ByteLen)>> {
        let server = self.core.route(target)?;
        let request = DataRequest::ListDatafiles { target, after, limit };
        match self.core.ask_data(vec![(server, request)]).await?.pop() {
            Some((DataReply::Datafiles(datafiles), _)) => Ok(datafiles),
            _ => Err(odd_reply()),
        }
    }

    /// Removes datafiles, each from its target. Servers and administrators only.
    ///
    /// # Errors
    /// `EPERM`; `Unreachable`.
    pub async fn remove_datafiles(&self, datafiles: &[DatafileId]) -> Result<()> {
        self.core.remove_datafiles(datafiles).await
    }

    /// Takes back every lease on `target`'s datafiles and waits for operations in flight. Administrators only.
    ///
    /// # Errors
    /// `EPERM`; `Unreachable`.
    pub async fn revoke_leases(&self, target: TargetId) -> Result<()> {
        let server = self.core.route(target)?;
        match self.core.ask_data(vec![(server, DataRequest::RevokeLeases { target })]).await?.pop() {
            Some((DataReply::Done, _)) => Ok(()),
            _ => Err(odd_reply()),
        }
    }

    /// Writes what lies on the SSD of `target` alone to its disk; `progress` is told after each part how many bytes have
    /// been written and how many lie on the SSD alone still. The bytes written. Administrators only.
    ///
    /// # Errors
    /// `EPERM`; of the devices; `Unreachable`.
    pub async fn flush_target(
        &self,
        target: TargetId,
        mut progress: impl FnMut(ByteLen, ByteLen),
    ) -> Result<ByteLen> {
        let server = self.core.route(target)?;
        let (mut from, mut sum) = (None, ByteLen(0));
        loop {
            match self.core.ask_data(vec![(server, DataRequest::Flush { target, from })]).await?.pop() {
                Some((DataReply::Flushed { next, written, dirty }, _)) => {
                    sum.0 += written.0;
                    progress(sum, dirty);
                    if next.is_none() {
                        return Ok(sum);
                    }
                    from = next;
                }
                _ => return Err(odd_reply()),
            }
        }
    }

    /// Verifies about `len` bytes of the datafiles with checksums on `target`, from `from` on (`None` begins).
    /// Servers and administrators only.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses, and of its device.
    pub async fn scrub(
        &self,
        target: TargetId,
        from: Option<(FileId, ObjectId, LocalOffset)>,
        len: ByteLen,
    ) -> Result<Scrubbed> {
        let server = self.core.route(target)?;
        let len = len.0.min(SCRUB_LEN_MAX.into()) as u32;
        match self.core.ask_data(vec![(server, DataRequest::Scrub { target, from, len })]).await?.pop() {
            Some((DataReply::Scrubbed(scrubbed), _)) => Ok(scrubbed),
            _ => Err(odd_reply()),
        }
    }

    /// Requests that a data server has kept as samples, from number `from` of its run `run` on, at most `limit`; both are 0
    /// at first, then those of the answer. Administrators only.
    ///
    /// # Errors
    /// `EPERM`; `Unreachable`.
    pub async fn samples(&self, server: ServerId, run: u64, from: u64, limit: u32) -> Result<Samples> {
        match self.core.ask_data(vec![(server, DataRequest::Samples { run, from, limit })]).await?.pop() {
            Some((DataReply::Samples(samples), _)) => Ok(samples),
            _ => Err(odd_reply()),
        }
    }

    /// Measures a target: requests on a datafile of the session's own, which goes with the connection; see
    /// [`DataRequest::Probe`]. What each took, and all together. Administrators only.
    ///
    /// # Errors
    /// `EPERM`; `ENOSPC` where a target has too little room; of the device; `Unreachable`.
    pub async fn probe(
        &self,
        target: TargetId,
        work: ProbeWork,
        len: u32,
        offsets: Vec<LocalOffset>,
        within: Nanos,
    ) -> Result<(Vec<Nanos>, Nanos)> {
        let server = self.core.route(target)?;
        let request = DataRequest::Probe { target, work, len, offsets, within };
        match self.core.ask_data(vec![(server, request)]).await?.pop() {
            Some((DataReply::Probed { times, elapsed }, _)) => Ok((times, elapsed)),
            _ => Err(odd_reply()),
        }
    }

    /// Sends a message with `payload` to a server, which answers with `reply_len` bytes that are dropped, for measuring the
    /// way; how long it took. A connection that has to be made first counts for nothing.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn echo(&self, server: ServerId, payload: &[u8], reply_len: u32) -> Result<Nanos> {
        let env = &self.core.env;
        let ask = async |wire: &mut Wire<E>| {
            wire.link.set_waits_on(None);
            let begun = env.now();
            let echoed = echoed(wire, payload, reply_len).await?;
            Ok(echoed.map(|()| env.now().saturating_sub(begun)))
        };
        self.ask_anew(server, ask).await
    }

    /// Waits until everything that this session said has been done: closes and settlements are said without waiting.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn flush(&self) -> Result<()> {
        match self.call(Effect::Repeatable, MetaRequest::Flush).await? {
            MetaReply::Done => Ok(()),
            _ => Err(odd_reply()),
        }
    }
}

/// One echo over a connection.
async fn echoed<E: Env>(
    wire: &mut Wire<E>,
    payload: &[u8],
    reply_len: u32,
) -> io::Result<std::result::Result<(), WireError>> {
    let request = StatusRequest::Echo { reply_len };
    let pieces = [IoSlice::new(payload)];
    wire.ask(Family::Status, &request, if payload.is_empty() { &[] } else { &pieces }).await?;
    let incoming = wire.answer().await?;
    let reply = wire.link.decode(&incoming)?;
    wire.link.skip_payload(u64::from(incoming.header.payload_len)).await?;
    match reply {
        StatusReply::Echo if incoming.header.payload_len == reply_len => Ok(Ok(())),
        StatusReply::Failed(error) => Ok(Err(error)),
        _ => Err(unexpected()),
    }
}
