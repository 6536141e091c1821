//! A read that starts after a write returned sees the write, whichever kernel caches pages.
//!
//! Random operations use one file through two mounts and a client, one after the other, and are compared with a model.
//! The metadata server is killed and restarted during the test.

mod common;

use common::mounts::{self, Mounted};
use common::{Embedded, Random};
use std::fs::{File, OpenOptions};
use std::io::{IoSlice, IoSliceMut, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weft_client::{Client, OpenFile};
use weft_config::Cluster;
use weft_core::{ByteLen, FileOffset};
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{InodePath, LayoutSpec, OpenFlags};

const STEPS: u64 = 1500;
const KILLS: u64 = 2;
const LEN_MAX: u64 = 200_000;

/// A way to access the file, with its open descriptors.
enum Way {
    Mount(Mounted, Vec<File>),
    Client(Client<RealEnv>, Vec<OpenFile<RealEnv>>),
}

fn inode_path() -> InodePath {
    InodePath::from_root(b"file".to_vec(), false)
}

impl Way {
    fn open(&mut self, random: &mut Random) {
        match self {
            Way::Mount(mount, open) => {
                let flags = [0, 0, 0, libc::O_DIRECT, libc::O_APPEND][random.below(5) as usize];
                let write = random.below(3) == 0 || flags & libc::O_APPEND != 0;
                let mut options = OpenOptions::new();
                options.read(true).write(write).custom_flags(flags);
                open.push(options.open(mount.at("file")).expect("opened"));
            }
            Way::Client(client, open) => {
                let flags = OpenFlags { read: true, write: random.below(2) == 0, ..OpenFlags::default() };
                let file = block_on(client.open(&inode_path(), flags, 0, &LayoutSpec::default()));
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

    /// Writes at an offset, or at the end if the file was opened to append.
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
            Way::Client(client, _) => block_on(client.stat(&inode_path())).expect("there").size.0,
        }
    }
}

fn flags(file: &File) -> i32 {
    use std::os::fd::AsRawFd;
    // SAFETY: only asks; the descriptor is the file's.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) }
}

/// Returns which of the first 16 pages of the file the kernel caches.
fn kept(file: &File) -> [bool; 16] {
    use std::os::fd::AsRawFd;
    let len = 16 * 4096;
    let mut pages = [0u8; 16];
    // SAFETY: a new mapping, which nobody reads through; there is a byte for each of its pages.
    unsafe {
        let at =
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(libc::mincore(at, len, pages.as_mut_ptr()), 0);
        libc::munmap(at, len);
    }
    pages.map(|page| page & 1 != 0)
}

fn kill_and_restart_metadata(cluster: &Embedded) {
    let metadata = cluster.pids()[0].expect("it runs");
    // SAFETY: a process that this test started.
    unsafe { libc::kill(metadata, libc::SIGKILL) };
    cluster.run(["true"]);
}

#[test]
fn pages_are_cached_until_another_client_writes_or_invalidations_stop() {
    if !mounts::possible() {
        return;
    }
    let cluster = Embedded::started();
    let (a, b) = (Mounted::new(&cluster, "a"), Mounted::new(&cluster, "b"));
    std::fs::write(b.at("file"), vec![1; 16 * 4096]).expect("written");
    let read_of = |file: &File| {
        let mut bytes = vec![0; 16 * 4096];
        file.read_exact_at(&mut bytes, 0).expect("read");
        bytes
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    // Opens keep pages as soon as a new mount listens for invalidations.
    let reader = loop {
        let reader = File::open(a.at("file")).expect("opened");
        assert_eq!(read_of(&reader), vec![1; 16 * 4096]);
        if kept(&reader) == [true; 16] {
            break reader;
        }
        assert!(Instant::now() < deadline, "no pages are cached");
    };
    let read = || read_of(&reader);
    let writer = OpenOptions::new().write(true).open(b.at("file")).expect("opened");
    for round in 2..20 {
        let page = usize::from(round) % 16;
        writer.write_all_at(&[round; 4096], page as u64 * 4096).expect("written");
        let mut wanted = [true; 16];
        wanted[page] = false;
        assert_eq!(kept(&reader), wanted, "only the written pages are dropped, before the write returns");
        assert_eq!(read()[page * 4096..][..4096], [round; 4096]);
        assert_eq!(kept(&reader), [true; 16]);
    }
    writer.set_len(5000).expect("cut");
    assert_eq!(std::fs::read(a.at("file")).expect("read").len(), 5000);
    writer.set_len(16 * 4096).expect("grown");
    assert_eq!(read()[5000..], vec![0; 16 * 4096 - 5000]);
    kill_and_restart_metadata(&cluster);
    while kept(&reader) != [false; 16] {
        assert!(Instant::now() < deadline, "cached pages are not dropped");
    }
    // The sessions of the writer and of the reader are bound again.
    read();
    writer.write_all_at(&[99; 4096], 0).expect("written");
    assert_eq!(read()[..4096], [99; 4096]);
}

#[test]
fn writes_are_visible_through_every_mount_and_client() {
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
            kill_and_restart_metadata(&cluster);
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
                // Whole pages, which direct opens need, or any bytes.
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
                if random.below(2) == 0 {
                    // While a file is open for writing, no other client may start to cache pages.
                    way.close(which);
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

/// The kernel ignores the answer to a query for attributes during which pages are invalidated; each close of a writer
/// invalidates pages.
#[test]
fn reads_see_all_bytes_that_others_have_appended() {
    if !mounts::possible() {
        return;
    }
    const APPENDS: u64 = 400;
    const LEN: u64 = 150;
    let cluster = Embedded::started();
    let (reading, writing) = (Mounted::new(&cluster, "a"), Mounted::new(&cluster, "b"));
    std::fs::write(reading.at("file"), [0; LEN as usize]).expect("made");
    // Closes reach the metadata server after they return; while it knows of a writer, no pages are kept.
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut reader = loop {
        let file = File::open(reading.at("file")).expect("opened");
        file.read_at(&mut [0; LEN as usize], 0).expect("read");
        if kept(&file)[0] {
            break file;
        }
        assert!(Instant::now() < deadline, "no page is kept");
    };
    let appended = AtomicU64::new(LEN);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..APPENDS {
                let mut options = OpenOptions::new();
                let mut file = options.append(true).open(writing.at("file")).expect("opened");
                file.write_all(&[number as u8; LEN as usize]).expect("appended");
                appended.store((number + 1) * LEN, Ordering::Release);
            }
        });
        let mut seen = LEN;
        while seen < APPENDS * LEN {
            let least = appended.load(Ordering::Acquire);
            if least == seen {
                std::hint::spin_loop();
                continue;
            }
            // The kernel asks for the size once, while the writer closes the file.
            let mut bytes = vec![0; 4096.max((least - seen) as usize)];
            let got = reader.read_at(&mut bytes, seen).expect("read") as u64;
            assert!(seen + got >= least, "{got} bytes from {seen}, of at least {least} bytes");
            let wrong = (seen..least).find(|&at| bytes[(at - seen) as usize] != (at / LEN) as u8);
            assert_eq!(wrong, None, "a wrong byte among {least}");
            let end = reader.seek(SeekFrom::End(0)).expect("sought");
            assert!(end >= least, "ends at {end}, after {least} bytes");
            seen = least;
        }
    });
}

/// A file mapped for reading only.
struct ReadMap(*const u8, usize);

impl ReadMap {
    fn new(file: &File, len: usize, how: i32) -> Self {
        use std::os::fd::AsRawFd;
        // SAFETY: a new mapping, of a file that is `len` bytes long.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, how, file.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Self(at.cast_const().cast(), len)
    }

    fn bytes(&self) -> Vec<u8> {
        // SAFETY: the map has this length and lives until drop; volatile, because others change the file.
        (0..self.1).map(|at| unsafe { self.0.add(at).read_volatile() }).collect()
    }
}

impl Drop for ReadMap {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping of this value.
        unsafe { libc::munmap(self.0.cast_mut().cast(), self.1) };
    }
}

