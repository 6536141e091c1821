use super::*;

const SMALL: &str = r#"
name = "small"
title = "t"
paper = "p"
figure = "f"
shows = "s"
parameters = { size = "=2 * base", base = 8, mode = "fast" }
cluster = { nodes = 3, deep = [{ a = 1 }] }
workload = { kind = "w", size = "=size", mode = "=mode" }
x = { name = "processes", set = "workload.ranks", values = [1, 2] }
series = [{ name = "a" }, { name = "b", set = { base = 16, "cluster.deep.0.a" = "=base" } }]
policies = [{ name = "off" }, { name = "new", set = { "cluster.policy" = "new" } }]
measure = { what = "rate", phase = "create" }
baseline = { series = "a", policy = "off" }
published = [{ series = "a", x = [1, 2], values = [10, 20], source = "table" }]
claims = [{ says = "c", check = '"b" > "a, new" at each' }]
quick = { set = { base = 1 }, x = [1], series = ["b"] }
"#;

fn parsed(text: &str) -> Result<Experiment, String> {
    Experiment::parse("small.toml", text).map_err(|error| error.to_string())
}

fn without(from: &str, to: &str) -> String {
    assert!(SMALL.contains(from), "{from}");
    parsed(&SMALL.replace(from, to)).expect_err(from)
}

#[test]
fn points_are_series_by_policies_by_places() {
    let experiment = parsed(SMALL).unwrap();
    let points = crate::plan::points(&experiment, false).unwrap();
    let labels: Vec<_> =
        points.iter().map(|p| (p.series.as_str(), p.x.clone().unwrap().to_string())).collect();
    let expected = ["a", "a", "a, new", "a, new", "b", "b", "b, new", "b, new"]
        .into_iter()
        .zip(["1", "2"].into_iter().cycle());
    assert!(labels.iter().map(|(series, x)| (*series, x.as_str())).eq(expected));
    let last = &points[7];
    assert_eq!(last.workload, toml::from_str("kind = \"w\"\nsize = 32\nmode = \"fast\"\nranks = 2").unwrap());
    assert_eq!(last.cluster, toml::from_str("nodes = 3\npolicy = \"new\"\ndeep = [{ a = 16 }]").unwrap());
    let quick = crate::plan::points(&experiment, true).unwrap();
    assert_eq!(quick.len(), 2);
    // The series overrides the quick form.
    assert_eq!(quick[0].workload["size"].as_integer(), Some(32));
}

#[test]
fn inconsistent_parts_are_reported() {
    for (from, to, message) in [
        ("base = 16,", "bas = 16,", "no parameter `bas`"),
        ("\"=2 * base\"", "\"=2 * size\"", "defined by itself"),
        ("\"=size\"", "\"=sise\"", "no parameter `sise`"),
        ("cluster.deep.0.a", "cluster.nodes.a", "neither a table nor a list"),
        ("cluster.deep.0.a", "cluster.deep.1.a", "no table at 1"),
        ("name = \"b\"", "name = \"a\"", "two series are called \"a\""),
        ("\"a, new\" at each", "\"c\" at each", "no series \"c\""),
        ("at each", "at 3", "3 is not on the x axis"),
        ("at each", "at", "unexpected end"),
        ("values = [10, 20]", "values = [10]", "one value or ratio for each x"),
        ("series = \"a\", x = [1, 2]", "series = \"z\", x = [1, 2]", "no series \"z\""),
        ("x = [1], series", "x = [9], series", "9 is not on the x axis"),
        ("series = [\"b\"]", "series = [\"z\"]", "no series \"z\""),
        ("set = \"workload.ranks\", ", "", "belong together"),
        (", values = [1, 2] }", " }", "needs exactly one of"),
        ("figure =", "figur =", "unknown field `figur`"),
        ("what = \"rate\"", "what = \"rat\"", "unknown variant `rat`"),
        ("check = '\"b\" >", "ratio = '\"b\" >", "give `check`, or `ratio` with `paper` or `up_to`"),
        ("at each' }]", "at each', paper = 2 }]", "give `check`, or `ratio`"),
    ] {
        let error = without(from, to);
        assert!(error.contains(message), "{from} -> {to}: {error}");
        assert!(error.starts_with("small.toml"), "{error}");
    }
}

