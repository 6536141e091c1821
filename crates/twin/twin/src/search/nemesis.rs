//! Injects faults and heals them.

use super::cluster::{Cluster, METADATA, Starts, ssd_path, target_path};
use super::judge::Judge;
use super::plan::{Fault, pick};
use super::repair;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_core::{FileId, Nanos, TargetId};
use weft_env::Env;
use weft_env::sim::{DiskFaults, NetworkFaults, Rng, SimEnv, SimpleDisk, SpareDisk};
use weft_store::compressed::MAP_SUFFIX;

/// A fault that lasts until it is healed.
enum OngoingFault {
    Down(usize),
    Partitioned(usize, usize),
    Network,
    Disk(usize, PathBuf),
    Armed(usize),
    /// A wrong disk is mounted at a path of a server.
    Swapped(Box<Swapped>),
}

/// A disk that replaced another one by mistake.
struct Swapped {
    server: usize,
    path: PathBuf,
    /// The disk that belongs at the path.
    right: SpareDisk,
    what: &'static str,
    /// Starts of all servers before the wrong disk was mounted.
    starts: Vec<Starts>,
    /// Set when the right disk is back.
    is_over: Arc<AtomicBool>,
}

/// Backup of a disk, made while its server was down.
struct Backup {
    disk: SpareDisk,
    /// Successful starts of the server with the original disk before the backup.
    starts: u64,
}

/// Injects faults and heals them.
pub struct Nemesis {
    cluster: Arc<Cluster>,
    judge: Judge,
    rng: Rng,
    ongoing: Vec<(Nanos, OngoingFault)>,
    /// Servers known to be down.
    down: Vec<bool>,
    /// Machines that will lose power at a sync.
    armed: Vec<bool>,
    /// Whether the metadata disk has failed, so that the metadata server must be restarted.
    metadata_is_broken: bool,
    /// Random generator for disk swaps, so that seeds without them keep their events.
    swapper: Rng,
    backups: BTreeMap<PathBuf, Backup>,
    /// Servers with a wrong disk at the moment.
    swapped: Vec<bool>,
    /// Successful starts of each server while it had a wrong disk.
    starts_with_wrong_disk: Vec<u64>,
}

impl Nemesis {
    /// Creates a nemesis for a cluster.
    pub fn new(cluster: Arc<Cluster>, judge: Judge, rng: Rng) -> Self {
        let servers = cluster.len();
        let (down, armed) = (vec![false; servers], vec![false; cluster.machines.len()]);
        let swapper = Rng::new(rng.clone().next_u64() ^ 0x00d1_5c00);
        Self {
            cluster,
            judge,
            rng,
            ongoing: Vec::new(),
            down,
            armed,
            metadata_is_broken: false,
            swapper,
            backups: BTreeMap::new(),
            swapped: vec![false; servers],
            starts_with_wrong_disk: vec![0; servers],
        }
    }

    fn elapsed(&self) -> Nanos {
        self.cluster.control.elapsed()
    }

    fn begin_ongoing(&mut self, what: OngoingFault, choices: &[u64]) {
        let ms = pick(&mut self.rng, choices);
        let until = self.elapsed().saturating_add(Nanos::from_ms(1 + self.rng.below(ms)));
        self.judge.begin_fault();
        self.ongoing.push((until, what));
    }

