//! Open files without a name, such as here-documents of shells and temporary files.
//!
//! Weft keeps such a file while a session has it open. A forked child, or the next program image, opens it in a session
//! of its own at its first use. The session that has it open may have ended by then: at the exec, or with the parent.
//! Therefore a keeper (see `flocks`) keeps the file open while any process has the description.

use super::{Open, flocks};
use crate::backend::{self, File};
use crate::{guard, serve, sys, table};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Maximum number of keepers that this process starts at forks. A program with more nameless files rarely leaves them to
/// a child and ends before the child uses them.
const KEEPERS_AT_FORKS_MAX: u32 = 16;

/// Whether the name of any open file was removed.
static ANY_REMOVED: AtomicBool = AtomicBool::new(false);
/// Number of keepers that this process has started at forks.
static KEEPERS_AT_FORKS: AtomicU32 = AtomicU32::new(0);

/// State of a description.
#[derive(Default)]
pub struct Nameless {
    /// Whether this process, or a parent, removed the name by which it opened the file, or opened it without one.
    is_removed: AtomicBool,
    /// Whether a keeper has the file open.
    is_kept: AtomicBool,
}

impl Nameless {
    /// Records that the file may have lost its name.
    pub fn note_removed(&self) {
        self.is_removed.store(true, Ordering::Relaxed);
        ANY_REMOVED.store(true, Ordering::Relaxed);
    }
}

/// Records that the name `text` was removed, or refers to another file from now on.
pub fn note_removed(text: &[u8]) {
    for fd in table::all(0, u32::MAX) {
        if let Some(open) = table::get(fd).filter(|open| !open.is_host() && open.text == text) {
            open.nameless.note_removed();
        }
    }
}

/// Starts keepers for files whose names this process has removed, before a fork.
pub fn keep_removed() {
    if ANY_REMOVED.load(Ordering::Relaxed) {
        keep(|open, _| {
            open.nameless.is_removed.load(Ordering::Relaxed)
                && KEEPERS_AT_FORKS.load(Ordering::Relaxed) < KEEPERS_AT_FORKS_MAX
        });
    }
}

/// Starts keepers for nameless files that the next program image inherits, before an exec.
pub fn keep_inherited() {
    keep(|open, fd| {
        // A file that this process has not opened again was inherited, and its parent has looked.
        (open.is_open_here() || open.nameless.is_removed.load(Ordering::Relaxed))
            && sys::fcntl(fd, libc::F_GETFD, 0).is_ok_and(|flags| flags & libc::FD_CLOEXEC == 0)
    });
}

fn keep(wanted: impl Fn(&Open, c_int) -> bool) {
    if guard::inside() || !backend::in_use() {
        return;
    }
    for fd in table::all(0, u32::MAX) {
        let Some(open) = table::get(fd) else { continue };
        let is_kept = &open.nameless.is_kept;
        if open.is_host() || open.is_directory() || is_kept.load(Ordering::Relaxed) || !wanted(&open, fd) {
            continue;
        }
        let done = serve::inside(|| {
            if open.file().and_then(File::stat)?.st_nlink > 0 {
                return Ok(());
            }
            flocks::keep_open(&open, fd)?;
            KEEPERS_AT_FORKS.fetch_add(1, Ordering::Relaxed);
            is_kept.store(true, Ordering::Relaxed);
            Ok(())
        });
        if done.is_err() {
            sys::complain(
                "a file without a name may be lost for other processes: no process could keep it open",
            );
        }
    }
}
