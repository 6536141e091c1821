use crate::claim::Verdict;
use crate::experiment::{Experiment, Runs};
use crate::formula::X;
use crate::rows::Row;
use crate::run::{Options, run};
use crate::spread::Spread;
use crate::testing::{Flat, outcome};
use crate::world::{Kind, Observation, Phase, World};
use crate::{folder, table};
use std::sync::atomic::{AtomicUsize, Ordering};
use toml::Table;
use weft_core::Nanos;

/// Moves `workload.size` megabytes in a second, and half of that under the policy `slow`.
struct Sized;

impl World for Sized {
    fn check(&self, _: &Table, workload: &Table) -> Result<(), String> {
        if workload.contains_key("size") { Ok(()) } else { Err("no size".into()) }
    }

    fn run(&self, cluster: &Table, workload: &Table, _: Runs, _: u64) -> Result<Observation, String> {
        let slow = if cluster.contains_key("slow") { 2 } else { 1 };
        let bytes = workload["size"].as_integer().unwrap() as u64 * 1_000_000 / slow;
        if bytes == 13_000_000 {
            return Err("thirteen".into());
        }
        let kind = Kind { ops: 1, bytes, latency: Nanos(1) };
        let phase = Phase {
            name: "write".into(),
            elapsed: Nanos(1_000_000_000),
            kinds: [("write".into(), kind)].into(),
        };
        Ok(Observation { elapsed: Nanos(1_000_000_000), phases: vec![phase], ..Default::default() })
    }
}

const SIZED: &str = r#"
name = "sized"
title = "t"
paper = "p"
figure = "f"
shows = "s"
parameters = { size = 10, factor = 2 }
cluster = {}
workload = { size = "=size * factor" }
x = { name = "size", set = "size", values = [10, 20, 40] }
series = [{ name = "a" }, { name = "b", set = { factor = 1 } }]
policies = [{ name = "off" }, { name = "slow", set = { "cluster.slow" = true } }]
measure = { what = "bandwidth" }
baseline = { series = "b", policy = "off" }
published = [
  { series = "a", x = [10, 20], values = [30, 50], source = "table" },
  { series = "b", x = [10], values = [10], source = "table" },
  { series = "a, slow", x = [40], ratios = [1.25], source = "text" },
]
quick = { x = [10] }
"#;

fn sized(claims: &str) -> Experiment {
    Experiment::parse("sized", &format!("{SIZED}{claims}")).unwrap_or_else(|error| panic!("{error}"))
}

fn row<'a>(rows: &'a [Row], series: &str, x: f64) -> &'a Row {
    rows.iter().find(|row| row.series == series && row.x == X::Number(x)).expect("a row")
}

#[test]
fn rows_include_baseline_and_published_values() {
    let rows = outcome(&sized(""), &Sized, false).rows;
    assert_eq!(rows.len(), 12);
    let at = |series, x| {
        let row = row(&rows, series, x);
        (row.value, row.baseline, row.ratio, row.published, row.published_ratio)
    };
    assert_eq!(at("a", 10.0), (20.0, Some(10.0), Some(2.0), Some(30.0), Some(3.0)));
    assert_eq!(at("a", 20.0), (40.0, Some(20.0), Some(2.0), Some(50.0), None));
    assert_eq!(at("b", 10.0), (10.0, None, None, Some(10.0), None));
    assert_eq!(at("b, slow", 40.0), (20.0, Some(40.0), Some(0.5), None, None));
    assert_eq!(at("a, slow", 40.0), (40.0, Some(40.0), Some(1.0), None, Some(1.25)));
    let json = serde_json::to_value(row(&rows, "a", 10.0)).unwrap();
    let expected = serde_json::json!({"experiment": "sized", "series": "a", "x": 10.0, "value": 20.0, "unit": "MB/s",
        "baseline": 10.0, "ratio": 2.0, "published": 30.0, "published_ratio": 3.0});
    assert_eq!(json, expected);
}

