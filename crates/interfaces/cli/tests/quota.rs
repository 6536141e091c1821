//! Quotas of users and directory trees, with unmodified programs of several users.

mod common;

use common::shared_cluster::SharedCluster;
use common::{mounts, shown, succeeded};
use std::process::Command;
use std::time::Duration;

const ADA: u32 = 4001;
const BOB: u32 = 4002;

/// Starts a cluster of two servers; `None` without root.
fn shared() -> Option<SharedCluster> {
    SharedCluster::new(&[&[""], &[""]])
}

/// Runs a shell script of a user under `weft run`.
fn script(shared: &SharedCluster, uid: u32, script: &str) -> Command {
    shared.weft(uid, ["run", "--", "sh", "-c", script])
}

/// Fails with this exit code; returns what the command said.
fn fails(mut command: Command, code: i32) -> String {
    let output = command.output().expect("it starts");
    assert_eq!(output.status.code(), Some(code), "{}", shown(&output));
    shown(&output)
}

/// The quota of a user or tree, from JSON.
fn quota(shared: &SharedCluster, args: &[&str]) -> serde_json::Value {
    let args = ["quota", "--json"].iter().chain(args).copied();
    let said = succeeded(&mut shared.weft(0, args));
    let value: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    value["quotas"][0].clone()
}

/// Waits for the last closes, which programs send without awaiting a reply, and checks the usage.
fn await_usage(shared: &SharedCluster, args: &[&str], bytes: u64, inodes: u64) {
    let expected = format!("{args:?}: {bytes} bytes, {inodes} inodes");
    common::until(Duration::from_secs(10), &expected, || {
        let found = quota(shared, args);
        (found["bytes"] == bytes && found["inodes"] == inodes).then_some(())
    });
}

#[test]
fn a_user_is_limited_and_others_are_not() {
    let Some(mut shared) = shared() else { return };
    let said = fails(shared.weft(ADA, ["quota"]), 1);
    assert!(said.contains("no quota"), "{said}");
    succeeded(&mut script(&shared, ADA, "head -c 300000 /dev/urandom > /weft/all/old"));
    let said =
        succeeded(&mut shared.weft(0, ["quota", "set", "--user", "4001", "--bytes", "4M", "--inodes", "4"]));
    assert!(said.contains("user 4001") && said.contains("4.00 MiB"), "{said}");
    await_usage(&shared, &["--user", "4001"], 300_000, 1); // written before the quota was set
    // Unaligned writes in small steps up to the limit, and not one byte more.
    let left = (4 << 20) - 300_000;
    succeeded(&mut script(
        &shared,
        ADA,
        &format!("dd if=/dev/zero of=/weft/all/new bs=7001 count={left} iflag=count_bytes status=none"),
    ));
    succeeded(&mut script(&shared, ADA, "stat /weft/all/new"));
    await_usage(&shared, &["--user", "4001"], 4 << 20, 2);
    let said = fails(script(&shared, ADA, "head -c 1 /dev/zero >> /weft/all/new"), 1);
    assert!(said.contains("quota"), "{said}");
    succeeded(&mut script(&shared, ADA, "echo y | dd of=/weft/all/new bs=2 conv=notrunc status=none"));
    let said = fails(script(&shared, ADA, "truncate -s 10M /weft/all/old"), 1);
    assert!(said.contains("quota"), "{said}");
    succeeded(&mut script(&shared, ADA, "truncate -s 100 /weft/all/old && stat /weft/all/old"));
    await_usage(&shared, &["--user", "4001"], left + 100, 2);
    // Others have space. Bytes count for the owner of the file.
    succeeded(&mut script(&shared, BOB, "head -c 5000000 /dev/zero > /weft/all/of-bob"));
    // `df` shows the quota to its user.
    let df = "df -B1 --output=size,avail,itotal,iavail /weft/all | tail -1";
    let said = succeeded(&mut script(&shared, ADA, df));
    let numbers: Vec<u64> = said.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    assert!(numbers[0] <= 4 << 20 && numbers[0] > (4 << 20) - 4096, "{said}");
    assert!(numbers[1] <= 300_000 - 100 && numbers[1] > 290_000, "{said}");
    assert_eq!(numbers[2..], [4, 2], "{said}");
    succeeded(&mut script(&shared, ADA, "mkdir /weft/all/d && : > /weft/all/d/f"));
    let said = fails(script(&shared, ADA, ": > /weft/all/d/g"), 2);
    assert!(said.contains("quota"), "{said}");
    // The account survives a crash, and no check finds a difference.
    shared.kill();
    shared.start();
    assert_eq!(quota(&shared, &["--user", "4001"])["inodes"], 4);
    succeeded(&mut shared.weft(0, ["fsck"]));
    succeeded(
        &mut shared.weft(0, ["quota", "set", "-q", "--user", "4001", "--bytes", "none", "--inodes", "none"]),
    );
    succeeded(&mut script(&shared, ADA, "head -c 5000000 /dev/zero > /weft/all/d/g"));
    let said = succeeded(&mut shared.weft(ADA, ["quota"]));
    assert!(said.contains("user 4001") && said.contains('-'), "{said}");
}

