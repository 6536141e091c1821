//! Programs that tests start are isolated from the user's settings and from other tests.

mod common;

use common::{Embedded, accounts, isolated, mounts, root, shown, skip, succeeded};
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
        let known = ["WEFT_DARSHAN_LIB", "WEFT_RETRY_FOR"];
        assert!(of_weft.iter().all(|name| known.contains(&name.as_str())), "{of_weft:?}");
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
fn a_test_command_sees_a_base_system() {
    let script = "echo \"$(ulimit -n) $(umask) $LANG ${LC_ALL-none} ${PYTHONPATH-none}\"
                  id -u
                  getent passwd 4711 weft-made || echo unknown
                  id -un \"$(id -u)\" && getent passwd nobody >/dev/null && echo known
                  test ! -e /dev/fuse || stat -c %a /dev/fuse";
    let seen = || {
        common::needs("python3");
        let mut command = Command::new(root().join("scripts/isolated.py"));
        command.args(["--wait", "1", "sh", "-c", script]);
        command.env("LC_ALL", "de_DE").env("PYTHONPATH", "/nowhere");
        let output = command.output().expect("python3 starts");
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.starts_with("1024 0022 C.UTF-8 none none\n"), "{text}");
        text
    };
    seen();
    if !skip::unless_root("accounts of a base system") {
        return;
    }
    accounts::with(&[("weft-made", 4711)], || {
        let here = succeeded(Command::new("getent").args(["passwd", "4711"]));
        assert!(here.starts_with("weft-made:"), "{here}");
        let text = seen();
        let rest: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(rest[..4], ["0", "unknown", "root", "known"], "{text}");
        assert!(rest[4..].iter().all(|mode| *mode == "666"), "{text}");
    });
}

/// Prints what cargo and pytest print: passed, failed, skipped and ignored tests, a test program that crashed, and
/// benchmarks, which have no harness: one passes.
const RESULTS: &str = r#"
echo "     Running tests/a.rs (target/debug/deps/a-0123456789abcdef)"
echo "test early ... ok"; echo "test bad ... FAILED"; echo "test slow ... ignored, takes a minute"
printf 'KIND\ta\tearly\tno root\n' >>"$WEFT_TEST_SKIPPED"
echo "test result: FAILED. 5 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s"
echo "     Running unittests src/b.rs (/t/debug/deps/b_c-0123456789abcdef)"
echo "     Running benches/good.rs (target/debug/deps/good-0123456789abcdef)"; echo "Testing good"; echo "Success"
echo "     Running benches/broken.rs (target/debug/deps/broken-0123456789abcdef)"; echo "Testing broken"
echo "error: test failed, to rerun pass \`-p e --bench broken\`"
echo "   Doc-tests d"
echo "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s"
echo "FAILED python/tests/test_a.py::test_x[1] - AssertionError"
echo "1 failed, 7 passed in 3.45s"
exit 1
"#;

/// Runs a shell script through `scripts/test.py`, in CI or not.
fn counted(script: &str, ci: &str) -> Output {
    common::needs("python3");
    let mut command = Command::new(root().join("scripts/test.py"));
    command.args(["sh", "-c", script]).env("CI", ci).output().expect("python3 starts")
}

#[test]
fn the_last_lines_count_passed_failed_and_skipped_tests() {
    let output = counted(&RESULTS.replace("KIND", "setup"), "");
    let text = shown(&output);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(said.lines().last(), Some("14 passed, 4 failed, 2 skipped"), "{text}");
    for line in [
        "weft: failed: a bad",
        "weft: failed: b_c: the test program ended without a result",
        "weft: failed: broken: the benchmark failed",
        "weft: failed: python/tests/test_a.py::test_x[1]",
        "weft: skipped: a early: no root",
        "weft: skipped: a slow: takes a minute",
    ] {
        assert!(said.lines().any(|said| said == line), "{line} is missing: {text}");
    }
    // A command that fails before its tests is a failure.
    let output = counted("echo 'error: could not compile'; exit 101", "");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.ends_with("\n0 passed, 1 failed, 0 skipped\n") && said.contains("exit code 101"), "{said}");
}

#[test]
fn ci_fails_on_a_test_that_was_skipped_for_its_setup() {
    let one = "printf 'KIND\\ta\\tb\\twhy\\n' >>\"$WEFT_TEST_SKIPPED\"
               echo 'test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out'";
    for (kind, ci, code) in [("setup", "true", 1), ("setup", "", 0), ("machine", "true", 0)] {
        let output = counted(&one.replace("KIND", kind), ci);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(code), "{kind} {ci}: {}", shown(&output));
        assert!(
            said.ends_with("weft: skipped: a b: why\n0 passed, 0 failed, 1 skipped\n") || code == 1,
            "{said}"
        );
        assert_eq!(said.contains("weft: CI: 1 skipped"), code == 1, "{said}");
    }
}

#[test]
fn a_skipped_test_reports_itself() {
    let dir = tempfile::tempdir().expect("a directory");
    let list = dir.path().join("skipped");
    let mut again = Command::new(std::env::current_exe().expect("this program"));
    again.args(["--exact", "skips_itself"]).env("WEFT_TEST_SKIPPED", &list).env("WEFT_TEST_SKIP_ITSELF", "1");
    let output = again.output().expect("it starts");
    assert!(output.status.success(), "{}", shown(&output));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(errors, "weft: skipped: isolated skips_itself: a reason\n", "shown although the test passes");
    assert_eq!(std::fs::read_to_string(&list).expect("a list"), "setup\tisolated\tskips_itself\ta reason\n");
}

#[test]
fn skips_itself() {
    if std::env::var_os("WEFT_TEST_SKIP_ITSELF").is_some() {
        skip::skip("a\n  reason");
    }
}

/// Every skip is counted only if it uses the one form.
#[test]
fn no_test_skips_itself_in_another_form() {
    let mut folders = vec![root().join("crates")];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs")
                && path.components().any(|part| part.as_os_str() == "tests")
            {
                seen += 1;
                for (number, line) in std::fs::read_to_string(&path).expect("text").lines().enumerate() {
                    let prints = ["println!(\"", "print!(\""].iter().find_map(|word| line.split_once(word));
                    let skips =
                        prints.is_some_and(|(_, said)| said.to_ascii_lowercase().starts_with("skipped"));
                    assert!(!skips, "{}:{}: use skip::skip", path.display(), number + 1);
                }
            }
        }
    }
    assert!(seen > 100, "{seen} files");
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
