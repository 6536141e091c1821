//! Rows of the tables. They are encoded by postcard and sealed by [`seal`](super::seal); a changed field is a new
//! version of the formats.
//!
//! | table | key | row |
//! | --- | --- | --- |
//! | counters | `allocator` | [`AllocatorRow`] |
//! | counters | `start` | [`StartRow`] |
//! | counters | `restored` | [`RestoredRow`] |
//! | counters | `registry` | nothing |
//! | counters | `cluster map` | [`ClusterMapRow`] |
//! | counters | `levels` | [`LevelsRow`] |
//! | counters | `failure domains` | [`DomainsRow`] |
//! | inodes | file id, 8 bytes big-endian | [`Inode`] |
//! | dentries | directory's file id, then the name's bytes | [`DentryRow`] |
//! | xattrs | file id, then the name's bytes | bytes |
//! | orphans | file id | nothing |
//! | reap | file id with the datafiles' generation | [`ReapRow`] |
//! | replies | session (16 bytes big-endian), slot (4) | [`ReplyRow`] |
//! | sessions | session | nothing |
//! | rules | directory's file id | [`RulesRow`] |
//! | rooms | target, 4 bytes big-endian | [`SpaceReservationRow`] |
//! | moves | file id | [`MoveRow`] |
//! | targets | target, 4 bytes big-endian | [`TargetRow`] |
//! | starts | number of the start, 4 bytes big-endian | [`IdsRow`] |
//! | owners | user id, 4 bytes big-endian | [`OwnerRow`] |
//! | revoked | id of a key, 8 bytes big-endian | [`RevokedRow`] |
//! | replicas | file id | [`ReplicaRow`] |
//! | quotas | `u` and the user id (8 bytes big-endian), or `t` and the directory's file id | [`QuotaRow`] |
//! | charges | file id | [`FileChargeRow`] |
//! | inline | file id | [`InlineRow`] |
//!
//! The last eleven tables are absent in databases of earlier versions, which is equivalent to empty tables. The row
//! `registry` of the counters exists once the table of targets is in use.

mod node;
mod rules;

use serde::{Deserialize, Deserializer, Serialize};
use weft_core::replicas::Phase;
use weft_core::{
    AttachToken, ByteLen, ClassLayout, Compression, CompressionSetting, FileId, FileOffset, Integrity,
    Layout, Pattern, QuotaId, QuotaLimits, QuotaUsage, RecordedLens, ServerId, TargetId, TargetSettings,
    TargetState, TargetUuid, Timestamp,
};

/// Kind of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NodeKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// Layout preferences of a directory for files created in it; `None` leaves a choice to the cluster.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct LayoutChoice {
    /// Stripe size.
    pub stripe_size: Option<ByteLen>,
    /// Number of targets.
    pub stripe_count: Option<u32>,
    /// Index of the first target among those that qualify.
    pub first: Option<u32>,
    /// Restricts targets to this class.
    pub class: Option<String>,
    /// Exactly these targets and stripe sizes.
    pub strips: Option<Vec<(TargetId, ByteLen)>>,
    /// Replacement strips from each offset on. One tail has the encoding of the optional single tail of an earlier
    /// version.
    pub tails: Vec<(FileOffset, Vec<(TargetId, ByteLen)>)>,
}

/// Attributes of an inode that depend on its kind.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(from = "node::Stored")]
pub enum Node {
    /// A regular file.
    Regular {
        /// Layout of its datafiles.
        layout: Layout,
        /// True if size, space and mtime of the inode are authoritative; otherwise the datafiles are.
        is_size_valid: bool,
        /// True if a datafile may exist; of an inline file, one of an unfinished copy.
        touched: bool,
        /// Incremented when a writer opens the file or it is truncated; wraps.
        epoch: u32,
        /// Generation of its datafiles.
        generations: Generations,
        /// Lower bounds for the lengths of the datafiles; empty in rows of earlier versions.
        recorded: RecordedLens,
        /// True if the bytes are in the table `inline`, and not in datafiles. The size is valid then, and nothing is
        /// recorded.
        is_inline: bool,
    },
    /// A directory.
    Directory {
        /// Number of entries, without `.` and `..`.
        entries: u64,
        /// Layout preferences for new files.
        default: Option<LayoutChoice>,
    },
    /// A symbolic link.
    Symlink {
        /// Bytes of the target path.
        target: Vec<u8>,
    },
    /// A named pipe, socket or device.
    Special {
        /// Fifo, socket, character device or block device.
        kind: NodeKind,
        /// Device number.
        rdev: u64,
    },
}

/// Bytes of a small file, as many as its size says. An empty file has no row.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct InlineRow {
    /// Bytes of the file.
    #[serde(with = "serde_bytes_vec")]
    pub bytes: Vec<u8>,
}

