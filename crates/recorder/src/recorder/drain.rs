//! The part of a process: blocks of the `.wtrace` format, appended by whoever filled a half.
//!
//! The file is opened for each append: a descriptor that stayed open could be closed by the program, and its number
//! be that of another file the next time.

use crate::names::FileId;
use crate::tail::{SLOT_LEN, Slot};
use crate::wtrace::{Encoder, block, header};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;

/// See the module.
pub struct Part {
    path: PathBuf,
    begun: bool,
    records: u64,
    names: u32,
    encoder: Encoder,
    out: Vec<u8>,
}

impl Part {
    pub fn new(path: PathBuf) -> Self {
        Self { path, begun: false, records: 0, names: 0, encoder: Encoder::default(), out: Vec::new() }
    }

    /// Records in it.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Names in it.
    pub fn names(&self) -> u32 {
        self.names
    }

    /// Appends slots; false when there is no descriptor to do it by.
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

    /// Appends names as they stand in the tail.
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
        let _whole = NoCancel::enter();
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

/// Whether the process has no descriptor left, which need not stay so.
pub fn no_descriptor(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Opening and writing are points at which a thread can be canceled, with locks in its hands.
struct NoCancel(libc::c_int);

unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, old: *mut libc::c_int) -> libc::c_int;
}

impl NoCancel {
    fn enter() -> Self {
        const DISABLE: libc::c_int = 1;
        let mut old = 0;
        // SAFETY: writes one word.
        unsafe { pthread_setcancelstate(DISABLE, &mut old) };
        Self(old)
    }
}

impl Drop for NoCancel {
    fn drop(&mut self) {
        // SAFETY: gives back what was there.
        unsafe { pthread_setcancelstate(self.0, std::ptr::null_mut()) };
    }
}
