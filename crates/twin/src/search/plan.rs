//! What a seed decides before anything happens: the cluster, its clients, what may go wrong.

use super::run::Options;
use weft_client::Transport;
use weft_core::Nanos;
use weft_core::ibridge::Policy;
use weft_env::sim::Rng;
use weft_store::target::Module;

/// The class of targets whose room is limited.
pub const SCARCE: &str = "ssd";
/// The class of all others.
pub const AMPLE: &str = "disk";

/// How thorough a search is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Profile {
    /// A second of virtual time or a few.
    #[default]
    Quick,
    /// Several times that.
    Long,
}

/// What may go wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// A server process dies.
    KillServer,
    /// A client process dies.
    KillClient,
    /// A machine loses power.
    PowerCut,
    /// A machine loses power just before a sync takes effect.
    PowerCutAtSync,
    /// Two machines cannot reach each other.
    Partition,
    /// Connections are reset.
    Reset,
    /// The network is late, loses and reorders.
    Network,
    /// Disks fail.
    DiskErrors,
    /// A disk is slow.
    SlowDisk,
    /// A disk is full.
    FullDisk,
}

impl Fault {
    /// All of them.
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

/// The SSD beside a target of a seed, with little room so that it fills up, is cleaned and written back.
#[derive(Clone, Copy, Debug)]
pub struct Ssd {
    /// Which requests go there.
    pub policy: Policy,
    /// Below which length, those of both classes.
    pub below: u64,
    /// Room for bytes.
    pub size: u64,
    /// Dirty bytes above which they are written back whatever the disk does, and down to which.
    pub dirty: (u64, u64),
    /// The disk's idleness after which bytes are written back.
    pub idle: Nanos,
    /// Whether reads leave copies there.
    pub preload: bool,
}

/// One seed's plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The machine of each server; the first is the metadata service's, which has a target, too.
    pub servers: Vec<usize>,
    /// Machines with and without servers.
    pub machines: usize,
    /// How each target is read and written. Target `t` is of server `t` modulo their number: each has one, or two.
    pub modules: Vec<Module>,
    /// Most requests at once on each target.
    pub queue_depths: Vec<u32>,
    /// Whether descriptors are lent.
    pub leases: bool,
    /// The SSD beside each target: all have one, or none.
    pub ssds: Vec<Option<Ssd>>,
    /// Whether programs move files to other layouts.
    pub moves: bool,
    /// Whether these go piece by piece, some throttled, stop anywhere, and are taken up again.
    pub stops: bool,
    /// Whether programs change rules of directories, and make files that take them.
    pub rules: bool,
    /// What layouts may promise on each target whose room is limited: programs then make files of parts, of which the first
    /// ones lie on such targets, and move files to such layouts. On none: no file has parts.
    pub rooms: Vec<Option<u64>>,
    /// Whether programs write most of the time, and SSDs are so small that all of them is used again and again.
    pub churn: bool,
    /// Whether programs make holes in files.
    pub holes: bool,
    /// Whether targets keep checksums of all bytes.
    pub integrity: bool,
    /// Whether datafiles are damaged in the end, below stopped servers.
    pub damage: bool,
    /// Whether an administrator takes disks of stopped servers for others, and puts the right ones back later.
    pub disks: bool,
    /// The machine of each client.
    pub clients: Vec<usize>,
    /// Programs of each client that run at once.
    pub tasks: usize,
    /// How each client's bytes travel.
    pub transports: Vec<Transport>,
    /// Steps of each task.
    pub steps: u32,
    /// Longest pause between steps.
    pub pause: Nanos,
    /// Stripe sizes to choose from.
    pub stripes: Vec<u64>,
    /// Offsets lie below this.
    pub span: u64,
    /// What goes wrong in this seed.
    pub faults: Vec<Fault>,
    /// Longest pause between faults.
    pub fault_pause: Nanos,
    /// Most faults.
    pub faults_max: u32,
    /// How long a capability holds.
    pub capability_life: Nanos,
    /// Length of a metadata log.
    pub log_len: u64,
    /// Datafiles held open on each target.
    pub open_datafiles: usize,
    /// How long a client waits for a silent server.
    pub request_timeout: Nanos,
    /// How long it goes on trying to connect.
    pub retry_for: Nanos,
    /// Leases at the so-manieth use.
    pub lease_after_uses: u32,
    /// Bytes from which on shared memory is used.
    pub shared_min: u32,
}

/// One of `choices`.
pub fn pick<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.below(choices.len() as u64) as usize]
}

