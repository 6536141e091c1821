//! The policy `first-touch` (IODC, sections III.B to III.E): a rank sends its requests to its own delegate, which locks the
//! pages at their homes in ascending order, learns their owners, and forwards the parts that others own.
//!
//! A page keeps its owner until the last rank has closed the file, also while it is not in memory: an eviction then needs
//! no message, and never leaves two copies. A home that has forgotten a file and meets it again gives it another
//! generation; owners drop pages of an older one.

use crate::DelegateConfig;
use crate::buffer::{Buffer, Destination, Source};
use crate::late_unlocks::LateUnlocks;
use crate::service::{Service, Transfer, total};
use crate::state::State;
use crate::transfer::short_form;
use crate::underlying::Underlying;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weft_client::{ClientOptions, Credentials, Delegates, Error, Forwarded, JobMap, Key};
use weft_core::delegates::assignment::DelegateIndex;
use weft_core::delegates::ownership::{FileNumber, PageId, PageIndex, home};
use weft_core::delegates::page_locks::{HolderId, LockOutcome};
use weft_core::locks::LockMode;
use weft_core::{ByteRange, Nanos};
use weft_env::mutants::{Mutant, is_seeded};
use weft_env::{Env, Notify};
use weft_wire::delegate::{DelegateReply, FilePiece, Grant, HomeGeneration};
use weft_wire::hello::SessionId;
use weft_wire::{Errno, WireError};

/// Longest time for a request to another delegate, which may wait for locks and for the underlying file system.
const PEER_TIMEOUT: Nanos = Nanos::from_s(600);
/// Time for which a request repeats the attempt to connect to another delegate. A request may meet several dead ones, one
/// after another, and its rank learns of them within 3 s.
const RETRY_FOR: Nanos = Nanos::from_ms(250);
/// Longest time for which a request of another delegate waits for page locks before the delegate repeats it.
const LOCK_WAIT: Nanos = Nanos::from_s(1);
/// Attempts of a request whose grants were old.
const ATTEMPTS_MAX: u32 = 16;

/// Connections to the other delegates.
pub(crate) struct Peers<E: Env> {
    /// For requests that may wait for locks. Their own connections keep the others free for the requests that release
    /// locks.
    locks: Delegates<E>,
    transfers: Delegates<E>,
    late_unlocks: LateUnlocks<E>,
    last_holder: AtomicU64,
}

impl<E: Env> Peers<E> {
    pub(crate) fn new(env: &E, config: &DelegateConfig) -> Self {
        let connections = || {
            let job = JobMap { name: config.job.clone(), delegates: config.delegates.clone() };
            let credentials = Credentials::user(config.hooks.uid, 0, Vec::new())
                .with_key(Key::Cluster(Box::new(config.secret.clone())));
            let options = ClientOptions {
                request_timeout: PEER_TIMEOUT,
                retry_for: RETRY_FOR,
                ..ClientOptions::default()
            };
            Delegates::of_peer(env.clone(), job, options, credentials, config.settings.clone())
        };
        // Holders of different delegates differ in the upper bits.
        let last_holder = AtomicU64::new(u64::from(config.settings.index) << 40);
        let late_unlocks = LateUnlocks::new(env);
        Self { locks: connections(), transfers: connections(), late_unlocks, last_holder }
    }

    /// Releases page locks whose release has failed, until the delegate ends.
    pub(crate) async fn run_late_unlocks(&self, is_stopping: &AtomicBool) {
        self.late_unlocks.run(&self.transfers, is_stopping).await;
    }

    /// Ends [`run_late_unlocks`](Self::run_late_unlocks).
    pub(crate) fn stop(&self) {
        self.late_unlocks.wake();
    }

