//! The specification of a log, and the result of opening one.

use crate::datafile::DatafileKey;
use crate::emulate::Emulation;
use std::path::PathBuf;
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, TargetId};

/// Specification of a log to open.
#[derive(Clone, Debug)]
pub struct LogSpec {
    /// Directory on the SSD; must exist.
    pub path: PathBuf,
    /// Target that the log belongs to.
    pub target: TargetId,
    /// Name of the target's cluster.
    pub cluster: String,
    /// Directory of the target on its disk; a failed log keeps its journal there.
    pub target_path: PathBuf,
    /// Capacity for payloads in bytes, rounded down to whole segments, at least [`LogSpec::SEGMENTS_MIN`] of them. An
    /// existing log keeps its sizes as long as it holds dirty or lost bytes.
    pub size: ByteLen,
    /// Length of a segment in bytes.
    pub segment_len: ByteLen,
    /// Payload bytes per entry of the mapping: `size / entry_len` limits the number of entries, and so the mapping's
    /// memory. Usually [`LogSpec::ENTRY_LEN`].
    pub entry_len: ByteLen,
    /// True if the log may have the only copy of bytes, so that an empty directory in its place is an error. Bytes of a
    /// log that failed before are known, and become lost.
    pub must_exist: bool,
    /// Modeled SSD whose service times requests take; `None` for those of the real device.
    pub emulate: Option<Emulation>,
}

impl LogSpec {
    /// Default length of a segment.
    pub const SEGMENT_LEN: ByteLen = ByteLen::from_mib(4);
    /// Minimum length of a segment in bytes.
    pub const SEGMENT_LEN_MIN: u32 = 16 << 10;
    /// Minimum number of segments.
    pub const SEGMENTS_MIN: u64 = 8;
    /// Default number of payload bytes per entry of the mapping: 262,144 entries per GiB.
    pub const ENTRY_LEN: ByteLen = ByteLen::from_kib(4);
}

/// A range of acknowledged bytes that was lost with a log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Lost {
    /// Datafile of the range.
    pub key: DatafileKey,
    /// Lost bytes; reading them fails until they are overwritten.
    pub extent: ByteRange,
}

/// State of a log that was just opened.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Recovered {
    /// True when the log was formatted by this open.
    pub is_new: bool,
    /// True when the last shutdown of the log was not clean: the SSD may have lost its cache. Clean entries were dropped.
    pub after_power_loss: bool,
    /// Number of entries in the mapping.
    pub entries: u64,
    /// Bytes that the disk does not have.
    pub dirty: ByteLen,
    /// Bytes that the disk has too.
    pub clean: ByteLen,
    /// Number of unsealed puts whose payload had not reached the device; they are treated as never made.
    pub torn: u64,
    /// Lost ranges, including those that an earlier start found, until they are overwritten.
    pub lost: Vec<Lost>,
}
