//! The emulated device of a target.

use super::{Module, Target};
use crate::datafile::{Datafile, DatafileKey};
use crate::emulate::{self, Charge, Emulator};
use crate::error::DatafileError;
use std::io::{self, IoSlice};
use weft_core::LocalOffset;
use weft_env::device::{DeviceAction, DeviceCounters, DeviceRequest};
use weft_env::{Dir, Env, File, OpenMode};

impl<E: Env> Target<E> {
    /// The profile of the device whose time its requests take, if that is not the one below.
    pub fn emulates(&self) -> Option<&str> {
        self.emulator.as_ref().map(Emulator::profile)
    }

    /// What has reached the emulated device so far.
    pub fn device_counters(&self) -> Option<DeviceCounters> {
        self.emulator.as_ref().map(Emulator::counters)
    }

    /// The system forgets what it holds of a datafile in memory; an emulated one what it holds of all.
    ///
    /// # Errors
    /// Of the device.
    pub async fn forget(&self, key: DatafileKey) -> Result<(), DatafileError> {
        if let Some(emulator) = &self.emulator {
            emulator.forget();
        }
        if self.module == Module::Null {
            return Ok(());
        }
        let Some(datafile) = self.existing(key).await? else { return Ok(()) };
        datafile.file.forget().await.map_err(|error| self.error(key, "forget what memory holds", error))
    }

    /// Opens a datafile for writes past memory, whatever the module is: for who measures the device. Nobody else may use it
    /// meanwhile.
    ///
    /// # Errors
    /// Where there is none, and where the file system takes no direct I/O.
    pub async fn past(&self, key: DatafileKey) -> Result<Past<'_, E>, DatafileError> {
        let file = match self.module {
            Module::Null => None,
            Module::Buffered | Module::Direct => {
                let opened = self.dir.open(&key.name(), OpenMode { direct: true, ..OpenMode::WRITE }).await;
                Some(opened.map_err(|error| self.error(key, "open for direct I/O", error))?)
            }
        };
        Ok(Past { target: self, key, file })
    }

    /// Whether datafiles can be sent without a copy (see [`file_to_send`](Self::file_to_send)).
    pub fn sends_files(&self) -> bool {
        self.module == Module::Buffered && self.emulator.is_none()
    }

    /// Begins a request on the emulated device, if there is one.
    pub(super) fn begin(
        &self,
        action: DeviceAction,
        key: DatafileKey,
        offset: LocalOffset,
        len: usize,
    ) -> Option<Charge<E>> {
        self.begin_as(self.module == Module::Direct, action, key, offset, len)
    }

    /// The same, past the modelled system's memory or through it.
    fn begin_as(
        &self,
        is_direct: bool,
        action: DeviceAction,
        key: DatafileKey,
        offset: LocalOffset,
        len: usize,
    ) -> Option<Charge<E>> {
        let emulator = self.emulator.as_ref()?;
        let request = DeviceRequest { is_direct, ..emulate::request(action, number(key), offset, len) };
        Some(emulator.begin(&request))
    }

    /// Begins a read of what is there.
    pub(super) async fn begin_read(
        &self,
        datafile: &Datafile<E>,
        offset: LocalOffset,
        len: usize,
    ) -> io::Result<Option<Charge<E>>> {
        if self.emulator.is_none() {
            return Ok(None);
        }
        let there = datafile.file.meta().await?.len.0.saturating_sub(offset.0).min(len as u64);
        Ok(self.begin(DeviceAction::Read, datafile.key, offset, there as usize))
    }
}

/// A datafile that is written past memory.
pub struct Past<'a, E: Env> {
    target: &'a Target<E>,
    key: DatafileKey,
    /// `None` where bytes are written nowhere.
    file: Option<E::File>,
}

impl<E: Env> Past<'_, E> {
    /// Writes whole blocks, which lie in memory as the device needs them.
    ///
    /// # Errors
    /// Of the device; where offset, length or memory are not aligned to [`BLOCK`](crate::module_direct::BLOCK).
    pub async fn write(&self, offset: LocalOffset, bytes: &[u8]) -> Result<(), DatafileError> {
        let charge = self.target.begin_as(true, DeviceAction::Write, self.key, offset, bytes.len());
        if let Some(file) = &self.file {
            let written = file.write_at(&[IoSlice::new(bytes)], offset).await;
            written.map_err(|error| self.target.error(self.key, "write directly", error))?;
        }
        emulate::end(charge).await;
        Ok(())
    }
}

/// The number of a datafile on an emulated device.
pub(super) fn number(key: DatafileKey) -> u64 {
    (key.file.0 << 20) ^ (u64::from(key.object.component) << 12) ^ u64::from(key.object.column)
}
