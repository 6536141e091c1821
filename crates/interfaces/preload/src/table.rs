//! Table of registered descriptors, those of Weft files and of files of the host that delegates serve: a two-level array
//! of pointers to entries that are never unmapped.
//!
//! A lookup takes no lock. It pins the entry and then checks that the number still refers to it. The last thread that
//! unpins a removed entry drops its value. Entries are reused but never freed, so that a late pin of an entry that
//! serves another number by now only changes a counter.

use crate::lock::Lock;
use crate::open::Open;
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::ops::Deref;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::SeqCst, Ordering::*};

const PAGE_SLOTS: usize = 1024;
const PAGES: usize = 1024;

/// Removed; the last unpin drops the value.
const DEAD: u64 = 1 << 32;
/// In the free list.
const FREE: u64 = 1 << 33;

struct Page {
    slots: [AtomicPtr<Entry>; PAGE_SLOTS],
    /// Number of used slots, so that a walk skips pages without any.
    used: AtomicUsize,
}

impl Page {
    const fn new() -> Self {
        Self { slots: [const { AtomicPtr::new(null_mut()) }; PAGE_SLOTS], used: AtomicUsize::new(0) }
    }

    /// Replaces the entry of a slot.
    fn swap(&self, fd: c_int, entry: *mut Entry) -> *mut Entry {
        // Before the slot changes: no walk may miss a used one.
        if !entry.is_null() {
            self.used.fetch_add(1, SeqCst);
        }
        let former = self.slots[fd as u32 as usize % PAGE_SLOTS].swap(entry, SeqCst);
        if !former.is_null() {
            self.used.fetch_sub(1, SeqCst);
        }
        former
    }
}

static TABLE: [AtomicPtr<Page>; PAGES] = [const { AtomicPtr::new(null_mut()) }; PAGES];
static SPARE: Lock<Vec<&'static Entry>> = Lock::new(Vec::new());
/// Whether a descriptor was ever registered.
static ANY: AtomicBool = AtomicBool::new(false);

struct Entry {
    /// Number of pins in the low half, `DEAD` and `FREE` above.
    state: AtomicU64,
    value: UnsafeCell<Option<Arc<Open>>>,
}

// SAFETY: the value is written only while no pin can read it: before publication, and by the one thread that moved
// the state from DEAD without pins to FREE.
unsafe impl Sync for Entry {}

/// Open file of a descriptor, pinned during a call.
pub struct Pin(&'static Entry);

impl Deref for Pin {
    type Target = Arc<Open>;
    fn deref(&self) -> &Arc<Open> {
        // SAFETY: pinned, so the value stays; it was set before the entry was published.
        unsafe { (*self.0.value.get()).as_ref().unwrap_unchecked() }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        unpin(self.0);
    }
}

fn unpin(entry: &'static Entry) {
    if entry.state.fetch_sub(1, SeqCst) == DEAD | 1 {
        reclaim(entry);
    }
}

fn reclaim(entry: &'static Entry) {
    if entry.state.compare_exchange(DEAD, FREE, SeqCst, SeqCst).is_ok() {
        // SAFETY: this thread alone moved the entry to FREE, and nobody publishes it before it is in the list.
        drop(unsafe { (*entry.value.get()).take() });
        SPARE.lock().push(entry);
    }
}

#[inline]
fn page(fd: c_int) -> Option<&'static Page> {
    let page = TABLE.get((fd as u32 as usize) / PAGE_SLOTS)?.load(Acquire);
    // SAFETY: pages are never freed.
    unsafe { page.as_ref() }
}

#[inline]
fn slot(fd: c_int) -> Option<&'static AtomicPtr<Entry>> {
    page(fd).map(|page| &page.slots[fd as u32 as usize % PAGE_SLOTS])
}

