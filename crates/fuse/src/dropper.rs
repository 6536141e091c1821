//! Dropping the kernel's pages from a thread of its own.
//!
//! To drop pages the kernel waits for reads of them that are under way, which a serving thread may have to answer: no
//! serving thread may wait for it.

use fuser::{INodeNo, Notifier};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use weft_core::FileId;

/// What is done when the pages are gone.
pub type Then = Box<dyn FnOnce() + Send>;

/// Files whose pages are to be dropped.
#[derive(Default)]
pub struct Dropper {
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

#[derive(Default)]
struct Wanted {
    files: BTreeMap<FileId, Vec<Then>>,
    ended: bool,
}

impl Dropper {
    /// With nothing to do.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Drops the pages of a file soon.
    pub fn drop_later(&self, file: FileId) {
        self.wanted.lock().files.entry(file).or_default();
        self.changed.notify_one();
    }

    /// Drops the pages of a file and then does `then`.
    pub fn drop_then(&self, file: FileId, then: Then) {
        self.wanted.lock().files.entry(file).or_default().push(then);
        self.changed.notify_one();
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// When it cannot be had.
    pub fn serve(self: &Arc<Self>, notifier: Notifier) -> io::Result<()> {
        let this = Arc::clone(self);
        std::thread::Builder::new().name("weft-drop".to_owned()).spawn(move || {
            while let Some((file, thens)) = this.next() {
                // An inode that the kernel does not know is no error.
                let _ = notifier.inval_inode(INodeNo(file.0), 0, 0);
                thens.into_iter().for_each(|then| then());
            }
        })?;
        Ok(())
    }

    /// Ends the thread when it has nothing left to do.
    pub fn end(&self) {
        self.wanted.lock().ended = true;
        self.changed.notify_one();
    }

    fn next(&self) -> Option<(FileId, Vec<Then>)> {
        let mut wanted = self.wanted.lock();
        loop {
            if let Some(next) = wanted.files.pop_first() {
                return Some(next);
            }
            if wanted.ended {
                return None;
            }
            self.changed.wait(&mut wanted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_twice_is_done_once_and_answers_all() {
        let dropper = Dropper::new();
        dropper.drop_later(FileId(7));
        dropper.drop_then(FileId(7), Box::new(|| ()));
        dropper.drop_then(FileId(7), Box::new(|| ()));
        dropper.end();
        let (file, thens) = dropper.next().expect("one");
        assert_eq!((file, thens.len()), (FileId(7), 2));
        assert!(dropper.next().is_none());
    }
}
