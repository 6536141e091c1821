//! The data service: serves datafiles on targets to clients that hold a capability.
//!
//! A capability is issued by the metadata service, which checked permissions when the file was opened. It names one
//! file, some rights and an end, and a MAC binds it to one session and user. The data service decides every request
//! from the capability and its own records of seals, fences and writes in flight. It sends no message to the metadata
//! service:
//!
//! | check | where | refuses | error | remedy of the client |
//! |---|---|---|---|---|
//! | MAC, file, rights, end | `connection.rs` | forged, expired | `EACCES`, `ESTALE` | asks for a fresh capability |
//! | seal | `check_seal` | every request of a sealed layout | `EREMCHG` | asks for the file's new layout |
//! | fence | `check_fence` | writes by a former holder of the append lock | `ESTALE` | asks for a fresh capability |
//!
//! Seals and fences compare the end of a capability with a bound, so one table entry refuses all capabilities issued
//! before it.
//!
//! A write registers itself as [in flight](in_flight) *before* the seal and the fence are checked. A seal or fence is
//! recorded first and then waits for the writes in flight. So each write either sees the new bound or is waited for.
//! Fences and seals also revoke leases, whose holders write past this server.
//!
//! A read checks the seal once more *after* it has read: a move may have sealed and removed the datafile meanwhile, and
//! the read would have found nothing.

mod connection;
mod datafile_ops;
mod holes;
mod in_flight;
mod io;
mod moving;
mod probe;
mod samples;
mod watches;

pub(crate) use connection::{ConnectionRights, DataConnection};
use in_flight::InFlightWrites;
use samples::Sampler;
use watches::Watches;

use crate::admission::Admission;
use crate::attach::{AttachError, Attached, Registrar};
use crate::averages::Averages;
use crate::config::{Hooks, Limits, ServerConfig};
use crate::connection::answer;
use crate::connections::Entry;
use crate::latency::{Latencies, Operation};
use crate::lease::{LeaseCounts, Leases};
use crate::payload::PayloadPool;
use crate::tiered::{self, SsdTier, TieredTarget};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use weft_core::{ByteLen, TargetId};
use weft_env::mutants::{Mutant, is_seeded};
use weft_env::{Env, Notify};
use weft_store::datafile::DatafileKey;
use weft_store::error::DatafileError;
use weft_store::target::{DatafileFormat, TargetSpec};
use weft_wire::activity::TargetLatency;
use weft_wire::cluster::TargetPlace;
use weft_wire::data::{DataReply, DataRequest, DatafileId, PayloadLocation};
use weft_wire::status::{RefusedTarget, TargetStatus};
use weft_wire::{Capability, ClusterSecret, Errno, Incoming, Link, Rights, WireError};

/// The data service of one server.
pub struct DataService<E: Env> {
    env: E,
    name: String,
    secret: ClusterSecret,
    limits: Limits,
    hooks: Hooks,
    targets: BTreeMap<TargetId, Arc<ServedTarget<E>>>,
    /// Targets of this server that must not be used.
    refused: BTreeMap<TargetId, Refused>,
    averages: Averages,
    leases: Leases<E>,
    /// Writes in flight, for fences and seals.
    in_flight: InFlightWrites,
    /// Changes to files that are being copied to another layout.
    watches: Watches,
    /// Sampled requests, if the server keeps any.
    sampler: Option<Sampler>,
    pool: PayloadPool<E>,
    /// Bytes of all shared payload areas.
    shared_memory: AtomicUsize,
    /// Bytes of shared payload areas by user, where users have limits.
    shared_by_user: Mutex<BTreeMap<u32, usize>>,
    /// Leaves dirty bytes on the SSDs at the server's end.
    skip_writeback: AtomicBool,
    /// Whether a task seals idle datafiles.
    sealing: AtomicBool,
    /// Number of running background tasks.
    background_tasks: AtomicUsize,
    background_ended: E::Notify,
    pub(crate) latencies: Latencies,
}

/// A target with its admission queue and counters.
struct ServedTarget<E: Env> {
    tiered: TieredTarget<E>,
    class: String,
    leases: bool,
    admission: Admission<E>,
    counters: Counters,
    latencies: Latencies,
}