    /// Injects one fault. `kill_client` kills a client.
    pub fn inject(&mut self, kill_client: impl FnOnce(&mut Rng)) {
        if self.cluster.plan.disks && self.swapper.below(2) == 0 {
            return self.swap_disk();
        }
        let faults = self.cluster.plan.faults.clone();
        if faults.is_empty() {
            return;
        }
        let server = self.rng.below(self.cluster.len() as u64) as usize;
        let machine = self.cluster.plan.servers[server];
        let other = self.rng.below(self.cluster.machines.len() as u64) as usize;
        match pick(&mut self.rng, &faults) {
            Fault::KillServer if !self.down[server] => {
                self.judge.hit("fault: kill a server");
                self.cluster.kill(server);
                self.judge.say(|| format!("FAULT: server s{server} is killed"));
                self.went_down(server);
            }
            Fault::KillClient => {
                self.judge.instant_fault();
                kill_client(&mut self.rng);
            }
            Fault::PowerCut if self.cluster.lives(server) => {
                self.judge.hit("fault: cut the power");
                self.judge.say(|| format!("FAULT: machine m{machine} loses power"));
                self.cluster.control.power_cut(&self.cluster.machines[machine]);
                self.power_was_cut(machine);
            }
            Fault::PowerCutAtSync if self.cluster.lives(server) && !self.armed[machine] => {
                let env = self.cluster.machines[machine].clone();
                let at = self.cluster.control.sync_points(&env) + 1 + self.rng.below(6);
                self.judge.say(|| format!("FAULT: machine m{machine} loses power at its sync {at}"));
                self.cluster.control.power_cut_at_sync(&env, at);
                self.armed[machine] = true;
                self.begin_ongoing(OngoingFault::Armed(machine), &[3000]);
            }
            Fault::Partition if machine != other => {
                self.judge.hit("fault: partition two machines");
                self.judge.say(|| format!("FAULT: m{machine} and m{other} cannot reach each other"));
                let [a, b] = [machine, other].map(|at| &self.cluster.machines[at]);
                self.cluster.control.partition(a, b);
                self.judge.set_lasting_outage(true);
                self.begin_ongoing(OngoingFault::Partitioned(machine, other), &[100, 2_000, 10_000, 50_000]);
            }
            Fault::Reset if machine != other => {
                self.judge.hit("fault: reset connections");
                self.judge.say(|| format!("FAULT: connections between m{machine} and m{other} are reset"));
                let [a, b] = [machine, other].map(|at| &self.cluster.machines[at]);
                self.cluster.control.reset_connections(a, b);
                self.judge.outage();
                self.judge.instant_fault();
            }
            Fault::Network => {
                self.judge.hit("fault: bad network");
                let faults = NetworkFaults {
                    losses_per_million: pick(&mut self.rng, &[0, 10_000, 100_000]),
                    jitter: Nanos(pick(&mut self.rng, &[0, 100_000, 20_000_000])),
                    resets_per_million: pick(&mut self.rng, &[0, 1000, 30_000]),
                };
                self.judge.say(|| format!("FAULT: {faults:?}"));
                self.cluster.control.set_network_faults(faults);
                self.judge.set_lasting_outage(true);
                self.begin_ongoing(OngoingFault::Network, &[500, 5_000]);
            }
            Fault::DiskErrors => {
                self.judge.hit("fault: disk errors");
                let some = [0, 0, 5_000, 200_000];
                let faults = DiskFaults {
                    read_errors_per_million: pick(&mut self.rng, &some),
                    write_errors_per_million: pick(&mut self.rng, &some),
                    sync_errors_per_million: pick(&mut self.rng, &some),
                    ..DiskFaults::default()
                };
                self.inject_disk_fault(server, faults);
            }
            Fault::SlowDisk => {
                self.judge.hit("fault: slow disk");
                let slowness_percent = pick(&mut self.rng, &[1_000, 20_000, 400_000]);
                self.inject_disk_fault(server, DiskFaults { slowness_percent, ..DiskFaults::default() });
            }
            Fault::FullDisk => {
                self.judge.hit("fault: full disk");
                let capacity_bytes = pick(&mut self.rng, &[0, 20_000, 200_000]);
                self.inject_disk_fault(server, DiskFaults { capacity_bytes, ..DiskFaults::default() });
            }
            _ => {}
        }
    }

