//! Regression test of the fault search: seeds that once broke a promise, each with the bug it found, and the first
//! seeds of each feature.
//!
//! The events of a seed change with the code under test, so a seed may no longer reach its bug. `search_mutants.rs`
//! puts bugs back and shows that the search still finds them.

use weft_twin::search::{Coverage, Options, Profile, run};

/// Seeds without optional features, with the bugs found.
const FOUND: [(u64, &str); 38] = [
    (
        48,
        "a writer re-announced after a restart recorded lengths older than its own truncation: appends went too far",
    ),
    (132, "the same: reads behind the end failed as if bytes were lost"),
    (195, "a move recorded lengths that a concurrent O_TRUNC then cut: the bytes were reported as lost"),
    (17, "a recovered server was reported as dead to all but one of the clients that asked at that moment"),
    (
        35,
        "a disconnected writer reported its old end at the close, and the recorded size was longer than the file",
    ),
    (52, "locking an open file that was lost in an outage failed with EBADF instead of ESTALE"),
    (
        105,
        "a lock requested in the grace period was granted after its client had given up: appends hung forever",
    ),
    (
        1110,
        "an append whose unlock was lost kept the lock while its client was idle: other appends hung forever",
    ),
    (8452, "the same, with another task that kept its client's session alive"),
    (9389, "a failed SSD dropped bytes that did not fit on a full disk: reads returned zeros"),
    (3982, "the same"),
    (6048, "the same"),
    (30163, "two starts of the metadata server within a second used one fence: two appends overlapped"),
    (89689, "a client whose append's unlock was lost let its session end, and lost all its other locks"),
    (
        438,
        "a lock was restored after a second start of the metadata server, though another client had held it since",
    ),
    (12675, "the same"),
    (
        42768,
        "a full disk lost the record of a datafile's removal, and after a loss of power the datafile was created again",
    ),
    (161, "fsync succeeded although the server's machine had lost power with the written bytes"),
    (92, "the same, on two servers"),
    (169, "a removed file's bytes went to orphaned datafiles, and its reader saw holes"),
    (122, "removed datafiles came back with a loss of power, and belonged to no file"),
    (91, "a file id was used again after a crash, for a client that still held the old file"),
    (1244, "a metadata server whose log had failed answered EBADF for files that could not be re-announced"),
    (1054, "the simulated network forgot that a machine had been down when a partition healed"),
    (
        7223,
        "a writer unknown to the metadata server after an outage continued, and other clients got an old size",
    ),
    (8516, "the same, after a lost session"),
    (6240, "the same"),
    (7836, "the same"),
    (
        10814,
        "a file that an open descriptor knew as empty grew and lost its end with a loss of power: reads ended early",
    ),
    (
        107345,
        "a truncation counted lost bytes as the end of the file, and an older descriptor did not know of the loss",
    ),
    (
        129894,
        "an open was answered by a server that had restarted by then, and the new one did not know it: fsync got EBADF",
    ),
    (1760, "search bug: a read overtaken by a loss of power counted as evidence"),
    (12588, "search bug: a failed append may have found the end that a truncation then moved"),
    (21245, "search bug: a recorded size was compared with reads after a loss of power"),
    (27783, "search bug: a hole before bytes being truncated counted as a certain length"),
    (91977, "same as 21245"),
    (96673, "search bug: appends overtaken by an unanswered truncation counted as certain"),
    (308, "search bug: requests with an unknown outcome were dropped"),
];

/// Seeds with moves, with the bugs found.
const FOUND_WITH_MOVES: [(u64, &str); 6] = [
    (42, "two programs of one session moved the same file at the same time"),
    (11, "the same, and the bytes that one of them had copied were orphaned"),
    (1210, "a disconnected mover reported a file moved by another client as its own error"),
    (
        1778,
        "the metadata log failed during a move: writes went to datafiles that the file did not have after the restart",
    ),
    (3529, "bytes truncated during a move returned when the file grew before the end of the move"),
    (4197, "the same"),
];

/// Seeds with SSDs smaller than the data written, with the bugs found.
const FOUND_WITH_CHURN: [(u64, &str); 1] = [(
    138,
    "bytes that did not fit on an SSD went to the disk and were hidden by older bytes that the log was moving",
)];