/// Generations of a file's datafiles; see [`FileId::generation`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Generations {
    /// Current generation.
    pub now: u16,
    /// Highest generation ever used; later ones have never existed on any target.
    pub last: u16,
}

/// An inode.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Inode {
    /// Permission, set-id and sticky bits, and above them the settings of [checksums](Inode::integrity) and
    /// [compression](Inode::compression_setting).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of hard links; for a directory, 2 plus its number of subdirectories.
    pub nlink: u32,
    /// Length as last known.
    pub size: ByteLen,
    /// Allocated space as last known, in units of 512 bytes.
    pub blocks_512: u64,
    /// Last access, as far as recorded.
    pub atime: Timestamp,
    /// Last modification as last known.
    pub mtime: Timestamp,
    /// Last change of attributes.
    pub ctime: Timestamp,
    /// Time when mtime was last set explicitly.
    pub mtime_set_at: Timestamp,
    /// Parent of a directory; for other inodes, a directory that has or had a name of it.
    pub parent: FileId,
    /// Name in that directory.
    #[serde(with = "serde_bytes_vec")]
    pub name: Vec<u8>,
    /// Number of extended attributes.
    pub xattrs: u32,
    /// Attributes of its kind.
    pub node: Node,
}

/// Encodes bytes as bytes instead of a sequence of numbers: the same encoding, faster code.
mod serde_bytes_vec {
    use serde::de::{Deserializer, Error, Visitor};
    use serde::ser::Serializer;

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Vec<u8>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
                Ok(bytes.to_vec())
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

/// Bits of [`Inode::mode`] that are permission, set-id and sticky bits.
pub const PERMISSION_BITS: u32 = 0o7777;
/// Bit of [`Inode::mode`]: no checksums at rest.
const INTEGRITY_OFF: u32 = 1 << 16;
/// Bit of [`Inode::mode`]: checksums at rest.
const INTEGRITY_CRC32C: u32 = 1 << 17;
/// Bits of [`Inode::mode`] that hold the checksum setting.
pub const INTEGRITY_BITS: u32 = INTEGRITY_OFF | INTEGRITY_CRC32C;
/// Lowest bit of [`Inode::mode`] that holds the compression setting.
const COMPRESSION_SHIFT: u32 = 18;
/// Bits of [`Inode::mode`] that hold the compression setting, as [`CompressionSetting::encode`] numbers it.
pub const COMPRESSION_BITS: u32 = 511 << COMPRESSION_SHIFT;

impl Inode {
    /// Returns the checksum setting of a file, or of new files of a directory; `None` leaves it to the targets.
    pub fn integrity(&self) -> Option<Integrity> {
        match self.mode & INTEGRITY_BITS {
            0 => None,
            INTEGRITY_OFF => Some(Integrity::Off),
            _ => Some(Integrity::Crc32c),
        }
    }

    /// Sets the [checksum setting](Self::integrity).
    pub fn set_integrity(&mut self, integrity: Option<Integrity>) {
        let bits = match integrity {
            None => 0,
            Some(Integrity::Off) => INTEGRITY_OFF,
            Some(Integrity::Crc32c) => INTEGRITY_CRC32C,
        };
        self.mode = (self.mode & !INTEGRITY_BITS) | bits;
    }

    /// Returns how a file's datafiles are compressed; `None` for plain datafiles, as of inodes of earlier versions.
    pub fn compression(&self) -> Option<Compression> {
        self.compression_setting().and_then(CompressionSetting::compression)
    }

    /// Returns the compression setting of a file, or of new files of a directory; `None` if it has none.
    pub fn compression_setting(&self) -> Option<CompressionSetting> {
        CompressionSetting::decode(((self.mode & COMPRESSION_BITS) >> COMPRESSION_SHIFT) as u16)
    }

    /// Sets the [compression setting](Self::compression_setting).
    pub fn set_compression(&mut self, setting: Option<CompressionSetting>) {
        let code = setting.map_or(0, CompressionSetting::encode);
        self.mode = (self.mode & !COMPRESSION_BITS) | u32::from(code) << COMPRESSION_SHIFT;
    }

    /// Returns the kind of the inode.
    pub fn kind(&self) -> NodeKind {
        match &self.node {
            Node::Regular { .. } => NodeKind::Regular,
            Node::Directory { .. } => NodeKind::Directory,
            Node::Symlink { .. } => NodeKind::Symlink,
            Node::Special { kind, .. } => *kind,
        }
    }

    /// Returns whether the bytes are in the table `inline`.
    pub fn is_inline(&self) -> bool {
        matches!(self.node, Node::Regular { is_inline: true, .. })
    }

