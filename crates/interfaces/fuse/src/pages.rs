//! The rule by which the kernel may keep pages.
//!
//! | event | action |
//! | --- | --- |
//! | open of a file that no other session writes | the kernel may keep pages (`may_cache`) |
//! | write by this mount | goes to the servers at once; then this mount drops the pages (see `file_pages`) |
//! | store of this mount through a mapping | goes to the servers when the kernel writes the page back |
//! | write by another session | that session waits until this mount has dropped the pages |
//! | close by another session that wrote | it waits until all mounts with the file open have dropped its pages |
//! | last close here | pages stay; the next open may use them if the file's epoch is unchanged |
//! | connection to the metadata service lost | all pages are dropped, then again after each read until reconnection |
//!
//! A read that starts after a write has returned therefore sees the write. The epoch changes whenever a session opens
//! the file for writing or cuts it.
//!
//! An open that keeps no pages can still be mapped, and the kernel holds the pages of a mapping until they are dropped.
//! A mapping keeps its file open, so that the rule for closes covers it.
//!
//! While the connection is lost, this mount cannot learn of writes. When the metadata service starts again, it makes
//! writers wait until mounts have reported which files they keep.

use crate::answer::Answer;
use crate::dropper::{ALL, Dropper};
use crate::file_pages::FilePages;
use crate::kernel_size::StoresBefore;
use crate::leased_names::LeasedNames;
use crate::open::OpenHandle;
use crate::reporter::Reporter;
use fuser::Notifier;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weft_client::{Client, OpenFile};
use weft_core::{ByteLen, ByteRange, FileId};
use weft_env::Env;
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{NAME_LEASE, Outdated};

/// Maximum number of files remembered after their last close; beyond it, the oldest are forgotten.
const REMEMBERED_MAX: usize = 65_536;

/// Pause between attempts to reach the metadata service.
const PAUSE: Duration = Duration::from_millis(20);
/// Pause while the service refuses the mount's key; the client itself asks it more and more rarely.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// Pages that the kernel keeps for this mount.
pub struct Pages {
    client: Client<RealEnv>,
    kept: Mutex<Kept>,
    dropper: Arc<Dropper>,
    pub reporter: Arc<Reporter>,
    /// Names and attributes that the kernel may use, whose changes are reported like those of pages.
    pub names: LeasedNames,
    /// Whether the metadata service is currently unable to report writes.
    disconnected: AtomicBool,
}

/// A change by this mount that bypasses the kernel's pages.
pub struct BegunChange {
    /// Number in the file.
    number: u64,
    stores_before: StoresBefore,
}

#[derive(Default)]
struct Kept {
    /// Epoch under which the kernel read the pages that it may still have.
    epochs: HashMap<FileId, u64>,
    /// Opens with pages, by file.
    opens: BTreeMap<FileId, u32>,
    /// Opens without pages, by file; they can be mapped.
    direct: BTreeMap<FileId, u32>,
    /// Pages of open files.
    files: HashMap<FileId, Arc<FilePages<OpenFile<RealEnv>>>>,
}

impl Kept {
    fn files(&self) -> BTreeSet<FileId> {
        self.epochs.keys().chain(self.opens.keys()).chain(self.direct.keys()).copied().collect()
    }
}

impl Pages {
    /// Creates the state without pages.
    pub fn new(client: Client<RealEnv>) -> Arc<Self> {
        Arc::new(Self {
            client,
            kept: Mutex::default(),
            dropper: Dropper::new(),
            reporter: Arc::default(),
            names: LeasedNames::default(),
            disconnected: AtomicBool::new(true),
        })
    }

    /// Whether new opens may keep pages: only while the metadata service can report writes by other sessions.
    pub fn may_keep(&self) -> bool {
        !self.disconnected.load(Ordering::Acquire)
    }

