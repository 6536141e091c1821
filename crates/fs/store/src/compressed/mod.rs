//! Compressed datafiles.
//!
//! A datafile is cut into chunks of equal length. Each chunk is stored as a *version*, compressed as a whole, and newer
//! *layers* over parts of it: pieces stored raw, and zeros. All layers of a datafile are its *overlay*.
//!
//! ```text
//! objects/cd/000000000000abcd.1.12          container: a header (see `header`), then versions and pieces
//! objects/cd/000000000000abcd.1.12.map      map: a header, then frames (see `frame`) of records (see `record`)
//! objects/cd/000000000000abcd.1.12.map.new  a checkpoint that is being written
//! ```
//!
//! | module | subject |
//! | --- | --- |
//! | `header`, `frame`, `record` | structures on the disk |
//! | `scan` | reading a map from its bytes |
//! | `chunks` | versions and layers in memory: what the records amount to |
//! | `space` | free units of the container |
//! | `codec` | compression of one chunk |
//! | `coder` | codecs and checksums, or in simulations their model |
//! | `cache` | decompressed chunks |
//! | `buffer` | memory for stored bytes |
//! | `open` | creation, and opening with recovery |
//! | `journal` | appending frames, sync, checkpoints |
//! | `reserve` | space held back for maps on a full device |
//! | `read`, `write`, `fold`, `cut` | operations |
//!
//! # Operations
//!
//! | operation | effect |
//! | --- | --- |
//! | write of a whole chunk | a new version; chunks of zeros become holes |
//! | write of a part of a chunk | a piece. A chunk that its layers cover is folded at once |
//! | fold | version and layers become a new version; on idle, when the overlay reaches its bound, and in [`settle`] |
//! | read | layers, else the version, verified and decompressed, else zeros |
//! | truncation, hole | chunks become holes; zeros are laid over a part of a chunk |
//! | sync | see below |
//!
//! Nothing is ever written over bytes that a record names, with one exception: a piece grows at its end, where nothing
//! is named. No operation of a program reads, modifies and writes a chunk, except one that reaches a bound.
//!
//! # Crash safety
//!
//! Each operation writes its bytes to the container, then a frame to the map, and changes the memory last. None of
//! this is synced. A frame carries two numbers: up to which frame the bytes are *sealed*, and up to which the frames
//! themselves are *durable*.
//!
//! | step of a sync | state after a loss of power |
//! | --- | --- |
//! | sync of the folder and the container | the bytes that frames up to S name are on the disk |
//! | an empty frame M, `sealed` = S | |
//! | sync of the map | frames up to M are on the disk: S is sealed |
//! | space that frames up to S freed is reused from now on | no frame that counts names it |
//! | an empty frame, `durable` = M, unsynced | a broken frame up to M is damage |
//!
//! | event | rule at the next open |
//! | --- | --- |
//! | process killed | all frames count; one that the file ends in was never answered |
//! | loss of power, or of the disk's cache | frames up to the first broken one count. The bytes of frames that are not sealed are verified |
//! | a record whose bytes are missing | does not count: the chunk keeps the bytes before. A checkpoint follows |
//! | two such records whose bytes are the same | the newer one counts. It used space that the older one gave up |
//! | a broken frame that must be durable | damage: every operation fails |
//! | a version or piece that does not match its checksum | damage: reads of its chunk fail |
//!
//! A checkpoint is a new map without replaced records. It is written and synced beside the old map, and renamed over
//! it.
//!
//! A disk may lose its cache while the machine runs on, so an unchanged boot proves nothing: each first open by a process
//! recovers as after a loss of power. Bytes that were not synced are then old or newer, as the disk has them.
//!
//! Both files have a header with the same random number. The one of the container records, after each sync, which frames
//! the map has durably. A missing or shorter map is an error after that. Before, it is an empty datafile.
//!
//! Operations run in boxes: on the stack of each connection's thread, their futures would take space that plain
//! datafiles do not need.
//!
//! `docs/design/compression.md` explains the decisions.
//!
//! [`settle`]: crate::target::Target::settle

mod buffer;
mod cache;
mod chunks;
#[doc(hidden)]
pub mod codec;
mod coder;
mod cut;
mod fold;
mod frame;
mod header;
mod journal;
#[doc(hidden)]
pub mod map_bytes;
mod open;
mod read;
mod record;
mod reserve;
mod scan;
mod space;
mod write;

pub(crate) use cache::ChunkCache;
pub(crate) use open::{Spec, is_blank};
pub(crate) use reserve::MapReserve;

use crate::content::{Fault, Upkeep};
use crate::datafile::{DatafileKey, Names};
use crate::emulate::ChargedFile;
use crate::range_lock::RangeLocks;
use crate::target::FOLD_IDLE;
use chunks::Chunks;
use coder::Coder;
use journal::Journal;
use parking_lot::Mutex;
use record::{Extent, UNIT_BYTES};
use space::Space;
use std::ops::Range;
use std::sync::Arc;
use weft_core::{ByteLen, Compression, LocalOffset, Nanos, Timestamp};
use weft_env::{Env, File, FileMeta};

/// Suffix of a map's name, behind the name of its datafile.
pub const MAP_SUFFIX: &str = ".map";
/// Suffix of the name of a checkpoint that is being written.
pub const NEW_SUFFIX: &str = ".map.new";

