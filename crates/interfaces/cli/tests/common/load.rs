//! Clients that use files of their own and keep a model of the acknowledged operations, while servers are killed.

use super::Random;
use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weft_client::{Client, OpenFile};
use weft_config::Cluster;
use weft_core::{ByteLen, FileOffset};
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{InodePath, LayoutSpec, OpenFlags};

const FILES_MAX: usize = 6;
const LEN_MAX: u64 = 3 << 20;
/// A client whose requests gave up leaves a dead server alone for up to ten seconds, even if it is back. The kills of a test
/// take as long.
const BACK_WITHIN: Duration = Duration::from_secs(60);
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// Expected state of a file: its bytes, and alternatives where a failed operation left them open.
#[derive(Clone, Default)]
struct Model {
    bytes: Vec<u8>,
    unsure: Vec<bool>,
    /// Possible lengths after a failed truncation or a failed write at the end.
    lens: Vec<usize>,
}

impl Model {
    fn grow(&mut self, len: usize) {
        if len > self.bytes.len() {
            self.bytes.resize(len, 0);
            self.unsure.resize(len, false);
        }
    }

    /// Compares the model with the bytes that were read and resolves its alternatives.
    fn settle(&mut self, found: &[u8], what: &str) {
        let mut lens = std::mem::take(&mut self.lens);
        lens.push(self.bytes.len());
        assert!(lens.contains(&found.len()), "{what}: {} bytes, expected one of {lens:?}", found.len());
        for (at, byte) in found.iter().enumerate() {
            let (wanted, unsure) = match self.bytes.get(at) {
                Some(wanted) => (*wanted, self.unsure[at]),
                None => (0, true), // beyond what the model kept: a failed operation may have put it there
            };
            assert!(unsure || *byte == wanted, "{what}: byte {at} is {byte}, expected {wanted}");
        }
        *self = Self { bytes: found.to_vec(), unsure: vec![false; found.len()], lens: Vec::new() };
    }
}

/// A client with a directory of its own.
pub struct Worker<'a> {
    client: Client<RealEnv>,
    dir: String,
    random: Random,
    files: BTreeMap<String, Model>,
    next: u64,
    done: &'a AtomicU64,
    /// Number of operations that failed in an outage.
    pub failed: u64,
}

fn inode_path(path: &str) -> InodePath {
    InodePath::from_root(path.as_bytes().to_vec(), false)
}

const WRITE: OpenFlags = OpenFlags { write: true, ..OpenFlags::READ };

