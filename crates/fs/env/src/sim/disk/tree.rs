//! Folders and names, as processes see them and as the medium holds them.
//!
//! Assumptions about the medium:
//!
//! * A change of names, including a rename between two folders, is complete or absent.
//! * Of several changes to one name, a later one never survives without the earlier ones.
//! * Otherwise any change may be lost until its folder is synced.

use super::SimInode;
use crate::sim::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

/// Root folder.
const ROOT: FolderId = FolderId(0);
/// Maximum number of separate unsynced changes of names. Beyond it, the oldest ones are written back.
const CHANGES_MAX: usize = 65_536;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FolderId(u64);

#[derive(Clone)]
pub enum Entry {
    File(Arc<SimInode>),
    Folder(FolderId),
}

#[derive(Default)]
pub(super) struct Folder {
    pub(super) now: BTreeMap<String, Entry>,
    pub(super) medium: BTreeMap<String, Entry>,
}

pub(super) type Name = (FolderId, String);

/// Names that change together, and their new entries.
pub(super) type Change = Vec<(Name, Option<Entry>)>;

/// Directory tree in both versions, and the changes between them.
pub struct Tree {
    pub(super) folders: BTreeMap<FolderId, Folder>,
    pub(super) folders_made: u64,
    pub(super) changes: Vec<Change>,
}

