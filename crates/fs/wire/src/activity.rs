//! Activity of clients, users and files on one server, for `weft top`.
//!
//! All counters grow from the start of their row on, so that several observers do not disturb one another. An observer
//! computes rates from two replies of the same incarnation of a server.

use crate::bounded;
use crate::hello::Process;
use crate::status::ServerStatus;
use serde::{Deserialize, Serialize};
use weft_core::{ByteLen, FileId, Nanos, TargetId};

/// Maximum number of clients in one reply, and in the memory of a server.
pub const CLIENTS_MAX: usize = 1024;
/// Maximum number of users in one reply, and in the memory of a server.
pub const USERS_MAX: usize = 1024;
/// Maximum number of (file, user) pairs in one reply, and in the memory of a server.
pub const FILES_MAX: usize = 2048;
/// Maximum number of classes in a [`LatencyCounts`].
pub const LATENCY_CLASSES_MAX: usize = 64;
/// Maximum number of kinds of requests with latencies.
pub const OPERATIONS_MAX: usize = 16;

/// Requests that a server has completed, and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Work {
    /// Reads of datafiles by messages.
    pub reads: u64,
    /// Writes of datafiles by messages.
    pub writes: u64,
    /// Other requests about datafiles, such as syncs.
    pub others: u64,
    /// Requests to the metadata service that do not wait for other clients.
    pub metadata: u64,
    /// Bytes read by messages.
    pub bytes_read: ByteLen,
    /// Bytes written by messages.
    pub bytes_written: ByteLen,
    /// Sum of the times from the arrival of a request to its reply.
    pub time: Nanos,
}

impl Work {
    /// Number of requests of all kinds.
    pub fn requests(&self) -> u64 {
        self.reads + self.writes + self.others + self.metadata
    }

    /// Adds other work.
    pub fn add(&mut self, other: &Self) {
        self.combine(other, u64::saturating_add);
    }

    /// Subtracts earlier work; what would be negative becomes 0.
    pub fn subtract(&mut self, earlier: &Self) {
        self.combine(earlier, u64::saturating_sub);
    }

    fn combine(&mut self, other: &Self, with: impl Fn(u64, u64) -> u64) {
        self.reads = with(self.reads, other.reads);
        self.writes = with(self.writes, other.writes);
        self.others = with(self.others, other.others);
        self.metadata = with(self.metadata, other.metadata);
        self.bytes_read.0 = with(self.bytes_read.0, other.bytes_read.0);
        self.bytes_written.0 = with(self.bytes_written.0, other.bytes_written.0);
        self.time.0 = with(self.time.0, other.time.0);
    }
}

/// Activity of one client process of one user.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClientActivity {
    /// Anonymous number of the client process, the same on every server.
    pub client: u64,
    /// User that the peer has proven. A mount counts as the user who runs it.
    pub uid: u32,
    /// Time at which the row began, by the clock of [`Activity::now`].
    pub since: Nanos,
    /// The process as the client describes it. On the server's host, the kernel names the process id.
    pub process: Process,
    /// Network address of the peer; empty for a process on the server's host.
    pub address: String,
    /// Open connections.
    pub connections: u32,
    /// Leased descriptors. Their requests do not reach the server.
    pub leases: u32,
    /// Requests of the client.
    pub work: Work,
}

/// Activity of one user.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UserActivity {
    /// User.
    pub uid: u32,
    /// Time at which the row began.
    pub since: Nanos,
    /// Leased descriptors.
    pub leases: u32,
    /// Requests of the user.
    pub work: Work,
}

/// Activity of one user on one file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileActivity {
    /// Inode of the file.
    pub file: FileId,
    /// User.
    pub uid: u32,
    /// Time at which the row began.
    pub since: Nanos,
    /// Leased descriptors of its datafiles.
    pub leases: u32,
    /// Requests about the file.
    pub work: Work,
}

/// Latencies of one kind of request since the start of the server.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct LatencyCounts {
    /// Number of requests in each class of `weft_server::latency::BOUNDS`, and of all longer ones.
    #[serde(deserialize_with = "bounded::vec::<_, _, LATENCY_CLASSES_MAX>")]
    pub counts: Vec<u64>,
    /// Sum of all latencies.
    pub sum: Nanos,
}

/// Latencies of one target by messages.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TargetLatency {
    /// Target.
    pub target: TargetId,
    /// Reads.
    pub read: LatencyCounts,
    /// Writes.
    pub write: LatencyCounts,
}

/// Activity on one server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Activity {
    /// Time of the reply, by the server's monotonic clock.
    pub now: Nanos,
    /// Changes with every start of the server, at which all counters begin again.
    pub incarnation: u64,
    /// Whether the rows are those of all users. An unprivileged user gets the rows of the same user only; latencies and
    /// targets are always complete.
    pub is_complete: bool,
    /// State of the server; `users` is empty.
    pub status: ServerStatus,
    /// Latencies of reads, writes, other requests about datafiles, and metadata requests.
    #[serde(deserialize_with = "bounded::vec::<_, _, OPERATIONS_MAX>")]
    pub operations: Vec<LatencyCounts>,
    /// Latencies by target, in ascending order.
    pub targets: Vec<TargetLatency>,
    /// Clients, in ascending order.
    #[serde(deserialize_with = "bounded::vec::<_, _, CLIENTS_MAX>")]
    pub clients: Vec<ClientActivity>,
    /// Users, in ascending order.
    #[serde(deserialize_with = "bounded::vec::<_, _, USERS_MAX>")]
    pub users: Vec<UserActivity>,
    /// Files, in ascending order.
    #[serde(deserialize_with = "bounded::vec::<_, _, FILES_MAX>")]
    pub files: Vec<FileActivity>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_adds_and_subtracts_every_counter() {
        let work = |n: u64| Work {
            reads: n,
            writes: 2 * n,
            others: 3 * n,
            metadata: 4 * n,
            bytes_read: ByteLen(5 * n),
            bytes_written: ByteLen(6 * n),
            time: Nanos(7 * n),
        };
        let mut sum = work(3);
        sum.add(&work(4));
        assert_eq!((sum, sum.requests()), (work(7), 70));
        sum.subtract(&work(2));
        assert_eq!(sum, work(5));
        sum.subtract(&work(9));
        assert_eq!(sum, Work::default(), "never negative");
    }
}
