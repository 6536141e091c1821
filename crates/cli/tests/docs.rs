//! The pages name what there is.

mod common;

use common::{root, succeeded};

fn page(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn every_command_stands_on_the_page_of_commands() {
    let help = succeeded(common::undisturbed().arg("--help"));
    let commands = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    let names: Vec<_> =
        commands.take_while(|line| !line.is_empty()).filter_map(|l| l.split_whitespace().next()).collect();
    assert!(names.len() > 20, "{help}");
    let page = page("docs/commands.md");
    for name in names.into_iter().filter(|name| *name != "help") {
        assert!(page.contains(&format!("`weft {name}")), "docs/commands.md does not tell of weft {name}");
    }
}

#[test]
fn every_key_of_the_example_stands_in_the_reference_and_no_other() {
    let example = succeeded(common::undisturbed().args(["config", "example"]));
    let reference = page("docs/cluster.md");
    let mut keys: Vec<_> = example
        .lines()
        .map(|line| line.trim_start_matches('#'))
        .filter_map(|line| line.split_once(" = "))
        .map(|(key, _)| key)
        .filter(|key| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
        .collect();
    let mut told: Vec<_> = reference
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|line| line.split_once('`'))
        .map(|(key, _)| key)
        .collect();
    for list in [&mut keys, &mut told] {
        list.sort_unstable();
        list.dedup();
    }
    assert_eq!(told, keys);
}

#[test]
fn links_between_pages_lead_somewhere() {
    for name in [
        "README.md",
        "ARCHITECTURE.md",
        "docs/commands.md",
        "docs/cluster.md",
        "docs/audit.md",
        "docs/fsck.md",
        "docs/keys.md",
        "docs/metadata-backup.md",
        "docs/security.md",
    ] {
        let text = page(name);
        let here = root().join(name);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link) {
            if link.starts_with("http") {
                continue;
            }
            let file = here.parent().expect("a directory").join(link.split('#').next().unwrap_or_default());
            assert!(file.exists(), "{name} leads to {link}, which is not there");
        }
    }
}
