//! Dropping the kernel's pages, on a dedicated thread.
//!
//! To drop pages, the kernel waits for reads of them in progress. A serving thread may have to answer these reads, so
//! no serving thread may wait for the drop, nor for a store into pages.

use crate::kernel_size::{KernelSizes, LastByte};
use fuser::{INodeNo, Notifier};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use weft_core::FileId;

/// Action after the pages are dropped, or the byte is stored.
pub type OnDropped = Box<dyn FnOnce() + Send>;

/// Queue of files whose pages must be dropped, and of bytes to store.
#[derive(Default)]
pub struct Dropper {
    queue: Mutex<Queue>,
    changed: Condvar,
    pub sizes: KernelSizes,
}

#[derive(Default)]
struct Queue {
    stores: VecDeque<(LastByte, OnDropped)>,
    drops: BTreeMap<FileId, Vec<OnDropped>>,
    ended: bool,
}

/// Next action of the thread.
enum Next {
    Store(LastByte, OnDropped),
    Drop(FileId, Vec<OnDropped>),
}

impl Dropper {
    /// Creates an empty queue.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Queues a file whose pages must be dropped.
    pub fn drop_later(&self, file: FileId) {
        self.queue.lock().drops.entry(file).or_default();
        self.changed.notify_one();
    }

    /// Drops the pages of a file, then calls `then`.
    pub fn drop_then(&self, file: FileId, then: OnDropped) {
        self.queue.lock().drops.entry(file).or_default().push(then);
        self.changed.notify_one();
    }

    /// Stores the last byte of a file, then calls `then`.
    pub fn store_then(&self, last: LastByte, then: OnDropped) {
        self.queue.lock().stores.push_back((last, then));
        self.changed.notify_one();
    }

    /// Drops the pages of `len` bytes from `start` on, to the end if `len` is 0, because the file has changed. Not for
    /// serving threads.
    pub fn drop_now(&self, notifier: &Notifier, file: FileId, start: u64, len: u64) {
        if let Some(last) = self.sizes.invalidating(file, len == 0) {
            self.sizes.store(notifier, &last);
        }
        let (start, len) = (i64::try_from(start).unwrap_or(0), i64::try_from(len).unwrap_or(0));
        // An inode that the kernel does not know is not an error.
        let _ = notifier.inval_inode(INodeNo(file.0), start, len);
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// If the system cannot create a thread.
    pub fn serve(self: &Arc<Self>, notifier: Notifier) -> io::Result<()> {
        let this = Arc::clone(self);
        std::thread::Builder::new().name("weft-drop".to_owned()).spawn(move || {
            while let Some(next) = this.next() {
                match next {
                    Next::Store(last, then) => {
                        this.sizes.store(&notifier, &last);
                        then();
                    }
                    Next::Drop(file, thens) => {
                        this.drop_now(&notifier, file, 0, 0);
                        thens.into_iter().for_each(|then| then());
                    }
                }
            }
        })?;
        Ok(())
    }

    /// Ends the thread when the queue is empty.
    pub fn end(&self) {
        self.queue.lock().ended = true;
        self.changed.notify_one();
    }

    fn next(&self) -> Option<Next> {
        let mut queue = self.queue.lock();
        loop {
            if let Some((last, then)) = queue.stores.pop_front() {
                return Some(Next::Store(last, then));
            }
            if let Some((file, thens)) = queue.drops.pop_first() {
                return Some(Next::Drop(file, thens));
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
        let Some(Next::Drop(file, thens)) = dropper.next() else { panic!("a drop") };
        assert_eq!((file, thens.len()), (FileId(7), 2));
        assert!(dropper.next().is_none());
    }
}
