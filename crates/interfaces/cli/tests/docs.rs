//! The documentation pages name exactly the commands, keys and links that exist.

mod common;

use common::{root, succeeded};

fn page(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn every_command_is_on_the_page_of_commands() {
    let help = succeeded(common::undisturbed().arg("--help"));
    let commands = help.lines().skip_while(|line| !line.starts_with("Running:"));
    let commands = commands.take_while(|line| !line.starts_with("Options:"));
    let names: Vec<_> =
        commands.filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next()).collect();
    assert!(names.len() > 20, "{help}");
    let page = page("docs/reference/commands.md");
    for name in names.into_iter().filter(|name| *name != "help") {
        assert!(
            page.contains(&format!("`weft {name}")),
            "docs/reference/commands.md does not mention weft {name}"
        );
    }
}

#[test]
fn the_reference_has_exactly_the_keys_of_the_example() {
    let example = succeeded(common::undisturbed().args(["config", "example"]));
    let reference = page("docs/reference/cluster-toml.md");
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
fn links_between_pages_resolve() {
    let folders = std::fs::read_dir(root().join("docs")).expect("docs").flatten().map(|entry| entry.path());
    let files = folders.flat_map(|path| match path.is_dir() {
        true => std::fs::read_dir(path).expect("a folder").flatten().map(|entry| entry.path()).collect(),
        false => vec![path],
    });
    let pages: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .chain(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root().join(name)))
        .collect();
    assert!(pages.len() > 40, "{} pages", pages.len());
    for path in pages {
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for link in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link) {
            if link.starts_with("http") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let file = match file {
                "" => path.clone(),
                file => path.parent().expect("a directory").join(file),
            };
            assert!(file.exists(), "{} links to {link}, which does not exist", path.display());
            if !heading.is_empty() {
                let text = std::fs::read_to_string(&file).unwrap_or_default();
                assert!(
                    text.lines().any(|line| anchor(line) == heading),
                    "{} links to {link}",
                    path.display()
                );
            }
        }
    }
}

/// Returns the anchor of a heading as GitHub makes it; empty for other lines.
fn anchor(line: &str) -> String {
    let kept = line.trim_start_matches('#').trim().chars().filter_map(|c| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
        _ => None,
    });
    if line.starts_with('#') { kept.collect() } else { String::new() }
}