impl Ssd {
    /// The smallest that there may be, which everything goes through.
    fn churned(self) -> Self {
        let size = 128 << 10;
        Self { policy: Policy::Threshold, below: 1 << 20, size, dirty: (size, size), ..self }
    }

    fn draw(rng: &mut Rng) -> Self {
        let policies = [Policy::Ibridge, Policy::Detour { ns_per_byte: 200, page: 4096 }];
        let policy = if rng.below(2) == 0 { Policy::Threshold } else { pick(rng, &policies) };
        // The least that a log may have, eight segments, and not much more.
        let size = pick(rng, &[512 << 10, 512 << 10, 640 << 10, 1 << 20]);
        Self {
            policy,
            below: pick(rng, &[3_000, 20 << 10, 1 << 20, 1 << 20]),
            size,
            dirty: pick(rng, &[(0, 0), (size / 8, size / 16), (size / 2, size / 4), (size, size)]),
            idle: Nanos(pick(rng, &[1_000_000, 1_000_000, 10_000_000, 3_000_000_000])),
            preload: rng.below(4) > 0,
        }
    }
}

/// The room of each target: with `parts` that of the first is limited, and that of the last is not.
fn rooms(count: usize, parts: bool, rng: &mut Rng) -> Vec<Option<u64>> {
    let is_limited = |target: usize, rng: &mut Rng| target == 0 || target + 1 < count && rng.below(2) == 0;
    let limited = (0..count).map(|target| parts && is_limited(target, rng)).collect::<Vec<_>>();
    limited.into_iter().map(|is| is.then(|| pick(rng, &[6_000, 60_000, 400_000]))).collect()
}

impl Plan {
    /// Whether files have parts.
    pub fn parts(&self) -> bool {
        self.rooms.iter().any(Option::is_some)
    }

    /// The class of a target.
    pub fn class(&self, target: usize) -> &'static str {
        if self.rooms[target].is_some() { SCARCE } else { AMPLE }
    }

    /// What `rng` decides, as far as `options` leave it open.
    pub fn draw(rng: &mut Rng, options: Options) -> Self {
        let Options { profile, ibridge: ssds, moves, rules, churn, parts, stops, pairs, .. } = options;
        let Options { holes, integrity, damage, disks, .. } = options;
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
        // By dice of their own: a seed without them is the same as ever.
        let mut own = rng.clone();
        let with_ssds = own.below(2) == 0;
        let with_ssds = ssds.unwrap_or(with_ssds);
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
        let rooms = rooms(count, parts.unwrap_or(with_parts), &mut own);
        let with_pairs = rng.clone().next_u64() >> 33 & 3 == 2;
        let with_holes = rng.clone().next_u64() >> 41 & 3 == 1;
        let holes = holes.unwrap_or(with_holes);
        let with_integrity = rng.clone().next_u64() >> 45 & 3 == 2;
        let integrity = integrity.unwrap_or(with_integrity);
        let damage = damage.unwrap_or(false);
        let with_disks = rng.clone().next_u64() >> 37 & 3 == 1;
        let disks = disks.unwrap_or(with_disks);
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
            rooms,
            churn,
            holes,
            integrity,
            damage,
            disks,
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
        let plan = if pairs { plan.paired(&mut second) } else { plan };
        if churn { plan.churned(fails) } else { plan }
    }

    /// With a second target on each server.
    fn paired(mut self, rng: &mut Rng) -> Self {
        let parts = self.parts();
        for target in 0..self.servers.len() {
            self.modules.push(pick(rng, &[Module::Buffered, Module::Direct]));
            self.queue_depths.push(pick(rng, &[1, 2, 16]));
            self.ssds.push(self.ssds[target].map(|_| Ssd::draw(rng)));
            let is_limited = parts && rng.below(2) == 0;
            self.rooms.push(is_limited.then(|| pick(rng, &[6_000, 60_000, 400_000])));
        }
        self
    }

    /// How many targets there are.
    pub fn targets(&self) -> usize {
        self.modules.len()
    }

    /// The server of a target.
    pub fn server_of(&self, target: usize) -> usize {
        target % self.servers.len()
    }

    /// The targets of a server.
    pub fn targets_of(&self, server: usize) -> impl Iterator<Item = usize> + use<> {
        (server..self.targets()).step_by(self.servers.len())
    }

    /// With less room on SSDs than is written there, and losses of power while that room is used again.
    /// SSDs may fail, after which they take nothing more, in seeds in which `fails` is set.
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
