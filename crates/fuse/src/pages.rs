//! When the kernel may keep pages.
//!
//! Pages are kept only for files that no other session writes; the metadata service says so at open (`may_cache`).
//! Writes go through to the servers at once, so readers elsewhere always see them. When another session later writes
//! such a file, it tells the metadata service after each write and waits until this mount has dropped the pages:
//! a read that starts after a write returned sees it. Pages outlive the last close when the file's epoch, which
//! changes whenever anybody opens it for writing or cuts it, is still the one under which they were read.

use fuser::{INodeNo, Notifier};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use weft_client::Client;
use weft_core::FileId;
use weft_env::real::{RealEnv, block_on};

/// Files remembered after their last close; the oldest knowledge is dropped beyond it.
const REMEMBERED_MAX: usize = 65_536;

/// Between two attempts to reach a metadata service that is away.
const PAUSE: Duration = Duration::from_millis(100);

/// The pages that the kernel keeps for this mount.
pub struct Pages {
    client: Client<RealEnv>,
    epochs: Mutex<HashMap<FileId, u64>>,
    notifier: OnceLock<Notifier>,
    /// The metadata service cannot tell us of writes at the moment.
    deaf: AtomicBool,
}

impl Pages {
    /// None yet.
    pub fn new(client: Client<RealEnv>) -> Arc<Self> {
        Arc::new(Self {
            client,
            epochs: Mutex::default(),
            notifier: OnceLock::new(),
            deaf: AtomicBool::new(true),
        })
    }

    /// Whether new opens may keep pages: only while the metadata service can tell of writes by others.
    pub fn may_keep(&self) -> bool {
        !self.deaf.load(Ordering::Acquire)
    }

    /// Whether pages from an earlier open are still right for one at `epoch`; remembers `epoch` as theirs from now on.
    pub fn still_good(&self, file: FileId, epoch: u64) -> bool {
        let mut epochs = self.epochs.lock();
        if epochs.len() >= REMEMBERED_MAX && !epochs.contains_key(&file) {
            epochs.clear();
        }
        epochs.insert(file, epoch) == Some(epoch)
    }

    /// The file is opened without pages: what the kernel has of it must not be used again.
    pub fn forget(&self, file: FileId) {
        self.epochs.lock().remove(&file);
    }

    /// After a read through pages while deaf: they are dropped again at once, because nobody would tell us when
    /// they become wrong.
    pub fn after_read(&self, file: FileId, offset: u64, len: u64) {
        if self.deaf.load(Ordering::Acquire)
            && let Some(notifier) = self.notifier.get()
        {
            let _ = notifier.inval_inode(INodeNo(file.0), offset as i64, len as i64);
        }
    }

    /// Starts the task that waits for writes of others and drops pages.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn serve(self: &Arc<Self>, notifier: Notifier) -> io::Result<()> {
        let _ = self.notifier.set(notifier.clone());
        let weak = Arc::downgrade(self);
        let client = self.client.clone();
        std::thread::Builder::new().name("weft-pages".to_owned()).spawn(move || {
            let mut done = 0;
            while weak.strong_count() > 0 {
                let told = block_on(client.wait_events(done));
                let Some(pages) = weak.upgrade() else { return };
                match told {
                    Ok(events) => {
                        for event in &events {
                            pages.forget(event.file);
                            let len = i64::try_from(event.end - event.start).unwrap_or(0);
                            // A length of 0 means to the end. An inode that the kernel does not know is no error.
                            let _ = notifier.inval_inode(INodeNo(event.file.0), event.start as i64, len);
                            done = done.max(event.number);
                        }
                        pages.deaf.store(false, Ordering::Release);
                    }
                    Err(_) => {
                        pages.deaf.store(true, Ordering::Release);
                        let known: Vec<FileId> = pages.epochs.lock().drain().map(|(file, _)| file).collect();
                        for file in known {
                            let _ = notifier.inval_inode(INodeNo(file.0), 0, 0);
                        }
                        done = 0;
                        std::thread::sleep(PAUSE);
                    }
                }
            }
        })?;
        Ok(())
    }
}
