//! Operations of a test on the simulated world: machines, processes, faults.

use super::disk::{Device, DiskFaults, SimDisk, SpareDisk};
use super::net::{NetworkFaults, NetworkModel};
use super::world::{Machine, MachineId, Process, ProcessId, World};
use super::{Rng, SimEnv};
use crate::device::{DeviceCounters, DeviceModel};
use crate::{Coding, Peer};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weft_core::{ByteLen, Nanos};

/// Maximum time since a machine's boot when the world starts, in nanoseconds: one hour.
const BOOT_SPREAD: u64 = 3_600_000_000_000;
/// Maximum error of a machine's civil time, in nanoseconds.
const WALL_SKEW: u64 = 2_000_000;
/// Interval of probes on an idle connection, in nanoseconds.
const PROBE: u64 = 10_000_000_000;

/// Control over a simulated world, usable from inside its tasks.
#[derive(Clone)]
pub struct Control {
    pub(super) world: Arc<World>,
}

impl Control {
    /// Returns the virtual time since the world started.
    pub fn elapsed(&self) -> Nanos {
        Nanos(self.world.now())
    }

    /// Adds a machine without disks, and returns its first process.
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

    /// Adds a process on the machine of `beside`, as user (`uid`, `gid`).
    pub fn process(&self, beside: &SimEnv, name: &str, uid: u32, gid: u32) -> SimEnv {
        self.add_process(beside.machine(), name, (uid, gid, vec![]))
    }

    /// Mounts an empty disk at `path` on the machine of `env`.
    pub fn add_disk(&self, env: &SimEnv, path: &Path, mut model: Box<dyn DeviceModel>) {
        model.starts_empty();
        let mut state = self.world.state();
        let rng = state.rng.fork();
        let device = Arc::new(Device::new(model));
        let id = state.add_device(Arc::clone(&device));
        let disk = Arc::new(SimDisk::new(device, id, rng));
        state.machine(env.machine()).disks.insert(path.to_owned(), disk);
    }

    /// Creates an empty disk that is not in a machine.
    pub fn blank_disk(&self, mut model: Box<dyn DeviceModel>) -> SpareDisk {
        model.starts_empty();
        let mut state = self.world.state();
        let rng = state.rng.fork();
        let device = Arc::new(Device::new(model));
        let id = state.add_device(Arc::clone(&device));
        SpareDisk(Arc::new(SimDisk::new(device, id, rng)))
    }

    /// Copies the disk at `path` to a disk that is not in a machine. No process may be using the disk.
    pub fn copy_disk(&self, env: &SimEnv, path: &Path, model: Box<dyn DeviceModel>) -> SpareDisk {
        let disk = self.disk(env, path);
        let mut state = self.world.state();
        let rng = state.rng.fork();
        let device = Arc::new(Device::new(model));
        let id = state.add_device(Arc::clone(&device));
        drop(state);
        SpareDisk(Arc::new(disk.copied(device, id, rng)))
    }

    /// Replaces the disk at `path` by `spare`, which inherits the faults configured for that path. Returns the previous
    /// disk, cleanly unmounted. No process may be using it.
    pub fn swap_disk(&self, env: &SimEnv, path: &Path, spare: SpareDisk) -> SpareDisk {
        let was = self.disk(env, path);
        was.unmount();
        spare.0.inherit_faults(&self.world, &was);
        self.world.state().machine(env.machine()).disks.insert(path.to_owned(), spare.0);
        SpareDisk(was)
    }

    /// Returns paths and lengths of the files on the disk at `path`, sorted.
    pub fn files_on(&self, env: &SimEnv, path: &Path) -> Vec<(String, u64)> {
        self.disk(env, path).files()
    }

    /// Removes a file from the medium of the disk at `path`. No process may be using it.
    ///
    /// # Errors
    /// If there is no such file.
    pub fn remove_file(&self, env: &SimEnv, path: &Path, file: &str) -> std::io::Result<()> {
        self.disk(env, path).remove_file(file)
    }