impl<'a> Worker<'a> {
    /// Creates worker `index` of a load with this seed on the cluster of `file`. It adds its operations to `done`.
    pub fn new(file: &Path, index: u64, seed: u64, done: &'a AtomicU64) -> Self {
        let config = Cluster::load(file).unwrap_or_else(|error| panic!("{error}"));
        let mut options = config.client_options();
        // Half of the workers see outages as errors, the others wait for the servers.
        options.retry_for = weft_core::Nanos::from_ms(if index.is_multiple_of(2) { 100 } else { 10_000 });
        let credentials = config.credentials().unwrap_or_else(|error| panic!("{error}"));
        let client = Client::new(RealEnv::new(), config.map(), options, credentials);
        let dir = format!("w{index}");
        block_on(client.mkdir(&inode_path(&dir), 0o700)).expect("a directory");
        let random = Random::new(seed ^ (index + 1));
        Self { client, dir, random, files: BTreeMap::new(), next: 0, done, failed: 0 }
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.dir)
    }

    fn open(&self, name: &str, create: bool) -> weft_client::Result<OpenFile<RealEnv>> {
        let flags = OpenFlags { create, exclusive: create, ..WRITE };
        let spec = LayoutSpec { stripe_size: Some(ByteLen::from_kib(64)), ..LayoutSpec::default() };
        block_on(self.client.open(&inode_path(&self.path(name)), flags, 0o600, &spec))
    }

    /// Retries until the servers are back, for results that the model needs.
    fn surely<T>(&self, what: &str, mut ask: impl FnMut() -> weft_client::Result<T>) -> T {
        let deadline = Instant::now() + BACK_WITHIN;
        loop {
            match ask() {
                Ok(found) => return found,
                Err(error) if [libc::EIO, libc::ESTALE].contains(&error.errno()) => {
                    assert!(Instant::now() < deadline, "{what}: the servers are not back: {error}");
                    std::thread::sleep(ASK_AGAIN);
                }
                Err(error) => panic!("{what}: {error}"),
            }
        }
    }

    fn exists(&self, name: &str) -> bool {
        let path = self.path(name);
        self.surely(&path, || match block_on(self.client.stat(&inode_path(&path))) {
            Ok(_) => Ok(true),
            Err(error) if error.errno() == libc::ENOENT => Ok(false),
            Err(error) => Err(error),
        })
    }

    fn read_all(&self, name: &str) -> Vec<u8> {
        self.surely(name, || {
            let open = self.open(name, false)?;
            let size = block_on(open.size())?.0 as usize;
            let mut found = vec![0; size + 1];
            let got = block_on(open.read_at(&mut [IoSliceMut::new(&mut found)], FileOffset(0)))?;
            assert_eq!(got, size, "{name}: size and bytes read");
            found.truncate(got);
            Ok(found)
        })
    }

    fn verify(&mut self, name: &str) {
        let found = self.read_all(name);
        let what = self.path(name);
        self.files.get_mut(name).expect("known").settle(&found, &what);
    }

    fn some_name(&mut self) -> Option<String> {
        let count = self.files.len() as u64;
        if count == 0 {
            return None;
        }
        let index = self.random.below(count) as usize;
        self.files.keys().nth(index).cloned()
    }

    /// Performs one random operation.
    pub fn step(&mut self) {
        let action = self.random.below(100);
        let result = match (action, self.some_name()) {
            (0..12, _) | (_, None) if self.files.len() < FILES_MAX => self.create(),
            (_, Some(name)) => match action {
                0..55 => self.write(&name),
                55..65 => self.truncate(&name),
                65..75 => self.sync(&name),
                75..83 => self.rename(&name),
                83..88 => self.remove(&name),
                _ => {
                    self.verify(&name);
                    Ok(())
                }
            },
            (_, None) => Ok(()),
        };
        self.done.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = result {
            assert!([libc::EIO, libc::ESTALE].contains(&error.errno()), "an outage looks like one: {error}");
            self.failed += 1;
        }
    }

    fn create(&mut self) -> weft_client::Result<()> {
        let name = format!("f{}", self.next);
        self.next += 1;
        match self.open(&name, true) {
            Ok(_) => {
                self.files.insert(name, Model::default());
                Ok(())
            }
            Err(error) => {
                if self.exists(&name) {
                    self.files.insert(name, Model::default());
                }
                Err(error)
            }
        }
    }

    fn write(&mut self, name: &str) -> weft_client::Result<()> {
        let at = self.random.below(LEN_MAX);
        let len = match self.random.below(4) {
            0 => 1 + self.random.below(100),
            1 => 47_008,
            _ => 1 + self.random.below(300_000),
        };
        let fill = self.random.next();
        let bytes: Vec<u8> =
            (0..len).map(|i| (fill.wrapping_add(i).wrapping_mul(0x9e37_79b9) >> 16) as u8).collect();
        let open = self.open(name, false)?;
        let result = block_on(open.write_at(&[IoSlice::new(&bytes)], FileOffset(at)));
        let (at, end) = (at as usize, (at + len) as usize);
        let model = self.files.get_mut(name).expect("known");
        match result {
            Ok(wrote) => {
                assert_eq!(wrote, bytes.len());
                model.grow(end);
                model.bytes[at..end].copy_from_slice(&bytes);
                model.unsure[at..end].fill(false);
                Ok(())
            }
            Err(error) => {
                // Any of the pieces may have been written, so the file may end after any of them.
                let before = model.bytes.len();
                model.grow(end);
                model.unsure[at..end].fill(true);
                let found = self.read_all(name).len();
                let allowed = found == before || (found > before.min(at) && found <= end);
                assert!(
                    allowed,
                    "{name}: {found} bytes after a failed write of {at}..{end} to {before} bytes"
                );
                self.files.get_mut(name).expect("known").lens.push(found);
                self.verify(name);
                Err(error)
            }
        }
    }

    fn truncate(&mut self, name: &str) -> weft_client::Result<()> {
        let len = self.random.below(LEN_MAX) as usize;
        let result = block_on(self.client.truncate(&inode_path(&self.path(name)), ByteLen(len as u64)));
        let model = self.files.get_mut(name).expect("known");
        match result {
            Ok(()) => {
                model.bytes.resize(len, 0);
                model.unsure.resize(len, false);
                Ok(())
            }
            Err(error) => {
                // Some datafiles may have been truncated, so the operation is repeated until it succeeds.
                let path = self.path(name);
                self.surely(&path, || {
                    block_on(self.client.truncate(&inode_path(&path), ByteLen(len as u64)))
                });
                let model = self.files.get_mut(name).expect("known");
                model.bytes.resize(len, 0);
                model.unsure.resize(len, false);
                Err(error)
            }
        }
    }

    fn sync(&mut self, name: &str) -> weft_client::Result<()> {
        let open = self.open(name, false)?;
        block_on(open.sync())
    }

    fn rename(&mut self, name: &str) -> weft_client::Result<()> {
        let to = format!("r{}", self.next);
        self.next += 1;
        let result = block_on(self.client.rename(
            &inode_path(&self.path(name)),
            &inode_path(&self.path(&to)),
            true,
            false,
        ));
        let moved = match &result {
            Ok(()) => true,
            Err(_) => {
                let (old, new) = (self.exists(name), self.exists(&to));
                assert!(old != new, "{name} to {to}: exactly one of the names is there");
                new
            }
        };
        if moved {
            let model = self.files.remove(name).expect("known");
            self.files.insert(to, model);
        }
        result
    }

    fn remove(&mut self, name: &str) -> weft_client::Result<()> {
        let result = block_on(self.client.unlink(&inode_path(&self.path(name))));
        if result.is_ok() || !self.exists(name) {
            self.files.remove(name);
        }
        result
    }

    /// Runs a worker until `stop` is set, then compares all files. Returns the number of failed operations.
    pub fn until(stop: &AtomicBool, file: &Path, index: u64, seed: u64, done: &'a AtomicU64) -> u64 {
        let mut worker = Self::new(file, index, seed, done);
        while !stop.load(Ordering::Relaxed) {
            worker.step();
        }
        worker.verify_all();
        worker.failed
    }

    /// Checks that the directory holds exactly the files of the model.
    pub fn verify_all(&mut self) {
        let listed =
            self.surely("list", || block_on(self.client.list(&inode_path(&self.dir), b"", 1000, false)));
        let names: Vec<_> = listed.0.iter().map(|e| String::from_utf8_lossy(&e.name).into_owned()).collect();
        let wanted: Vec<_> = self.files.keys().cloned().collect();
        assert_eq!(names, wanted, "names in {}", self.dir);
        wanted.iter().for_each(|name| self.verify(name));
    }
}
