//! Open directories, and positions in them.
//!
//! The kernel identifies the next entry by a number from an earlier reply. The metadata service lists by name. An open
//! directory therefore remembers, for each page that it fetched, the number of its first entry and the name before it.
//! Listing continues exactly even if names were removed meanwhile, and seeking backward is possible.

use crate::answer::Answer;
use crate::convert::{attr, kind, stand_in, type_only};
use crate::filesystem::WeftFilesystem;
use fuser::{Errno, FileHandle, FileType, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus, Request};
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use weft_client::{Client, Error};
use weft_core::Nanos;
use weft_env::Env;
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{Entry, InodePath};

/// Entries per request.
const PAGE: u32 = 1024;

/// Minimum and maximum number of entries with attributes per request. The kernel's buffer has space for some number in
/// between, depending on its version and on the names.
const PLUS_MIN: u32 = 32;
const PLUS_MAX: u32 = 1024;

/// Open directory.
pub struct Listing {
    at: InodePath,
    /// Client of the user who opened it; the mount itself may lack permission.
    opener: Client<RealEnv>,
    /// First entry number of each page fetched so far, and the name before it.
    marks: Vec<(u64, Vec<u8>)>,
    page: Vec<Entry>,
    /// Index in `marks` of the current page.
    current_page: Option<usize>,
    more: bool,
    /// Number of entries in the latest reply with attributes.
    with_attributes: u32,
}

impl Listing {
    /// Creates a listing of the directory `at`.
    pub fn new(at: InodePath, opener: Client<RealEnv>) -> Self {
        let marks = vec![(0, Vec::new())];
        Self {
            at,
            opener,
            marks,
            page: Vec::new(),
            current_page: None,
            more: true,
            with_attributes: PLUS_MIN,
        }
    }

    /// Returns the entry with number `index`, from 0, if it exists.
    ///
    /// # Errors
    /// Errors of the metadata service.
    pub fn entry(&mut self, client: &Client<RealEnv>, index: u64) -> Result<Option<&Entry>, Error> {
        if index == 0 && self.current_page != Some(0) {
            // At the start, list again, as rewinddir promises.
            self.marks.truncate(1);
            self.current_page = None;
        }
        loop {
            let mark = self.mark_before(index);
            if self.current_page != Some(mark) {
                let after = &self.marks[mark].1;
                let (entries, more) =
                    self.fetch(client, |client| block_on(client.list(&self.at, after, PAGE, false)))?;
                self.page = entries;
                self.more = more;
                self.current_page = Some(mark);
            }
            let first = self.marks[mark].0;
            let within = (index - first) as usize;
            if within < self.page.len() {
                return Ok(self.page.get(within));
            }
            let (true, Some(last)) = (self.more, self.page.last()) else {
                return Ok(None);
            };
            let next = (first + self.page.len() as u64, last.name.clone());
            self.marks.truncate(mark + 1);
            self.marks.push(next);
        }
    }

    /// Returns the index in `marks` of the last one not behind entry number `index`.
    fn mark_before(&self, index: u64) -> usize {
        self.marks.partition_point(|(first, _)| *first <= index) - 1
    }