fn page_made(fd: c_int) -> Option<&'static Page> {
    let place = TABLE.get((fd as u32 as usize) / PAGE_SLOTS)?;
    if place.load(Acquire).is_null() {
        let fresh = Box::into_raw(Box::new(Page::new()));
        if place.compare_exchange(null_mut(), fresh, AcqRel, Acquire).is_err() {
            // SAFETY: nobody else has seen it.
            drop(unsafe { Box::from_raw(fresh) });
        }
    }
    page(fd)
}

/// Whether `fd` is registered: the cheap check with which every hook starts.
#[inline]
pub fn is_ours(fd: c_int) -> bool {
    slot(fd).is_some_and(|slot| !slot.load(Relaxed).is_null())
}

/// Whether `fd` is a descriptor of a Weft file, whose names, attributes and locks are not the kernel's.
#[inline]
pub fn is_weft(fd: c_int) -> bool {
    is_ours(fd) && get(fd).is_some_and(|open| !open.is_host())
}

/// Returns the open file of `fd` if it is registered.
pub fn get(fd: c_int) -> Option<Pin> {
    let slot = slot(fd)?;
    loop {
        let entry = slot.load(SeqCst);
        // SAFETY: entries are never freed.
        let entry = unsafe { entry.as_ref() }?;
        entry.state.fetch_add(1, SeqCst);
        if std::ptr::eq(slot.load(SeqCst), entry) {
            return Some(Pin(entry));
        }
        unpin(entry);
    }
}

/// Whether a descriptor was ever registered.
#[inline]
pub fn any() -> bool {
    ANY.load(Relaxed)
}

/// Registers `fd`. Returns false if the number is beyond the table.
pub fn set(fd: c_int, open: Arc<Open>) -> bool {
    let Some(page) = page_made(fd) else { return false };
    ANY.store(true, Relaxed);
    let spare = SPARE.lock().pop();
    let entry: &'static Entry = match spare {
        Some(entry) => {
            // SAFETY: in the list, so without a value and published nowhere; late pins only touch the counter.
            unsafe { *entry.value.get() = Some(open) };
            entry.state.fetch_and(!FREE, SeqCst);
            entry
        }
        None => Box::leak(Box::new(Entry { state: AtomicU64::new(0), value: UnsafeCell::new(Some(open)) })),
    };
    retire(page.swap(fd, std::ptr::from_ref(entry).cast_mut()));
    true
}

/// Makes `fd` foreign again. Returns whether it was registered.
pub fn remove(fd: c_int) -> bool {
    page(fd).is_some_and(|page| retire(page.swap(fd, null_mut())))
}

fn retire(entry: *mut Entry) -> bool {
    // SAFETY: entries are never freed.
    let Some(entry) = (unsafe { entry.as_ref() }) else { return false };
    if entry.state.fetch_or(DEAD, SeqCst) & 0xffff_ffff == 0 {
        reclaim(entry);
    }
    true
}

/// Returns all registered descriptors from `first` to `last`, in ascending order.
pub fn all(first: u32, last: u32) -> Vec<c_int> {
    let mut found = Vec::new();
    for (number, page) in TABLE.iter().enumerate() {
        // SAFETY: pages are never freed.
        let Some(page) = (unsafe { page.load(Acquire).as_ref() }) else { continue };
        if page.used.load(SeqCst) == 0 {
            continue;
        }
        let base = number * PAGE_SLOTS;
        let numbers = page.slots.iter().enumerate().filter(|(_, slot)| !slot.load(Relaxed).is_null());
        found.extend(
            numbers.map(|(at, _)| base + at).filter(|&fd| (first as usize..=last as usize).contains(&fd)),
        );
    }
    found.into_iter().map(|fd| fd as c_int).collect()
}

/// Resets the lock in a forked child, where only the forking thread exists: another thread may have held it.
pub fn after_fork_in_child() {
    // A list left in the middle of a change is discarded: it contains only spare entries. SAFETY: the holder does not
    // exist in this process, and the value is replaced without being read.
    unsafe {
        SPARE.reset();
        std::ptr::write(&mut *SPARE.lock(), Vec::new());
    }
}