    /// Registers an open, before the kernel learns of it. `epoch` is the one of an open with pages. Returns the pages of
    /// the file, and whether pages of an earlier open are still valid at this epoch, which becomes their new one.
    pub fn opened(
        &self,
        file: &OpenFile<RealEnv>,
        epoch: Option<u64>,
    ) -> (Arc<FilePages<OpenFile<RealEnv>>>, bool) {
        let (id, mappable) = (file.file(), is_mappable(file));
        let mut kept = self.kept.lock();
        self.dropper.sizes.opened(id, mappable);
        let pages = Arc::clone(kept.files.entry(id).or_default());
        let are_valid = if let Some(epoch) = epoch {
            *kept.opens.entry(id).or_default() += 1;
            if kept.epochs.len() >= REMEMBERED_MAX && !kept.epochs.contains_key(&id) {
                kept.epochs.clear();
            }
            kept.epochs.insert(id, epoch) == Some(epoch)
        } else {
            // Later opens must not use the kernel's existing pages.
            kept.epochs.remove(&id);
            *kept.direct.entry(id).or_default() += 1;
            false
        };
        // The pages of one file may wait for a server, so no lock of all files is held.
        drop(kept);
        if file.flags().write {
            pages.opened(mappable.then(|| (file.handle().0, file.clone())));
        }
        (pages, are_valid)
    }

    /// Registers the end of an open, with pages or without.
    pub fn closed(&self, handle: &OpenHandle) {
        let file = handle.file.file();
        if handle.file.flags().write {
            handle.kernel_pages.closed(handle.file.handle().0);
        }
        let mut kept = self.kept.lock();
        if is_mappable(&handle.file) {
            self.dropper.sizes.closed_mappable(file);
        }
        let opens = if handle.pages { &mut kept.opens } else { &mut kept.direct };
        if let Some(count) = opens.get_mut(&file) {
            *count -= 1;
            if *count == 0 {
                opens.remove(&file);
            }
        }
        if !kept.opens.contains_key(&file) && !kept.direct.contains_key(&file) {
            kept.files.remove(&file);
            self.dropper.sizes.forget(file);
        }
    }

    fn forget(&self, file: FileId) {
        self.kept.lock().epochs.remove(&file);
    }

    /// Ends the tasks when they have nothing left to do.
    pub fn end(&self) {
        self.dropper.end();
        self.reporter.end();
    }

    /// After a read that filled pages, drops those pages whose invalidation would not be reported: all pages while
    /// disconnected. For an open without pages, only closes of other sessions are reported, not each write.
    pub fn after_read(&self, file: &OpenFile<RealEnv>, with_pages: bool) {
        if self.disconnected.load(Ordering::Acquire) || with_pages && !file.receives_invalidations() {
            self.dropper.drop_later(file.file());
        }
    }

    /// After a query for the attributes of an open file: calls `answer` when the kernel cannot ignore the size any
    /// more (see `kernel_size`).
    pub fn answer_size(
        &self,
        handle: &Arc<OpenHandle>,
        size: ByteLen,
        answer: impl FnOnce(Answer<()>) + Send + 'static,
    ) {
        match self.dropper.sizes.answering(handle, size.0) {
            Ok(None) => answer(Ok(())),
            Ok(Some(last)) => self.dropper.store_then(last, Box::new(|| answer(Ok(())))),
            Err(refusal) => answer(Err(refusal)),
        }
    }

    /// Before a change of a file by this mount.
    pub fn before_change(&self) -> StoresBefore {
        self.dropper.sizes.changing_here()
    }

    /// After a change of the file through the kernel's pages, by this mount; with `cut`, it may have become shorter.
    pub fn after_change(&self, file: FileId, before: StoresBefore, cut: bool) {
        if self.dropper.sizes.changed_here(file, before, cut) {
            self.dropper.drop_later(file);
        }
    }

    /// Begins a change of `range` that bypasses the kernel's pages; `read` reads the bytes before it.
    ///
    /// # Errors
    /// Errors of `read`.
    pub fn begin_change_past<X>(
        &self,
        handle: &OpenHandle,
        range: ByteRange,
        read: impl FnMut(&OpenFile<RealEnv>, u64, &mut [u8]) -> Result<usize, X>,
    ) -> Result<BegunChange, X> {
        let stores_before = self.before_change();
        Ok(BegunChange { number: handle.kernel_pages.begin(range, read)?, stores_before })
    }

