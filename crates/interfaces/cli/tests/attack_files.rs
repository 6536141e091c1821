//! Files of servers, mounts and embedded clusters that other users of the host could read, replace or create in
//! advance.

mod common;

use common::servers::Servers;
use common::{Embedded, WEFT, isolated, shown, succeeded, undisturbed};
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

/// Uid of another user of this host.
const OTHER: u32 = 4242;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).permissions().mode()
        & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
}

/// Makes `path` writable for all, then owned by another user. `check` verifies the refusal each time. Restores `path`
/// at the end.
fn for_each_fault(path: &Path, check: impl Fn(&[&str])) {
    let (before, shown) = (mode(path), path.display().to_string());
    for open in [0o777, 0o770, 0o1777] {
        set_mode(path, open);
        check(&[&shown, "other users may write there", "chmod go-w"]);
    }
    set_mode(path, before);
    if common::skip::unless_root("giving files to another user") {
        chown(path, Some(OTHER), None).expect("given away");
        check(&[&shown, "belongs to user 4242", "chown"]);
        chown(path, Some(0), None).expect("restored");
    }
}

#[test]
fn logs_are_closed_to_other_users() {
    let cluster = Embedded::started();
    let logs = cluster.state().join("log");
    let all = || {
        let entries =
            std::fs::read_dir(&logs).expect("the logs").map(|entry| entry.expect("an entry").path());
        let found: Vec<_> = entries.collect();
        assert_eq!(found.len(), 4, "{found:?}");
        found
    };
    for log in all() {
        assert_eq!(mode(&log) & !0o640, 0, "{}: {:o}", log.display(), mode(&log));
        // Permissions that an earlier version used.
        set_mode(&log, 0o644);
    }
    assert_eq!((mode(&cluster.state()), mode(&logs)), (0o700, 0o700));
    cluster.weft(["stop"]);
    cluster.run(["true"]);
    for log in all() {
        assert_eq!(mode(&log), 0o640, "{}", log.display());
    }
    // A server of a cluster file, also after its log was renamed.
    let mut servers = Servers::started(1, "", "", "");
    let log = servers.path("log0");
    assert_eq!(mode(&log) & !0o640, 0, "{:o}", mode(&log));
    std::fs::rename(&log, servers.path("old")).expect("renamed");
    servers.send(0, libc::SIGHUP);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !log.exists() {
        assert!(std::time::Instant::now() < until, "the log is not reopened");
        std::thread::yield_now();
    }
    servers.stop(0);
    assert_eq!(mode(&log) & !0o640, 0, "{:o}", mode(&log));
}

#[test]
fn an_embedded_cluster_is_not_started_in_a_directory_that_others_may_write() {
    let cluster = Embedded::new();
    let state = cluster.state();
    std::fs::create_dir(&state).expect("made");
    let refused = |parts: &[&str]| {
        let output = cluster.running(["true"]).output().expect("weft starts");
        assert!(!output.status.success(), "{}", shown(&output));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    };
    for_each_fault(&state, |parts| {
        refused(parts);
        assert!(!state.join("cluster.toml").exists(), "no files are created there");
    });
    assert_eq!(mode(&state), 0o755);
    cluster.run(["true"]);
    cluster.weft(["stop"]);
    // An existing directory is neither used nor emptied.
    for_each_fault(&state, |parts| {
        refused(parts);
        let fresh = undisturbed()
            .arg("run")
            .arg("--state")
            .arg(&state)
            .args(["--fresh", "--yes", "--", "true"])
            .output();
        assert!(!fresh.expect("weft starts").status.success());
        assert!(state.join("cluster.key").exists());
    });
    // Sockets are in a directory of their own.
    for_each_fault(&state.join("run"), |_| {
        let output = cluster.running(["true"]).output().expect("weft starts");
        assert!(!output.status.success(), "{}", shown(&output));
    });
    cluster.run(["true"]);
}

#[test]
fn a_server_is_not_started_on_directories_that_others_may_write() {
    let mut servers = Servers::started(1, "", "", "");
    servers.stop(0);
    for name in ["metadata", "target0", "run0"] {
        let path = servers.path(name);
        for_each_fault(&path, |parts| {
            let output = servers.command(["serve", "s0"]).output().expect("weft starts");
            assert_eq!(output.status.code(), Some(2), "{name}: {}", shown(&output));
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(parts.iter().all(|part| said.contains(part)), "{name}: {said}");
        });
    }
    servers.start(0);
    assert_eq!(servers.weft(["ls", "/weft"]), "");
}

#[test]
fn a_mount_writes_no_log_where_others_may_write() {
    let cluster = Embedded::started();
    let environment = succeeded(&mut isolated("env"));
    let state = environment.lines().find_map(|line| line.strip_prefix("XDG_STATE_HOME=")).expect("set");
    let logs = Path::new(state).join("weft/mounts");
    std::fs::create_dir_all(&logs).expect("made");
    let place = cluster.local("place");
    std::fs::create_dir(&place).expect("made");
    for_each_fault(&logs, |parts| {
        let mut command = undisturbed();
        command.arg("--cluster").arg(cluster.file()).arg("mount").arg(&place);
        let output = command.output().expect("weft starts");
        assert!(!output.status.success(), "{}", shown(&output));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        assert_eq!(std::fs::read_dir(&logs).expect("there").count(), 0, "no log");
    });
    assert!(WEFT.ends_with("weft"));
}