/// Seeds that decide all features except churn, which is on where possible, with the bugs found.
const FOUND_BY_THEMSELVES: [(u64, &str); 8] = [
    (513_125, "a sync that reached the old datafiles of a moved file reported the file as removed"),
    (
        518_866,
        "the metadata server delayed a write that drops pages of mounts for longer than its client waited, and the \
         client lost its locks without notice",
    ),
    (519_778, "a loss of power undid the record of removed datafiles, and a late write created one again"),
    (502_499, "the same"),
    (
        516_562,
        "a client gave up waiting for an append lock and lost its session: its place in the queue stayed forever",
    ),
    (717_737, "a repeated open after a lost reply was refused, because its path led to another file by then"),
    (1_004_173, "a sync did not request a new capability after its own had expired"),
    (6_001_944, "a flock that was released for its conversion, which was then given up, counted as lost"),
];

/// Seeds with SSDs and moves that decide about rules, with the bugs found.
const FOUND_WITH_SSDS_AND_MOVES: [(u64, &str); 6] = [
    (782_845, "a truncating open that was delayed until after a restart of the metadata server was refused"),
    (784_786, "the same"),
    (1_207_177, "a truncating open did not request a new capability after its own had expired"),
    (3_209_030, "a datafile that was being removed got a copy on the SSD, which then belonged to no file"),
    (3_203_718, "the same"),
    (1_207_643, "search bug: a change seen before another one was answered counted as durable"),
];

const ON: Option<bool> = Some(true);
/// Features as the seed decides. Later features are off, because these seeds were found before them.
const AS_DECIDED: Options = Options {
    profile: Profile::Quick,
    ibridge: None,
    cache: Some(false),
    moves: None,
    rules: None,
    churn: None,
    parts: Some(false),
    stops: Some(false),
    pairs: Some(false),
    holes: Some(false),
    inline: Some(false),
    replicas: Some(false),
    replica_use: Some(false),
    integrity: Some(false),
    compression: Some(false),
    damage: Some(false),
    disks: Some(false),
    loses: Some(false),
    delegates: false,
    verbose: false,
    steps_max: None,
    faults_max: None,
    mutant: None,
};

/// All features on.
const EVERYTHING: Options =
    Options { ibridge: ON, moves: ON, rules: ON, churn: ON, parts: ON, stops: ON, ..AS_DECIDED };

/// Some files compressed, other features as the seed decides.
const COMPRESSED: Options = Options {
    compression: ON,
    parts: None,
    stops: None,
    pairs: None,
    holes: None,
    inline: None,
    integrity: None,
    disks: None,
    ..AS_DECIDED
};

/// Replicas, other features as the seed decides.
const REPLICATED: Options = Options {
    replicas: ON,
    replica_use: Some(false),
    cache: None,
    parts: None,
    stops: None,
    pairs: None,
    holes: None,
    inline: None,
    integrity: None,
    compression: None,
    damage: None,
    disks: None,
    ..AS_DECIDED
};

/// Replicas, which programs may use alone.
const USED_ALONE: Options = Options { replica_use: None, ..REPLICATED };

