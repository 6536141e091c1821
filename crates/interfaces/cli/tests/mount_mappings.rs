//! Programs that map a file of a mount, beside others that write, cut, punch and read it.
//!
//! In random tests, two actors do one operation each at the same time. If they do not answer, a watchdog names the two
//! operations and aborts the connection of the mount to the kernel.

mod common;

use common::actors::{LIMIT_S, Map, OWN, Op, PAGE, Stage, actor};
use common::mounts::{self, Mounted, Watchdog};
use common::{Embedded, Random};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::Barrier;

#[test]
fn pairs_of_operations_on_one_page_neither_hang_nor_lose_bytes() {
    if !mounts::possible() {
        return;
    }
    let (mut random, seed) = Random::seeded();
    let cluster = Embedded::started();
    for option in [None, Some("--no-page-cache")] {
        let mount = Mounted::with(&cluster, if option.is_some() { "b" } else { "a" }, option);
        std::fs::write(mount.at("file"), [0; PAGE]).expect("made");
        let least = PAGE - 512;
        let actors = [100, 1500, 2800].map(|start| actor(&mount, start, least)).into();
        Stage::new(vec![mount], actors).play_random(&mut random, seed, 250, true);
    }
}

/// Mounts that map one page do not see stores into other bytes of it by another mount before these are written back, so
/// each mount has pages of its own here.
#[test]
fn operations_on_two_mounts_neither_hang_nor_lose_bytes() {
    if !mounts::possible() {
        return;
    }
    let (mut random, seed) = Random::seeded();
    let cluster = Embedded::started();
    let (a, b) = (Mounted::new(&cluster, "a"), Mounted::new(&cluster, "b"));
    std::fs::write(a.at("file"), [0; 3 * PAGE]).expect("made");
    let least = 2 * PAGE;
    let actors = [(&a, 100), (&a, 2000), (&b, PAGE + 300), (&b, PAGE + 1700)];
    let actors = actors.map(|(mount, start)| actor(mount, start, least)).into();
    let mut stage = Stage::new(vec![a, b], actors);
    stage.play_random(&mut random, seed, 150, false);
    // A program under `weft run` writes beside them.
    stage.play(&[(0, Op::Open { flags: libc::O_RDWR })], "beside a program");
    stage.play(&[(0, Op::Map)], "beside a program");
    let program = "printf x | dd of=/weft/file bs=1 seek=8191 conv=notrunc status=none";
    for byte in 0..5 {
        stage.play(&[(0, Op::Store { at: 0, len: OWN, byte })], "beside a program");
        cluster.run(["sh", "-c", program]);
    }
    stage.play(&[(0, Op::Unmap), (2, Op::Open { flags: libc::O_RDONLY })], "beside a program");
    stage.play(&[(0, Op::Close), (2, Op::Close)], "beside a program");
    let whole = stage.mounts.iter().map(|mount| std::fs::read(mount.at("file")).expect("read"));
    for whole in whole {
        assert_eq!(whole[2 * PAGE - 1], b'x');
        for number in 0..stage.cast.len() {
            let actor = stage.actor(number);
            actor.check(&whole[actor.start..actor.start + OWN], "at the end").expect("no byte is lost");
        }
    }
}

/// Two mounts that keep pages of a file store into one page of it. To drop the page, each has to write it back first.
#[test]
fn two_mounts_that_store_into_one_page_do_not_wait_for_each_other() {
    if !mounts::possible() {
        return;
    }
    const ROUNDS: u8 = 20;
    let cluster = Embedded::started();
    let mounts = ["a", "b"].map(|name| Mounted::new(&cluster, name));
    std::fs::write(mounts[0].at("file"), [0; 3 * PAGE]).expect("made");
    let watchdog = Watchdog::new(&mounts, LIMIT_S);
    // Each mount may keep pages, because no program has the file open for writing yet.
    let kept = mounts.each_ref().map(|mount| {
        let file = std::fs::File::open(mount.at("file")).expect("opened");
        file.read_exact_at(&mut [0; 3 * PAGE], 0).expect("read");
        file
    });
    let open = |mount: &Mounted| OpenOptions::new().read(true).write(true).open(mount.at("file"));
    let files = mounts.each_ref().map(|mount| open(mount).expect("opened"));
    let maps = files.each_ref().map(|file| Map::new(file, 3 * PAGE, true));
    let both = Barrier::new(2);
    std::thread::scope(|scope| {
        for (number, (map, file)) in maps.iter().zip(&files).enumerate() {
            let (both, watchdog) = (&both, &watchdog);
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    both.wait();
                    watchdog.expect(&format!("mount {number}, round {round}"));
                    map.store(number * 2048, &[round; 8]);
                    map.store((1 + number) * PAGE, &[round; 8]);
                    match round % 2 {
                        0 => map.sync(),
                        _ => file.sync_all().expect("synchronized"),
                    }
                }
            });
        }
    });
    drop((maps, files, kept));
    for mount in &mounts {
        let whole = std::fs::read(mount.at("file")).expect("read");
        for number in 0..2 {
            assert_eq!(whole[(1 + number) * PAGE..][..8], [ROUNDS; 8], "the page of mount {number}");
        }
    }
    let logs = std::fs::read_dir(cluster.state().join("log")).expect("logs").flatten();
    let logs: String = logs.map(|log| std::fs::read_to_string(log.path()).expect("text")).collect();
    assert!(!logs.contains("did not drop its pages"), "{logs}");
}

