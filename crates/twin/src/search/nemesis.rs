//! What goes wrong, and how it is mended.

use super::cluster::{Cluster, METADATA, Starts, ssd_path, target_path};
use super::judge::Judge;
use super::plan::{Fault, pick};
use super::repair;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_core::{FileId, Nanos};
use weft_env::Env;
use weft_env::sim::{DiskFaults, NetworkFaults, Rng, SimEnv, SimpleDisk, SpareDisk};

/// Something that is to end.
enum Lasting {
    Down(usize),
    Parted(usize, usize),
    Network,
    Disk(usize, PathBuf),
    Armed(usize),
    /// A wrong disk under a path of a server.
    Swapped(Box<Swapped>),
}

/// A disk that was taken for another.
struct Swapped {
    server: usize,
    path: PathBuf,
    /// The disk that belongs there.
    right: SpareDisk,
    what: &'static str,
    /// What became of the starts of all servers before the wrong disk came.
    starts: Vec<Starts>,
    /// The right disk is back.
    is_over: Arc<AtomicBool>,
}

/// A backup of a disk, made while its server was down.
struct Backup {
    disk: SpareDisk,
    /// How often the server had come up with the disk itself.
    starts: u64,
}

/// Brings faults and takes them away.
pub struct Nemesis {
    cluster: Arc<Cluster>,
    judge: Judge,
    rng: Rng,
    lasting: Vec<(Nanos, Lasting)>,
    /// Servers of which it is known that they are down.
    down: Vec<bool>,
    /// Machines that are to lose power at a sync.
    armed: Vec<bool>,
    /// The metadata service must be started again: its disk has failed.
    metadata_is_broken: bool,
    /// Decides about disks, so that seeds without mistakes are the same as ever.
    swapper: Rng,
    backups: BTreeMap<PathBuf, Backup>,
    /// Servers of which some disk is a wrong one.
    swapped: Vec<bool>,
    /// How often each server came up while it had a wrong disk.
    with_wrong_disk: Vec<u64>,
}

impl Nemesis {
    /// For a cluster.
    pub fn new(cluster: Arc<Cluster>, judge: Judge, rng: Rng) -> Self {
        let servers = cluster.len();
        let (down, armed) = (vec![false; servers], vec![false; cluster.machines.len()]);
        let swapper = Rng::new(rng.clone().next_u64() ^ 0x00d1_5c00);
        Self {
            cluster,
            judge,
            rng,
            lasting: Vec::new(),
            down,
            armed,
            metadata_is_broken: false,
            swapper,
            backups: BTreeMap::new(),
            swapped: vec![false; servers],
            with_wrong_disk: vec![0; servers],
        }
    }

    fn elapsed(&self) -> Nanos {
        self.cluster.control.elapsed()
    }

    fn lasts(&mut self, what: Lasting, choices: &[u64]) {
        let ms = pick(&mut self.rng, choices);
        let until = self.elapsed().saturating_add(Nanos::from_ms(1 + self.rng.below(ms)));
        self.judge.fault_begins();
        self.lasting.push((until, what));
    }