    /// Fetches entries as `client`, or as the opener if that lacks permission.
    fn fetch<T>(
        &self,
        client: &Client<RealEnv>,
        list: impl Fn(&Client<RealEnv>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match list(client) {
            Err(error) if error.errno() == libc::EACCES => list(&self.opener),
            listed => listed,
        }
    }

    /// Returns at most `limit` entries from number `index` on with their attributes, and leases them until the returned
    /// time. Attributes are not kept: the kernel compares the time of its request with its own changes.
    ///
    /// # Errors
    /// Errors of the metadata service.
    pub fn leased(
        &mut self,
        client: &Client<RealEnv>,
        index: u64,
        limit: u32,
    ) -> Result<(Vec<Entry>, Nanos), Error> {
        let mut mark = self.mark_before(index);
        if self.marks[mark].0 != index {
            let Some(before) = self.entry(client, index - 1)? else { return Ok((Vec::new(), Nanos::ZERO)) };
            let after = before.name.clone();
            mark = self.mark_before(index) + 1;
            self.marks.truncate(mark);
            self.marks.push((index, after));
        }
        let after = &self.marks[mark].1;
        let (entries, more, until) =
            self.fetch(client, |client| block_on(client.list_leased(&self.at, after, limit)))?;
        // Without attributes: listing may continue behind any of the names.
        let named = |entry: &Entry| Entry { name: entry.name.clone(), attr: None, ..*entry };
        (self.page, self.more) = (entries.iter().map(named).collect(), more);
        self.current_page = Some(mark);
        Ok((entries, until))
    }

    /// Discards fetched entries, so that the next listing from the start sees new names.
    pub fn rewind(&mut self) {
        self.marks.truncate(1);
        self.current_page = None;
    }
}

impl WeftFilesystem {
    /// Opens a directory for the caller, who needs permission to read it.
    pub fn open_directory(&self, request: &Request, ino: INodeNo) -> Answer<FileHandle> {
        let at = self.inode_proofs.inode(ino);
        let opener = self.client(request);
        block_on(opener.access(&at, libc::R_OK as u32))?;
        Ok(FileHandle(self.directories.insert(Mutex::new(Listing::new(at, opener)))))
    }

    /// Adds entries from number `first` on, until the kernel's buffer is full.
    pub fn add_entries(
        &self,
        ino: INodeNo,
        fh: FileHandle,
        first: u64,
        reply: &mut ReplyDirectory,
    ) -> Answer<()> {
        let listing = self.directories.get(fh.0).ok_or(Errno::EBADF)?;
        let mut listing = listing.lock();
        if first == 0 {
            listing.rewind();
        }
        for number in first.. {
            let full = match number {
                // The kernel only displays these two; it never looks them up by number.
                0 => reply.add(ino, 1, FileType::Directory, "."),
                1 => reply.add(ino, 2, FileType::Directory, ".."),
                // Permission was checked at opendir, as POSIX requires.
                _ => match listing.entry(&self.client, number - 2)? {
                    Some(entry) => {
                        let name = OsStr::from_bytes(&entry.name);
                        reply.add(INodeNo(entry.file.0), number + 1, kind(entry.kind), name)
                    }
                    None => break,
                },
            };
            if full {
                break;
            }
        }
        Ok(())
    }

    /// Adds entries with attributes, as [`Self::add_entries`] does.
    pub fn add_entries_with_attributes(
        &self,
        ino: INodeNo,
        fh: FileHandle,
        first: u64,
        reply: &mut ReplyDirectoryPlus,
    ) -> Answer<()> {
        let listing = self.directories.get(fh.0).ok_or(Errno::EBADF)?;
        let mut listing = listing.lock();
        if first == 0 {
            listing.rewind();
        }
        for (number, name) in [(0, "."), (1, "..")] {
            // The kernel uses only name, type and number of these two.
            let shown = type_only(ino, FileType::Directory);
            if number >= first && reply.add(ino, number + 1, name, &Duration::ZERO, &shown, Generation(0)) {
                return Ok(());
            }
        }
        let mut number = first.max(2);
        let limit = listing.with_attributes.saturating_mul(2).clamp(PLUS_MIN, PLUS_MAX);
        let (entries, until) = listing.leased(&self.client, number - 2, limit)?;
        let now = self.client.env().now();
        for entry in &entries {
            let (shown, ttl) = match &entry.attr {
                Some(found) if entry.leased => {
                    let used = self.pages.names.listed((entry.file, until), (ino, &entry.name), now);
                    (attr(found), used.max(self.ttl()))
                }
                Some(found) => (attr(found), self.ttl()),
                None => (type_only(stand_in(entry.file), kind(entry.kind)), Duration::ZERO),
            };
            let name = OsStr::from_bytes(&entry.name);
            if reply.add(shown.ino, number + 1, name, &ttl, &shown, Generation(0)) {
                break;
            }
            if let Some(found) = &entry.attr {
                self.inode_proofs.learn(found);
            }
            number += 1;
        }
        listing.with_attributes = (number - first) as u32;
        Ok(())
    }
}
