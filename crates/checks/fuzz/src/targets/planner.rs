//! Text files that the planner reads: figures of clusters, written by hand or measured, and plans.

use crate::Outcome;
use crate::alloc::bounded;
use std::time::{Duration, Instant};
use weft_core::parts::SpaceLeft;
use weft_core::{ByteLen, Candidate, FileId, FileOffset, Nanos, ServerId, TargetId};
use weft_estimate::measure::Report;
use weft_planner::live::ClassRenames;
use weft_planner::mix::Direction;
use weft_planner::plan::{Options, plan};
use weft_planner::{Figures, Limits, Plan, Planner, Survey, TraceSummary};
use weft_trace::{HostId, Level, Names, Operation, Rank, Record};

/// Maximum length of an input in bytes: enough for any such file, and short enough to mutate quickly.
const TEXT_BYTES_MAX: usize = 32 << 10;
/// Time limit for planning a few requests: far above the normal time, and short enough for a user to wait.
const PLANNING_TIMEOUT: Duration = Duration::from_secs(30);

pub const WORDS: &[&str] = &[
    "[[classes]]\n",
    "[classes.read]\n",
    "[figures]\n",
    "[[rules]]\n",
    "name = \"hdd\"\n",
    "targets = 60000\n",
    "targets = 0\n",
    "room = \"1 B\"\n",
    "mb_s = 1e9\n",
    "mb_s = 1e-6\n",
    "startup_us = 1e12\n",
    "depth = 4294967295",
    "random = []\n",
    "window = \"0 B\"\n",
    "from = \"0 B\"\n",
    "to = \"18446744073709551615 B\"\n",
    "\"16777215 TiB\"",
    "processes_per_node = 0\n",
    "nan",
    "-inf",
    "-1",
    "1e400",
    "0",
];

/// Reads figures, written by hand or by `weft profile`.
pub fn figures_file(data: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(&data[..data.len().min(TEXT_BYTES_MAX)]);
    let by_hand = bounded(text.len(), 512, 256 << 10, || Figures::from_toml(&text));
    let measured = bounded(text.len(), 512, 256 << 10, || Report::from_toml(&text));
    for error in [by_hand.as_ref().err(), measured.as_ref().err()].into_iter().flatten() {
        assert!(!error.is_empty());
    }
    if let Ok(report) = &measured {
        let written = report.to_toml();
        assert_eq!(Report::from_toml(&written).expect("just written").to_toml(), written);
        for class in &report.classes {
            let Some(Ok(curve)) = class.curve.as_ref().map(|curve| curve.service_curve()) else { continue };
            assert!(curve.seek(ByteLen(u64::MAX)) >= curve.seek(ByteLen(0)));
        }
    }
    let measured = measured.ok().map(|report| report.figures);
    let accepted: Vec<Figures> = by_hand.ok().into_iter().chain(measured).collect();
    accepted.iter().for_each(used);
    if accepted.is_empty() { Outcome::Refused } else { Outcome::Accepted }
}

/// Asserts that computing a plan with the figures ends and yields finite numbers.
fn used(figures: &Figures) {
    for class in &figures.classes {
        for service in [Direction::Read, Direction::Write].map(|direction| class.service(direction)) {
            for depth in [0, 1, 7, u32::MAX] {
                for len in [0.0, 4096.0, 1e12] {
                    let all = [
                        service.random_ns(depth, len),
                        service.streams_ns(depth, len),
                        service.near_ns(len),
                        service.gathered_ns(depth, len),
                    ];
                    assert!(all.iter().all(|ns| ns.is_finite() && *ns >= 0.0), "{all:?} of {service:?}");
                }
            }
        }
    }
    let began = Instant::now();
    for planner in Planner::ALL {
        let options = Options { planner, alternatives: false, ..Options::default() };
        let Ok(planned) = plan(&traced(), figures, &options) else { continue };
        let text = planned.plan.to_toml();
        assert_eq!(plan_file(text.as_bytes()), Outcome::Accepted, "{text}");
    }
    assert!(began.elapsed() < PLANNING_TIMEOUT, "planning took {:?}", began.elapsed());
}

