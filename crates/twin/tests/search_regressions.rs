//! Seeds that once broke a promise, each with the bug that it found, and the first seeds of all. Each stays fixed.
//!
//! What a seed does changes with the code that it runs; that the search still finds these bugs where they are planted
//! again is what `search_plants.rs` shows.

use weft_twin::search::{Coverage, Options, Profile, run};

/// Each seed with what it found.
const FOUND: [(u64, &str); 35] = [
    (
        48,
        "a writer that was told again after a restart had lengths recorded from before its own cut: appends went too far",
    ),
    (132, "the same: reads behind the end failed as if bytes were lost"),
    (195, "a move recorded lengths that an O_TRUNC under way then cut: the bytes were called lost"),
    (17, "a server that was well again was called dead to all but one of those who asked at that moment"),
    (
        35,
        "a writer that was cut off told of its old end at the close, and the recorded size was longer than the file",
    ),
    (52, "a lock on an open file that was lost over an outage failed with EBADF instead of ESTALE"),
    (
        105,
        "a lock that was asked for in the grace time was granted when its client had given up: appends hung for ever",
    ),
    (
        1110,
        "an append whose unlock was not heard kept the lock while its client was idle: other appends hung for ever",
    ),
    (8452, "the same, with another task that kept its client's session alive"),
    (9389, "an SSD that had failed gave up bytes that a full disk then had no room for: zeros were read"),
    (3982, "the same"),
    (6048, "the same"),
    (
        30163,
        "two starts of the metadata service within a second had one fence: two appends lay over each other",
    ),
    (
        89689,
        "a client whose append's unlock was not heard let its session end, and lost all its other locks by that",
    ),
    (
        438,
        "a lock was given back after a second start of the metadata service, though another had had it meanwhile",
    ),
    (12675, "the same"),
    (
        42768,
        "a full disk did not take the note that a datafile was removed, and after a loss of power it was made again",
    ),
    (161, "fsync succeeded although the server's machine had lost power with what was written"),
    (92, "the same, on two servers"),
    (169, "a removed file's bytes went to datafiles of nobody, and its reader saw holes"),
    (122, "removed datafiles came back with a loss of power, and belonged to no file"),
    (91, "a file id was used again after a crash, for a client that still held the old file"),
    (
        1244,
        "a metadata service whose log had failed answered EBADF about files that it could not be told of again",
    ),
    (1054, "the simulated network forgot that a machine had been down when a partition healed"),
    (
        7223,
        "a writer unknown to the metadata service after an outage wrote on, and others were told a size of before",
    ),
    (8516, "the same, after a lost session"),
    (6240, "the same"),
    (7836, "the same"),
    (1760, "the search itself took a read that a loss of power overtook for proof"),
    (12588, "the search itself forgot that a failed append may have found an end of before a cut"),
    (21245, "the search itself held a recorded size to what was read after a loss of power"),
    (27783, "the search itself took a hole before bytes that are being cut off for a sure length"),
    (91977, "as 21245"),
    (96673, "the search itself took appends for sure that a cut without an answer overtook"),
    (308, "the search itself dropped requests whose outcome nobody knows"),
];

/// Seeds in which files are moved to other layouts, with what they found.
const FOUND_WITH_MOVES: [(u64, &str); 6] = [
    (42, "two programs of one session moved the same file at the same time"),
    (11, "the same, and what one of them had copied belonged to nobody"),
    (
        1210,
        "a mover that was cut off told of a file that somebody else had moved as if it were an error of its own",
    ),
    (
        1778,
        "the metadata log failed with a move, and writes went to datafiles that the file did not have after the restart",
    ),
    (
        3529,
        "bytes that were cut while a file was moved were there again when it grew before the move had come to its end",
    ),
    (4197, "the same"),
];

/// Seeds in which more is written than SSDs have room for, with what they found.
const FOUND_WITH_CHURN: [(u64, &str); 1] = [(
    138,
    "what an SSD had no room for went to the disk, and older bytes hid it that the log had moved at that moment",
)];