    /// Cuts a file to `len` bytes on the medium of the disk at `path`. No process may be using it.
    ///
    /// # Errors
    /// If there is no such file.
    pub fn cut_file(&self, env: &SimEnv, path: &Path, file: &str, len: u64) -> std::io::Result<()> {
        self.disk(env, path).cut_file(file, len)
    }

    /// Flips the bits of `mask` in one byte of a file, on the medium of the disk at `path`. No process may be using it.
    ///
    /// # Errors
    /// If there is no such file.
    ///
    /// # Panics
    /// If the file has no such byte.
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

    /// Returns the disk that contains `path`.
    fn disk(&self, env: &SimEnv, path: &Path) -> Arc<SimDisk> {
        env.find_disk(path).expect("a disk contains the path").0
    }

    /// Configures the faults of the disk that contains `path`.
    pub fn set_disk_faults(&self, env: &SimEnv, path: &Path, faults: DiskFaults) {
        self.disk(env, path).set_faults(&self.world, faults);
    }

    /// Replaces the model of the disk that contains `path`. Requests in progress end at once.
    pub fn set_disk_model(&self, env: &SimEnv, path: &Path, model: Box<dyn DeviceModel>) {
        self.disk(env, path).set_model(&self.world, model);
    }

    /// Sets the model of compression. Without one, codecs take no time.
    ///
    /// # Panics
    /// If the ratio is not from 0 to 1 or the speed is not positive.
    pub fn set_coding(&self, coding: Coding) {
        assert!((0.0..=1.0).contains(&coding.ratio) && coding.speed > 0.0, "{coding:?} is no model");
        *self.world.coding.lock() = Some(coding);
    }

    /// Stores only the lengths of files created from now on below `folder`, in any directory tree of the disk that
    /// contains `path`, except for those whose names end in one of `except`. Earlier folders stay configured.
    pub fn keep_lengths(&self, env: &SimEnv, path: &Path, folder: &str, except: &[&str]) {
        self.disk(env, path).keep_lengths(folder, except);
    }

    /// Counts the requests to files created from now on below `folder` as payload, except for those whose names end in
    /// one of `except`. The counts are in the reasons of [`disk_counters`](Self::disk_counters).
    pub fn count_payload(&self, env: &SimEnv, path: &Path, folder: &str, except: &[&str]) {
        self.disk(env, path).count_payload(folder, except);
    }

    /// Drops the clean pages of the disk that contains `path` from the page cache.
    pub fn forget(&self, env: &SimEnv, path: &Path) {
        self.disk(env, path).forget();
    }

    /// Returns the work that has reached the device of the disk that contains `path`.
    pub fn disk_counters(&self, env: &SimEnv, path: &Path) -> DeviceCounters {
        self.disk(env, path).counters()
    }

    /// Replaces the network model.
    pub fn set_network(&self, model: Box<dyn NetworkModel>) {
        self.world.network.lock().model = model;
    }

    /// Configures the faults between machines.
    pub fn set_network_faults(&self, faults: NetworkFaults) {
        self.world.network.lock().faults = faults;
    }

    /// Sends `len` bytes between two machines outside of any connection, and returns the time of their arrival since the
    /// world started. For models of programs and file systems whose own code does not run in this world.
    pub fn transfer(&self, from: &SimEnv, to: &SimEnv, len: ByteLen) -> Nanos {
        let now = self.world.now();
        self.world.note(len.0 ^ (u64::from(from.machine().0) << 40) ^ (u64::from(to.machine().0) << 20));
        let mut network = self.world.network.lock();
        Nanos(network.model.arrival(Nanos(now), from.machine().0, to.machine().0, len).0.max(now))
    }

    /// Kills the process of `env` at once; its writes stay in the memory of its machine.
    pub fn kill(&self, env: &SimEnv) {
        self.world.kill(env.process());
    }