    /// Returns the datafiles that an unfinished copy of an inline file may have, and their layout; `file` is the inode's own
    /// id.
    pub fn unfinished_copy(&self, file: FileId) -> Option<(FileId, &Layout)> {
        match &self.node {
            Node::Regular { is_inline: true, touched: true, layout, generations, .. } => {
                Some((file.of_generation(generations.last), layout))
            }
            _ => None,
        }
    }

    /// Returns the id under which the datafiles are stored; `file` is the inode's own id.
    pub fn data(&self, file: FileId) -> FileId {
        match &self.node {
            Node::Regular { generations, .. } => file.of_generation(generations.now),
            _ => file,
        }
    }

    /// Returns true for a directory.
    pub fn is_dir(&self) -> bool {
        matches!(self.node, Node::Directory { .. })
    }
}

/// A directory entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DentryRow {
    /// File id of the inode.
    pub file: FileId,
    /// Kind of the inode.
    pub kind: NodeKind,
}

/// A file whose datafiles must be removed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ReapRow {
    /// Layout of the datafiles.
    pub layout: Layout,
}

/// Layout rules of a directory.
#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(try_from = "rules::Stored")]
pub struct RulesRow {
    /// The rules; the first that matches decides.
    pub rules: Vec<RuleRow>,
}

/// A layout rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleRow {
    /// Pattern of files below the directory.
    pub pattern: Pattern,
    /// Layout preferences; what they leave open is decided by the default of a file's directory.
    pub choice: LayoutChoice,
    /// Layout by class, instead of preferences.
    pub by_class: Option<ClassLayout>,
    /// Compression setting of new files.
    pub compression: Option<CompressionSetting>,
}

/// Space reservations of a target with limited capacity. Only such targets have a row.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct SpaceReservationRow {
    /// Bytes reserved by bounded components of all files, including files whose removal is pending.
    pub promised: ByteLen,
}

/// Inode count of a user. Users have a row exactly while they own inodes. A database without any rows is of an earlier
/// version; the next start counts its inodes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct OwnerRow {
    /// Number of inodes that the user owns, including unlinked ones that are still open.
    pub inodes: u64,
}

/// Limits and usage of an account. Only users and trees that have had a limit have a row.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct QuotaRow {
    /// Limits.
    pub limits: QuotaLimits,
    /// Usage.
    pub usage: QuotaUsage,
    /// For a tree: true once all files that existed before are counted.
    pub is_counted: bool,
}

/// Part of a file in the accounts; absent for a file in no tree that is charged no more than its size.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct FileChargeRow {
    /// Root directory of the tree in which the file counts.
    pub tree: Option<FileId>,
    /// Length that the file is charged while its size is not valid. The size counts if it is greater.
    pub reserved: ByteLen,
}

/// An unfinished move of a file to another layout.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MoveRow {
    /// Generation of the new datafiles.
    pub generation: u16,
    /// Layout of the new datafiles.
    pub layout: Layout,
    /// Session that performs the move.
    pub session: u128,
    /// Handle under which that session has the file open.
    pub handle: u64,
    /// All bytes below this offset have been copied durably.
    pub copied: ByteLen,
    /// Epoch of the inode in which the copied bytes are known to be current.
    pub epoch: Option<u32>,
    /// Compression setting of the new datafiles; absent in rows of earlier versions.
    #[serde(deserialize_with = "setting_or_end", skip_serializing_if = "Option::is_none")]
    pub compression: Option<CompressionSetting>,
}

/// Decodes the last field of a value, or its default if the value ends before it, as that of an earlier version does.
/// Earlier checks guarantee that a failure means the end: the value's checksum is verified first, and trailing bytes
/// are rejected.
fn or_end<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(T::deserialize(deserializer).unwrap_or_default())
}

fn setting_or_end<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<CompressionSetting>, D::Error> {
    let code: Option<u16> = or_end(deserializer)?;
    code.map(CompressionSetting::try_from).transpose().map_err(serde::de::Error::custom)
}

/// Last reply on a slot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReplyRow {
    /// Sequence number of the request.
    pub seq: u64,
    /// Reply as the service encoded it.
    #[serde(with = "serde_bytes_vec")]
    pub reply: Vec<u8>,
}

/// State of the file id allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AllocatorRow {
    /// Next file id; lower ones are never used again.
    pub next: FileId,
    /// Number of inodes in use.
    pub inodes: u64,
}

/// Record of the service's starts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct StartRow {
    /// Number of starts.
    pub incarnation: u32,
    /// True after a clean shutdown.
    pub clean: bool,
    /// True if in addition no client could still use a file at that time; false in rows of earlier versions.
    #[serde(deserialize_with = "or_end", skip_serializing_if = "std::ops::Not::not")]
    pub unused: bool,
}

/// Record of the last restore from a dump; absent in a database that was never restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RestoredRow {
    /// Time when the dump was made.
    pub dumped: Timestamp,
    /// Time when it was restored.
    pub restored: Timestamp,
}