/// Seeds that decide all but churn, which is on where it can be, with what they found.
const FOUND_BY_THEMSELVES: [(u64, &str); 7] = [
    (513_125, "a sync that met the datafiles of before a move was told that the file had been removed"),
    (
        518_866,
        "the metadata service kept a write that drops mounts' pages for longer than its client waited, who then lost its locks \
         without knowing",
    ),
    (
        519_778,
        "that datafiles were removed was forgotten with a loss of power, and a late write made one again",
    ),
    (502_499, "the same"),
    (
        516_562,
        "who gave up waiting for an append lock, and lost its session before the place in the queue was stale, kept it for ever",
    ),
    (
        717_737,
        "an open whose reply was lost was refused when it was asked for again, for its path led to another file by then",
    ),
    (1_004_173, "a sync did not ask for a fresh capability when the time of its own was over"),
];

/// Seeds with SSDs in which files are moved and rules are as they decide, with what they found.
const FOUND_WITH_SSDS_AND_MOVES: [(u64, &str); 6] = [
    (
        782_845,
        "who cut a file at its open, and could not before the metadata service was started again, was refused the cut",
    ),
    (784_786, "the same"),
    (1_207_177, "a cut at an open did not ask for a fresh capability when the time of its own was over"),
    (3_209_030, "a copy was made for the SSD of a datafile that was being removed, and belonged to no file"),
    (3_203_718, "the same"),
    (1_207_643, "the search itself took a change for safe that was seen before another one was answered"),
];

const ON: Option<bool> = Some(true);
/// As the seed decides; these were found before files had parts, and moves stopped anywhere.
const AS_DECIDED: Options = Options {
    profile: Profile::Quick,
    ibridge: None,
    moves: None,
    rules: None,
    churn: None,
    parts: Some(false),
    stops: Some(false),
    pairs: Some(false),
    holes: Some(false),
    integrity: Some(false),
    damage: Some(false),
    disks: Some(false),
    verbose: false,
    steps_max: None,
    faults_max: None,
    plant: None,
};

/// All that can be switched.
const EVERYTHING: Options =
    Options { ibridge: ON, moves: ON, rules: ON, churn: ON, parts: ON, stops: ON, ..AS_DECIDED };

/// Seeds with what they ran with and what they found.
const FOUND_SINCE: [(u64, Options, &str); 15] = [
    (
        6_002_134,
        AS_DECIDED,
        "bytes of a failed SSD were given up for newer ones that a loss of power took from the disk: older ones were read",
    ),
    (6_006_436, AS_DECIDED, "the same"),
    (6_013_252, AS_DECIDED, "the same"),
    (
        6_310_729,
        Options { ibridge: ON, ..AS_DECIDED },
        "who cut a file to nothing said so after a writer had written behind the cut and closed: it was taken for empty",
    ),
    (
        6_415_420,
        Options { rules: ON, ..AS_DECIDED },
        "the search itself took what was seen for sure after a cut that failed, and had taken the bytes behind a hole",
    ),
    (
        7_118_278,
        Options { churn: ON, ..AS_DECIDED },
        "who asked for the length of a datafile while it was removed was told that of before the SSD had newer bytes",
    ),
    (
        7_604_262,
        Options { moves: ON, ibridge: ON, ..AS_DECIDED },
        "datafiles were removed before it was durable that nobody needed them, and a loss of power undid that",
    ),
    (
        14_000_003,
        Options { moves: ON, stops: ON, parts: None, ..AS_DECIDED },
        "a session that took its own move up again trusted what it had copied, though the file was written since",
    ),
    (14_000_038, Options { moves: ON, stops: ON, parts: None, ..AS_DECIDED }, "the same"),
    (
        13_603_111,
        EVERYTHING,
        "a file that had bytes on an SSD alone after a loss of power was taken for one that was never written: they stayed",
    ),
    (
        15_001_265,
        Options { parts: None, stops: None, ..AS_DECIDED },
        "who asked for a file by its name was told that it was removed, though another one had the name by then",
    ),
    (
        15_404_538,
        EVERYTHING,
        "who opened a file for writing that somebody had just marked as open wrote before a crash could not undo the mark",
    ),
    (
        17_808_291,
        Options { parts: None, stops: None, pairs: None, ..AS_DECIDED },
        "the search itself held each of two cuts at once to what it would have left alone",
    ),
    (
        18_807_401,
        Options { ibridge: ON, churn: ON, parts: None, stops: None, pairs: None, ..AS_DECIDED },
        "the search itself held a cut of which loss of power took a part to what was seen before it",
    ),
    (
        18_806_587,
        Options { ibridge: ON, churn: ON, parts: None, stops: None, pairs: None, ..AS_DECIDED },
        "the lock of a session whose end a failed metadata log did not take was granted to another session, and the next start \
         gave it back to the first",
    ),
];

