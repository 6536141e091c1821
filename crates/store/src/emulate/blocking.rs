//! Files of the metadata database on an emulated device.

use super::{Charge, Emulator, request};
use parking_lot::Mutex;
use std::io;
use weft_core::{ByteLen, LocalOffset};
use weft_env::device::DeviceAction;
use weft_env::{BlockingFile, Env};

/// A file whose operations are begun on the device as they are done, and waited for at the next
/// [`settle`](BlockingFile::settle); without a device it is the plain file.
pub(crate) struct Emulated<E: Env, B> {
    file: B,
    /// The device, and the file's number on it.
    device: Option<(Emulator<E>, u64)>,
    owed: Mutex<Vec<Charge<E>>>,
}

impl<E: Env, B> Emulated<E, B> {
    pub fn new(file: B, device: Option<(Emulator<E>, u64)>) -> Self {
        Self { file, device, owed: Mutex::default() }
    }

    fn owe(&self, action: DeviceAction, offset: LocalOffset, len: usize) {
        if let Some((device, number)) = &self.device {
            let charge = device.begin(&request(action, *number, offset, len));
            self.owed.lock().push(charge);
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
        self.owe(DeviceAction::Read, offset, buf.len());
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: LocalOffset) -> io::Result<()> {
        self.owe(DeviceAction::Write, offset, buf.len());
        self.file.write_at(buf, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.owe(DeviceAction::Sync, LocalOffset(0), 0);
        self.file.sync()
    }

    fn len(&self) -> io::Result<ByteLen> {
        self.file.len()
    }

    fn set_len(&self, len: ByteLen) -> io::Result<()> {
        self.owe(DeviceAction::Cut, LocalOffset(len.0), 0);
        self.file.set_len(len)
    }

    fn discard(&self, offset: LocalOffset, len: ByteLen) -> io::Result<()> {
        self.owe(DeviceAction::Discard, offset, len.0 as usize);
        self.file.discard(offset, len)
    }

    fn reserve(&self, len: ByteLen) -> io::Result<()> {
        self.file.reserve(len)
    }

    fn allocate(&self, len: ByteLen) -> io::Result<()> {
        self.file.allocate(len)
    }

    async fn settle(&self) {
        let owed = std::mem::take(&mut *self.owed.lock());
        for charge in owed {
            charge.end().await;
        }
        self.file.settle().await;
    }
}