/// Key of [`AllocatorRow`] in counters.
pub const ALLOCATOR_KEY: &[u8] = b"allocator";
/// Key of [`StartRow`] in counters.
pub const START_KEY: &[u8] = b"start";
/// Key in counters of the incarnation (`u32`) of the latest start that leased names to mounts.
pub const LEASING_START_KEY: &[u8] = b"leasing start";
/// Key of [`RestoredRow`] in counters.
pub const RESTORED_KEY: &[u8] = b"restored";

/// Key of [`ClusterMapRow`] in counters.
pub const CLUSTER_MAP_KEY: &[u8] = b"cluster map";

/// Key of [`LevelsRow`] in counters.
pub const LEVELS_KEY: &[u8] = b"levels";

/// Feature levels of the cluster and of its servers. A database without this row has level 1.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LevelsRow {
    /// Level of the cluster.
    pub cluster: u8,
    /// Latest level that each server knew at its latest start, by its number; 0 before the first.
    pub servers: Vec<u8>,
}

/// Key of [`DomainsRow`] in counters.
pub const DOMAINS_KEY: &[u8] = b"failure domains";

/// Failure domains of servers by their numbers. Level 2.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct DomainsRow {
    /// Host and rack of each server; empty if not named.
    pub servers: Vec<(String, String)>,
}

/// Servers and targets of the cluster, with their addresses and settings.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ClusterMapRow {
    /// Version, which each change raises.
    pub version: u32,
    /// Servers; the number of a server is its place in this list.
    pub servers: Vec<ServerRow>,
    /// Targets in ascending order.
    pub targets: Vec<TargetPlaceRow>,
}

/// A server on record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ServerRow {
    /// Name.
    pub name: String,
    /// Addresses as text.
    pub addresses: Vec<String>,
    /// How the service knows the server.
    pub state: ServerState,
}

/// How the metadata service knows a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ServerState {
    /// By its cluster file only. The server has never started.
    Named,
    /// By an administrator's command. The targets of its next start may join.
    Expected,
    /// By the server's own report at its start.
    Registered,
    /// It was removed, and may not start any more.
    Removed,
}

/// Where a target is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TargetPlaceRow {
    /// Number of the target.
    pub target: TargetId,
    /// Server that has it.
    pub server: ServerId,
    /// Class.
    pub class: String,
    /// Settings.
    pub settings: TargetSettings,
}

/// A registered target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TargetRow {
    /// Identity of its disk. [`TargetUuid::NONE`] if it has none yet, or is in a format without identities. While the
    /// target is joining, the disk being replaced.
    pub uuid: TargetUuid,
    /// State of the target.
    pub state: TargetState,
    /// Token of the latest attach.
    pub token: AttachToken,
    /// Accepts the next attach even if target and record disagree.
    pub accepts: bool,
}

impl TargetRow {
    /// Whether the disk of the target may hold data of files.
    pub fn may_hold_data(&self) -> bool {
        self.state.may_hold_data(self.uuid)
    }
}

/// Range of file ids allocated between a start and the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct IdsRow {
    /// First file id.
    pub first: FileId,
    /// One past the last file id. For the latest start, the allocator has the current value.
    pub end: FileId,
    /// Wall clock at the start, in seconds since 1970.
    pub start_s: u64,
}

/// A revoked key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RevokedRow {
    /// Wall clock at the revocation, in seconds since 1970.
    pub at_s: u64,
    /// Latest generation of the root secret at that time; the key belongs to this generation or an earlier one.
    pub generation: u32,
}

/// Replica of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReplicaRow {
    /// Inode of its data. It has no name, and one link: this row.
    pub data: FileId,
    /// Number of processes whose requests it serves; 0 for any number.
    pub ranks: u32,
    /// Length of its bytes.
    pub len: ByteLen,
    /// Length of the mapping, which follows the bytes.
    pub mapping_len: u32,
    /// XXH3 hash of the mapping.
    pub mapping_hash: u64,
    /// Time that it saves in each run by the model of its plan, in microseconds; 0 if unknown.
    pub gain_us: u64,
    /// State.
    pub phase: Phase,
    /// Whether it owns the bytes that it maps for the clients that have the file open, known or not.
    pub used: bool,
    /// Bitmap of regions in which it is newer than the file; empty if there are none.
    pub dirty: Vec<u8>,
    /// Epoch of the file when the copying began.
    pub epoch: Option<u32>,
    /// Session that copies the bytes.
    pub session: u128,
    /// Handle under which that session has the file open.
    pub handle: u64,
}

/// Returns the key of a file in inodes, orphans, reap and replicas.
pub fn file_key(file: FileId) -> [u8; 8] {
    file.0.to_be_bytes()
}

fn named_key(file: FileId, name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(8 + name.len());
    key.extend_from_slice(&file_key(file));
    key.extend_from_slice(name);
    key
}

