//! The plain and the direct format: a file whose bytes are the datafile's.

use super::Fault;
use super::direct::{self, DirectFile};
use crate::datafile::Names;
use crate::emulate::{self, Charge, InFlight};
use crate::range_lock::RangeLocks;
use std::io::{self, IoSlice, IoSliceMut};
use weft_core::{ByteLen, LocalOffset, Timestamp};
use weft_env::device::DeviceAction;
use weft_env::{Env, File, FileMeta};

/// An open file whose bytes are the datafile's.
pub(crate) struct RawFile<E: Env> {
    access: Access<E>,
    charge: Charge<E>,
}

enum Access<E: Env> {
    /// Through the page cache.
    Plain(E::File),
    /// Past the page cache.
    Direct(DirectFile<E>),
}

impl<E: Env> RawFile<E> {
    /// Returns a file that is accessed through the page cache.
    pub fn new_plain(file: E::File, charge: Charge<E>) -> Self {
        Self { access: Access::Plain(file), charge }
    }

    /// Returns a file that is accessed past the page cache, by its descriptor for direct I/O and by one through the
    /// page cache.
    pub fn new_direct(env: &E, direct: E::File, buffered: E::File, charge: Charge<E>) -> Self {
        Self { access: Access::Direct(DirectFile { direct, buffered, ranges: RangeLocks::new(env) }), charge }
    }

    /// Returns the file, if it is accessed through the page cache.
    pub fn plain(&self) -> Option<&E::File> {
        match &self.access {
            Access::Plain(file) => Some(file),
            Access::Direct(_) => None,
        }
    }

    /// Returns the file, for its attributes.
    pub fn file(&self) -> &E::File {
        match &self.access {
            Access::Plain(file) => file,
            Access::Direct(file) => &file.direct,
        }
    }

    /// Returns the file on the emulated device.
    pub fn charge(&self) -> &Charge<E> {
        &self.charge
    }

    pub async fn read(&self, offset: LocalOffset, buf: &mut [u8]) -> Result<(usize, ByteLen), Fault> {
        let in_flight = self.begin_read(offset, buf.len()).await?;
        let got = self.read_bytes(offset, buf).await?;
        emulate::finish(in_flight).await;
        let reached = ByteLen(if got == 0 { 0 } else { offset.0 + got as u64 });
        Ok((got, self.len().await?.max(reached)))
    }

    pub async fn write(&self, offset: LocalOffset, bytes: &[u8]) -> Result<(), Fault> {
        let in_flight = self.charge.begin(DeviceAction::Write, offset, bytes.len());
        self.write_bytes(offset, bytes).await?;
        emulate::finish(in_flight).await;
        Ok(())
    }

    /// Writes bytes of a shared memory area to `file`, which is this file, without a copy.
    pub async fn write_shared(
        &self,
        file: &E::File,
        offset: LocalOffset,
        (shared, from, len): (&E::Shared, usize, usize),
    ) -> io::Result<()> {
        let in_flight = self.charge.begin(DeviceAction::Write, offset, len);
        file.write_shared_at(shared, from, len, offset).await?;
        emulate::finish(in_flight).await;
        Ok(())
    }

    /// Reads into a shared memory area from `file`, which is this file, without a copy.
    pub async fn read_shared(
        &self,
        file: &E::File,
        offset: LocalOffset,
        (shared, to, len): (&E::Shared, usize, usize),
    ) -> io::Result<(usize, Option<ByteLen>)> {
        let in_flight = self.begin_read(offset, len).await?;
        let count = file.read_shared_at(shared, to, len, offset).await?;
        emulate::finish(in_flight).await;
        Ok((count, if count == len { None } else { Some(self.len().await?) }))
    }

    pub async fn set_len(&self, len: ByteLen) -> Result<(), Fault> {
        let in_flight = self.charge.begin(DeviceAction::Cut, LocalOffset(len.0), 0);
        self.resize(len).await?;
        emulate::finish(in_flight).await;
        Ok(())
    }

    pub async fn punch(&self, offset: LocalOffset, len: ByteLen) -> Result<(), Fault> {
        let len = len.min(ByteLen(self.len().await?.0.saturating_sub(offset.0)));
        if len == ByteLen(0) {
            return Ok(());
        }
        let in_flight = self.charge.begin(DeviceAction::Discard, offset, len.0 as usize);
        self.punch_bytes(offset, len).await?;
        emulate::finish(in_flight).await;
        Ok(())
    }

    pub async fn seek_data(&self, offset: LocalOffset) -> Result<Option<LocalOffset>, Fault> {
        Ok(self.file().seek_data(offset).await?)
    }

    pub async fn seek_hole(&self, offset: LocalOffset) -> Result<LocalOffset, Fault> {
        Ok(self.file().seek_hole(offset).await?)
    }

    pub async fn meta(&self) -> Result<FileMeta, Fault> {
        Ok(self.file().meta().await?)
    }

    pub async fn set_mtime(&self, mtime: Timestamp) -> Result<(), Fault> {
        Ok(self.file().set_mtime(mtime).await?)
    }

    pub async fn forget(&self) -> Result<(), Fault> {
        Ok(self.file().forget().await?)
    }

    /// Makes bytes, length and names survive a loss of power.
    pub async fn sync(&self, names: &Names<E>) -> io::Result<()> {
        let in_flight = self.charge.begin(DeviceAction::Sync, LocalOffset(0), 0);
        self.file().sync().await?;
        emulate::finish(in_flight).await;
        names.sync().await
    }

    /// Returns the length.
    pub async fn len(&self) -> io::Result<ByteLen> {
        Ok(self.file().meta().await?.len)
    }

    /// Begins a read on the emulated device, clipped at the end of the file.
    pub async fn begin_read(&self, offset: LocalOffset, len: usize) -> io::Result<Option<InFlight<E>>> {
        if self.charge.is_none() {
            return Ok(None);
        }
        let available = self.len().await?.0.saturating_sub(offset.0).min(len as u64);
        Ok(self.charge.begin(DeviceAction::Read, offset, available as usize))
    }

    /// Reads until `buf` is full or the file ends, without charging the emulated device.
    pub async fn read_bytes(&self, offset: LocalOffset, buf: &mut [u8]) -> io::Result<usize> {
        match &self.access {
            Access::Plain(file) => file.read_at(&mut [IoSliceMut::new(buf)], offset).await,
            Access::Direct(file) => direct::read(file, offset, buf).await,
        }
    }

    /// Writes all of `bytes`, without charging the emulated device.
    pub async fn write_bytes(&self, offset: LocalOffset, bytes: &[u8]) -> io::Result<()> {
        match &self.access {
            Access::Plain(file) => file.write_at(&[IoSlice::new(bytes)], offset).await,
            Access::Direct(file) => direct::write(file, offset, bytes).await,
        }
    }

    /// Punches a hole, without charging the emulated device.
    pub async fn punch_bytes(&self, offset: LocalOffset, len: ByteLen) -> io::Result<()> {
        match &self.access {
            Access::Plain(file) => file.punch(offset, len).await,
            Access::Direct(file) => direct::punch(file, offset, len).await,
        }
    }

    /// Truncates or extends, without charging the emulated device.
    pub async fn resize(&self, len: ByteLen) -> io::Result<()> {
        match &self.access {
            Access::Plain(file) => file.set_len(len).await,
            Access::Direct(file) => direct::set_len(file, len).await,
        }
    }
}
