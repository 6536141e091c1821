//! Shells, coreutils and Python as they are installed, with and without the library: what they print must be equal.

mod support;
use std::process::Command;
use support::{World, library, run, same_output, text};

#[test]
fn coreutils_in_dash() {
    same_output(&World::new(), "dash", "tools.sh");
}

#[test]
fn coreutils_in_bash() {
    same_output(&World::new(), "bash", "tools.sh");
}

#[test]
fn redirections_in_dash() {
    same_output(&World::new(), "dash", "redirect.sh");
}

#[test]
fn redirections_in_bash() {
    same_output(&World::new(), "bash", "redirect.sh");
}

#[test]
fn python() {
    same_output(&World::new(), "python3", "program.py");
}

/// A program that never names the mount must not notice the library: same output, same descriptors, same threads,
/// same working directory, and not one connection.
#[test]
fn a_program_that_does_not_touch_the_mount_sees_no_change() {
    let script = "ls /proc/self/fd | wc -l; ls /proc/self/task | wc -l; pwd; cat /proc/self/net/unix | wc -l >/dev/null; \
                  ls /weft 2>/dev/null || echo none";
    let plain = run(Command::new("sh").args(["-c", script]));
    // Without any configuration: a library that looked for a cluster would complain.
    let served =
        run(Command::new("sh").args(["-c", script]).env("LD_PRELOAD", library()).env("WEFT_MOUNT", "/other"));
    assert_eq!(text(&plain), text(&served));
    assert!(plain.stdout.ends_with(b"none\n"), "{}", text(&plain));
}

#[test]
fn a_mount_elsewhere_is_served_there_and_only_there() {
    let script = "echo text > /some/where/f && cat /some/where/f && test ! -e /weft && test ! -e /some && test ! -e /some/wherever";
    let served = run(World::new()
        .serve(&mut Command::new("sh"))
        .args(["-c", script])
        .env("WEFT_MOUNT", "/some/where/"));
    assert_eq!(text(&served), "exit status: 0\n--- stdout\ntext\n\n--- stderr\n");
}
