//! Disks that an administrator removes, copies, reinserts and damages. No process uses the disk meanwhile.

use super::tree::Entry;
use super::{Body, Device, DiskState, InodeState, Rng, SimDisk, SimInode, Tree};
use crate::sim::world::{DeviceId, World};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Disk that is not in a machine: removed, copied, or new.
pub struct SpareDisk(pub(in crate::sim) Arc<SimDisk>);

impl SimDisk {
    /// Writes back all dirty pages, as unmounting does.
    pub fn unmount(&self) {
        self.device.forget();
        let files = {
            let mut state = self.state.lock();
            state.tree.make_all_durable();
            state.tree.files()
        };
        for (_, file) in files {
            let mut state = file.state.lock();
            let mark = state.content.mark();
            state.content.sync_to(mark);
        }
    }

    /// Takes over the configuration of a mount point: faults, slowness and capacity.
    pub fn inherit_faults(&self, world: &World, other: &Self) {
        let (faults, hollow, payload) = {
            let other = other.state.lock();
            (other.faults, other.hollow.clone(), other.payload.clone())
        };
        self.set_faults(world, faults);
        let mut state = self.state.lock();
        (state.hollow, state.payload) = (hollow, payload);
    }

    /// Returns a copy of the unmounted disk on another device.
    pub fn copied(&self, device: Arc<Device>, device_id: DeviceId, rng: Rng) -> Self {
        self.unmount();
        let copy = Self::new(device, device_id, rng);
        let own = self.state.lock();
        {
            let mut state = copy.state.lock();
            let DiskState { tree, inodes_made, .. } = &mut *state;
            *tree = own.tree.copied(|inode| {
                *inodes_made += 1;
                let from = inode.state.lock();
                let content = from.content.copied();
                copy.pages_used.fetch_add(content.pages(), Relaxed);
                Arc::new(SimInode {
                    number: *inodes_made,
                    is_payload: inode.is_payload,
                    state: Mutex::new(InodeState { content, mtime: from.mtime, writing_to: 0 }),
                    pages_used: Arc::clone(&copy.pages_used),
                })
            });
        }
        drop(own);
        copy
    }

    /// Returns paths and lengths of all files, sorted.
    pub fn files(&self) -> Vec<(String, u64)> {
        let files = self.state.lock().tree.files();
        files.into_iter().map(|(path, file)| (path, file.state.lock().content.len())).collect()
    }

    fn file(&self, path: &str) -> io::Result<Arc<SimInode>> {
        let found = self.state.lock().tree.find_file(Tree::root(), path)?;
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Removes a file permanently.
    pub fn remove_file(&self, path: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.tree.remove(Tree::root(), path)?;
        state.tree.make_all_durable();
        Ok(())
    }

    /// Changes the contents of a file on the medium.
    fn damage(&self, path: &str, change: impl FnOnce(&mut Body)) -> io::Result<()> {
        let file = self.file(path)?;
        let mtime = file.state.lock().mtime;
        file.change(mtime, |content| {
            change(content);
            let mark = content.mark();
            content.sync_to(mark);
        });
        Ok(())
    }

    /// Cuts a file.
    pub fn cut_file(&self, path: &str, len: u64) -> io::Result<()> {
        self.damage(path, |content| content.set_len(len))
    }

    /// Flips bits of one byte.
    pub fn flip_bits(&self, path: &str, offset: u64, mask: u8) -> io::Result<()> {
        self.damage(path, |content| {
            let mut byte = [0];
            let count = content.read(offset, &mut io::IoSliceMut::new(&mut byte));
            assert_eq!(count, 1, "a byte of the file");
            content.write(offset, super::body::Written::Bytes(vec![byte[0] ^ mask]), false);
        })
    }
}

impl Tree {
    /// Makes all names durable.
    fn make_all_durable(&mut self) {
        for change in std::mem::take(&mut self.changes) {
            self.make_durable(&change);
        }
    }

    /// Returns all files with their paths.
    fn files(&self) -> Vec<(String, Arc<SimInode>)> {
        let (mut files, mut open) = (Vec::new(), vec![(Self::root(), String::new())]);
        while let Some((folder, path)) = open.pop() {
            for (name, entry) in &self.folder(folder).now {
                let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                match entry {
                    Entry::File(inode) => files.push((path, Arc::clone(inode))),
                    Entry::Folder(id) => open.push((*id, path)),
                }
            }
        }
        files.sort_by(|a, b| a.0.cmp(&b.0));
        files
    }

    /// Returns the same names, with each file replaced by its copy.
    fn copied(&self, mut copy: impl FnMut(&SimInode) -> Arc<SimInode>) -> Self {
        let mut folders = std::collections::BTreeMap::new();
        for (id, folder) in &self.folders {
            let now: std::collections::BTreeMap<_, _> = folder
                .now
                .iter()
                .map(|(name, entry)| {
                    let entry = match entry {
                        Entry::File(inode) => Entry::File(copy(inode)),
                        Entry::Folder(id) => Entry::Folder(*id),
                    };
                    (name.clone(), entry)
                })
                .collect();
            folders.insert(*id, super::tree::Folder { medium: now.clone(), now });
        }
        Self { folders, folders_made: self.folders_made, changes: Vec::new() }
    }
}
