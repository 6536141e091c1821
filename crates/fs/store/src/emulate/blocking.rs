//! Files of the metadata database on an emulated device.

use super::{Emulator, InFlight, request};
use parking_lot::Mutex;
use std::io;
use weft_core::{ByteLen, LocalOffset};
use weft_env::device::DeviceAction;
use weft_env::{BlockingFile, Env};

/// A file whose operations are submitted to the device when they are called and awaited at the next
/// [`wait_for_device`](BlockingFile::wait_for_device). Without a device it behaves as the plain file.
pub(crate) struct Emulated<E: Env, B> {
    file: B,
    /// The device, and the file's number on it.
    device: Option<(Emulator<E>, u64)>,
    pending: Mutex<Vec<InFlight<E>>>,
}

impl<E: Env, B> Emulated<E, B> {
    pub fn new(file: B, device: Option<(Emulator<E>, u64)>) -> Self {
        Self { file, device, pending: Mutex::default() }
    }

    fn begin(&self, action: DeviceAction, offset: LocalOffset, len: usize) {
        if let Some((device, number)) = &self.device {
            let in_flight = device.begin(&request(action, *number, offset, len));
            self.pending.lock().push(in_flight);
        }
    }
}

impl<E: Env, B> std::fmt::Debug for Emulated<E, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Emulated({})", self.device.as_ref().map_or("-", |(device, _)| device.profile()))
    }
}

impl<E: Env, B: BlockingFile> BlockingFile for Emulated<E, B> {
    fn read_at(&self, buf: &mut [u8], offset: LocalOffset) -> io::Result<()> {
        self.begin(DeviceAction::Read, offset, buf.len());
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: LocalOffset) -> io::Result<()> {
        self.begin(DeviceAction::Write, offset, buf.len());
        self.file.write_at(buf, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.begin(DeviceAction::Sync, LocalOffset(0), 0);
        self.file.sync()
    }

    fn len(&self) -> io::Result<ByteLen> {
        self.file.len()
    }

    fn set_len(&self, len: ByteLen) -> io::Result<()> {
        self.begin(DeviceAction::Cut, LocalOffset(len.0), 0);
        self.file.set_len(len)
    }

    fn discard(&self, offset: LocalOffset, len: ByteLen) -> io::Result<()> {
        self.begin(DeviceAction::Discard, offset, len.0 as usize);
        self.file.discard(offset, len)
    }

    fn reserve(&self, len: ByteLen) -> io::Result<()> {
        self.file.reserve(len)
    }

    fn allocate(&self, len: ByteLen) -> io::Result<()> {
        self.file.allocate(len)
    }

    async fn wait_for_device(&self) {
        let pending = std::mem::take(&mut *self.pending.lock());
        for in_flight in pending {
            in_flight.finish().await;
        }
        self.file.wait_for_device().await;
    }
}