fn error(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

impl Tree {
    pub fn new() -> Self {
        Self { folders: BTreeMap::from([(ROOT, Folder::default())]), folders_made: 0, changes: Vec::new() }
    }

    pub(super) fn folder(&self, id: FolderId) -> &Folder {
        &self.folders[&id]
    }

    /// Returns the folder at `path`, relative to `base`; the empty path is `base`.
    pub fn find_folder(&self, base: FolderId, path: &str) -> io::Result<FolderId> {
        let parts = path.split('/').filter(|part| !part.is_empty());
        parts.into_iter().try_fold(base, |at, part| match self.folder(at).now.get(part) {
            Some(Entry::Folder(id)) => Ok(*id),
            Some(Entry::File(_)) => Err(error(libc::ENOTDIR)),
            None => Err(error(libc::ENOENT)),
        })
    }

    pub const fn root() -> FolderId {
        ROOT
    }

    fn name(&self, base: FolderId, path: &str) -> io::Result<Name> {
        let (folder, last) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.find_folder(base, folder)?, last.to_owned()))
    }

    fn entry(&self, name: &Name) -> Option<&Entry> {
        self.folder(name.0).now.get(&name.1)
    }

    /// Returns the file at `path`, if there is one.
    pub fn find_file(&self, base: FolderId, path: &str) -> io::Result<Option<Arc<SimInode>>> {
        match self.entry(&self.name(base, path)?) {
            Some(Entry::File(inode)) => Ok(Some(Arc::clone(inode))),
            Some(Entry::Folder(_)) => Err(error(libc::EISDIR)),
            None => Ok(None),
        }
    }

    fn change(&mut self, change: Change) {
        for ((folder, name), entry) in &change {
            let names =
                &mut self.folders.get_mut(folder).expect("the folder exists: it was just looked up").now;
            set(names, name, entry);
        }
        self.changes.push(change);
        if self.changes.len() > CHANGES_MAX {
            let old: Vec<_> = self.changes.drain(..CHANGES_MAX / 2).collect();
            old.iter().for_each(|change| self.make_durable(change));
        }
    }

    pub(super) fn make_durable(&mut self, change: &Change) {
        for ((folder, name), entry) in change {
            if let Some(folder) = self.folders.get_mut(folder) {
                set(&mut folder.medium, name, entry);
            }
        }
    }

    /// Gives a new file its name, which must be free.
    pub fn add_file(&mut self, base: FolderId, path: &str, inode: Arc<SimInode>) -> io::Result<()> {
        let name = self.name(base, path)?;
        self.change(vec![(name, Some(Entry::File(inode)))]);
        Ok(())
    }

    /// Creates a folder; succeeds if it exists.
    pub fn make_folder(&mut self, base: FolderId, path: &str) -> io::Result<()> {
        let name = self.name(base, path)?;
        match self.entry(&name) {
            Some(Entry::Folder(_)) => return Ok(()),
            Some(Entry::File(_)) => return Err(error(libc::ENOTDIR)),
            None => {}
        }
        self.folders_made += 1;
        let id = FolderId(self.folders_made);
        self.folders.insert(id, Folder::default());
        self.change(vec![(name, Some(Entry::Folder(id)))]);
        Ok(())
    }

    /// Removes a file's name and returns the file.
    pub fn remove(&mut self, base: FolderId, path: &str) -> io::Result<Arc<SimInode>> {
        let inode = self.find_file(base, path)?.ok_or_else(|| error(libc::ENOENT))?;
        let name = self.name(base, path)?;
        self.change(vec![(name, None)]);
        Ok(inode)
    }

    /// Renames a file. Returns the file that was replaced, if any.
    pub fn rename(&mut self, base: FolderId, from: &str, to: &str) -> io::Result<Option<Arc<SimInode>>> {
        let inode = self.find_file(base, from)?.ok_or_else(|| error(libc::ENOENT))?;
        let replaced = self.find_file(base, to)?;
        let (from, to) = (self.name(base, from)?, self.name(base, to)?);
        if from == to {
            return Ok(None);
        }
        self.change(vec![(from, None), (to, Some(Entry::File(inode)))]);
        Ok(replaced)
    }

    /// Returns the names in a folder, sorted.
    pub fn list(&self, folder: FolderId) -> Vec<String> {
        self.folder(folder).now.keys().cloned().collect()
    }

    /// Makes the names directly in `folder` durable, together with the changes that they depend on.
    pub fn sync(&mut self, folder: FolderId) {
        let mut needed: BTreeSet<Name> = BTreeSet::new();
        let mut taken = vec![false; self.changes.len()];
        for (take, change) in taken.iter_mut().zip(&self.changes).rev() {
            *take = change.iter().any(|(name, _)| name.0 == folder || needed.contains(name));
            if *take {
                needed.extend(change.iter().map(|(name, _)| name.clone()));
            }
        }
        let mut taken = taken.into_iter();
        let (settle, keep): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.changes).into_iter().partition(|_| taken.next() == Some(true));
        self.changes = keep;
        settle.iter().for_each(|change| self.make_durable(change));
    }

    /// Applies a power failure: the seed decides which unsynced changes of names survive. Returns the remaining files.
    pub fn lose_power(&mut self, rng: &mut Rng) -> Vec<Arc<SimInode>> {
        let keep_per_million = [0, 1_000_000, 500_000, 900_000][rng.below(4) as usize];
        let mut lost: BTreeSet<Name> = BTreeSet::new();
        for change in std::mem::take(&mut self.changes) {
            if rng.chance(keep_per_million) && !change.iter().any(|(name, _)| lost.contains(name)) {
                self.make_durable(&change);
            } else {
                lost.extend(change.into_iter().map(|(name, _)| name));
            }
        }
        let (mut left, mut files, mut open) = (BTreeMap::new(), Vec::new(), vec![ROOT]);
        while let Some(id) = open.pop() {
            let medium = self.folders.remove(&id).expect("each folder has one name").medium;
            for entry in medium.values() {
                match entry {
                    Entry::File(inode) => files.push(Arc::clone(inode)),
                    Entry::Folder(id) => open.push(*id),
                }
            }
            left.insert(id, Folder { now: medium.clone(), medium });
        }
        self.folders = left;
        files
    }
}

fn set(names: &mut BTreeMap<String, Entry>, name: &str, entry: &Option<Entry>) {
    match entry {
        Some(entry) => names.insert(name.to_owned(), entry.clone()),
        None => names.remove(name),
    };
}
