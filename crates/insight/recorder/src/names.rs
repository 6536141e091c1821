//! Name tables: a trace stores each file and host name once, and records refer to it by number.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of a file name in [`Names`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileId(pub u32);

/// Number of a host name in [`Names`]. 0 is the unknown host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HostId(pub u32);

/// Maximum length of a name in bytes. Every decoder rejects longer names.
pub const NAME_BYTES_MAX: usize = 4096;

/// Maximum number of file names, and of host names, in one trace.
pub const NAMES_MAX: u32 = 1 << 24;

/// File and host names of a trace, in order of first use.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Names {
    files: Table,
    hosts: Table,
}

impl Names {
    /// Returns a file's number and adds the name if it is new; `None` if the table has [`NAMES_MAX`] names.
    pub fn file(&mut self, name: &str) -> Option<FileId> {
        self.files.intern(name).map(FileId)
    }

    /// Returns a host's number and adds the name if it is new. The empty name is the unknown host.
    pub fn host(&mut self, name: &str) -> Option<HostId> {
        if name.is_empty() {
            return Some(HostId(0));
        }
        self.hosts.intern(name).map(|number| HostId(number + 1))
    }

    /// Returns the name of a file, if the number is in use.
    pub fn file_name(&self, file: FileId) -> Option<&str> {
        self.files.get(file.0)
    }

    /// Returns the name of a host, empty for the unknown host.
    pub fn host_name(&self, host: HostId) -> Option<&str> {
        if host.0 == 0 { Some("") } else { self.hosts.get(host.0 - 1) }
    }

    /// Number of file names.
    pub fn files(&self) -> u32 {
        self.files.len()
    }

    /// Number of host names, without the unknown host.
    pub fn hosts(&self) -> u32 {
        self.hosts.len()
    }

    /// Iterates over the file names in the order of their numbers.
    pub fn all_files(&self) -> impl Iterator<Item = &str> {
        self.files.list.iter().map(|name| &**name)
    }

    /// Adds a file name under the next number, even if the name already has one.
    ///
    /// A recorder that forgot a name to save memory writes it again; decoders must assign the same numbers.
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

    /// Adds a host name; `None` if it is already present or the table is full.
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
