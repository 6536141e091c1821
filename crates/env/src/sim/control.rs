//! What a test does to the simulated world: machines, processes, faults.

use super::disk::{Device, DiskFaults, SimDisk, SpareDisk};
use super::net::{NetworkFaults, NetworkModel};
use super::world::{Machine, MachineId, Process, ProcessId, World};
use super::{Rng, SimEnv};
use crate::Peer;
use crate::device::{DeviceCounters, DeviceModel};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weft_core::Nanos;

/// An hour in nanoseconds: machines booted at most this long before the world began.
const BOOT_SPREAD: u64 = 3_600_000_000_000;
/// Civil time is off by at most this much on each machine, in nanoseconds.
const WALL_SKEW: u64 = 2_000_000;
/// A silent connection is probed this often, in nanoseconds.
const PROBE: u64 = 10_000_000_000;

/// Control over a simulated world, also from inside its tasks.
#[derive(Clone)]
pub struct Control {
    pub(super) world: Arc<World>,
}

impl Control {
    /// Virtual time since the world began.
    pub fn elapsed(&self) -> Nanos {
        Nanos(self.world.now())
    }

    /// A new machine without disks, and its first process.
    pub fn add_machine(&self, name: &str) -> SimEnv {
        let mut state = self.world.state();
        let machine = MachineId(u32::try_from(state.machines.len()).expect("fewer than 2^32 machines"));
        let boot_offset = state.rng.below(BOOT_SPREAD);
        let wall_skew = state.rng.below(WALL_SKEW);
        state.machines.push(Machine {
            name: name.to_owned(),
            is_up: true,
            boots: 1,
            boot_offset,
            wall_skew,
            disks: BTreeMap::new(),
            sync_points: 0,
            cut_at_sync: None,
            next_port: 40_000,
            socket_names: BTreeSet::new(),
        });
        drop(state);
        self.add_process(machine, name, (1000, 1000, vec![]))
    }

    fn add_process(
        &self,
        machine: MachineId,
        name: &str,
        (uid, gid, groups): (u32, u32, Vec<u32>),
    ) -> SimEnv {
        let mut state = self.world.state();
        let process = ProcessId(u32::try_from(state.processes.len()).expect("fewer than 2^32 processes"));
        let is_alive = Arc::new(AtomicBool::new(true));
        state.processes.push(Process {
            machine,
            is_alive: Arc::clone(&is_alive),
            name: name.to_owned(),
            uid,
            gid,
            groups,
        });
        let machine_state = state.machine(machine);
        let clock = machine_state.boot_offset;
        let wall_skew = machine_state.wall_skew;
        drop(state);
        SimEnv::new(Arc::clone(&self.world), (process, is_alive), machine, clock, wall_skew)
    }

    /// Another process on the machine of `beside`, as user (`uid`, `gid`).
    pub fn process(&self, beside: &SimEnv, name: &str, uid: u32, gid: u32) -> SimEnv {
        self.add_process(beside.machine(), name, (uid, gid, vec![]))
    }

    /// Puts an empty disk under `path` of the machine of `env`.
    pub fn add_disk(&self, env: &SimEnv, path: &Path, mut model: Box<dyn DeviceModel>) {
        model.starts_empty();
        let mut state = self.world.state();
        let rng = state.rng.fork();
        let device = Arc::new(Device::new(model));
        let id = state.add_device(Arc::clone(&device));
        let disk = Arc::new(SimDisk::new(device, id, rng));
        state.machine(env.machine()).disks.insert(path.to_owned(), disk);
    }

    /// An empty disk, in no machine yet.
    pub fn blank_disk(&self, mut model: Box<dyn DeviceModel>) -> SpareDisk {
        model.starts_empty();
        let mut state = self.world.state();
        let rng = state.rng.fork();
        let device = Arc::new(Device::new(model));
        let id = state.add_device(Arc::clone(&device));
        SpareDisk(Arc::new(SimDisk::new(device, id, rng)))
    }

    /// A copy of the disk under `path`, in no machine yet. No process may be using the disk.
    pub fn copy_disk(&self, env: &SimEnv, path: &Path, model: Box<dyn DeviceModel>) -> SpareDisk {
        let disk = self.disk(env, path);
        let mut state = self.world.state();
        let rng = state.rng.fork();
        let device = Arc::new(Device::new(model));
        let id = state.add_device(Arc::clone(&device));
        drop(state);
        SpareDisk(Arc::new(disk.copied(device, id, rng)))
    }

