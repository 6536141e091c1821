//! Copies the bytes of one file.

use super::Copy;
use crate::commands::session::why;
use crate::commands::tree;
use crate::failure::Failure;
use std::fs::File;
use std::io::{IoSliceMut, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::sync::atomic::{AtomicU64, Ordering};
use weft_client::{FileHandle, FileSystem, HostOrWeftFile, HostOrWeftPath, write_all};
use weft_core::FileOffset;
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{LayoutSpec, OpenFlags};

/// Bytes per read and write.
const CHUNK: usize = 8 << 20;
/// Number of threads that copy one large file.
const THREADS: u64 = 4;

/// An open file on either side.
pub(super) struct Open {
    file: HostOrWeftFile<RealEnv>,
    /// The file, if bytes must be written sequentially, as to a pipe or a terminal.
    stream: Option<File>,
}

impl Copy<'_> {
    /// Opens a file for reading, or with `new`, a mode and a layout, for writing from scratch.
    pub(super) fn open(
        &self,
        location: &HostOrWeftPath,
        new: Option<(u32, &LayoutSpec)>,
    ) -> Result<Open, Failure> {
        let write = new.is_some();
        let flags = OpenFlags { read: !write, write, create: write, truncate: write, ..OpenFlags::default() };
        let spec = new.map_or_else(LayoutSpec::default, |(_, spec)| spec.clone());
        let mode = new.map_or(0, |(mode, _)| mode) & !tree::umask();
        let file = self.at(location, true, |place| block_on(self.files.open(place, flags, mode, &spec)))?;
        let stream = if write { stream(&file) } else { Ok(None) };
        let stream = stream.map_err(|error| Failure::new(self.shown(location), error))?;
        Ok(Open { file, stream })
    }

    /// Copies all bytes. For large files, several threads take the next piece each.
    pub(super) fn bytes(
        &self,
        from: &HostOrWeftPath,
        to: &HostOrWeftPath,
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
        let threads = if target.stream.is_some() { 1 } else { THREADS.min(size / (4 * CHUNK as u64)) };
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

/// Returns another descriptor of a file to which bytes must be written sequentially.
fn stream(file: &HostOrWeftFile<RealEnv>) -> std::io::Result<Option<File>> {
    let Some(file) = file.host() else { return Ok(None) };
    let file = File::from(file.file().as_fd().try_clone_to_owned()?);
    let kind = file.metadata()?.file_type();
    Ok((!kind.is_file() && !kind.is_block_device()).then_some(file))
}

impl Open {
    /// Makes the bytes durable.
    pub(super) fn sync(&self) -> Result<(), String> {
        block_on(self.file.sync()).map_err(|error| why(&error))
    }

    /// Closes the file. An error counts as an error of the copy.
    pub(super) fn close(self) -> Result<(), String> {
        block_on(self.file.close()).map_err(|error| why(&error))
    }

    fn read(&self, buffer: &mut [u8], at: u64) -> Result<usize, String> {
        block_on(self.file.read_at(&mut [IoSliceMut::new(buffer)], FileOffset(at)))
            .map_err(|error| why(&error))
    }

    fn write(&self, bytes: &[u8], at: u64) -> Result<(), String> {
        match self.stream.as_ref() {
            Some(mut stream) => stream.write_all(bytes).map_err(|error| error.to_string()),
            None => block_on(write_all(&self.file, bytes, FileOffset(at))).map_err(|error| why(&error)),
        }
    }
}