    fn new_holder(&self) -> HolderId {
        HolderId(self.last_holder.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// A part of a request within one page.
#[derive(Clone, Copy)]
struct PagePart {
    page: PageIndex,
    piece: FilePiece,
    /// Place of the bytes in the payload.
    at: usize,
}

/// Owner of a page, and the grant of its home.
#[derive(Clone, Copy)]
struct Owned {
    owner: u32,
    grant: Grant,
}

/// Outcome of an attempt that may have to be repeated.
enum Attempt {
    Done(DelegateReply),
    OldGrant,
    NotOpen { delegate: u32 },
}

/// Outcome of a request for page locks.
enum Locked {
    /// Owners of the pages, and the generation of the file at this home.
    Granted(Vec<u32>, HomeGeneration),
    NotOpen,
    /// The operation still waits, or its locks were dropped.
    Waiting,
}

/// Reason why pages could not be locked.
enum LockFailure {
    NotOpen { delegate: u32 },
    Failed(Error),
}

impl From<Error> for LockFailure {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl<E: Env, U: Underlying<E>> Service<E, U> {
    fn delegates(&self) -> u32 {
        self.config.settings.delegates
    }

    fn home_of(&self, id: PageId) -> u32 {
        home(id, self.delegates()).0
    }

    /// Cuts the pieces of a request at the boundaries of pages; `None` if the file is not open.
    fn parts_of(&self, transfer: &Transfer<'_>) -> Option<Vec<PagePart>> {
        let page_len = self.state.lock().files.get(&transfer.file)?.page_len;
        let mut parts = Vec::new();
        let mut at = 0;
        for piece in transfer.pieces {
            let (mut offset, mut left) = (piece.offset, piece.len);
            while left > 0 {
                let len = u64::from(left).min(page_len - offset % page_len) as u32;
                let page = PageIndex(offset / page_len);
                parts.push(PagePart { page, piece: FilePiece { offset, len }, at });
                (offset, left, at) = (offset + u64::from(len), left - len, at + len as usize);
            }
        }
        Some(parts)
    }

    /// Locks the pages of parts in ascending order at their homes.
    async fn lock_all(
        &self,
        peers: &Peers<E>,
        holder: HolderId,
        file: FileNumber,
        parts: &[PagePart],
        exclusive: bool,
    ) -> Result<BTreeMap<PageIndex, Owned>, LockFailure> {
        let mut pages: Vec<PageIndex> = parts.iter().map(|part| part.page).collect();
        pages.sort_unstable();
        pages.dedup();
        let mut owned = BTreeMap::new();
        let home_of = |page: PageIndex| self.home_of(PageId::new(file, page));
        let mut runs: Vec<&[PageIndex]> = pages.chunk_by(|a, b| home_of(*a) == home_of(*b)).collect();
        if is_seeded(Mutant::ReversedLocks) && self.config.settings.index % 2 == 1 {
            runs.reverse();
        }
        for run in runs {
            let at = home_of(run[0]);
            let locked = match at == self.config.settings.index {
                true => match self.lock_here((holder, None), at, file, run, exclusive).await? {
                    Locked::Granted(owners, generation) => Some((owners, generation)),
                    Locked::NotOpen => None,
                    Locked::Waiting => {
                        const WHY: &str = "page locks of an operation were dropped while it waited";
                        return Err(Error::Misuse { errno: Errno::EIO, why: WHY }.into());
                    }
                },
                false => peers.locks.lock_pages(DelegateIndex(at), holder, file, run, exclusive).await?,
            };
            let Some((owners, generation)) = locked else {
                return Err(LockFailure::NotOpen { delegate: at });
            };
            if owners.len() != run.len() || owners.iter().any(|owner| *owner >= self.delegates()) {
                const WHY: &str = "the home of pages names owners that the job does not have";
                return Err(Error::Misuse { errno: Errno::EPROTO, why: WHY }.into());
            }
            let grant = Grant { home: at, generation };
            owned.extend(run.iter().zip(owners).map(|(page, owner)| (*page, Owned { owner, grant })));
        }
        Ok(owned)
    }

    /// Releases the locks of an operation at all homes that may have some.
    async fn unlock_all(&self, peers: &Peers<E>, holder: HolderId, file: FileNumber, parts: &[PagePart]) {
        let mut homes: Vec<u32> =
            parts.iter().map(|part| self.home_of(PageId::new(file, part.page))).collect();
        homes.sort_unstable();
        homes.dedup();
        for at in homes {
            if at == self.config.settings.index {
                self.unlock_pages(holder);
            } else if let Err(error) = peers.transfers.unlock_pages(DelegateIndex(at), holder).await {
                (self.config.hooks.log)(&format!("warn: {error}; releasing page locks again later"));
                peers.late_unlocks.add(DelegateIndex(at), holder);
            }
        }
    }

    /// Serves a write of a rank.
    pub(crate) async fn route_write(&self, transfer: &Transfer<'_>, source: &Source<'_, E>) -> DelegateReply {
        self.with_locks(transfer, true, async |peers, parts, owned| {
            self.write_owned(peers, transfer, source, parts, owned).await
        })
        .await
    }

    /// Runs an operation while the pages of its parts are locked, again if a grant was old.
    async fn with_locks(
        &self,
        transfer: &Transfer<'_>,
        exclusive: bool,
        mut operation: impl AsyncFnMut(
            &Peers<E>,
            &[PagePart],
            &BTreeMap<PageIndex, Owned>,
        ) -> Result<Attempt, Error>,
    ) -> DelegateReply {
        let peers = self.peers.as_ref().expect("there are other delegates");
        for _ in 0..ATTEMPTS_MAX {
            let Some(parts) = self.parts_of(transfer) else { return self.not_open() };
            let holder = peers.new_holder();
            let attempt = match self.lock_all(peers, holder, transfer.file, &parts, exclusive).await {
                Ok(owned) => operation(peers, &parts, &owned).await,
                Err(LockFailure::NotOpen { delegate }) => Ok(Attempt::NotOpen { delegate }),
                Err(LockFailure::Failed(error)) => Err(error),
            };
            self.unlock_all(peers, holder, transfer.file, &parts).await;
            match attempt {
                Ok(Attempt::Done(reply)) => return reply,
                Ok(Attempt::NotOpen { delegate }) => return DelegateReply::NotOpen { delegate },
                Ok(Attempt::OldGrant) => {}
                Err(error) => return self.peer_failed(&error),
            }
        }
        self.gave_up()
    }

    async fn write_owned(
        &self,
        peers: &Peers<E>,
        transfer: &Transfer<'_>,
        source: &Source<'_, E>,
        parts: &[PagePart],
        owned: &BTreeMap<PageIndex, Owned>,
    ) -> Result<Attempt, Error> {
        let own = self.config.settings.index;
        for (owner, group) in by_owner(parts, owned) {
            let grants = grants_of(&group, owned);
            if owner != own {
                let bytes = self.gathered(&group, source);
                let mut from = 0;
                let pieces: Vec<(u64, &[u8])> = group
                    .iter()
                    .map(|part| {
                        let range = from..from + part.piece.len as usize;
                        from = range.end;
                        (part.piece.offset, bytes.slice(range))
                    })
                    .collect();
                self.state.lock().counters.forwarded += 1;
                let index = DelegateIndex(owner);
                match peers.transfers.forward_write(index, transfer.file, &grants, &pieces).await? {
                    Forwarded::Done(_) => {}
                    Forwarded::OldGrant => return Ok(Attempt::OldGrant),
                    Forwarded::NotOpen { delegate } => return Ok(Attempt::NotOpen { delegate }),
                }
                continue;
            }
            let local = Transfer { pieces: &pieces_of(&group), grants: &grants, ..*transfer };
            if self.refuse_old_grants(&local).await.is_some() {
                return Ok(Attempt::OldGrant);
            }
            let written = if group.len() == parts.len() {
                self.write_local(&local, source).await
            } else {
                let bytes = self.gathered(&group, source);
                self.write_local(&local, &Source::Payload(&bytes)).await
            };
            if let Err(stop) = written {
                return Ok(Attempt::Done(self.stopped(stop)));
            }
        }
        Ok(Attempt::Done(DelegateReply::Done))
    }

    /// Serves a read of a rank.
    pub(crate) async fn route_read(
        &self,
        transfer: &Transfer<'_>,
        to: &mut Destination<'_, E>,
    ) -> DelegateReply {
        self.with_locks(transfer, false, async |peers, parts, owned| {
            self.read_owned(peers, transfer, to, parts, owned).await
        })
        .await
    }

    async fn read_owned(
        &self,
        peers: &Peers<E>,
        transfer: &Transfer<'_>,
        to: &mut Destination<'_, E>,
        parts: &[PagePart],
        owned: &BTreeMap<PageIndex, Owned>,
    ) -> Result<Attempt, Error> {
        let own = self.config.settings.index;
        // Known bytes of each part, by the place of its bytes in the payload.
        let mut known = BTreeMap::new();
        for (owner, group) in by_owner(parts, owned) {
            let grants = grants_of(&group, owned);
            let pieces = pieces_of(&group);
            let mut bytes = Buffer::new(&self.env, total(&pieces) as usize);
            let lens = if owner == own {
                let local = Transfer { pieces: &pieces, grants: &grants, ..*transfer };
                if self.refuse_old_grants(&local).await.is_some() {
                    return Ok(Attempt::OldGrant);
                }
                match self.read_local(&local, &mut Destination::Payload(&mut bytes)).await {
                    Ok(lens) => lens,
                    Err(stop) => return Ok(Attempt::Done(self.stopped(stop))),
                }
            } else {
                let mut rest = bytes.slice_mut(0..total(&pieces) as usize);
                let mut list = Vec::with_capacity(pieces.len());
                for piece in &pieces {
                    let (part, behind) = rest.split_at_mut(piece.len as usize);
                    list.push((piece.offset, part));
                    rest = behind;
                }
                self.state.lock().counters.forwarded += 1;
                let index = DelegateIndex(owner);
                match peers.transfers.forward_read(index, transfer.file, &grants, list).await? {
                    Forwarded::Done(lens) => lens,
                    Forwarded::OldGrant => return Ok(Attempt::OldGrant),
                    Forwarded::NotOpen { delegate } => return Ok(Attempt::NotOpen { delegate }),
                }
            };
            let mut from = 0;
            for (part, len) in group.iter().zip(lens) {
                let range: Range<usize> = from..from + part.piece.len as usize;
                to.copy_from(part.at, &bytes, range.clone());
                from = range.end;
                known.insert(part.at, len);
            }
        }
        Ok(Attempt::Done(DelegateReply::Read { known: combined(transfer.pieces, parts, &known) }))
    }

    /// Copies the bytes of some parts one after another.
    fn gathered(&self, group: &[PagePart], source: &Source<'_, E>) -> Buffer {
        let len: usize = group.iter().map(|part| part.piece.len as usize).sum();
        let mut bytes = Buffer::new(&self.env, len);
        let mut at = 0;
        for part in group {
            let len = part.piece.len as usize;
            source.copy_to(part.at, &mut bytes, at..at + len);
            at += len;
        }
        bytes
    }

    /// Compares grants with the generations under which pages are cached here. Pages of an older generation are written
    /// and dropped. Returns the reply to a request with an old grant.
    pub(crate) async fn refuse_old_grants(&self, transfer: &Transfer<'_>) -> Option<DelegateReply> {
        for Grant { home, generation } in transfer.grants {
            loop {
                {
                    let mut state = self.state.lock();
                    let state = &mut *state;
                    let Some(open) = state.files.get_mut(&transfer.file) else {
                        return Some(self.not_open());
                    };
                    let known = open.home_generations.entry(*home).or_insert(*generation);
                    if *known > *generation {
                        return Some(DelegateReply::OldGrant);
                    }
                    if *known == *generation {
                        break;
                    }
                    let is_old = |id: PageId| self.home_of(id) == *home;
                    if !state.pages.of(open.page_len).forget_clean(transfer.file, is_old) {
                        *known = *generation;
                        break;
                    }
                }
                self.write_back(transfer.file, ByteRange::ALL).await;
            }
        }
        None
    }

    /// Locks pages of this home.
    pub(crate) async fn lock_pages(
        &self,
        holder: (HolderId, SessionId),
        requester: u32,
        file: FileNumber,
        pages: &[PageIndex],
        exclusive: bool,
    ) -> DelegateReply {
        let (holder, session) = holder;
        match self.lock_here((holder, Some(session)), requester, file, pages, exclusive).await {
            Ok(Locked::Granted(owners, generation)) => DelegateReply::Locked { owners, generation },
            Ok(Locked::NotOpen) => self.not_open(),
            Ok(Locked::Waiting) => DelegateReply::Busy,
            Err(error) => DelegateReply::Failed(WireError::new(Errno(error.errno()), error.to_string())),
        }
    }

    /// Locks pages of this home. A request of another delegate (`session`) waits for [`LOCK_WAIT`] at most. The
    /// other delegate then repeats it. While a request waits, nothing is received on its connection, so the end of the
    /// other delegate would pass unnoticed.
    async fn lock_here(
        &self,
        (holder, session): (HolderId, Option<SessionId>),
        requester: u32,
        file: FileNumber,
        pages: &[PageIndex],
        exclusive: bool,
    ) -> Result<Locked, Error> {
        let mode = if exclusive { LockMode::Exclusive } else { LockMode::Shared };
        let until = session.map(|_| self.env.now().saturating_add(LOCK_WAIT));
        for page in pages {
            let id = PageId::new(file, *page);
            let seen = self.changed.epoch();
            let is_granted = {
                let mut state = self.state.lock();
                if !state.files.contains_key(&file) {
                    return Ok(Locked::NotOpen);
                }
                if let Some(session) = session {
                    state.lock_holders.insert(holder, session);
                }
                // A repeated request keeps its locks and its place.
                let known = state.locks.outcome(holder, id);
                let outcome = known.map_or_else(|| state.locks.request(holder, id, mode), Ok);
                let outcome = outcome.map_err(|_| {
                    const WHY: &str = "page locks are requested in ascending order";
                    Error::Misuse { errno: Errno::EINVAL, why: WHY }
                })?;
                let is_granted = outcome == LockOutcome::Granted;
                state.waiting += u32::from(!is_granted);
                is_granted
            };
            if !is_granted && !self.wait_for_lock(holder, id, seen, until).await {
                return Ok(Locked::Waiting);
            }
        }
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(open) = state.files.get(&file) else { return Ok(Locked::NotOpen) };
        let generation = open.generation;
        let first_touch = |page: &PageIndex| {
            if is_seeded(Mutant::PageCachedTwice) {
                return requester;
            }
            state.directory.first_touch(PageId::new(file, *page), DelegateIndex(requester)).0
        };
        Ok(Locked::Granted(pages.iter().map(first_touch).collect(), generation))
    }

    /// Waits until a queued lock is granted. Returns false if it is not granted at the time `until`, or its holder was
    /// dropped.
    async fn wait_for_lock(&self, holder: HolderId, id: PageId, mut seen: u64, until: Option<Nanos>) -> bool {
        loop {
            let left = until.map(|until| until.saturating_sub(self.env.now()));
            self.changed.wait(seen, left).await;
            seen = self.changed.epoch();
            let mut state = self.state.lock();
            state.waiting -= 1;
            match state.locks.outcome(holder, id) {
                Some(LockOutcome::Granted) => return true,
                Some(LockOutcome::Queued) if until.is_none_or(|until| self.env.now() < until) => {}
                _ => return false,
            }
            state.waiting += 1;
        }
    }

    /// Releases all page locks of an operation.
    pub(crate) fn unlock_pages(&self, holder: HolderId) {
        let mut state = self.state.lock();
        state.lock_holders.remove(&holder);
        state.locks.drop_holder(holder);
        self.wake(&state);
    }

    /// Releases the page locks of a session that has ended.
    pub(crate) fn drop_locks_of(&self, state: &mut State<E, U::File>, session: SessionId) {
        let is_of = |(_, of): &(&HolderId, &SessionId)| **of == session;
        let holders: Vec<HolderId> =
            state.lock_holders.iter().filter(is_of).map(|(holder, _)| *holder).collect();
        for holder in holders {
            state.lock_holders.remove(&holder);
            state.locks.drop_holder(holder);
        }
    }

    fn peer_failed(&self, error: &Error) -> DelegateReply {
        DelegateReply::Failed(WireError::new(Errno(error.errno()), error.to_string()))
    }

    fn gave_up(&self) -> DelegateReply {
        let detail = "the owners of the pages kept changing".to_owned();
        DelegateReply::Failed(WireError::new(Errno::EIO, detail))
    }
}

/// Groups parts by owner, in their order.
fn by_owner(parts: &[PagePart], owned: &BTreeMap<PageIndex, Owned>) -> BTreeMap<u32, Vec<PagePart>> {
    let mut groups: BTreeMap<u32, Vec<PagePart>> = BTreeMap::new();
    for part in parts {
        groups.entry(owned[&part.page].owner).or_default().push(*part);
    }
    groups
}

fn grants_of(group: &[PagePart], owned: &BTreeMap<PageIndex, Owned>) -> Vec<Grant> {
    let mut grants: Vec<Grant> = Vec::new();
    for part in group {
        let grant = owned[&part.page].grant;
        if !grants.contains(&grant) {
            grants.push(grant);
        }
    }
    grants
}

fn pieces_of(group: &[PagePart]) -> Vec<FilePiece> {
    group.iter().map(|part| part.piece).collect()
}

/// Combines the known lengths of parts to those of the pieces of a request.
fn combined(pieces: &[FilePiece], parts: &[PagePart], known: &BTreeMap<usize, u32>) -> Vec<u32> {
    let mut lens = Vec::with_capacity(pieces.len());
    let mut parts = parts.iter().peekable();
    let mut at = 0;
    for piece in pieces {
        let end = at + piece.len as usize;
        let mut len = 0;
        while let Some(part) = parts.next_if(|part| part.at < end) {
            match known.get(&part.at) {
                Some(of_part) if *of_part > 0 => len = (part.at - at) as u32 + of_part,
                _ => {}
            }
        }
        lens.push(len);
        at = end;
    }
    short_form(lens, pieces)
}
