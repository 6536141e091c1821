//! Chunks in memory: decompressed ones, which reads of their parts use again, and stored bytes that were read ahead.

use super::record::Version;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// Maximum number of bytes that a target keeps of each kind.
const CACHE_BYTES: usize = 16 << 20;
/// Maximum number of chunks, because they are searched one by one.
const CHUNKS_MAX: usize = 256;

/// Identifies a version: versions never change, and a place with another version has another checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CacheKey {
    /// Number of the pair of map and container.
    pub pair: u64,
    /// Number of the chunk.
    pub chunk: u64,
    /// Version of the chunk.
    pub version: Version,
}

/// The last chunks of all datafiles of a target.
#[derive(Default)]
pub(crate) struct ChunkCache {
    /// Decompressed bytes.
    pub decompressed: Kept,
    /// Stored bytes that a sequential reader will ask for. They are not verified.
    pub ahead: Kept,
}

impl ChunkCache {
    /// Drops the chunks of a datafile.
    pub fn forget(&self, pair: u64) {
        self.decompressed.forget(pair);
        self.ahead.forget(pair);
    }
}

/// Chunks that are kept until others need their memory.
#[derive(Default)]
pub(crate) struct Kept(Mutex<Cached>);

#[derive(Default)]
struct Cached {
    /// Least recently used first.
    chunks: VecDeque<(CacheKey, Arc<Vec<u8>>)>,
    bytes: usize,
}

impl Kept {
    /// Returns true if a version is kept.
    pub fn contains(&self, key: &CacheKey) -> bool {
        self.0.lock().chunks.iter().any(|(of, _)| of == key)
    }

    /// Removes a version, and returns its bytes.
    pub fn take(&self, key: &CacheKey) -> Option<Arc<Vec<u8>>> {
        let mut cached = self.0.lock();
        let at = cached.chunks.iter().position(|(of, _)| of == key)?;
        let (_, bytes) = cached.chunks.remove(at)?;
        cached.bytes -= bytes.len();
        Some(bytes)
    }

    /// Returns the bytes of a version.
    pub fn get(&self, key: &CacheKey) -> Option<Arc<Vec<u8>>> {
        let mut cached = self.0.lock();
        let at = cached.chunks.iter().rposition(|(of, _)| of == key)?;
        let found = cached.chunks.remove(at)?;
        let bytes = Arc::clone(&found.1);
        cached.chunks.push_back(found);
        Some(bytes)
    }

    /// Keeps the bytes of a version for a while.
    pub fn put(&self, key: CacheKey, bytes: Arc<Vec<u8>>) {
        let mut dropped = Vec::new(); // Freed after the lock is released.
        let mut cached = self.0.lock();
        if cached.chunks.iter().any(|(of, _)| *of == key) {
            return;
        }
        cached.bytes += bytes.len();
        cached.chunks.push_back((key, bytes));
        while (cached.bytes > CACHE_BYTES || cached.chunks.len() > CHUNKS_MAX)
            && let Some(oldest) = cached.chunks.pop_front()
        {
            cached.bytes -= oldest.1.len();
            dropped.push(oldest);
        }
        drop(cached);
    }

    fn forget(&self, pair: u64) {
        let mut cached = self.0.lock();
        cached.chunks.retain(|(key, _)| key.pair != pair);
        cached.bytes = cached.chunks.iter().map(|(_, bytes)| bytes.len()).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressed::codec::Codec;

    fn key(pair: u64, chunk: u64) -> CacheKey {
        let version = Version { at: 1, stored: 1, len: 9, crc: 0, codec: Codec::Lz4 };
        CacheKey { pair, chunk, version }
    }

    #[test]
    fn the_least_recently_used_chunk_goes_first() {
        let cache = Kept::default();
        for chunk in 0..16 {
            cache.put(key(1, chunk), vec![chunk as u8; 1 << 20].into());
        }
        assert_eq!(cache.get(&key(1, 0)).expect("cached")[0], 0);
        cache.put(key(2, 0), vec![9; 1 << 20].into());
        assert!(cache.get(&key(1, 1)).is_none() && cache.get(&key(1, 0)).is_some());
        let other = CacheKey { version: Version { crc: 1, ..key(1, 2).version }, ..key(1, 2) };
        assert!(cache.get(&other).is_none(), "another version");
        cache.forget(1);
        assert!(cache.get(&key(1, 0)).is_none() && cache.get(&key(2, 0)).is_some());
        assert_eq!(cache.0.lock().bytes, 1 << 20);
        (0..1000).for_each(|chunk| cache.put(key(3, chunk), vec![0; 1].into()));
        assert_eq!(cache.0.lock().chunks.len(), CHUNKS_MAX);
        assert!(cache.take(&key(3, 998)).is_some() && !cache.contains(&key(3, 998)));
        assert_eq!(cache.0.lock().bytes, CHUNKS_MAX - 1);
    }
}
