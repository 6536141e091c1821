//! The rows of the tables. Their encoding is postcard's, sealed by [`seal`](super::seal); a changed field is a new
//! version of the formats.
//!
//! | table | key | row |
//! | --- | --- | --- |
//! | counters | `allocator`, `start`, `restored`, `registry` | [`AllocatorRow`], [`StartRow`], [`RestoredRow`], nothing |
//! | inodes | file id, 8 bytes big-endian | [`Inode`] |
//! | dentries | directory's file id, then the name's bytes | [`DentryRow`] |
//! | xattrs | file id, then the name's bytes | bytes |
//! | orphans | file id | nothing |
//! | reap | file id with the datafiles' generation | [`ReapRow`] |
//! | replies | session (16 bytes big-endian), slot (4) | [`ReplyRow`] |
//! | sessions | session | nothing |
//! | rules | directory's file id | [`RulesRow`] |
//! | rooms | target, 4 bytes big-endian | [`RoomRow`] |
//! | moves | file id | [`MoveRow`] |
//! | targets | target, 4 bytes big-endian | [`TargetRow`] |
//! | starts | number of the start, 4 bytes big-endian | [`IdsRow`] |
//! | owners | user id, 4 bytes big-endian | [`OwnerRow`] |
//! | revoked | id of a key, 8 bytes big-endian | [`RevokedRow`] |
//!
//! The last seven tables are missing in databases of before there were rules, moves, identities of targets, accounts of
//! inodes and ids of keys, which is the same as empty. The row `registry` of the counters is there once the table of targets
//! has been begun.

mod node;

use serde::{Deserialize, Serialize};
use weft_core::{
    AttachToken, ByteLen, ClassLayout, FileId, FileOffset, Integrity, Layout, Pattern, RecordedLens,
    TargetId, TargetState, TargetUuid, Timestamp,
};

/// What an inode is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NodeKind {
    /// Striped bytes.
    Regular,
    /// Names.
    Directory,
    /// A path.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket's name.
    Socket,
    /// A character device's name.
    CharDevice,
    /// A block device's name.
    BlockDevice,
}

/// What a directory wants of the layouts of files made in it; `None` leaves a choice to the cluster.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct LayoutChoice {
    /// Stripe size.
    pub stripe_size: Option<ByteLen>,
    /// How many targets.
    pub stripe_count: Option<u32>,
    /// First target, by index among those that fit.
    pub first: Option<u32>,
    /// Only targets of this class.
    pub class: Option<String>,
    /// Exactly these.
    pub strips: Option<Vec<(TargetId, ByteLen)>>,
    /// From each offset on, these instead. One of them has the same bytes as the optional one that there was before.
    pub tails: Vec<(FileOffset, Vec<(TargetId, ByteLen)>)>,
}

/// What only some kinds of inode have.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(from = "node::Stored")]
pub enum Node {
    /// Striped bytes.
    Regular {
        /// Where they are.
        layout: Layout,
        /// Whether size, room and mtime of the inode are the truth; otherwise the datafiles know.
        settled: bool,
        /// Whether a datafile may exist.
        touched: bool,
        /// Grows when a writer opens or the file is cut; wraps.
        epoch: u32,
        /// Which datafiles it has.
        generations: Generations,
        /// Lower bounds for the lengths of the datafiles; empty in rows of earlier versions.
        recorded: RecordedLens,
    },
    /// Names.
    Directory {
        /// How many, without `.` and `..`.
        entries: u64,
        /// For new files.
        default: Option<LayoutChoice>,
    },
    /// A path.
    Symlink {
        /// Bytes of it.
        target: Vec<u8>,
    },
    /// A name for the kernel.
    Special {
        /// One of the last four kinds.
        kind: NodeKind,
        /// Device number.
        rdev: u64,
    },
}

/// Which datafiles a file has, of those that it has had; see [`FileId::generation`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Generations {
    /// These.
    pub now: u16,
    /// The last that were named: those after it have never been on any target.
    pub last: u16,
}

/// An inode.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Inode {
    /// Permission, set-id and sticky bits, and above them the [setting of checksums](Inode::integrity).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that lead to it; for a directory 2 and one for each directory in it.
    pub nlink: u32,
    /// Length as last known.
    pub size: ByteLen,
    /// Room as last known, in units of 512 bytes.
    pub blocks_512: u64,
    /// Last read, as far as kept.
    pub atime: Timestamp,
    /// Last change of contents as last known.
    pub mtime: Timestamp,
    /// Last change of attributes.
    pub ctime: Timestamp,
    /// When mtime was last set by hand.
    pub mtime_set_at: Timestamp,
    /// The directory of a directory; for others one that has or had a name of it.
    pub parent: FileId,
    /// The name there.
    #[serde(with = "serde_bytes_vec")]
    pub name: Vec<u8>,
    /// How many extended attributes it has.
    pub xattrs: u32,
    /// What it is.
    pub node: Node,
}

