//! Dropping the kernel's pages, on a dedicated thread.
//!
//! To drop pages, the kernel waits for reads of them in progress. A serving thread may have to answer these reads, so
//! no serving thread may wait for the drop.

use fuser::{INodeNo, Notifier};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use weft_core::FileId;

/// Action after the pages are dropped.
pub type OnDropped = Box<dyn FnOnce() + Send>;

/// Queue of files whose pages must be dropped.
#[derive(Default)]
pub struct Dropper {
    queue: Mutex<QueuedDrops>,
    changed: Condvar,
}

#[derive(Default)]
struct QueuedDrops {
    files: BTreeMap<FileId, Vec<OnDropped>>,
    ended: bool,
}

impl Dropper {
    /// Creates an empty queue.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Queues a file whose pages must be dropped.
    pub fn drop_later(&self, file: FileId) {
        self.queue.lock().files.entry(file).or_default();
        self.changed.notify_one();
    }

    /// Drops the pages of a file, then calls `then`.
    pub fn drop_then(&self, file: FileId, then: OnDropped) {
        self.queue.lock().files.entry(file).or_default().push(then);
        self.changed.notify_one();
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// If the system cannot create a thread.
    pub fn serve(self: &Arc<Self>, notifier: Notifier) -> io::Result<()> {
        let this = Arc::clone(self);
        std::thread::Builder::new().name("weft-drop".to_owned()).spawn(move || {
            while let Some((file, thens)) = this.next() {
                // An inode that the kernel does not know is not an error.
                let _ = notifier.inval_inode(INodeNo(file.0), 0, 0);
                thens.into_iter().for_each(|then| then());
            }
        })?;
        Ok(())
    }

    /// Ends the thread when the queue is empty.
    pub fn end(&self) {
        self.queue.lock().ended = true;
        self.changed.notify_one();
    }

    fn next(&self) -> Option<(FileId, Vec<OnDropped>)> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(next) = queue.files.pop_first() {
                return Some(next);
            }
            if queue.ended {
                return None;
            }
            self.changed.wait(&mut queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_drops_are_merged_and_complete_all_callers() {
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
