//! View of the simulated world from one process.

use super::disk::{SimDir, SimDisk, SimFile};
use super::net::{self, SimConn, SimListener};
use super::world::{MachineId, ProcessId, World};
use super::{Payload, SimNotify, SimShared};
use crate::{Address, Coding, Env, Hollow};
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use weft_core::{Nanos, Timestamp};

/// Civil time at the start of the world: 2026-01-01.
const EPOCH_S: i64 = 1_767_225_600;

/// Process of the simulated world. It ends by [`Control::kill`](super::Control::kill) or with its machine. The
/// operations of a dead process never complete.
#[derive(Clone)]
pub struct SimEnv {
    world: Arc<World>,
    process: ProcessId,
    is_alive: Arc<AtomicBool>,
    machine: MachineId,
    clock: u64,
    wall_skew: u64,
}

impl std::fmt::Debug for SimEnv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimEnv(process {} on machine {})", self.process.0, self.machine.0)
    }
}

impl SimEnv {
    pub(super) fn new(
        world: Arc<World>,
        (process, is_alive): (ProcessId, Arc<AtomicBool>),
        machine: MachineId,
        clock: u64,
        wall_skew: u64,
    ) -> Self {
        Self { world, process, is_alive, machine, clock, wall_skew }
    }

    pub(super) fn world(&self) -> &Arc<World> {
        &self.world
    }

    pub(super) fn process(&self) -> ProcessId {
        self.process
    }

    pub(super) fn machine(&self) -> MachineId {
        self.machine
    }

    pub(super) fn is_alive(&self) -> bool {
        self.is_alive.load(Relaxed)
    }

    /// Returns if the process is alive; never completes otherwise.
    pub(super) async fn alive(&self) {
        if !self.is_alive() {
            std::future::pending::<()>().await;
        }
    }

    /// Counts a sync that starts, and cuts the power if a test requested that for this one.
    pub(super) fn sync_point(&self) {
        let is_cut = {
            if !self.is_alive() {
                return;
            }
            let mut state = self.world.state();
            let machine = state.machine(self.machine);
            machine.sync_points += 1;
            machine.cut_at_sync == Some(machine.sync_points)
        };
        if is_cut {
            self.world.power_cut(self.machine);
        }
    }

    /// Returns the disk that contains `path`, and the rest of the path on it.
    pub(super) fn find_disk<'a>(&self, path: &'a Path) -> io::Result<(Arc<SimDisk>, &'a Path)> {
        let mut state = self.world.state();
        let disks = &state.machine(self.machine).disks;
        disks
            .iter()
            .filter_map(|(mount, disk)| Some((Arc::clone(disk), path.strip_prefix(mount).ok()?)))
            .min_by_key(|(_, rest)| rest.components().count())
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Env for SimEnv {
    type Conn = SimConn;
    type Listener = SimListener;
    type File = SimFile;
    type Dir = SimDir;
    type Notify = SimNotify;
    type Shared = SimShared;

    fn now(&self) -> Nanos {
        Nanos(self.world.now().wrapping_add(self.clock))
    }

    fn wall(&self) -> Timestamp {
        let since = i128::from(self.world.now() + self.wall_skew);
        Timestamp(Timestamp::from_parts(EPOCH_S, 0).0 + since)
    }

    fn boot(&self) -> u64 {
        self.world.state().machine(self.machine).boots
    }

    fn random(&self, out: &mut [u8]) {
        self.world.state().rng.fill(out);
    }

    async fn sleep(&self, duration: Nanos) {
        self.alive().await;
        if duration.0 == 0 {
            return self.world.step_back().await;
        }
        self.world.sleep_until(self.world.now().saturating_add(duration.0)).await;
    }

    fn spawn<F, Fut>(&self, name: &str, body: F) -> io::Result<()>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        if !self.is_alive() {
            return Err(io::Error::other("this process is dead"));
        }
        let mut state = self.world.state();
        state.add_task(self.process, name, Some(Box::new(move || Box::pin(body()))));
        Ok(())
    }

    fn boxed<F: Future>(future: F) -> impl Future<Output = F::Output> {
        Box::pin(future)
    }

    fn notify(&self) -> SimNotify {
        SimNotify::new(Arc::clone(&self.world))
    }

    fn hollow(&self, len: usize) -> Option<Hollow> {
        match self.world.config.payload {
            Payload::Bytes => None,
            Payload::Lengths => Hollow::new(len),
        }
    }

    fn coding(&self) -> Option<Coding> {
        *self.world.coding.lock()
    }

    fn shared(&self, len: usize) -> io::Result<SimShared> {
        Ok(SimShared::new(len))
    }

    async fn listen(&self, address: &Address) -> io::Result<SimListener> {
        self.alive().await;
        net::listen(self, address)
    }

    async fn connect(&self, address: &Address, timeout: Nanos) -> io::Result<SimConn> {
        net::connect(self, address, timeout).await
    }

    async fn dir(&self, path: &Path) -> io::Result<SimDir> {
        self.alive().await;
        let (disk, rest) = self.find_disk(path)?;
        let folder = disk.find_folder(rest.to_str().ok_or(io::ErrorKind::InvalidInput)?)?;
        Ok(SimDir::new(self.clone(), disk, folder))
    }
}
