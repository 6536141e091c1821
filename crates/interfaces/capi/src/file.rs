//! Open files.

use crate::args;
use crate::connection::{Connection, Weft, connection};
use crate::fail::{Fail, Res, exported};
use crate::forked::Forked;
use crate::layout::{LayoutSpec, compression_from, spec_from};
use crate::names::unmasked;
use crate::stat::fill;
use libc::{mode_t, off_t};
use std::ffi::{c_char, c_int};
use std::ptr;
use std::sync::Arc;
use weft_client::{FileHandle, FileSystem, FileType, HostOrWeftFile, MaybeDelegated, OpenFile, OpenFlags};
use weft_core::ByteLen;
use weft_env::real::{RealEnv, block_on};

/// An open file, with the delegates of the job in front of it if there are some.
pub type Handle = MaybeDelegated<RealEnv, HostOrWeftFile<RealEnv>>;

/// Target of a `weft_file_t` pointer.
pub struct File {
    connection: Arc<Connection>,
    open: Forked<Handle>,
    /// Whether writes append.
    pub append: bool,
    /// Whether writes are durable when they return.
    pub sync: bool,
}

impl File {
    /// Returns this process's open file; a forked child reopens its parent's.
    pub fn get(&self) -> Res<&Handle> {
        self.connection.files(|files| {
            self.open.get(|parents| {
                let token = weft_file(parents)?.token();
                Ok(files.wrap(block_on(files.weft.adopt(&token))?)?)
            })
        })?
    }

    /// Returns this process's open file of Weft, for locks and attributes.
    pub fn weft(&self) -> Res<&OpenFile<RealEnv>> {
        weft_file(self.get()?)
    }

    fn open(
        connection: &Arc<Connection>,
        path: &[u8],
        flags: c_int,
        mode: u32,
        spec: &weft_client::LayoutSpec,
    ) -> Res<Self> {
        let access = flags & libc::O_ACCMODE;
        if access == libc::O_ACCMODE || flags & (libc::O_PATH | libc::O_TMPFILE & !libc::O_DIRECTORY) != 0 {
            return Err(Fail::argument(
                "open with O_RDONLY, O_WRONLY or O_RDWR, and without O_PATH or O_TMPFILE",
            ));
        }
        let has = |flag: c_int| flags & flag != 0;
        let wanted = OpenFlags {
            read: access != libc::O_WRONLY,
            write: access != libc::O_RDONLY,
            create: has(libc::O_CREAT),
            exclusive: has(libc::O_CREAT) && has(libc::O_EXCL),
            truncate: has(libc::O_TRUNC),
            directory: has(libc::O_DIRECTORY),
            execute: false,
        };
        let mode = if wanted.create { unmasked(mode) } else { 0 };
        let follow = !has(libc::O_NOFOLLOW) && !wanted.exclusive;
        let open =
            connection.at(path, follow, |files, place| block_on(files.open(place, wanted, mode, spec)))?;
        if matches!(
            weft_file(&open)?.attr_at_open().kind,
            FileType::Fifo | FileType::Socket | FileType::CharDevice | FileType::BlockDevice
        ) {
            return Err(Fail::new(
                libc::ENXIO,
                format!("{}: not a file with bytes", String::from_utf8_lossy(path)),
            ));
        }
        Ok(Self {
            connection: Arc::clone(connection),
            open: Forked::new(open),
            append: has(libc::O_APPEND),
            // O_SYNC includes the bit of O_DSYNC.
            sync: has(libc::O_DSYNC),
        })
    }

    fn close(self) -> Res<()> {
        // The parent's, inherited by a child, is dropped without a word: its connections say nothing any more.
        self.connection.files(|_| ())?;
        match self.open.into_own() {
            Some(open) => Ok(block_on(open.close())?),
            None => Ok(()),
        }
    }
}

/// Returns the file of Weft below the delegates.
fn weft_file(open: &Handle) -> Res<&OpenFile<RealEnv>> {
    open.below().weft().ok_or_else(|| Fail::new(libc::EBADF, "not a file of Weft"))
}

/// The open file behind a pointer from C.
///
/// # Safety
/// As [`args::object`].
pub unsafe fn file<'a>(file: *const File) -> Res<&'a File> {
    // SAFETY: the caller's promise.
    unsafe { args::object(file, "the file") }
}

exported! {
    fn weft_open(weft: *const Weft, path: *const c_char, flags: c_int, mode: mode_t) -> *mut File | ptr::null_mut(); {
        // SAFETY: pointers of the caller.
        let (weft, path) = unsafe { (connection(weft)?, args::string(path, "the path")?) };
        File::open(weft, path, flags, mode, &weft_client::LayoutSpec::default()).map(|file| Box::into_raw(Box::new(file)))
    }

    fn weft_open_layout(
        weft: *const Weft,
        path: *const c_char,
        flags: c_int,
        mode: mode_t,
        spec: *const LayoutSpec,
    ) -> *mut File | ptr::null_mut(); {
        // SAFETY: pointers of the caller.
        let (weft, path) = unsafe { (connection(weft)?, args::string(path, "the path")?) };
        // SAFETY: as above.
        let spec = unsafe { spec_from(spec)? };
        File::open(weft, path, flags, mode, &spec).map(|file| Box::into_raw(Box::new(file)))
    }

    fn weft_open_compressed(
        weft: *const Weft,
        path: *const c_char,
        flags: c_int,
        mode: mode_t,
        spec: *const LayoutSpec,
        setting: *const c_char,
    ) -> *mut File | ptr::null_mut(); {
        // SAFETY: pointers of the caller.
        let (weft, path) = unsafe { (connection(weft)?, args::string(path, "the path")?) };
        // SAFETY: as above.
        let (spec, compression) = unsafe { (spec_from(spec)?, compression_from(setting)?) };
        let spec = weft_client::LayoutSpec { compression, ..spec };
        File::open(weft, path, flags, mode, &spec).map(|file| Box::into_raw(Box::new(file)))
    }

    fn weft_close(file: *mut File) -> c_int | -1; {
        if file.is_null() {
            return Err(Fail::argument("the file is a null pointer"));
        }
        // SAFETY: it came from `weft_open`, and the caller does not use it again.
        unsafe { Box::from_raw(file) }.close()?;
        Ok(0)
    }

    fn weft_fsync(file: *const File) -> c_int | -1; {
        // SAFETY: a pointer of the caller.
        block_on(unsafe { self::file(file)? }.get()?.sync())?;
        Ok(0)
    }

    fn weft_ftruncate(file: *const File, length: off_t) -> c_int | -1; {
        // SAFETY: a pointer of the caller.
        let file = unsafe { self::file(file)? };
        block_on(file.get()?.truncate(ByteLen(args::unsigned(length, "the length")?)))?;
        Ok(0)
    }

    fn weft_size(file: *const File) -> off_t | -1; {
        // SAFETY: a pointer of the caller.
        let size = block_on(unsafe { self::file(file)? }.get()?.size())?;
        off_t::try_from(size.0).map_err(|_| Fail::new(libc::EOVERFLOW, "the file is longer than off_t can say"))
    }

    fn weft_fstat(file: *const File, stat: *mut libc::stat) -> c_int | -1; {
        // SAFETY: a pointer of the caller.
        let file = unsafe { self::file(file)? };
        // Asked first: bytes that delegates write meanwhile are then in the file.
        let unwritten = block_on(file.get()?.unwritten_end())?;
        let mut attr = block_on(file.weft()?.attr())?;
        attr.size = attr.size.max(unwritten);
        // SAFETY: as above.
        unsafe { fill(stat, &attr, &file.connection)? };
        Ok(0)
    }
}
