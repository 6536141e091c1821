//! The tour in README.md, from its own text: each command succeeds, in the order and the directory that the page names.

mod common;

use common::{WEFT, needs, root, shown};
use std::fmt::Write;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Title of the section of README.md.
const TOUR: &str = "## A tour\n";

/// Commands of the console blocks of a page.
fn commands(page: &str) -> Vec<&str> {
    let blocks = page.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("console\n"));
    blocks.flat_map(str::lines).filter_map(|line| line.strip_prefix("$ ")).collect()
}

#[test]
fn every_command_of_the_tour_works() {
    for program in ["mpicc.mpich", "mpiexec.mpich", "fusermount3"] {
        needs(program);
    }
    let page = std::fs::read_to_string(root().join("README.md")).expect("README.md");
    let tour = page.split_once(TOUR).expect("a tour").1.split("\n## ").next().expect("its end");
    let commands = commands(tour);
    assert!(commands.len() > 20 && commands.last() == Some(&"weft stop"), "{commands:?}");

    // The result of `make install PREFIX=$HOME/.local`, and a clone.
    let home = tempfile::tempdir().expect("a directory");
    let at = |name: &str| home.path().join(name);
    for (dir, file) in [("bin", "weft"), ("lib", "libweft_preload.so")] {
        std::fs::create_dir_all(at(".local").join(dir)).expect("made");
        symlink(Path::new(WEFT).with_file_name(file), at(".local").join(dir).join(file)).expect("made");
    }
    std::fs::create_dir(at("clone")).expect("made");
    symlink(root().join("examples"), at("clone/examples")).expect("made");

    let mut script =
        String::from("set -eu\ntrap 'umount ~/weft 2>/dev/null || true; weft stop || true' EXIT\n");
    for command in &commands {
        writeln!(script, "echo '$' {}", shell_quoted(command)).expect("memory");
        writeln!(script, "{command}").expect("memory");
    }
    let output = common::isolated("bash")
        .args(["-c", &script])
        .env("HOME", home.path())
        .current_dir(at("clone"))
        .output()
        .expect("bash starts");
    let text = shown(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1000000 /weft/numbers"), "{text}");
    assert!(at("clone/copy-of-numbers").exists() && at("clone/lab.html").exists(), "{text}");
    assert!(at("clone/plan.toml").exists() && at("clone/heat.svg").exists(), "{text}");
}

fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
