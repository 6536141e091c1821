//! Programs that tests start are isolated from the user's settings and from other tests.

mod common;

use common::mounts;
use common::{Embedded, isolated, root, shown, succeeded};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

/// Returns the environment of a program that a test starts.
fn environment() -> BTreeMap<String, String> {
    let text = succeeded(&mut isolated("env"));
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

#[test]
fn each_test_has_a_home_and_settings_of_its_own() {
    let one = || {
        let first = environment();
        let home = first["HOME"].clone();
        std::fs::write(Path::new(&home).join("left"), "by this test").expect("written");
        assert_eq!(environment(), first, "all programs of one test share a home");
        for name in
            ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"]
        {
            assert!(first[name].starts_with(&home), "{name}={}", first[name]);
        }
        let of_weft: Vec<_> = first.keys().filter(|name| name.starts_with("WEFT_")).collect();
        assert!(of_weft.iter().all(|name| *name == "WEFT_DARSHAN_LIB"), "{of_weft:?}");
        assert!(!first.contains_key("LD_PRELOAD"));
        home
    };
    // Each test runs in a thread of its own.
    let [here, there] = [one, one].map(|test| std::thread::spawn(test).join().expect("the test passes"));
    assert_ne!(here, there);
    for home in [here, there] {
        assert!(!Path::new(&home).exists(), "{home} was not removed");
    }
}

#[test]
fn no_test_starts_weft_with_the_environment_of_the_user() {
    let mut seen = 0;
    for dir in [
        "crates/interfaces/cli/tests",
        "crates/interfaces/preload/tests",
        "crates/interfaces/preload/tests/support",
    ] {
        for entry in std::fs::read_dir(root().join(dir)).expect("the tests") {
            let path = entry.expect("an entry").path();
            if path.extension().is_none_or(|end| end != "rs") || path.ends_with(file!()) {
                continue;
            }
            seen += 1;
            let text = std::fs::read_to_string(&path).expect("text");
            let lines: Vec<&str> = text.lines().collect();
            for (line, text) in lines.iter().enumerate() {
                let started =
                    ["Command::new(WEFT)", "Command::new(weft())"].iter().any(|word| text.contains(word));
                let is_isolated = lines[line..].iter().take(2).any(|line| line.contains("isolate("));
                assert!(!started || is_isolated, "{}:{}: use isolate", path.display(), line + 1);
            }
        }
    }
    assert!(seen > 25, "{seen} files");
}

/// Runs a shell script through `scripts/isolated.py` with some arguments.
fn checked(script: &str, words: &[&Path]) -> Output {
    common::needs("python3");
    let mut command = Command::new(root().join("scripts/isolated.py"));
    command.args(["--wait", "1", "sh", "-c", script, "sh"]).args(words);
    command.env("WEFT_CLUSTER", "/nowhere").env("WEFT_TEST_SEED", "7").env("XDG_STATE_HOME", "/nowhere");
    command.output().expect("python3 starts")
}

#[test]
fn a_test_command_starts_with_an_empty_home_and_without_variables_of_weft() {
    let script = "test -z \"$(ls -A \"$HOME\" \"$TMPDIR\" | grep -v :)\" || exit 3
                  echo \"${WEFT_CLUSTER-none} ${XDG_STATE_HOME-none} $WEFT_TEST_SEED $HOME\"";
    let output = checked(script, &[]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    assert!(said.starts_with("none none 7 /tmp/weft-tests-"), "{}", shown(&output));
    assert!(shown(&output).contains("memory or file was left behind"), "{}", shown(&output));
    let home = said.trim_end().rsplit(' ').next().expect("a path");
    assert!(!Path::new(home).exists(), "{home} was not removed");
    assert_eq!(checked("exit 7", &[]).status.code(), Some(7), "the exit code of the command");
    assert_eq!(checked("kill -TERM $$", &[]).status.code(), Some(128 + libc::SIGTERM));
}

#[test]
fn leftovers_of_a_test_command_are_named_and_removed() {
    let room = tempfile::tempdir().expect("a directory");
    let pid = room.path().join("pid");
    // An orphan without the environment of the test.
    let script = "env -i setsid sleep 1000 > /dev/null 2>&1 & echo $! > \"$1\"
                  touch \"$HOME/one\" \"$TMPDIR/two\" \"/dev/shm/weft-test-$$\"; echo $$";
    let output = checked(script, &[&pid]);
    let text = shown(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let shared = format!("/dev/shm/weft-test-{}", String::from_utf8_lossy(&output.stdout).trim());
    std::fs::remove_file(&shared).expect("left");
    for part in [": sleep 1000", "home/one", "tmp/two", &format!("shared memory: {shared}")] {
        assert!(text.contains(part), "{part} is not named: {text}");
    }
    let pid = std::fs::read_to_string(pid).expect("written");
    assert!(!Path::new(&format!("/proc/{}", pid.trim())).exists(), "it still runs");
    // A failing command reports leftovers as well, and its exit code is kept.
    let output = checked("touch \"$HOME/one\"; exit 9", &[]);
    assert_eq!(output.status.code(), Some(9), "{}", shown(&output));
    assert!(shown(&output).contains("home/one"), "{}", shown(&output));
}

#[test]
fn a_mount_and_a_cluster_that_a_test_command_leaves_are_named_and_ended() {
    if !mounts::possible() {
        return;
    }
    drop(Embedded::new()); // builds the preload library
    let weft = Path::new(common::WEFT);
    let script =
        "\"$1\" run -- true && mkdir \"$TMPDIR/m\" && \"$1\" mount \"$TMPDIR/m\" && echo \"$TMPDIR/m\"";
    let output = checked(script, &[weft]);
    let text = shown(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let said = String::from_utf8_lossy(&output.stdout);
    let mount = said.lines().last().expect("a path").to_owned();
    for part in [&format!("mount: {mount}"), " mount -f", "weft serve", "home/.local"] {
        assert!(text.contains(part), "{part} is not named: {text}");
    }
    let mounted = std::fs::read_to_string("/proc/self/mounts").expect("Linux");
    assert!(!mounted.contains(&mount) && !Path::new(&mount).exists(), "{mounted}");
}
