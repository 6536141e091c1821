//! Everything that a seed determines before the run: the cluster, its clients and the possible faults.

use super::run::Options;
use weft_client::Transport;
use weft_core::cache::{CacheMode, EvictionPolicy};
use weft_core::ibridge::Policy;
use weft_core::{CacheShare, Compression, Nanos};
use weft_env::sim::Rng;
use weft_store::target::Module;

/// Class of targets with limited capacity.
pub const LIMITED_CLASS: &str = "ssd";
/// Class of targets without a capacity limit.
pub const UNLIMITED_CLASS: &str = "disk";

/// Length of a run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Profile {
    /// A few seconds of virtual time.
    #[default]
    Quick,
    /// Six times as many steps, and more faults.
    Long,
}

/// Kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// A server process is killed.
    KillServer,
    /// A client process is killed.
    KillClient,
    /// A machine loses power.
    PowerCut,
    /// A machine loses power just before a sync takes effect.
    PowerCutAtSync,
    /// Two machines cannot reach each other.
    Partition,
    /// Connections between two machines are reset.
    Reset,
    /// The network delays, loses and reorders messages.
    Network,
    /// Disk operations fail.
    DiskErrors,
    /// A disk is slow.
    SlowDisk,
    /// A disk is full.
    FullDisk,
}

impl Fault {
    /// All kinds of faults.
    pub const ALL: [Self; 10] = [
        Self::KillServer,
        Self::KillClient,
        Self::PowerCut,
        Self::PowerCutAtSync,
        Self::Partition,
        Self::Reset,
        Self::Network,
        Self::DiskErrors,
        Self::SlowDisk,
        Self::FullDisk,
    ];
}

/// The SSD beside a target. Its capacity is small, so that it fills up and is cleaned and written back during a run.
#[derive(Clone, Copy, Debug)]
pub struct Ssd {
    /// Admission policy of the SSD.
    pub policy: Policy,
    /// Length in bytes below which requests count as small. Used for both thresholds.
    pub below: u64,
    /// Capacity in bytes.
    pub size: u64,
    /// Dirty bytes at which write-back starts although the disk is busy, and at which it stops.
    pub dirty: (u64, u64),
    /// Idle time of the disk after which dirty bytes are written back.
    pub idle: Nanos,
    /// Whether reads leave copies on the SSD.
    pub preload: bool,
    /// Read and write cache on the SSD.
    pub cache: Option<CachePlan>,
}

/// The read and write cache on an SSD.
#[derive(Clone, Copy, Debug)]
pub struct CachePlan {
    /// Requests that the cache serves.
    pub mode: CacheMode,
    /// Order in which blocks leave.
    pub eviction: EvictionPolicy,
    /// Share of the SSD; `None` if the cache has it alone, without iBridge.
    pub share: Option<CacheShare>,
    /// Maximum length in bytes that is read ahead.
    pub prefetch: u64,
}

impl CachePlan {
    fn draw(rng: &mut Rng, has_ibridge: bool) -> Self {
        let modes = [CacheMode::WriteBack, CacheMode::WriteBack, CacheMode::WriteThrough, CacheMode::Read];
        let shares = [CacheShare::Fixed(50), CacheShare::Fixed(90), CacheShare::Adaptive];
        Self {
            mode: pick(rng, &modes),
            eviction: pick(rng, &EvictionPolicy::ALL),
            share: has_ibridge.then(|| pick(rng, &shares)),
            prefetch: pick(rng, &[0, 0, 64 << 10]),
        }
    }
}

/// Compression of some files.
#[derive(Clone, Copy, Debug)]
pub struct CompressionPlan {
    /// Setting of the files that are compressed.
    pub setting: Compression,
    /// Whether a new file is compressed if its program does not decide.
    pub by_default: bool,
}

