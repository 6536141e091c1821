//! Changes that a data server reports for a watch ([`DataRequest::Watch`](crate::data::DataRequest::Watch)).

use crate::bounded;
use crate::data::DatafileId;
use serde::{Deserialize, Serialize};

/// Maximum number of datafiles in one [`DataRequest::Watch`](crate::data::DataRequest::Watch).
pub const WATCHED_MAX: usize = 1024;

/// Maximum number of ranges in one [`DataReply::Changes`](crate::data::DataReply::Changes), over all its datafiles.
/// Above it, the server merges ranges.
pub const CHANGES_MAX: usize = 16 << 10;

/// Changed ranges of a datafile. They may include unchanged neighboring bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Change {
    /// Changed datafile.
    pub datafile: DatafileId,
    /// First byte, and one past the last byte, of each range; `u64::MAX` stands for the end of the datafile.
    #[serde(deserialize_with = "bounded::vec::<_, _, CHANGES_MAX>")]
    pub ranges: Vec<(u64, u64)>,
}