/// File and target of a request.
struct Concerned {
    cap: Capability,
    /// Target of a read or write.
    target: Option<TargetId>,
}

impl Concerned {
    /// Returns what a request with a capability concerns.
    fn of(request: &DataRequest) -> Option<Self> {
        use DataRequest as R;
        let (cap, target) = match request {
            R::Read { datafile, cap, .. }
            | R::ReadShared { datafile, cap, .. }
            | R::Write { datafile, cap, .. } => (cap, Some(datafile.target)),
            R::GetLens { cap, .. }
            | R::SetLens { cap, .. }
            | R::Sync { cap, .. }
            | R::Lease { cap, .. }
            | R::Fence { cap, .. }
            | R::Watch { cap, .. }
            | R::Changes { cap, .. }
            | R::Seal { cap, .. }
            | R::SetTimes { cap, .. }
            | R::Punch { cap, .. }
            | R::Seek { cap, .. } => (cap, None),
            R::Remove { .. }
            | R::Release { .. }
            | R::AttachShared { .. }
            | R::RevokeLeases { .. }
            | R::ListDatafiles { .. }
            | R::Flush { .. }
            | R::Samples { .. }
            | R::Probe { .. }
            | R::Scrub { .. } => return None,
        };
        Some(Self { cap: *cap, target })
    }
}

/// A target that this server must not use.
struct Refused {
    class: String,
    path: String,
    module: &'static str,
    state: &'static str,
    /// Reason and remedy.
    reason: String,
}

/// Counts on one target since the start.
#[derive(Default)]
struct Counters {
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    requests: AtomicU64,
    fragments: AtomicU64,
}

impl Counters {
    fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

impl<E: Env> DataService<E> {
    /// Attaches and opens all targets. A target with the wrong identity stays closed, and requests for it fail with the
    /// reason.
    ///
    /// # Errors
    /// A target cannot be opened for another reason.
    pub(crate) async fn open(
        env: &E,
        config: &ServerConfig,
        registrar: &mut Registrar<E>,
    ) -> Result<Arc<Self>, AttachError> {
        let (mut targets, mut refused) = (BTreeMap::new(), BTreeMap::new());
        let mut after_crash = false;
        let averages = Averages::new(config);
        for wanted in &config.targets {
            let spec = TargetSpec {
                id: wanted.id,
                cluster: config.cluster.clone(),
                path: wanted.path.clone(),
                module: wanted.module,
                open_datafiles_max: config.limits.open_datafiles_max,
                emulate: wanted.emulate.clone(),
                integrity: wanted.integrity,
            };
            let place = config.registers.then(|| TargetPlace {
                server: config.server,
                class: wanted.class.clone(),
                settings: wanted.settings,
            });
            let target = match registrar.attach(&spec, place).await? {
                Attached::Yes(target) => *target,
                Attached::No(refusal) => {
                    let path = wanted.path.display().to_string();
                    let reason = refusal.explain(wanted.id, &path, registrar.cluster_id().await?);
                    (config.hooks.log)(&format!("error: {} is refused: {reason}", wanted.id));
                    let (class, module) = (wanted.class.clone(), wanted.module.name());
                    let entry = Refused { class, path, module, state: refusal.word(), reason };
                    refused.insert(wanted.id, entry);
                    continue;
                }
            };
            after_crash |= target.had_leases();
            let decider = averages.of(wanted.id);
            let served = ServedTarget {
                tiered: tiered::open(env, config, wanted, target, decider).await?,
                class: wanted.class.clone(),
                leases: wanted.leases,
                admission: Admission::new(env, wanted.queue_depth),
                counters: Counters::default(),
                latencies: Latencies::default(),
            };
            let before = targets.insert(wanted.id, Arc::new(served));
            assert!(before.is_none(), "{} is configured twice", wanted.id);
        }
        Ok(Arc::new(Self {
            env: env.clone(),
            name: config.name.clone(),
            secret: config.secret.clone(),
            limits: config.limits.clone(),
            hooks: config.hooks.clone(),
            targets,
            refused,
            averages,
            leases: Leases::new(env, after_crash),
            in_flight: InFlightWrites::default(),
            watches: Watches::default(),
            sampler: config.sample.map(|one_in| Sampler::new(env, one_in, config.limits.samples_max)),
            pool: PayloadPool::new(env, config.limits.payload_memory_max, config.limits.payload_of_user()),
            shared_memory: AtomicUsize::new(0),
            shared_by_user: Mutex::default(),
            skip_writeback: AtomicBool::new(false),
            latencies: Latencies::default(),
            sealing: AtomicBool::new(false),
            background_tasks: AtomicUsize::new(0),
            background_ended: env.notify(),
        }))
    }