    /// Puts `spare` in the place of the disk under `path`, with the faults that are set for that place; gives back the
    /// disk that was there, unmounted in order. No process may be using it.
    pub fn swap_disk(&self, env: &SimEnv, path: &Path, spare: SpareDisk) -> SpareDisk {
        let was = self.disk(env, path);
        was.unmount();
        spare.0.take_place_of(&self.world, &was);
        self.world.state().machine(env.machine()).disks.insert(path.to_owned(), spare.0);
        SpareDisk(was)
    }

    /// Paths and lengths of the files on the disk under `path`, sorted.
    pub fn files_on(&self, env: &SimEnv, path: &Path) -> Vec<(String, u64)> {
        self.disk(env, path).files()
    }

    /// Removes a file of the disk under `path` from the medium. No process may be using it.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn remove_file(&self, env: &SimEnv, path: &Path, file: &str) -> std::io::Result<()> {
        self.disk(env, path).remove_file(file)
    }

    /// Cuts a file of the disk under `path` to `len` bytes, on the medium. No process may be using it.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn cut_file(&self, env: &SimEnv, path: &Path, file: &str, len: u64) -> std::io::Result<()> {
        self.disk(env, path).cut_file(file, len)
    }

    /// Flips the bits of `mask` in one byte of a file of the disk under `path`, on the medium. No process may be using it.
    ///
    /// # Errors
    /// When there is no such file.
    ///
    /// # Panics
    /// When the file has no such byte.
    pub fn flip_bits(
        &self,
        env: &SimEnv,
        path: &Path,
        file: &str,
        offset: u64,
        mask: u8,
    ) -> std::io::Result<()> {
        self.disk(env, path).flip_bits(file, offset, mask)
    }

    /// The disk that holds `path`.
    fn disk(&self, env: &SimEnv, path: &Path) -> Arc<SimDisk> {
        env.find_disk(path).expect("a disk holds the path").0
    }

    /// Sets what goes wrong with the disk that holds `path`.
    pub fn set_disk_faults(&self, env: &SimEnv, path: &Path, faults: DiskFaults) {
        self.disk(env, path).set_faults(&self.world, faults);
    }

    /// Replaces the model of the disk that holds `path`; what is under way on it ends at once.
    pub fn set_disk_model(&self, env: &SimEnv, path: &Path, model: Box<dyn DeviceModel>) {
        self.disk(env, path).set_model(&self.world, model);
    }

    /// Files made from now on below `folder` of any directory on the disk that holds `path` keep their lengths only,
    /// beside those below folders named before.
    pub fn keep_lengths(&self, env: &SimEnv, path: &Path, folder: &str) {
        self.disk(env, path).keep_lengths(folder);
    }

    /// The system's memory forgets what it holds of the files of the disk that holds `path`.
    pub fn forget(&self, env: &SimEnv, path: &Path) {
        self.disk(env, path).forget();
    }

    /// What has reached the device of the disk that holds `path`.
    pub fn disk_counters(&self, env: &SimEnv, path: &Path) -> DeviceCounters {
        self.disk(env, path).counters()
    }

    /// Replaces the model of the network.
    pub fn set_network(&self, model: Box<dyn NetworkModel>) {
        self.world.network.lock().model = model;
    }

    /// Sets what goes wrong between machines.
    pub fn set_network_faults(&self, faults: NetworkFaults) {
        self.world.network.lock().faults = faults;
    }

    /// The process of `env` dies at once; what it wrote stays in the memory of its machine.
    pub fn kill(&self, env: &SimEnv) {
        self.world.kill(env.process());
    }

    /// The machine of `env` loses power: its processes die, unsynced bytes and names are lost or torn by the seed,
    /// its peers hear nothing more.
    pub fn power_cut(&self, env: &SimEnv) {
        self.world.power_cut(env.machine());
    }

    /// Power is cut on the machine of `env` when its `count`-th sync from the start of the world (of a file or a
    /// folder) begins: just before that sync takes effect.
    pub fn power_cut_at_sync(&self, env: &SimEnv, count: u64) {
        self.world.state().machine(env.machine()).cut_at_sync = Some(count);
    }

    /// How many syncs have begun on the machine of `env`.
    pub fn sync_points(&self, env: &SimEnv) -> u64 {
        self.world.state().machine(env.machine()).sync_points
    }

    /// Starts the program of `env` again (and its machine when that is down), as a new process of the same user. A
    /// process that still lives is killed first.
    pub fn restart(&self, env: &SimEnv) -> SimEnv {
        self.world.kill(env.process());
        let machine = env.machine();
        let (name, user, was_down) = {
            let mut state = self.world.state();
            let now = self.world.now();
            let was_down = !std::mem::replace(&mut state.machine(machine).is_up, true);
            if was_down {
                // The clock since boot starts again; it may not go below zero at any time of the world.
                state.machine(machine).boot_offset = 0u64.wrapping_sub(now);
                state.machine(machine).cut_at_sync = None;
                state.machine(machine).boots += 1;
            }
            let process = &state.processes[env.process().0 as usize];
            let user = (process.uid, process.gid, process.groups.clone());
            (process.name.clone(), user, was_down)
        };
        if was_down {
            self.world.refuse_links_of(machine, PROBE);
        }
        self.add_process(machine, &name, user)
    }

    /// Whether the process of `env` lives.
    pub fn is_alive(&self, env: &SimEnv) -> bool {
        self.world.is_alive(env.process())
    }

    /// Nothing passes between the machines of `a` and `b` until [`heal`](Self::heal).
    pub fn partition(&self, a: &SimEnv, b: &SimEnv) {
        let (a, b) = (a.machine(), b.machine());
        self.world.state().partitions.insert((a.min(b), a.max(b)));
    }

    /// Ends a partition; what streams had held back arrives.
    pub fn heal(&self, a: &SimEnv, b: &SimEnv) {
        let (a, b) = (a.machine(), b.machine());
        self.world.state().partitions.remove(&(a.min(b), a.max(b)));
        self.world.release_links_between(a, b);
    }

    /// Resets the connections between the machines of `a` and `b`; what was under way is lost.
    pub fn reset_connections(&self, a: &SimEnv, b: &SimEnv) {
        self.world.reset_links_between(a.machine(), b.machine());
    }

    /// From here on chance is what `seed` says, whatever was drawn before: two worlds that are alike then stay alike, though
    /// they came there on different ways.
    pub fn reseed(&self, seed: u64) {
        self.world.state().rng = Rng::new(seed);
    }

    /// A stream of random numbers of this world, for choices of the test itself.
    pub fn rng(&self) -> Rng {
        self.world.state().rng.fork()
    }
}

