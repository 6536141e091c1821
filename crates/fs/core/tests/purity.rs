//! Proves by its manifest that the core cannot use a runtime, a socket or a clock.

use std::collections::BTreeSet;

/// Returns the dependencies of a manifest, except those of tests.
fn dependencies(manifest: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let mut inside = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            let (table, name) = match section.split_once("dependencies") {
                Some((before, name)) if !before.ends_with("dev-") => (true, name.trim_start_matches('.')),
                _ => (false, ""),
            };
            inside = table && name.is_empty();
            found.extend((table && !name.is_empty()).then_some(name));
        } else if inside && !line.is_empty() && !line.starts_with('#') {
            found.insert(line.split(['.', '=', ' ']).next().unwrap_or(line));
        }
    }
    found
}

#[test]
fn the_core_depends_on_serde_and_thiserror_alone() {
    let manifest = include_str!("../Cargo.toml");
    assert_eq!(dependencies(manifest), BTreeSet::from(["serde", "thiserror"]));
}

#[test]
fn every_form_of_dependency_is_found() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\na.workspace = true\nb = \"1\"\n\
                    [dependencies.c]\nversion = \"1\"\n\
                    [target.'cfg(unix)'.dependencies]\nd = { version = \"1\" }\n[build-dependencies]\ne = \"1\"\n\
                    [dev-dependencies]\nf = \"1\"\n";
    assert_eq!(dependencies(manifest), BTreeSet::from(["a", "b", "c", "d", "e"]));
}
