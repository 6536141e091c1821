//! Reports of writebacks to other mounts, on dedicated threads.
//!
//! To drop a page, another mount may have to write it back, and then waits until this mount has dropped the page that it is
//! writing back itself. So the kernel gets its answer to a writeback first. Only the answers to `fsync`, `msync` and
//! `close` wait for the reports, and no serving thread does.

use crate::dropper::joined;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::sync::Arc;
use weft_client::OpenFile;
use weft_core::{ByteRange, Extent, FileId};
use weft_env::real::{RealEnv, block_on};

/// Number of threads. A report to a mount that does not answer takes seconds, and others should not wait for it.
const THREADS: usize = 4;

/// Action after the reports of a file so far are answered.
pub type OnReported = Box<dyn FnOnce() + Send>;

/// Queue of reports. `F` is an open file.
pub struct Reporter<F = OpenFile<RealEnv>> {
    queue: Mutex<Queue<F>>,
    changed: Condvar,
}

struct Queue<F> {
    waiting: BTreeMap<FileId, Report<F>>,
    /// Files whose reports are being sent, at most one of each, and actions after it.
    sent: BTreeMap<FileId, Vec<OnReported>>,
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
        let queue = Queue { waiting: BTreeMap::new(), sent: BTreeMap::new(), last: FileId(0), ended: false };
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
        } else if let Some(thens) = queue.sent.get_mut(&id) {
            thens.push(then);
        } else {
            drop(queue);
            then();
        }
    }

    /// Ends the threads when the queue is empty.
    pub fn end(&self) {
        self.queue.lock().ended = true;
        self.changed.notify_all();
    }

    /// Returns the next report. Files take turns.
    fn next(&self) -> Option<(FileId, F, ByteRange)> {
        let mut queue = self.queue.lock();
        loop {
            let after_last = (Bound::Excluded(queue.last), Bound::Unbounded);
            let mut in_turn = queue.waiting.range(after_last).chain(&queue.waiting);
            let next = in_turn.find(|(id, _)| !queue.sent.contains_key(id)).map(|(id, _)| *id);
            if let Some(id) = next
                && let Some(report) = queue.waiting.remove(&id)
            {
                queue.last = id;
                queue.sent.insert(id, report.thens);
                return Some((id, report.file, report.range));
            }
            if queue.ended && queue.waiting.is_empty() {
                return None;
            }
            self.changed.wait(&mut queue);
        }
    }

    /// Calls what waits for the report of a file that [`Self::next`] returned.
    fn answered(&self, id: FileId) {
        let mut queue = self.queue.lock();
        let sent = queue.sent.remove(&id);
        let has_more = queue.waiting.contains_key(&id) || queue.ended;
        drop(queue);
        if has_more {
            self.changed.notify_all();
        }
        sent.into_iter().flatten().for_each(|then| then());
    }
}

impl Reporter {
    /// Starts the threads.
    ///
    /// # Errors
    /// If the system cannot create a thread.
    pub fn serve(self: &Arc<Self>) -> io::Result<()> {
        for _ in 0..THREADS {
            let this = Arc::clone(self);
            std::thread::Builder::new().name("weft-report".to_owned()).spawn(move || {
                while let Some((id, file, range)) = this.next() {
                    block_on(file.report_write(Extent::new(range.start(), range.len())));
                    // The last one closes the file.
                    drop(file);
                    this.answered(id);
                }
            })?;
        }
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
        assert_eq!(reporter.next(), Some((FileId(7), 'a', range(0, 5010))));
        then(7);
        then(8);
        assert_eq!(called.load(Ordering::Relaxed), 2, "another file");
        reporter.report_later(FileId(7), || 'c', range(0, 1));
        then(7);
        reporter.answered(FileId(7));
        assert_eq!(called.load(Ordering::Relaxed), 4);
        assert_eq!(reporter.next(), Some((FileId(7), 'c', range(0, 1))));
        reporter.answered(FileId(7));
        assert_eq!(called.load(Ordering::Relaxed), 5);
    }

    #[test]
    fn files_take_turns_and_the_queue_is_emptied_at_the_end() {
        let reporter = Reporter::default();
        let next = || reporter.next().map(|(_, file, _)| file);
        reporter.report_later(FileId(3), || 3, range(0, 1));
        reporter.report_later(FileId(9), || 9, range(0, 1));
        assert_eq!(next(), Some(3));
        reporter.report_later(FileId(3), || 30, range(0, 1));
        assert_eq!(next(), Some(9), "a file has one report at a time");
        reporter.report_later(FileId(9), || 90, range(0, 1));
        reporter.answered(FileId(9));
        assert_eq!(next(), Some(90), "the report to a mount that does not answer delays its own file only");
        reporter.answered(FileId(3));
        assert_eq!(next(), Some(30));
        reporter.end();
        reporter.answered(FileId(3));
        reporter.answered(FileId(9));
        assert_eq!(next(), None);
    }
}