/// Seeds with their options and the bugs found.
const FOUND_SINCE: [(u64, Options, &str); 30] = [
    (
        519_343,
        REPLICATED,
        "a synchronization forgot that a region was dirty, though a program that had the file open before had written to it",
    ),
    (
        506_308,
        REPLICATED,
        "a truncation of a file with a replica interrupted an append of another program between two of its exchanges",
    ),
    (
        500_960,
        REPLICATED,
        "a connection that was lost while a client asked not to use an unreadable replica lost the open file",
    ),
    (
        707_895,
        REPLICATED,
        "after several starts, the metadata server refused the second fence of a file for half a minute: a truncation failed",
    ),
    (746_531, REPLICATED, "the same: a copy to a replica hung"),
    (
        762_800,
        USED_ALONE,
        "the same: the fences that were admitted after a start did not become more with time, so that a copy hung",
    ),
    (
        767_665,
        USED_ALONE,
        "a machine lost the end of a file with a replica; a writer relied on it, and its bytes were behind the end",
    ),
    (766_205, USED_ALONE, "the same"),
    (764_076, USED_ALONE, "a write failed because two truncations fenced it one after another"),
    (
        844_287,
        USED_ALONE,
        "a client whose copy to a replica had failed removed the replica that another one had created since, with its newer bytes",
    ),
    (
        891_655,
        USED_ALONE,
        "an exclusive creation was refused for a file that was never durable, because the metadata log had failed",
    ),
    (
        2_001_517,
        Options { inline: ON, ..AS_DECIDED },
        "a truncation to nothing failed because the device reported the loss of a byte that it cut",
    ),
    (
        6_002_134,
        AS_DECIDED,
        "a failed SSD's bytes were dropped for newer ones that a loss of power took from the disk: reads were stale",
    ),
    (6_006_436, AS_DECIDED, "the same"),
    (6_013_252, AS_DECIDED, "the same"),
    (
        6_310_729,
        Options { ibridge: ON, ..AS_DECIDED },
        "a truncation to 0 was reported after a writer had written behind it and closed: the file appeared empty",
    ),
    (
        6_415_420,
        Options { rules: ON, ..AS_DECIDED },
        "search bug: observed sizes counted as certain after a failed truncation that removed the bytes behind a hole",
    ),
    (
        7_118_278,
        Options { churn: ON, ..AS_DECIDED },
        "a length query during the removal of a datafile returned the length without newer bytes on the SSD",
    ),
    (
        7_604_262,
        Options { moves: ON, ibridge: ON, ..AS_DECIDED },
        "datafiles were removed before the end of their use was durable, and a loss of power undid that end",
    ),
    (
        14_000_003,
        Options { moves: ON, stops: ON, parts: None, ..AS_DECIDED },
        "a session that resumed its own move trusted its earlier copy, though the file had been written since",
    ),
    (14_000_038, Options { moves: ON, stops: ON, parts: None, ..AS_DECIDED }, "the same"),
    (
        13_603_111,
        EVERYTHING,
        "a file with bytes on an SSD only after a loss of power counted as never written: the bytes stayed",
    ),
    (
        15_001_265,
        Options { parts: None, stops: None, ..AS_DECIDED },
        "a lookup by name reported the file as removed, though another file had the name by then",
    ),
    (
        15_404_538,
        EVERYTHING,
        "a second writer of a file wrote before the first writer's open mark was durable",
    ),
    (
        17_808_291,
        Options { parts: None, stops: None, pairs: None, ..AS_DECIDED },
        "search bug: each of two concurrent truncations was checked as if it were the only one",
    ),
    (
        18_807_401,
        Options { ibridge: ON, churn: ON, parts: None, stops: None, pairs: None, ..AS_DECIDED },
        "search bug: a truncation partly undone by a loss of power was checked against earlier observations",
    ),
    (
        18_806_587,
        Options { ibridge: ON, churn: ON, parts: None, stops: None, pairs: None, ..AS_DECIDED },
        "a failed metadata log lost the end of a session, its lock went to another session, and the next start \
         restored the lock to the first",
    ),
    (
        185,
        COMPRESSED,
        "a failed write left a part of a new map's header, and the datafile could never be created",
    ),
    (
        359,
        COMPRESSED,
        "headers of a new compressed datafile were lost with power, and bytes from the SSD made it a plain one",
    ),
    (911, COMPRESSED, "the same"),
];

/// Number of further seeds without fixed features. The constants below give the numbers with a feature on.
const FIRST: u64 = 120;
const FIRST_WITH_SSDS: u64 = 60;
const FIRST_WITH_CHURN: u64 = 20;
const FIRST_WITH_MOVES: u64 = 40;
const FIRST_WITH_RULES: u64 = 40;
const FIRST_WITH_PARTS: u64 = 40;
const FIRST_WITH_STOPS: u64 = 40;
const FIRST_WITH_INTEGRITY: u64 = 40;
const FIRST_WITH_COMPRESSION: u64 = 60;
const FIRST_WITH_DISKS: u64 = 60;
const FIRST_WITH_CACHE: u64 = 60;
const FIRST_WITH_PAIRS: u64 = 30;
const FIRST_WITH_HOLES: u64 = 40;
const FIRST_WITH_INLINE: u64 = 120;
const FIRST_WITH_DAMAGE: u64 = 12;

