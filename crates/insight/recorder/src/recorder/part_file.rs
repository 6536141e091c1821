//! A process's part file: a `.wtrace` file to which full buffers are appended.
//!
//! The file is opened for each append. If the descriptor stayed open, the program could close it and the number could
//! come to denote one of the program's own files.

use crate::names::FileId;
use crate::tail::{SLOT_LEN, Slot};
use crate::wtrace::{Encoder, block, header};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;

/// The part file of one process.
pub struct PartFile {
    path: PathBuf,
    begun: bool,
    records: u64,
    names: u32,
    encoder: Encoder,
    out: Vec<u8>,
}

impl PartFile {
    pub fn new(path: PathBuf) -> Self {
        Self { path, begun: false, records: 0, names: 0, encoder: Encoder::default(), out: Vec::new() }
    }

    /// Number of records appended so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Number of names appended so far.
    pub fn names(&self) -> u32 {
        self.names
    }

    /// Appends slots as one block of records. Returns false if the process has no free descriptor.
    pub fn records_block(&mut self, slots: &[u8]) -> io::Result<bool> {
        self.begin();
        for bytes in slots.chunks_exact(SLOT_LEN) {
            let Some(slot) = bytes.first_chunk().and_then(Slot::decode) else { continue };
            self.encoder.push(&slot.record(FileId(slot.file)));
        }
        let count = self.encoder.len() as u64;
        self.encoder.finish(&mut self.out);
        let written = self.append()?;
        self.records += if written { count } else { 0 };
        Ok(written)
    }

    /// Appends an encoded list of `count` names as one block. Returns false if the process has no free descriptor.
    pub fn names_block(&mut self, names: &[u8], count: u32) -> io::Result<bool> {
        self.begin();
        block(&mut self.out, 2, count, names);
        let written = self.append()?;
        self.names += if written { count } else { 0 };
        Ok(written)
    }

    fn begin(&mut self) {
        self.out.clear();
        if !self.begun {
            self.out.extend_from_slice(&header());
        }
    }

    fn append(&mut self) -> io::Result<bool> {
        let _guard = CancellationDisabled::enter();
        let opened = OpenOptions::new().append(true).create(!self.begun).open(&self.path);
        let mut file = match opened {
            Err(error) if no_descriptor(&error) => return Ok(false),
            opened => opened?,
        };
        file.write_all(&self.out)?;
        self.begun = true;
        Ok(true)
    }
}

/// Whether the error means that no descriptor is free, a condition that may pass.
pub fn no_descriptor(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Disables thread cancellation while in scope. `open` and `write` are cancellation points, and a canceled thread
/// would leave its locks held.
struct CancellationDisabled(libc::c_int);

unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, old: *mut libc::c_int) -> libc::c_int;
}

impl CancellationDisabled {
    fn enter() -> Self {
        const DISABLE: libc::c_int = 1;
        let mut old = 0;
        // SAFETY: writes one integer.
        unsafe { pthread_setcancelstate(DISABLE, &mut old) };
        Self(old)
    }
}

impl Drop for CancellationDisabled {
    fn drop(&mut self) {
        // SAFETY: restores the previous state; the old-state pointer may be null.
        unsafe { pthread_setcancelstate(self.0, std::ptr::null_mut()) };
    }
}