/// Returns a trace of a few requests by two ranks, with a read of written data.
fn traced() -> TraceSummary {
    let mut names = Names::default();
    let file = names.file("/run7/out.1").expect("the table has space");
    let mut survey = Survey::new(&Limits::default());
    for n in 0..8u64 {
        let record = Record {
            rank: Rank((n % 2) as u32),
            host: HostId(0),
            file,
            op: if n < 5 { Operation::Write } else { Operation::Read },
            level: Level::Posix,
            collective: false,
            offset: FileOffset((n * 7 % 5) * 100_000),
            len: ByteLen(100_000),
            start: Nanos(n * 1000),
            end: Nanos(n * 1000 + 5000),
        };
        survey.add(&record, &names);
    }
    survey.finish(None)
}

pub fn plan_file(data: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(&data[..data.len().min(TEXT_BYTES_MAX)]);
    let parsed = bounded(text.len(), 512, 256 << 10, || Plan::from_toml(&text));
    match &parsed {
        Ok(plan) => {
            let written = plan.to_toml();
            assert_eq!(Plan::from_toml(&written).as_ref(), Ok(plan), "{written}");
            assert_eq!(Plan::from_toml(&written).expect("just written").to_toml(), written);
            applied(plan);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    Outcome::of(&parsed)
}

/// Applies the plan to a cluster that differs from the planned one only in its number of targets.
fn applied(plan: &Plan) {
    let classes = plan.cluster.classes.iter().take(8);
    let available: Vec<Candidate<'_>> = classes
        .flat_map(|class| (0..class.targets.min(3)).map(|_| &*class.name))
        .enumerate()
        .map(|(at, class)| Candidate { target: TargetId(at as u32), server: ServerId(at as u32), class })
        .collect();
    for rule in &plan.rules {
        assert!((0.0..=1.0).contains(&rule.confidence), "{}", rule.confidence);
        let _ = plan.by_class(rule, &available, &ClassRenames::new());
        let path = rule.path.0.replace('*', "7");
        if let Ok(Some(layout)) =
            plan.on_targets(&path, &available, &ClassRenames::new(), &SpaceLeft::new(), FileId(1))
        {
            assert!(layout.components().last().is_some_and(|last| last.end.is_none()));
        }
    }
}

const BY_HAND: &str = r#"processes_per_node = 2
call_us = 1.5
measured = true
processor = { messages_per_s = 90000.0, cores = 2 }
[network]
connect_us = 38.0
mb_s = 117.7
window = "512 KiB"
[[classes]]
name = "hdd"
targets = 4
memory = "2 GiB"
[classes.read]
sequential = { startup_us = 120.0, mb_s = 76.0 }
random = [{ depth = 1, startup_us = 9000.0, mb_s = 70.0 }, { depth = 16, startup_us = 4500.0, mb_s = 70.0 }]
[classes.write]
sequential = { startup_us = 120.0, mb_s = 76.0 }
random = [{ depth = 1, startup_us = 3000.0, mb_s = 70.0 }]
scattered = [{ depth = 1, startup_us = 9000.0, mb_s = 70.0 }]
sync_us = 20000.0
behind = "512 MiB"
gathers = "128 MiB"
[[classes]]
name = "ssd"
targets = 2
room = "1 MiB"
error = 0.12
devices = [0, 0]
[classes.read]
sequential = { startup_us = 60.0, mb_s = 500.0 }
streams = { startup_us = 70.0, mb_s = 450.0 }
near = { startup_us = 70.0, mb_s = 450.0 }
random = [{ depth = 1, startup_us = 150.0, mb_s = 500.0 }]
[classes.write]
sequential = { startup_us = 30.0, mb_s = 450.0 }
random = [{ depth = 1, startup_us = 40.0, mb_s = 450.0 }]
"#;

pub fn figures_file_seeds() -> Vec<Vec<u8>> {
    let none = "[network]\nconnect_us = 1\nmb_s = 1\n[[classes]]\n";
    vec![BY_HAND.into(), include_str!("../../seeds/cluster.figures.toml").into(), none.into()]
}

pub fn plan_file_seeds() -> Vec<Vec<u8>> {
    let figures = Figures::from_toml(BY_HAND).expect("figures");
    let made = |planner| {
        let options =
            Options { planner, trace: "a.wtrace".into(), notes: vec!["a note".into()], ..Options::default() };
        plan(&traced(), &figures, &options).expect("a plan").plan.to_toml().into_bytes()
    };
    Planner::ALL.map(made).to_vec()
}
