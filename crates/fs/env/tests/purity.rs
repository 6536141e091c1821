//! No crate above the seam accesses a clock, a file, a socket or an unseeded random number directly. The build enforces
//! this: every crate that runs in both worlds denies the calls that `clippy.toml` lists. These tests look for calls
//! that clippy cannot detect, those of libc.

use std::path::{Path, PathBuf};

/// Crates that run in the simulated world.
const CRATES: [&str; 8] =
    ["fs/wire", "fs/client", "fs/server", "fs/store", "fs/env", "twin/models", "twin/workload", "twin/twin"];
const DENIED: &str = "deny(clippy::disallowed_methods, clippy::disallowed_types)";
/// Entries that clippy.toml must list for the denial to be effective.
const LISTED: [&str; 7] = [
    "std::time::Instant::now",
    "std::time::SystemTime::now",
    "std::thread::spawn",
    "std::thread::sleep",
    "std::fs::File",
    "std::net::TcpStream",
    "std::hash::RandomState",
];
/// Other ways to the same resources.
const FORBIDDEN: [&str; 7] =
    ["clock_gettime", "gettimeofday", "libc::time(", "getrandom", "nanosleep", "libc::open", "libc::socket"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a source folder") {
        let path = entry.expect("an entry").path();
        // The one module that may use them.
        if path.is_dir() && !path.ends_with("env/src/real") {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_crate_of_both_worlds_denies_the_listed_calls() {
    let settings = std::fs::read_to_string(root().join("clippy.toml")).expect("the settings");
    for listed in LISTED {
        assert!(settings.contains(&format!("\"{listed}\"")), "clippy.toml does not list {listed}");
    }
    for name in CRATES {
        let lib = root().join("crates").join(name).join("src/lib.rs");
        let text = std::fs::read_to_string(&lib).expect("a library");
        assert!(text.contains(DENIED), "{} does not deny what clippy.toml lists", lib.display());
    }
}

#[test]
fn no_crate_bypasses_the_seam_or_allows_denied_calls() {
    for name in CRATES {
        let mut files = Vec::new();
        sources(&root().join("crates").join(name).join("src"), &mut files);
        assert!(!files.is_empty(), "{name} has sources");
        for file in files {
            let text = std::fs::read_to_string(&file).expect("a source");
            let code = text.split("#[cfg(test)]").next().expect("a first part");
            for forbidden in FORBIDDEN {
                assert!(!code.contains(forbidden), "{} has {forbidden}", file.display());
            }
            let is_seam = file.ends_with("env/src/lib.rs");
            let allows = code.matches("allow(clippy::disallowed").count();
            assert_eq!(allows, usize::from(is_seam), "{} allows calls that are denied", file.display());
        }
    }
}
