//! Opening, creating and closing files.

use crate::answer::Answer;
use crate::caller::identity;
use crate::convert::open_flags;
use crate::file_pages::FilePages;
use crate::filesystem::WeftFilesystem;
use crate::locks::release_locks_of;
use fuser::{Errno, FileHandle, FopenFlags, LockOwner, Request};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weft_client::OpenFile;
use weft_core::ByteLen;
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{InodePath, LayoutSpec, SetAttr, Writer};

/// Minimum length of files that are read without the kernel's page cache if the servers are on this host. Their bytes
/// are already in its memory, and a second copy costs more than it saves.
const PAGES_LEN_MAX: ByteLen = ByteLen(32 << 20);
/// Set-user-id and set-group-id bits.
pub const SET_IDS: u32 = libc::S_ISUID | libc::S_ISGID;

/// Open file of the kernel.
pub struct OpenHandle {
    pub file: OpenFile<RealEnv>,
    /// Whether the file is open for reading.
    pub reads: bool,
    /// Whether the kernel keeps pages for this open.
    pub pages: bool,
    /// Pages of the file that the kernel may have.
    pub kernel_pages: Arc<FilePages<OpenFile<RealEnv>>>,
    /// Whether the file may have set-id bits, which a write by an unprivileged user clears.
    pub set_ids: AtomicBool,
    /// Whether to try splicing for reads that end before `length_seen`.
    pub splices: AtomicBool,
    /// Largest length that the file has been seen to have.
    pub length_seen: AtomicU64,
    /// Whether data was written through this open since its last flush.
    pub wrote: AtomicBool,
}

impl WeftFilesystem {
    /// Returns the open file with this number.
    pub fn handle(&self, fh: FileHandle) -> Answer<Arc<OpenHandle>> {
        Ok(self.files.get(fh.0).ok_or(Errno::EBADF)?)
    }

    /// Opens or creates a file in the name of the caller.
    pub fn open_at(
        &self,
        request: &Request,
        at: &InodePath,
        flags: i32,
        mode: u32,
    ) -> Answer<OpenFile<RealEnv>> {
        let client = self.client(request);
        let opened = block_on(client.open(at, open_flags(flags), mode, &LayoutSpec::default()));
        Ok(opened.map_err(|error| match at.path.is_empty() {
            true => error.about(&self.names.path(at.base.0)),
            false => error,
        })?)
    }

    /// Stores an open file. Returns its number and how the kernel may treat it.
    pub fn keep(&self, file: OpenFile<RealEnv>, flags: i32) -> (FileHandle, FopenFlags) {
        let at_open = file.attr_at_open();
        // Only the server knows the end of the file for appends; the kernel would use its own idea of the end.
        let past =
            flags & (libc::O_DIRECT | libc::O_APPEND) != 0 || self.colocated && at_open.size >= PAGES_LEN_MAX;
        let pages = !past && file.may_cache() && self.pages.may_keep();
        let (kernel_pages, are_valid) = self.pages.opened(&file, pages.then(|| file.epoch()));
        let kernel = match (pages, are_valid) {
            (true, true) => FopenFlags::FOPEN_KEEP_CACHE,
            (true, false) => FopenFlags::empty(),
            (false, _) => FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
        };
        let reads = matches!(flags & libc::O_ACCMODE, libc::O_RDONLY | libc::O_RDWR);
        let set_ids = AtomicBool::new(at_open.mode & SET_IDS != 0);
        let length_seen = AtomicU64::new(at_open.size.0);
        let (splices, wrote) = (AtomicBool::new(true), AtomicBool::new(false));
        let handle = OpenHandle { file, reads, pages, kernel_pages, set_ids, splices, length_seen, wrote };
        (FileHandle(self.files.insert(handle)), kernel)
    }

    /// Clears the set-id bits before a change of the bytes by an unprivileged user. If that fails, the close clears them.
    pub fn take_set_ids(&self, request: &Request, handle: &OpenHandle) {
        if !handle.set_ids.load(Ordering::Relaxed) || !handle.set_ids.swap(false, Ordering::Relaxed) {
            return;
        }
        let is_member = identity(request).in_group(handle.file.attr_at_open().gid);
        let written_by = Some(if is_member { Writer::Member } else { Writer::Other });
        let set = SetAttr { written_by, ..SetAttr::default() };
        let _ = block_on(self.client.set_attr(&handle.file.place(), set));
    }

    /// Clears the set-id bits before a change of the bytes for which the kernel does not say whether the user is privileged.
    pub fn take_set_ids_of_user(&self, request: &Request, fh: FileHandle) {
        if request.uid() != 0
            && let Some(handle) = self.files.get(fh.0)
        {
            self.take_set_ids(request, &handle);
        }
    }

    /// Handles the close of a descriptor, which need not be the last one of this open, and calls `answer`.
    pub fn flush_handle(&self, fh: FileHandle, owner: LockOwner, answer: impl FnOnce() + Send + 'static) {
        let Some(handle) = self.files.get(fh.0) else { return answer() };
        // Mappings on other mounts must see the written bytes when this close returns; the release comes later.
        if handle.wrote.swap(false, Ordering::Relaxed) {
            block_on(handle.file.invalidate_other_mounts());
        }
        // The next holder of the process's locks must see them as well.
        let (owners, file) = (Arc::clone(&self.lock_owners), handle.file.file());
        let then = move || {
            release_locks_of(&owners, &handle.file, fh, owner.0);
            drop(handle);
            answer();
        };
        self.pages.reporter.then(file, Box::new(then));
    }

    /// Handles the close of the last descriptor of this open.
    pub fn close_handle(&self, fh: FileHandle) {
        let _releasing = self.releases.begin();
        let Some(handle) = self.files.remove(fh.0) else { return };
        self.release_locks_with(&handle.file, fh);
        self.pages.closed(&handle);
    }
}
