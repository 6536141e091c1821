//! Random operations of several clients on a few files, compared with a model in memory.

use super::{at, open, pattern, read, write};
use std::io::IoSlice;
use weft_client::{Client, OpenFile};
use weft_core::random::SplitMix64;
use weft_core::{ByteLen, FileOffset};
use weft_env::Env;

/// Random number generator for all choices of a run.
pub struct Random(SplitMix64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    fn offset(&mut self) -> u64 {
        match self.below(4) {
            0 => self.below(200_000),
            1 => self.below(12) * 65_536,
            2 => self.below(16) * 47_008,
            _ => self.below(1_500_000),
        }
    }

    fn len(&mut self) -> usize {
        (match self.below(6) {
            0 => self.below(64),
            1 => 47_008,
            2 => 65_536,
            3 => self.below(20_000),
            4 => self.below(300_000),
            _ => 1 + self.below(4096),
        }) as usize
    }
}

/// A file: its handles, one for each client, and its bytes.
struct Modeled<E: Env> {
    name: String,
    handles: Vec<OpenFile<E>>,
    bytes: Vec<u8>,
}

impl<E: Env> Modeled<E> {
    async fn new(clients: &[Client<E>], name: String, stripe: u64) -> Self {
        let mut handles = Vec::new();
        for client in clients {
            handles.push(open(client, &name, stripe).await);
        }
        Self { name, handles, bytes: Vec::new() }
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[offset..end].copy_from_slice(bytes);
    }

    fn get(&self, offset: usize, len: usize) -> &[u8] {
        let end = (offset + len).min(self.bytes.len());
        &self.bytes[offset.min(end)..end]
    }
}

/// Runs `steps` random operations. `between` is called with the number of each operation before it, to restart a
/// server, say.
pub async fn run<E: Env>(seed: u64, steps: u64, clients: &[Client<E>], mut between: impl AsyncFnMut(u64)) {
    let mut random = Random::new(seed);
    let mut files = Vec::new();
    let mut names = 0..;
    let stripes = [65_536, 4096, 47_008, 1000, 1 << 20];
    for stripe in &stripes[..3] {
        let name = format!("{seed}-{}", names.next().expect("endless"));
        files.push(Modeled::new(clients, name, *stripe).await);
    }
    for step in 0..steps {
        between(step).await;
        let client_index = random.below(clients.len() as u64) as usize;
        let which = random.below(files.len() as u64) as usize;
        let file = &mut files[which];
        let handle = file.handles[client_index].clone();
        let (offset, len) = (random.offset(), random.len());
        match random.below(20) {
            0..8 => {
                let bytes = pattern(len, step);
                write(&handle, offset, &bytes).await;
                file.put(offset as usize, &bytes);
            }
            8..15 => {
                let got = read(&handle, offset, len).await;
                let want = file.get(offset as usize, len);
                assert!(
                    got == want,
                    "seed {seed}, step {step}: {} of {len} bytes at {offset} of {} (expected {}), first wrong at {:?}",
                    got.len(),
                    file.name,
                    want.len(),
                    got.iter().zip(want).position(|(a, b)| a != b)
                );
            }
            15 => {
                let size = random.offset();
                handle.truncate(ByteLen(size)).await.expect("truncates");
                file.bytes.resize(size as usize, 0);
            }
            16 => {
                let bytes = pattern(len.max(1), step);
                let (where_, count) = handle.append(&[IoSlice::new(&bytes)]).await.expect("appends");
                assert_eq!(
                    (where_, count),
                    (FileOffset(file.bytes.len() as u64), bytes.len()),
                    "seed {seed}"
                );
                file.put(where_.0 as usize, &bytes);
            }
            17 => {
                assert_eq!(
                    handle.size().await.expect("size").0,
                    file.bytes.len() as u64,
                    "seed {seed}, step {step}"
                );
                let attr = clients[client_index].stat(&at(&file.name)).await.expect("stat");
                assert_eq!(attr.size.0, file.bytes.len() as u64, "seed {seed}, step {step}");
            }
            18 => handle.sync().await.expect("syncs"),
            _ => {
                // The name is removed; open handles still read the bytes.
                clients[client_index].unlink(&at(&file.name)).await.expect("unlinks");
                assert_eq!(clients[client_index].stat(&at(&file.name)).await.expect_err("gone").errno(), 2);
                let other = &file.handles[(client_index + 1) % clients.len()];
                assert!(read(other, 0, file.bytes.len() + 1).await == file.bytes, "seed {seed}, step {step}");
                let name = format!("{seed}-{}", names.next().expect("endless"));
                let stripe = stripes[random.below(stripes.len() as u64) as usize];
                files[which] = Modeled::new(clients, name, stripe).await;
            }
        }
    }
    for file in &files {
        for handle in &file.handles {
            assert!(
                read(handle, 0, file.bytes.len() + 100).await == file.bytes,
                "seed {seed}: {}",
                file.name
            );
        }
    }
}
