//! The data service: datafiles on targets, for whoever holds a capability.

mod connection;
mod holes;
mod inside;
mod io;
mod many;
mod moving;
mod probe;
mod samples;
mod watches;

pub(crate) use connection::{ConnectionRights, DataConnection};
use inside::Insiders;
use samples::Sampler;
use watches::Watches;

use crate::admission::Admission;
use crate::attach::{AttachError, Attached, Registrar};
use crate::averages::Averages;
use crate::config::{Hooks, Limits, ServerConfig};
use crate::connection::answer;
use crate::connections::Entry;
use crate::lease::Leases;
use crate::payload::PayloadPool;
use crate::place::{self, Bridge, Placed};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use weft_core::{ByteLen, TargetId};
use weft_env::plants::{Plant, planted};
use weft_env::{Env, Notify};
use weft_store::datafile::DatafileKey;
use weft_store::error::DatafileError;
use weft_store::target::TargetSpec;
use weft_wire::data::{DataReply, DataRequest, DatafileId, Place};
use weft_wire::status::{RefusedTarget, TargetStatus};
use weft_wire::{Capability, ClusterSecret, Errno, Incoming, Link, Rights, WireError};

/// The data service of one server.
pub struct DataService<E: Env> {
    env: E,
    name: String,
    secret: ClusterSecret,
    limits: Limits,
    hooks: Hooks,
    targets: BTreeMap<TargetId, Arc<Served<E>>>,
    /// Targets of this server that must not be used.
    refused: BTreeMap<TargetId, Refused>,
    averages: Averages,
    leases: Leases<E>,
    /// Writes under way.
    insiders: Insiders,
    /// What is changed of files that are being copied.
    watches: Watches,
    /// Requests that are kept for whoever plans layouts.
    sampler: Option<Sampler>,
    pool: PayloadPool<E>,
    /// Bytes of all shared payload areas.
    shared_memory: AtomicUsize,
    /// Bytes of shared payload areas of each user who has any, where users have bounds.
    shared_by_user: Mutex<BTreeMap<u32, usize>>,
    /// What lies on SSDs alone is to stay there when the server ends.
    hurry: AtomicBool,
    /// A task seals datafiles.
    sealing: AtomicBool,
    /// Tasks that look after SSDs, or seal datafiles.
    looking_after: AtomicUsize,
    looked_after: E::Notify,
}

/// A target with what stands before it.
struct Served<E: Env> {
    placed: Placed<E>,
    class: String,
    leases: bool,
    admission: Admission<E>,
    counters: Counters,
}

/// A target that must not be used.
struct Refused {
    class: String,
    path: String,
    module: &'static str,
    state: &'static str,
    /// The reason and the remedy.
    reason: String,
}