    /// One fault. `kill_client` ends a client.
    pub fn strike(&mut self, kill_client: impl FnOnce(&mut Rng)) {
        if self.cluster.plan.disks && self.swapper.below(2) == 0 {
            return self.mistake();
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
                self.judge.fault();
                kill_client(&mut self.rng);
            }
            Fault::PowerCut if self.cluster.lives(server) => {
                self.judge.hit("fault: cut the power");
                self.judge.say(|| format!("FAULT: machine m{machine} loses power"));
                self.cluster.control.power_cut(&self.cluster.machines[machine]);
                self.power_is_gone(machine);
            }
            Fault::PowerCutAtSync if self.cluster.lives(server) && !self.armed[machine] => {
                let env = self.cluster.machines[machine].clone();
                let at = self.cluster.control.sync_points(&env) + 1 + self.rng.below(6);
                self.judge.say(|| format!("FAULT: machine m{machine} loses power at its sync {at}"));
                self.cluster.control.power_cut_at_sync(&env, at);
                self.armed[machine] = true;
                self.lasts(Lasting::Armed(machine), &[3000]);
            }
            Fault::Partition if machine != other => {
                self.judge.hit("fault: part two machines");
                self.judge.say(|| format!("FAULT: m{machine} and m{other} cannot reach each other"));
                let [a, b] = [machine, other].map(|at| &self.cluster.machines[at]);
                self.cluster.control.partition(a, b);
                self.judge.outage_lasts(true);
                self.lasts(Lasting::Parted(machine, other), &[100, 2_000, 10_000, 50_000]);
            }
            Fault::Reset if machine != other => {
                self.judge.hit("fault: reset connections");
                self.judge.say(|| format!("FAULT: connections between m{machine} and m{other} are reset"));
                let [a, b] = [machine, other].map(|at| &self.cluster.machines[at]);
                self.cluster.control.reset_connections(a, b);
                self.judge.outage();
                self.judge.fault();
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
                self.judge.outage_lasts(true);
                self.lasts(Lasting::Network, &[500, 5_000]);
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
                self.disk(server, faults);
            }
            Fault::SlowDisk => {
                self.judge.hit("fault: slow disk");
                let slowness_percent = pick(&mut self.rng, &[1_000, 20_000, 400_000]);
                self.disk(server, DiskFaults { slowness_percent, ..DiskFaults::default() });
            }
            Fault::FullDisk => {
                self.judge.hit("fault: full disk");
                let capacity_bytes = pick(&mut self.rng, &[0, 20_000, 200_000]);
                self.disk(server, DiskFaults { capacity_bytes, ..DiskFaults::default() });
            }
            _ => {}
        }
    }

    /// Damages some datafiles while their servers are down. Only files of which everything is surely recorded are hit, so
    /// that each loss can be known; others may have been shorter.
    pub fn damage(&mut self) {
        let mut dice = Rng::new(self.rng.clone().next_u64() ^ 0x000d_a4a6);
        let cluster = Arc::clone(&self.cluster);
        let safe: BTreeSet<FileId> = self.judge.now(|state, _| {
            let safe = state.files.iter().filter(|(_, model)| model.is_safe());
            safe.map(|(file, _)| *file).collect()
        });
        for target in 0..cluster.plan.targets() {
            // What the SSD has behind the end of the disk's datafile makes it as long as recorded.
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
            let kinds = if cluster.plan.integrity { 3 } else { 2 };
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
            self.judge.say(|| format!("DAMAGE: {name} of target {target}, {len} bytes, of file {file}"));
            self.judge.damaged(*file);
        }
    }

    /// An administrator stops a server and makes backups of its disks, and perhaps a mistake: instead of a disk there is a
    /// blank one, or an older backup.
    fn mistake(&mut self) {
        // The metadata as often as all targets together.
        let of_metadata = self.swapper.below(2) == 0;
        let server = if of_metadata { 0 } else { self.swapper.below(self.cluster.len() as u64) as usize };
        let (which, wish) = (self.swapper.next_u64() as usize, self.swapper.below(4));
        // One at a time: a target that was refused beside the wrong metadata has not changed since its backup.
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
        let own_starts = starts.done - self.with_wrong_disk[server];
        let paths: Vec<PathBuf> = match of_metadata {
            true => vec![METADATA.into()],
            false => cluster.plan.targets_of(server).map(target_path).collect(),
        };
        // A backup is older only if the server came up with the disk since.
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
        self.lasts(Lasting::Swapped(Box::new(swapped)), &[1_000, 8_000, 20_000]);
    }

    /// Puts the right disk back. A server that came up with the wrong one must have refused it.
    fn put_back(&mut self, swapped: Swapped) {
        let Swapped { server, path, right, what, starts, is_over } = swapped;
        is_over.store(true, Ordering::SeqCst);
        let cluster = Arc::clone(&self.cluster);
        let now = cluster.starts(server);
        if now.refused > starts[server].refused {
            self.judge.hit("swap: a disk was refused");
        } else if now.done > starts[server].done {
            let told = format!("server s{server} took {what} for {}", path.display());
            self.judge.violated("a wrong disk is refused", told);
        }
        self.judge.say(|| format!("MENDED: the right disk {} of s{server} is back", path.display()));
        // Servers that were started beside the wrong metadata refuse targets until they are started again.
        let concerned =
            |other: &usize| *other == server || cluster.starts(*other).refused > starts[*other].refused;
        let concerned: Vec<usize> = (0..cluster.len()).filter(concerned).collect();
        let up: Vec<usize> = concerned.iter().copied().filter(|other| !self.down[*other]).collect();
        up.iter().for_each(|other| cluster.kill(*other));
        drop(cluster.control.swap_disk(&cluster.machines[cluster.plan.servers[server]], &path, right));
        // Beside the wrong metadata no server came up with its disks.
        let is_metadata = path.as_path() == std::path::Path::new(METADATA);
        for other in (0..cluster.len()).filter(|other| *other == server || is_metadata) {
            self.with_wrong_disk[other] += cluster.starts(other).done - starts[other].done;
        }
        self.swapped[server] = false;
        if up.contains(&0) {
            self.judge.power_lost(&[], true);
            self.judge.outage();
        }
        up.into_iter().for_each(|other| cluster.restart(other));
    }

    fn disk(&mut self, server: usize, faults: DiskFaults) {
        let of_server: Vec<usize> = self.cluster.plan.targets_of(server).collect();
        let target = if let [one] = of_server[..] { one } else { pick(&mut self.rng, &of_server) };
        let path = match server == 0 && self.rng.below(3) == 0 {
            true => METADATA.into(),
            false if self.cluster.plan.ssds[target].is_some() && self.rng.below(2) == 0 => {
                self.judge.hit("fault: SSD");
                // What it alone had may be lost, and reading that then fails for ever.
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
        self.lasts(Lasting::Disk(machine, path), &[500, 5_000]);
    }

    fn went_down(&mut self, server: usize) {
        self.down[server] = true;
        if server == 0 {
            // What was in memory and not answered goes with the process, too.
            self.judge.power_lost(&[], true);
            self.judge.outage();
        }
        self.lasts(Lasting::Down(server), &[20, 400, 4_000, 8_000]);
    }

    fn power_is_gone(&mut self, machine: usize) {
        let with_metadata = self.cluster.plan.servers[0] == machine;
        self.judge.power_lost(&self.cluster.targets_on(machine), with_metadata);
        for server in 0..self.cluster.len() {
            if self.cluster.plan.servers[server] == machine && !self.down[server] {
                self.cluster.kill(server);
                self.went_down(server);
            }
        }
    }

    /// Sees what happened by itself, and ends what has lasted long enough.
    pub fn look(&mut self) {
        for machine in 0..self.armed.len() {
            let gone = |server: usize| {
                self.cluster.plan.servers[server] == machine
                    && !self.down[server]
                    && !self.cluster.lives(server)
            };
            if self.armed[machine] && (0..self.cluster.len()).any(gone) {
                self.judge.hit("fault: cut the power at a sync");
                self.judge.say(|| format!("FAULT: machine m{machine} has lost power at a sync"));
                self.power_is_gone(machine);
            }
        }
        let now = self.elapsed();
        while let Some(at) = self.lasting.iter().position(|(until, _)| *until <= now) {
            let (_, what) = self.lasting.swap_remove(at);
            self.mend(what);
        }
    }

    fn mend(&mut self, what: Lasting) {
        let cluster = Arc::clone(&self.cluster);
        match what {
            Lasting::Down(server) => {
                self.judge.say(|| format!("MENDED: server s{server} starts again"));
                self.down[server] = false;
                cluster.restart(server);
            }
            Lasting::Parted(a, b) => {
                self.judge.say(|| format!("MENDED: m{a} and m{b} reach each other"));
                let is_parted = |what: &Lasting| matches!(*what, Lasting::Parted(c, d) if (c, d) == (a, b) || (d, c) == (a, b));
                if !self.lasting.iter().any(|(_, what)| is_parted(what)) {
                    cluster.control.heal(&cluster.machines[a], &cluster.machines[b]);
                }
                self.judge.outage_lasts(false);
            }
            Lasting::Network => {
                self.judge.say(|| "MENDED: the network".into());
                cluster.control.set_network_faults(NetworkFaults::default());
                self.judge.outage_lasts(false);
            }
            Lasting::Disk(machine, path) => {
                self.judge.say(|| format!("MENDED: disk {} of m{machine}", path.display()));
                cluster.control.set_disk_faults(&cluster.machines[machine], &path, DiskFaults::default());
            }
            Lasting::Swapped(swapped) => self.put_back(*swapped),
            Lasting::Armed(machine) => {
                self.armed[machine] = false;
                cluster.control.power_cut_at_sync(&cluster.machines[machine], u64::MAX);
            }
        }
        self.judge.fault_ends();
    }

    /// Mends everything and waits until all servers run.
    pub async fn mend_all(&mut self, env: &SimEnv) {
        self.look();
        // What is armed first, so that nothing goes down any more.
        self.lasting.sort_by_key(|(_, what)| !matches!(what, Lasting::Armed(_)));
        for (_, what) in std::mem::take(&mut self.lasting) {
            self.mend(what);
        }
        if self.metadata_is_broken {
            self.judge.say(|| "the metadata service is started again after its disk failed".into());
            self.cluster.kill(0);
            self.judge.power_lost(&[], true);
            self.cluster.restart(0);
            self.judge.outage();
            self.judge.fault();
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
