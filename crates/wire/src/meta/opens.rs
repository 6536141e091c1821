//! Opens: how, what is handed out, what is told at the close and after a reconnection.

use super::{Attr, HandleId};
use crate::capability::Capability;
use crate::session::WalkProof;
use serde::{Deserialize, Serialize};
use weft_core::{
    ByteLen, ClassLayout, Component, FileId, FileOffset, Layout, RecordedLens, TargetId, Timestamp,
};

/// How to open.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct OpenFlags {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Make it when missing (O_CREAT).
    pub create: bool,
    /// It must be missing (O_EXCL).
    pub exclusive: bool,
    /// Cut to nothing (O_TRUNC).
    pub truncate: bool,
    /// Must be a directory (O_DIRECTORY).
    pub directory: bool,
}

impl OpenFlags {
    /// For reading what is there.
    pub const READ: Self =
        Self { read: true, write: false, create: false, exclusive: false, truncate: false, directory: false };
}

/// What a user wants of the layout of a new file; what is `None` is decided by the directory's default, then by
/// the cluster's.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct LayoutSpec {
    /// Stripe size.
    pub stripe_size: Option<ByteLen>,
    /// How many targets.
    pub stripe_count: Option<u32>,
    /// First target, by index among those that fit.
    pub first: Option<u32>,
    /// Only targets of this class.
    pub class: Option<String>,
    /// Exactly these targets and stripe sizes (overrides the others).
    pub strips: Option<Vec<(TargetId, ByteLen)>>,
    /// From each offset on, these targets and stripe sizes instead, by rising offsets; only with `strips`.
    pub tails: Vec<(FileOffset, Vec<(TargetId, ByteLen)>)>,
    /// Or parts by class (overrides the others but `strips`). They are cut where the room of targets ends.
    pub by_class: Option<ClassLayout>,
}

impl LayoutSpec {
    /// Exactly this layout.
    pub fn exactly(layout: &Layout) -> Self {
        let strips = |component: &Component| {
            component.strips.iter().map(|strip| (strip.target, strip.stripe_size)).collect()
        };
        let mut components = layout.components().iter();
        let first = components.next().expect("a layout has one component at least");
        Self {
            strips: Some(strips(first)),
            tails: components.map(|component| (component.start, strips(component))).collect(),
            ..Self::default()
        }
    }
}

/// An open file, as the metadata service hands it out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Opened {
    /// Attributes at the time.
    pub attr: Attr,
    /// Where the datafiles are; `None` for what has none.
    pub layout: Option<Layout>,
    /// The right to read or write them.
    pub cap: Option<Capability>,
    /// Whether the file was made by this request.
    pub created: bool,
    /// The client must now cut all datafiles to nothing, before anything else.
    pub must_truncate: bool,
    /// A kernel caches pages of this file: after each write the client must send `Invalidate`.
    pub cached_elsewhere: bool,
    /// The answer to `cache`: this client's kernel may cache pages of the file, because no other session writes it;
    /// `WaitEvents` tells when that ends.
    pub may_cache: bool,
    /// Changes whenever anybody opens the file for writing or cuts it, as in [`Unsettled`](super::Unsettled): a mount
    /// whose kernel kept pages under the same epoch may go on using them.
    pub epoch: u64,
    /// Recorded lengths of the datafiles: one that is shorter than its record has lost bytes, unless the file was cut
    /// meanwhile ([`MetaRequest::Recorded`](super::MetaRequest::Recorded) tells).
    pub recorded: RecordedLens,
}

/// Ends of what was written to the datafiles of a file through one open.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct WrittenLens {
    /// The name of the datafiles ([`FileId::generation`]): of another generation than the file has they say nothing.
    pub data: FileId,
    /// One past the last byte written to each.
    pub lens: RecordedLens,
}

/// What a writer says of its writes when it closes.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct WriteSummary {
    /// Whether it wrote anything.
    pub wrote: bool,
    /// One past the last byte that it wrote.
    pub end: ByteLen,
    /// How many bytes it wrote, those written twice counted twice: an upper bound of the room taken.
    pub bytes: ByteLen,
    /// A write or truncation failed midway, so that only the datafiles know what is there.
    pub unsure: bool,
    /// Its time of the last write, on the clock of the writer's node.
    pub mtime: Timestamp,
    /// Where its writes ended in each datafile.
    pub written: WrittenLens,
}

/// An open of a session, told again after a reconnection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReclaimOpen {
    /// Its number.
    pub handle: HandleId,
    /// Of this file.
    pub file: FileId,
    /// How it was opened; `create`, `exclusive` and `truncate` are not looked at.
    pub flags: OpenFlags,
    /// That the session reached the file. For [`MetaRequest::Adopt`](super::MetaRequest::Adopt) it is the other session's.
    pub proof: Option<WalkProof>,
    /// The capability that was given with it. Soon after a start of the metadata service it proves that the file was open;
    /// at other times permission is checked again.
    pub cap: Option<Capability>,
    /// A kernel keeps pages for it.
    pub caching: bool,
}
