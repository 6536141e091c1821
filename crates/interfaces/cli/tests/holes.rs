//! Holes made by `fallocate` and found by `lseek`, which never show older bytes: on all I/O modules, with and without
//! SSDs as cache, through clients, mounts and programs.

mod common;

use common::mounts::{self, Mounted};
use common::servers::Servers;
use common::{Embedded, Random, needs};
use std::fs::{File, OpenOptions};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use weft_client::{Client, OpenFile};
use weft_config::Cluster;
use weft_core::{ByteLen, Extent, FileOffset};
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{InodePath, LayoutSpec, OpenFlags};

const STEPS: u64 = 600;
const LEN_MAX: u64 = 300_000;
/// SSD settings with which all small requests go to the SSD, and few bytes go to the disk.
const SSD: &str =
    "size = \"32 MiB\"\npolicy = \"threshold\"\nfragments_below = \"64 KiB\"\nrandom_below = \"64 KiB\"
idle = \"20 ms\"\ndirty_high = \"2 MiB\"\ndirty_low = \"1 MiB\"";

fn open(file: &Path, stripe_size: u64) -> OpenFile<RealEnv> {
    let config = Cluster::load(file).unwrap_or_else(|error| panic!("{error}"));
    let credentials = config.credentials().unwrap_or_else(|error| panic!("{error}"));
    let client = Client::new(RealEnv::new(), config.map(), config.client_options(), credentials);
    let flags = OpenFlags { read: true, write: true, create: true, ..OpenFlags::default() };
    let spec = LayoutSpec { stripe_size: Some(ByteLen(stripe_size)), ..LayoutSpec::default() };
    let at = InodePath::from_root(b"file".to_vec(), false);
    block_on(client.open(&at, flags, 0o600, &spec)).expect("opened")
}

fn read(file: &OpenFile<RealEnv>, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![9; len];
    let got = block_on(file.read_at(&mut [IoSliceMut::new(&mut bytes)], FileOffset(at))).expect("read");
    bytes.truncate(got);
    bytes
}

/// Checks the results of a search for data and for a hole from `at` on.
fn check_seeks(file: &OpenFile<RealEnv>, model: &[u8], at: u64, what: &str) {
    let zeros = |from: u64, to: u64| model[from as usize..to as usize].iter().all(|byte| *byte == 0);
    let (at_or_end, size) = (at.min(model.len() as u64), model.len() as u64);
    match block_on(file.seek_data(FileOffset(at))).expect("sought") {
        Some(data) => assert!(data.0 >= at && data.0 < size && zeros(at, data.0), "{what}: data at {data:?}"),
        None => assert!(zeros(at_or_end, size), "{what}: the bytes after {at} are not in a hole"),
    }
    match block_on(file.seek_hole(FileOffset(at))).expect("sought") {
        Some(hole) if hole.0 < size => {
            let data = block_on(file.seek_data(hole)).expect("sought").map_or(size, |data| data.0);
            assert!(hole.0 >= at && data > hole.0 && zeros(hole.0, data), "{what}: a hole at {hole:?}");
        }
        Some(end) => assert!(end.0 == size && at < size, "{what}: {end:?}"),
        None => assert!(at >= size, "{what}: a file ends with a hole"),
    }
}

/// Random changes of one file, compared with a model. A server is killed during the load.
fn against_a_model(target: &str, ssd: &str, stripe_size: u64) {
    let mut cluster = Servers::started(3, target, ssd, "[client]\nfragment_threshold = \"64 KiB\"");
    let (mut random, seed) = Random::seeded();
    let mut file = open(&cluster.file(), stripe_size);
    let mut model: Vec<u8> = Vec::new();
    for step in 0..STEPS {
        let what = format!("{target} {stripe_size}, seed {seed}, step {step}");
        let (at, kind) = (random.below(LEN_MAX), random.below(3) as usize);
        let len = 1 + random.below([100, 5000, 100_000][kind]);
        // Sometimes whole blocks, because only these can become holes of disks.
        let (at, len) =
            if random.below(3) == 0 { (at / 4096 * 4096, len.next_multiple_of(4096)) } else { (at, len) };
        let size = model.len() as u64;
        match random.below(10) {
            0..4 => {
                let bytes: Vec<u8> = (0..len).map(|_| 1 + random.below(255) as u8).collect();
                let wrote =
                    block_on(file.write_at(&[IoSlice::new(&bytes)], FileOffset(at))).expect("written");
                assert_eq!(wrote, bytes.len());
                model.resize(model.len().max((at + len) as usize), 0);
                model[at as usize..(at + len) as usize].copy_from_slice(&bytes);
            }
            4..7 => {
                block_on(file.punch(Extent::new(at, len))).expect("punched");
                let (from, to) = (at.min(size) as usize, (at + len).min(size) as usize);
                model[from..to].fill(0);
            }
            7 => {
                block_on(file.truncate(ByteLen(at))).expect("cut");
                model.resize(at as usize, 0);
            }
            8 => check_seeks(&file, &model, random.below(LEN_MAX), &what),
            _ if step % 50 == 0 => {
                drop(file);
                let which = random.below(3) as usize;
                cluster.kill(which);
                cluster.start(which);
                file = open(&cluster.file(), stripe_size);
            }
            _ => {
                let want = &model[at.min(size) as usize..(at + len).min(size) as usize];
                assert!(read(&file, at, len as usize) == want, "{what}: {len} bytes at {at}");
            }
        }
        assert_eq!(block_on(file.size()).expect("known").0, model.len() as u64, "{what}: the size");
    }
    if !ssd.is_empty() {
        cluster.weft(["flush"]);
    }
    assert!(read(&file, 0, model.len() + 1) == model, "seed {seed}: at the end");
    check_seeks(&file, &model, 0, &format!("seed {seed}"));
    drop(file);
    assert!(cluster.weft(["fsck"]).contains("0 problems"), "seed {seed}");
}