/// A store and a write of other bytes of one page at a time: the kernel reads the page while the write is on its way to
/// the server.
#[test]
fn a_write_and_a_store_of_the_same_page_are_both_kept() {
    if !mounts::possible() {
        return;
    }
    const PAGES: usize = 1500;
    let cluster = Embedded::started();
    let mount = Mounted::new(&cluster, "a");
    let file =
        OpenOptions::new().read(true).write(true).create_new(true).open(mount.at("file")).expect("made");
    file.set_len((PAGES * PAGE) as u64).expect("extended");
    let watchdog = Watchdog::new([&mount], LIMIT_S);
    let map = Map::new(&file, PAGES * PAGE, true);
    let both = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for page in 0..PAGES {
                both.wait();
                map.store(page * PAGE, &(page as u64 + 1).to_le_bytes());
            }
        });
        let stale = |&page: &usize| {
            both.wait();
            watchdog.expect(&format!("page {page}"));
            let at = page * PAGE + 2048;
            let bytes = (page as u64 + 1).to_le_bytes();
            file.write_all_at(&bytes, at as u64).is_err() || map.load(at, 8) != bytes
        };
        let stale: Vec<usize> = (0..PAGES).filter(stale).collect();
        assert_eq!(stale, [0; 0], "writes that the mapping does not show");
    });
    map.sync();
    drop(map);
    let whole = std::fs::read(mount.at("file")).expect("read");
    let lost = |at: usize| -> Vec<usize> {
        let is_lost = |page: &usize| whole[page * PAGE + at..][..8] != (*page as u64 + 1).to_le_bytes();
        (0..PAGES).filter(is_lost).collect()
    };
    assert_eq!((lost(0), lost(2048)), (vec![], vec![]), "pages whose store or write is lost");
}

/// Appends and a mapping of the page in which the file ends.
#[test]
fn appends_and_stores_of_the_last_page_are_both_kept() {
    if !mounts::possible() {
        return;
    }
    const APPENDS: usize = 150;
    let cluster = Embedded::started();
    let mount = Mounted::new(&cluster, "a");
    std::fs::write(mount.at("file"), [0; 64]).expect("made");
    let options = |append| OpenOptions::new().read(true).write(true).append(append).open(mount.at("file"));
    let (mapped, appended) = (options(false).expect("opened"), options(true).expect("opened"));
    // Also a mapping through an open for appending, whose pages are not appended.
    let watchdog = Watchdog::new([&mount], LIMIT_S);
    let maps = [Map::new(&mapped, PAGE, true), Map::new(&appended, PAGE, true)];
    std::thread::scope(|scope| {
        for (number, map) in maps.iter().enumerate() {
            scope.spawn(move || {
                for round in 0..APPENDS {
                    map.store(number * 32, &(round as u64 + 1).to_le_bytes());
                    if round % 50 == 0 {
                        map.sync();
                    }
                }
            });
        }
        for round in 0..APPENDS {
            watchdog.expect(&format!("append {round}"));
            let mut file = &appended;
            std::io::Write::write_all(&mut file, &[round as u8; 10]).expect("appended");
            assert_eq!(file.metadata().expect("there").len(), 64 + 10 * (round as u64 + 1));
        }
    });
    drop(maps);
    let whole = std::fs::read(mount.at("file")).expect("read");
    assert_eq!(whole.len(), 64 + 10 * APPENDS);
    for at in [0, 32] {
        assert_eq!(whole[at..at + 8], (APPENDS as u64).to_le_bytes());
    }
    let lost = (0..APPENDS).find(|round| whole[64 + 10 * round..][..10] != [*round as u8; 10]);
    assert_eq!(lost, None, "an append is lost");
}
