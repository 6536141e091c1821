//! Opening, closing and reclaiming files.

use super::{Attr, HandleId};
use crate::capability::Capability;
use crate::session::WalkProof;
use serde::{Deserialize, Serialize};
use weft_core::{
    ByteLen, ClassLayout, Component, CompressionSetting, FileId, FileOffset, Layout, RecordedLens, Strip,
    TargetId, Timestamp,
};

/// Open flags.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct OpenFlags {
    /// Open for reading.
    pub read: bool,
    /// Open for writing.
    pub write: bool,
    /// Create the file if it is missing (O_CREAT).
    pub create: bool,
    /// Fail if the file exists (O_EXCL).
    pub exclusive: bool,
    /// Cut the file to length zero (O_TRUNC).
    pub truncate: bool,
    /// Fail unless it is a directory (O_DIRECTORY). With `create`: create a file without a name in that directory
    /// (O_TMPFILE).
    pub directory: bool,
    /// Open for reading in order to execute (execve). Only a kernel asks for this: who may execute a file need not be allowed to
    /// read it.
    pub execute: bool,
}

impl OpenFlags {
    /// Opens an existing file for reading.
    pub const READ: Self = Self {
        read: true,
        write: false,
        create: false,
        exclusive: false,
        truncate: false,
        directory: false,
        execute: false,
    };
}

/// Layout requested for a new file. The default of the directory, then that of the cluster, decides fields that are
/// `None`.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct LayoutSpec {
    /// Stripe size.
    pub stripe_size: Option<ByteLen>,
    /// Number of targets.
    pub stripe_count: Option<u32>,
    /// First target, as an index among the eligible ones.
    pub first: Option<u32>,
    /// Class that all targets must have.
    pub class: Option<String>,
    /// Exact targets and stripe sizes; overrides the other fields.
    pub strips: Option<Vec<(TargetId, ByteLen)>>,
    /// Targets and stripe sizes from each offset on, by ascending offsets; only with `strips`.
    pub tails: Vec<(FileOffset, Vec<(TargetId, ByteLen)>)>,
    /// Components by class; overrides the other fields but `strips`. They end where the space of the targets ends.
    pub by_class: Option<ClassLayout>,
    /// Compression of the datafiles; independent of the other fields.
    pub compression: Option<CompressionSetting>,
}

impl LayoutSpec {
    /// Requests exactly `layout`.
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

    /// The layout over targets that the request names one by one; `None` if it names none, or the layout is invalid.
    pub fn exact(&self) -> Option<Layout> {
        let tails = self.tails.iter().map(|(start, strips)| (*start, strips));
        let parts: Vec<_> = std::iter::once((FileOffset::ZERO, self.strips.as_ref()?)).chain(tails).collect();
        let ends = parts.iter().skip(1).map(|(start, _)| Some(*start)).chain([None]);
        let component = |(&(start, strips), end): (&(FileOffset, &Vec<_>), _)| Component {
            start,
            end,
            strips: strips.iter().map(|&(target, stripe_size)| Strip { target, stripe_size }).collect(),
        };
        Layout::from_components(parts.iter().zip(ends).map(component).collect()).ok()
    }
}

