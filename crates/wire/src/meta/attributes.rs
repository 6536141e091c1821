//! Attributes of inodes, known, asked for and set.

use crate::capability::Capability;
use crate::session::WalkProof;
use serde::{Deserialize, Serialize};
use weft_core::{ByteLen, FileId, Layout, RecordedLens, Timestamp};

/// What an inode is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FileType {
    /// Striped bytes.
    Regular,
    /// Names.
    Directory,
    /// A path.
    Symlink,
    /// A named pipe (only its inode; the kernel does the rest on a mount).
    Fifo,
    /// A socket's name.
    Socket,
    /// A character device's name.
    CharDevice,
    /// A block device's name.
    BlockDevice,
}

impl FileType {
    /// The bits of a mode (`st_mode`) that tell the type, as on Linux: `S_IFREG` and its relatives.
    pub const fn mode_bits(self) -> u32 {
        match self {
            Self::Fifo => 0o010_000,
            Self::CharDevice => 0o020_000,
            Self::Directory => 0o040_000,
            Self::BlockDevice => 0o060_000,
            Self::Regular => 0o100_000,
            Self::Symlink => 0o120_000,
            Self::Socket => 0o140_000,
        }
    }
}

/// Attributes of an inode.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attr {
    /// Which.
    pub file: FileId,
    /// That the session reached it: with it a walk may begin here ([`Place::at_inode`](super::Place::at_inode)).
    pub proof: WalkProof,
    /// What.
    pub kind: FileType,
    /// Permission bits, set-id and sticky bits (07777).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that it has.
    pub nlink: u32,
    /// Length; for a directory a nominal one; for an unsettled file what was last known.
    pub size: ByteLen,
    /// Room taken, in units of 512 bytes; likewise.
    pub blocks_512: u64,
    /// Last read, as far as kept (set at creation and by request).
    pub atime: Timestamp,
    /// Last change of contents; for an unsettled file see [`Unsettled`].
    pub mtime: Timestamp,
    /// Last change of attributes.
    pub ctime: Timestamp,
    /// Device number of a device node.
    pub rdev: u64,
    /// Present when the datafiles know better than the inode: ask them.
    pub unsettled: Option<Box<Unsettled>>,
}

/// What a client needs to learn the true size and times of a file that is open for writing somewhere, or was when
/// its writer or a server died.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unsettled {
    /// Where the datafiles are.
    pub layout: Layout,
    /// The right to ask for their lengths.
    pub cap: Capability,
    /// Changes whenever a writer opens or the file is truncated.
    pub epoch: u64,
    /// Whether what the client finds may be settled: nobody has the file open for writing, and the caller may write it.
    pub may_settle: bool,
    /// When somebody last set mtime by hand; a datafile changed after it decides instead of `Attr::mtime`.
    pub mtime_set_at: Timestamp,
    /// Recorded lengths of the datafiles: the file is at least as long as they say.
    pub recorded: RecordedLens,
}

/// The epoch of a settlement that says only that a cut is over: what came of it nobody knows.
pub const NO_EPOCH: u64 = u64::MAX;

/// What a client found out about an unsettled file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Settlement {
    /// Length.
    pub size: ByteLen,
    /// Room taken, in units of 512 bytes.
    pub blocks_512: u64,
    /// Newest change among the datafiles, if any exists.
    pub mtime: Option<Timestamp>,
    /// Length of each datafile.
    pub lens: RecordedLens,
}

/// New values for attributes; `None` leaves one as it is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last read.
    pub atime: Option<SetTime>,
    /// Last change.
    pub mtime: Option<SetTime>,
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SetTime {
    /// The server's.
    Now,
    /// This one.
    At(Timestamp),
}

#[cfg(test)]
mod tests {
    use super::FileType;

    #[test]
    fn mode_bits_are_those_of_directory_entries_shifted() {
        // DT_FIFO, DT_CHR, DT_DIR, DT_BLK, DT_REG, DT_LNK, DT_SOCK of getdents64(2).
        let kinds = [
            (FileType::Fifo, 1),
            (FileType::CharDevice, 2),
            (FileType::Directory, 4),
            (FileType::BlockDevice, 6),
            (FileType::Regular, 8),
            (FileType::Symlink, 10),
            (FileType::Socket, 12),
        ];
        for (kind, number) in kinds {
            assert_eq!(kind.mode_bits(), number << 12, "{kind:?}");
        }
    }
}