/// Bytes as bytes and not as a sequence of numbers; the encoding is the same, the code faster.
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
/// Both of them.
pub const INTEGRITY_BITS: u32 = INTEGRITY_OFF | INTEGRITY_CRC32C;

impl Inode {
    /// Checksums at rest of a file, or of new files of a directory; `None` leaves it to the targets.
    pub fn integrity(&self) -> Option<Integrity> {
        match self.mode & INTEGRITY_BITS {
            0 => None,
            INTEGRITY_OFF => Some(Integrity::Off),
            _ => Some(Integrity::Crc32c),
        }
    }

    /// Sets [`integrity`](Self::integrity).
    pub fn set_integrity(&mut self, integrity: Option<Integrity>) {
        let bits = match integrity {
            None => 0,
            Some(Integrity::Off) => INTEGRITY_OFF,
            Some(Integrity::Crc32c) => INTEGRITY_CRC32C,
        };
        self.mode = (self.mode & !INTEGRITY_BITS) | bits;
    }

    /// What it is.
    pub fn kind(&self) -> NodeKind {
        match &self.node {
            Node::Regular { .. } => NodeKind::Regular,
            Node::Directory { .. } => NodeKind::Directory,
            Node::Symlink { .. } => NodeKind::Symlink,
            Node::Special { kind, .. } => *kind,
        }
    }

    /// The name of its datafiles, if `file` is its own.
    pub fn data(&self, file: FileId) -> FileId {
        match &self.node {
            Node::Regular { generations, .. } => file.of_generation(generations.now),
            _ => file,
        }
    }

    /// Whether it holds names.
    pub fn is_dir(&self) -> bool {
        matches!(self.node, Node::Directory { .. })
    }
}

/// A name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DentryRow {
    /// Its inode.
    pub file: FileId,
    /// What that is.
    pub kind: NodeKind,
}

/// A file whose datafiles are to be removed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ReapRow {
    /// Where they are.
    pub layout: Layout,
}

/// The rules of a directory.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct RulesRow {
    /// The first that fits decides.
    pub rules: Vec<RuleRow>,
}

/// A rule about layouts of files.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RuleRow {
    /// Which files below the directory.
    pub pattern: Pattern,
    /// Their layout; what it leaves open is decided by the default of a file's directory.
    pub choice: LayoutChoice,
    /// Or one by class.
    pub by_class: Option<ClassLayout>,
}

/// The account of a target with limited room. There is one for each of them, and for no other.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct RoomRow {
    /// Bytes that parts with an end promise there, of all files that are there or are still to be removed.
    pub promised: ByteLen,
}

/// The account of a user: every user who owns an inode has one, and nobody else. A database without any is of before there
/// were accounts; it is counted at the next start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct OwnerRow {
    /// Inodes that the user owns, those without a name that are still open among them.
    pub inodes: u64,
}

/// A move of a file to another layout, under way or left.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MoveRow {
    /// Generation of the datafiles that are being filled.
    pub generation: u16,
    /// Where they are.
    pub layout: Layout,
    /// The session that is at it.
    pub session: u128,
    /// And the number under which it has the file open for that.
    pub handle: u64,
    /// All bytes below this are there, and safe.
    pub copied: ByteLen,
    /// The inode's epoch, if what was copied is what the file has for as long as that is its epoch.
    pub epoch: Option<u32>,
}

/// The last answer on a slot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReplyRow {
    /// Of the request with this number.
    pub seq: u64,
    /// As the service encoded it.
    #[serde(with = "serde_bytes_vec")]
    pub reply: Vec<u8>,
}

/// The allocator of file ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AllocatorRow {
    /// The next file id; those below are never used again.
    pub next: FileId,
    /// Inodes in use.
    pub inodes: u64,
}

/// The record of starts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct StartRow {
    /// How often the service has started.
    pub incarnation: u32,
    /// Whether it last ended in order.
    pub clean: bool,
}

/// The record of the last restore from a dump; missing in a database that was never restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RestoredRow {
    /// When the dump was made.
    pub dumped: Timestamp,
    /// When it was restored.
    pub restored: Timestamp,
}

/// Key of [`AllocatorRow`] in counters.
pub const ALLOCATOR_KEY: &[u8] = b"allocator";
/// Key of [`StartRow`] in counters.
pub const START_KEY: &[u8] = b"start";
/// Key of [`RestoredRow`] in counters.
pub const RESTORED_KEY: &[u8] = b"restored";