    /// Damages some datafiles of stopped servers. Only files whose writes are all recorded are chosen. For others, a
    /// missing byte could be one that was never recorded.
    pub fn damage(&mut self) {
        let mut dice = Rng::new(self.rng.clone().next_u64() ^ 0x000d_a4a6);
        let cluster = Arc::clone(&self.cluster);
        let safe: BTreeSet<FileId> = self.judge.now(|state, _| {
            let safe = state.files.iter().filter(|(_, model)| model.is_durable());
            safe.map(|(file, _)| *file).collect()
        });
        for target in 0..cluster.plan.targets() {
            // The SSD may hold the end of the file, which hides a truncated datafile on the disk.
            if cluster.plan.ssds[target].is_some() {
                continue;
            }
            let server = cluster.plan.server_of(target);
            let machine = &cluster.machines[cluster.plan.servers[server]];
            let path = target_path(target);
            let mut found: Vec<(FileId, String, u64)> = Vec::new();
            for (name, len) in cluster.control.files_on(machine, &path) {
                let of = name.strip_prefix("objects/").and_then(|name| name.split(['/', '.']).nth(1));
                let Some(file) = of.and_then(|id| u64::from_str_radix(id, 16).ok()) else { continue };
                let file = FileId(file).inode();
                if safe.contains(&file) && len > 0 {
                    found.push((file, name, len));
                }
            }
            if found.is_empty() || dice.below(2) == 0 {
                continue;
            }
            let (file, name, len) = &found[dice.below(found.len() as u64) as usize];
            if !self.down[server] {
                cluster.kill(server);
                self.went_down(server);
            }
            // A flipped bit may be in a place that nothing names, and then changes nothing.
            let datafile: Vec<&str> = name.split('.').take(3).collect();
            let map = datafile.join(".") + MAP_SUFFIX;
            let is_verified = cluster.plan.integrity || found.iter().any(|(_, other, _)| *other == map);
            let kinds = if is_verified { 3 } else { 2 };
            let done = match dice.below(kinds) {
                0 => {
                    self.judge.hit("damage: a datafile removed");
                    cluster.control.remove_file(machine, &path, name)
                }
                1 => {
                    self.judge.hit("damage: a datafile cut");
                    cluster.control.cut_file(machine, &path, name, dice.below(*len))
                }
                _ => {
                    self.judge.hit("damage: a flipped bit");
                    let mask = 1 << dice.below(8);
                    cluster.control.flip_bits(machine, &path, name, dice.below(*len), mask)
                }
            };
            done.expect("a datafile that was listed");
            if name.ends_with(MAP_SUFFIX) {
                self.judge.hit("damage: a map");
            }
            self.judge.say(|| format!("DAMAGE: {name} of target {target}, {len} bytes, of file {file}"));
            self.judge.damaged(*file);
        }
    }

    /// Loses the disk of a target: an administrator gives it up and puts a blank one in its place. Perhaps the metadata server
    /// is killed before, which then does not know the latest closes.
    pub async fn lose_target(&mut self, env: &SimEnv) {
        let mut dice = Rng::new(self.rng.clone().next_u64() ^ 0x0001_0575);
        let cluster = Arc::clone(&self.cluster);
        // A blank disk beside an SSD gets none of the bytes that the SSD has of the disk before it.
        let without_ssd = |target: &usize| cluster.plan.ssds[*target].is_none();
        let targets: Vec<usize> = (0..cluster.plan.targets()).filter(without_ssd).collect();
        if targets.is_empty() {
            return;
        }
        let target = pick(&mut dice, &targets);
        let server = cluster.plan.server_of(target);
        for killed in [Some(server), (server != 0 && dice.below(2) == 0).then_some(0)].into_iter().flatten() {
            cluster.kill(killed);
            self.went_down(killed);
        }
        let blank = cluster.control.blank_disk(Box::new(SimpleDisk::default()));
        let machine = &cluster.machines[cluster.plan.servers[server]];
        drop(cluster.control.swap_disk(machine, &target_path(target), blank));
        self.judge.say(|| format!("FAULT: the disk of target {target} of s{server} is lost"));
        self.judge.hit("fault: a disk is lost and given up");
        self.heal_all(env).await;
        if let Err(error) = repair::give_up(&cluster, &self.judge, TargetId(target as u32)).await {
            return self.judge.violated("everything proceeds after the faults", error.to_string());
        }
        cluster.kill(server);
        self.went_down(server);
        self.heal_all(env).await;
    }

