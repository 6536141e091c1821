//! `weft mount` and `weft umount`.

mod common;

use common::mounts::{self, Mounted};
use common::{Embedded, shown, succeeded, undisturbed};
use std::process::Command;

#[test]
fn a_mount_that_is_impossible_says_what_is_missing() {
    if !common::skip::unless_root("a mount namespace") {
        return;
    }
    let cluster = Embedded::started();
    let dir = cluster.local("on");
    std::fs::create_dir(&dir).expect("made");
    for (prepare, parts) in [
        // A /dev without the device.
        (
            "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3",
            &["/dev/fuse is missing", "modprobe fuse", "--cap-add SYS_ADMIN"][..],
        ),
        ("mount --bind /dev/null /dev/fuse", &["/dev/fuse is not the FUSE device", "--device /dev/fuse"]),
    ] {
        if prepare.contains("--bind") && !mounts::possible() {
            return;
        }
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &format!("{prepare} && exec \"$@\""), "sh", common::WEFT]);
        command.arg("--cluster").arg(cluster.file()).args(["mount", "-f"]).arg(&dir);
        let output = command.env("HOME", cluster.local("")).output().expect("unshare (util-linux)");
        let text = shown(&output);
        assert_eq!(output.status.code(), Some(1), "{prepare}: {text}");
        for part in parts {
            assert!(text.contains(part), "{prepare}: no {part:?} in {text}");
        }
    }
}

/// mount(8) itself, in a mount namespace with the helper in /usr/sbin and a line in /etc/fstab.
#[test]
fn mount_8_finds_the_helper() {
    if !common::skip::unless_root("mount(8)") || !mounts::possible() {
        return;
    }
    let cluster = Embedded::started();
    cluster.run(["sh", "-c", "mkdir /weft/projects && echo hello > /weft/projects/file"]);
    for name in ["target", "sbin"] {
        std::fs::create_dir(cluster.local(name)).expect("made");
    }
    let (at, file) = (cluster.local("").display().to_string(), cluster.file());
    let log = format!("log={}", cluster.local("log").display());
    let options = format!("ro,_netdev,noauto,nofail,x-systemd.automount,{log}");
    let line = format!("{}:/projects {at}target weft {options} 0 0\n", file.display());
    std::fs::write(cluster.local("fstab"), line).expect("written");
    let overlay = "mount -t tmpfs none sbin && mkdir sbin/upper sbin/work && ln -s $0 sbin/upper/mount.weft && \
        mount -t overlay -o lowerdir=/usr/sbin,upperdir=sbin/upper,workdir=sbin/work none /usr/sbin";
    let in_namespace = |script: &str| {
        let mut command = common::isolated("unshare");
        command.args(["--mount", "sh", "-ec", script, common::WEFT]).current_dir(&at);
        command.output().expect("unshare (util-linux)")
    };
    let possible = in_namespace(overlay);
    if !possible.status.success() {
        return common::skip::skip_on_this_machine(format_args!("overlayfs: {}", shown(&possible)));
    }
    let output = in_namespace(&format!(
        "{overlay}; mount --bind fstab /etc/fstab; mount target; cat target/file; mount | grep target; umount target; \
         mount -t weft {}:/ target -o stripe=4,{log} || echo code $?",
        file.display()
    ));
    let said = shown(&output);
    assert!(output.status.success() && said.contains("hello\n") && said.contains("(ro,"), "{said}");
    assert!(said.contains("code 1\n") && said.contains("option stripe=4"), "{said}");
}