/// A target on record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TargetRow {
    /// Its disk. [`TargetUuid::NONE`]: none so far, or one in a format without identities. While the target is joining,
    /// the disk that is being replaced.
    pub uuid: TargetUuid,
    /// Its state.
    pub state: TargetState,
    /// The latest attach.
    pub token: AttachToken,
    /// The next attach is accepted though target and record do not fit.
    pub accepts: bool,
}

/// The file ids that the service gave out between a start and the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct IdsRow {
    /// The first.
    pub first: FileId,
    /// The one after the last; of the latest start the allocator says it.
    pub end: FileId,
    /// Wall clock at the start, in seconds since 1970.
    pub start_s: u64,
}

/// A key that is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RevokedRow {
    /// Wall clock when it was revoked, in seconds since 1970.
    pub at_s: u64,
    /// The latest generation of the root secret at that time: the key is of none after it.
    pub generation: u32,
}

/// Key of a file in inodes, orphans and reap.
pub fn file_key(file: FileId) -> [u8; 8] {
    file.0.to_be_bytes()
}

fn named_key(file: FileId, name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(8 + name.len());
    key.extend_from_slice(&file_key(file));
    key.extend_from_slice(name);
    key
}

/// Key of a name in a directory.
pub fn dentry_key(dir: FileId, name: &[u8]) -> Vec<u8> {
    named_key(dir, name)
}

/// Key of an extended attribute.
pub fn xattr_key(file: FileId, name: &str) -> Vec<u8> {
    named_key(file, name.as_bytes())
}

/// Key of a slot in replies.
pub fn reply_key(session: u128, slot: u32) -> [u8; 20] {
    let mut key = [0; 20];
    key[..16].copy_from_slice(&session.to_be_bytes());
    key[16..].copy_from_slice(&slot.to_be_bytes());
    key
}

/// Key of a target.
pub fn target_key(target: TargetId) -> [u8; 4] {
    target.0.to_be_bytes()
}

/// Key of a user.
pub fn owner_key(uid: u32) -> [u8; 4] {
    uid.to_be_bytes()
}

/// Key of a revoked key.
pub fn revoked_key(key: u64) -> [u8; 8] {
    key.to_be_bytes()
}

/// Key of a start.
pub fn start_key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Key of a session.
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
                settled: true,
                touched: false,
                epoch: 9,
                generations: Generations::default(),
                recorded: RecordedLens::NONE,
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
            1, 0, 9, // settled, touched, epoch
        ];
        assert_eq!(bytes, expected);
        assert_eq!(postcard::from_bytes::<Inode>(&bytes).as_ref(), Ok(&inode));
        // The setting of checksums lies in the bits above the permissions; rows without them have none.
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
        assert_eq!(postcard::from_bytes::<RulesRow>(&bytes), Ok(row));
        // A pattern or a layout that cannot be is not read.
        let mut bad = bytes.clone();
        let brace = bytes.iter().position(|byte| *byte == b'{').expect("in the second");
        bad[brace + 1] = b'm';
        assert!(postcard::from_bytes::<RulesRow>(&bad).is_err());
    }

    #[test]
    fn a_file_that_was_moved_has_bytes_of_its_own_kind() {
        let generations = Generations { now: 3, last: 4 };
        let layout = Layout::single(TargetId(3));
        let node = Node::Regular {
            layout,
            settled: true,
            touched: false,
            epoch: 9,
            generations,
            recorded: RecordedLens::NONE,
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
    fn a_file_with_recorded_lengths_has_bytes_of_its_own_kind() {
        for (generations, numbers) in
            [(Generations::default(), [0, 0]), (Generations { now: 3, last: 4 }, [3, 4])]
        {
            let layout = Layout::single(TargetId(3));
            let recorded = RecordedLens::new(vec![ByteLen(300)]);
            let node =
                Node::Regular { layout, settled: true, touched: true, epoch: 9, generations, recorded };
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
    fn defaults_of_directories_of_all_times_are_read() {
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
        // Of before there were tails, of when there was one or none, and of now.
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
        // What ends earlier is none of them, nor what goes on.
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
    fn names_of_a_directory_sort_by_their_bytes_behind_those_of_lower_directories() {
        assert!(dentry_key(FileId(1), b"zz") < dentry_key(FileId(2), b"a"));
        assert!(dentry_key(FileId(2), b"a") < dentry_key(FileId(2), b"a\x01"));
        assert!(dentry_key(FileId(2), b"\xff") < dentry_key(FileId(256), b""));
    }
}