#[test]
fn claims_get_verdicts() {
    let experiment = sized(
        r#"claims = [
        { says = "met", check = '"a" == 2 * "b" at each' },
        { says = "failed", check = '"a" < 50 at each' },
        { says = "unmet", check = '"a" < 50 at each', unmet = "because" },
        { says = "full only", check = '"a" > 0 at each', quick = false },
        { says = "left out", check = '"a"[20] > 0' },
        { says = "parameter", check = '"b"[10] == size' },
        { says = "no value", check = 'published("b") > 0 at 20' },
        ]"#,
    );
    let verdicts = |quick| -> Vec<Verdict> {
        outcome(&experiment, &Sized, quick).findings.iter().map(|finding| finding.verdict).collect()
    };
    use Verdict::{Failed, Met, Unchecked, Unmet};
    assert_eq!(verdicts(false), [Met, Failed, Unmet, Met, Met, Met, Failed]);
    assert_eq!(verdicts(true), [Met, Met, Met, Unchecked, Unchecked, Met, Unchecked]);
    let full = outcome(&experiment, &Sized, false);
    assert_eq!(full.findings[1].compared, "20 < 50 at 10; 40 < 50 at 20; 80 < 50 at 40 (no)");
    assert_eq!(full.findings[2].reason.as_deref(), Some("because"));
    assert_eq!(full.failed().count(), 2);
    let text = table::render(&experiment, &full);
    assert!(text.contains("FAILED: failed"), "{text}");
    assert!(text.contains("reason: because"), "{text}");
    assert!(text.contains("over b off"), "{text}");
}

#[test]
fn results_beside_the_papers_band_tell_the_side_and_both_figures() {
    // "a" is 20, 40, 80, "b" 10, 20, 40. The paper has "a" at 30 and 50.
    let experiment = sized(
        r#"claims = [
        { says = "near", ratio = '"a" / "b" at each', paper = 2.2 },
        { says = "far above", ratio = '"a"[40] / "b"[10]', paper = 2 },
        { says = "far below", ratio = '"b"[20] / "a"[20]', paper = 2, unmet = "because" },
        { says = "both", value = '"a" at each', paper = 40 },
        { says = "published", value = '"a" at 10', paper = 'published("a")' },
        { says = "printed ratio", ratio = '"a, slow" / "b" at 40', paper = 'published_ratio("a, slow")' },
        { says = "no figure", value = '"a" at 40', paper = 'published("a")' },
        { says = "not positive", value = '"a" at 40', paper = 0 },
        { says = "places", ratio = '"a" / "b" at 10, 20', paper = { 10 = 2, 20 = 4 } },
        { says = "up to", ratio = '"a" / "b" at each', up_to = 1.9 },
        { says = "a loss", ratio = '"b" / "a" at each', up_to = 1.9 },
        { says = "range", ratio = '"a"[40] / "b"[20]', paper = [1.5, 2.8] },
        { says = "end of the range", ratio = '"a"[40] / "b"[20]', paper = [1.5, 3] },
        ]"#,
    );
    use Verdict::{Failed, Met, Unmet};
    let full = outcome(&experiment, &Sized, false);
    let found: Vec<(&str, Verdict, String)> = full
        .findings
        .iter()
        .map(|finding| (finding.says.as_str(), finding.verdict, finding.word()))
        .collect();
    let expected = [
        ("near", Met, "met"),
        ("far above", Failed, "FAILED, above the paper"),
        ("far below", Unmet, "below the paper, with a reason"),
        ("both", Failed, "FAILED, above and below the paper"),
        ("published", Met, "met"),
        // 1.0 beside a gain of 25 %.
        ("printed ratio", Failed, "FAILED, below the paper"),
        ("no figure", Failed, "FAILED"),
        ("not positive", Failed, "FAILED"),
        ("places", Failed, "FAILED, below the paper"),
        ("up to", Met, "met"),
        ("a loss", Failed, "FAILED, below the paper"),
        ("range", Failed, "FAILED, above the paper"),
        ("end of the range", Met, "met"),
    ];
    assert_eq!(found, expected.map(|(says, verdict, word)| (says, verdict, word.to_owned())));
    assert_eq!(full.findings[1].compared, "8, the paper 2 (band 1.67 to 2.5) (no)");
    assert_eq!(full.findings[4].compared, "20, the paper 30 (band 20 to 45) at 10");
    assert_eq!(full.findings[11].compared, "4, the paper 1.5 to 2.8 (band 1.33 to 3.7) (no)");
    assert_eq!(full.findings[12].compared, "4, the paper 1.5 to 3 (band 1.33 to 4)");
    let text = table::render(&experiment, &full);
    assert!(text.contains("FAILED, above the paper: far above"), "{text}");
    assert!(text.contains("8, the paper 2 (band 1.67 to 2.5)"), "{text}");
    // The quick form has no value at 20 and 40.
    let quick = outcome(&experiment, &Sized, true);
    assert_eq!(quick.findings[1].verdict, Verdict::Unchecked);
    assert_eq!((quick.findings[3].verdict, quick.findings[8].verdict), (Failed, Met));
}

/// Moves as many megabytes in a second as the seed's number. Seed 9 has another request size.
struct Chance;

impl World for Chance {
    fn check(&self, _: &Table, _: &Table) -> Result<(), String> {
        Ok(())
    }