/// `mount.weft`, as mount(8) calls it for a line of /etc/fstab.
#[test]
fn the_helper_of_mount_mounts_a_directory_with_the_options_of_fstab() {
    use std::os::unix::process::CommandExt;
    if !common::skip::unless_root("mount(8)") || !mounts::possible() {
        return;
    }
    let cluster = Embedded::started();
    let helper = |args: &[&str]| {
        let mut command = common::isolated(common::WEFT);
        command.arg0("/sbin/mount.weft").args(args).output().expect("weft starts")
    };
    cluster.run(["sh", "-c", "mkdir -p /weft/projects/a && echo hello > /weft/projects/a/file"]);
    let target = cluster.local("on it");
    std::fs::create_dir(&target).expect("made");
    let (file, target, log) = (cluster.file(), target.to_str().expect("text"), cluster.local("log"));
    let source = |dir: &str| format!("{}:{dir}", file.display());
    let log = format!("log={}", log.display());
    let mounted = mounts::Mounted(target.into());
    // Arguments are checked first; a fake mount is none.
    let fake = helper(&[&source("/"), target, "-fnv", "-o", &format!("rw,_netdev,{log}")]);
    assert!(fake.status.success() && !mounted.at("projects").exists(), "{}", shown(&fake));
    let unknown = helper(&[&source("/"), target, "-o", "rw,stripe=4"]);
    let said = shown(&unknown);
    assert!(
        unknown.status.code() == Some(1) && said.contains("stripe=4") && said.contains("threads=N"),
        "{said}"
    );
    let none = helper(&[&source("/missing"), target, "-o", &log]);
    let said = shown(&none);
    assert!(
        none.status.code() == Some(32) && said.contains(":/missing") && said.contains("weft mkdir"),
        "{said}"
    );
    assert!(std::fs::read_dir(target).expect("there").next().is_none(), "nothing stays mounted");
    // The whole cluster, until umount(8).
    let root = helper(&[&source("/"), target, "-o", &format!("rw,nofail,noauto,x-systemd.automount,{log}")]);
    assert!(root.status.success() && root.stderr.is_empty(), "{}", shown(&root));
    assert_eq!(std::fs::read_to_string(mounted.at("projects/a/file")).expect("read"), "hello\n");
    std::fs::write(mounted.at("projects/new"), "new").expect("written");
    let again = helper(&[&source("/"), target, "-o", &log]);
    assert_eq!(again.status.code(), Some(32), "{}", shown(&again));
    succeeded(Command::new("umount").arg(target));
    // One directory, read-only.
    let part = helper(&[&source("/projects"), target, "-o", &format!("ro,noexec,{log}")]);
    assert!(part.status.success(), "{}", shown(&part));
    assert_eq!(std::fs::read_to_string(mounted.at("a/file")).expect("read"), "hello\n");
    assert_eq!(std::fs::read_to_string(mounted.at("new")).expect("read"), "new");
    let refused = std::fs::write(mounted.at("other"), "").expect_err("read-only");
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    let options = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    let line = options.lines().find(|line| line.contains("/on\\040it ")).expect("the mount");
    assert!(
        ["ro", "nosuid", "nodev", "noexec", "allow_other"].iter().all(|flag| line.contains(flag)),
        "{line}"
    );
    succeeded(Command::new("umount").arg(target));
    // The processes end with their mounts: the servers of this cluster are used by none.
    let daemons = || {
        let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
        let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
        lines.filter(|line| String::from_utf8_lossy(line).contains(target)).count()
    };
    common::until(std::time::Duration::from_secs(20), "the processes end", || (daemons() == 0).then_some(()));
}

#[test]
fn a_mount_shows_files_of_programs_and_is_unmounted() {
    if !mounts::possible() {
        return;
    }
    let cluster = Embedded::started();
    cluster.run(["sh", "-c", "echo from a program > /weft/one"]);
    let dir = cluster.local("mount");
    let at = dir.to_str().expect("text");
    assert!(cluster.fails(1, ["mount", at]).contains("mount"), "a directory that is not there");
    std::fs::create_dir(&dir).expect("made");
    let said = cluster.weft(["mount", at]);
    let _mounted = Mounted(dir.clone());
    assert!(said.contains("is mounted"), "{said}");

    assert_eq!(std::fs::read_to_string(dir.join("one")).expect("read"), "from a program\n");
    std::fs::write(dir.join("two"), "from the kernel\n").expect("written");
    assert_eq!(cluster.weft(["cat", "/weft/two"]), "from the kernel\n");
    // A program on the mount can be executed, which the preload library does not support.
    let script = dir.join("program");
    std::fs::copy("/bin/true", &script).expect("copied");
    succeeded(&mut Command::new(&script));
    // The idle limit of the servers does not end a mounted cluster, because the mount is connected.
    let found = Command::new("find").arg(&dir).args(["-type", "f"]).output().expect("find starts");
    assert_eq!(String::from_utf8_lossy(&found.stdout).lines().count(), 3);

    // A plan for a trace of programs on the mount states where its files are.
    let (trace, plan) = (cluster.local("trace.csv"), cluster.local("plan.toml"));
    let rows: String = (0..200).map(|n| format!("read,{at}/two.{},{},4096\n", n % 2, n * 8192)).collect();
    std::fs::write(&trace, format!("operation,file,offset,length\n{rows}")).expect("written");
    let [trace, plan] = [&trace, &plan].map(|path| path.to_str().expect("text"));
    cluster.weft(["plan", trace, "--planner", "psa", "--output", plan]);
    let map = format!("{at}=/weft");
    let told = cluster.fails(2, ["apply", plan]);
    assert!(told.contains(&format!("is mounted there: give --map {map}")), "{told}");
    let told = cluster.weft(["apply", plan, "--map", &map]);
    assert!(told.contains("/two.{n}"), "{told}");
    // A move by the plan needs no options: the plan knows the mount point.
    std::fs::write(dir.join("two.7"), [7; 50_000]).expect("written");
    cluster.weft(["migrate", "-c", "1", "-S", "12K", "/weft/two.7"]);
    let told = cluster.weft(["migrate", "--plan", plan, "/weft/two.7"]);
    assert!(told.contains("moved 1 file"), "{told}");

    cluster.weft(["umount", at]);
    assert_eq!(std::fs::read_dir(&dir).expect("a directory").count(), 0, "nothing is mounted any more");
    assert!(cluster.fails(2, ["umount", at]).contains("no cluster is mounted there"));
}