    /// Cuts the power of the machine of `env`. Its processes die, unsynced bytes and names are lost or torn as the seed
    /// decides, and its peers get no further answer.
    pub fn power_cut(&self, env: &SimEnv) {
        self.world.power_cut(env.machine());
    }

    /// Cuts the power of the machine of `env` just before its `count`-th sync (of a file or a folder) takes effect,
    /// counted from the start of the world.
    pub fn power_cut_at_sync(&self, env: &SimEnv, count: u64) {
        self.world.state().machine(env.machine()).cut_at_sync = Some(count);
    }

    /// Returns the number of syncs started on the machine of `env`.
    pub fn sync_points(&self, env: &SimEnv) -> u64 {
        self.world.state().machine(env.machine()).sync_points
    }

    /// Restarts the program of `env` as a new process of the same user, and its machine if that is down. Kills the old
    /// process if it still runs.
    pub fn restart(&self, env: &SimEnv) -> SimEnv {
        self.restart_in(env, true)
    }

    /// Restarts the program of `env` as [`restart`](Self::restart) does, but in the same boot. After a power cut, this is
    /// a disk that lost its cache while the machine ran on.
    pub fn restart_in_same_boot(&self, env: &SimEnv) -> SimEnv {
        self.restart_in(env, false)
    }

    fn restart_in(&self, env: &SimEnv, is_new_boot: bool) -> SimEnv {
        self.world.kill(env.process());
        let machine = env.machine();
        let (name, user, was_down) = {
            let mut state = self.world.state();
            let now = self.world.now();
            let was_down = !std::mem::replace(&mut state.machine(machine).is_up, true);
            if was_down {
                // The clock since boot restarts; its value must not be negative at any time of the world.
                state.machine(machine).boot_offset = 0u64.wrapping_sub(now);
                state.machine(machine).cut_at_sync = None;
                state.machine(machine).boots += u64::from(is_new_boot);
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

    /// Whether the process of `env` is alive.
    pub fn is_alive(&self, env: &SimEnv) -> bool {
        self.world.is_alive(env.process())
    }

    /// Blocks all traffic between the machines of `a` and `b` until [`heal`](Self::heal).
    pub fn partition(&self, a: &SimEnv, b: &SimEnv) {
        let (a, b) = (a.machine(), b.machine());
        self.world.state().partitions.insert((a.min(b), a.max(b)));
    }

    /// Ends a partition; the held-back traffic arrives.
    pub fn heal(&self, a: &SimEnv, b: &SimEnv) {
        let (a, b) = (a.machine(), b.machine());
        self.world.state().partitions.remove(&(a.min(b), a.max(b)));
        self.world.release_links_between(a, b);
    }

    /// Resets the connections between the machines of `a` and `b`; data in flight is lost.
    pub fn reset_connections(&self, a: &SimEnv, b: &SimEnv) {
        self.world.reset_links_between(a.machine(), b.machine());
    }

    /// Restarts all random decisions from `seed`. Two worlds in the same state then stay the same, even if they reached
    /// it on different ways.
    pub fn reseed(&self, seed: u64) {
        self.world.state().rng = Rng::new(seed);
    }

    /// Returns a random stream of this world, for decisions of the test.
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

    /// Returns a process as its local peers see it.
    pub fn peer(&self, process: ProcessId) -> Peer {
        let state = self.state();
        let it = &state.processes[process.0 as usize];
        Peer::Local { uid: it.uid, gid: it.gid, groups: it.groups.clone(), pid: process.0 + 1 }
    }

    /// Returns the machine that `host` names on machine `here`.
    pub fn find_machine(&self, here: MachineId, host: &str) -> Option<MachineId> {
        if matches!(host, "localhost" | "127.0.0.1" | "[::1]") {
            return Some(here);
        }
        let state = self.state();
        let index = state.machines.iter().position(|machine| machine.name == host)?;
        Some(MachineId(index as u32))
    }
}
