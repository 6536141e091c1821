//! Reads on a mount: without a buffer (a pipe passes pages of the datafiles to the kernel), and with a buffer.

mod common;

use common::mounts::{self, Mounted};
use common::{Embedded, Random};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// Length beyond the maximum size of a kernel request; the file ends within a page.
const LEN: usize = (5 << 20) + 777;
const HOLE: std::ops::Range<usize> = 700_000..1_900_000;

/// A mount whose process id is known.
struct Daemon {
    process: Child,
    mounted: Mounted,
    /// Number of its pipes at the start.
    pipes_before: usize,
}

impl Daemon {
    fn new(cluster: &Embedded) -> Self {
        let dir = cluster.local("mount");
        std::fs::create_dir(&dir).expect("made");
        let mut command = cluster.command(["mount", "-f", "--announce"]);
        command.arg(&dir).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("weft starts");
        let mounted = Mounted(dir);
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        let mut this = Self { process, mounted, pipes_before: 0 };
        this.pipes_before = this.pipes();
        this
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.mounted.at(name)
    }

    /// Returns whether the mount splices, for which each thread needs a pipe.
    fn splices(&self) -> bool {
        self.pipes() > self.pipes_before
    }

    fn pipes(&self) -> usize {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.process.id())).expect("alive");
        let links = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        links.filter(|to| to.to_string_lossy().starts_with("pipe:")).count()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.mounted.end();
        let _ = self.process.wait();
    }
}

/// Returns the bytes of the test file.
fn contents() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..=250).cycle().take(LEN).collect();
    bytes[HOLE].fill(0);
    bytes
}

/// Writes the file in parts, so that its hole stays a hole.
fn make(path: &Path, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(path).expect("made");
    for part in [0..HOLE.start, HOLE.end..LEN] {
        file.write_all_at(&bytes[part.clone()], part.start as u64).expect("written");
    }
}

fn read(file: &File, at: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; len];
    let mut got = 0;
    while got < len {
        match file.read_at(&mut bytes[got..], (at + got) as u64).expect("read") {
            0 => break,
            more => got += more,
        }
    }
    bytes.truncate(got);
    bytes
}

fn random_reads(transport: &str, splices: bool) {
    if !mounts::possible() {
        return;
    }
    let (mut random, seed) = Random::seeded();
    let cluster = Embedded::started();
    let text = std::fs::read_to_string(cluster.file()).expect("read");
    std::fs::write(cluster.file(), format!("{text}\n[client]\ntransport = \"{transport}\"\n"))
        .expect("written");
    let daemon = Daemon::new(&cluster);
    let bytes = contents();
    // Reads with many pieces, and pieces that begin within a page.
    for stripe in ["64KiB", "12KiB", "1MiB"] {
        let name = format!("of {stripe}");
        cluster.weft(["setstripe", "-S", stripe, &format!("/weft/{name}")]);
        make(&daemon.at(&name), &bytes);
        // Opens for reading and writing bypass the page cache of the kernel; other opens may fill it.
        for write in [true, false] {
            let file = OpenOptions::new().read(true).write(write).open(daemon.at(&name)).expect("opened");
            for _ in 0..30 {
                let at = random.below(LEN as u64 + 5000) as usize;
                let len = 1 + random.below(2 << 20) as usize;
                let want = &bytes[at.min(LEN)..(at + len).min(LEN)];
                assert!(read(&file, at, len) == want, "seed {seed}: {len} bytes of {name} at {at}");
            }
        }
        let mut whole = Vec::new();
        File::open(daemon.at(&name)).expect("opened").read_to_end(&mut whole).expect("read");
        assert!(whole == bytes, "{name}");
    }
    assert_eq!(daemon.splices(), splices);
}

#[test]
fn pages_of_datafiles_reach_the_reader_without_a_buffer() {
    random_reads("auto", true);
}

#[test]
fn where_there_are_no_leases_reads_go_by_a_buffer() {
    random_reads("socket", false);
}

#[test]
fn a_file_cut_and_written_meanwhile_is_read_without_errors() {
    if !mounts::possible() {
        return;
    }
    let cluster = Embedded::started();
    let daemon = Daemon::new(&cluster);
    let path = daemon.at("file");
    let bytes = contents();
    make(&path, &bytes);
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for reader in 0..3 {
            let (done, path, bytes) = (&done, &path, &bytes);
            threads.spawn(move || {
                let file = OpenOptions::new().read(true).write(true).open(path).expect("opened");
                let mut random = Random::new(reader);
                while !done.load(Ordering::Relaxed) {
                    let at = random.below(LEN as u64) as usize;
                    let got = read(&file, at, 1 << 20);
                    let wrong = got.iter().zip(&bytes[at..]).position(|(got, want)| *got != 0 && got != want);
                    assert_eq!(wrong, None, "at {at}");
                }
            });
        }
        let file = OpenOptions::new().write(true).open(&path).expect("opened");
        for len in [LEN / 2, 0, 4097, LEN / 3, 1, 0] {
            file.set_len(len as u64).expect("cut");
            make(&path, &bytes);
        }
        done.store(true, Ordering::Relaxed);
    });
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("opened");
    for _ in 0..2 {
        assert!(read(&file, 0, LEN) == bytes);
    }
    assert!(daemon.splices());
}
