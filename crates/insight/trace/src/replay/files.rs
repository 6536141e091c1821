//! Prepares the files before a replay and verifies them afterwards.

use super::payload::{self, Accepted};
use super::ranks::{PIECE_BYTES_MAX, Shared, monotonic_ns, next_step, read_exact};
use super::tally::{Done, Tally};
use crate::prepared::{FilePlan, Timing};
use crate::record::Operation;
use std::io;
use std::sync::atomic::Ordering;
use weft_client::{FileHandle, HostFile, OpenFlags, write_all};
use weft_core::{ByteLen, FileOffset};
use weft_env::real::{RealEnv, block_on};
use weft_workload::Op;

/// Opens an existing file for writing.
const WRITE: OpenFlags = OpenFlags { read: false, write: true, ..OpenFlags::READ };

/// Creates a file that must exist before the replay.
pub fn create_input(shared: &Shared, number: u32, len: u64) -> io::Result<()> {
    let file = shared.open(number, OpenFlags { create: true, exclusive: true, ..WRITE })?;
    if shared.prepared.facts.files[number as usize].sparse() {
        // A length beyond the file system's limit fails in `set_len` with the system's error.
        block_on(file.truncate(ByteLen(len.min(i64::MAX as u64))))?;
        return Ok(block_on(file.close())?);
    }
    let mut bytes = vec![0; len.min(4 << 20) as usize];
    let mut at = 0;
    while at < len {
        let piece = (len - at).min(bytes.len() as u64) as usize;
        payload::fill(&mut bytes[..piece], number, payload::INITIAL, at);
        block_on(write_all(&file, &bytes[..piece], FileOffset(at)))?;
        at += piece as u64;
        shared.bytes.fetch_add(piece as u64, Ordering::Relaxed);
    }
    Ok(block_on(file.close())?)
}

/// Fills the parts that `rank` reads of files that are too sparsely read to be filled completely.
pub fn fill_parts(shared: &Shared, rank: u32) -> Result<(), String> {
    let files = &shared.prepared.facts.files;
    if !files.iter().any(FilePlan::sparse) {
        return Ok(());
    }
    let mut steps = shared.prepared.steps(rank, Timing::Fast);
    let mut open: Option<(u32, HostFile<RealEnv>)> = None;
    let mut bytes = Vec::new();
    while let Some(step) = next_step(&mut steps)? {
        let Op::Read { file, offset, len, .. } = step.op else { continue };
        let plan = &files[file.0 as usize];
        if !plan.sparse() {
            continue;
        }
        let path = shared.path(file.0);
        let failed = |error: io::Error| format!("preparing {}: {error}", path.display());
        let opened = match open.take() {
            Some((number, opened)) if number == file.0 => opened,
            _ => shared.open(file.0, WRITE).map_err(failed)?,
        };
        // A read beyond the initial length returned data that the trace had written before.
        let end = offset.saturating_add(len).min(plan.input.unwrap_or(0));
        let mut at = offset;
        while at < end {
            let piece = (end - at).min(4 << 20) as usize;
            bytes.resize(piece, 0);
            payload::fill(&mut bytes, file.0, payload::INITIAL, at);
            block_on(write_all(&opened, &bytes, FileOffset(at))).map_err(|error| failed(error.into()))?;
            at += piece as u64;
            shared.bytes.fetch_add(piece as u64, Ordering::Relaxed);
        }
        open = Some((file.0, opened));
    }
    Ok(())
}

/// Syncs a file and adds the sync to `tally`. A file that does not exist is skipped.
pub fn sync(shared: &Shared, number: u32, tally: &mut Tally) -> io::Result<()> {
    let begin_ns = monotonic_ns();
    let file = match shared.open(number, WRITE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    block_on(file.sync())?;
    let done = Done { bytes: 0, short: false, refused: false, begin_ns, end_ns: monotonic_ns() };
    tally.add(Operation::Sync, number, &done);
    Ok(block_on(file.close())?)
}

/// Compares the data that `rank` wrote and returns the number of bytes compared.
pub fn verify(shared: &Shared, rank: u32) -> Result<u64, String> {
    let mut steps = shared.prepared.steps(rank, Timing::Fast);
    let mut open: Option<(u32, HostFile<RealEnv>)> = None;
    let (mut bytes, mut scratch, mut compared) = (Vec::new(), Vec::new(), 0);
    while let Some(step) = next_step(&mut steps)? {
        let Op::Write { file, offset, len, .. } = step.op else { continue };
        if shared.prepared.facts.files[file.0 as usize].cut {
            continue;
        }
        let path = shared.path(file.0);
        let failed = |why: String| format!("comparing {}: {why}", path.display());
        let opened = match open.take() {
            Some((number, opened)) if number == file.0 => opened,
            _ => shared.open(file.0, OpenFlags::READ).map_err(|error| failed(error.to_string()))?,
        };
        let mut at = 0;
        while at < len {
            let piece = (len - at).min(PIECE_BYTES_MAX as u64) as usize;
            bytes.resize(piece, 0);
            read_exact(&opened, &mut bytes, offset + at).map_err(|error| {
                failed(format!("{piece} bytes written at offset {}: {error}", offset + at))
            })?;
            if let Some(wrong) =
                payload::first_wrong(&bytes, file.0, offset + at, Accepted::WrittenOnly, &mut scratch)
            {
                return Err(failed(format!(
                    "wrong byte at offset {wrong}: it differs from the byte that was written"
                )));
            }
            at += piece as u64;
            shared.bytes.fetch_add(piece as u64, Ordering::Relaxed);
        }
        compared += len;
        open = Some((file.0, opened));
    }
    Ok(compared)
}