/// Everything that one seed determines before the run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Machine of each server. Server 0 is the metadata server and also has a target.
    pub servers: Vec<usize>,
    /// Number of machines, including those without servers.
    pub machines: usize,
    /// I/O module of each target. Target `t` belongs to server `t` modulo the number of servers.
    pub modules: Vec<Module>,
    /// Maximum number of concurrent requests of each target.
    pub queue_depths: Vec<u32>,
    /// Whether servers grant leases of descriptors.
    pub leases: bool,
    /// SSD beside each target. Either all targets have one or none.
    pub ssds: Vec<Option<Ssd>>,
    /// Whether programs move files to other layouts.
    pub moves: bool,
    /// Whether moves are divided into pieces, may be throttled, may stop at any piece, and are resumed.
    pub stops: bool,
    /// Whether programs change layout rules of directories, and create files that follow them.
    pub rules: bool,
    /// Capacity in bytes that layouts may reserve on each target; `None` is unlimited. If any target is limited,
    /// programs create files with several components, of which the first ones lie on limited targets. Otherwise no file
    /// has components.
    pub capacities: Vec<Option<u64>>,
    /// Whether programs mostly write, to SSDs so small that all of their space is reused many times.
    pub churn: bool,
    /// Whether programs punch holes into files.
    pub holes: bool,
    /// Maximum size of files whose bytes are in the metadata; 0 for none.
    pub inline_max: u64,
    /// Whether programs create, synchronize and drop replicas of files.
    pub replicas: bool,
    /// Whether a program that has created a replica uses the file alone for a while.
    pub replica_use: bool,
    /// Whether targets keep checksums of all bytes.
    pub integrity: bool,
    /// Compression of some files; `None` for plain files only.
    pub compression: Option<CompressionPlan>,
    /// Whether datafiles of stopped servers are damaged at the end.
    pub damage: bool,
    /// Whether an administrator swaps disks of stopped servers by mistake, and later puts the right ones back.
    pub disks: bool,
    /// Whether a disk is lost at the end, given up, and replaced by a blank one.
    pub loses: bool,
    /// Machine of each client.
    pub clients: Vec<usize>,
    /// Number of concurrent programs of each client.
    pub tasks: usize,
    /// Transport of each client.
    pub transports: Vec<Transport>,
    /// Number of operations of each program.
    pub steps: u32,
    /// Longest pause between operations.
    pub pause: Nanos,
    /// Stripe sizes to choose from, in bytes.
    pub stripes: Vec<u64>,
    /// Upper bound of file offsets, in bytes.
    pub span: u64,
    /// Kinds of faults that may occur.
    pub faults: Vec<Fault>,
    /// Longest pause between faults.
    pub fault_pause: Nanos,
    /// Maximum number of faults.
    pub faults_max: u32,
    /// Lifetime of a capability.
    pub capability_life: Nanos,
    /// Length of a metadata log in bytes.
    pub log_len: u64,
    /// Number of datafiles that a server may hold open on each target.
    pub open_datafiles: usize,
    /// Time that a client waits for a silent server.
    pub request_timeout: Nanos,
    /// Time for which a client retries to connect.
    pub retry_for: Nanos,
    /// Number of uses of a datafile after which the client asks for a lease.
    pub lease_after_uses: u32,
    /// Payload length in bytes from which on shared memory is used.
    pub shared_min: u32,
}

/// Draws one of `choices`.
pub fn pick<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.below(choices.len() as u64) as usize]
}

impl Ssd {
    /// Whether iBridge uses the SSD; otherwise the cache has it alone.
    pub fn has_ibridge(&self) -> bool {
        self.cache.is_none_or(|cache| cache.share.is_some())
    }

    /// Returns the SSD with the smallest valid capacity, through which every write goes.
    fn churned(self) -> Self {
        let size = 128 << 10;
        Self { policy: Policy::Threshold, below: 1 << 20, size, dirty: (size, size), ..self }
    }

