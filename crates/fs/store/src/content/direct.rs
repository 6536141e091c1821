//! The direct I/O module (`O_DIRECT`), which bypasses the page cache.
//!
//! | part of a write | how it is written |
//! | --- | --- |
//! | whole blocks | directly |
//! | block covered in part | read, modified and written directly, under a lock on its range |
//! | block that would end past the end of the datafile | through the page cache |
//!
//! A direct write always writes whole blocks, so it would extend the datafile past its exact length; hence the last
//! row. The kernel keeps the page cache coherent with direct I/O. The length is exact at any moment, also after a
//! crash.

use crate::aligned::AlignedBuf;
use crate::range_lock::RangeLocks;
use std::io::{self, IoSlice, IoSliceMut};
use weft_core::{ByteLen, LocalOffset};
use weft_env::{Env, File};

/// Alignment in bytes of offsets, lengths and memory. Devices require 512 or 4,096; the larger satisfies both.
pub const BLOCK: usize = 4096;
/// Maximum number of bytes copied at a time when the caller's buffer is not aligned.
const BOUNCE_LEN: usize = 1 << 20;

/// A file that is read and written past the page cache.
pub(crate) struct DirectFile<E: Env> {
    pub direct: E::File,
    /// A descriptor through the page cache, for the block at the end of the file.
    pub buffered: E::File,
    /// Byte ranges, locked while blocks that are covered in part change.
    pub ranges: RangeLocks<E>,
}

fn floor(at: u64) -> u64 {
    at - at % BLOCK as u64
}

fn ceil(at: u64) -> u64 {
    at.next_multiple_of(BLOCK as u64)
}

/// Reads until `buf` is full or the datafile ends.
pub(super) async fn read<E: Env>(
    file: &DirectFile<E>,
    offset: LocalOffset,
    buf: &mut [u8],
) -> io::Result<usize> {
    let lies_well = offset.0.is_multiple_of(BLOCK as u64)
        && buf.len().is_multiple_of(BLOCK)
        && buf.as_ptr().addr().is_multiple_of(BLOCK);
    if lies_well {
        return file.direct.read_at(&mut [IoSliceMut::new(buf)], offset).await;
    }
    let (start, end) = (offset.0, offset.0 + buf.len() as u64);
    let mut bounce = AlignedBuf::zeroed(bounce_len(start, end));
    let mut at = start;
    while at < end {
        let from = floor(at);
        let to = ceil(end).min(from + bounce.len() as u64);
        let room = &mut bounce[..(to - from) as usize];
        let got = file.direct.read_at(&mut [IoSliceMut::new(room)], LocalOffset(from)).await? as u64;
        let upto = (from + got).min(end);
        if upto > at {
            let (to_at, len) = ((at - start) as usize, (upto - at) as usize);
            buf[to_at..to_at + len].copy_from_slice(&bounce[(at - from) as usize..][..len]);
            at = upto;
        }
        if from + got < to {
            break; // The datafile ended.
        }
    }
    Ok((at - start) as usize)
}

/// Writes all of `bytes`.
pub(super) async fn write<E: Env>(file: &DirectFile<E>, offset: LocalOffset, bytes: &[u8]) -> io::Result<()> {
    let (start, end) = (offset.0, offset.0 + bytes.len() as u64);
    if start == end {
        return Ok(());
    }
    // The datafile can only shrink under a lock that overlaps this one (see `set_len`).
    let _guard = file.ranges.lock(floor(start), ceil(end)).await;
    let tail = floor(end);
    // From `tail` on, use the page cache if the last block would end past the end of the datafile.
    let direct_end = if end == tail || ceil(end) <= file.direct.meta().await?.len.0 { end } else { tail };
    if start < direct_end {
        write_blocks(file, start, &bytes[..(direct_end - start) as usize]).await?;
    }
    let from = direct_end.max(start);
    if from < end {
        let rest = IoSlice::new(&bytes[(from - start) as usize..]);
        file.buffered.write_at(&[rest], LocalOffset(from)).await?;
    }
    Ok(())
}

/// Writes bytes whose blocks end within the datafile or are covered to their end.
async fn write_blocks<E: Env>(file: &DirectFile<E>, start: u64, bytes: &[u8]) -> io::Result<()> {
    let end = start + bytes.len() as u64;
    if start == floor(start) && bytes.as_ptr().addr().is_multiple_of(BLOCK) {
        let whole = (floor(end) - start) as usize;
        if whole > 0 {
            file.direct.write_at(&[IoSlice::new(&bytes[..whole])], LocalOffset(start)).await?;
        }
        if floor(end) == end {
            return Ok(());
        }
        return write_bounced(file, floor(end), &bytes[whole..]).await;
    }
    write_bounced(file, start, bytes).await
}

async fn write_bounced<E: Env>(file: &DirectFile<E>, start: u64, bytes: &[u8]) -> io::Result<()> {
    let end = start + bytes.len() as u64;
    let mut bounce = AlignedBuf::zeroed(bounce_len(start, end));
    let mut at = start;
    while at < end {
        let from = floor(at);
        let to = ceil(end).min(from + bounce.len() as u64);
        let upto = to.min(end);
        let room = &mut bounce[..(to - from) as usize];
        // Edges that keep old bytes; zeros past the end of the datafile.
        if at != from {
            fill_block(file, from, &mut room[..BLOCK]).await?;
        }
        if upto != to && (at == from || to - from > BLOCK as u64) {
            let last = room.len() - BLOCK;
            fill_block(file, to - BLOCK as u64, &mut room[last..]).await?;
        }
        let len = (upto - at) as usize;
        room[(at - from) as usize..][..len].copy_from_slice(&bytes[(at - start) as usize..][..len]);
        file.direct.write_at(&[IoSlice::new(room)], LocalOffset(from)).await?;
        at = upto;
    }
    Ok(())
}

async fn fill_block<E: Env>(file: &DirectFile<E>, at: u64, block: &mut [u8]) -> io::Result<()> {
    let got = file.direct.read_at(&mut [IoSliceMut::new(block)], LocalOffset(at)).await?;
    block[got..].fill(0);
    Ok(())
}

fn bounce_len(start: u64, end: u64) -> usize {
    ((ceil(end) - floor(start)) as usize).min(BOUNCE_LEN)
}

/// Punches a hole.
pub(super) async fn punch<E: Env>(file: &DirectFile<E>, offset: LocalOffset, len: ByteLen) -> io::Result<()> {
    // The lock keeps concurrent writes from combining old bytes of an edge block with new ones.
    let _guard = file.ranges.lock(floor(offset.0), ceil(offset.0 + len.0)).await;
    file.buffered.punch(offset, len).await
}

/// Truncates or extends to `len`.
pub(super) async fn set_len<E: Env>(file: &DirectFile<E>, len: ByteLen) -> io::Result<()> {
    let _guard = file.ranges.lock(floor(len.0), u64::MAX).await;
    file.buffered.set_len(len).await
}
