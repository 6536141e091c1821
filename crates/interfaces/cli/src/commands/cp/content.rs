//! Copies the bytes of one file.

use super::Copy;
use super::copy_path::CopyPath;
use crate::commands::session::why;
use crate::commands::{posix, tree};
use crate::failure::Failure;
use std::fs::{File, OpenOptions};
use std::io::{IoSlice, IoSliceMut, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicU64, Ordering};
use weft_client::OpenFile;
use weft_core::FileOffset;
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{LayoutSpec, OpenFlags};

fn is_block(meta: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    meta.file_type().is_block_device()
}

/// Bytes per read and write.
const CHUNK: usize = 8 << 20;
/// Number of threads that copy one large file.
const THREADS: u64 = 4;
/// An open file on either side.
pub(super) enum Open {
    Weft(OpenFile<RealEnv>),
    Local(File),
}

impl Copy<'_> {
    /// Opens a file for reading, or with `new`, a mode and a layout, for writing from scratch.
    pub(super) fn open(&self, location: &CopyPath, new: Option<(u32, &LayoutSpec)>) -> Result<Open, Failure> {
        let mode = new.map(|(mode, _)| mode);
        match location {
            CopyPath::Weft(path) => {
                let write = mode.is_some();
                let flags =
                    OpenFlags { read: !write, write, create: write, truncate: write, ..OpenFlags::default() };
                let spec = new.map_or_else(LayoutSpec::default, |(_, spec)| spec.clone());
                let mode = mode.unwrap_or(0) & !tree::umask();
                let open = self
                    .weft
                    .at(path, true, |place| block_on(self.weft.client.open(place, flags, mode, &spec)))?;
                Ok(Open::Weft(open))
            }
            CopyPath::Local(path) => {
                let mut options = OpenOptions::new();
                match mode {
                    Some(mode) => options.write(true).create(true).truncate(true).mode(mode),
                    None => options.read(true),
                };
                options.open(path).map(Open::Local).map_err(|error| self.local(path, &error))
            }
        }
    }

    /// Copies all bytes. For large files, several threads take the next piece each.
    pub(super) fn bytes(
        &self,
        from: &CopyPath,
        to: &CopyPath,
        source: &Open,
        target: &Open,
        size: u64,
    ) -> Result<(), Failure> {
        let next = AtomicU64::new(0);
        let work = || -> Result<(), Failure> {
            let mut buffer = vec![0; CHUNK.min(size.max(1) as usize)];
            loop {
                let at = next.fetch_add(CHUNK as u64, Ordering::Relaxed);
                if at > size {
                    return Ok(());
                }
                // Read one piece beyond the size, so that a growing file is copied to its new end.
                let mut at = at;
                let end = if at + CHUNK as u64 > size { u64::MAX } else { at + CHUNK as u64 };
                while at < end {
                    let wanted = buffer.len().min((end - at) as usize);
                    let got = source
                        .read(&mut buffer[..wanted], at)
                        .map_err(|why| Failure::new(self.shown(from), why))?;
                    if got == 0 {
                        break;
                    }
                    target.write(&buffer[..got], at).map_err(|why| Failure::new(self.shown(to), why))?;
                    self.bar.inc(got as u64);
                    at += got as u64;
                }
            }
        };
        let threads = if target.is_stream() { 1 } else { THREADS.min(size / (4 * CHUNK as u64)) };
        if threads < 2 {
            return work();
        }
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| {
                worker
                    .join()
                    .unwrap_or_else(|_| Err(Failure::new(self.shown(from), "copying failed: see above")))
            })
        })
    }
}

impl Open {
    /// Whether bytes must be written sequentially, as to a pipe or a terminal.
    fn is_stream(&self) -> bool {
        match self {
            Self::Weft(_) => false,
            Self::Local(file) => file.metadata().is_ok_and(|meta| !meta.is_file() && !is_block(&meta)),
        }
    }

    /// Makes the bytes durable.
    pub(super) fn sync(&self) -> Result<(), String> {
        match self {
            Self::Weft(open) => block_on(open.sync()).map_err(|error| why(&error)),
            Self::Local(file) => file.sync_all().map_err(|error| error.to_string()),
        }
    }

    /// Closes the file. An error counts as an error of the copy.
    pub(super) fn close(self) -> Result<(), String> {
        match self {
            Self::Weft(open) => block_on(open.close()).map_err(|error| why(&error)),
            Self::Local(_) => Ok(()),
        }
    }

    fn read(&self, buffer: &mut [u8], at: u64) -> Result<usize, String> {
        match self {
            Self::Weft(open) => block_on(open.read_at(&mut [IoSliceMut::new(buffer)], FileOffset(at)))
                .map_err(|error| why(&error)),
            Self::Local(file) => file.read_at(buffer, at).map_err(|error| error.to_string()),
        }
    }

    fn write(&self, bytes: &[u8], at: u64) -> Result<(), String> {
        match self {
            Self::Weft(open) => {
                let wrote = block_on(open.write_at(&[IoSlice::new(bytes)], FileOffset(at)))
                    .map_err(|error| why(&error))?;
                if wrote < bytes.len() { Err(posix(libc::ENOSPC)) } else { Ok(()) }
            }
            Self::Local(file) if self.is_stream() => {
                let mut file: &File = file;
                file.write_all(bytes).map_err(|error| error.to_string())
            }
            Self::Local(file) => file.write_all_at(bytes, at).map_err(|error| error.to_string()),
        }
    }
}