#[test]
fn only_an_empty_directory_is_mounted_over() {
    if !mounts::possible() {
        return;
    }
    let cluster = Embedded::new();
    let dir = cluster.local("full");
    let at = dir.to_str().expect("text");
    std::fs::create_dir(&dir).expect("made");
    std::fs::write(dir.join("important"), "a\n").expect("written");
    cluster.run(["true"]);
    let said = cluster.fails(1, ["mount", at]);
    assert!(said.contains("the directory is not empty") && said.contains("--nonempty"), "{said}");
    let said = cluster.fails(1, ["mount", "/etc"]);
    assert!(said.contains("weft: /etc: the directory is not empty"), "{said}");
    let said = cluster.fails(1, ["mount", dir.join("important").to_str().expect("text")]);
    assert!(said.contains("Not a directory"), "{said}");
    assert_eq!(std::fs::read_to_string(dir.join("important")).expect("still visible"), "a\n");

    cluster.weft(["mount", "--nonempty", at]);
    let mounted = Mounted(dir.clone());
    assert!(!dir.join("important").exists(), "hidden by the mount");
    let said = cluster.fails(1, ["mount", "--nonempty", at]);
    assert!(said.contains("mounted there already") && said.contains("weft umount"), "{said}");
    cluster.weft(["umount", at]);
    drop(mounted);
    assert!(dir.join("important").exists());
}

#[test]
fn a_mount_without_a_cluster_file_makes_and_starts_the_embedded_cluster() {
    if !mounts::possible() {
        return;
    }
    let home = tempfile::Builder::new().prefix("weft-test-").tempdir().expect("a directory");
    let state = home.path().join("state");
    let weft = |args: &[&str]| {
        let mut command = undisturbed();
        command.env("HOME", home.path()).env("WEFT_STATE", &state).env_remove("XDG_CONFIG_HOME").args(args);
        succeeded(&mut command)
    };
    let dir = home.path().join("mount");
    std::fs::create_dir(&dir).expect("made");
    let at = dir.to_str().expect("text");
    assert!(!state.exists());
    weft(&["mount", at]);
    let mounted = Mounted(dir.clone());
    std::fs::write(dir.join("one"), "by the kernel\n").expect("written");
    assert_eq!(weft(&["cat", "/weft/one"]), "by the kernel\n");

    // Stopped servers are started as well.
    weft(&["umount", at]);
    weft(&["stop"]);
    weft(&["mount", at]);
    assert_eq!(std::fs::read_to_string(dir.join("one")).expect("read"), "by the kernel\n");
    // A mounted cluster is not emptied.
    let mut fresh = undisturbed();
    fresh.args(["run", "--fresh", "--yes", "--state"]).arg(&state).args(["--", "true"]);
    let refused = fresh.output().expect("weft starts");
    assert_eq!(refused.status.code(), Some(1), "{}", shown(&refused));
    weft(&["umount", at]);
    drop(mounted);
    weft(&["stop"]);
}