#[test]
fn holes_are_found_and_no_older_byte_comes_back_through_memory() {
    against_a_model("", "", 65_536);
    against_a_model("", "", 4097);
}

#[test]
fn holes_are_found_and_no_older_byte_comes_back_past_memory() {
    against_a_model("module = \"direct\"", "", 65_536);
}

#[test]
fn holes_are_found_and_no_older_byte_comes_back_from_an_ssd() {
    against_a_model("", SSD, 65_536);
    against_a_model("", SSD, 10_000);
}

#[test]
fn a_null_target_is_one_hole() {
    let cluster = Servers::started(1, "module = \"null\"", "", "");
    let file = open(&cluster.file(), 65_536);
    block_on(file.write_at(&[IoSlice::new(&[1; 100])], FileOffset(50))).expect("written");
    block_on(file.punch(Extent::new(0, 1000))).expect("punched");
    assert_eq!(block_on(file.size()).expect("known"), ByteLen(150));
    assert_eq!(block_on(file.seek_data(FileOffset(0))).expect("sought"), None);
    assert_eq!(block_on(file.seek_hole(FileOffset(20))).expect("sought"), Some(FileOffset(20)));
    assert_eq!(block_on(file.seek_hole(FileOffset(150))).expect("sought"), None);
    assert_eq!(read(&file, 0, 1000), [0; 150]);
    // An empty range, and a range beyond the maximum file size.
    block_on(file.punch(Extent::new(10, 0))).expect("nothing");
    let error = block_on(file.punch(Extent::new(u64::MAX - 5, 4))).expect_err("too far");
    assert_eq!(error.errno(), libc::EFBIG);
}

fn fallocate(file: &File, mode: i32, at: i64, len: i64) -> Result<(), i32> {
    // SAFETY: only numbers are passed.
    match unsafe { libc::fallocate(file.as_raw_fd(), mode, at, len) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
    }
}

fn seek(file: &File, at: i64, whence: i32) -> Result<i64, i32> {
    // SAFETY: only numbers are passed.
    match unsafe { libc::lseek(file.as_raw_fd(), at, whence) } {
        -1 => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
        at => Ok(at),
    }
}

