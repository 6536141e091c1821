//! Random operations of an unmodified program on plain and compressed files, under `weft run` and on a mount.

mod common;

use common::mounts::{self, Mounted};
use common::{Embedded, Random, root, shown, succeeded};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Settings of the files: plain, and each codec with chunks shorter than, equal to and longer than stripes.
const SETTINGS: [&str; 4] = ["off", "lz4/16KiB", "zstd/64KiB", "auto/1024KiB"];
const OPERATIONS: u64 = 1200;
const LEN_MAX: u64 = 700_000;

fn program(cluster: &Embedded) -> PathBuf {
    let program = cluster.local("random_io");
    let source = root().join("crates/interfaces/cli/tests/programs/random_io.c");
    succeeded(Command::new("cc").args(["-O1", "-Wall", "-Werror", "-o"]).arg(&program).arg(source));
    program
}

/// Makes a directory for each setting, and runs the program there by `command`.
fn with_each_setting(cluster: &Embedded, below: &Path, command: impl Fn(&[String]) -> Command) {
    let program = program(cluster);
    let (mut random, seed) = Random::seeded();
    for (number, setting) in SETTINGS.iter().enumerate() {
        let dir = format!("/weft/{number}");
        cluster.weft(["mkdir", &dir]);
        cluster.weft(["setstripe", "-S", "64K", "--compress", setting, &dir]);
        let file = below.join(format!("{number}/file")).display().to_string();
        let words = [program.display().to_string(), file].into_iter();
        let numbers = [random.next(), OPERATIONS, LEN_MAX].map(|number| number.to_string());
        let words: Vec<_> = words.chain(numbers).collect();
        let output = command(&words).output().expect("it starts");
        assert!(output.status.success(), "seed {seed}, {setting}, {words:?}: {}", shown(&output));
        let shown = cluster.weft(["getstripe", &format!("{dir}/file")]);
        let policy = setting.split('/').next().expect("a word");
        assert!(shown.contains(&format!("compress: {policy}")), "{shown}");
    }
    assert!(cluster.weft(["fsck", "--scrub"]).contains("0 problems"));
}

#[test]
fn a_program_reads_what_it_wrote_under_weft_run() {
    let cluster = Embedded::started();
    with_each_setting(&cluster, Path::new("/weft"), |words| cluster.running(words));
}

#[test]
fn a_program_reads_what_it_wrote_on_a_mount() {
    if !mounts::possible() {
        return;
    }
    let cluster = Embedded::started();
    let mount = Mounted::new(&cluster, "mount");
    with_each_setting(&cluster, &mount.0, |words| {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    });
}