#[test]
fn recorded_and_first_seeds_break_no_promise() {
    weft_client::set_log(|_| ());
    let mut coverage = Coverage::default();
    // The recorded seeds were found before components existed, most of them before rules, and many before churn.
    let options = |ibridge, moves, rules| {
        let churn = if rules == Some(false) { rules } else { None };
        Options {
            ibridge,
            cache: Some(false),
            moves,
            rules,
            churn,
            parts: Some(false),
            stops: Some(false),
            pairs: Some(false),
            holes: Some(false),
            inline: Some(false),
            integrity: Some(false),
            compression: Some(false),
            damage: Some(false),
            disks: Some(false),
            ..Options::default()
        }
    };
    let (off, on) = (Some(false), Some(true));
    let churn = Options { churn: on, ..options(on, off, off) };
    let found_with_churn = FOUND_WITH_CHURN.iter().map(|(seed, why)| (*seed, *why, churn));
    let found_by_themselves = FOUND_BY_THEMSELVES
        .iter()
        .map(|(seed, why)| (*seed, *why, Options { churn: on, ..options(None, None, None) }));
    let with_parts = Options { parts: on, ..Options::default() };
    let with_parts = (3000..3000 + FIRST_WITH_PARTS).map(|seed| (seed, "", with_parts));
    let with_stops = Options { moves: on, stops: on, ..Options::default() };
    let with_stops = (4000..4000 + FIRST_WITH_STOPS).map(|seed| (seed, "", with_stops));
    let with_pairs = Options { moves: on, pairs: on, ..Options::default() };
    let with_pairs = (5000..5000 + FIRST_WITH_PAIRS).map(|seed| (seed, "", with_pairs));
    let with_holes = Options { holes: on, ..Options::default() };
    let with_inline = Options { inline: on, ..Options::default() };
    let with_inline = (11_000..11_000 + FIRST_WITH_INLINE).map(|seed| (seed, "", with_inline));
    let with_integrity = Options { integrity: on, ..Options::default() };
    let with_integrity = (8000..8000 + FIRST_WITH_INTEGRITY).map(|seed| (seed, "", with_integrity));
    let with_compression = Options { compression: on, ..Options::default() };
    let with_compression = (9000..9000 + FIRST_WITH_COMPRESSION).map(|seed| (seed, "", with_compression));
    let with_cache = Options { cache: on, ..Options::default() };
    let with_cache = (10_000..10_000 + FIRST_WITH_CACHE).map(|seed| (seed, "", with_cache));
    let with_disks = Options { disks: on, ..Options::default() };
    let with_disks = (7000..7000 + FIRST_WITH_DISKS).map(|seed| (seed, "", with_disks));
    let with_losses = Options { loses: on, ..Options::default() };
    let why = "search bug: servers that wait for a metadata server with a failed log counted as a hang";
    let with_losses = [7202, 7509, 8620, 11_174, 11_485, 12_087].map(|seed| (seed, why, with_losses));
    // The damage spares targets with SSDs.
    let with_damage = Options { ibridge: off, cache: off, damage: on, ..Options::default() };
    let with_damage = (1..=FIRST_WITH_DAMAGE).map(|seed| (seed, "", with_damage));
    let with_holes = (6000..6000 + FIRST_WITH_HOLES).map(|seed| (seed, "", with_holes));
    let found_with_moves_and_rules = [(
        2_304_591,
        "an append was half written to datafiles that a failed move had partly sealed",
        options(None, on, on),
    )];
    let found_with_ssds_and_moves =
        FOUND_WITH_SSDS_AND_MOVES.iter().map(|(seed, why)| (*seed, *why, options(on, on, None)));
    let with_churn = (0..FIRST_WITH_CHURN).map(|seed| (seed, "", churn));
    let found = FOUND.iter().map(|(seed, why)| (*seed, *why, options(off, off, off)));
    let found_with_moves = FOUND_WITH_MOVES.iter().map(|(seed, why)| (*seed, *why, options(None, on, off)));
    let with_ssds = (0..FIRST_WITH_SSDS).map(|seed| (seed, "", options(on, None, None)));
    let with_moves = (1000..1000 + FIRST_WITH_MOVES).map(|seed| (seed, "", options(None, on, None)));
    let with_rules = (2000..2000 + FIRST_WITH_RULES).map(|seed| (seed, "", options(None, None, on)));
    let first = (0..FIRST).map(|seed| (seed, "", options(None, None, None)));
    let found_since = FOUND_SINCE.iter().map(|(seed, options, why)| (*seed, *why, *options));
    let all = found.chain(found_with_moves).chain(with_ssds).chain(with_moves).chain(with_rules).chain(first);
    for (seed, why, options) in all
        .chain(found_by_themselves)
        .chain(found_with_ssds_and_moves)
        .chain(found_with_moves_and_rules)
        .chain(found_with_churn)
        .chain(with_churn)
        .chain(found_since)
        .chain(with_parts)
        .chain(with_stops)
        .chain(with_pairs)
        .chain(with_holes)
        .chain(with_inline)
        .chain(with_integrity)
        .chain(with_compression)
        .chain(with_disks)
        .chain(with_losses)
        .chain(with_cache)
        .chain(with_damage)
    {
        let report = run(seed, options);
        coverage.merge(&report.coverage);
        let mut with = String::new();
        for (name, is_on) in [
            ("ibridge", options.ibridge),
            ("cache", options.cache),
            ("moves", options.moves),
            ("rules", options.rules),
            ("churn", options.churn),
            ("parts", options.parts),
            ("stops", options.stops),
            ("pairs", options.pairs),
            ("holes", options.holes),
            ("inline", options.inline),
            ("integrity", options.integrity),
            ("compress", options.compression),
            ("damage", options.damage),
            ("disks", options.disks),
        ] {
            with += &is_on
                .map_or(String::new(), |is_on| format!(" --{name} {}", if is_on { "on" } else { "off" }));
        }
        assert_eq!(
            report.violation, None,
            "seed {seed}: {why}: weft twin search --seed {seed} --verbose{with}"
        );
    }
    // A search that exercises nothing finds nothing.
    for what in [
        "op: write",
        "op: change rules",
        "rules: a file by one",
        "parts: a file of several",
        "compression: bytes compressed",
        "compression: bytes saved",
        "op: move with a compression setting",
        "parts: no capacity left",
        "verify: a space reservation",
        "op: append",
        "op: truncate",
        "op: punch",
        "op: open with O_TRUNC",
        "op: rename",
        "lock: granted",
        "fault: kill a server",
        "fault: kill a client",
        "fault: cut the power",
        "fault: cut the power at a sync",
        "fault: partition two machines",
        "fault: reset connections",
        "fault: bad network",
        "fault: disk errors",
        "fault: slow disk",
        "fault: full disk",
        "bytes: uncertain ranges at a read",
        "sizes: uncertain at a query",
        "names: more than one state",
        "names: unknown outcome",
        "sync: reported lost writes",
        "verify: a file read whole",
        "damage: reported by a read",
        "verify: an inode with a valid size",
        "move: done",
        "move: stopped",
        "move: failed",
        "move: more than one round",
        "move: taken up again",
        "op: move by class",
        "move: until done",
        "fault: SSD",
        "fault: target emptied",
        "fault: metadata emptied",
        "fault: older copy of a target",
        "fault: older copy of the metadata",
        "swap: a disk was refused",
        "ssd: reads",
        "ssd: bytes written",
        "ssd: bytes written back",
        "ssd: bytes preloaded",
        "ssd: bytes moved by cleaning",
    ] {
        assert!(coverage.count(what) > 0, "never reached: {what}");
    }
}

#[test]
fn equal_seeds_give_equal_events() {
    weft_client::set_log(|_| ());
    for seed in 0..8 {
        assert_eq!(run(seed, Options::default()), run(seed, Options::default()), "seed {seed}");
    }
    let hash = |seed| run(seed, Options::default()).event_hash;
    assert_ne!(hash(1), hash(2));
}
