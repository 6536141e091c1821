//! The emulated device of a target.

use super::{Module, Target};
use crate::datafile::DatafileKey;
use crate::emulate::{self, Charge, Emulator, InFlight};
use crate::error::DatafileError;
use std::io::IoSlice;
use weft_core::LocalOffset;
use weft_env::device::{DeviceAction, DeviceCounters, DeviceRequest};
use weft_env::{Dir, Env, File, OpenMode};

impl<E: Env> Target<E> {
    /// Returns the profile of the emulated device, if the target has one.
    pub fn emulates(&self) -> Option<&str> {
        self.emulator.as_ref().map(Emulator::profile)
    }

    /// Returns the counters of the emulated device, if the target has one.
    pub fn device_counters(&self) -> Option<DeviceCounters> {
        self.emulator.as_ref().map(Emulator::counters)
    }

    /// Drops the cached pages of a datafile. On an emulated device, drops those of all datafiles.
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn forget(&self, key: DatafileKey) -> Result<(), DatafileError> {
        if let Some(emulator) = &self.emulator {
            emulator.forget();
        }
        let Some(datafile) = self.open_existing(key).await? else { return Ok(()) };
        let forgotten = datafile.content.forget().await;
        forgotten.map_err(|fault| self.fault(key, "drop its cached pages", fault))
    }

    /// Opens a datafile for direct writes, whatever the module is, to measure the device. Nothing else may use the
    /// datafile during that time.
    ///
    /// # Errors
    /// When the datafile is missing, or the file system does not support direct I/O.
    pub async fn direct_writer(&self, key: DatafileKey) -> Result<DirectWriter<'_, E>, DatafileError> {
        let file = match self.module {
            Module::Null => None,
            Module::Buffered | Module::Direct => {
                let opened = self.dir.open(&key.name(), OpenMode { direct: true, ..OpenMode::WRITE }).await;
                Some(opened.map_err(|error| self.error(key, "open for direct I/O", error))?)
            }
        };
        Ok(DirectWriter { target: self, key, file })
    }

    /// Returns true if datafiles can be sent without a copy (see [`file_to_send`](Self::file_to_send)).
    pub fn sends_files(&self) -> bool {
        self.module == Module::Buffered && self.emulator.is_none()
    }

    /// Returns file number `number` of the emulated device. Only the datafile itself can bypass the page cache.
    pub(super) fn charge(&self, number: u64, is_direct: bool) -> Charge<E> {
        Charge::new(self.emulator.as_ref(), number, is_direct && self.module == Module::Direct)
    }

    /// Begins a request on the emulated device, if there is one.
    pub(super) fn begin(
        &self,
        action: DeviceAction,
        key: DatafileKey,
        offset: LocalOffset,
        len: usize,
    ) -> Option<InFlight<E>> {
        self.begin_as(self.module == Module::Direct, action, key, offset, len)
    }

    /// Begins a request, direct or through the modeled system's page cache.
    fn begin_as(
        &self,
        is_direct: bool,
        action: DeviceAction,
        key: DatafileKey,
        offset: LocalOffset,
        len: usize,
    ) -> Option<InFlight<E>> {
        let emulator = self.emulator.as_ref()?;
        let request = DeviceRequest { is_direct, ..emulate::request(action, number(key), offset, len) };
        Some(emulator.begin(&request))
    }
}

/// A datafile that is written with direct I/O.
pub struct DirectWriter<'a, E: Env> {
    target: &'a Target<E>,
    key: DatafileKey,
    /// `None` with the null module.
    file: Option<E::File>,
}

impl<E: Env> DirectWriter<'_, E> {
    /// Writes whole blocks from aligned memory.
    ///
    /// # Errors
    /// Errors of the device; offset, length or memory not aligned to [`BLOCK`](crate::content::BLOCK).
    pub async fn write(&self, offset: LocalOffset, bytes: &[u8]) -> Result<(), DatafileError> {
        let in_flight = self.target.begin_as(true, DeviceAction::Write, self.key, offset, bytes.len());
        if let Some(file) = &self.file {
            let written = file.write_at(&[IoSlice::new(bytes)], offset).await;
            written.map_err(|error| self.target.error(self.key, "write directly", error))?;
        }
        emulate::finish(in_flight).await;
        Ok(())
    }
}

/// Returns the number of a datafile on an emulated device.
pub(super) fn number(key: DatafileKey) -> u64 {
    (key.file.0 << 20) ^ (u64::from(key.object.component) << 12) ^ u64::from(key.object.column)
}

/// Returns the number of a compressed datafile's map on the emulated device.
pub(super) const fn map_number(container: u64) -> u64 {
    !container
}
