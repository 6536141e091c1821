//! The emulated device of a target.

use super::{Module, Target};
use crate::datafile::{Datafile, DatafileKey};
use crate::emulate::{self, Charge, Emulator};
use crate::error::DatafileError;
use std::io;
use weft_core::LocalOffset;
use weft_env::device::{DeviceAction, DeviceCounters, DeviceRequest};
use weft_env::{Env, File};

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
        let emulator = self.emulator.as_ref()?;
        let is_direct = self.module == Module::Direct;
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

/// The number of a datafile on an emulated device.
pub(super) fn number(key: DatafileKey) -> u64 {
    (key.file.0 << 20) ^ (u64::from(key.object.component) << 12) ^ u64::from(key.object.column)
}
