//! The module that goes past the page cache (`O_DIRECT`).
//!
//! Whole blocks go directly. A block that a write covers in part is read, changed and written under a lock on its
//! range, so that two writers of one block cannot undo each other. The block that would end past the end of the
//! datafile cannot go directly, since a direct write always writes it whole and so would make the datafile longer:
//! it goes through the page cache, which the kernel keeps coherent with direct I/O. So the length is exact at any
//! moment, after a crash too.

use crate::aligned::AlignedBuf;
use crate::datafile::{Datafile, DirectParts};
use std::io::{self, IoSlice, IoSliceMut};
use weft_core::{ByteLen, LocalOffset};
use weft_env::{Env, File};

/// What offsets, lengths and memory are aligned to. Devices ask for 512 or 4,096; the larger serves both.
pub const BLOCK: usize = 4096;
/// The most that is copied at once where the caller's bytes do not lie as the device needs them.
const BOUNCE_LEN: usize = 1 << 20;

fn floor(at: u64) -> u64 {
    at - at % BLOCK as u64
}

fn ceil(at: u64) -> u64 {
    at.next_multiple_of(BLOCK as u64)
}

fn parts<E: Env>(datafile: &Datafile<E>) -> &DirectParts<E> {
    datafile.direct.as_ref().expect("opened by the direct module")
}

/// Reads until `buf` is full or the datafile ends.
pub(crate) async fn read<E: Env>(
    datafile: &Datafile<E>,
    offset: LocalOffset,
    buf: &mut [u8],
) -> io::Result<usize> {
    let lies_well = offset.0.is_multiple_of(BLOCK as u64)
        && buf.len().is_multiple_of(BLOCK)
        && buf.as_ptr().addr().is_multiple_of(BLOCK);
    if lies_well {
        return datafile.file.read_at(&mut [IoSliceMut::new(buf)], offset).await;
    }
    let (start, end) = (offset.0, offset.0 + buf.len() as u64);
    let mut bounce = AlignedBuf::zeroed(bounce_len(start, end));
    let mut at = start;
    while at < end {
        let from = floor(at);
        let to = ceil(end).min(from + bounce.len() as u64);
        let room = &mut bounce[..(to - from) as usize];
        let got = datafile.file.read_at(&mut [IoSliceMut::new(room)], LocalOffset(from)).await? as u64;
        let upto = (from + got).min(end);
        if upto > at {
            let (to_at, len) = ((at - start) as usize, (upto - at) as usize);
            buf[to_at..to_at + len].copy_from_slice(&bounce[(at - from) as usize..][..len]);
            at = upto;
        }
        if from + got < to {
            break; // the datafile ended
        }
    }
    Ok((at - start) as usize)
}

/// Writes all of `bytes`.
pub(crate) async fn write<E: Env>(
    datafile: &Datafile<E>,
    offset: LocalOffset,
    bytes: &[u8],
) -> io::Result<()> {
    let (start, end) = (offset.0, offset.0 + bytes.len() as u64);
    if start == end {
        return Ok(());
    }
    // The length can only shrink under a lock that overlaps ours (see `set_len`).
    let _guard = parts(datafile).ranges.lock(floor(start), ceil(end)).await;
    let tail = floor(end);
    // From here on through the page cache: the last block, where it would end past the end of the datafile.
    let direct_end = if end == tail || ceil(end) <= datafile.file.meta().await?.len.0 { end } else { tail };
    if start < direct_end {
        write_blocks(datafile, start, &bytes[..(direct_end - start) as usize]).await?;
    }
    let from = direct_end.max(start);
    if from < end {
        let rest = IoSlice::new(&bytes[(from - start) as usize..]);
        parts(datafile).buffered.write_at(&[rest], LocalOffset(from)).await?;
    }
    Ok(())
}

/// Writes `bytes`, all of whose blocks either end within the datafile or are covered to their end.
async fn write_blocks<E: Env>(datafile: &Datafile<E>, start: u64, bytes: &[u8]) -> io::Result<()> {
    let end = start + bytes.len() as u64;
    if start == floor(start) && bytes.as_ptr().addr().is_multiple_of(BLOCK) {
        let whole = (floor(end) - start) as usize;
        if whole > 0 {
            datafile.file.write_at(&[IoSlice::new(&bytes[..whole])], LocalOffset(start)).await?;
        }
        if floor(end) == end {
            return Ok(());
        }
        return write_bounced(datafile, floor(end), &bytes[whole..]).await;
    }
    write_bounced(datafile, start, bytes).await
}

async fn write_bounced<E: Env>(datafile: &Datafile<E>, start: u64, bytes: &[u8]) -> io::Result<()> {
    let end = start + bytes.len() as u64;
    let mut bounce = AlignedBuf::zeroed(bounce_len(start, end));
    let mut at = start;
    while at < end {
        let from = floor(at);
        let to = ceil(end).min(from + bounce.len() as u64);
        let upto = to.min(end);
        let room = &mut bounce[..(to - from) as usize];
        // The edges that keep old bytes. Past the end of the datafile these are zeros.
        if at != from {
            fill_block(datafile, from, &mut room[..BLOCK]).await?;
        }
        if upto != to && (at == from || to - from > BLOCK as u64) {
            let last = room.len() - BLOCK;
            fill_block(datafile, to - BLOCK as u64, &mut room[last..]).await?;
        }
        let len = (upto - at) as usize;
        room[(at - from) as usize..][..len].copy_from_slice(&bytes[(at - start) as usize..][..len]);
        datafile.file.write_at(&[IoSlice::new(room)], LocalOffset(from)).await?;
        at = upto;
    }
    Ok(())
}

async fn fill_block<E: Env>(datafile: &Datafile<E>, at: u64, block: &mut [u8]) -> io::Result<()> {
    let got = datafile.file.read_at(&mut [IoSliceMut::new(block)], LocalOffset(at)).await?;
    block[got..].fill(0);
    Ok(())
}

fn bounce_len(start: u64, end: u64) -> usize {
    ((ceil(end) - floor(start)) as usize).min(BOUNCE_LEN)
}

/// Makes a hole.
pub(crate) async fn punch<E: Env>(
    datafile: &Datafile<E>,
    offset: LocalOffset,
    len: ByteLen,
) -> io::Result<()> {
    // Nobody puts the old bytes of a block at its edge together with new ones meanwhile.
    let _guard = parts(datafile).ranges.lock(floor(offset.0), ceil(offset.0 + len.0)).await;
    parts(datafile).buffered.punch(offset, len).await
}

/// Cuts or extends to `len`.
pub(crate) async fn set_len<E: Env>(datafile: &Datafile<E>, len: ByteLen) -> io::Result<()> {
    let _guard = parts(datafile).ranges.lock(floor(len.0), u64::MAX).await;
    parts(datafile).buffered.set_len(len).await
}