/// Seeds that are run besides, and so many of them with SSDs, with SSDs that are too small, with moves, or with rules of directories, whatever they decide.
const FIRST: u64 = 120;
const FIRST_WITH_SSDS: u64 = 60;
const FIRST_WITH_CHURN: u64 = 20;
const FIRST_WITH_MOVES: u64 = 40;
const FIRST_WITH_RULES: u64 = 40;
const FIRST_WITH_PARTS: u64 = 40;
const FIRST_WITH_STOPS: u64 = 40;
const FIRST_WITH_INTEGRITY: u64 = 40;
const FIRST_WITH_DISKS: u64 = 60;
const FIRST_WITH_PAIRS: u64 = 30;
const FIRST_WITH_HOLES: u64 = 40;

#[test]
fn no_seed_breaks_a_promise() {
    weft_client::set_log(|_| ());
    let mut coverage = Coverage::default();
    // Seeds that found something did so before there were parts, most before there were rules, and all but some before there was churn.
    let options = |ibridge, moves, rules| {
        let churn = if rules == Some(false) { rules } else { None };
        Options {
            ibridge,
            moves,
            rules,
            churn,
            parts: Some(false),
            stops: Some(false),
            pairs: Some(false),
            holes: Some(false),
            integrity: Some(false),
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
    let with_integrity = Options { integrity: on, ..Options::default() };
    let with_integrity = (8000..8000 + FIRST_WITH_INTEGRITY).map(|seed| (seed, "", with_integrity));
    let with_disks = Options { disks: on, ..Options::default() };
    let with_disks = (7000..7000 + FIRST_WITH_DISKS).map(|seed| (seed, "", with_disks));
    let with_holes = (6000..6000 + FIRST_WITH_HOLES).map(|seed| (seed, "", with_holes));
    let found_with_moves_and_rules = [(
        2_304_591,
        "an append was half written to datafiles of which a move that failed had sealed some",
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
        .chain(with_integrity)
        .chain(with_disks)
    {
        let report = run(seed, options);
        coverage.merge(&report.coverage);
        let mut with = String::new();
        for (name, is_on) in [
            ("ibridge", options.ibridge),
            ("moves", options.moves),
            ("rules", options.rules),
            ("churn", options.churn),
            ("parts", options.parts),
            ("stops", options.stops),
            ("pairs", options.pairs),
            ("holes", options.holes),
            ("integrity", options.integrity),
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
    // A search that does nothing finds nothing.
    for what in [
        "op: write",
        "op: change rules",
        "rules: a file by one",
        "parts: a file of several",
        "parts: no room left",
        "verify: an account of room",
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
        "fault: part two machines",
        "fault: reset connections",
        "fault: bad network",
        "fault: disk errors",
        "fault: slow disk",
        "fault: full disk",
        "bytes: uncertain ranges at a read",
        "sizes: uncertain at a look",
        "names: more than one state",
        "names: unknown outcome",
        "sync: told that writes are lost",
        "verify: a file read whole",
        "verify: a settled inode",
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
fn one_seed_is_one_course_of_events() {
    weft_client::set_log(|_| ());
    for seed in 0..8 {
        assert_eq!(run(seed, Options::default()), run(seed, Options::default()), "seed {seed}");
    }
    let hash = |seed| run(seed, Options::default()).event_hash;
    assert_ne!(hash(1), hash(2));
}
