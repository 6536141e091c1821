//! Targets that join, are drained, get another disk, and leave, while programs use the files.

mod common;

use common::mounts::{self, Mounted};
use common::servers::Servers;
use common::shown;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Limit for conditions that other processes bring about.
const DEADLINE: Duration = Duration::from_secs(120);

/// Waits until a file exists.
#[track_caller]
fn appears(path: &Path) {
    let began = Instant::now();
    while !path.exists() {
        assert!(began.elapsed() < DEADLINE, "{} does not appear", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the bytes of a file, which differ for each number.
fn content(number: usize, len: usize) -> Vec<u8> {
    let mut random = common::Random::new(number as u64);
    (0..len / 8 + 1).flat_map(|_| random.next().to_le_bytes()).take(len).collect()
}

/// Writes `count` files of two stripes, `/weft/old0` and so on, with local copies of the same names.
fn with_files(servers: &Servers, count: usize, len: usize) {
    for number in 0..count {
        let (local, path) = (servers.path(&format!("old{number}")), format!("/weft/old{number}"));
        fs::write(&local, content(number, len + number * 4099)).expect("written");
        servers.weft(["setstripe", "-S", "64K", "-c", "2", &path]);
        servers.weft(["cp", local.to_str().expect("text"), &path]);
    }
}

/// Checks that the files equal their local copies.
#[track_caller]
fn hold(servers: &Servers, count: usize) {
    for number in 0..count {
        let output = servers.command(["cat", &format!("/weft/old{number}")]).output().expect("weft starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let wanted = fs::read(servers.path(&format!("old{number}"))).expect("the local copy");
        assert!(output.stdout == wanted, "old{number}: {} wrong bytes", output.stdout.len());
    }
}

/// Counts the datafiles in the directory of a target.
fn datafiles(servers: &Servers, target: usize) -> usize {
    let objects = fs::read_dir(servers.path(&format!("target{target}/objects"))).expect("the datafiles");
    objects.flatten().map(|dir| fs::read_dir(dir.path()).map_or(0, Iterator::count)).sum()
}

/// Returns the recorded state of a target.
fn state(servers: &Servers, target: usize) -> String {
    let listed = servers.weft(["target", "list"]);
    let row = listed.lines().find(|line| line.trim_start().starts_with(&format!("{target} ")));
    row.and_then(|row| row.split_whitespace().nth(1)).unwrap_or("unknown").to_owned()
}

#[test]
fn a_target_is_drained_while_a_program_writes_and_goes_on_after_a_kill() {
    const FILES: usize = 8;
    let mut servers = Servers::started(3, "", "", "");
    with_files(&servers, FILES, 1_000_000);
    // Changes old files in place, appends to them, creates new files, and compares all files with local copies.
    let program = "
        i=0
        while [ ! -e stop ]; do
            i=$((i + 1)); n=$((i % 8))
            tail -c +$((i * 977 % 900000 + 1)) old0 | head -c 5003 > piece
            for file in /weft/old$n old$n; do
                dd if=piece of=$file bs=4099 seek=$((i * 7 % 200)) conv=notrunc 2> dd || { cat dd; exit 1; }
                cat piece >> $file || exit 1
            done
            cmp /weft/old$n old$n || exit 1
            cat piece > /weft/new$n || exit 1
            cmp piece /weft/new$n || exit 1
            [ $((i % 3)) != 0 ] || rm /weft/new$n || exit 1
            echo $i > rounds
        done";
    let mut command = servers.command(["run", "--", "sh", "-c", program]);
    command.current_dir(servers.path("")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let user = command.spawn().expect("weft starts");
    appears(&servers.path("rounds"));

    let refused = servers.fails(1, ["target", "remove", "1"]);
    assert!(refused.contains("in use") && refused.contains("weft target drain 1"), "{refused}");
    let mut drain = servers.command(["target", "drain", "-v", "--rate", "1M", "1"]);
    let mut drain = drain.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("weft starts");
    let mut line = String::new();
    BufReader::new(drain.stdout.take().expect("piped")).read_line(&mut line).expect("read");
    assert!(line.contains("moved"), "{line}");
    drain.kill().expect("SIGKILL");
    assert!(!drain.wait().expect("waited for").success(), "the drain finished before the kill");
    assert_eq!(state(&servers, 1), "draining");
    let refused = servers.fails(1, ["target", "remove", "1"]);
    assert!(refused.contains("holds data") && refused.contains("weft target drain 1"), "{refused}");
    let refused = servers.fails(1, ["target", "replace", "1"]);
    assert!(refused.contains("holds data"), "{refused}");

    let done = servers.weft(["target", "drain", "1"]);
    assert!(done.contains("target 1 holds no data"), "{done}");
    fs::remove_file(servers.path("rounds")).expect("removed");
    appears(&servers.path("rounds"));
    fs::write(servers.path("stop"), "").expect("written");
    let user = user.wait_with_output().expect("waited for");
    assert!(user.status.success(), "{}", shown(&user));

    hold(&servers, FILES);
    assert_eq!(datafiles(&servers, 1), 0);
    servers.weft(["target", "remove", "1"]);
    assert_eq!(state(&servers, 1), "retired");
    let refused = servers.fails(1, ["target", "add", "1"]);
    assert!(refused.contains("number of its own"), "{refused}");
    fs::write(servers.file(), servers.text_without(1)).expect("written");
    servers.stop(1);
    for id in [2, 0] {
        servers.stop(id);
    }
    for id in [0, 2] {
        servers.start(id);
    }
    hold(&servers, FILES);
    assert!(servers.weft(["fsck"]).contains(" 0 problems"));
}

#[test]
fn a_drained_target_gets_a_blank_disk_and_its_share_of_the_data() {
    const FILES: usize = 10;
    let mut servers = Servers::started(3, "", "", "");
    with_files(&servers, FILES, 400_000);
    let refused = servers.fails(1, ["target", "replace", "1"]);
    assert!(refused.contains("in use") && refused.contains("--data-lost"), "{refused}");
    servers.weft(["target", "drain", "-q", "1"]);
    servers.weft(["target", "replace", "1"]);
    assert_eq!(state(&servers, 1), "joining");
    servers.stop(1);
    fs::rename(servers.path("target1"), servers.path("former")).expect("removed");
    fs::create_dir(servers.path("target1")).expect("a blank disk");
    servers.start(1);
    assert_eq!(state(&servers, 1), "active");
    hold(&servers, FILES);
    let moved = servers.weft(["rebalance", "--rate", "50M"]);
    assert!(moved.contains("moved ") && !moved.contains("moved 0 files"), "{moved}");
    assert!(datafiles(&servers, 1) > 0);
    hold(&servers, FILES);
    assert!(servers.weft(["fsck"]).contains(" 0 problems"));

    // The replaced disk is not accepted in place of the new one.
    servers.stop(1);
    fs::rename(servers.path("target1"), servers.path("latter")).expect("removed");
    fs::rename(servers.path("former"), servers.path("target1")).expect("the former disk");
    servers.start(1);
    assert!(servers.log(1).contains("target 1 is refused"), "{}", servers.log(1));
    servers.stop(1);
    fs::remove_dir_all(servers.path("target1")).expect("removed");
    fs::rename(servers.path("latter"), servers.path("target1")).expect("the disk of now");
    servers.start(1);
    hold(&servers, FILES);
}

#[test]
fn bytes_of_a_lost_disk_are_an_error_and_never_zeros() {
    const FILES: usize = 3;
    let mut servers = Servers::started(2, "", "", "");
    with_files(&servers, FILES, 400_000);
    // Written by programs that close their files and do not sync them.
    servers.weft(["setstripe", "-S", "64K", "-c", "2", "/weft/plain"]);
    servers.weft(["setstripe", "-c", "1", "-i", "1", "/weft/small"]);
    servers.weft(["setstripe", "-c", "1", "-i", "1", "/weft/empty"]);
    let program = "tr '\\0' x < /dev/zero | head -c 300000 > /weft/plain; echo y > /weft/small";
    servers.weft(["run", "--", "sh", "-c", program]);
    servers.weft(["target", "replace", "1", "--data-lost"]);
    servers.stop(1);
    fs::rename(servers.path("target1"), servers.path("dead")).expect("removed");
    fs::create_dir(servers.path("target1")).expect("a blank disk");
    servers.start(1);
    assert_eq!(state(&servers, 1), "active");

    let lost = ["/weft/old0", "/weft/old1", "/weft/old2", "/weft/plain", "/weft/small"];
    let all_lost = |servers: &Servers| {
        for path in lost {
            let read = servers.fails(1, ["cat", path]);
            assert!(read.contains("lost") && read.contains("target 1"), "{read}");
        }
    };
    all_lost(&servers);
    let failing = |servers: &Servers, program: &str| {
        let output = servers.command(["run", "--", "sh", "-c", program]).output().expect("weft starts");
        assert!(!output.status.success(), "{program}: {}", shown(&output));
        assert!(shown(&output).contains("Input/output error"), "{program}: {}", shown(&output));
    };
    // Within the old bytes, over both targets; far beyond the end, which leaves a hole; and directly at the end.
    for path in &lost[..4] {
        failing(&servers, &format!("dd if=/dev/zero of={path} conv=notrunc,fsync bs=128K count=1"));
        failing(&servers, &format!("dd if=/dev/zero of={path} conv=notrunc,fsync bs=128K count=1 seek=20"));
        failing(
            &servers,
            &format!("dd if=/dev/zero of={path} conv=notrunc,fsync oflag=append bs=128K count=1"),
        );
    }
    failing(&servers, "dd if=/dev/zero of=/weft/small conv=notrunc,fsync bs=1 count=1");
    failing(&servers, "dd if=/dev/zero of=/weft/small conv=notrunc,fsync bs=1000 count=1 seek=3");
    all_lost(&servers);
    for id in [1, 0] {
        servers.stop(id);
    }
    for id in [0, 1] {
        servers.start(id);
    }
    all_lost(&servers);
    let output = servers.command(["fsck"]).output().expect("weft starts");
    assert_eq!(output.status.code(), Some(4), "{}", shown(&output));
    assert!(lost.iter().all(|path| shown(&output).contains(path)), "{}", shown(&output));

    // Files without data on the lost target are unchanged, and new files work.
    let program = "cat /weft/empty && echo z > /weft/empty && cat /weft/empty";
    assert_eq!(servers.weft(["run", "--", "sh", "-c", program]), "z\n");
    let left = servers.fails(1, ["target", "drain", "1"]);
    assert!(left.contains("still have data on target 1"), "{left}");
    let refused = servers.fails(1, ["target", "remove", "1"]);
    assert!(refused.contains("holds data"), "{refused}");
    servers.weft(["target", "activate", "1"]);
    servers.weft([&["rm"][..], &lost[..]].concat());
    with_files(&servers, FILES, 400_000);
    hold(&servers, FILES);
    assert!(servers.weft(["fsck"]).contains(" 0 problems"));
}

#[test]
fn bytes_of_a_lost_disk_are_an_error_after_a_restart_and_a_move() {
    const FILES: usize = 3;
    let mut servers = Servers::of_classes(&["hdd", "hdd", "ssd", "ssd"], "", "", "", "");
    with_files(&servers, FILES, 400_000);
    // The metadata server ends with an open file, so it expects unknown writers of all files afterwards.
    let program = "exec 3>>/weft/held; echo open; read end <&0";
    let mut holder = servers.command(["run", "--", "sh", "-c", program]);
    let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("weft starts");
    let mut line = String::new();
    BufReader::new(holder.stdout.take().expect("a pipe")).read_line(&mut line).expect("it runs");
    assert_eq!(line, "open\n");
    servers.stop(0);
    servers.start(0);
    let paths: Vec<String> = (0..FILES).map(|number| format!("/weft/old{number}")).collect();
    for path in &paths {
        servers.weft(["migrate", "-S", "64K", "-c", "2", "--class", "ssd", path]);
    }
    hold(&servers, FILES);
    servers.weft(["target", "replace", "2", "--data-lost"]);
    servers.stop(2);
    fs::rename(servers.path("target2"), servers.path("dead")).expect("removed");
    fs::create_dir(servers.path("target2")).expect("a blank disk");
    servers.start(2);
    for path in &paths {
        let read = servers.fails(1, ["cat", path]);
        assert!(read.contains("lost") && read.contains("target 2"), "{read}");
    }
    let listed = servers.command(["ls", "-l", "/weft"]).output().expect("weft starts");
    assert!(paths.iter().all(|path| shown(&listed).contains(&path[6..])), "{}", shown(&listed));
    let output = servers.command(["fsck"]).output().expect("weft starts");
    assert_eq!(output.status.code(), Some(4), "{}", shown(&output));
    assert!(paths.iter().all(|path| shown(&output).contains(path)), "{}", shown(&output));
    drop(holder.stdin.take());
    holder.wait().expect("it ends");
}

#[test]
fn a_target_that_was_given_up_is_not_removed_while_files_name_it() {
    let mut servers = Servers::started(2, "", "", "");
    with_files(&servers, 1, 400_000);
    servers.stop(1);
    servers.weft(["target", "replace", "1", "--data-lost"]);
    let refused = servers.fails(1, ["target", "remove", "1"]);
    assert!(refused.contains("held data of files when its disk was given up"), "{refused}");
    assert_eq!(state(&servers, 1), "joining");
    // The server never returns, so its datafiles cannot be removed: they were lost with the disk.
    servers.weft(["rm", "/weft/old0"]);
    servers.weft(["target", "remove", "1"]);
    fs::write(servers.file(), servers.text_without(1)).expect("written");
    servers.stop(0);
    servers.start(0);
    assert!(servers.weft(["fsck"]).contains(" 0 problems"));
    servers.weft(["touch", "/weft/new"]);
}

#[test]
fn the_last_target_of_a_class_is_not_drained() {
    let servers = Servers::started(2, "", "", "");
    with_files(&servers, 1, 400_000);
    servers.weft(["target", "drain", "-q", "1"]);
    let refused = servers.fails(1, ["target", "drain", "0"]);
    assert!(refused.contains("/weft/old0: no other target of class hdd takes its data"), "{refused}");
    hold(&servers, 1);
    let refused = servers.fails(1, ["target", "remove", "0"]);
    assert!(refused.contains("holds data"), "{refused}");
}

/// A program that writes new files in `place`, compares them and removes most of them, until the file `stop` exists. It
/// writes the number of its rounds to `rounds.NAME`, and says why it fails.
fn writer(name: &str, place: &str) -> String {
    format!(
        "i=0
        while [ ! -e stop ]; do
            i=$((i + 1)); n=$((i % 40))
            cat old$((i % 10)) > {place}/{name}$n || exit 1
            cmp old$((i % 10)) {place}/{name}$n || exit 1
            echo $i > rounds.{name}
        done"
    )
}

/// Waits until a [`writer`] has completed another round that began after this call.
#[track_caller]
fn goes_on(servers: &Servers, name: &str) {
    let (rounds, said) = (servers.path(&format!("rounds.{name}")), servers.path(&format!("said.{name}")));
    for _ in 0..2 {
        let _ = fs::remove_file(&rounds);
        let began = Instant::now();
        while !rounds.exists() {
            let text = fs::read_to_string(&said).unwrap_or_default();
            assert!(text.is_empty() && began.elapsed() < DEADLINE, "{name} does not go on: {text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn servers_and_targets_come_move_and_go_while_programs_and_mounts_run() {
    const FILES: usize = 10;
    let mut servers = Servers::started(2, "", "", "");
    with_files(&servers, FILES, 400_000);
    let mount = mounts::possible().then(|| {
        let (dir, log) = (servers.path("mount"), servers.path("mount.log"));
        fs::create_dir(&dir).expect("made");
        servers.weft(["mount", "--log", log.to_str().expect("text"), dir.to_str().expect("text")]);
        Mounted(dir)
    });
    let spawn = |name: &str, mut command: Command| {
        let said = fs::File::create(servers.path(&format!("said.{name}"))).expect("created");
        command.current_dir(servers.path("")).stdout(said.try_clone().expect("another")).stderr(said);
        command.spawn().expect("it starts")
    };
    let by_library = spawn("run", servers.command(["run", "--", "sh", "-c", &writer("run", "/weft")]));
    let mut on_mount = common::isolated("sh");
    on_mount.args(["-c", &writer("mount", "mount")]);
    let on_mount = mount.is_some().then(|| spawn("mount", on_mount));
    let both_go_on = |servers: &Servers| {
        goes_on(servers, "run");
        if on_mount.is_some() {
            goes_on(servers, "mount");
        }
    };
    both_go_on(&servers);

    // A server needs an administrator's word. The metadata server is not restarted, and has no new cluster file.
    let former = fs::read_to_string(servers.file()).expect("the cluster file");
    let id = servers.named("hdd");
    assert!(!servers.try_start(id), "a server that nobody has added starts");
    assert!(servers.log(id).contains("weft server add s2"), "{}", servers.log(id));
    servers.weft(["server", "add", "s2"]);
    servers.start(id);
    assert_eq!(state(&servers, 2), "active");
    let began = Instant::now();
    while datafiles(&servers, id) == 0 {
        assert!(began.elapsed() < DEADLINE, "nobody places files on the new target");
        std::thread::sleep(Duration::from_millis(20));
    }
    both_go_on(&servers);
    let moved = servers.weft(["rebalance"]);
    assert!(moved.contains("moved ") && !moved.contains("moved 0 files"), "{moved}");
    hold(&servers, FILES);
    both_go_on(&servers);

    // The former cluster file still describes a way in.
    let whole = fs::read_to_string(servers.file()).expect("the cluster file");
    servers.rewrite(&former);
    assert!(servers.weft(["status"]).contains("s2"), "{}", servers.weft(["status"]));
    servers.rewrite(&whole);

    // A server that omits its target is refused; so is the file by the check.
    let without = servers.path("without.toml");
    fs::write(&without, whole.replace("id = 2", "id = 12")).expect("written");
    let check = ["config", "check", without.to_str().expect("text")];
    let refused = servers.fails(2, check);
    assert!(refused.contains("omits target 2") && refused.contains("weft target drain"), "{refused}");
    let right = servers.weft(["config", "check"]);
    assert!(right.contains("3 targets") && !right.contains("not compared"), "{right}");
    servers.rewrite(&fs::read_to_string(&without).expect("text"));
    servers.stop(id);
    assert!(!servers.try_start(id), "it starts without target 2");
    assert!(servers.log(id).contains("omits target 2"), "{}", servers.log(id));

    // It moves to another address. Programs wait for it meanwhile.
    let (old, new) = (format!("run{id}/socket"), format!("run{id}/elsewhere"));
    servers.rewrite(&whole.replace(&old, &new));
    servers.start(id);
    hold(&servers, FILES);
    both_go_on(&servers);

    // A second target of a known server.
    let second = format!(
        "[[server.target]]\nid = 7\nclass = \"hdd\"\npath = \"{}\"\n",
        servers.path("target7").display()
    );
    fs::create_dir(servers.path("target7")).expect("a mount point");
    servers.rewrite(&(whole.replace(&old, &new) + &second));
    servers.weft(["target", "add", "7"]);
    servers.stop(id);
    servers.start(id);
    assert_eq!(state(&servers, 7), "active");
    both_go_on(&servers);

    // The server leaves.
    let refused = servers.fails(1, ["server", "remove", "s2"]);
    assert!(refused.contains("weft target drain"), "{refused}");
    servers.weft(["target", "drain", "-q", "2", "7"]);
    servers.weft(["server", "remove", "s2"]);
    servers.stop(id);
    both_go_on(&servers);
    assert!(!servers.weft(["status"]).contains("s2"));
    assert!(!servers.try_start(id), "a server that was removed starts");
    assert!(servers.log(id).contains("was removed"), "{}", servers.log(id));

    fs::write(servers.path("stop"), "").expect("written");
    for mut program in [Some(by_library), on_mount].into_iter().flatten() {
        assert!(program.wait().expect("waited for").success());
    }
    drop(mount);
    // The metadata server starts with a file that names the server that has left.
    servers.stop(0);
    servers.start(0);
    assert!(servers.log(0).contains("names server s2, which was removed"), "{}", servers.log(0));
    hold(&servers, FILES);
    let left = servers.fails(1, ["server", "remove", "s0"]);
    assert!(left.contains("metadata"), "{left}");
    let unknown = servers.fails(1, ["server", "remove", "s9"]);
    assert!(unknown.contains("there are s0, s1"), "{unknown}");
    assert!(servers.weft(["fsck"]).contains(" 0 problems"));
}