impl World {
    fn kill(&self, process: ProcessId) {
        {
            let mut state = self.state();
            if !state.processes[process.0 as usize].is_alive() {
                return;
            }
            state.end_process(process);
        }
        self.note(u64::from(process.0) | 1 << 62);
        self.close_ports_of(process);
        self.close_links_of(process);
    }

    pub(super) fn power_cut(&self, machine: MachineId) {
        let (processes, disks) = {
            let mut state = self.state();
            state.machine(machine).is_up = false;
            let lost: Vec<ProcessId> = (0u32..)
                .zip(&state.processes)
                .filter(|(_, process)| process.machine == machine && process.is_alive())
                .map(|(index, _)| ProcessId(index))
                .collect();
            lost.iter().for_each(|&process| state.end_process(process));
            (lost, state.machine(machine).disks.values().cloned().collect::<Vec<_>>())
        };
        self.note(u64::from(machine.0) | 1 << 63);
        self.sever_links_of(machine);
        processes.iter().for_each(|&process| self.close_ports_of(process));
        disks.iter().for_each(|disk| disk.lose_power());
    }

    /// Who a process is to its neighbors.
    pub fn peer(&self, process: ProcessId) -> Peer {
        let state = self.state();
        let it = &state.processes[process.0 as usize];
        Peer::Local { uid: it.uid, gid: it.gid, groups: it.groups.clone(), pid: process.0 + 1 }
    }

    /// The machine that `host` means on machine `here`.
    pub fn find_machine(&self, here: MachineId, host: &str) -> Option<MachineId> {
        if matches!(host, "localhost" | "127.0.0.1" | "[::1]") {
            return Some(here);
        }
        let state = self.state();
        let index = state.machines.iter().position(|machine| machine.name == host)?;
        Some(MachineId(index as u32))
    }
}
