//! Attributes of inodes, and requests to change them.

use crate::capability::Capability;
use crate::session::WalkProof;
use serde::{Deserialize, Serialize};
use weft_core::{ByteLen, FileId, Layout, RecordedLens, Timestamp};

/// Type of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FileType {
    /// Regular file with striped data.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Named pipe. Weft stores only its inode; on a mount the kernel implements the pipe.
    Fifo,
    /// Unix socket.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
}

impl FileType {
    /// Returns the type bits of `st_mode` as Linux defines them, such as `S_IFREG`.
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

    /// Returns the type whose bits are in `mode`, an `st_mode`; `None` for bits that name no type.
    pub const fn of_mode(mode: u32) -> Option<Self> {
        Some(match mode & 0o170_000 {
            0o010_000 => Self::Fifo,
            0o020_000 => Self::CharDevice,
            0o040_000 => Self::Directory,
            0o060_000 => Self::BlockDevice,
            0o100_000 => Self::Regular,
            0o120_000 => Self::Symlink,
            0o140_000 => Self::Socket,
            _ => return None,
        })
    }
}

/// Attributes of an inode.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attr {
    /// File id.
    pub file: FileId,
    /// Proof that the session reached the inode. A walk may start here with it
    /// ([`InodePath::at_inode`](super::InodePath::at_inode)).
    pub proof: WalkProof,
    /// File type.
    pub kind: FileType,
    /// Permission, set-id and sticky bits (07777).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of hard links.
    pub nlink: u32,
    /// Length; nominal for a directory; possibly out of date if the cached size is not valid.
    pub size: ByteLen,
    /// Allocated space in units of 512 bytes, with the same restriction.
    pub blocks_512: u64,
    /// Last read. Updated only at creation and by request.
    pub atime: Timestamp,
    /// Last change of contents, possibly out of date if the cached size is not valid.
    pub mtime: Timestamp,
    /// Last change of attributes.
    pub ctime: Timestamp,
    /// Device number of a device node.
    pub rdev: u64,
    /// Present if the cached size is not valid: the client must query the datafiles.
    pub invalid_size: Option<Box<InvalidSize>>,
}

impl Attr {
    /// Whether a mount may use name and attributes under a lease. Attributes of other files change without the metadata
    /// service, or under several names.
    pub fn can_be_leased(&self) -> bool {
        self.invalid_size.is_none() && (self.kind == FileType::Directory || self.nlink == 1)
    }
}

/// Data that a client needs to query the true size and times of a file. They are not cached while the file is open for
/// writing, or after a writer or a server died.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InvalidSize {
    /// Layout of the datafiles.
    pub layout: Layout,
    /// Capability to query their lengths.
    pub cap: Capability,
    /// Epoch: changes whenever a writer opens the file or the file is truncated.
    pub epoch: u64,
    /// Whether the result may be stored: the file has no writer, and the caller may write it.
    pub may_validate_size: bool,
    /// Time of the last explicit change of mtime. A datafile that was changed later overrides `Attr::mtime`.
    pub mtime_set_at: Timestamp,
    /// Recorded lengths of the datafiles, a lower bound for the file's length.
    pub recorded: RecordedLens,
}

/// Epoch of a message that only ends a truncation whose result is unknown.
pub const NO_EPOCH: u64 = u64::MAX;

/// Result of a size query.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CollectedSize {
    /// Length.
    pub size: ByteLen,
    /// Allocated space in units of 512 bytes.
    pub blocks_512: u64,
    /// Most recent change among the datafiles; `None` if none exists.
    pub mtime: Option<Timestamp>,
    /// Length of each datafile.
    pub lens: RecordedLens,
}

/// New values for attributes; `None` keeps the current value.
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
    /// Last change of contents.
    pub mtime: Option<SetTime>,
    /// Drop set-id bits, as a write by this user does.
    pub written_by: Option<Writer>,
}

/// User without privileges who changes the bytes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Writer {
    /// Member of the file's group. Keeps a set-group-id bit without group execution.
    Member,
    /// Any other user.
    Other,
}

/// Time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SetTime {
    /// Current time of the server.
    Now,
    /// The given time.
    At(Timestamp),
}

#[cfg(test)]
mod tests {
    use super::FileType;

    #[test]
    fn mode_bits_match_dirent_types() {
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