#[test]
fn a_missing_file_is_named() {
    let error = Experiment::load(std::path::Path::new("/none/x.toml")).unwrap_err().to_string();
    assert!(error.starts_with("/none/x.toml: "), "{error}");
}

/// The small experiment with another claim.
fn with_claim(claim: &str) -> Result<Experiment, String> {
    parsed(&SMALL.replace("check = '\"b\" > \"a, new\" at each'", claim))
}

#[test]
fn claims_that_compare_with_the_paper_are_parsed() {
    for (claim, measured) in [
        ("ratio = '\"b\" / \"a\" at each', paper = 1.5", Measured::Ratio),
        ("ratio = '\"b\" / \"a\" at 1, 2', paper = { 1 = 1.5, 2 = 3 }", Measured::Ratio),
        ("ratio = '\"b\" / \"a\" at each', paper = [1.5, 3]", Measured::Ratio),
        ("ratio = '\"b\" / \"a\" at each', up_to = 3", Measured::RatioUpTo),
        ("value = '\"a\" at each', paper = 'published(\"a\")'", Measured::Value),
    ] {
        let experiment = with_claim(claim).unwrap_or_else(|error| panic!("{claim}: {error}"));
        let Statement::Near { measured: found, .. } = &experiment.claims[0].statement else {
            panic!("{claim}")
        };
        assert_eq!(*found, measured, "{claim}");
    }
    for (claim, message) in [
        ("ratio = '\"b\" / \"a\" at each'", "give `check`, or `ratio`"),
        ("value = '\"b\" at each', up_to = 3", "give `check`, or `ratio`"),
        ("ratio = '\"b\" at each', paper = 2, up_to = 3", "give `check`, or `ratio`"),
        ("ratio = '\"b\" > \"a\" at each', paper = 2", "after the end"),
        ("ratio = '\"b\" / \"z\" at each', paper = 2", "no series \"z\""),
        ("ratio = '\"b\" / \"a\" at 9', paper = 2", "9 is not on the x axis"),
        ("ratio = '\"b\" at each', paper = 'published(\"z\")'", "no series \"z\""),
        ("ratio = '\"b\" at each', paper = 'published('", "unexpected end"),
        ("ratio = '\"b\" at each', paper = [3, 2]", "range 3 to 2 is empty"),
        ("ratio = '\"b\" at each', paper = { 1 = 2 }", "one figure of the paper for each place"),
        ("ratio = '\"b\" at 1, 2', paper = { 1 = 2 }", "one figure of the paper for each place"),
        ("ratio = '\"b\" at 1', paper = { 2 = 2 }", "one figure of the paper for each place"),
    ] {
        let error = with_claim(claim).expect_err(claim);
        assert!(error.contains(message), "{claim}: {error}");
    }
}

/// A figure that a paper prints bounds the result from both sides. A condition such as *at least* would accept any
/// result beyond it.
#[test]
fn every_printed_figure_is_compared_from_both_sides() {
    // An upper bound of the paper's own, and a share beside which the paper compares only in words.
    let bounds = [("ceda-space", "section 6.4.2")];
    let mut compared = 0;
    for experiment in all() {
        let near = |claim: &Claim| matches!(claim.statement, Statement::Near { .. });
        compared += experiment.claims.iter().filter(|claim| near(claim)).count();
        if !experiment.published.is_empty() && !bounds.iter().any(|(name, _)| *name == experiment.name) {
            assert!(experiment.claims.iter().any(near), "{}: nothing is compared", experiment.name);
        }
        for claim in experiment.claims.iter().filter(|claim| !near(claim)) {
            let source = claim.source.clone().unwrap_or_default();
            assert!(!source.contains('%'), "{}: {}: {source}", experiment.name, claim.says);
        }
    }
    assert!(compared > 60, "{compared}");
}