/// Returns the key of a name in a directory.
pub fn dentry_key(dir: FileId, name: &[u8]) -> Vec<u8> {
    named_key(dir, name)
}

/// Returns the key of an extended attribute.
pub fn xattr_key(file: FileId, name: &str) -> Vec<u8> {
    named_key(file, name.as_bytes())
}

/// Returns the key of a slot in replies.
pub fn reply_key(session: u128, slot: u32) -> [u8; 20] {
    let mut key = [0; 20];
    key[..16].copy_from_slice(&session.to_be_bytes());
    key[16..].copy_from_slice(&slot.to_be_bytes());
    key
}

/// Returns the key of a target.
pub fn target_key(target: TargetId) -> [u8; 4] {
    target.0.to_be_bytes()
}

/// Returns the key of a user.
pub fn owner_key(uid: u32) -> [u8; 4] {
    uid.to_be_bytes()
}

/// Returns the key of an account.
pub fn quota_key(id: QuotaId) -> [u8; 9] {
    let (kind, number) = match id {
        QuotaId::User(uid) => (b'u', u64::from(uid)),
        QuotaId::Tree(dir) => (b't', dir.0),
    };
    let mut key = [kind; 9];
    key[1..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Returns the account of a [`quota_key`]; `None` for any other bytes.
pub fn quota_of_key(key: &[u8]) -> Option<QuotaId> {
    let (kind, number) = key.split_first()?;
    let number = u64::from_be_bytes(number.try_into().ok()?);
    match kind {
        b'u' => u32::try_from(number).ok().map(QuotaId::User),
        b't' => Some(QuotaId::Tree(FileId(number))),
        _ => None,
    }
}

/// Returns the key of a revoked key.
pub fn revoked_key(key: u64) -> [u8; 8] {
    key.to_be_bytes()
}

/// Returns the key of a start.
pub fn start_key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Returns the key of a session.
pub fn session_key(session: u128) -> [u8; 16] {
    session.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::super::{Table, Untrusted, seal};
    use super::*;

    #[test]
    fn golden_bytes() {
        let time = |s: i64| Timestamp::from_parts(s, 0);
        let inode = Inode {
            mode: 0o644,
            uid: 1000,
            gid: 100,
            nlink: 1,
            size: ByteLen(300),
            blocks_512: 8,
            atime: time(0),
            mtime: Timestamp(1),
            ctime: Timestamp(-1),
            mtime_set_at: time(0),
            parent: FileId(1),
            name: b"n".to_vec(),
            xattrs: 2,
            node: Node::Regular {
                layout: Layout::single(TargetId(3)),
                is_size_valid: true,
                touched: false,
                epoch: 9,
                generations: Generations::default(),
                recorded: RecordedLens::NONE,
                is_inline: false,
            },
        };
        let bytes = postcard::to_allocvec(&inode).expect("encodes");
        let expected = [
            0xa4, 0x03, // mode
            0xe8, 0x07, // uid
            100, 1, // gid, nlink
            0xac, 0x02, 8, // size, blocks
            0, 2, 1, 0, // times, zigzag
            1, 1, b'n', 2, // parent, name, xattrs
            0, // regular
            1, 0, 0, 1, 3, 0x80, 0x80, 0x40, // one component from 0 without end; target 3, 1 MiB
            1, 0, 9, // size valid, touched, epoch
        ];
        assert_eq!(bytes, expected);
        assert_eq!(postcard::from_bytes::<Inode>(&bytes).as_ref(), Ok(&inode));
        // The checksum setting is in the bits above the permissions; rows without them have none.
        assert_eq!(inode.integrity(), None);
        for (integrity, mode) in [(Integrity::Off, [0xa4, 0x83, 4]), (Integrity::Crc32c, [0xa4, 0x83, 8])] {
            let mut checked = inode.clone();
            checked.set_integrity(Some(integrity));
            let bytes = postcard::to_allocvec(&checked).expect("encodes");
            assert_eq!(bytes, [&mode[..], &expected[2..]].concat());
            let read = postcard::from_bytes::<Inode>(&bytes).expect("decodes");
            assert_eq!((read.integrity(), read.mode & PERMISSION_BITS), (Some(integrity), 0o644));
            checked.set_integrity(None);
            assert_eq!(checked, inode);
        }
    }

    #[test]
    fn golden_bits_of_compression() {
        let mut inode = Inode {
            mode: 0o644,
            uid: 0,
            gid: 0,
            nlink: 2,
            size: ByteLen(0),
            blocks_512: 0,
            atime: Timestamp(0),
            mtime: Timestamp(0),
            ctime: Timestamp(0),
            mtime_set_at: Timestamp(0),
            parent: FileId(1),
            name: b"n".to_vec(),
            xattrs: 0,
            node: Node::Directory { entries: 0, default: None },
        };
        inode.set_integrity(Some(Integrity::Crc32c));
        let before = inode.mode;
        assert_eq!((inode.compression_setting(), inode.compression()), (None, None));
        for (text, code) in
            [("off", 29), ("lz4/16KiB", 30), ("zstd:19/1024KiB", 6 << 5 | 19), ("auto", 2 << 5 | 31)]
        {
            let setting: CompressionSetting = text.parse().expect("a setting");
            inode.set_compression(Some(setting));
            assert_eq!(inode.mode, before | code << 18, "{text}");
            assert_eq!(inode.compression_setting(), Some(setting));
            assert_eq!(inode.compression(), setting.compression());
            assert_eq!((inode.integrity(), inode.mode & PERMISSION_BITS), (Some(Integrity::Crc32c), 0o644));
        }
        inode.set_compression(None);
        assert_eq!(inode.mode, before);
    }

    #[test]
    fn golden_bytes_of_moves() {
        let row = |compression: &str| MoveRow {
            generation: 1,
            layout: Layout::single(TargetId(3)),
            session: 300,
            handle: 5,
            copied: ByteLen(7),
            epoch: Some(9),
            compression: compression.parse().ok(),
        };
        // Rows of earlier versions end before the compression.
        let before = [1, 1, 0, 0, 1, 3, 0x80, 0x80, 0x40, 0xac, 0x02, 5, 7, 1, 9];
        for (row, rest) in [(row("-"), &[][..]), (row("off"), &[1, 29]), (row("zstd:3"), &[1, 2 << 5 | 3])] {
            let bytes = postcard::to_allocvec(&row).expect("encodes");
            assert_eq!(bytes, [&before, rest].concat());
            let opened = Untrusted::new(seal(Table::Moves, b"k", &Raw(&bytes))).open(Table::Moves, b"k");
            assert_eq!(opened, Ok(row));
        }
        // A number that no setting has, and extra bytes.
        for rest in [&[1, 28][..], &[1, 29, 0]] {
            let bytes = [&before, rest].concat();
            let opened =
                Untrusted::new(seal(Table::Moves, b"k", &Raw(&bytes))).open::<MoveRow>(Table::Moves, b"k");
            assert!(opened.is_err(), "{bytes:?}: {opened:?}");
        }
    }

    #[test]
    fn golden_bytes_of_targets_and_starts() {
        let token = AttachToken { counter: 300, nonce: 5 };
        let row = TargetRow { uuid: TargetUuid(300), state: TargetState::Draining, token, accepts: true };
        let bytes = postcard::to_allocvec(&row).expect("encodes");
        assert_eq!(bytes, [0xac, 0x02, 2, 0xac, 0x02, 5, 1]);
        assert_eq!(postcard::from_bytes::<TargetRow>(&bytes), Ok(row));
        let row = IdsRow { first: FileId(300), end: FileId(301), start_s: 7 };
        let bytes = postcard::to_allocvec(&row).expect("encodes");
        assert_eq!(bytes, [0xac, 0x02, 0xad, 0x02, 7]);
        assert_eq!(postcard::from_bytes::<IdsRow>(&bytes), Ok(row));
        let row = OwnerRow { inodes: 300 };
        let bytes = postcard::to_allocvec(&row).expect("encodes");
        assert_eq!(bytes, [0xac, 0x02]);
        assert_eq!(postcard::from_bytes::<OwnerRow>(&bytes), Ok(row));
        assert_eq!(owner_key(1000), [0, 0, 3, 0xe8]);
    }

    #[test]
    fn golden_bytes_of_quotas() {
        let limits = QuotaLimits { bytes: Some(ByteLen(300)), inodes: None };
        let row = QuotaRow { limits, usage: QuotaUsage { bytes: ByteLen(5), inodes: 6 }, is_counted: true };
        let bytes = postcard::to_allocvec(&row).expect("encodes");
        assert_eq!(bytes, [1, 0xac, 0x02, 0, 5, 6, 1]);
        assert_eq!(postcard::from_bytes::<QuotaRow>(&bytes), Ok(row));
        let row = FileChargeRow { tree: Some(FileId(300)), reserved: ByteLen(7) };
        let bytes = postcard::to_allocvec(&row).expect("encodes");
        assert_eq!(bytes, [1, 0xac, 0x02, 7]);
        assert_eq!(postcard::from_bytes::<FileChargeRow>(&bytes), Ok(row));
        for (id, key) in [
            (QuotaId::User(258), [b'u', 0, 0, 0, 0, 0, 0, 1, 2]),
            (QuotaId::Tree(FileId(1 << 56)), [b't', 1, 0, 0, 0, 0, 0, 0, 0]),
        ] {
            assert_eq!(quota_key(id), key);
            assert_eq!(quota_of_key(&key), Some(id));
        }
        for bad in [&b""[..], b"u", b"x\0\0\0\0\0\0\0\0", b"u\x01\0\0\0\0\0\0\0", b"t\0\0\0\0\0\0\0\0\0"] {
            assert_eq!(quota_of_key(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn golden_bytes_of_revoked_keys() {
        let row = RevokedRow { at_s: 300, generation: 5 };
        let bytes = postcard::to_allocvec(&row).expect("encodes");
        assert_eq!(bytes, [0xac, 0x02, 5]);
        assert_eq!(postcard::from_bytes::<RevokedRow>(&bytes), Ok(row));
        assert_eq!(revoked_key(258), [0, 0, 0, 0, 0, 0, 1, 2]);
    }

    #[test]
    fn golden_bytes_of_rules() {
        let by_class = ClassLayout::new(vec![
            weft_core::ClassPart {
                end: Some(FileOffset(300)),
                stripes: vec![("hdd".into(), ByteLen(5)), ("ssd".into(), ByteLen(6))],
            },
            weft_core::ClassPart { end: None, stripes: vec![("hdd".into(), ByteLen(7))] },
        ])
        .expect("a layout");
        let choice = LayoutChoice { stripe_count: Some(2), ..LayoutChoice::default() };
        let rule = |pattern: &str, choice, by_class| RuleRow {
            pattern: pattern.parse().expect("a pattern"),
            choice,
            by_class,
            compression: None,
        };
        let rules = vec![rule("*.h5", choice, None), rule("/a{n}", LayoutChoice::default(), Some(by_class))];
        let row = RulesRow { rules };
        let bytes = postcard::to_allocvec(&row).expect("encodes");
        let mut expected = vec![2, 4];
        expected.extend_from_slice(b"*.h5");
        expected.extend_from_slice(&[0, 1, 2, 0, 0, 0, 0, 0]); // choice: a count; not by class
        expected.extend_from_slice(b"\x05/a{n}");
        expected.extend_from_slice(&[0, 0, 0, 0, 0, 0, 1, 2]); // nothing chosen; by class, two parts
        expected.extend_from_slice(&[1, 0xac, 0x02, 2, 3]); // to 300, two classes
        expected.extend_from_slice(b"hdd\x05\x03ssd\x06");
        expected.extend_from_slice(b"\x00\x01\x03hdd\x07");
        assert_eq!(bytes, expected);
        assert_eq!(postcard::from_bytes::<RulesRow>(&bytes).as_ref(), Ok(&row));
        // Invalid patterns and layouts are rejected.
        let mut bad = bytes.clone();
        let brace = bytes.iter().position(|byte| *byte == b'{').expect("in the second");
        bad[brace + 1] = b'm';
        assert!(postcard::from_bytes::<RulesRow>(&bad).is_err());
        // Settings of compression follow the rules, if there are any.
        let mut compressed = row.clone();
        compressed.rules[1].compression = "zstd:3".parse().ok();
        let with_settings = postcard::to_allocvec(&compressed).expect("encodes");
        assert_eq!(with_settings, [&bytes[..], &[2, 0, 2 << 5 | 3]].concat());
        let open = |bytes: &[u8]| {
            Untrusted::new(seal(Table::Rules, b"k", &Raw(bytes))).open::<RulesRow>(Table::Rules, b"k")
        };
        assert_eq!(open(&bytes), Ok(row));
        assert_eq!(open(&with_settings), Ok(compressed));
        // Too few settings, one that does not exist, and extra bytes.
        for rest in [&[1, 29][..], &[2, 0, 28], &[2, 0, 29, 0]] {
            assert!(open(&[&bytes[..], rest].concat()).is_err(), "{rest:?}");
        }
    }

    #[test]
    fn moved_files_have_a_variant_of_their_own() {
        let generations = Generations { now: 3, last: 4 };
        let layout = Layout::single(TargetId(3));
        let node = Node::Regular {
            layout,
            is_size_valid: true,
            touched: false,
            epoch: 9,
            generations,
            recorded: RecordedLens::NONE,
            is_inline: false,
        };
        let bytes = postcard::to_allocvec(&node).expect("encodes");
        assert_eq!(bytes, [4, 1, 0, 0, 1, 3, 0x80, 0x80, 0x40, 1, 0, 9, 3, 4]);
        assert_eq!(postcard::from_bytes::<Node>(&bytes), Ok(node));
        for other in [
            Node::Directory { entries: 5, default: Some(LayoutChoice::default()) },
            Node::Symlink { target: b"to".to_vec() },
            Node::Special { kind: NodeKind::Fifo, rdev: 7 },
        ] {
            let bytes = postcard::to_allocvec(&other).expect("encodes");
            assert_eq!(postcard::from_bytes::<Node>(&bytes), Ok(other));
        }
    }

    #[test]
    fn inline_files_have_a_variant_of_their_own() {
        let node = Node::Regular {
            layout: Layout::single(TargetId(3)),
            is_size_valid: true,
            touched: true,
            epoch: 9,
            generations: Generations { now: 0, last: 2 },
            recorded: RecordedLens::NONE,
            is_inline: true,
        };
        let bytes = postcard::to_allocvec(&node).expect("encodes");
        assert_eq!(bytes, [6, 1, 0, 0, 1, 3, 0x80, 0x80, 0x40, 1, 9, 2]);
        assert_eq!(postcard::from_bytes::<Node>(&bytes), Ok(node));
        let row = InlineRow { bytes: vec![7, 8] };
        let bytes = postcard::to_allocvec(&row).expect("encodes");
        assert_eq!(bytes, [2, 7, 8]);
        assert_eq!(postcard::from_bytes::<InlineRow>(&bytes), Ok(row));
    }

    #[test]
    fn files_with_recorded_lengths_have_a_variant_of_their_own() {
        for (generations, numbers) in
            [(Generations::default(), [0, 0]), (Generations { now: 3, last: 4 }, [3, 4])]
        {
            let layout = Layout::single(TargetId(3));
            let recorded = RecordedLens::new(vec![ByteLen(300)]);
            let node = Node::Regular {
                layout,
                is_size_valid: true,
                touched: true,
                epoch: 9,
                generations,
                recorded,
                is_inline: false,
            };
            let bytes = postcard::to_allocvec(&node).expect("encodes");
            let expected = [&[5, 1, 0, 0, 1, 3, 0x80, 0x80, 0x40, 1, 1, 9][..], &numbers, &[1, 0xac, 0x02]];
            assert_eq!(bytes, expected.concat());
            assert_eq!(postcard::from_bytes::<Node>(&bytes), Ok(node));
            for cut in 0..bytes.len() {
                assert!(postcard::from_bytes::<Node>(&bytes[..cut]).is_err(), "{cut}");
            }
        }
    }

    #[test]
    fn directory_defaults_of_all_versions_are_read() {
        let strips = |target| vec![(TargetId(target), ByteLen(64))];
        let tail = (FileOffset(300), strips(2));
        let choice = |tails: &[_]| LayoutChoice {
            strips: Some(strips(1)),
            tails: tails.to_vec(),
            ..LayoutChoice::default()
        };
        let node = |tails: &[_]| Node::Directory { entries: 5, default: Some(choice(tails)) };
        let before = [1, 5, 1, 0, 0, 0, 0, 1, 1, 1, 64]; // a directory, its entries, a default with one strip
        let with = |rest: &[u8]| [&before[..], rest].concat();
        // Before tails existed; when there was at most one; and now.
        let one = [1, 0xac, 0x02, 1, 2, 64];
        let two = [&[2][..], &one[1..], &[0xad, 0x02, 1, 2, 64]].concat();
        let later = (FileOffset(301), strips(2));
        for (bytes, expected) in [
            (before.to_vec(), node(&[])),
            (with(&[0]), node(&[])),
            (with(&one), node(std::slice::from_ref(&tail))),
            (with(&two), node(&[tail.clone(), later])),
        ] {
            assert_eq!(postcard::from_bytes::<Node>(&bytes).as_ref(), Ok(&expected), "{bytes:?}");
            let sealed = seal(Table::Inodes, b"k", &Raw(&bytes));
            let opened = Untrusted::new(sealed).open::<Node>(Table::Inodes, b"k");
            assert_eq!(opened, Ok(expected), "{bytes:?}");
        }
        // Truncated values and values with extra bytes are rejected.
        for bytes in [&before[..before.len() - 1], &with(&[0, 0]), &with(&[1, 7, 0, 0])] {
            let sealed = seal(Table::Inodes, b"k", &Raw(bytes));
            let opened = Untrusted::new(sealed).open::<Node>(Table::Inodes, b"k");
            assert!(opened.is_err(), "{bytes:?}: {opened:?}");
        }
    }

    /// Bytes that encode as themselves.
    struct Raw<'a>(&'a [u8]);

    impl Serialize for Raw<'_> {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            use serde::ser::SerializeTuple;
            let mut tuple = serializer.serialize_tuple(self.0.len())?;
            self.0.iter().try_for_each(|byte| tuple.serialize_element(byte))?;
            tuple.end()
        }
    }

    #[test]
    fn dentry_keys_sort_by_directory_then_by_name() {
        assert!(dentry_key(FileId(1), b"zz") < dentry_key(FileId(2), b"a"));
        assert!(dentry_key(FileId(2), b"a") < dentry_key(FileId(2), b"a\x01"));
        assert!(dentry_key(FileId(2), b"\xff") < dentry_key(FileId(256), b""));
    }
}
