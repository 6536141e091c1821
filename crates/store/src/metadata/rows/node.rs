//! How the kinds of inode are stored. Files that were never moved have the bytes that they had before files could be, as
//! have files without recorded lengths of datafiles, and defaults of directories are read, too, that were set before there were tails.

use super::{Generations, LayoutChoice, Node, NodeKind};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use weft_core::{ByteLen, FileOffset, Layout, RecordedLens, TargetId};

/// As stored. Their order is the format's.
#[derive(Deserialize)]
pub(super) enum Stored {
    Regular {
        layout: Layout,
        settled: bool,
        touched: bool,
        epoch: u32,
    },
    Directory {
        entries: u64,
        default: Option<StoredChoice>,
    },
    Symlink {
        target: Vec<u8>,
    },
    Special {
        kind: NodeKind,
        rdev: u64,
    },
    Moved {
        layout: Layout,
        settled: bool,
        touched: bool,
        epoch: u32,
        now: u16,
        last: u16,
    },
    Recorded {
        layout: Layout,
        settled: bool,
        touched: bool,
        epoch: u32,
        now: u16,
        last: u16,
        recorded: RecordedLens,
    },
}

/// A directory's default, the last thing in its inode: one of before there were tails ends before them.
#[derive(Deserialize)]
pub(super) struct StoredChoice {
    stripe_size: Option<ByteLen>,
    stripe_count: Option<u32>,
    first: Option<u32>,
    class: Option<String>,
    strips: Option<Vec<(TargetId, ByteLen)>>,
    #[serde(deserialize_with = "tails_or_end")]
    tails: Tails,
}

/// As [`LayoutChoice`] has them.
type Tails = Vec<(FileOffset, Vec<(TargetId, ByteLen)>)>;

/// Tails, or none where the value ends. A value's checksum is looked at before it is decoded, and no byte of it may be left
/// over: what fails here is no damage but the end.
fn tails_or_end<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Tails, D::Error> {
    Ok(Tails::deserialize(deserializer).unwrap_or_default())
}

impl From<StoredChoice> for LayoutChoice {
    fn from(stored: StoredChoice) -> Self {
        let StoredChoice { stripe_size, stripe_count, first, class, strips, tails } = stored;
        Self { stripe_size, stripe_count, first, class, strips, tails }
    }
}

/// The same, borrowed.
#[derive(Serialize)]
enum Storing<'a> {
    Regular {
        layout: &'a Layout,
        settled: bool,
        touched: bool,
        epoch: u32,
    },
    Directory {
        entries: u64,
        default: &'a Option<LayoutChoice>,
    },
    Symlink {
        target: &'a [u8],
    },
    Special {
        kind: NodeKind,
        rdev: u64,
    },
    Moved {
        layout: &'a Layout,
        settled: bool,
        touched: bool,
        epoch: u32,
        now: u16,
        last: u16,
    },
    Recorded {
        layout: &'a Layout,
        settled: bool,
        touched: bool,
        epoch: u32,
        now: u16,
        last: u16,
        recorded: &'a RecordedLens,
    },
}

impl From<Stored> for Node {
    fn from(stored: Stored) -> Self {
        let regular = |layout, settled, touched, epoch, (now, last), recorded| {
            let generations = Generations { now, last };
            Self::Regular { layout, settled, touched, epoch, generations, recorded }
        };
        match stored {
            Stored::Regular { layout, settled, touched, epoch } => {
                regular(layout, settled, touched, epoch, (0, 0), RecordedLens::NONE)
            }
            Stored::Moved { layout, settled, touched, epoch, now, last } => {
                regular(layout, settled, touched, epoch, (now, last), RecordedLens::NONE)
            }
            Stored::Recorded { layout, settled, touched, epoch, now, last, recorded } => {
                regular(layout, settled, touched, epoch, (now, last), recorded)
            }
            Stored::Directory { entries, default } => {
                Self::Directory { entries, default: default.map(LayoutChoice::from) }
            }
            Stored::Symlink { target } => Self::Symlink { target },
            Stored::Special { kind, rdev } => Self::Special { kind, rdev },
        }
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let storing = match self {
            &Self::Regular {
                ref layout,
                settled,
                touched,
                epoch,
                generations: Generations { now, last },
                ref recorded,
            } => match last {
                _ if !recorded.is_empty() => {
                    Storing::Recorded { layout, settled, touched, epoch, now, last, recorded }
                }
                0 => Storing::Regular { layout, settled, touched, epoch },
                _ => Storing::Moved { layout, settled, touched, epoch, now, last },
            },
            Self::Directory { entries, default } => Storing::Directory { entries: *entries, default },
            Self::Symlink { target } => Storing::Symlink { target },
            Self::Special { kind, rdev } => Storing::Special { kind: *kind, rdev: *rdev },
        };
        storing.serialize(serializer)
    }
}