    /// Stops a server, makes backups of its disks and perhaps swaps one of them for a blank disk or an older backup.
    fn swap_disk(&mut self) {
        // The metadata disk as often as all targets together.
        let of_metadata = self.swapper.below(2) == 0;
        let server = if of_metadata { 0 } else { self.swapper.below(self.cluster.len() as u64) as usize };
        let (which, wish) = (self.swapper.next_u64() as usize, self.swapper.below(4));
        // Only one swap at a time. A target that was refused because of wrong metadata has not changed since its
        // backup.
        if self.swapped.iter().any(|is_swapped| *is_swapped) {
            return;
        }
        if !self.down[server] {
            self.cluster.kill(server);
            self.judge.say(|| format!("FAULT: server s{server} is stopped"));
            self.went_down(server);
        }
        let cluster = Arc::clone(&self.cluster);
        let machine = &cluster.machines[cluster.plan.servers[server]];
        let model = || Box::new(SimpleDisk::default());
        let starts = cluster.starts(server);
        let own_starts = starts.done - self.starts_with_wrong_disk[server];
        let paths: Vec<PathBuf> = match of_metadata {
            true => vec![METADATA.into()],
            false => cluster.plan.targets_of(server).map(target_path).collect(),
        };
        // A backup is older only if the server has started with the original disk since.
        let is_older = |path: &&PathBuf| self.backups.get(*path).is_some_and(|it| it.starts < own_starts);
        let older: Vec<PathBuf> = paths.iter().filter(is_older).cloned().collect();
        let (path, spare, what) = match wish {
            0 => (None, None, ""),
            1 => (Some(&paths), Some(cluster.control.blank_disk(model())), "a blank disk"),
            _ if older.is_empty() => (None, None, ""),
            _ => (Some(&older), None, "an older copy"),
        };
        let path = path.map(|all| all[which % all.len()].clone());
        let spare = spare.or_else(|| Some(self.backups.remove(path.as_ref()?)?.disk));
        for path in paths {
            let disk = cluster.control.copy_disk(machine, &path, model());
            self.backups.insert(path, Backup { disk, starts: own_starts });
        }
        let (Some(path), Some(spare)) = (path, spare) else { return };
        self.judge.say(|| format!("FAULT: {what} instead of {} of s{server}", path.display()));
        let is_metadata = path.as_path() == std::path::Path::new(METADATA);
        self.judge.hit(match (is_metadata, wish) {
            (false, 1) => "fault: target emptied",
            (false, _) => "fault: older copy of a target",
            (true, 1) => "fault: metadata emptied",
            (true, _) => "fault: older copy of the metadata",
        });
        let right = cluster.control.swap_disk(machine, &path, spare);
        let is_over = Arc::new(AtomicBool::new(false));
        if is_metadata {
            repair::begin(&cluster, &self.judge, Arc::clone(&is_over));
        }
        self.swapped[server] = true;
        let starts = (0..cluster.len()).map(|server| cluster.starts(server)).collect();
        let swapped = Swapped { server, path, right, what, starts, is_over };
        self.begin_ongoing(OngoingFault::Swapped(Box::new(swapped)), &[1_000, 8_000, 20_000]);
    }

    /// Puts the right disk back. A server that started with the wrong disk must have refused it.
    fn put_back(&mut self, swapped: Swapped) {
        let Swapped { server, path, right, what, starts, is_over } = swapped;
        is_over.store(true, Ordering::SeqCst);
        let cluster = Arc::clone(&self.cluster);
        let now = cluster.starts(server);
        if now.refused > starts[server].refused {
            self.judge.hit("swap: a disk was refused");
        } else if now.done > starts[server].done {
            let accepted = format!("server s{server} took {what} for {}", path.display());
            self.judge.violated("a wrong disk is refused", accepted);
        }
        self.judge.say(|| format!("HEALED: the right disk {} of s{server} is back", path.display()));
        // Servers that started while the metadata was wrong refuse their targets until they are restarted.
        let concerned =
            |other: &usize| *other == server || cluster.starts(*other).refused > starts[*other].refused;
        let concerned: Vec<usize> = (0..cluster.len()).filter(concerned).collect();
        let up: Vec<usize> = concerned.iter().copied().filter(|other| !self.down[*other]).collect();
        up.iter().for_each(|other| cluster.kill(*other));
        drop(cluster.control.swap_disk(&cluster.machines[cluster.plan.servers[server]], &path, right));
        // While the metadata was wrong, no server started with its own disks.
        let is_metadata = path.as_path() == std::path::Path::new(METADATA);
        for other in (0..cluster.len()).filter(|other| *other == server || is_metadata) {
            self.starts_with_wrong_disk[other] += cluster.starts(other).done - starts[other].done;
        }
        self.swapped[server] = false;
        if up.contains(&0) {
            self.judge.power_lost(&[], true);
            self.judge.outage();
        }
        up.into_iter().for_each(|other| cluster.restart(other));
    }

    fn inject_disk_fault(&mut self, server: usize, faults: DiskFaults) {
        let of_server: Vec<usize> = self.cluster.plan.targets_of(server).collect();
        let target = if let [one] = of_server[..] { one } else { pick(&mut self.rng, &of_server) };
        let path = match server == 0 && self.rng.below(3) == 0 {
            true => METADATA.into(),
            false if self.cluster.plan.ssds[target].is_some() && self.rng.below(2) == 0 => {
                self.judge.hit("fault: SSD");
                // Bytes that only the SSD had may be lost. Reads of them then always fail.
                self.judge.ssd_may_fail();
                ssd_path(target)
            }
            false => target_path(target),
        };
        let machine = self.cluster.plan.servers[server];
        self.judge.say(|| format!("FAULT: disk {} of m{machine}: {faults:?}", path.display()));
        if path.as_path() == std::path::Path::new(METADATA) {
            self.judge.hit("fault: metadata disk");
            self.metadata_is_broken = true;
            self.judge.outage();
        }
        if self.cluster.plan.integrity && faults.write_errors_per_million > 0 {
            self.judge.writes_fail_halfway();
        }
        self.cluster.control.set_disk_faults(&self.cluster.machines[machine], &path, faults);
        self.begin_ongoing(OngoingFault::Disk(machine, path), &[500, 5_000]);
    }

