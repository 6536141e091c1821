//! Dropping the kernel's pages, on a dedicated thread.
//!
//! To drop pages, the kernel waits for reads and writebacks of them in progress, and writes dirty ones back. A serving
//! thread may have to answer these, so no serving thread may wait for the drop, nor for a store into pages. The answers to
//! such reads and writebacks wait for no drop either (docs/design/mount-pages.md).

use crate::kernel_size::{KernelSizes, LastByte};
use fuser::{INodeNo, Notifier};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use weft_core::{ByteRange, FileId};

/// Action after the pages are dropped, or the byte is stored.
pub type OnDropped = Box<dyn FnOnce() + Send>;

/// All pages of a file.
pub const ALL: ByteRange = match ByteRange::new(0, u64::MAX) {
    Some(all) => all,
    None => unreachable!(),
};

/// Returns the range from the first byte of both ranges to the last one.
pub fn joined(one: ByteRange, other: ByteRange) -> ByteRange {
    ByteRange::new(one.start().min(other.start()), one.end().max(other.end())).unwrap_or(ALL)
}

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
    drops: BTreeMap<FileId, Drop>,
    ended: bool,
}

/// Pages to drop.
struct Drop {
    range: ByteRange,
    thens: Vec<OnDropped>,
}

/// Next action of the thread.
enum Next {
    Store(LastByte, OnDropped),
    Drop(FileId, Drop),
}

impl Dropper {
    /// Creates an empty queue.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Queues a file whose pages must be dropped.
    pub fn drop_later(&self, file: FileId) {
        self.queue(file, ALL, None);
    }

    /// Drops pages of a file, then calls `then`.
    pub fn drop_then(&self, file: FileId, range: ByteRange, then: OnDropped) {
        self.queue(file, range, Some(then));
    }

    fn queue(&self, file: FileId, range: ByteRange, then: Option<OnDropped>) {
        let mut queue = self.queue.lock();
        let drop = queue.drops.entry(file).or_insert_with(|| Drop { range, thens: Vec::new() });
        drop.range = joined(drop.range, range);
        drop.thens.extend(then);
        std::mem::drop(queue);
        self.changed.notify_one();
    }

    /// Stores the last byte of a file, then calls `then`.
    pub fn store_then(&self, last: LastByte, then: OnDropped) {
        self.queue.lock().stores.push_back((last, then));
        self.changed.notify_one();
    }

    /// Drops the pages of `range`, because the file has changed. Not for serving threads.
    pub fn drop_now(&self, notifier: &Notifier, file: FileId, range: ByteRange) {
        // A length of 0 means "to the end".
        let len = if range.end() > i64::MAX as u64 { 0 } else { range.len() };
        if let Some(last) = self.sizes.invalidating(file, len == 0) {
            self.sizes.store(notifier, &last);
        }
        let (start, len) = (i64::try_from(range.start()).unwrap_or(0), len as i64);
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
                    Next::Drop(file, drop) => {
                        this.drop_now(&notifier, file, drop.range);
                        drop.thens.into_iter().for_each(|then| then());
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
            if let Some((file, drop)) = queue.drops.pop_first() {
                return Some(Next::Drop(file, drop));
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

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange::new(start, end).expect("a range")
    }

    #[test]
    fn drops_of_a_file_are_merged_and_complete_all_callers() {
        let dropper = Dropper::new();
        dropper.drop_then(FileId(7), range(4096, 8192), Box::new(|| ()));
        dropper.drop_then(FileId(7), range(0, 5000), Box::new(|| ()));
        dropper.drop_later(FileId(8));
        dropper.end();
        let Some(Next::Drop(file, drop)) = dropper.next() else { panic!("a drop") };
        assert_eq!((file, drop.range, drop.thens.len()), (FileId(7), range(0, 8192), 2));
        let Some(Next::Drop(file, drop)) = dropper.next() else { panic!("a drop") };
        assert_eq!((file, drop.range, drop.thens.len()), (FileId(8), ALL, 0));
        assert!(dropper.next().is_none());
    }
}
