//! Nothing below the seam reads a clock, a file, a socket or an unseeded random number: the build refuses it, because
//! every crate that runs in both worlds denies the calls that `clippy.toml` lists. Calls that clippy does not see there,
//! those of libc, are looked for here.

use std::path::{Path, PathBuf};

/// The crates that run in the simulated world.
const CRATES: [&str; 8] = ["wire", "client", "server", "store", "models", "workload", "twin", "env"];
const DENIED: &str = "deny(clippy::disallowed_methods, clippy::disallowed_types)";
/// What clippy.toml must list, or the denial means nothing.
const LISTED: [&str; 7] = [
    "std::time::Instant::now",
    "std::time::SystemTime::now",
    "std::thread::spawn",
    "std::thread::sleep",
    "std::fs::File",
    "std::net::TcpStream",
    "std::hash::RandomState",
];
/// Other ways to the same.
const FORBIDDEN: [&str; 7] =
    ["clock_gettime", "gettimeofday", "libc::time(", "getrandom", "nanosleep", "libc::open", "libc::socket"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        // The one place where they belong.
        if path.is_dir() && !path.ends_with("env/src/real") {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_crate_of_both_worlds_denies_what_the_lint_settings_list() {
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
fn nobody_goes_around_the_seam_by_libc_or_allows_himself_to() {
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
            assert_eq!(
                allows,
                usize::from(is_seam),
                "{} allows itself what the others are denied",
                file.display()
            );
        }
    }
}