    fn went_down(&mut self, server: usize) {
        self.down[server] = true;
        if server == 0 {
            // Unanswered changes in memory are lost with the process.
            self.judge.power_lost(&[], true);
            self.judge.outage();
        }
        self.begin_ongoing(OngoingFault::Down(server), &[20, 400, 4_000, 8_000]);
    }

    fn power_was_cut(&mut self, machine: usize) {
        let with_metadata = self.cluster.plan.servers[0] == machine;
        self.judge.power_lost(&self.cluster.targets_on(machine), with_metadata);
        for server in 0..self.cluster.len() {
            if self.cluster.plan.servers[server] == machine && !self.down[server] {
                self.cluster.kill(server);
                self.went_down(server);
            }
        }
    }

    /// Detects power cuts at a sync and heals faults whose time is over.
    pub fn poll(&mut self) {
        for machine in 0..self.armed.len() {
            let gone = |server: usize| {
                self.cluster.plan.servers[server] == machine
                    && !self.down[server]
                    && !self.cluster.lives(server)
            };
            if self.armed[machine] && (0..self.cluster.len()).any(gone) {
                self.judge.hit("fault: cut the power at a sync");
                self.judge.say(|| format!("FAULT: machine m{machine} has lost power at a sync"));
                self.power_was_cut(machine);
            }
        }
        let now = self.elapsed();
        while let Some(at) = self.ongoing.iter().position(|(until, _)| *until <= now) {
            let (_, what) = self.ongoing.swap_remove(at);
            self.heal(what);
        }
    }

    fn heal(&mut self, what: OngoingFault) {
        let cluster = Arc::clone(&self.cluster);
        match what {
            OngoingFault::Down(server) => {
                self.judge.say(|| format!("HEALED: server s{server} starts again"));
                self.down[server] = false;
                cluster.restart(server);
            }
            OngoingFault::Partitioned(a, b) => {
                self.judge.say(|| format!("HEALED: m{a} and m{b} reach each other"));
                let is_same_partition = |what: &OngoingFault| matches!(*what, OngoingFault::Partitioned(c, d) if (c, d) == (a, b) || (d, c) == (a, b));
                if !self.ongoing.iter().any(|(_, what)| is_same_partition(what)) {
                    cluster.control.heal(&cluster.machines[a], &cluster.machines[b]);
                }
                self.judge.set_lasting_outage(false);
            }
            OngoingFault::Network => {
                self.judge.say(|| "HEALED: the network".into());
                cluster.control.set_network_faults(NetworkFaults::default());
                self.judge.set_lasting_outage(false);
            }
            OngoingFault::Disk(machine, path) => {
                self.judge.say(|| format!("HEALED: disk {} of m{machine}", path.display()));
                cluster.control.set_disk_faults(&cluster.machines[machine], &path, DiskFaults::default());
            }
            OngoingFault::Swapped(swapped) => self.put_back(*swapped),
            OngoingFault::Armed(machine) => {
                self.armed[machine] = false;
                cluster.control.power_cut_at_sync(&cluster.machines[machine], u64::MAX);
            }
        }
        self.judge.end_fault();
    }

    /// Heals all faults and waits until all servers run.
    pub async fn heal_all(&mut self, env: &SimEnv) {
        self.poll();
        // Disarm first, so that no further machine goes down.
        self.ongoing.sort_by_key(|(_, what)| !matches!(what, OngoingFault::Armed(_)));
        for (_, what) in std::mem::take(&mut self.ongoing) {
            self.heal(what);
        }
        if self.metadata_is_broken {
            self.judge.say(|| "the metadata server is restarted after its disk failed".into());
            self.cluster.kill(0);
            self.judge.power_lost(&[], true);
            self.cluster.restart(0);
            self.judge.outage();
            self.judge.instant_fault();
        }
        let until = self.elapsed().saturating_add(Nanos::from_s(60));
        while (0..self.cluster.len()).any(|server| !self.cluster.runs(server)) {
            if self.elapsed() > until {
                return self.judge.violated("a server starts", "not within a minute".into());
            }
            env.sleep(Nanos::from_ms(50)).await;
        }
    }
}
