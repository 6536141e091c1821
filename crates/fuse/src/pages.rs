//! When the kernel may keep pages.
//!
//! Pages are kept only for files that no other session writes; the metadata service says so at open (`may_cache`).
//! Writes go through to the servers at once, so readers elsewhere always see them. When another session later writes
//! such a file, it tells the metadata service after each write and waits until this mount has dropped the pages:
//! a read that starts after a write returned sees it. Pages outlive the last close when the file's epoch, which
//! changes whenever anybody opens it for writing or cuts it, is still the one under which they were read.
//!
//! Opens that keep no pages can be mapped all the same, and the kernel has the pages of a map until they are dropped.
//! When a session that wrote a file closes it, the metadata service has every other mount that has it open drop its pages,
//! and the close waits for that. A map keeps its file open.
//!
//! When the connection to the metadata service breaks, nobody tells this mount of writes: all pages are dropped at once,
//! and from then on after each read, until the service has heard again which files are kept. A service that starts
//! makes writers wait until that has happened.

use crate::dropper::Dropper;
use fuser::{INodeNo, Notifier};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weft_client::{Client, OpenFile};
use weft_core::FileId;
use weft_env::real::{RealEnv, block_on};

/// Files remembered after their last close; the oldest knowledge is dropped beyond it.
const REMEMBERED_MAX: usize = 65_536;

/// Between two attempts to reach a metadata service that is away.
const PAUSE: Duration = Duration::from_millis(20);

/// The pages that the kernel keeps for this mount.
pub struct Pages {
    client: Client<RealEnv>,
    kept: Mutex<Kept>,
    dropper: Arc<Dropper>,
    /// The metadata service cannot tell us of writes at the moment.
    deaf: AtomicBool,
}

#[derive(Default)]
struct Kept {
    /// The epoch under which the kernel read what it may still have.
    epochs: HashMap<FileId, u64>,
    /// Opens with pages, by file.
    opens: BTreeMap<FileId, u32>,
    /// Opens without pages, by file; they can be mapped.
    direct: BTreeMap<FileId, u32>,
}

impl Kept {
    fn files(&self) -> BTreeSet<FileId> {
        self.epochs.keys().chain(self.opens.keys()).chain(self.direct.keys()).copied().collect()
    }
}

impl Pages {
    /// None yet.
    pub fn new(client: Client<RealEnv>) -> Arc<Self> {
        Arc::new(Self {
            client,
            kept: Mutex::default(),
            dropper: Dropper::new(),
            deaf: AtomicBool::new(true),
        })
    }

    /// Whether new opens may keep pages: only while the metadata service can tell of writes by others.
    pub fn may_keep(&self) -> bool {
        !self.deaf.load(Ordering::Acquire)
    }

    /// The file is opened with pages. Whether those from an earlier open are still right at `epoch`, which is
    /// remembered as theirs from now on.
    pub fn opened_with(&self, file: FileId, epoch: u64) -> bool {
        let mut kept = self.kept.lock();
        *kept.opens.entry(file).or_default() += 1;
        if kept.epochs.len() >= REMEMBERED_MAX && !kept.epochs.contains_key(&file) {
            kept.epochs.clear();
        }
        kept.epochs.insert(file, epoch) == Some(epoch)
    }

    /// An open, with pages or without, has ended.
    pub fn closed(&self, file: FileId, with_pages: bool) {
        let mut kept = self.kept.lock();
        let opens = if with_pages { &mut kept.opens } else { &mut kept.direct };
        if let Some(count) = opens.get_mut(&file) {
            *count -= 1;
            if *count == 0 {
                opens.remove(&file);
            }
        }
    }

    /// The file is opened without pages: what the kernel has of it must not be used by a later open.
    pub fn opened_without(&self, file: FileId) {
        let mut kept = self.kept.lock();
        kept.epochs.remove(&file);
        *kept.direct.entry(file).or_default() += 1;
    }

    fn forget(&self, file: FileId) {
        self.kept.lock().epochs.remove(&file);
    }

    /// Ends the tasks once there is nothing left for them to do.
    pub fn end(&self) {
        self.dropper.end();
    }

    /// After a read that filled pages: those of which nobody would tell when they become wrong are dropped again. Nobody
    /// tells an open without pages of each write, only of closes.
    pub fn after_read(&self, file: &OpenFile<RealEnv>, with_pages: bool) {
        if self.deaf.load(Ordering::Acquire) || with_pages && !file.hears_of_writes() {
            self.dropper.drop_later(file.file());
        }
    }

    /// After a write that went past the kernel's pages: `answer` is given when no open of this mount keeps pages of the
    /// file that it read before the write.
    pub fn after_write_past(&self, file: FileId, answer: impl FnOnce() + Send + 'static) {
        if self.kept.lock().opens.contains_key(&file) {
            self.dropper.drop_then(file, Box::new(answer));
        } else {
            answer();
        }
    }

    /// Starts the tasks that wait for writes of others and drop pages.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn serve(self: &Arc<Self>, notifier: Notifier) -> io::Result<()> {
        self.dropper.serve(notifier.clone())?;
        let weak = Arc::downgrade(self);
        let client = self.client.clone();
        std::thread::Builder::new().name("weft-pages".to_owned()).spawn(move || {
            while weak.strong_count() > 0 {
                if block_on(client.listen()).is_err() {
                    std::thread::sleep(PAUSE);
                    continue;
                }
                match weak.upgrade() {
                    // What was read since the connection broke goes before anything is kept again.
                    Some(pages) => pages.hear(&notifier),
                    None => return,
                }
                let mut done = 0;
                while let Ok(events) = block_on(client.wait_events(done)) {
                    let Some(pages) = weak.upgrade() else { return };
                    for event in &events {
                        pages.forget(event.file);
                        let len = i64::try_from(event.end - event.start).unwrap_or(0);
                        // A length of 0 means to the end. An inode that the kernel does not know is no error.
                        let _ = notifier.inval_inode(INodeNo(event.file.0), event.start as i64, len);
                        done = done.max(event.number);
                    }
                }
                match weak.upgrade() {
                    Some(pages) => pages.hear_no_more(&notifier),
                    None => return,
                }
            }
        })?;
        Ok(())
    }

    fn hear(&self, notifier: &Notifier) {
        self.drop_all(notifier);
        self.deaf.store(false, Ordering::Release);
    }

    fn hear_no_more(&self, notifier: &Notifier) {
        self.deaf.store(true, Ordering::Release);
        self.drop_all(notifier);
    }

    fn drop_all(&self, notifier: &Notifier) {
        let files = {
            let mut kept = self.kept.lock();
            let files = kept.files();
            kept.epochs.clear();
            files
        };
        for file in files {
            let _ = notifier.inval_inode(INodeNo(file.0), 0, 0);
        }
    }
}