    /// Starts a background task for each SSD tier.
    ///
    /// # Errors
    /// The system cannot start another thread.
    pub(crate) fn start_background(self: &Arc<Self>) -> std::io::Result<()> {
        for (&id, served) in &self.targets {
            if served.tiered.tier().is_none() {
                continue;
            }
            let (service, served) = (Arc::clone(self), Arc::clone(served));
            self.background_tasks.fetch_add(1, Ordering::SeqCst);
            let task = move || async move {
                let say = |line: &str| service.hooks.log_of(&id, line);
                served.tiered.run_background(&served.admission, say).await;
                served.tiered.shut_down(&service.skip_writeback, say).await;
                service.background_tasks.fetch_sub(1, Ordering::SeqCst);
                service.background_ended.notify_all();
            };
            if let Err(error) = self.env.spawn("weft ssd", task) {
                self.background_tasks.fetch_sub(1, Ordering::SeqCst);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Stops the background tasks. They write dirty bytes back first, unless [`skip_writeback`](Self::skip_writeback)
    /// was called.
    pub(crate) async fn stop_background(&self) {
        self.targets.values().for_each(|served| served.tiered.stop());
        loop {
            let seen = self.background_ended.epoch();
            if self.background_tasks.load(Ordering::SeqCst) == 0 {
                return;
            }
            self.background_ended.wait(seen, None).await;
        }
    }

    /// Leaves dirty bytes on the SSDs.
    pub(crate) fn skip_writeback(&self) {
        self.skip_writeback.store(true, Ordering::SeqCst);
    }

    /// Average service times of disks that have an SSD tier.
    pub(crate) fn averages(&self) -> &Averages {
        &self.averages
    }

    /// Serves one request.
    ///
    /// # Errors
    /// Errors of the connection, which cannot be used any more.
    pub(crate) async fn serve(
        &self,
        link: &mut Link<E::Conn>,
        entry: &Entry,
        connection: &mut DataConnection<E>,
        incoming: &Incoming,
    ) -> std::io::Result<()> {
        let payload_len = incoming.header.payload_len;
        let request = match link.decode::<DataRequest>(incoming) {
            Ok(request) => request,
            Err(bad) => {
                link.skip_payload(payload_len.into()).await?;
                let reply = DataReply::Failed(crate::connection::malformed(bad));
                return answer(link, entry, incoming, &reply).await;
            }
        };
        connection.transferred = 0;
        let concerns = Concerned::of(&request);
        let operation = match request {
            DataRequest::Read { .. } | DataRequest::ReadShared { .. } => Operation::Read,
            DataRequest::Write { .. } => Operation::Write,
            _ => Operation::Datafile,
        };
        let begin = self.env.now();
        let served = match request {
            DataRequest::Read { datafile, cap, offset, len, hints } if payload_len == 0 => {
                let read = io::IoRequest { datafile, cap, offset, len, hints };
                self.read(link, entry, connection, incoming, read).await
            }
            DataRequest::ReadShared { datafile, cap, offset, len, to, hints } => {
                link.skip_payload(payload_len.into()).await?;
                let read = io::IoRequest { datafile, cap, offset, len, hints };
                let reply = self.read_shared(connection, read, to as usize).await;
                if let Ok(DataReply::ReadShared { len, .. }) = &reply {
                    connection.transferred = u64::from(*len);
                }
                answer(link, entry, incoming, &reply.unwrap_or_else(DataReply::Failed)).await
            }
            DataRequest::Write { datafile, cap, offset, len, place, hints } => {
                let write = io::IoRequest { datafile, cap, offset, len, hints };
                let result = match place {
                    PayloadLocation::Payload => self.write(link, entry, connection, incoming, write).await?,
                    PayloadLocation::Shared(from) => {
                        link.skip_payload(payload_len.into()).await?;
                        self.write_shared(connection, write, from as usize).await
                    }
                };
                if result.is_ok() {
                    connection.transferred = u64::from(len);
                }
                let reply = result.map_or_else(DataReply::Failed, |()| DataReply::Written);
                answer(link, entry, incoming, &reply).await
            }
            other => {
                link.skip_payload(payload_len.into()).await?;
                self.serve_other(link, entry, connection, incoming, other).await
            }
        };
        let now = self.env.now();
        let took = now.saturating_sub(begin);
        self.latencies.add(operation, took);
        // Only a genuine capability makes a row for its file.
        let concerns = concerns.filter(|concerned| connection.knows(&concerned.cap));
        if let Some(target) = concerns.as_ref().and_then(|concerned| self.targets.get(&concerned.target?)) {
            target.latencies.add(operation, took);
        }
        let file = concerns.map(|concerned| concerned.cap.file);
        connection.activity.count(operation, file, connection.transferred, took, now);
        served
    }

    /// Called once a second: seals idle datafiles that have checksums, in a task of its own.
    pub(crate) fn seal_idle(self: &Arc<Self>) {
        let has_due = self.targets.values().any(|served| served.tiered.target().has_idle());
        if !has_due || self.sealing.swap(true, Ordering::SeqCst) {
            return;
        }
        let service = Arc::clone(self);
        self.background_tasks.fetch_add(1, Ordering::SeqCst);
        let task = move || async move {
            for served in service.targets.values() {
                served.tiered.target().seal_idle().await;
            }
            service.sealing.store(false, Ordering::SeqCst);
            service.background_tasks.fetch_sub(1, Ordering::SeqCst);
            service.background_ended.notify_all();
        };
        if self.env.spawn("weft seal", task).is_err() {
            // The next call tries again.
            self.sealing.store(false, Ordering::SeqCst);
            self.background_tasks.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Called once a second: renews leases, ends idle watches and frees unused memory.
    pub(crate) fn tick(&self) {
        self.leases.heartbeat();
        self.watches.tick(self.env.now());
        self.pool.trim();
    }

    /// Releases the admission of a read whose client is slow to receive.
    pub(crate) fn release_permit(&self, target: TargetId) {
        if let Some(served) = self.targets.get(&target) {
            served.admission.leave();
        }
    }

    /// Revokes all leases and grants no more.
    pub(crate) async fn end_leases(&self) {
        let stuck = self.leases.close(self.limits.revoke_timeout).await;
        self.note_stuck(stuck);
        if stuck > 0 {
            return; // the next start waits until these leases have expired
        }
        for served in self.targets.values() {
            if let Err(error) = served.tiered.target().mark_leases_ended().await {
                (self.hooks.log)(&format!("error: {error}"));
            }
        }
    }

    /// Releases the targets after the server has ended, so that another server may open them.
    pub(crate) fn release_targets(&self) {
        self.targets.values().for_each(|served| served.tiered.target().release());
    }

    /// Frees the resources of a connection that has ended.
    pub(crate) fn disconnected(&self, connection: DataConnection<E>) {
        self.leases.disconnected(connection.id());
        self.in_flight.remove(connection.id());
        self.shared_memory.fetch_sub(connection.shared_len(), Ordering::Relaxed);
        if let (Some(uid), 1..) = (connection.user, connection.shared_len()) {
            let mut by_user = self.shared_by_user.lock();
            let used = by_user.entry(uid).or_default();
            *used = used.saturating_sub(connection.shared_len());
            if *used == 0 {
                by_user.remove(&uid);
            }
        }
    }

    /// Whether requests wait for payload memory.
    pub(crate) fn is_short_of_memory(&self) -> bool {
        self.pool.is_short()
    }

    /// Bytes of payload memory and shared payload areas by user.
    pub(crate) fn memory_by_user(&self) -> BTreeMap<u32, usize> {
        let mut all = self.pool.by_user();
        for (uid, shared) in self.shared_by_user.lock().iter() {
            *all.entry(*uid).or_default() += shared;
        }
        all
    }

    /// Leases by client and file.
    pub(crate) fn lease_counts(&self) -> LeaseCounts {
        self.leases.counts()
    }

    /// Latencies of reads and writes of each target.
    pub(crate) fn target_latencies(&self) -> Vec<TargetLatency> {
        let one = |(&target, served): (&TargetId, &Arc<ServedTarget<E>>)| TargetLatency {
            target,
            read: served.latencies.of(Operation::Read).into(),
            write: served.latencies.of(Operation::Write).into(),
        };
        self.targets.iter().map(one).collect()
    }

    /// State of all targets.
    pub(crate) async fn status(&self) -> Vec<TargetStatus> {
        let mut all = Vec::with_capacity(self.targets.len());
        for (&id, served) in &self.targets {
            let target = served.tiered.target();
            let space = target.space().await.unwrap_or_default();
            // Dirty bytes of the SSD will need space on the disk.
            let dirty = served.tiered.tier().map_or(ByteLen(0), SsdTier::dirty);
            let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            let (damaged, unverified) = target.damage();
            let (bytes_compressed, bytes_stored) = target.compressed();
            all.push(TargetStatus {
                target: id,
                class: served.class.clone(),
                path: target.path().display().to_string(),
                module: match target.emulates() {
                    Some(profile) => format!("{}, emulates {profile}", target.module().name()),
                    None => target.module().name().to_owned(),
                },
                total: space.total,
                free: ByteLen(space.free.0.saturating_sub(dirty.0)),
                bytes_read: count(&served.counters.bytes_read),
                bytes_written: count(&served.counters.bytes_written),
                requests: count(&served.counters.requests),
                fragments: count(&served.counters.fragments),
                queue: served.admission.queued(),
                leases: self.leases.on_target(id),
                damaged,
                unverified,
                bytes_compressed,
                bytes_stored,
                ssd: served.tiered.ssd_status(),
                file_system: file_system(self.env.boot(), space.device),
                refused: None,
                disk: target.device_load(),
            });
        }
        all.extend(self.refused.iter().map(|(&id, refused)| refused.status(id)));
        all.sort_by_key(|status| status.target);
        all
    }

    /// Refused targets, each with the reason.
    pub(crate) fn refusals(&self) -> Vec<(TargetId, String)> {
        self.refused.iter().map(|(id, refused)| (*id, refused.reason.clone())).collect()
    }

    fn served(&self, target: TargetId) -> Result<&ServedTarget<E>, WireError> {
        self.targets.get(&target).map(Arc::as_ref).ok_or_else(|| {
            if let Some(refused) = self.refused.get(&target) {
                let detail = format!("server {:?}: {target} is refused: {}", self.name, refused.reason);
                return WireError::new(Errno::EIO, detail);
            }
            let detail = format!(
                "{target} is not on server {:?}: client and server disagree about the cluster file",
                self.name
            );
            WireError::new(Errno::ENXIO, detail)
        })
    }

    /// Checks that a genuine capability may still change the file. A client that lost the append lock needs a fresh
    /// one.
    ///
    /// # Errors
    /// `ESTALE`, the error of an expired capability.
    fn check_fence(&self, served: &ServedTarget<E>, cap: &Capability) -> Result<(), WireError> {
        self.check_seal(served, cap)?;
        if !served.tiered.target().is_fenced(cap.file, cap.expires_s) {
            return Ok(());
        }
        let detail = format!(
            "the capability for file {} is fenced: another client holds or held the append lock since",
            cap.file
        );
        Err(WireError::new(Errno::ESTALE, detail))
    }

    /// Checks that no seal rejects a genuine capability.
    ///
    /// # Errors
    /// `EREMCHG` if the file was moved or is being moved to another layout, or its replica was sealed since.
    fn check_seal(&self, served: &ServedTarget<E>, cap: &Capability) -> Result<(), WireError> {
        let lets_pass = is_seeded(Mutant::ReadableSeal) && !cap.rights.allow(Rights::WRITE);
        if lets_pass || !served.tiered.target().is_sealed(cap.file, cap.expires_s) {
            return Ok(());
        }
        let detail = format!(
            "file {} has moved, or is moving, to another layout, or a blank disk has become a target since it was opened",
            cap.file
        );
        Err(WireError::new(Errno::EREMCHG, detail))
    }

    /// Checks the seal once more after a read, which has found nothing if a move removed the datafile meanwhile.
    ///
    /// # Errors
    /// `EREMCHG`, as before the read.
    fn check_seal_after_read(&self, served: &ServedTarget<E>, cap: &Capability) -> Result<(), WireError> {
        if is_seeded(Mutant::ReadAfterSeal) {
            return Ok(());
        }
        self.check_seal(served, cap)
    }

    /// Result of an operation on a datafile, unless the datafile was sealed since the operation began. Its bytes may
    /// then be gone already, those on an SSD first.
    fn unless_moved<T>(
        &self,
        served: &ServedTarget<E>,
        cap: &Capability,
        found: Result<T, DatafileError>,
    ) -> Result<T, WireError> {
        self.check_seal(served, cap)?;
        found.map_err(|error| self.failed(error))
    }

    /// Refuses a datafile that is not compressed although its file is. Only the lost map knew its length and holes.
    /// Free for other files.
    async fn require_compressed(
        &self,
        served: &ServedTarget<E>,
        cap: &Capability,
        datafile: DatafileId,
    ) -> Result<(), WireError> {
        let compression = cap.rights.compression();
        if compression.is_none() {
            return Ok(());
        }
        let format = DatafileFormat { integrity: None, compression };
        let found = served.tiered.target().require_format(key(datafile), format).await;
        self.unless_moved(served, cap, found)
    }

    /// Reply to a read that failed with `error`.
    fn read_failed(&self, served: &ServedTarget<E>, cap: &Capability, error: DatafileError) -> DataReply {
        if let Err(moved) = self.check_seal(served, cap) {
            return DataReply::Failed(moved);
        }
        let range = match &error {
            DatafileError::Damaged { start, end, .. } => Some((*start, *end)),
            _ => None,
        };
        let error = self.failed(error);
        match range {
            Some((start, end)) => DataReply::Damaged { start, end, error },
            None => DataReply::Failed(error),
        }
    }

    fn note_stuck(&self, stuck: usize) {
        if stuck > 0 {
            (self.hooks.log)(&format!(
                "warn: disconnected {stuck} clients that kept using datafiles after their leases were revoked"
            ));
        }
    }

    /// Error reply for the client. Errors of the device are also logged here.
    fn failed(&self, error: DatafileError) -> WireError {
        if let DatafileError::Device { .. }
        | DatafileError::Damaged { .. }
        | DatafileError::ChecksumsMissing { .. }
        | DatafileError::MapMissing { .. }
        | DatafileError::MapDamaged { .. } = &error
        {
            (self.hooks.log)(&format!("error: {error}"));
        }
        WireError::new(Errno(error.errno()), format!("server {:?}: {error}", self.name))
    }
}

impl Refused {
    fn status(&self, target: TargetId) -> TargetStatus {
        TargetStatus {
            target,
            class: self.class.clone(),
            path: self.path.clone(),
            module: self.module.to_owned(),
            total: ByteLen(0),
            free: ByteLen(0),
            bytes_read: 0,
            bytes_written: 0,
            requests: 0,
            fragments: 0,
            queue: 0,
            leases: 0,
            ssd: None,
            file_system: 0,
            damaged: 0,
            unverified: 0,
            bytes_compressed: 0,
            bytes_stored: 0,
            refused: Some(RefusedTarget { state: self.state.to_owned(), reason: self.reason.clone() }),
            disk: None,
        }
    }
}

/// Format of the datafiles of the file to which a capability belongs.
fn format_of(cap: &Capability) -> DatafileFormat {
    DatafileFormat { integrity: cap.rights.integrity(), compression: cap.rights.compression() }
}

fn key(datafile: DatafileId) -> DatafileKey {
    DatafileKey::new(datafile.file, datafile.object)
}

/// Number of a file system that is unique across machines; 0 if unknown.
fn file_system(boot: u64, device: u64) -> u64 {
    match device {
        0 => 0,
        // Device numbers repeat on other machines, boot ids do not.
        _ => (boot ^ device.wrapping_mul(0x9e37_79b9_7f4a_7c15)).max(1),
    }
}