/// Returns the names of the files beside a container, relative to the target.
pub(crate) fn side_files(key: DatafileKey) -> [String; 2] {
    [key.name() + MAP_SUFFIX, key.name() + NEW_SUFFIX]
}

/// An open compressed datafile.
pub(crate) struct Compressed<E: Env> {
    env: E,
    key: DatafileKey,
    compression: Compression,
    chunk_len: u64,
    /// Random number that map and container share.
    pair: u64,
    names: Arc<Names<E>>,
    upkeep: Arc<Upkeep<E>>,
    reserve: Arc<MapReserve<E>>,
    cache: Arc<ChunkCache>,
    read_position: Mutex<read::ReadPosition>,
    coder: Coder,
    container: ChargedFile<E>,
    /// Chunks, locked while they change. A task that holds a chunk waits for no lower one.
    locks: RangeLocks<E>,
    /// Locked while the overlay is folded because it has reached its bound.
    folds: RangeLocks<E>,
    journal: Journal<E>,
    /// Locked for moments; never over an `await`.
    state: Mutex<State>,
}

/// State in memory, which always equals the frames of the map.
struct State {
    chunks: Chunks,
    space: Space,
    /// Number of the last frame.
    last: u64,
    /// Number of the last frame that changed the datafile, which those of a checkpoint do not.
    last_change: u64,
    /// Time of the first change since the datafile was settled.
    unsettled_since: Option<Nanos>,
    changed_at: Nanos,
}

/// Size and fragmentation of a compressed datafile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkStats {
    /// How the datafile is compressed.
    pub compression: Compression,
    /// Bytes that versions and pieces occupy.
    pub stored: ByteLen,
    /// Bytes that pieces occupy.
    pub overlay: ByteLen,
    /// Bytes of the container from its start to the last one in use.
    pub span: ByteLen,
    /// Number of separate free extents in between.
    pub free_extents: u64,
}

impl<E: Env> Compressed<E> {
    /// Returns size and fragmentation.
    pub fn stats(&self) -> ChunkStats {
        let state = self.state.lock();
        ChunkStats {
            compression: self.compression,
            stored: ByteLen(state.chunks.stored()),
            overlay: ByteLen(state.chunks.overlay_size().0),
            span: ByteLen(state.space.end() * UNIT_BYTES),
            free_extents: state.space.free_extents(),
        }
    }

    /// Returns the number of the first chunk that `start..end` touches, and one past the last.
    fn chunks_of(&self, start: u64, end: u64) -> Range<u64> {
        start / self.chunk_len..end.div_ceil(self.chunk_len)
    }

    /// Returns the error of a damaged chunk, and counts it.
    fn damaged(&self, chunk: u64) -> Fault {
        self.upkeep.note_damage(self.key, chunk);
        let start = chunk * self.chunk_len;
        let end = (start + self.chunk_len).min(self.state.lock().chunks.len()).max(start + 1);
        Fault::Damaged(start..end)
    }

    pub async fn meta(&self) -> Result<FileMeta, Fault> {
        let container = self.container.file.meta().await?;
        let map = self.journal.map().meta().await?;
        // The system sets the time of the map with each change of the datafile.
        Ok(FileMeta {
            len: ByteLen(self.state.lock().chunks.len()),
            blocks_512: container.blocks_512 + map.blocks_512,
            mtime: map.mtime,
            ..FileMeta::default()
        })
    }

    pub async fn set_mtime(&self, mtime: Timestamp) -> Result<(), Fault> {
        Ok(self.journal.set_mtime(mtime).await?)
    }

    pub async fn forget(&self) -> Result<(), Fault> {
        self.cache.forget(self.pair);
        self.container.file.forget().await?;
        Ok(self.journal.map().forget().await?)
    }

    pub async fn seek_data(&self, offset: LocalOffset) -> Result<Option<LocalOffset>, Fault> {
        Ok(self.state.lock().chunks.seek_data(offset.0).map(LocalOffset))
    }

    pub async fn seek_hole(&self, offset: LocalOffset) -> Result<LocalOffset, Fault> {
        Ok(LocalOffset(self.state.lock().chunks.seek_hole(offset.0)))
    }

    /// Returns the times of the first and last change since the datafile was settled; `None` if nothing is left to do.
    pub fn unsettled(&self) -> Option<(Nanos, Nanos)> {
        let state = self.state.lock();
        state.unsettled_since.map(|since| (since, state.changed_at))
    }

    /// Takes the processor time of coding, where codecs do not take it themselves.
    async fn spend(&self, time: Nanos) {
        if time > Nanos::ZERO {
            self.env.sleep(time).await;
        }
    }

    /// Records a change, after which there is work for idle times.
    fn note_change(&self, state: &mut State) {
        let now = self.env.tick();
        state.changed_at = now;
        if state.unsettled_since.is_none() {
            state.unsettled_since = Some(now);
            self.upkeep.note_unsettled(self.key, FOLD_IDLE);
        }
    }
}

impl<E: Env> Drop for Compressed<E> {
    fn drop(&mut self) {
        self.cache.forget(self.pair);
    }
}

/// Returns the offset and length in bytes of an extent.
fn bytes_of(extent: Extent) -> (LocalOffset, ByteLen) {
    (LocalOffset(extent.offset()), ByteLen(extent.units * UNIT_BYTES))
}