/// Open file, as the metadata service returns it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Opened {
    /// Attributes at the time of the open.
    pub attr: Attr,
    /// Layout of the datafiles; `None` for inodes without data.
    pub layout: Option<Layout>,
    /// Capability to read or write the datafiles.
    pub cap: Option<Capability>,
    /// Whether this request created the file.
    pub created: bool,
    /// Whether the client must cut all datafiles to length zero before any other operation.
    pub must_truncate: bool,
    /// Whether a kernel caches pages of this file: after each write, the client must send `Invalidate`.
    pub cached_elsewhere: bool,
    /// Whether a mount has the file open, so that programs may have mapped it: a client that is no mount sends `Invalidate`
    /// before it closes a file that it wrote.
    pub mapped_elsewhere: bool,
    /// Reply to `cache`: whether this client's kernel may cache pages, because no other session writes the file; to an
    /// I/O delegate: whether it may, because all sessions that have the file open are of its job. `WaitEvents` reports
    /// the end of this permission.
    pub may_cache: bool,
    /// Whether I/O delegates of another job may cache pages of the file: before any other operation, the client must
    /// send `AwaitRecall` until they have written these pages and have stopped caching.
    pub must_recall: bool,
    /// Epoch: changes whenever a session opens the file for writing or cuts it. A mount may keep pages that its kernel
    /// cached under the same epoch.
    pub epoch: u64,
    /// Recorded lengths of the datafiles. A datafile shorter than its record has lost bytes, unless the file was cut in
    /// the meantime ([`MetaRequest::Recorded`](super::MetaRequest::Recorded) returns the current record).
    pub recorded: RecordedLens,
    /// Whether the file's replica owns the bytes that it maps: before any other operation, the client must open it
    /// ([`MetaRequest::OpenReplica`](super::MetaRequest::OpenReplica)), and send requests for these bytes there.
    pub is_replica_used: bool,
    /// For a file whose bytes are in the metadata: offset behind the last byte that it may have there.
    pub inline_max: Option<ByteLen>,
    /// All bytes of such a file. They are leased: the client may use them for [`BYTE_LEASE`](super::BYTE_LEASE).
    #[serde(with = "serde_bytes")]
    pub bytes: Option<Vec<u8>>,
}

/// Ends of the writes to the datafiles of a file through one open.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct WrittenLens {
    /// File id in the names of the datafiles ([`FileId::generation`]). The service ignores lengths for another
    /// generation than the file has.
    pub data: FileId,
    /// One past the last byte written to each datafile.
    pub lens: RecordedLens,
}

/// Summary of a handle's writes, sent at its close.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct WriteSummary {
    /// Whether it wrote.
    pub wrote: bool,
    /// One past the last byte written.
    pub end: ByteLen,
    /// Number of bytes written, with overwritten bytes counted twice: an upper bound of the allocated space.
    pub bytes: ByteLen,
    /// Whether a write or truncation failed midway, so that only the datafiles know the size.
    pub unsure: bool,
    /// Time of the last write, by the clock of the writer's node.
    pub mtime: Timestamp,
    /// Ends of the writes in each datafile.
    pub written: WrittenLens,
    /// Whether all mounts that have the file open have been told of each write, with
    /// [`MetaRequest::Invalidate`](super::MetaRequest::Invalidate).
    pub reported: bool,
}

/// Open that a session reclaims after a reconnection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReclaimOpen {
    /// Handle number.
    pub handle: HandleId,
    /// File.
    pub file: FileId,
    /// Open flags; `create`, `exclusive` and `truncate` are ignored.
    pub flags: OpenFlags,
    /// Proof that the session reached the file; for [`MetaRequest::Adopt`](super::MetaRequest::Adopt) that of the other
    /// session.
    pub proof: Option<WalkProof>,
    /// Capability of the open. Shortly after a start of the metadata service, it proves that the file was open. At
    /// other times permission is checked again.
    pub cap: Option<Capability>,
    /// Whether a kernel or an I/O delegate caches pages through this open.
    pub caching: bool,
    /// Whether requests of this open go to the file's replica.
    pub redirected: Redirected,
}

/// Whether requests of an open file go to the file's replica.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub enum Redirected {
    /// They go to the file.
    #[default]
    No,
    /// Requests for mapped bytes go to the replica with this data.
    Yes(FileId),
    /// There were no requests yet: the client still opens the replica, or asks not to use it (`BypassReplica`).
    Undecided,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exact_request_gives_its_layout() {
        let head = [(TargetId(2), ByteLen(64)), (TargetId(3), ByteLen(64))];
        let layout = Layout::two_part(&head, FileOffset(4096), &[TargetId(0)]);
        let layout = layout.expect("a layout");
        assert_eq!(LayoutSpec::exactly(&layout).exact(), Some(layout));
        assert_eq!(LayoutSpec::default().exact(), None);
    }
}
