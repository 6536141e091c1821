//! Directory trees of a simulated disk.

use super::body::Body;
use super::file::inode_meta;
use super::{FolderId, InodeState, SimDisk, SimFile, SimInode};
use crate::device::{DeviceAction, DeviceRequest};
use crate::sim::SimEnv;
use crate::sim::world::ProcessId;
use crate::{Create, Dir, Env, FileMeta, OpenMode, SharedLock, Space, check_name};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use weft_core::{ByteLen, LocalOffset};

/// Directory tree of the simulated world.
#[derive(Clone)]
pub struct SimDir {
    env: SimEnv,
    disk: Arc<SimDisk>,
    base: FolderId,
}

impl SimDir {
    pub(in crate::sim) fn new(env: SimEnv, disk: Arc<SimDisk>, base: FolderId) -> Self {
        Self { env, disk, base }
    }

    /// Takes the time of an operation on a name.
    async fn name_operation(&self, action: DeviceAction) -> io::Result<()> {
        self.env.alive().await;
        let world = self.env.world();
        let request =
            DeviceRequest { action, file: 0, offset: LocalOffset(0), len: ByteLen(0), is_direct: false };
        self.disk.check(action)?;
        self.disk.run(world, &request).await;
        Ok(())
    }

    fn find_or_make(&self, name: &str, create: Create) -> io::Result<Arc<SimInode>> {
        let mut state = self.disk.state.lock();
        match (state.tree.find_file(self.base, name)?, create) {
            (Some(_), Create::New) => Err(io::ErrorKind::AlreadyExists.into()),
            (Some(inode), _) => Ok(inode),
            (None, Create::No) => Err(io::ErrorKind::NotFound.into()),
            (None, _) => {
                state.inodes_made += 1;
                let is_in = |folders: &[(String, Vec<String>)]| {
                    folders.iter().any(|(folder, except)| {
                        name.starts_with(folder) && !except.iter().any(|suffix| name.ends_with(suffix))
                    })
                };
                let content = if is_in(&state.hollow) { Body::hollow() } else { Body::default() };
                let inode = Arc::new(SimInode {
                    number: state.inodes_made,
                    is_payload: is_in(&state.payload),
                    state: Mutex::new(InodeState { content, mtime: self.env.wall(), writing_to: 0 }),
                    pages_used: Arc::clone(&self.disk.pages_used),
                });
                state.tree.add_file(self.base, name, Arc::clone(&inode))?;
                Ok(inode)
            }
        }
    }
}

impl Dir for SimDir {
    type File = SimFile;

    async fn open(&self, name: &str, mode: OpenMode) -> io::Result<SimFile> {
        check_name(name)?;
        self.name_operation(DeviceAction::Name).await?;
        let inode = self.find_or_make(name, mode.create)?;
        Ok(SimFile::new(self.env.clone(), Arc::clone(&self.disk), inode, mode.write, mode.direct))
    }

    async fn remove(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        self.name_operation(DeviceAction::Name).await?;
        let removed = self.disk.state.lock().tree.remove(self.base, name)?;
        self.disk.report_removed(self.env.world(), &removed);
        Ok(())
    }

    async fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_name(from)?;
        check_name(to)?;
        self.name_operation(DeviceAction::Name).await?;
        let replaced = self.disk.state.lock().tree.rename(self.base, from, to)?;
        if let Some(replaced) = replaced {
            self.disk.report_removed(self.env.world(), &replaced);
        }
        Ok(())
    }

    async fn make_dir(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        self.name_operation(DeviceAction::Name).await?;
        self.disk.state.lock().tree.make_folder(self.base, name)
    }

    async fn sync(&self, name: &str) -> io::Result<()> {
        if !name.is_empty() {
            check_name(name)?;
        }
        self.env.sync_point();
        self.name_operation(DeviceAction::SyncNames).await?;
        let mut state = self.disk.state.lock();
        let folder = state.tree.find_folder(self.base, name)?;
        state.tree.sync(folder);
        Ok(())
    }

    async fn list(&self, name: &str) -> io::Result<Vec<String>> {
        if !name.is_empty() {
            check_name(name)?;
        }
        self.name_operation(DeviceAction::Name).await?;
        let state = self.disk.state.lock();
        Ok(state.tree.list(state.tree.find_folder(self.base, name)?))
    }

    async fn meta(&self, name: &str) -> io::Result<FileMeta> {
        check_name(name)?;
        self.name_operation(DeviceAction::Name).await?;
        let inode = self.disk.state.lock().tree.find_file(self.base, name)?;
        Ok(inode_meta(&*inode.ok_or(io::ErrorKind::NotFound)?))
    }

    async fn space(&self) -> io::Result<Space> {
        self.env.alive().await;
        let total = self.disk.capacity_bytes();
        Ok(Space {
            total: ByteLen(total),
            free: ByteLen(total.saturating_sub(self.disk.used_bytes())),
            device: 0,
        })
    }

    async fn lock(&self, name: &str) -> io::Result<Box<dyn Send + Sync>> {
        check_name(name)?;
        self.name_operation(DeviceAction::Name).await?;
        let inode = self.find_or_make(name, Create::IfMissing)?;
        let mut state = self.disk.state.lock();
        if state.locks.get(&inode.number).is_some_and(|(owner, _)| self.env.world().is_alive(*owner)) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.tokens += 1;
        let owner = (self.env.process(), state.tokens);
        state.locks.insert(inode.number, owner);
        Ok(Box::new(Guard { disk: Arc::clone(&self.disk), number: inode.number, owner }))
    }

    async fn shared_lock(&self, name: &str) -> io::Result<Box<dyn SharedLock>> {
        check_name(name)?;
        self.name_operation(DeviceAction::Name).await?;
        let inode = self.find_or_make(name, Create::IfMissing)?;
        let mut state = self.disk.state.lock();
        state.tokens += 1;
        let token = state.tokens;
        drop(state);
        Ok(Box::new(SimSharedLock {
            env: self.env.clone(),
            disk: Arc::clone(&self.disk),
            number: inode.number,
            token,
        }))
    }
}

/// Shared lock of a file.
struct SimSharedLock {
    env: SimEnv,
    disk: Arc<SimDisk>,
    number: u64,
    token: u64,
}

impl SharedLock for SimSharedLock {
    fn try_acquire(&self, exclusive: bool) -> io::Result<bool> {
        let mut state = self.disk.state.lock();
        let holders = state.shared_locks.entry(self.number).or_default();
        holders.retain(|_, (process, _)| self.env.world().is_alive(*process));
        let mut others = holders.iter().filter(|(token, _)| **token != self.token);
        if others.any(|(_, (_, theirs))| exclusive || *theirs) {
            return Ok(false);
        }
        holders.insert(self.token, (self.env.process(), exclusive));
        Ok(true)
    }

    fn release(&self) -> io::Result<()> {
        if let Some(holders) = self.disk.state.lock().shared_locks.get_mut(&self.number) {
            holders.remove(&self.token);
        }
        Ok(())
    }
}

impl Drop for SimSharedLock {
    fn drop(&mut self) {
        let _ = self.release(); // never fails
    }
}

/// Releases a lock, unless it has passed to another holder.
struct Guard {
    disk: Arc<SimDisk>,
    number: u64,
    owner: (ProcessId, u64),
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut state = self.disk.state.lock();
        if state.locks.get(&self.number) == Some(&self.owner) {
            state.locks.remove(&self.number);
        }
    }
}