    fn run(&self, cluster: &Table, workload: &Table, runs: Runs, seed: u64) -> Result<Observation, String> {
        let mut seen = Flat.run(cluster, workload, runs, seed)?;
        let kind = Kind { ops: 1, bytes: seed * 1_000_000, latency: Nanos(1) };
        seen.phases = vec![Phase { kinds: [("write".into(), kind)].into(), ..Phase::default() }];
        if seed == 9 {
            seen.disks[0].counters.block_sizes = [(4096, 1)].into();
        }
        Ok(seen)
    }
}

#[test]
fn values_of_several_seeds_are_means() {
    let mut experiment = sized(r#"claims = [{ says = "mean", check = '"a" == 9 and "b" == 9 at each' }]"#);
    experiment.run.seeds = 5;
    let full = outcome(&experiment, &Chance, false);
    let spread = Some(Spread { count: 5, mean: 9.0, least: 7.0, most: 11.0 });
    assert_eq!((full.seed, full.seeds, full.rows.len(), full.runs.len()), (7, 5, 12, 60));
    assert!(full.rows.iter().all(|row| row.value == 9.0 && row.spread == spread), "{:?}", full.rows);
    assert_eq!(full.findings[0].verdict, Verdict::Met);
    assert_eq!(full.runs[1].what, "a at 10, seed 8");
    let text = table::render(&experiment, &full);
    assert!(text.contains("means of seeds 7 to 11") && text.contains("least  most"), "{text}");
    // The quick form uses one seed.
    let quick = outcome(&experiment, &Chance, true);
    assert_eq!((quick.seeds, quick.runs.len(), quick.rows[0].value, quick.rows[0].spread), (1, 4, 7.0, None));
    assert_eq!(quick.runs[0].what, "a at 10");
}

#[test]
fn a_size_missing_with_a_seed_counts_as_zero() {
    let mut experiment = crate::experiment::by_name("ibridge-fig2c").unwrap().clone();
    experiment.run.seeds = 3;
    let rows = outcome(&experiment, &Chance, false).rows;
    let share = |x| row(&rows, &experiment.series[0].name, x).spread.map(|s| (s.mean, s.least, s.most));
    assert_eq!(share(64.0), Some((50.0, 0.0, 75.0)));
    assert_eq!(share(4.0), Some((100.0 / 3.0, 0.0, 100.0)));
}

#[test]
fn a_failed_run_names_its_point() {
    let experiment = sized("");
    let mut broken = experiment.clone();
    broken.x.values = vec![X::Number(13.0)];
    let options = Options { quick: false, seed: 1, jobs: 3 };
    let error = run(&broken, &Sized, &options, &mut |_, _, _| ()).unwrap_err();
    assert_eq!(error.to_string(), "sized, a, slow at 13: thirteen");
    let mut unclear = experiment;
    unclear.workload.remove("size");
    let error = run(&unclear, &Sized, &options, &mut |_, _, _| ()).unwrap_err();
    assert_eq!(error.to_string(), "sized, a at 10: no size");
}

#[test]
fn progress_counts_every_point_once() {
    let (last, calls) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let options = Options { quick: false, seed: 1, jobs: 4 };
    run(&sized(""), &Sized, &options, &mut |done, all, _| {
        assert_eq!((last.swap(done, Ordering::Relaxed), all), (done - 1, 12));
        calls.fetch_add(1, Ordering::Relaxed);
    })
    .unwrap();
    assert_eq!(calls.into_inner(), 12);
}

#[test]
fn stored_results_are_loaded_full_before_quick() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("not/yet/there");
    assert_eq!(folder::load(&folder, "sized").unwrap(), None);
    let (quick, full) = (outcome(&sized(""), &Sized, true), outcome(&sized(""), &Sized, false));
    folder::save(&folder, &quick).unwrap();
    assert_eq!(folder::load(&folder, "sized").unwrap(), Some(quick));
    folder::save(&folder, &full).unwrap();
    assert_eq!(folder::load(&folder, "sized").unwrap(), Some(full));
    std::fs::write(folder.join("sized.json"), "{").unwrap();
    let error = folder::load(&folder, "sized").unwrap_err().to_string();
    assert!(error.contains("sized.json"), "{error}");
}

#[test]
fn a_distribution_defines_its_places() {
    let experiment = crate::experiment::by_name("ibridge-fig2c").unwrap();
    let result = outcome(experiment, &Flat, true);
    let xs: Vec<_> = result.rows.iter().map(|row| (row.x.clone(), row.value, row.published)).collect();
    let expected = [(X::Number(64.0), 75.0, Some(72.0)), (X::Number(128.0), 25.0, Some(18.0))];
    assert_eq!(xs, expected);
    assert!(result.findings.iter().all(|finding| finding.verdict == Verdict::Met), "{:?}", result.findings);
}