#[test]
fn a_mapping_sees_writes_of_others_once_the_writer_has_closed() {
    if !mounts::possible() {
        return;
    }
    const LEN: usize = 5 * 4096 + 77;
    let cluster = Embedded::started();
    let (a, b) = (Mounted::new(&cluster, "a"), Mounted::new(&cluster, "b"));
    let write = |number: u8| {
        OpenOptions::new().write(true).open(b.at("file")).expect("opened").write_all_at(&vec![number; LEN], 0)
    };
    std::fs::write(b.at("file"), vec![0; LEN]).expect("written");
    // Opened without another writer, with another writer, and for writing as well; each with the descriptor closed
    // after mapping and with the descriptor open.
    for (writes_before, write_too) in [(false, false), (true, false), (false, true), (true, true)] {
        for keep_open in [true, false] {
            let what = format!("{writes_before} {write_too} {keep_open}");
            write(0).expect("written");
            let writer = OpenOptions::new().write(true).open(b.at("file")).expect("opened");
            let writer = if writes_before { Some(writer) } else { None };
            let file = OpenOptions::new().read(true).write(write_too).open(a.at("file")).expect("opened");
            let (shared, private) =
                (ReadMap::new(&file, LEN, libc::MAP_SHARED), ReadMap::new(&file, LEN, libc::MAP_PRIVATE));
            let _kept = keep_open.then_some(file);
            assert_eq!((shared.bytes(), private.bytes()), (vec![0; LEN], vec![0; LEN]), "{what}");
            let writer =
                writer.unwrap_or_else(|| OpenOptions::new().write(true).open(b.at("file")).expect("opened"));
            for number in [1, 2] {
                // Twice, with two descriptors of one open: each close counts.
                let again = writer.try_clone().expect("a descriptor");
                again.write_all_at(&vec![number; LEN], 0).expect("written");
                drop(again);
                assert_eq!(shared.bytes(), vec![number; LEN], "{what}");
                assert_eq!(private.bytes(), vec![number; LEN], "{what}");
            }
            drop(writer);
            // Written by a program under `weft run`, and through another open on the other mount.
            cluster.run(["sh", "-c", "printf x | dd of=/weft/file bs=1 seek=4097 conv=notrunc status=none"]);
            assert_eq!(shared.bytes()[4096..4099], [2, b'x', 2], "{what}");
            write(3).expect("written");
            assert_eq!((shared.bytes(), private.bytes()), (vec![3; LEN], vec![3; LEN]), "{what}");
        }
    }
    // A killed writer has closed its files as well.
    let file = File::open(a.at("file")).expect("opened");
    let map = ReadMap::new(&file, LEN, libc::MAP_SHARED);
    drop(file);
    assert_eq!(map.bytes(), vec![3; LEN]);
    let script = "exec 3<>/weft/file; printf y >&3; kill -9 $$";
    let ended = cluster.running(["bash", "-c", script]).status().expect("weft starts");
    assert!(!ended.success());
    let deadline = Instant::now() + Duration::from_secs(20);
    while map.bytes()[0] != b'y' {
        assert!(Instant::now() < deadline, "the pages are dropped");
    }
    // A mapping survives a restart of the metadata server.
    kill_and_restart_metadata(&cluster);
    while {
        write(4).expect("written");
        map.bytes() != vec![4; LEN]
    } {
        assert!(Instant::now() < deadline, "the mount listens again");
    }
}

