//! The size that the kernel believes a file to have.
//!
//! The kernel ends reads through its pages at this size, after it has queried the attributes. It ignores an answer to
//! that query if pages of the file are invalidated between the query and the answer. A read that should see bytes
//! written by another session would then end too early.
//!
//! Only a store into the kernel's pages raises the size in any case. Two rules therefore hold for open files:
//!
//! * Before an invalidation, the size of the last answer is stored: the kernel may ignore that answer.
//! * After an invalidation, a larger size is stored before it is answered.
//!
//! Neither holds while this mount has the file open for reading and writing: a program may have stored a newer last byte
//! through a mapping, which the store would replace. Reads through other opens may then end too early once.
//!
//! A store consists of the last byte of the file. If the file may have changed since the byte was read, the pages are
//! dropped after the store; the size stays. A size that is too large corrects itself: the kernel reads less than it
//! expects.

use crate::answer::Answer;
use crate::open::OpenHandle;
use fuser::{INodeNo, Notifier};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use weft_core::{FileId, FileOffset};
use weft_env::real::block_on;

/// Answers about the size of an open file.
#[derive(Default)]
struct Answers {
    /// The last open for reading that was asked for the size.
    handle: Weak<OpenHandle>,
    /// Largest size answered.
    largest: u64,
    /// Size below which the kernel's size cannot be, until the file is cut.
    certain: u64,
    /// Whether pages were invalidated since the open.
    invalidated: bool,
    /// Number of changes to the file that this mount knows of.
    changes: u64,
    /// Number of opens for reading and writing, through whose mappings programs can store.
    mappable: u32,
    /// Number of the latest store of a last byte, in all files.
    last_store: u64,
}

/// Stores of last bytes before a change by this mount.
#[derive(Clone, Copy)]
pub struct StoresBefore(u64);

/// Last byte of a file, to be stored.
pub struct LastByte {
    file: FileId,
    /// Size of the file, in bytes.
    size: u64,
    byte: u8,
    /// Number of changes before the byte was read.
    changes: u64,
    /// Whether the file may be cut meanwhile, after which the kernel may believe a smaller size again.
    cut: bool,
}

/// Sizes answered to the kernel, by open file.
#[derive(Default)]
pub struct KernelSizes {
    files: Mutex<HashMap<FileId, Answers>>,
    /// Number of stores so far; changed with `files` locked.
    stores: AtomicU64,
}

impl KernelSizes {
    /// Registers an open. From now on invalidations count: the kernel may query the size before one and be answered
    /// after it. With `mappable`, the open is for reading and writing.
    pub fn opened(&self, file: FileId, mappable: bool) {
        self.files.lock().entry(file).or_default().mappable += u32::from(mappable);
    }

    /// Registers the end of an open for reading and writing.
    pub fn closed_mappable(&self, file: FileId) {
        if let Some(answers) = self.files.lock().get_mut(&file) {
            answers.mappable = answers.mappable.saturating_sub(1);
        }
    }

    /// Registers that `size` is to be answered. Returns the byte that must be stored before the answer.
    ///
    /// # Errors
    /// If the byte cannot be read.
    pub fn answering(&self, handle: &Arc<OpenHandle>, size: u64) -> Answer<Option<LastByte>> {
        let file = handle.file.file();
        let (reader, changes) = {
            let mut files = self.files.lock();
            let answers = files.entry(file).or_default();
            if handle.reads {
                answers.handle = Arc::downgrade(handle);
            }
            answers.largest = answers.largest.max(size);
            // A smaller size may have been believed, too.
            answers.certain = answers.certain.min(size);
            if !answers.invalidated || size <= answers.certain || answers.mappable > 0 {
                return Ok(None);
            }
            // Without an open for reading, no read through the kernel's pages ends at the size.
            let Some(reader) = answers.handle.upgrade() else { return Ok(None) };
            (reader, answers.changes)
        };
        last_byte(&reader, size, changes, false)
    }

    /// Registers that pages will be invalidated, because the file has changed; with `cut`, it may have become shorter.
    /// Returns the byte that must be stored before.
    pub fn invalidating(&self, file: FileId, cut: bool) -> Option<LastByte> {
        let (handle, size, changes) = {
            let mut files = self.files.lock();
            let answers = files.get_mut(&file)?;
            answers.invalidated = true;
            answers.changes += 1;
            let (largest, certain) = (answers.largest, answers.certain);
            if cut {
                (answers.largest, answers.certain) = (0, 0);
            }
            if largest <= certain || answers.mappable > 0 {
                return None;
            }
            (answers.handle.upgrade()?, largest, answers.changes)
        };
        // Without the byte, nothing can be stored. The reads that the answer was for fail for the same reason.
        last_byte(&handle, size, changes, cut).ok().flatten()
    }

    /// Returns what [`Self::changed_here`] needs after a change by this mount that begins now.
    pub fn changing_here(&self) -> StoresBefore {
        StoresBefore(self.stores.load(Ordering::Acquire))
    }

    /// Registers a change of the file by this mount; with `cut`, it may have become shorter. Returns whether the pages
    /// must be dropped, because the last byte was stored during this change. A drop for nothing would not be harmless: it
    /// comes after the answer, where the kernel may ignore a size for it.
    pub fn changed_here(&self, file: FileId, before: StoresBefore, cut: bool) -> bool {
        self.files.lock().get_mut(&file).is_some_and(|answers| {
            answers.changes += 1;
            if cut {
                (answers.largest, answers.certain) = (0, 0);
            }
            answers.last_store > before.0
        })
    }

    /// Forgets the file.
    pub fn forget(&self, file: FileId) {
        self.files.lock().remove(&file);
    }

    /// Stores the byte, and with it the size. Waits for reads of the page in progress: not for serving threads.
    pub fn store(&self, notifier: &Notifier, last: &LastByte) {
        let ino = INodeNo(last.file.0);
        // An inode that the kernel does not know is not an error.
        let _ = notifier.store(ino, last.size - 1, &[last.byte]);
        if !self.stored(last) {
            let _ = notifier.inval_inode(ino, 0, 0);
        }
    }

    /// Registers a store. Returns whether the byte is valid.
    fn stored(&self, last: &LastByte) -> bool {
        let mut files = self.files.lock();
        let Some(answers) = files.get_mut(&last.file).filter(|answers| answers.changes == last.changes)
        else {
            return false;
        };
        answers.last_store = self.stores.fetch_add(1, Ordering::AcqRel) + 1;
        if !last.cut {
            answers.certain = answers.certain.max(last.size);
        }
        true
    }
}

/// Reads the last byte of a file of `size` bytes; `None` if the file is empty or has become shorter.
fn last_byte(handle: &OpenHandle, size: u64, changes: u64, cut: bool) -> Answer<Option<LastByte>> {
    let Some(at) = size.checked_sub(1) else { return Ok(None) };
    let mut byte = [0];
    let got = block_on(handle.file.read_at(&mut [IoSliceMut::new(&mut byte)], FileOffset(at)))?;
    Ok((got == 1).then(|| LastByte { file: handle.file.file(), size, byte: byte[0], changes, cut }))
}
