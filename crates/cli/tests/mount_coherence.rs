//! A read that starts after a write returned sees it, whatever kernel keeps pages: random operations on one file
//! through two mounts and a client of its own, one after the other, against a model; the metadata server is killed
//! and started again on the way.

mod common;

use common::mounts::{self, Mounted};
use common::{Embedded, Random, WEFT, succeeded};
use std::fs::{File, OpenOptions};
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::Command;
use weft_client::{Client, OpenFile};
use weft_config::Cluster;
use weft_core::{ByteLen, FileOffset};
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{LayoutSpec, OpenFlags, Place, ROOT};

const STEPS: u64 = 1500;
const KILLS: u64 = 2;
const LEN_MAX: u64 = 200_000;

/// One way to the file, and what it has open.
enum Way {
    Mount(Mounted, Vec<File>),
    Client(Client<RealEnv>, Vec<OpenFile<RealEnv>>),
}

fn place() -> Place {
    Place { base: ROOT, path: b"file".to_vec(), follow: false }
}

impl Way {
    fn open(&mut self, random: &mut Random) {
        match self {
            Way::Mount(mount, open) => {
                let flags = [0, 0, 0, libc::O_DIRECT, libc::O_APPEND][random.below(5) as usize];
                let write = random.below(2) == 0 || flags & libc::O_APPEND != 0;
                let mut options = OpenOptions::new();
                options.read(true).write(write).custom_flags(flags);
                open.push(options.open(mount.at("file")).expect("opened"));
            }
            Way::Client(client, open) => {
                let flags = OpenFlags { read: true, write: random.below(2) == 0, ..OpenFlags::default() };
                let file = block_on(client.open(&place(), flags, 0, &LayoutSpec::default()));
                open.push(file.expect("opened"));
            }
        }
    }

    fn count(&self) -> usize {
        match self {
            Way::Mount(_, open) => open.len(),
            Way::Client(_, open) => open.len(),
        }
    }

    fn close(&mut self, which: usize) {
        match self {
            Way::Mount(_, open) => drop(open.swap_remove(which)),
            Way::Client(_, open) => drop(open.swap_remove(which)),
        }
    }

    fn writes(&self, which: usize) -> bool {
        match self {
            Way::Mount(_, open) => flags(&open[which]) & libc::O_ACCMODE != libc::O_RDONLY,
            Way::Client(_, open) => open[which].flags().write,
        }
    }

    fn read(&self, which: usize, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let got = match self {
            Way::Mount(_, open) => {
                let mut got = 0;
                loop {
                    match open[which].read_at(&mut bytes[got..], at + got as u64).expect("read") {
                        0 => break got,
                        more => got += more,
                    }
                }
            }
            Way::Client(_, open) => {
                block_on(open[which].read_at(&mut [IoSliceMut::new(&mut bytes)], FileOffset(at)))
                    .expect("read")
            }
        };
        bytes.truncate(got);
        bytes
    }

    /// Writes, at the end where the file was opened to append.
    fn write(&self, which: usize, at: u64, bytes: &[u8], model: &mut Vec<u8>) {
        let at = match self {
            Way::Mount(_, open) => {
                open[which].write_all_at(bytes, at).expect("written");
                if flags(&open[which]) & libc::O_APPEND != 0 { model.len() } else { at as usize }
            }
            Way::Client(_, open) => {
                let count = block_on(open[which].write_at(&[IoSlice::new(bytes)], FileOffset(at)));
                assert_eq!(count.expect("written"), bytes.len());
                at as usize
            }
        };
        model.resize(model.len().max(at + bytes.len()), 0);
        model[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn cut(&self, which: usize, len: u64) {
        match self {
            Way::Mount(_, open) => open[which].set_len(len).expect("cut"),
            Way::Client(_, open) => block_on(open[which].truncate(ByteLen(len))).expect("cut"),
        }
    }

    fn len(&self) -> u64 {
        match self {
            Way::Mount(mount, _) => std::fs::metadata(mount.at("file")).expect("there").len(),
            Way::Client(client, _) => block_on(client.stat(&place())).expect("there").size.0,
        }
    }
}

fn flags(file: &File) -> i32 {
    use std::os::fd::AsRawFd;
    // SAFETY: only asks; the descriptor is the file's.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) }
}

#[test]
fn what_was_written_is_read_through_every_mount_and_client() {
    if !mounts::possible() {
        return;
    }
    let cluster = Embedded::started();
    let (mut random, seed) = Random::seeded();
    let config = Cluster::load(&cluster.file()).unwrap_or_else(|error| panic!("{error}"));
    let credentials = config.credentials().unwrap_or_else(|error| panic!("{error}"));
    let client = Client::new(RealEnv::new(), config.map(), config.client_options(), credentials);
    let mut ways = [
        Way::Mount(Mounted::new(&cluster, "a"), Vec::new()),
        Way::Mount(Mounted::new(&cluster, "b"), Vec::new()),
        Way::Client(client, Vec::new()),
    ];
    let Way::Mount(mount, _) = &ways[0] else { unreachable!("a mount") };
    File::create(mount.at("file")).expect("made");
    let mut model = Vec::new();
    for step in 0..STEPS {
        if step % (STEPS / (KILLS + 1)) == STEPS / (KILLS + 1) - 1 {
            let metadata = cluster.pids()[0].expect("it runs");
            // SAFETY: a process that this test started.
            unsafe { libc::kill(metadata, libc::SIGKILL) };
            let mut again = Command::new(WEFT);
            again.arg("run").arg("--state").arg(cluster.state()).args(["--", "true"]);
            succeeded(&mut again);
        }
        let number = random.below(3) as usize;
        let way = &mut ways[number];
        let count = way.count();
        if count == 0 || random.below(20) == 0 {
            if count == 3 {
                way.close(random.below(3) as usize);
            }
            way.open(&mut random);
            continue;
        }
        let which = random.below(count as u64) as usize;
        let what = format!("seed {seed}, step {step}, way {number}");
        match random.below(12) {
            0..4 if way.writes(which) => {
                // Whole pages, so that direct opens do it too; or any bytes.
                let whole = random.below(2) == 0;
                let at = random.below(LEN_MAX);
                let (at, len) = if whole
                    || matches!(way, Way::Mount(_, open) if flags(&open[which]) & libc::O_DIRECT != 0)
                {
                    (at / 4096 * 4096, 4096 * (1 + random.below(8)))
                } else {
                    (at, 1 + random.below(10_000))
                };
                if model.len() as u64 + len <= 2 * LEN_MAX {
                    let bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
                    way.write(which, at, &bytes, &mut model);
                }
            }
            4 if way.writes(which) && random.below(4) == 0 => {
                let len = random.below(LEN_MAX);
                way.cut(which, len);
                model.resize(len as usize, 0);
            }
            5 => assert_eq!(way.len(), model.len() as u64, "{what}"),
            6 => way.close(which),
            _ => {
                let at = random.below(LEN_MAX) / 4096 * 4096;
                let len = 4096 * (1 + random.below(16)) as usize;
                let got = way.read(which, at, len);
                let from = model.len().min(at as usize);
                let wanted = &model[from..model.len().min(at as usize + len).max(from)];
                let wrong = got.iter().zip(wanted).position(|(a, b)| a != b);
                assert_eq!(wrong, None, "{what}: a wrong byte in {} read from {at}", got.len());
                assert_eq!(got.len(), wanted.len(), "{what}: read from {at}");
            }
        }
    }
}