    fn draw(rng: &mut Rng) -> Self {
        let policies = [Policy::Ibridge, Policy::Detour { ns_per_byte: 200, page: 4096 }];
        let policy = if rng.below(2) == 0 { Policy::Threshold } else { pick(rng, &policies) };
        // Eight segments, the minimum of a log, and not much more.
        let size = pick(rng, &[512 << 10, 512 << 10, 640 << 10, 1 << 20]);
        Self {
            policy,
            below: pick(rng, &[3_000, 20 << 10, 1 << 20, 1 << 20]),
            size,
            dirty: pick(rng, &[(0, 0), (size / 8, size / 16), (size / 2, size / 4), (size, size)]),
            idle: Nanos(pick(rng, &[1_000_000, 1_000_000, 10_000_000, 3_000_000_000])),
            preload: rng.below(4) > 0,
            cache: None,
        }
    }
}

impl CompressionPlan {
    fn draw(rng: &mut Rng) -> Self {
        let setting = pick(rng, &["lz4/16KiB", "zstd/16KiB", "zstd/16KiB", "auto/32KiB", "zstd:3/64KiB"]);
        Self { setting: setting.parse().expect("a setting"), by_default: rng.below(3) > 0 }
    }
}

/// Draws the capacity of each target. With `parts`, the first target is limited and the last one is not.
fn capacities(count: usize, parts: bool, rng: &mut Rng) -> Vec<Option<u64>> {
    let is_limited = |target: usize, rng: &mut Rng| target == 0 || target + 1 < count && rng.below(2) == 0;
    let limited = (0..count).map(|target| parts && is_limited(target, rng)).collect::<Vec<_>>();
    limited.into_iter().map(|is| is.then(|| pick(rng, &[6_000, 60_000, 400_000]))).collect()
}

/// Time for which clients of some runs repeat requests: longer than their time-out, and than most outages.
const LONG_RETRY_FOR: Nanos = Nanos::from_s(60);

impl Plan {
    /// Whether files have several components.
    pub fn parts(&self) -> bool {
        self.capacities.iter().any(Option::is_some)
    }