#[test]
fn programs_on_a_mount_make_and_find_holes() {
    if !mounts::possible() {
        return;
    }
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    const MIB: usize = 1 << 20;
    let cluster = Embedded::started();
    let (a, b) = (Mounted::new(&cluster, "a"), Mounted::new(&cluster, "b"));
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(a.at("file"));
    let file = file.expect("made");
    file.write_all_at(&vec![7; 8 * MIB], 0).expect("written");
    file.sync_all().expect("synced");
    let reader = File::open(b.at("file")).expect("opened");
    let seen = |at: u64, len: usize| {
        let mut bytes = vec![9; len];
        reader.read_exact_at(&mut bytes, at).expect("read");
        bytes
    };
    assert_eq!(seen(0, 8 * MIB), vec![7; 8 * MIB]);
    let before = file.metadata().expect("asked").blocks();
    fallocate(&file, PUNCH, MIB as i64 + 5, 5 * MIB as i64).expect("punched");
    let edges = [&[7; 5][..], &[0; 9]].concat();
    assert_eq!(seen(MIB as u64, 14), edges, "another mount sees it at once");
    assert_eq!(seen(6 * MIB as u64, 10), [&[0; 5][..], &[7; 5]].concat());
    assert_eq!((seen(MIB as u64 + 5, 5 * MIB), seen(0, MIB)), (vec![0; 5 * MIB], vec![7; MIB]));
    let meta = file.metadata().expect("asked");
    assert_eq!(meta.len(), 8 * MIB as u64);
    assert!(meta.blocks() < before - 4 * 2048, "{} blocks of {before}", meta.blocks());

    let hole = seek(&file, 0, libc::SEEK_HOLE).expect("a hole");
    assert!((MIB as i64 + 5..MIB as i64 + 8192).contains(&hole), "{hole}");
    let data = seek(&file, hole, libc::SEEK_DATA).expect("data");
    assert!((6 * MIB as i64 - 4096..=6 * MIB as i64 + 5).contains(&data), "{data}");
    assert_eq!(seek(&file, 7 * MIB as i64, libc::SEEK_HOLE), Ok(8 * MIB as i64), "the end");
    assert_eq!(seek(&file, 7 * MIB as i64, libc::SEEK_DATA), Ok(7 * MIB as i64));
    for whence in [libc::SEEK_DATA, libc::SEEK_HOLE] {
        assert_eq!(seek(&file, 8 * MIB as i64, whence), Err(libc::ENXIO));
    }
    // Beyond the end, across it, and with a new end.
    fallocate(&file, PUNCH, 9 * MIB as i64, 4096).expect("nothing is there");
    fallocate(&file, PUNCH, 8 * MIB as i64 - 3, 4096).expect("punched");
    assert_eq!(
        (seen(8 * MIB as u64 - 4, 4), file.metadata().expect("asked").len()),
        (vec![7, 0, 0, 0], meta.len())
    );
    fallocate(&file, libc::FALLOC_FL_ZERO_RANGE, 8 * MIB as i64 - 6, 106).expect("zeroed");
    assert_eq!(file.metadata().expect("asked").len(), 8 * MIB as u64 + 100);
    assert_eq!(seen(8 * MIB as u64 - 7, 107), [&[7][..], &[0; 106]].concat());
    // Other modes are refused, so that programs use writes instead.
    assert_eq!(fallocate(&file, libc::FALLOC_FL_KEEP_SIZE, 0, 4096), Err(libc::EOPNOTSUPP));
    assert_eq!(fallocate(&file, libc::FALLOC_FL_COLLAPSE_RANGE, 0, 4096), Err(libc::EOPNOTSUPP));
    let path = std::ffi::CString::new(a.0.to_str().expect("text")).expect("no zeros");
    // SAFETY: a path, flags and a mode.
    let nameless = unsafe { libc::open(path.as_ptr(), libc::O_TMPFILE | libc::O_RDWR, 0o600) };
    let error = std::io::Error::last_os_error().raw_os_error();
    assert_eq!((nameless, error), (-1, Some(libc::EOPNOTSUPP)));
    // A read-only descriptor cannot make holes.
    assert_eq!(fallocate(&reader, PUNCH, 0, 10), Err(libc::EBADF));
    assert_eq!(seen(0, 10), [7; 10]);
}

#[test]
fn programs_under_weft_run_make_and_find_holes() {
    needs("python3");
    let cluster = Embedded::started();
    let script = r#"
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
M = 1 << 20
fd = os.open("/weft/file", os.O_RDWR | os.O_CREAT)
os.write(fd, b"\x07" * (4 * M))
os.fsync(fd)
before = os.fstat(fd).st_blocks
assert libc.fallocate(fd, 3, M + 1, 2 * M) == 0
assert os.pread(fd, 3, M - 1) == b"\x07\x07\0", os.pread(fd, 3, M - 1)
assert os.pread(fd, 3, 3 * M - 1) == b"\0\0\x07"
assert os.pread(fd, 2 * M, M + 1) == bytes(2 * M)
assert os.fstat(fd).st_size == 4 * M and os.fstat(fd).st_blocks < before - 2048
hole = os.lseek(fd, 0, os.SEEK_HOLE)
assert M < hole < M + 8192, hole
data = os.lseek(fd, hole, os.SEEK_DATA)
assert 3 * M - 4096 <= data <= 3 * M + 1, data
assert os.lseek(fd, data, os.SEEK_HOLE) == 4 * M
try:
    os.lseek(fd, 4 * M, os.SEEK_DATA)
    raise SystemExit("behind the end")
except OSError as error:
    assert error.errno == errno.ENXIO
assert libc.fallocate(fd, 16, 4 * M - 1, 11) == 0
assert os.fstat(fd).st_size == 4 * M + 10 and os.pread(fd, 100, 4 * M - 2) == b"\x07" + bytes(11)
assert libc.fallocate(fd, 8, 0, 4096) == -1 and ctypes.get_errno() == errno.EOPNOTSUPP
print("well")
"#;
    assert_eq!(cluster.run(["python3", "-c", script]), "well\n");
}
