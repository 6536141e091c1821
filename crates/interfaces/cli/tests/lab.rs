//! The first hour with the laboratory: a run, a page, and what the page lacks.

mod common;

use common::{shown, succeeded, undisturbed};

/// An experiment that runs in a moment, with one claim inside, one above and one below the paper's band.
const SMALL: &str = r#"
name = "mine"
title = "Mapping of requests"
paper = "none"
figure = "none"
shows = "Space of a mapping."
parameters = { size = 64 }
cluster = { use = "ceda", plan = { replicas = "off" } }
workload = { kind = "ior", ranks = 1, transfer = "=size * 1024", per_rank = "1 MiB", access = "read" }
x = { name = "size", set = "size", values = [64, 128] }
series = [{ name = "a" }, { name = "b" }]
measure = { what = "bandwidth", phase = "read" }
claims = [
  { says = "equal", ratio = '"a" / "b" at each', paper = 1 },
  { says = "too far", ratio = '"a" / "b" at 64', paper = 0.1, unmet = "they are equal" },
  { says = "not enough", ratio = '"a" / "b" at 64', paper = 2 },
]
"#;

#[test]
fn a_run_tells_the_side_of_the_paper_and_the_page_what_is_missing() {
    let dir = tempfile::tempdir().expect("a directory");
    let (results, page) = (dir.path().join("results"), dir.path().join("lab.html"));
    let report = || {
        let mut command = undisturbed();
        command.args(["lab", "report", "--results"]).arg(&results).arg("--output").arg(&page);
        succeeded(&mut command)
    };
    // Nothing has been run: the page exists, and the command tells what to do next.
    let told = report();
    for part in ["results of 0 of ", "--quick    one experiment", "lab report --fill", "lab run all"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let html = std::fs::read_to_string(&page).expect("a page");
    assert!(html.contains("Not run yet: <code>weft lab run") && html.contains("have not been run"));
    // An experiment of one's own, with every outcome.
    let file = dir.path().join("mine.toml");
    std::fs::write(&file, SMALL).expect("written");
    let mut run = undisturbed();
    run.args(["lab", "run", "--results"]).arg(&results).arg("--file").arg(&file);
    let output = run.output().expect("weft starts");
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let said = shown(&output);
    for part in [
        "met: equal",
        "above the paper, with a reason: too far",
        "reason: they are equal",
        "FAILED, below the paper: not enough",
        "1, the paper 2 (band 1.67 to 2.5) at 64 (no)",
        "claim failed, below the paper: not enough",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // A short run prints no progress into a log.
    assert!(!said.contains("done after"), "{said}");
}