    /// Class of a target.
    pub fn class(&self, target: usize) -> &'static str {
        if self.capacities[target].is_some() { LIMITED_CLASS } else { UNLIMITED_CLASS }
    }

    /// Draws a plan. Fields of `options` that are set override the draw.
    pub fn draw(rng: &mut Rng, options: Options) -> Self {
        let Options { profile, ibridge, moves, rules, churn, parts, stops, pairs, .. } = options;
        let Options { holes, integrity, compression, damage, disks, cache, replicas, .. } = options;
        let long = profile == Profile::Long;
        let count = 2 + rng.below(5) as usize;
        let machines_with_servers = 1 + rng.below(count as u64) as usize;
        let servers = (0..count)
            .map(|server| {
                if server < machines_with_servers {
                    server
                } else {
                    rng.below(machines_with_servers as u64) as usize
                }
            })
            .collect();
        let machines = machines_with_servers + rng.below(3) as usize;
        let clients: Vec<usize> =
            (0..1 + rng.below(4)).map(|_| rng.below(machines as u64) as usize).collect();
        let transports = clients
            .iter()
            .map(|_| pick(rng, &[Transport::Auto, Transport::Auto, Transport::Socket]))
            .collect();
        let modules =
            (0..count).map(|_| pick(rng, &[Module::Buffered, Module::Buffered, Module::Direct])).collect();
        let queue_depths = (0..count).map(|_| pick(rng, &[1, 2, 16])).collect();
        let faults = match rng.below(8) {
            0 => Vec::new(),
            1 => vec![pick(rng, &Fault::ALL)],
            _ => Fault::ALL.into_iter().filter(|_| rng.below(3) == 0).collect(),
        };
        // Drawn from clones of `rng`, so that seeds without these features keep their events.
        let mut own = rng.clone();
        let with_ssds = own.below(2) == 0;
        let with_ssds = ibridge.unwrap_or(with_ssds);
        let ssds: Vec<_> = (0..count).map(|_| with_ssds.then(|| Ssd::draw(&mut own))).collect();
        let with_churn = with_ssds && own.below(4) == 0;
        let churn = with_ssds && churn.unwrap_or(with_churn);
        let fails = churn && own.below(2) == 0;
        let with_moves = rng.clone().next_u64() >> 11 & 3 == 3;
        let moves = moves.unwrap_or(with_moves);
        let with_stops = rng.clone().next_u64() >> 29 & 1 == 1;
        let stops = moves && stops.unwrap_or(with_stops);
        let with_rules = rng.clone().next_u64() >> 17 & 3 == 2;
        let rules = rules.unwrap_or(with_rules);
        let with_parts = rng.clone().next_u64() >> 23 & 3 == 1;
        let capacities = capacities(count, parts.unwrap_or(with_parts), &mut own);
        let with_pairs = rng.clone().next_u64() >> 33 & 3 == 2;
        let with_holes = rng.clone().next_u64() >> 41 & 3 == 1;
        let holes = holes.unwrap_or(with_holes);
        let mut inlining = rng.clone();
        let with_inline = inlining.next_u64() >> 13 & 3 == 1;
        let inline_max = match options.inline.unwrap_or(with_inline) {
            true => pick(&mut inlining, &[100, 4096, 4096, 20_000, 65_536]),
            false => 0,
        };
        let with_replicas = rng.clone().next_u64() >> 57 & 3 == 1;
        let replicas = replicas.unwrap_or(with_replicas);
        let with_replica_use = rng.clone().next_u64() >> 61 & 1 == 1;
        let replica_use = replicas && options.replica_use.unwrap_or(with_replica_use);
        let with_integrity = rng.clone().next_u64() >> 45 & 3 == 2;
        let integrity = integrity.unwrap_or(with_integrity);
        let mut compressing = rng.clone();
        let drawn = compressing.next_u64();
        let (with_compression, repeats_long) = (drawn >> 49 & 3 == 1, drawn >> 29 & 3 == 1);
        let compression =
            compression.unwrap_or(with_compression).then(|| CompressionPlan::draw(&mut compressing));
        let damage = damage.unwrap_or(false);
        let with_disks = rng.clone().next_u64() >> 37 & 3 == 1;
        let disks = disks.unwrap_or(with_disks);
        let with_loss = rng.clone().next_u64() >> 19 & 3 == 1;
        let loses = !damage && !replicas && options.loses.unwrap_or(with_loss);
        let mut caching = rng.clone();
        let with_cache = caching.next_u64() >> 53 & 3 == 1;
        let with_cache = cache.unwrap_or(with_cache);
        // Without iBridge in a third of the plans, or if the options say so.
        let is_alone = with_cache && ibridge != Some(true) && (!with_ssds || caching.below(3) == 0);
        let draw_cache = |ssd: Option<Ssd>, rng: &mut Rng| {
            let ssd = ssd.or_else(|| is_alone.then(|| Ssd::draw(rng)))?;
            Some(Ssd { cache: Some(CachePlan::draw(rng, !is_alone)), ..ssd })
        };
        let ssds: Vec<_> = match with_cache {
            true => ssds.into_iter().map(|ssd| draw_cache(ssd, &mut caching)).collect(),
            false => ssds,
        };
        let churn = churn || with_cache && options.churn == Some(true);
        let mut second = own.clone();
        let pairs = pairs.unwrap_or(with_pairs);
        let stripes = (0..3).map(|_| pick(rng, &[1000, 4096, 4096, 47_008, 65_536, 1 << 20])).collect();
        let plan = Self {
            servers,
            machines,
            modules,
            queue_depths,
            ssds,
            moves,
            stops,
            rules,
            capacities,
            churn,
            holes,
            inline_max,
            replicas,
            replica_use,
            integrity,
            compression,
            damage,
            disks,
            loses,
            leases: rng.below(4) > 0,
            transports,
            tasks: 1 + rng.below(2) as usize,
            clients,
            steps: (15 + rng.below(30) as u32) * if long { 6 } else { 1 },
            pause: Nanos(pick(rng, &[200_000, 5_000_000, 50_000_000])),
            stripes,
            span: pick(rng, &[6_000, 40_000, 200_000]),
            faults,
            fault_pause: Nanos(pick(rng, &[3_000_000, 50_000_000, 400_000_000])),
            faults_max: 2 + rng.below(if long { 40 } else { 12 }) as u32,
            capability_life: Nanos::from_s(pick(rng, &[3, 3600, 3600])),
            log_len: pick(rng, &[1_500, 20_000, 1 << 20]),
            open_datafiles: pick(rng, &[1, 3, 100]),
            request_timeout: Nanos::from_ms(pick(rng, &[700, 3_000, 10_000])),
            retry_for: Nanos::from_ms(pick(rng, &[500, 3_000])),
            lease_after_uses: pick(rng, &[1, 2]),
            shared_min: pick(rng, &[1, 16 << 10]),
        };
        let plan = if repeats_long { Self { retry_for: LONG_RETRY_FOR, ..plan } } else { plan };
        let plan = if pairs { plan.paired(&mut second) } else { plan };
        let plan = if churn { plan.churned(fails) } else { plan };
        if compression.is_some() { plan.compressed(long, &mut compressing) } else { plan }
    }

    /// Adds a second target to each server.
    fn paired(mut self, rng: &mut Rng) -> Self {
        let parts = self.parts();
        for target in 0..self.servers.len() {
            self.modules.push(pick(rng, &[Module::Buffered, Module::Direct]));
            self.queue_depths.push(pick(rng, &[1, 2, 16]));
            let first = self.ssds[target];
            self.ssds.push(first.map(|first| Ssd { cache: first.cache, ..Ssd::draw(rng) }));
            let is_limited = parts && rng.below(2) == 0;
            self.capacities.push(is_limited.then(|| pick(rng, &[6_000, 60_000, 400_000])));
        }
        self
    }

    /// Makes files long enough for several chunks. Some runs have pauses in which servers compress, sync and free
    /// space.
    fn compressed(self, long: bool, rng: &mut Rng) -> Self {
        let plan = Self { span: self.span.max(pick(rng, &[40_000, 100_000, 200_000])), ..self };
        if long || plan.churn || rng.below(4) > 0 {
            return plan;
        }
        Self {
            pause: Nanos::from_s(pick(rng, &[4, 15, 60])),
            fault_pause: Nanos::from_s(pick(rng, &[2, 30, 100])),
            ..plan
        }
    }

    /// Number of targets.
    pub fn targets(&self) -> usize {
        self.modules.len()
    }

    /// Server of a target.
    pub fn server_of(&self, target: usize) -> usize {
        target % self.servers.len()
    }

    /// Targets of a server.
    pub fn targets_of(&self, server: usize) -> impl Iterator<Item = usize> + use<> {
        (server..self.targets()).step_by(self.servers.len())
    }

    /// Makes the SSDs smaller than the data written, and adds power cuts while their space is reused. Without `fails`,
    /// no SSD fails: a failed SSD accepts no more data.
    fn churned(self, fails: bool) -> Self {
        let mut faults = self.faults;
        faults.retain(|fault| fails || !matches!(fault, Fault::DiskErrors | Fault::FullDisk));
        faults.extend([Fault::PowerCut, Fault::PowerCutAtSync]);
        Self {
            ssds: self.ssds.into_iter().map(|ssd| ssd.map(Ssd::churned)).collect(),
            steps: 3 * self.steps,
            span: self.span.min(40_000),
            faults,
            ..self
        }
    }
}
