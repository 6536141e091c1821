//! The files of a replay besides what its ranks do: made before, compared after.

use super::payload::{self, Else};
use super::ranks::{PIECE, Shared, advance, close};
use crate::prepared::{FilePlan, Timing};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use weft_workload::Op;

/// Makes a file that is there before the replay.
pub fn make_input(shared: &Shared, number: u32, len: u64) -> io::Result<()> {
    let path = shared.path(number);
    let file = File::options().write(true).create_new(true).open(&path)?;
    if shared.prepared.facts.files[number as usize].sparse() {
        // What no file can have is refused in the system's words.
        file.set_len(len.min(i64::MAX as u64))?;
        return close(file);
    }
    let mut bytes = vec![0; len.min(4 << 20) as usize];
    let mut at = 0;
    while at < len {
        let piece = (len - at).min(bytes.len() as u64) as usize;
        payload::fill(&mut bytes[..piece], number, payload::BEFORE, at);
        file.write_all_at(&bytes[..piece], at)?;
        at += piece as u64;
        shared.bytes.fetch_add(piece as u64, Ordering::Relaxed);
    }
    close(file)
}

/// Fills what `rank` reads of files of which so little is read that they were not filled as a whole.
pub fn make_parts(shared: &Shared, rank: u32) -> Result<(), String> {
    let files = &shared.prepared.facts.files;
    if !files.iter().any(FilePlan::sparse) {
        return Ok(());
    }
    let mut steps = shared.prepared.steps(rank, Timing::Fast);
    let mut open: Option<(u32, File)> = None;
    let mut bytes = Vec::new();
    while let Some(step) = advance(&mut steps)? {
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
        // What lies past that length was written when it was read.
        let end = offset.saturating_add(len).min(plan.input.unwrap_or(0));
        let mut at = offset;
        while at < end {
            let piece = (end - at).min(4 << 20) as usize;
            bytes.resize(piece, 0);
            payload::fill(&mut bytes, file.0, payload::BEFORE, at);
            opened.write_all_at(&bytes, at).map_err(failed)?;
            at += piece as u64;
            shared.bytes.fetch_add(piece as u64, Ordering::Relaxed);
        }
        open = Some((file.0, opened));
    }
    Ok(())
}

/// Compares what `rank` wrote, file by file and piece by piece; how many bytes.
pub fn verify(shared: &Shared, rank: u32) -> Result<u64, String> {
    let mut steps = shared.prepared.steps(rank, Timing::Fast);
    let mut open: Option<(u32, File)> = None;
    let (mut bytes, mut scratch, mut compared) = (Vec::new(), Vec::new(), 0);
    while let Some(step) = advance(&mut steps)? {
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
            let piece = (len - at).min(PIECE as u64) as usize;
            bytes.resize(piece, 0);
            opened.read_exact_at(&mut bytes, offset + at).map_err(|error| {
                failed(format!("{piece} bytes at offset {} that were written: {error}", offset + at))
            })?;
            if let Some(wrong) = payload::first_wrong(&bytes, file.0, offset + at, Else::Wrong, &mut scratch)
            {
                return Err(failed(format!("the byte at offset {wrong} is not the one that was written")));
            }
            at += piece as u64;
            shared.bytes.fetch_add(piece as u64, Ordering::Relaxed);
        }
        compared += len;
        open = Some((file.0, opened));
    }
    Ok(compared)
}
