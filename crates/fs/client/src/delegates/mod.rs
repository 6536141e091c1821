//! The delegates of a job, as one of its processes sees them.

mod delegated_fs;
mod file;
mod hold;
mod maybe;
mod peer;
mod traffic;

pub use delegated_fs::{DelegatedFs, Join};
pub use file::DelegatedFile;
pub use maybe::MaybeDelegated;
pub use peer::Forwarded;

use crate::core::Core;
use crate::error::{DelegateFailure, Error, Result};
use crate::options::{ClientOptions, Credentials};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use traffic::{Call, call_all};
use weft_core::delegates::assignment::{DelegateIndex, delegate_of};
use weft_core::delegates::ownership::FileNumber;
use weft_core::{Nanos, ServerId};
use weft_env::Env;
use weft_wire::ClusterMap;
use weft_wire::cluster::ServerEntry;
use weft_wire::delegate::{DelegateReply, DelegateRequest, DelegateStatus, JobSettings};
use weft_wire::{Errno, WireError};

/// Name and delegates of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobMap {
    /// Name, which every greeting contains.
    pub name: String,
    /// Delegates, by index.
    pub delegates: Vec<ServerEntry>,
}

/// Rank of this process and number of ranks of its program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RankOf {
    /// Rank, below `ranks`.
    pub rank: u32,
    /// Number of ranks.
    pub ranks: u32,
}

/// How delegates open a file that this process has open.
#[derive(Clone)]
pub enum Source<E: Env> {
    /// A file of the host. Delegates on this host get the descriptor; others open the path and compare the inode number.
    Host {
        /// The open file.
        file: E::File,
        /// Absolute path.
        path: Vec<u8>,
        /// Inode number.
        inode: u64,
    },
    /// A file of Weft: the encoded [`HandleToken`](crate::HandleToken).
    Weft(Vec<u8>),
}

/// Longest time for which a request repeats the attempt to connect to a delegate. A delegate that has ended has lost the
/// job's bytes and does not come back. Short, because a sync asks several dead delegates one after the other.
const RETRY_FOR: Nanos = Nanos::from_ms(250);

/// The delegates of a job. Clones share the connections.
pub struct Delegates<E: Env> {
    core: Arc<Core<E>>,
    incarnations: Arc<Incarnations>,
    settings: Arc<JobSettings>,
    /// Delegate that this process uses under the policy `first-touch`.
    own: DelegateIndex,
    /// Number of the last open file.
    last_handle: Arc<AtomicU64>,
}

impl<E: Env> Clone for Delegates<E> {
    fn clone(&self) -> Self {
        Self {
            core: Arc::clone(&self.core),
            incarnations: Arc::clone(&self.incarnations),
            settings: Arc::clone(&self.settings),
            own: self.own,
            last_handle: Arc::clone(&self.last_handle),
        }
    }
}

/// The process that each delegate had at the first reply. A delegate with another one has lost its dirty bytes.
#[derive(Debug)]
struct Incarnations(Vec<AtomicU64>);

impl Incarnations {
    fn of(delegates: usize) -> Self {
        Self((0..delegates).map(|_| AtomicU64::new(0)).collect())
    }

    /// Returns false if the delegate had another incarnation before.
    fn is_known(&self, delegate: ServerId, incarnation: u64) -> bool {
        let first = &self.0[delegate.0 as usize];
        match first.compare_exchange(0, incarnation, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => true,
            Err(known) => known == incarnation,
        }
    }
}

/// For each delegate, the number of the last failed write that an open file knows of.
#[derive(Debug)]
struct KnownFailures(Vec<AtomicU64>);

impl KnownFailures {
    /// Number at a delegate where the file was never registered: no failed write concerns it. It is the largest number.
    const UNREGISTERED: u64 = u64::MAX;

    fn of(delegates: usize) -> Self {
        Self((0..delegates).map(|_| AtomicU64::new(Self::UNREGISTERED)).collect())
    }

    fn at(&self, delegate: ServerId) -> u64 {
        self.0[delegate.0 as usize].load(Ordering::Relaxed)
    }