/// The size of a file is known to all its descriptors, also to those that cannot read it.
#[test]
fn a_descriptor_for_writing_alone_finds_the_end_beside_readers() {
    if !mounts::possible() {
        return;
    }
    let cluster = Embedded::started();
    let mounts = [Mounted::new(&cluster, "a"), Mounted::new(&cluster, "b")];
    let mut writer = File::create(mounts[0].at("file")).expect("created");
    let mut len = 0;
    for step in 0..60_u64 {
        let reader = File::open(mounts[step as usize % 2].at("file")).expect("opened");
        let piece = vec![b'a' + step as u8 % 26; 1 + step as usize * 977 % 9000];
        writer.write_all(&piece).expect("written");
        len += piece.len() as u64;
        assert_eq!(writer.seek(SeekFrom::End(0)).expect("an end"), len, "step {step}");
        let mut last = [0];
        assert_eq!(reader.read_at(&mut last, len - 1).expect("read"), 1);
        assert_eq!((last[0], reader.metadata().expect("attributes").len()), (piece[0], len), "step {step}");
        assert_eq!(writer.seek(SeekFrom::End(0)).expect("an end"), len, "step {step}");
        if step % 7 == 0 {
            drop(reader);
            assert_eq!(writer.seek(SeekFrom::End(0)).expect("an end"), len, "without a reader");
        }
    }
}
