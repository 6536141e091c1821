//! Prepares the files before a replay and verifies them afterwards.

use super::payload::{self, Accepted};
use super::ranks::{PIECE_BYTES_MAX, Shared, close, next_step};
use crate::prepared::{FilePlan, Timing};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use weft_workload::Op;

/// Creates a file that must exist before the replay.
pub fn create_input(shared: &Shared, number: u32, len: u64) -> io::Result<()> {
    let path = shared.path(number);
    let file = File::options().write(true).create_new(true).open(&path)?;
    if shared.prepared.facts.files[number as usize].sparse() {
        // A length beyond the file system's limit fails in `set_len` with the system's error.
        file.set_len(len.min(i64::MAX as u64))?;
        return close(file);
    }
    let mut bytes = vec![0; len.min(4 << 20) as usize];
    let mut at = 0;
    while at < len {
        let piece = (len - at).min(bytes.len() as u64) as usize;
        payload::fill(&mut bytes[..piece], number, payload::INITIAL, at);
        file.write_all_at(&bytes[..piece], at)?;
        at += piece as u64;
        shared.bytes.fetch_add(piece as u64, Ordering::Relaxed);
    }
    close(file)
}

/// Fills the parts that `rank` reads of files that are too sparsely read to be filled completely.
pub fn fill_parts(shared: &Shared, rank: u32) -> Result<(), String> {
    let files = &shared.prepared.facts.files;
    if !files.iter().any(FilePlan::sparse) {
        return Ok(());
    }
    let mut steps = shared.prepared.steps(rank, Timing::Fast);
    let mut open: Option<(u32, File)> = None;
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
            _ => File::options().write(true).open(&path).map_err(failed)?,
        };
        // A read beyond the initial length returned data that the trace had written before.
        let end = offset.saturating_add(len).min(plan.input.unwrap_or(0));
        let mut at = offset;
        while at < end {
            let piece = (end - at).min(4 << 20) as usize;
            bytes.resize(piece, 0);
            payload::fill(&mut bytes, file.0, payload::INITIAL, at);
            opened.write_all_at(&bytes, at).map_err(failed)?;
            at += piece as u64;
            shared.bytes.fetch_add(piece as u64, Ordering::Relaxed);
        }
        open = Some((file.0, opened));
    }
    Ok(())
}

/// Compares the data that `rank` wrote and returns the number of bytes compared.
pub fn verify(shared: &Shared, rank: u32) -> Result<u64, String> {
    let mut steps = shared.prepared.steps(rank, Timing::Fast);
    let mut open: Option<(u32, File)> = None;
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
            _ => File::open(&path).map_err(|error| failed(error.to_string()))?,
        };
        let mut at = 0;
        while at < len {
            let piece = (len - at).min(PIECE_BYTES_MAX as u64) as usize;
            bytes.resize(piece, 0);
            opened.read_exact_at(&mut bytes, offset + at).map_err(|error| {
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
