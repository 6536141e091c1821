//! Names of files and hosts: each stands once in a trace, records carry its number.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A file of a trace, by its number in [`Names`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileId(pub u32);

/// A host of a trace, by its number in [`Names`]; number 0 is the unknown host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HostId(pub u32);

/// Longest name in bytes; longer ones are refused by every decoder.
pub const NAME_BYTES_MAX: usize = 4096;

/// Most names of a kind in a trace.
pub const NAMES_MAX: u32 = 1 << 24;

/// The names that were met so far.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Names {
    files: Table,
    hosts: Table,
}

impl Names {
    /// The number of a file, new or known; `None` when there are [`NAMES_MAX`] already.
    pub fn file(&mut self, name: &str) -> Option<FileId> {
        self.files.intern(name).map(FileId)
    }

    /// The number of a host, new or known; the empty name is the unknown host.
    pub fn host(&mut self, name: &str) -> Option<HostId> {
        if name.is_empty() {
            return Some(HostId(0));
        }
        self.hosts.intern(name).map(|number| HostId(number + 1))
    }

    /// The name of a file, when there is one of that number.
    pub fn file_name(&self, file: FileId) -> Option<&str> {
        self.files.get(file.0)
    }

    /// The name of a host, empty for the unknown one.
    pub fn host_name(&self, host: HostId) -> Option<&str> {
        if host.0 == 0 { Some("") } else { self.hosts.get(host.0 - 1) }
    }

    /// Number of files.
    pub fn files(&self) -> u32 {
        self.files.len()
    }

    /// Number of hosts that have a name.
    pub fn hosts(&self) -> u32 {
        self.hosts.len()
    }

    /// The names of all files in the order of their numbers.
    pub fn all_files(&self) -> impl Iterator<Item = &str> {
        self.files.list.iter().map(|name| &**name)
    }

    /// Gives a file the next number, even when it has one already; for decoders.
    pub fn file_again(&mut self, name: &str) -> Option<FileId> {
        let known = self.files.numbers.get(name).copied();
        match known {
            None => self.files.push_new(name).map(FileId),
            Some(first) if self.files() < NAMES_MAX => {
                let name = self.files.list[first as usize].clone();
                self.files.list.push(name);
                Some(FileId(self.files() - 1))
            }
            Some(_) => None,
        }
    }

    /// Adds a host that must be new.
    pub fn new_host(&mut self, name: &str) -> Option<HostId> {
        self.hosts.push_new(name).map(|number| HostId(number + 1))
    }
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Table {
    list: Vec<Arc<str>>,
    numbers: BTreeMap<Arc<str>, u32>,
}

impl Table {
    fn intern(&mut self, name: &str) -> Option<u32> {
        match self.numbers.get(name) {
            Some(&number) => Some(number),
            None => self.push_new(name),
        }
    }

    fn push_new(&mut self, name: &str) -> Option<u32> {
        let number = self.len();
        if number >= NAMES_MAX || self.numbers.contains_key(name) {
            return None;
        }
        let name: Arc<str> = name.into();
        self.list.push(name.clone());
        self.numbers.insert(name, number);
        Some(number)
    }

    fn get(&self, number: u32) -> Option<&str> {
        self.list.get(number as usize).map(|name| &**name)
    }

    fn len(&self) -> u32 {
        self.list.len() as u32
    }
}
