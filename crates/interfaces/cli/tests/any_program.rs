//! Unmodified programs under `weft run`: compilers with their own allocator, copies that walk from the root, shell
//! limits and shell locks.

mod common;

use common::{Embedded, needs, shown};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Runs a script by `sh` on the cluster. A script that runs longer than two minutes is killed and fails the test.
#[track_caller]
fn script(cluster: &Embedded, text: &str) -> Output {
    let mut command = cluster.running(["sh", "-euc", text]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("weft starts");
    let end = Instant::now() + Duration::from_secs(120);
    while child.try_wait().expect("our own child").is_none() {
        if Instant::now() > end {
            child.kill().expect("our own child");
            panic!(
                "{text}: still running after two minutes: {}",
                shown(&child.wait_with_output().expect("its output"))
            );
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().expect("its output")
}

/// Runs a script that must succeed and returns its standard output.
#[track_caller]
fn succeeds(cluster: &Embedded, text: &str) -> String {
    let output = script(cluster, text);
    assert!(output.status.success(), "{text}: {}", shown(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the path of the compiler itself, not of the `rustup` launcher.
fn rustc() -> PathBuf {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let root = common::succeeded(Command::new(rustc).args(["--print", "sysroot"]));
    PathBuf::from(root.trim()).join("bin/rustc")
}

#[test]
fn the_rust_compiler_has_its_own_allocator() {
    let cluster = Embedded::started();
    let said = succeeds(&cluster, &format!("{} -vV", rustc().display()));
    assert!(said.starts_with("rustc ") && said.contains("host: "), "{said}");
}

#[test]
fn cargo_builds_and_runs_a_crate_on_the_mount() {
    let cluster = Embedded::started();
    let cargo = env!("CARGO");
    let said = succeeds(
        &cluster,
        &format!(
            "unset CARGO_TARGET_DIR RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_TARGET_DIR
             mkdir -p /weft/tiny/src && cd /weft/tiny
             printf '[package]\\nname = \"tiny\"\\nversion = \"0.1.0\"\\nedition = \"2021\"\\n[workspace]\\n' >Cargo.toml
             echo 'fn main() {{ println!(\"one\") }} #[test] fn passes() {{}}' >src/main.rs
             '{cargo}' build --offline --quiet && target/debug/tiny
             echo 'fn main() {{ println!(\"two\") }} #[test] fn passes() {{}}' >src/main.rs
             '{cargo}' run --offline --quiet
             '{cargo}' test --offline --quiet | grep -c '1 passed'",
        ),
    );
    assert_eq!(said, "one\ntwo\n1\n");
}

#[test]
fn rsync_copies_in_out_and_within() {
    needs("rsync");
    let cluster = Embedded::started();
    let (source, back) = (cluster.local("source"), cluster.local("back"));
    std::fs::create_dir_all(source.join("a/b")).expect("room");
    let bytes: Vec<u8> = (0..3_000_001u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(source.join("large"), &bytes).expect("room");
    std::fs::write(source.join("a/b/small"), "small").expect("room");
    std::os::unix::fs::symlink("small", source.join("a/b/link")).expect("room");
    let (source, back) = (source.display(), back.display());
    succeeds(
        &cluster,
        &format!(
            "rsync -a '{source}/' /weft/r/
             cmp '{source}/large' /weft/r/large && diff -r '{source}' /weft/r
             test \"$(readlink /weft/r/a/b/link)\" = small
             echo changed >/weft/r/a/b/small && rsync -a --checksum '{source}/' /weft/r/ && diff -r '{source}' /weft/r
             rsync -a /weft/r/ '{back}/' && diff -r '{source}' '{back}'
             echo gone >/weft/r/more && rsync -a /weft/r/ /weft/s/ && rm /weft/r/more
             rsync -a --delete /weft/r/ /weft/s/ && test ! -e /weft/s/more && diff -r /weft/r /weft/s
             test -z \"$(rsync -ai /weft/r/ /weft/s/)\"",
        ),
    );
}

#[test]
fn the_limit_of_the_shell_on_file_sizes_holds() {
    let cluster = Embedded::started();
    // SIGXFSZ ends the copy after the last write within the limit. A block of `ulimit -f` has 512 bytes in dash.
    let said = succeeds(
        &cluster,
        "( ulimit -f 8; exec cat /dev/zero >/weft/f ) || echo $?
         stat -c %s /weft/f; ( ulimit -f 8; truncate -s 4096 /weft/g && ! truncate -s 4097 /weft/g ) 2>/dev/null || echo $?
         stat -c %s /weft/g",
    );
    let said: Vec<&str> = said.lines().collect();
    assert_eq!((said[0], said[1], said.last()), ("153", "4096", Some(&"4096")), "{said:?}");
}

/// A program on the mount runs from a copy. The file can be written meanwhile, and the program continues unchanged.
#[test]
fn a_running_program_can_be_replaced_and_goes_on() {
    let cluster = Embedded::started();
    let said = succeeds(
        &cluster,
        "cp /bin/cat /weft/program && mkfifo local && exec 8<>local
         /weft/program local >out & pid=$!
         echo one >&8; until grep -q one out; do :; done
         cp /bin/echo /weft/program && /weft/program replaced
         echo two >&8; until grep -q two out; do :; done
         kill $pid; cat out"
            .replace("local", &cluster.local("pipe").display().to_string())
            .replace("out", &cluster.local("out").display().to_string())
            .as_str(),
    );
    assert_eq!(said, "replaced\none\ntwo\n");
}

/// Each iteration reads a number and writes it back increased by one. Without mutual exclusion, increments are lost.
#[test]
fn locks_that_shells_hold_exclude() {
    needs("flock");
    let cluster = Embedded::started();
    let said = succeeds(
        &cluster,
        "cd /weft; echo 0 >count
         turn() { read -r n <count; echo $((n + 1)) >count; }
         for worker in 1 2 3 4; do
             ( for round in 1 2 3 4 5; do
                   ( flock -x 9; turn ) 9>lock
                   { flock 8; turn; } 8>lock
                   flock lock sh -c 'read -r n <count; echo $((n + 1)) >count'
               done ) &
         done
         wait; cat count",
    );
    assert_eq!(said, "60\n");
}

#[test]
fn a_lock_of_a_shell_lasts_until_its_last_descriptor_is_closed() {
    needs("flock");
    let cluster = Embedded::started();
    let said = succeeds(
        &cluster,
        "cd /weft
         try() { if flock -n lock true; then echo free; else echo held; fi; }
         until_free() { for i in $(seq 200); do flock -n lock true && break; sleep 0.05; done; try; }
         exec 9>lock; flock 9; try
         flock -u 9; try
         flock -s 9; try; flock -s -n lock echo shared
         flock -x 9; try; flock -x 9; try
         mkfifo pipe 2>/dev/null || true
         sh -c 'read -r line' 7<>PIPE <&7 & child=$!
         exec 9>&-; try
         echo end >PIPE; wait $child; until_free
         ( flock -x 9; try ) 9>lock; until_free
         flock -F lock sh -c 'if flock -n lock true; then echo free; else echo held; fi'; until_free"
            .replace("mkfifo pipe 2>/dev/null || true", "mkfifo PIPE")
            .replace("PIPE", &cluster.local("pipe").display().to_string())
            .as_str(),
    );
    let expected = "held free held shared held held held free held free held free";
    assert_eq!(said.split_whitespace().collect::<Vec<_>>().join(" "), expected);
}

/// A lock that is held for a shell survives a restart of the servers.
#[test]
fn a_lock_of_a_shell_is_kept_over_a_restart_of_the_servers() {
    needs("flock");
    let cluster = Embedded::started();
    let file = cluster.file().display().to_string();
    let said = succeeds(
        &cluster,
        &format!(
            "exec 9>/weft/lock; flock 9
             env -u LD_PRELOAD {weft} --cluster {file} stop --kill >/dev/null
             env -u LD_PRELOAD {weft} run --state {state} -- true
             if flock -n /weft/lock true; then echo free; else echo held; fi
             exec 9>&-
             for i in $(seq 200); do flock -n /weft/lock true && break; sleep 0.05; done
             if flock -n /weft/lock true; then echo free; else echo held; fi",
            weft = common::WEFT,
            state = cluster.state().display(),
        ),
    );
    assert_eq!(said, "held\nfree\n");
}
