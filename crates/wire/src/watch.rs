//! What a data server tells of a watch ([`DataRequest::Watch`](crate::data::DataRequest::Watch)).

use crate::bounded;
use crate::data::DatafileId;
use serde::{Deserialize, Serialize};

/// The most datafiles in one [`DataRequest::Watch`](crate::data::DataRequest::Watch).
pub const WATCHED_MAX: usize = 1024;

/// The most ranges in one [`DataReply::Changes`](crate::data::DataReply::Changes), over all its datafiles: more are told
/// less finely.
pub const CHANGES_MAX: usize = 16 << 10;

/// Bytes of a datafile that were changed, and perhaps some beside them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Change {
    /// Which datafile.
    pub datafile: DatafileId,
    /// First byte, and one past the last (`u64::MAX` where everything behind the first was changed).
    #[serde(deserialize_with = "bounded::vec::<_, _, CHANGES_MAX>")]
    pub ranges: Vec<(u64, u64)>,
}