/// What was done on one target since the start.
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
    /// Attaches and opens all targets. Those that must not be used stay closed: requests for them get the reason.
    ///
    /// # Errors
    /// When one of them cannot be opened for another reason than its identity.
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
            let target = match registrar.attach(&spec).await? {
                Attached::Yes(target) => *target,
                Attached::No(refusal) => {
                    let path = wanted.path.display().to_string();
                    let reason = refusal.told(wanted.id, &path, registrar.cluster_id().await?);
                    (config.hooks.log)(&format!("{} is refused: {reason}", wanted.id));
                    let (class, module) = (wanted.class.clone(), wanted.module.name());
                    let entry = Refused { class, path, module, state: refusal.word(), reason };
                    refused.insert(wanted.id, entry);
                    continue;
                }
            };
            after_crash |= target.had_leases();
            let decider = averages.of(wanted.id);
            let served = Served {
                placed: place::open(env, config, wanted, target, decider).await?,
                class: wanted.class.clone(),
                leases: wanted.leases,
                admission: Admission::new(env, wanted.queue_depth),
                counters: Counters::default(),
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
            insiders: Insiders::default(),
            watches: Watches::default(),
            sampler: config.sample.map(|one_in| Sampler::new(env, one_in, config.limits.samples_max)),
            pool: PayloadPool::new(env, config.limits.payload_memory_max, config.limits.payload_of_user()),
            shared_memory: AtomicUsize::new(0),
            shared_by_user: Mutex::default(),
            hurry: AtomicBool::new(false),
            sealing: AtomicBool::new(false),
            looking_after: AtomicUsize::new(0),
            looked_after: env.notify(),
        }))
    }

    /// Starts the tasks that look after SSDs.
    ///
    /// # Errors
    /// When the system has no room for another thread.
    pub(crate) fn look_after(self: &Arc<Self>) -> std::io::Result<()> {
        for (&id, served) in &self.targets {
            if served.placed.bridge().is_none() {
                continue;
            }
            let (service, served) = (Arc::clone(self), Arc::clone(served));
            self.looking_after.fetch_add(1, Ordering::SeqCst);
            let task = move || async move {
                let say = |line: &str| (service.hooks.log)(&format!("{id}: {line}"));
                served.placed.look_after(&served.admission, say).await;
                served.placed.put_away(&service.hurry, say).await;
                service.looking_after.fetch_sub(1, Ordering::SeqCst);
                service.looked_after.notify_all();
            };
            if let Err(error) = self.env.spawn("weft ssd", task) {
                self.looking_after.fetch_sub(1, Ordering::SeqCst);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Has everything that lies on SSDs alone written to the disks, and puts the SSDs away.
    pub(crate) async fn put_away(&self) {
        self.targets.values().for_each(|served| served.placed.stop());
        loop {
            let seen = self.looked_after.epoch();
            if self.looking_after.load(Ordering::SeqCst) == 0 {
                return;
            }
            self.looked_after.wait(seen, None).await;
        }
    }

    /// What lies on SSDs alone is to stay there.
    pub(crate) fn hurry(&self) {
        self.hurry.store(true, Ordering::SeqCst);
    }

    /// The average service times of disks with an SSD beside them.
    pub(crate) fn averages(&self) -> &Averages {
        &self.averages
    }

    /// Serves one request.
    ///
    /// # Errors
    /// Of the connection, which is then of no more use.
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
        match request {
            DataRequest::Read { datafile, cap, offset, len, hints } if payload_len == 0 => {
                let read = io::Read { datafile, cap, offset, len, hints };
                self.read(link, entry, connection, incoming, read).await
            }
            DataRequest::ReadShared { datafile, cap, offset, len, to, hints } => {
                link.skip_payload(payload_len.into()).await?;
                let read = io::Read { datafile, cap, offset, len, hints };
                let reply = self.read_shared(connection, read, to as usize).await;
                answer(link, entry, incoming, &reply.unwrap_or_else(DataReply::Failed)).await
            }
            DataRequest::Write { datafile, cap, offset, len, place, hints } => {
                let write = io::Write { datafile, cap, offset, len, hints };
                let result = match place {
                    Place::Payload => self.write(link, entry, connection, incoming, write).await?,
                    Place::Shared(from) => {
                        link.skip_payload(payload_len.into()).await?;
                        self.write_shared(connection, write, from as usize).await
                    }
                };
                let reply = result.map_or_else(DataReply::Failed, |()| DataReply::Written);
                answer(link, entry, incoming, &reply).await
            }
            other => {
                link.skip_payload(payload_len.into()).await?;
                self.serve_other(link, entry, connection, incoming, other).await
            }
        }
    }

    /// Once a second: seals datafiles with checksums that have been idle, in a task of its own.
    pub(crate) fn seal_idle(self: &Arc<Self>) {
        let has_due = self.targets.values().any(|served| served.placed.target().has_idle());
        if !has_due || self.sealing.swap(true, Ordering::SeqCst) {
            return;
        }
        let service = Arc::clone(self);
        self.looking_after.fetch_add(1, Ordering::SeqCst);
        let task = move || async move {
            for served in service.targets.values() {
                served.placed.target().seal_idle().await;
            }
            service.sealing.store(false, Ordering::SeqCst);
            service.looking_after.fetch_sub(1, Ordering::SeqCst);
            service.looked_after.notify_all();
        };
        if self.env.spawn("weft seal", task).is_err() {
            // They stay unsealed until there is room for a thread.
            self.sealing.store(false, Ordering::SeqCst);
            self.looking_after.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Once a second: leases go on, memory that nobody needs goes back.
    pub(crate) fn tick(&self) {
        self.leases.heartbeat();
        self.watches.tick(self.env.now());
        self.pool.trim();
    }

    /// A client is slow to take what it read: others may use the target meanwhile.
    pub(crate) fn take_turn_back(&self, target: TargetId) {
        if let Some(served) = self.targets.get(&target) {
            served.admission.leave();
        }
    }

    /// Takes all leases back for good.
    pub(crate) async fn end_leases(&self) {
        let stuck = self.leases.close(self.limits.revoke_timeout).await;
        self.note_stuck(stuck);
        if stuck > 0 {
            return; // the next start waits for what these may still do
        }
        for served in self.targets.values() {
            if let Err(error) = served.placed.target().leases_ended().await {
                (self.hooks.log)(&error.to_string());
            }
        }
    }

    /// The server has ended: another may have the targets.
    pub(crate) fn give_up(&self) {
        self.targets.values().for_each(|served| served.placed.target().give_up());
    }

    /// A connection has ended.
    pub(crate) fn disconnected(&self, connection: DataConnection<E>) {
        self.leases.disconnected(connection.id());
        self.insiders.remove(connection.id());
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

    /// Bytes of payload memory and of shared payload areas of each user who has any.
    pub(crate) fn memory_by_user(&self) -> BTreeMap<u32, usize> {
        let mut all = self.pool.by_user();
        for (uid, shared) in self.shared_by_user.lock().iter() {
            *all.entry(*uid).or_default() += shared;
        }
        all
    }

    /// The state of all targets.
    pub(crate) async fn status(&self) -> Vec<TargetStatus> {
        let mut all = Vec::with_capacity(self.targets.len());
        for (&id, served) in &self.targets {
            let target = served.placed.target();
            let space = target.space().await.unwrap_or_default();
            // What lies on an SSD alone needs room on the disk before long.
            let owed = served.placed.bridge().map_or(ByteLen(0), Bridge::dirty);
            let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            let (damaged, unverified) = target.damage();
            all.push(TargetStatus {
                target: id,
                class: served.class.clone(),
                path: target.path().display().to_string(),
                module: match target.emulates() {
                    Some(profile) => format!("{}, emulates {profile}", target.module().name()),
                    None => target.module().name().to_owned(),
                },
                total: space.total,
                free: ByteLen(space.free.0.saturating_sub(owed.0)),
                bytes_read: count(&served.counters.bytes_read),
                bytes_written: count(&served.counters.bytes_written),
                requests: count(&served.counters.requests),
                fragments: count(&served.counters.fragments),
                queue: served.admission.queued(),
                leases: self.leases.on_target(id),
                damaged,
                unverified,
                ibridge: served.placed.bridge().map(Bridge::status),
                file_system: file_system(self.env.boot(), space.device),
                refused: None,
            });
        }
        all.extend(self.refused.iter().map(|(&id, refused)| refused.status(id)));
        all.sort_by_key(|status| status.target);
        all
    }

    /// The targets that must not be used, and why.
    pub(crate) fn refusals(&self) -> Vec<(TargetId, String)> {
        self.refused.iter().map(|(id, refused)| (*id, refused.reason.clone())).collect()
    }

    fn served(&self, target: TargetId) -> Result<&Served<E>, WireError> {
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

    /// Whether a capability that was genuine may still change the file: who lost the append lock without giving it up has
    /// to ask for a fresh one.
    ///
    /// # Errors
    /// `ESTALE`, as for one whose time is over.
    fn check_fence(&self, served: &Served<E>, cap: &Capability) -> Result<(), WireError> {
        self.check_seal(served, cap)?;
        if !served.placed.target().is_fenced(cap.file, cap.expires_s) {
            return Ok(());
        }
        let detail =
            format!("the capability for file {} does not hold: others have appended since", cap.file);
        Err(WireError::new(Errno::ESTALE, detail))
    }

    /// Whether a capability that was genuine still is for what the file has: it may have got other datafiles since.
    ///
    /// # Errors
    /// `EREMCHG`: the metadata service knows.
    fn check_seal(&self, served: &Served<E>, cap: &Capability) -> Result<(), WireError> {
        let lets_pass = planted(Plant::ReadableSeal) && !cap.rights.allow(Rights::WRITE);
        if lets_pass || !served.placed.target().is_sealed(cap.file, cap.expires_s) {
            return Ok(());
        }
        let detail = format!("the bytes of file {} are being given, or have, another layout", cap.file);
        Err(WireError::new(Errno::EREMCHG, detail))
    }

    /// What was found of a datafile, unless it has been given up for another since its seal was looked at: then parts of it may
    /// be gone already, those that an SSD had first.
    fn unless_moved<T>(
        &self,
        served: &Served<E>,
        cap: &Capability,
        found: Result<T, DatafileError>,
    ) -> Result<T, WireError> {
        self.check_seal(served, cap)?;
        found.map_err(|error| self.failed(error))
    }

    /// Reply to a read that failed with `error`.
    fn read_failed(&self, served: &Served<E>, cap: &Capability, error: DatafileError) -> DataReply {
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
                "disconnected {stuck} clients that went on using datafiles after their leases were taken back"
            ));
        }
    }

    /// As it goes to the client, whose log it ends in; broken devices are also this server's concern.
    fn failed(&self, error: DatafileError) -> WireError {
        if let DatafileError::Device { .. }
        | DatafileError::Damaged { .. }
        | DatafileError::ChecksumsMissing { .. } = &error
        {
            (self.hooks.log)(&error.to_string());
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
            ibridge: None,
            file_system: 0,
            damaged: 0,
            unverified: 0,
            refused: Some(RefusedTarget { state: self.state.to_owned(), reason: self.reason.clone() }),
        }
    }
}

fn key(datafile: DatafileId) -> DatafileKey {
    DatafileKey::new(datafile.file, datafile.object)
}

/// A number for a file system that no other one has, on whatever machine; 0 where that is not known.
fn file_system(boot: u64, device: u64) -> u64 {
    match device {
        0 => 0,
        // Two machines give their file systems the same numbers, but no two boots are alike.
        _ => (boot ^ device.wrapping_mul(0x9e37_79b9_7f4a_7c15)).max(1),
    }
}
