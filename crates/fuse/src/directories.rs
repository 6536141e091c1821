//! Open directories, and positions in them.
//!
//! The kernel asks for entries by a number that it was given with an earlier entry. The metadata service lists by name.
//! So an open directory remembers, for each page that it fetched, the number of its first entry and the name after
//! which it began: going on is exact however many names were removed meanwhile, and going back is possible.

use crate::answer::Answer;
use crate::convert::kind;
use crate::filesystem::WeftFilesystem;
use fuser::{Errno, FileHandle, FileType, INodeNo, ReplyDirectory, Request};
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use weft_client::{Client, Error};
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{Entry, Place};

/// Entries fetched at a time.
const PAGE: u32 = 1024;

/// An open directory.
pub struct Listing {
    at: Place,
    /// In the name of the user who opened it, where the mount itself may not read it.
    opener: Client<RealEnv>,
    /// First entry number and the name before it, of each page seen so far.
    marks: Vec<(u64, Vec<u8>)>,
    page: Vec<Entry>,
    /// Index in `marks` of the page held.
    held: Option<usize>,
    more: bool,
}

impl Listing {
    /// Of this directory.
    pub fn new(at: Place, opener: Client<RealEnv>) -> Self {
        Self { at, opener, marks: vec![(0, Vec::new())], page: Vec::new(), held: None, more: true }
    }

    /// The entry with number `index` from 0, if there are that many.
    ///
    /// # Errors
    /// Of the metadata service.
    pub fn entry(&mut self, client: &Client<RealEnv>, index: u64) -> Result<Option<&Entry>, Error> {
        if index == 0 && self.held != Some(0) {
            // From the beginning again: look afresh, as rewinddir promises.
            self.marks.truncate(1);
            self.held = None;
        }
        loop {
            let mark = self.marks.partition_point(|(first, _)| *first <= index) - 1;
            if self.held != Some(mark) {
                let after = &self.marks[mark].1;
                let page = match block_on(client.list(&self.at, after, PAGE, false)) {
                    Err(error) if error.errno() == libc::EACCES => {
                        block_on(self.opener.list(&self.at, after, PAGE, false))
                    }
                    page => page,
                };
                let (entries, more) = page?;
                self.page = entries;
                self.more = more;
                self.held = Some(mark);
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

    /// Forgets what was fetched, so that the next reading from the start sees new names.
    pub fn rewind(&mut self) {
        self.marks.truncate(1);
        self.held = None;
    }
}

impl WeftFilesystem {
    /// Opens a directory for the caller, if he may read it.
    pub fn open_directory(&self, request: &Request, ino: INodeNo) -> Answer<FileHandle> {
        let at = self.reached.inode(ino);
        let opener = self.client(request);
        block_on(opener.access(&at, libc::R_OK as u32))?;
        Ok(FileHandle(self.directories.insert(Mutex::new(Listing::new(at, opener)))))
    }

    /// Adds entries from number `first` on until the kernel has no more room.
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
                // The kernel only shows these two; it never looks them up by number.
                0 => reply.add(ino, 1, FileType::Directory, "."),
                1 => reply.add(ino, 2, FileType::Directory, ".."),
                // Permission was checked at opendir, as POSIX has it.
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
}
