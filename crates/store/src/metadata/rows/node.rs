//! How the kinds of inode are stored. Files that were never moved have the bytes that they had before files could be.

use super::{Generations, LayoutChoice, Node, NodeKind};
use serde::{Deserialize, Serialize, Serializer};
use weft_core::Layout;

/// As stored. Their order is the format's.
#[derive(Deserialize)]
pub(super) enum Stored {
    Regular { layout: Layout, settled: bool, touched: bool, epoch: u32 },
    Directory { entries: u64, default: Option<LayoutChoice> },
    Symlink { target: Vec<u8> },
    Special { kind: NodeKind, rdev: u64 },
    Moved { layout: Layout, settled: bool, touched: bool, epoch: u32, now: u16, last: u16 },
}

/// The same, borrowed.
#[derive(Serialize)]
enum Storing<'a> {
    Regular { layout: &'a Layout, settled: bool, touched: bool, epoch: u32 },
    Directory { entries: u64, default: &'a Option<LayoutChoice> },
    Symlink { target: &'a [u8] },
    Special { kind: NodeKind, rdev: u64 },
    Moved { layout: &'a Layout, settled: bool, touched: bool, epoch: u32, now: u16, last: u16 },
}

impl From<Stored> for Node {
    fn from(stored: Stored) -> Self {
        match stored {
            Stored::Regular { layout, settled, touched, epoch } => {
                Self::Regular { layout, settled, touched, epoch, generations: Generations::default() }
            }
            Stored::Moved { layout, settled, touched, epoch, now, last } => {
                Self::Regular { layout, settled, touched, epoch, generations: Generations { now, last } }
            }
            Stored::Directory { entries, default } => Self::Directory { entries, default },
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
            } => match last {
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
