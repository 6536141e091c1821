//! Files as JSON.

use super::bytes;
use super::names::{self, Names};
use serde_json::{Value, json};
use weft_client::LastKnown;
use weft_core::Timestamp;

/// Returns the attributes of a file under the path `shown`. Bytes of names that are not UTF-8 are replaced.
pub fn attributes(shown: &str, known: &LastKnown, names: &mut Names) -> Value {
    let attr = &known.attr;
    json!({
        "path": text(shown),
        "type": names::kind(attr.kind),
        "size": attr.size.0,
        "size_is_exact": known.error.is_none(),
        "stored": attr.blocks_512 * 512,
        "mode": format!("{:04o}", attr.mode & 0o7777),
        "links": attr.nlink,
        "inode": attr.file.0,
        "uid": attr.uid,
        "user": names.user(attr.uid),
        "gid": attr.gid,
        "group": names.group(attr.gid),
        "atime_ns": nanos(attr.atime),
        "mtime_ns": nanos(attr.mtime),
        "ctime_ns": nanos(attr.ctime),
    })
}

/// Returns a path as text.
pub fn text(path: &str) -> String {
    String::from_utf8_lossy(&bytes::bytes(path)).into_owned()
}

/// Returns the nanoseconds since 1970; the largest number for times that do not fit.
fn nanos(at: Timestamp) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX)
}
