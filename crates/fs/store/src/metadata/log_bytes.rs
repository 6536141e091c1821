//! Decodes and replays a log held in memory, for fuzzing.

use super::delta::Delta;
use super::engine::Table;
use super::log::{LogKey, append_change, finish_frame, replay, start_frame};
use std::io;
use weft_core::{ByteLen, LocalOffset};
use weft_env::BlockingFile;

/// A row that was set (`Some`) or removed (`None`).
pub type Change = (Table, Vec<u8>, Option<Vec<u8>>);

/// Returns a frame without a key, written while the `unsynced` frames before it were not synced.
pub fn frame(number: u64, unsynced: u32, changes: &[Change]) -> Vec<u8> {
    let mut out = Vec::new();
    start_frame(&mut out);
    for (table, key, value) in changes {
        append_change(&mut out, *table, key, value.as_deref());
    }
    finish_frame(&mut out, number, unsynced, LogKey::NONE);
    out
}

/// Replays a log as a start does. Returns the number of the last frame, and the changed rows.
///
/// # Errors
/// When a valid frame has an unsupported version, or when a later frame proves damage.
pub fn read(log: &[u8], applied: u64) -> io::Result<(u64, Vec<Change>)> {
    let mut delta = Delta::default();
    let last = replay(&Bytes(log.to_vec()), LogKey::NONE, applied, false, &mut delta)?.last;
    let rows = |table: Table| {
        let rows = delta.rows(table).iter();
        rows.map(move |(key, value)| (table, key.to_vec(), value.as_ref().map(|value| value.to_vec())))
    };
    let changes = Table::ALL.into_iter().flat_map(rows).collect();
    Ok((last, changes))
}

/// A read-only file.
#[derive(Debug)]
struct Bytes(Vec<u8>);

impl BlockingFile for Bytes {
    fn read_at(&self, buf: &mut [u8], offset: LocalOffset) -> io::Result<()> {
        let from = usize::try_from(offset.0).ok().and_then(|at| self.0.get(at..));
        let bytes = from.and_then(|bytes| bytes.get(..buf.len())).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(bytes);
        Ok(())
    }

    fn write_at(&self, _: &[u8], _: LocalOffset) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<ByteLen> {
        Ok(ByteLen(self.0.len() as u64))
    }

    fn set_len(&self, _: ByteLen) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
