//! Files for packages and schedulers.

mod common;

use common::{WEFT, isolated, needs, root, shown};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

#[test]
fn systemd_accepts_the_unit() {
    needs("systemd-analyze");
    let dir = tempfile::tempdir().expect("a directory");
    let unit = std::fs::read_to_string(root().join("contrib/systemd/weft@.service")).expect("the unit");
    // As `make install` changes it.
    let installed = unit.replace("ExecStart=weft", &format!("ExecStart={WEFT}"));
    assert_ne!(installed, unit);
    let file = dir.path().join("weft@node0.service");
    let verify = |text: &str| {
        std::fs::write(&file, text).expect("written");
        Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output().expect("it starts")
    };
    let output = verify(&installed);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", shown(&output));
    // The check finds errors.
    let output = verify(&installed.replace("LimitNOFILE=", "LimitNOFILES="));
    assert!(String::from_utf8_lossy(&output.stderr).contains("LimitNOFILES"), "{}", shown(&output));
}

/// Returns the names of the variables that lines of a shell file set at their beginning.
fn variables(text: &str, before: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(before)?.split_once('='));
    let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let mut names: Vec<_> = lines.map(|(name, _)| name.to_owned()).filter(|name| is_name(name)).collect();
    names.sort();
    names
}

#[test]
fn settings_of_slurm_jobs_are_documented() {
    let read = |name: &str| std::fs::read_to_string(root().join(name)).expect(name);
    let script = read("contrib/slurm/common.sh");
    // Settings stand between the constants and the first function.
    let settings =
        script.split_once("\nSCRATCH=").expect("settings").1.split_once("\njob=").expect("the end").0;
    let settings = variables(&format!("SCRATCH={settings}"), "");
    let mut example = variables(&read("contrib/slurm/slurm.conf.example"), "#");
    example.dedup();
    assert_eq!(settings, example);
    let guide = read("docs/guide/slurm.md");
    assert!(settings.len() > 10);
    for name in settings {
        assert!(guide.contains(&format!("`{name}`")), "{name}");
    }
    // Weft looks for jobs where the prolog creates them.
    let jobs = variables_value(&script, "JOBS");
    assert!(read("crates/fs/config/src/scheduled.rs").contains(&format!("\"{jobs}\"")), "{jobs}");
}

fn variables_value<'a>(script: &'a str, name: &str) -> &'a str {
    let line = script.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    line.expect("a constant")
}

#[test]
fn bash_and_slurm_can_run_the_scripts() {
    for name in ["prolog", "epilog", "common.sh"] {
        let path = root().join("contrib/slurm").join(name);
        let checked = Command::new("bash").arg("-n").arg(&path).output().expect("it starts");
        assert!(checked.status.success(), "{}", shown(&checked));
        let mode = path.metadata().expect("a file").permissions().mode();
        assert_eq!(mode & 0o111 != 0, name != "common.sh", "{name}: {mode:o}");
    }
}

#[test]
fn keys_of_jobs_are_equal_on_all_nodes_and_private() {
    let dir = tempfile::tempdir().expect("a directory");
    let derive = |file: &str, from: &str, name: &str| -> Output {
        let mut weft = isolated(WEFT);
        weft.current_dir(dir.path()).args(["key", "derive", file, "--from", from, "--name", name]);
        weft.output().expect("it starts")
    };
    let read = |file: &str| std::fs::read_to_string(dir.path().join(file)).expect("a key");
    let made =
        isolated(WEFT).current_dir(dir.path()).args(["key", "make", "site"]).output().expect("it starts");
    assert!(made.status.success(), "{}", shown(&made));
    for (file, name) in [("n1", "job 1"), ("n2", "job 1"), ("other", "job 2")] {
        let derived = derive(file, "site", name);
        assert!(derived.status.success(), "{}", shown(&derived));
        let mode = dir.path().join(file).metadata().expect("a key").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    assert_eq!(read("n1"), read("n2"));
    assert_ne!(read("n1"), read("other"));
    let refused = derive("n1", "site", "job 1");
    assert!(
        !refused.status.success() && shown(&refused).contains("never overwritten"),
        "{}",
        shown(&refused)
    );
    std::fs::set_permissions(dir.path().join("site"), PermissionsExt::from_mode(0o644)).expect("set");
    let refused = derive("n3", "site", "job 1");
    assert!(!refused.status.success() && !dir.path().join("n3").exists(), "{}", shown(&refused));
}