    /// After a change of `range` that bypassed the kernel's pages: calls `answer` when the
    /// kernel has no page that it read before the change. Waits for nothing.
    pub fn after_change_past(
        &self,
        handle: &OpenHandle,
        BegunChange { number, stores_before }: BegunChange,
        range: Option<ByteRange>,
        answer: impl FnOnce() + Send + 'static,
    ) {
        let file = handle.file.file();
        let may_be_stored = self.dropper.sizes.changed_here(file, stores_before, false);
        if let Some(dropped) = handle.kernel_pages.applied(number, range) {
            let pages = Arc::clone(&handle.kernel_pages);
            let then = move || {
                pages.ended(number, dropped);
                answer();
            };
            self.dropper.drop_then(file, dropped, Box::new(then));
        } else if may_be_stored && self.kept.lock().opens.contains_key(&file) {
            self.dropper.drop_then(file, ALL, Box::new(answer));
        } else {
            answer();
        }
    }

    /// Starts the tasks that wait for writes of other sessions and drop pages.
    ///
    /// # Errors
    /// If the system cannot create a thread.
    pub fn serve(self: &Arc<Self>, notifier: Notifier) -> io::Result<()> {
        self.dropper.serve(notifier.clone())?;
        self.reporter.serve()?;
        let weak = Arc::downgrade(self);
        let client = self.client.clone();
        std::thread::Builder::new().name("weft-pages".to_owned()).spawn(move || {
            while weak.strong_count() > 0 {
                if let Err(error) = block_on(client.listen()) {
                    let is_refused = error.errno() == libc::EACCES;
                    if is_refused {
                        crate::failures::note(&error);
                    }
                    std::thread::sleep(if is_refused { REFUSED_PAUSE } else { PAUSE });
                    continue;
                }
                match weak.upgrade() {
                    // Drop pages read since the connection broke before keeping any again.
                    Some(pages) => pages.reconnected(&notifier),
                    None => return,
                }
                let mut done = 0;
                while let Ok(events) = block_on(client.wait_events(done)) {
                    let Some(pages) = weak.upgrade() else { return };
                    for event in &events {
                        match event.outdated {
                            Outdated::Pages { start, end } => {
                                pages.forget(event.file);
                                let range = ByteRange::new(start, end).unwrap_or(ALL);
                                pages.dropper.drop_now(&notifier, event.file, range);
                            }
                            Outdated::Attributes => pages.drop_name(&notifier, event.file, false),
                            Outdated::Name => pages.drop_name(&notifier, event.file, true),
                        }
                        done = done.max(event.number);
                    }
                }
                match weak.upgrade() {
                    Some(pages) => pages.connection_lost(&notifier),
                    None => return,
                }
            }
        })?;
        Ok(())
    }

    /// Has a thread drop a name, and waits for it, but not longer than the lease: the kernel may hold the lock of the
    /// directory for long, and later events would wait, too.
    fn drop_name(self: &Arc<Self>, notifier: &Notifier, file: FileId, of_name: bool) {
        self.names.outdated(file, self.client.env().now());
        let (done, is_done) = std::sync::mpsc::channel();
        let (pages, notifier) = (Arc::clone(self), notifier.clone());
        let drop = move || {
            pages.names.drop_now(&notifier, file, of_name, pages.client.env());
            let _ = done.send(());
        };
        let limit = NAME_LEASE.as_duration();
        match std::thread::Builder::new().name("weft-names".to_owned()).spawn(drop) {
            Ok(_) => {
                let _ = is_done.recv_timeout(limit);
            }
            // Without a thread, the lease ends by itself.
            Err(_) => std::thread::sleep(limit),
        }
    }

    fn reconnected(&self, notifier: &Notifier) {
        self.drop_all(notifier);
        self.disconnected.store(false, Ordering::Release);
    }

    fn connection_lost(&self, notifier: &Notifier) {
        self.disconnected.store(true, Ordering::Release);
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
            self.dropper.drop_now(notifier, file, ALL);
        }
    }
}

/// Whether programs can store into a mapping of this open.
fn is_mappable(file: &OpenFile<RealEnv>) -> bool {
    file.flags().read && file.flags().write
}