    /// Notes the last failure at the first registration. A later one, after a lost connection, changes nothing: what
    /// failed meanwhile must be reported.
    fn registered(&self, delegate: ServerId, failure: u64) {
        let known = &self.0[delegate.0 as usize];
        let _ = known.compare_exchange(Self::UNREGISTERED, failure, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn learned(&self, delegate: ServerId, failure: u64) {
        self.0[delegate.0 as usize].fetch_max(failure, Ordering::Relaxed);
    }
}

/// Properties of a file that is to be used through delegates.
#[derive(Clone)]
pub struct DelegatedSpec<E: Env> {
    /// Number of the file: equal in all processes of the job for the same file, and different for other files.
    pub number: FileNumber,
    /// How delegates open it.
    pub source: Source<E>,
    /// Length of pages, unless the job has its own or another process has opened the file already.
    pub page_len: u64,
    /// Whether this process may read.
    pub read: bool,
    /// Whether this process may write.
    pub write: bool,
    /// Path for messages.
    pub path: Vec<u8>,
}

impl<E: Env> Delegates<E> {
    /// Connects to the delegates of a job.
    ///
    /// # Errors
    /// No delegate answers.
    pub async fn join(
        env: E,
        job: JobMap,
        options: ClientOptions,
        credentials: Credentials,
        rank: Option<RankOf>,
    ) -> Result<Self> {
        let delegates = job.delegates.len();
        // A delegate may wait for a server as long as any other client.
        let request_timeout = options.request_timeout.saturating_add(options.retry_for);
        let retry_for = options.retry_for.min(RETRY_FOR);
        let options = ClientOptions { request_timeout, retry_for, ..options };
        let map = ClusterMap {
            domains: Vec::new(),
            name: job.name,
            version: 0,
            servers: job.delegates,
            targets: Vec::new(),
            metadata: ServerId(0),
        };
        let core = Arc::new(Core::new(env, Arc::new(map), options, credentials));
        let incarnations = Arc::new(Incarnations::of(delegates));
        let mut calls = [Call::new(ServerId(0), DelegateRequest::Settings)];
        one(call_all(&core, &incarnations, &mut calls).await)?;
        let Some(DelegateReply::Settings(settings)) = calls[0].reply.take() else {
            return Err(Error::unexpected_reply());
        };
        if settings.delegates as usize != delegates {
            const WHY: &str = "the job has another number of delegates: correct WEFT_DELEGATES";
            return Err(Error::misuse(Errno::EINVAL, WHY));
        }
        let own = match rank {
            Some(RankOf { rank, ranks }) if rank < ranks => delegate_of(rank, ranks, settings.delegates),
            _ => DelegateIndex((core.session_id.0 % u128::from(settings.delegates)) as u32),
        };
        let (settings, last_handle) = (Arc::new(settings), Arc::default());
        Ok(Self { core, incarnations, settings, own, last_handle })
    }

    /// Settings of the job.
    pub fn settings(&self) -> &JobSettings {
        &self.settings
    }

    /// Delegate that this process uses under the policy `first-touch`.
    pub fn own(&self) -> DelegateIndex {
        self.own
    }

    /// Returns a fresh set of connections for a forked child. The child wraps its files again; those of the parent fail.
    #[must_use]
    pub fn after_fork_in_child(&self) -> Self {
        self.core.abandon();
        let core = Core::new(
            self.core.env.clone(),
            self.core.map(),
            self.core.options.clone(),
            self.core.credentials.clone(),
        );
        Self { core: Arc::new(core), ..self.clone() }
    }

    /// Returns the status of a delegate.
    ///
    /// # Errors
    /// The delegate does not answer.
    pub async fn status(&self, delegate: DelegateIndex) -> Result<DelegateStatus> {
        let mut calls = [Call::new(ServerId(delegate.0), DelegateRequest::Status)];
        one(call_all(&self.core, &self.incarnations, &mut calls).await)?;
        match calls[0].reply.take() {
            Some(DelegateReply::Status(status)) => Ok(*status),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Returns one past the last byte of a file that delegates hold and the underlying file does not have yet; `None`
    /// without such bytes.
    ///
    /// # Errors
    /// A delegate does not answer.
    pub async fn unwritten_end(&self, file: FileNumber) -> Result<Option<u64>> {
        let mut end = None;
        for reply in self.call_each(|| DelegateRequest::End { file }).await? {
            match reply {
                DelegateReply::End(of_one) => end = end.max(of_one),
                _ => return Err(Error::unexpected_reply()),
            }
        }
        Ok(end)
    }

    /// Returns the delegates.
    fn all(&self) -> impl Iterator<Item = ServerId> + use<E> {
        (0..self.settings.delegates).map(ServerId)
    }

    /// Sends a request to every delegate, and returns the replies. All get the request, also if one fails.
    async fn call_each(&self, request: impl Fn() -> DelegateRequest) -> Result<Vec<DelegateReply>> {
        let mut calls: Vec<Call<E>> = self.all().map(|delegate| Call::new(delegate, request())).collect();
        one(call_all(&self.core, &self.incarnations, &mut calls).await)?;
        calls.into_iter().map(|call| call.reply.ok_or_else(Error::unexpected_reply)).collect()
    }

    /// Sends a request to every delegate, and expects no result.
    async fn tell_each(&self, request: impl Fn() -> DelegateRequest) -> Result<()> {
        self.call_each(request).await.map(drop)
    }

    /// Sends a sync or close to every delegate. Returns the first error, and notes all failed writes as known.
    async fn sync_each(&self, known: &KnownFailures, request: impl Fn(u64) -> DelegateRequest) -> Result<()> {
        let request = |delegate| Call::new(delegate, request(known.at(delegate)));
        let mut calls: Vec<Call<E>> = self.all().map(request).collect();
        let mut failures = call_all(&self.core, &self.incarnations, &mut calls).await;
        for (call, failed) in calls.into_iter().zip(&mut failures) {
            match call.reply {
                Some(DelegateReply::WriteFailed { failure, error }) => {
                    known.learned(call.delegate, failure);
                    *failed = Some(self.core.server(call.delegate).refused(error));
                }
                Some(DelegateReply::Done) | None => {}
                Some(_) => *failed = Some(Error::unexpected_reply()),
            }
        }
        one(failures)
    }
}

/// Returns the first failure, as one of a delegate.
fn one(failures: Vec<Option<Error>>) -> Result<()> {
    failures.into_iter().flatten().next().map_or(Ok(()), |error| Err(of_delegate(error)))
}

/// Error of a request to a delegate. The words for servers of a cluster do not fit.
fn of_delegate(error: Error) -> Error {
    let (delegate, path, error) = match error {
        Error::Unreachable(unreachable) => {
            let detail = format!(
                "it does not answer at {}: {}; bytes that it had not written are lost: run the program again",
                unreachable.address, unreachable.cause
            );
            (unreachable.server, unreachable.path, WireError::new(Errno::EIO, detail))
        }
        Error::Refused(refused) => (refused.server, refused.path, refused.error),
        other => return other,
    };
    Error::Delegate(Box::new(DelegateFailure { delegate, path, error }))
}