#[test]
fn a_tree_is_limited_for_all_its_users() {
    let Some(shared) = shared() else { return };
    succeeded(&mut script(
        &shared,
        BOB,
        "mkdir -m 777 /weft/all/p /weft/all/p/q && echo 12345 > /weft/all/p/q/f",
    ));
    let said = succeeded(&mut shared.weft(0, ["quota", "set", "--tree", "/weft/all/p", "--bytes", "1M"]));
    assert!(said.contains("/weft/all/p") && !said.contains("not all counted"), "{said}");
    let quota = quota(&shared, &["/weft/all/p/q"]);
    assert_eq!(
        (&quota["bytes"], &quota["inodes"], &quota["is_counted"]),
        (&6.into(), &3.into(), &true.into())
    );
    succeeded(&mut script(&shared, ADA, "head -c 1000000 /dev/zero > /weft/all/p/of-ada"));
    let said = fails(script(&shared, BOB, "head -c 100000 /dev/zero > /weft/all/p/q/of-bob"), 1);
    assert!(said.contains("quota"), "{said}");
    // A large file does not move in, by rename or by copy; a directory does not leave by rename, but by `mv`.
    succeeded(&mut script(&shared, BOB, "head -c 100000 /dev/zero > /weft/all/big"));
    let said = fails(shared.weft(BOB, ["mv", "/weft/all/big", "/weft/all/p/big"]), 1);
    assert!(said.contains("/weft/all/p") && said.contains("quota"), "{said}");
    succeeded(&mut script(&shared, BOB, "mv /weft/all/p/q /weft/all/q && cat /weft/all/q/f"));
    // A shell had opened the file for `head`, so only the data servers know its size until somebody asks for it.
    succeeded(&mut script(&shared, ADA, "stat /weft/all/p/of-ada"));
    await_usage(&shared, &["/weft/all/p"], 1_000_000, 2);
    let said = fails(shared.weft(ADA, ["quota", "/weft/all"]), 1);
    assert!(said.contains("/weft/all: no quota"), "{said}");
    let said = fails(shared.weft(ADA, ["quota", "set", "--tree", "/weft/all", "--bytes", "1M"]), 1);
    assert!(said.contains("administrators"), "{said}");
    let said = fails(shared.weft(0, ["quota", "set", "--tree", "/weft/all", "--bytes", "1M"]), 1);
    assert!(said.contains("/weft/all") && said.contains("overlap"), "{said}");
    let said = fails(shared.weft(0, ["quota", "set", "--user", "0", "--bytes", "1M"]), 1);
    assert!(said.contains("root"), "{said}");
    for args in [&["--user", "4001"][..], &["--bytes", "1M"], &["--user", "4001", "--bytes", "much"]] {
        let args: Vec<&str> = ["quota", "set"].iter().chain(args).copied().collect();
        fails(shared.weft(0, args), 2);
    }
    succeeded(&mut shared.weft(0, ["fsck"]));
}

#[test]
fn a_mount_refuses_bytes_above_the_quota_of_its_user() {
    if !mounts::possible() {
        return;
    }
    let Some(shared) = shared() else { return };
    let dir = shared.path("mount");
    std::fs::create_dir(&dir).expect("made");
    succeeded(&mut shared.weft(0, ["quota", "set", "-q", "--user", "4001", "--bytes", "1M"]));
    succeeded(&mut shared.weft(0, ["mount", "--allow-other", dir.to_str().expect("text")]));
    let mounted = mounts::Mounted(dir.clone());
    let user = |uid: u32, script: &str| {
        let mut command = shared.as_user(uid);
        command.args(["sh", "-c", script]).current_dir(dir.join("all"));
        command
    };
    succeeded(&mut user(ADA, "head -c 1048576 /dev/zero > full"));
    let said = fails(user(ADA, "head -c 1 /dev/zero > more"), 1);
    assert!(said.contains("quota"), "{said}");
    succeeded(&mut user(BOB, "head -c 3000000 /dev/zero > of-bob"));
    let said = succeeded(&mut user(ADA, "stat -f -c '%b %a' ."));
    let blocks: Vec<u64> = said.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    assert_eq!(blocks[1], 0, "{said}");
    mounted.end();
}
