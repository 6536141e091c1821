//! Storage encoding of inode kinds, compatible with earlier versions.
//!
//! | node | variant |
//! | --- | --- |
//! | regular file, never moved, without recorded lengths | `Regular` |
//! | regular file, moved, without recorded lengths | `Moved` |
//! | regular file with recorded lengths | `Recorded` |
//! | regular file whose bytes are inline | `Inline` |
//!
//! The first versions wrote a directory's default without tails. It is still decoded.

use super::{Generations, LayoutChoice, Node, NodeKind};
use serde::{Deserialize, Serialize, Serializer};
use weft_core::{ByteLen, FileOffset, Layout, RecordedLens, TargetId};

/// Decoded form. The order of variants is part of the format.
#[derive(Deserialize)]
pub(super) enum Stored {
    Regular {
        layout: Layout,
        is_size_valid: bool,
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
        is_size_valid: bool,
        touched: bool,
        epoch: u32,
        now: u16,
        last: u16,
    },
    Recorded {
        layout: Layout,
        is_size_valid: bool,
        touched: bool,
        epoch: u32,
        now: u16,
        last: u16,
        recorded: RecordedLens,
    },
    Inline {
        layout: Layout,
        touched: bool,
        epoch: u32,
        last: u16,
    },
}

/// A directory's default, the last field of its inode. The first versions wrote it without tails, so it ends early.
#[derive(Deserialize)]
pub(super) struct StoredChoice {
    stripe_size: Option<ByteLen>,
    stripe_count: Option<u32>,
    first: Option<u32>,
    class: Option<String>,
    strips: Option<Vec<(TargetId, ByteLen)>>,
    #[serde(deserialize_with = "super::or_end")]
    tails: Tails,
}

/// Tails as in [`LayoutChoice`].
type Tails = Vec<(FileOffset, Vec<(TargetId, ByteLen)>)>;

impl From<StoredChoice> for LayoutChoice {
    fn from(stored: StoredChoice) -> Self {
        let StoredChoice { stripe_size, stripe_count, first, class, strips, tails } = stored;
        Self { stripe_size, stripe_count, first, class, strips, tails }
    }
}

/// Encoded form, borrowed. It has the same variants as [`Stored`].
#[derive(Serialize)]
enum Storing<'a> {
    Regular {
        layout: &'a Layout,
        is_size_valid: bool,
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
        is_size_valid: bool,
        touched: bool,
        epoch: u32,
        now: u16,
        last: u16,
    },
    Recorded {
        layout: &'a Layout,
        is_size_valid: bool,
        touched: bool,
        epoch: u32,
        now: u16,
        last: u16,
        recorded: &'a RecordedLens,
    },
    Inline {
        layout: &'a Layout,
        touched: bool,
        epoch: u32,
        last: u16,
    },
}

impl From<Stored> for Node {
    fn from(stored: Stored) -> Self {
        let regular = |layout, is_size_valid, touched, epoch, (now, last), recorded| {
            let generations = Generations { now, last };
            Self::Regular { layout, is_size_valid, touched, epoch, generations, recorded, is_inline: false }
        };
        match stored {
            Stored::Regular { layout, is_size_valid, touched, epoch } => {
                regular(layout, is_size_valid, touched, epoch, (0, 0), RecordedLens::NONE)
            }
            Stored::Moved { layout, is_size_valid, touched, epoch, now, last } => {
                regular(layout, is_size_valid, touched, epoch, (now, last), RecordedLens::NONE)
            }
            Stored::Recorded { layout, is_size_valid, touched, epoch, now, last, recorded } => {
                regular(layout, is_size_valid, touched, epoch, (now, last), recorded)
            }
            Stored::Inline { layout, touched, epoch, last } => Self::Regular {
                layout,
                is_size_valid: true,
                touched,
                epoch,
                generations: Generations { now: 0, last },
                recorded: RecordedLens::NONE,
                is_inline: true,
            },
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
                touched,
                epoch,
                generations: Generations { last, .. },
                is_inline: true,
                ..
            } => Storing::Inline { layout, touched, epoch, last },
            &Self::Regular {
                ref layout,
                is_size_valid,
                touched,
                epoch,
                generations: Generations { now, last },
                ref recorded,
                is_inline: false,
            } => match last {
                _ if !recorded.is_empty() => {
                    Storing::Recorded { layout, is_size_valid, touched, epoch, now, last, recorded }
                }
                0 => Storing::Regular { layout, is_size_valid, touched, epoch },
                _ => Storing::Moved { layout, is_size_valid, touched, epoch, now, last },
            },
            Self::Directory { entries, default } => Storing::Directory { entries: *entries, default },
            Self::Symlink { target } => Storing::Symlink { target },
            Self::Special { kind, rdev } => Storing::Special { kind: *kind, rdev: *rdev },
        };
        storing.serialize(serializer)
    }
}
