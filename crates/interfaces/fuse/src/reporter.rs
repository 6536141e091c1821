//! Reports of writebacks to other mounts, on a dedicated thread.
//!
//! To drop a page, another mount may have to write it back, and then waits until this mount has dropped the page that it is
//! writing back itself. So the kernel gets its answer to a writeback first. Only the answers to `fsync`, `msync` and
//! `close` wait for the reports, and no serving thread does.

use crate::dropper::joined;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use weft_client::OpenFile;
use weft_core::{ByteRange, Extent, FileId};
use weft_env::real::{RealEnv, block_on};

/// Action after the reports of a file so far are answered.
pub type OnReported = Box<dyn FnOnce() + Send>;

/// Queue of reports. `F` is an open file.
pub struct Reporter<F = OpenFile<RealEnv>> {
    queue: Mutex<Queue<F>>,
    changed: Condvar,
}

struct Queue<F> {
    waiting: BTreeMap<FileId, Report<F>>,
    /// File whose report is being sent, and actions after it.
    sent: Option<(FileId, Vec<OnReported>)>,
    /// File of the last report.
    last: FileId,
    ended: bool,
}

/// Ranges that were written back, as one.
struct Report<F> {
    file: F,
    range: ByteRange,
    thens: Vec<OnReported>,
}

impl<F> Default for Reporter<F> {
    fn default() -> Self {
        let queue = Queue { waiting: BTreeMap::new(), sent: None, last: FileId(0), ended: false };
        Self { queue: Mutex::new(queue), changed: Condvar::new() }
    }
}

impl<F> Reporter<F> {
    /// Queues a report of a range that was written back through the open `file`.
    pub fn report_later(&self, id: FileId, file: impl FnOnce() -> F, range: ByteRange) {
        let mut queue = self.queue.lock();
        let new = || Report { file: file(), range, thens: Vec::new() };
        let report = queue.waiting.entry(id).or_insert_with(new);
        report.range = joined(report.range, range);
        drop(queue);
        self.changed.notify_one();
    }

    /// Calls `then` when the reports of a file so far are answered.
    pub fn then(&self, id: FileId, then: OnReported) {
        let mut queue = self.queue.lock();
        if let Some(report) = queue.waiting.get_mut(&id) {
            report.thens.push(then);
        } else if let Some((_, thens)) = queue.sent.as_mut().filter(|(sent, _)| *sent == id) {
            thens.push(then);
        } else {
            drop(queue);
            then();
        }
    }

    /// Ends the thread when the queue is empty.
    pub fn end(&self) {
        self.queue.lock().ended = true;
        self.changed.notify_one();
    }

    /// Returns the next report. Files take turns.
    fn next(&self) -> Option<(F, ByteRange)> {
        let mut queue = self.queue.lock();
        loop {
            let after_last = (std::ops::Bound::Excluded(queue.last), std::ops::Bound::Unbounded);
            let next = queue.waiting.range(after_last).next().or(queue.waiting.first_key_value());
            if let Some(id) = next.map(|(id, _)| *id)
                && let Some(report) = queue.waiting.remove(&id)
            {
                queue.last = id;
                queue.sent = Some((id, report.thens));
                return Some((report.file, report.range));
            }
            if queue.ended {
                return None;
            }
            self.changed.wait(&mut queue);
        }
    }

    /// Calls what waits for the report that [`Self::next`] returned.
    fn answered(&self) {
        let sent = self.queue.lock().sent.take();
        sent.into_iter().flat_map(|(_, thens)| thens).for_each(|then| then());
    }
}

impl Reporter {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system cannot create a thread.
    pub fn serve(self: &Arc<Self>) -> io::Result<()> {
        let this = Arc::clone(self);
        std::thread::Builder::new().name("weft-report".to_owned()).spawn(move || {
            while let Some((file, range)) = this.next() {
                block_on(file.report_write(Extent::new(range.start(), range.len())));
                // The last one closes the file.
                drop(file);
                this.answered();
            }
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange::new(start, end).expect("a range")
    }

    #[test]
    fn actions_wait_for_the_reports_before_them() {
        let (reporter, called) = (Reporter::default(), Arc::new(AtomicU32::new(0)));
        let then = |id| {
            let called = Arc::clone(&called);
            reporter.then(
                FileId(id),
                Box::new(move || {
                    called.fetch_add(1, Ordering::Relaxed);
                }),
            );
        };
        then(7);
        assert_eq!(called.load(Ordering::Relaxed), 1, "nothing to wait for");
        reporter.report_later(FileId(7), || 'a', range(0, 10));
        reporter.report_later(FileId(7), || 'b', range(5000, 5010));
        then(7);
        assert_eq!(reporter.next(), Some(('a', range(0, 5010))));
        then(7);
        then(8);
        assert_eq!(called.load(Ordering::Relaxed), 2, "another file");
        reporter.report_later(FileId(7), || 'c', range(0, 1));
        then(7);
        reporter.answered();
        assert_eq!(called.load(Ordering::Relaxed), 4);
        assert_eq!(reporter.next(), Some(('c', range(0, 1))));
        reporter.answered();
        assert_eq!(called.load(Ordering::Relaxed), 5);
    }

    #[test]
    fn files_take_turns_and_the_queue_is_emptied_at_the_end() {
        let reporter = Reporter::default();
        reporter.report_later(FileId(3), || 3, range(0, 1));
        reporter.report_later(FileId(9), || 9, range(0, 1));
        assert_eq!(reporter.next().map(|(file, _)| file), Some(3));
        reporter.answered();
        reporter.report_later(FileId(3), || 3, range(0, 1));
        assert_eq!(reporter.next().map(|(file, _)| file), Some(9));
        reporter.answered();
        reporter.end();
        assert_eq!(reporter.next().map(|(file, _)| file), Some(3));
        reporter.answered();
        assert_eq!(reporter.next(), None);
    }
}
