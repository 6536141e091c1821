//! Directories.

use crate::args;
use crate::connection::{Connection, Weft, connection};
use crate::fail::{Fail, Res, exported, set_errno};
use crate::stat::fill;
use std::ffi::{c_char, c_int};
use std::sync::Arc;
use std::{mem, ptr};
use weft_client::{Attr, Entry, FileSystem, FileType, InodePath};
use weft_env::real::block_on;
use weft_wire::meta::NAME_LEN_MAX;

/// Names per request.
const PAGE: u32 = 1024;

/// Target of a `weft_dir_t` pointer.
pub struct Dir {
    connection: Arc<Connection>,
    place: InodePath,
    /// Names received but not returned yet, the next one last.
    page: Vec<Entry>,
    after: Vec<u8>,
    more: bool,
    /// Whether the names in `page` have attributes.
    has_attr: bool,
    entry: Dirent,
}

/// `weft_dirent_t`.
#[repr(C)]
pub struct Dirent {
    ino: u64,
    kind: u8,
    name: [u8; NAME_LEN_MAX + 1],
}

impl Dir {
    /// Receives names after the last returned one if none are left, or if they lack attributes.
    fn fill(&mut self, with_attr: bool) -> Res<()> {
        let lacks_attr = with_attr && !self.has_attr && !self.page.is_empty();
        if lacks_attr || (self.page.is_empty() && self.more) {
            let client = self.connection.client()?;
            (self.page, self.more) = block_on(client.list(&self.place, &self.after, PAGE, with_attr))?;
            self.page.reverse();
            self.has_attr = with_attr;
        }
        Ok(())
    }

    fn next(&mut self, with_attr: bool) -> Res<Option<(&Dirent, Option<Attr>)>> {
        self.fill(with_attr)?;
        let Some(Entry { name, file, kind, attr, .. }) = self.page.pop() else { return Ok(None) };
        if name.len() > NAME_LEN_MAX {
            return Err(Fail::new(libc::EOVERFLOW, "a name of more than 255 bytes"));
        }
        self.entry.ino = file.0;
        self.entry.kind = match kind {
            FileType::Regular => libc::DT_REG,
            FileType::Directory => libc::DT_DIR,
            FileType::Symlink => libc::DT_LNK,
            FileType::Fifo => libc::DT_FIFO,
            FileType::Socket => libc::DT_SOCK,
            FileType::CharDevice => libc::DT_CHR,
            FileType::BlockDevice => libc::DT_BLK,
        };
        self.entry.name = [0; NAME_LEN_MAX + 1];
        self.entry.name[..name.len()].copy_from_slice(&name);
        self.after = name;
        Ok(Some((&self.entry, attr)))
    }
}

exported! {
    fn weft_opendir(weft: *const Weft, path: *const c_char) -> *mut Dir | ptr::null_mut(); {
        // SAFETY: pointers of the caller.
        let (weft, path) = unsafe { (connection(weft)?, args::string(path, "the path")?) };
        let attr = weft.at(path, true, |files, place| block_on(files.stat(place)))?.attr;
        if attr.kind != FileType::Directory {
            let path = String::from_utf8_lossy(path);
            return Err(Fail::new(libc::ENOTDIR, format!("{path}: not a directory")));
        }
        let mut dir = Dir {
            connection: Arc::clone(weft),
            place: InodePath::at_inode(attr.file, attr.proof),
            page: Vec::new(),
            after: Vec::new(),
            more: true,
            has_attr: false,
            entry: Dirent { ino: 0, kind: libc::DT_UNKNOWN, name: [0; NAME_LEN_MAX + 1] },
        };
        // Fetch the first page now, so that an unreadable directory is rejected here.
        (dir.page, dir.more) = block_on(weft.client()?.list(&dir.place, b"", PAGE, false))?;
        dir.page.reverse();
        Ok(Box::into_raw(Box::new(dir)))
    }

    fn weft_readdir(dir: *mut Dir) -> *const Dirent | ptr::null(); {
        // SAFETY: it came from `weft_opendir`; one thread at a time uses it.
        let dir = unsafe { dir.as_mut() }.ok_or_else(|| Fail::argument("the directory is a null pointer"))?;
        match dir.next(false)? {
            Some((entry, _)) => Ok(ptr::from_ref(entry)),
            None => {
                set_errno(0); // distinguishes the end from an error
                Ok(ptr::null())
            }
        }
    }

    fn weft_readdir_stat(dir: *mut Dir, place: *mut libc::stat) -> *const Dirent | ptr::null(); {
        // SAFETY: it came from `weft_opendir`; one thread at a time uses it.
        let dir = unsafe { dir.as_mut() }.ok_or_else(|| Fail::argument("the directory is a null pointer"))?;
        let connection = Arc::clone(&dir.connection);
        let Some((entry, attr)) = dir.next(true)? else {
            set_errno(0); // distinguishes the end from an error
            return Ok(ptr::null());
        };
        // Neither is passed on: a size that no server could tell, and one that delegates may have changed.
        let is_exact = |attr: &Attr| {
            attr.invalid_size.is_none() && !(connection.has_delegates() && attr.kind == FileType::Regular)
        };
        match attr.filter(is_exact) {
            // SAFETY: a pointer of the caller.
            Some(attr) => unsafe { fill(place, &attr, &connection)? },
            // SAFETY: as above, and a struct of numbers, for which zeros are values.
            None => unsafe { args::put(place, mem::zeroed(), "the struct stat")? },
        }
        Ok(ptr::from_ref(entry))
    }

    fn weft_rewinddir(dir: *mut Dir) -> c_int | -1; {
        // SAFETY: as above.
        let dir = unsafe { dir.as_mut() }.ok_or_else(|| Fail::argument("the directory is a null pointer"))?;
        (dir.page, dir.after, dir.more) = (Vec::new(), Vec::new(), true);
        Ok(0)
    }

    fn weft_closedir(dir: *mut Dir) -> c_int | -1; {
        if dir.is_null() {
            return Err(Fail::argument("the directory is a null pointer"));
        }
        // SAFETY: it came from `weft_opendir`, and the caller does not use it again.
        drop(unsafe { Box::from_raw(dir) });
        Ok(0)
    }
}
