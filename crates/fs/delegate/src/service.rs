//! The service of a delegate: registration of files, and the dispatch of requests.

use crate::DelegateConfig;
use crate::buffer::{Buffer, Destination, Source};
use crate::first_touch::Peers;
use crate::pages::Pages;
use crate::state::{HeldRange, OpenFile, Registration, Slot, State, Stop};
use crate::underlying::Underlying;
use crate::write_failures::WriteFailures;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_client::Error;
use weft_core::delegates::ownership::{FileNumber, Policy};
use weft_core::{ByteRange, Nanos};
use weft_env::{Attachment, Conn, Env, Notify, Shared};
use weft_server::{AddedService, Caller, Served};
use weft_wire::data::PAYLOAD_LEN_MAX;
use weft_wire::delegate::{
    DelegateReply, DelegateRequest, FilePiece, FileSource, Grant, HomeGeneration, PayloadLocation,
    SOURCE_LEN_MAX,
};
use weft_wire::hello::SessionId;
use weft_wire::{Errno, Family, Incoming, Kind, Link, WireError};

/// Longest shared payload area of a connection, in bytes.
const AREA_LEN_MAX: u32 = 4 << 20;
/// Shortest and longest page, in bytes.
const PAGE_LEN_MIN: u64 = 512;
const PAGE_LEN_MAX: u64 = 64 << 20;
/// Last offset of a file.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// One delegate.
pub(crate) struct Service<E: Env, U: Underlying<E>> {
    pub(crate) env: E,
    pub(crate) config: DelegateConfig,
    pub(crate) underlying: U,
    pub(crate) state: Mutex<State<E, U::File>>,
    /// Wakes requests that wait for a change of the state.
    pub(crate) changed: E::Notify,
    /// Wakes write-behind.
    pub(crate) work: E::Notify,
    /// Wakes read-ahead.
    pub(crate) ahead: E::Notify,
    pub(crate) is_stopping: AtomicBool,
    /// Connections to the other delegates, under `first-touch`.
    pub(crate) peers: Option<Peers<E>>,
    pub(crate) started: Nanos,
}

/// A request that reads or writes.
pub(crate) struct Transfer<'a> {
    pub(crate) file: FileNumber,
    /// Session of the rank; `None` for a request that another delegate forwards.
    pub(crate) session: Option<SessionId>,
    pub(crate) pieces: &'a [FilePiece],
    pub(crate) grants: &'a [Grant],
}

impl<E: Env, U: Underlying<E>> Service<E, U> {
    pub(crate) fn new(env: E, config: DelegateConfig, underlying: U) -> Arc<Self> {
        let state = State {
            files: BTreeMap::new(),
            pages: Pages::new(&env, config.settings.memory.0),
            sessions: BTreeMap::new(),
            opening: BTreeSet::new(),
            recalled: BTreeSet::new(),
            slots: BTreeMap::new(),
            write_failures: WriteFailures::default(),
            fetching: BTreeSet::new(),
            read_ahead: std::collections::VecDeque::new(),
            locks: weft_core::delegates::page_locks::PageLocks::new(),
            lock_holders: BTreeMap::new(),
            directory: weft_core::delegates::ownership::PageDirectory::new(),
            last_request: env.tick(),
            waiting: 0,
            idle_writers: 0,
            untimed_writers: 0,
            idle_readers: 0,
            last_generation: 0,
            counters: crate::state::Counters::default(),
        };
        let is_shared = config.settings.policy == Policy::FirstTouch && config.settings.delegates > 1;
        let peers = is_shared.then(|| Peers::new(&env, &config));
        let (changed, work, ahead, started) = (env.notify(), env.notify(), env.notify(), env.now());
        let is_stopping = AtomicBool::new(false);
        let state = Mutex::new(state);
        Arc::new(Self { env, config, underlying, state, changed, work, ahead, is_stopping, peers, started })
    }

    /// Waits for a change of the state since `seen`. The caller has counted itself in [`State::waiting`] under the lock
    /// under which it saw that it must wait.
    pub(crate) async fn wait(&self, seen: u64) {
        self.changed.wait(seen, None).await;
        self.state.lock().waiting -= 1;
    }

    /// Wakes waiting requests after a change, with the lock held.
    pub(crate) fn wake(&self, state: &State<E, U::File>) {
        if state.waiting > 0 {
            self.changed.notify_all();
        }
    }

    /// Wakes write-behind if there is something to write or to time, with the lock held.
    pub(crate) fn wake_writers(&self, state: &State<E, U::File>) {
        let has_work = || state.pages.has_full() || state.pages.dirty() >= self.config.dirty_high;
        if state.idle_writers > 0 && (state.untimed_writers > 0 || has_work()) {
            self.work.notify_all();
        }
    }

    /// Releases page locks whose release has failed, until the delegate ends.
    pub(crate) async fn run_late_unlocks(self: Arc<Self>) {
        if let Some(peers) = &self.peers {
            peers.run_late_unlocks(&self.is_stopping).await;
        }
    }

    /// Reply for a file that is not registered here.
    pub(crate) const fn not_open(&self) -> DelegateReply {
        DelegateReply::NotOpen { delegate: self.config.settings.index }
    }

    /// Reply for a request that ended early.
    pub(crate) fn stopped(&self, stop: Stop) -> DelegateReply {
        match stop {
            Stop::NotOpen => self.not_open(),
            Stop::Refused(error) => DelegateReply::Failed(error),
            Stop::Wait | Stop::NoRoom | Stop::Uncached => unreachable!("the request has gone on"),
        }
    }

    /// Error of the underlying file system.
    pub(crate) fn failed(&self, doing: &str, error: &Error) -> WireError {
        WireError::new(Errno(error.errno()), format!("{doing}: {error}"))
    }

    async fn answer(
        &self,
        request: DelegateRequest,
        caller: &mut Caller<E>,
        attached: Option<E::File>,
    ) -> DelegateReply {
        let session = caller.session;
        match request {
            DelegateRequest::Settings => DelegateReply::Settings(self.config.settings.clone()),
            DelegateRequest::Open { file, handle, source, read, write, page_len, name } => {
                let (of, rights) = ((file, session, handle), (read, write));
                reply(self.open(of, source, attached, rights, page_len, name).await)
            }
            DelegateRequest::Close { file, handle, failures_seen } => {
                self.close((file, session, handle), failures_seen).await
            }
            DelegateRequest::Sync { file, failures_seen } => self.sync(file, failures_seen).await,
            DelegateRequest::End { file } => DelegateReply::End(self.unwritten_end(file)),
            DelegateRequest::WriteBack { file, start, end } => match ByteRange::new(start, end) {
                Some(range) => {
                    self.write_back(file, range).await;
                    DelegateReply::Done
                }
                None => DelegateReply::Done,
            },
            DelegateRequest::Hold { file, start, end, wait } => match ByteRange::new(start, end) {
                Some(range) => self.hold((session, caller.slot), file, range, wait).await,
                None => DelegateReply::Done,
            },
            DelegateRequest::Release { file, start, end } => {
                let range = ByteRange::new(start, end);
                match range.is_none_or(|range| self.release(session, file, range)) {
                    true => DelegateReply::Done,
                    false => self.not_open(),
                }
            }
            DelegateRequest::LockPages { holder, requester, file, pages, exclusive } => {
                self.lock_pages((holder, session), requester, file, &pages, exclusive).await
            }
            DelegateRequest::UnlockPages { holder } => {
                self.unlock_pages(holder);
                DelegateReply::Done
            }
            DelegateRequest::Status => DelegateReply::Status(Box::new(self.status())),
            DelegateRequest::AttachShared { .. }
            | DelegateRequest::Read { .. }
            | DelegateRequest::Write { .. } => unreachable!("served where their payload is"),
        }
    }

    /// Registers a file that a session has open.
    async fn open(
        &self,
        (file, session, handle_number): (FileNumber, SessionId, u64),
        source: FileSource,
        attached: Option<E::File>,
        (read, write): (bool, bool),
        page_len: u64,
        name: Vec<u8>,
    ) -> Result<DelegateReply, WireError> {
        if !(PAGE_LEN_MIN..=PAGE_LEN_MAX).contains(&page_len) || page_len > self.config.settings.memory.0 {
            let detail = format!(
                "pages of {page_len} bytes: use {PAGE_LEN_MIN} bytes to {} MiB, and at most the memory of a delegate",
                PAGE_LEN_MAX >> 20
            );
            return Err(WireError::new(Errno::EINVAL, detail));
        }
        let source_len = match &source {
            FileSource::Descriptor => 0,
            FileSource::Path { path, .. } => path.len(),
            FileSource::Token(token) => token.len(),
        };
        if source_len > SOURCE_LEN_MAX || name.len() > SOURCE_LEN_MAX {
            return Err(WireError::new(Errno::ENAMETOOLONG, "the name of the file is too long".to_owned()));
        }
        let (needs_reader, needs_writer) = loop {
            let seen = self.changed.epoch();
            {
                let mut state = self.state.lock();
                let open = state.files.get(&file);
                let has = |handle: fn(&OpenFile<U::File>) -> bool| open.is_some_and(handle);
                let (needs_reader, needs_writer) =
                    (read && !has(|open| open.reader.is_some()), write && !has(|open| open.writer.is_some()));
                // All ranks of a program open a file at once. One request opens the underlying file for all of them.
                if !(needs_reader || needs_writer) || state.opening.insert(file) {
                    break (needs_reader, needs_writer);
                }
                state.waiting += 1;
            }
            self.wait(seen).await;
        };
        let opened = match needs_reader || needs_writer {
            true => Some(self.underlying.open(&source, attached, needs_writer, &name).await),
            false => None,
        };
        let (page_len, failures, must_recall) = {
            let mut guard = self.state.lock();
            let mut is_recalled = false;
            if opened.is_some() {
                guard.opening.remove(&file);
                is_recalled = guard.recalled.remove(&file);
                self.wake(&guard);
            }
            let may_cache = |handle: &Arc<U::File>| self.underlying.may_cache(handle);
            let handle =
                opened.transpose().map_err(|error| self.failed("opening for a rank", &error))?.map(Arc::new);
            let state = &mut *guard;
            state.pages.of(page_len);
            let generation = state.last_generation.max(self.env.now().0) + 1;
            let is_shared = is_recalled || handle.as_ref().is_some_and(|handle| !may_cache(handle));
            let open = state.files.entry(file).or_insert_with(|| {
                state.last_generation = generation;
                OpenFile {
                    name,
                    page_len,
                    opens: BTreeMap::new(),
                    reader: None,
                    writer: None,
                    is_shared_outside: is_shared,
                    holds: Vec::new(),
                    generation: HomeGeneration(generation),
                    home_generations: BTreeMap::new(),
                }
            });
            if let Some(handle) = handle {
                // One that may write may be unable to read, for a program that opened the file for writing only.
                if read && needs_reader {
                    open.reader = Some(Arc::clone(&handle));
                }
                if write && needs_writer {
                    open.writer = Some(handle);
                }
            }
            let registration = open.opens.entry(session).or_insert(Registration {
                read: false,
                write: false,
                handles: BTreeSet::new(),
                last_page: None,
                last_stride: 0,
            });
            registration.read |= read;
            registration.write |= write;
            registration.handles.insert(handle_number);
            let found = (open.page_len, state.write_failures.last(), is_shared && !open.is_shared_outside);
            state.sessions.entry(session).or_default().files.insert(file);
            found
        };
        if must_recall {
            self.recall(file).await;
        }
        Ok(DelegateReply::Opened { page_len, failures })
    }

    /// Writes the dirty bytes of a file and ends the registration of an open file of the session.
    async fn close(
        &self,
        (file, session, handle): (FileNumber, SessionId, u64),
        failures_seen: u64,
    ) -> DelegateReply {
        self.write_back(file, ByteRange::ALL).await;
        let failure = {
            let mut state = self.state.lock();
            let state = &mut *state;
            let registration = state.files.get_mut(&file).and_then(|open| open.opens.get_mut(&session));
            let is_last = registration.is_some_and(|registration| {
                registration.handles.remove(&handle);
                registration.handles.is_empty()
            });
            if is_last {
                state.files.get_mut(&file).and_then(|open| open.opens.remove(&session));
                if let Some(session) = state.sessions.get_mut(&session) {
                    session.files.remove(&file);
                }
            }
            state.write_failures.after(failures_seen, file)
        };
        self.drop_unused(file).await;
        written(failure)
    }

    /// Drops the state of a file that no session has open, after its last dirty bytes are written.
    async fn drop_unused(&self, file: FileNumber) {
        loop {
            {
                let mut state = self.state.lock();
                let Some(open) = state.files.get(&file).filter(|open| open.opens.is_empty()) else { return };
                let page_len = open.page_len;
                let has_unwritten = state.pages.of(page_len).forget_clean(file, |_| true);
                if !has_unwritten {
                    state.directory.forget_file(file);
                    state.files.remove(&file);
                    self.report_untold(&mut state.write_failures, file);
                    if state.files.is_empty() {
                        state.pages.trim();
                    }
                    return;
                }
            }
            self.write_back(file, ByteRange::ALL).await;
        }
    }

    /// Writes the dirty bytes of a file and syncs it.
    async fn sync(&self, file: FileNumber, failures_seen: u64) -> DelegateReply {
        self.write_back(file, ByteRange::ALL).await;
        let writer = {
            let mut state = self.state.lock();
            let failure = state.write_failures.after(failures_seen, file);
            if failure.is_some() {
                return written(failure);
            }
            state.files.get(&file).and_then(|open| open.writer.clone())
        };
        let synced = match writer {
            Some(writer) => weft_client::FileHandle::sync(&*writer).await,
            None => Ok(()),
        };
        // After a failed sync, bytes of any session may be lost: every open file gets the error.
        synced.map_or_else(
            |error| {
                let error = self.failed("syncing", &error);
                let mut state = self.state.lock();
                let failure = state.write_failures.add(file, error.clone());
                DelegateReply::WriteFailed { failure, error }
            },
            |()| DelegateReply::Done,
        )
    }

    /// Logs a failed write that no rank will see.
    fn report_untold(&self, failures: &mut WriteFailures, file: FileNumber) {
        if let Some(failure) = failures.untold(file) {
            (self.config.hooks.log)(&format!("error: {}; no program has seen this error", failure.detail));
        }
    }

    fn unwritten_end(&self, file: FileNumber) -> Option<u64> {
        let mut state = self.state.lock();
        let page_len = state.files.get(&file)?.page_len;
        state.pages.of(page_len).unwritten_end(file)
    }

    /// Writes back a range and keeps other requests away from it.
    async fn hold(
        &self,
        (session, slot): (SessionId, u32),
        file: FileNumber,
        range: ByteRange,
        wait: bool,
    ) -> DelegateReply {
        loop {
            let seen = self.changed.epoch();
            {
                let mut state = self.state.lock();
                // A file that no rank has registered has no pages here, but one may register it meanwhile.
                let Some(open) = state.files.get_mut(&file) else { return self.not_open() };
                // Repeated after the loss of a connection.
                let is_repeated =
                    |held: &HeldRange| (held.session, held.slot, held.range) == (session, slot, range);
                if open.holds.iter().any(is_repeated) {
                    break;
                }
                if !open.is_held(range) {
                    open.holds.push(HeldRange { session, slot, range });
                    break;
                }
                if !wait {
                    return DelegateReply::Busy;
                }
                state.waiting += 1;
            }
            self.wait(seen).await;
        }
        self.write_back(file, range).await;
        let mut state = self.state.lock();
        if let Some(page_len) = state.files.get(&file).map(|open| open.page_len) {
            state.pages.of(page_len).forget_range(file, range);
        }
        DelegateReply::Done
    }

    /// Ends a hold. Returns false if there is none: it ended with the connections of the session.
    fn release(&self, session: SessionId, file: FileNumber, range: ByteRange) -> bool {
        let mut state = self.state.lock();
        let Some(open) = state.files.get_mut(&file) else { return false };
        let is_it = |held: &HeldRange| held.session == session && held.range == range;
        let Some(at) = open.holds.iter().position(is_it) else { return false };
        open.holds.remove(at);
        self.wake(&state);
        true
    }

    /// Releases what a session held: ranges, page locks, and its files, whose dirty bytes are written.
    async fn end_session(&self, session: SessionId) {
        let files = {
            let mut state = self.state.lock();
            for open in state.files.values_mut() {
                open.holds.retain(|held| held.session != session);
            }
            self.drop_locks_of(&mut state, session);
            self.wake(&state);
            state.sessions.remove(&session).map(|session| session.files).unwrap_or_default()
        };
        for file in files {
            self.write_back(file, ByteRange::ALL).await;
            {
                let mut state = self.state.lock();
                let state = &mut *state;
                // The process is connected again.
                if let Some(again) = state.sessions.get_mut(&session) {
                    again.files.insert(file);
                    continue;
                }
                if let Some(open) = state.files.get_mut(&file) {
                    open.opens.remove(&session);
                }
            }
            self.drop_unused(file).await;
        }
    }

    /// Waits until a request over a lost connection, which this one repeats, has ended.
    ///
    /// # Errors
    /// The client has replaced the connection.
    async fn begin_request(&self, caller: &Caller<E>) -> io::Result<()> {
        let (key, connection) = ((caller.session, caller.slot), caller.connection);
        loop {
            let seen = self.changed.epoch();
            {
                let mut state = self.state.lock();
                let state = &mut *state;
                let slot = state.slots.entry(key).or_insert_with(|| Slot::of(connection));
                if slot.current != connection {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                if slot.serving.is_none() {
                    slot.serving = Some(connection);
                    return Ok(());
                }
                state.waiting += 1;
            }
            self.wait(seen).await;
        }
    }

    fn end_request(&self, caller: &Caller<E>) {
        let mut state = self.state.lock();
        if let Some(slot) = state.slots.get_mut(&(caller.session, caller.slot)) {
            slot.serving = None;
        }
        self.wake(&state);
    }

    async fn serve_write(
        &self,
        caller: &mut Caller<E>,
        link: &mut Link<E::Conn>,
        incoming: &Incoming,
        (transfer, place): (Transfer<'_>, PayloadLocation),
    ) -> io::Result<DelegateReply> {
        let len = total(transfer.pieces);
        let payload_len = incoming.header.payload_len;
        let expected = if place == PayloadLocation::Payload { len } else { 0 };
        if let Err(error) = check(transfer.pieces, len).and_then(|()| check_payload(payload_len, expected)) {
            link.skip_payload(payload_len.into()).await?;
            return Ok(DelegateReply::Failed(error));
        }
        match place {
            PayloadLocation::Payload => {
                let mut payload = Buffer::new(&self.env, len as usize);
                if len > 0 {
                    caller.expect_peer();
                    let slice = payload.slice_mut(0..len as usize);
                    let received = link.recv_payload(&incoming.header, &mut [IoSliceMut::new(slice)]).await;
                    caller.stop_expecting();
                    if let Err(error) = received {
                        return match is_damage(&error) {
                            true => {
                                Ok(DelegateReply::Failed(WireError::new(Errno::EBADMSG, error.to_string())))
                            }
                            false => Err(error),
                        };
                    }
                }
                Ok(self.write(&transfer, &Source::Payload(&payload)).await)
            }
            PayloadLocation::Shared(from) => {
                let area = caller.area.as_ref().filter(|area| is_within(*area, from, len));
                let Some(area) = area else { return Ok(outside(len, from)) };
                Ok(self.write(&transfer, &Source::Shared(area, from as usize)).await)
            }
        }
    }

    async fn serve_read(
        &self,
        caller: &mut Caller<E>,
        link: &mut Link<E::Conn>,
        incoming: &Incoming,
        (transfer, place): (Transfer<'_>, PayloadLocation),
    ) -> io::Result<()> {
        let len = total(transfer.pieces);
        let payload_len = incoming.header.payload_len;
        link.skip_payload(payload_len.into()).await?;
        let checked = check(transfer.pieces, len);
        let mut payload = None;
        let reply = match (checked, place) {
            (Err(error), _) => DelegateReply::Failed(error),
            (Ok(()), PayloadLocation::Payload) => {
                let payload = payload.insert(Buffer::new(&self.env, len as usize));
                self.read(&transfer, &mut Destination::Payload(payload)).await
            }
            (Ok(()), PayloadLocation::Shared(to)) => {
                match caller.area.as_ref().filter(|area| is_within(*area, to, len)) {
                    Some(area) => self.read(&transfer, &mut Destination::Shared(area, to as usize)).await,
                    None => outside(len, to),
                }
            }
        };
        let payload = payload.filter(|_| len > 0 && matches!(reply, DelegateReply::Read { .. }));
        let slices = payload.as_ref().map(|payload| [IoSlice::new(payload.slice(0..len as usize))]);
        send(caller, link, incoming, &reply, slices.as_ref().map_or(&[], |slices| &slices[..])).await
    }

    async fn attach(
        &self,
        caller: &mut Caller<E>,
        link: &mut Link<E::Conn>,
        incoming: &Incoming,
        payload_len: u32,
    ) -> io::Result<()> {
        let payload_len = payload_len.min(AREA_LEN_MAX);
        let area = match caller.is_local && caller.area.is_none() && payload_len > 0 {
            true => self.env.shared(payload_len as usize).ok(),
            false => None,
        };
        let Some(area) = area else {
            return send(caller, link, incoming, &DelegateReply::Attached { payload_len: 0 }, &[]).await;
        };
        let (family, request) = (incoming.header.family, incoming.header.request);
        let reply = DelegateReply::Attached { payload_len: area.len() as u32 };
        link.send_attached(Kind::Reply, family, request, &reply, &[Attachment::Shared(area.clone())]).await?;
        caller.area = Some(area);
        Ok(())
    }

    async fn serve_one(
        &self,
        caller: &mut Caller<E>,
        link: &mut Link<E::Conn>,
        incoming: &Incoming,
    ) -> io::Result<()> {
        let attached = match incoming.header.attachments {
            0 => None,
            _ => link.conn().take_file(),
        };
        let request = match link.decode::<DelegateRequest>(incoming) {
            Ok(_) if !caller.is_administrator => {
                link.skip_payload(incoming.header.payload_len.into()).await?;
                let detail = format!("delegates of this job do not serve user {}", caller.uid);
                let reply = DelegateReply::Failed(WireError::new(Errno::EACCES, detail));
                return send(caller, link, incoming, &reply, &[]).await;
            }
            Ok(request) => request,
            Err(bad) => {
                link.skip_payload(incoming.header.payload_len.into()).await?;
                let reply = DelegateReply::Failed(WireError::new(Errno::EPROTO, bad.to_string()));
                return send(caller, link, incoming, &reply, &[]).await;
            }
        };
        self.begin_request(caller).await?;
        let served = self.serve_request(caller, link, incoming, (request, attached)).await;
        self.end_request(caller);
        served
    }

    async fn serve_request(
        &self,
        caller: &mut Caller<E>,
        link: &mut Link<E::Conn>,
        incoming: &Incoming,
        (request, attached): (DelegateRequest, Option<E::File>),
    ) -> io::Result<()> {
        let session = caller.session;
        match request {
            DelegateRequest::Write { file, pieces, place, grants } => {
                let session = grants.is_empty().then_some(session);
                let transfer = Transfer { file, session, pieces: &pieces, grants: &grants };
                let reply = self.serve_write(caller, link, incoming, (transfer, place)).await?;
                send(caller, link, incoming, &reply, &[]).await
            }
            DelegateRequest::Read { file, pieces, place, grants } => {
                let session = grants.is_empty().then_some(session);
                let transfer = Transfer { file, session, pieces: &pieces, grants: &grants };
                self.serve_read(caller, link, incoming, (transfer, place)).await
            }
            DelegateRequest::AttachShared { payload_len } => {
                self.attach(caller, link, incoming, payload_len).await
            }
            request => {
                link.skip_payload(incoming.header.payload_len.into()).await?;
                let reply = self.answer(request, caller, attached).await;
                send(caller, link, incoming, &reply, &[]).await
            }
        }
    }
}

impl<E: Env, U: Underlying<E>> AddedService<E> for Service<E, U> {
    fn connected(&self, caller: &Caller<E>) {
        let mut state = self.state.lock();
        state.sessions.entry(caller.session).or_default().connections += 1;
        let slot =
            state.slots.entry((caller.session, caller.slot)).or_insert_with(|| Slot::of(caller.connection));
        slot.current = caller.connection;
    }

    fn serve<'a>(
        &'a self,
        caller: &'a mut Caller<E>,
        link: &'a mut Link<E::Conn>,
        incoming: &'a Incoming,
    ) -> Served<'a, io::Result<()>> {
        Box::pin(self.serve_one(caller, link, incoming))
    }

    fn disconnected<'a>(&'a self, caller: &'a mut Caller<E>) -> Served<'a, ()> {
        let session = caller.session;
        let is_last = {
            let mut state = self.state.lock();
            let is_last = state.sessions.get_mut(&session).is_some_and(|session| {
                session.connections -= 1;
                session.connections == 0
            });
            if is_last {
                state.forget_slots(session);
            }
            is_last
        };
        Box::pin(async move {
            if is_last {
                self.end_session(session).await;
            }
        })
    }

    fn stop(&self) -> Served<'_, ()> {
        Box::pin(async move {
            self.is_stopping.store(true, Ordering::SeqCst);
            self.work.notify_all();
            self.ahead.notify_all();
            self.peers.iter().for_each(Peers::stop);
            let files: Vec<FileNumber> = self.state.lock().files.keys().copied().collect();
            for file in files {
                self.write_back(file, ByteRange::ALL).await;
            }
            let mut state = self.state.lock();
            let State { files, write_failures, .. } = &mut *state;
            files.keys().for_each(|file| self.report_untold(write_failures, *file));
        })
    }
}

/// Number of bytes of pieces.
pub(crate) fn total(pieces: &[FilePiece]) -> u64 {
    pieces.iter().map(|piece| u64::from(piece.len)).sum()
}

fn check(pieces: &[FilePiece], len: u64) -> Result<(), WireError> {
    let is_beyond =
        |piece: &FilePiece| piece.offset.checked_add(u64::from(piece.len)).is_none_or(|end| end > OFFSET_MAX);
    if len > u64::from(PAYLOAD_LEN_MAX) {
        let detail = format!("{len} bytes in one request, of at most {PAYLOAD_LEN_MAX}");
        return Err(WireError::new(Errno::EINVAL, detail));
    }
    if pieces.iter().any(is_beyond) {
        return Err(WireError::new(Errno::EFBIG, "a piece ends behind the last possible offset".to_owned()));
    }
    Ok(())
}

fn check_payload(payload_len: u32, expected: u64) -> Result<(), WireError> {
    if u64::from(payload_len) == expected {
        return Ok(());
    }
    let detail = format!("a request for {expected} bytes with a payload of {payload_len}");
    Err(WireError::new(Errno::EINVAL, detail))
}

fn is_within<S: Shared>(area: &S, from: u32, len: u64) -> bool {
    u64::from(from) + len <= area.len() as u64
}

fn outside(len: u64, from: u32) -> DelegateReply {
    let detail = format!("{len} bytes at {from} are outside the shared area of this connection");
    DelegateReply::Failed(WireError::new(Errno::EINVAL, detail))
}

/// Whether a payload arrived in full but failed its check, so that the connection can continue.
fn is_damage(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<weft_wire::Malformed>());
    matches!(inner, Some(weft_wire::Malformed::PayloadCheck))
}

async fn send<E: Env>(
    caller: &Caller<E>,
    link: &mut Link<E::Conn>,
    incoming: &Incoming,
    reply: &DelegateReply,
    payload: &[IoSlice<'_>],
) -> io::Result<()> {
    if incoming.header.kind == Kind::OneWay {
        return Ok(());
    }
    caller.expect_peer();
    let sent = link.send(Kind::Reply, Family::Delegate, incoming.header.request, reply, payload).await;
    caller.stop_expecting();
    sent
}

fn reply(result: Result<DelegateReply, WireError>) -> DelegateReply {
    result.unwrap_or_else(DelegateReply::Failed)
}

/// Reply to a sync or close.
fn written(failure: Option<(u64, WireError)>) -> DelegateReply {
    failure.map_or(DelegateReply::Done, |(failure, error)| DelegateReply::WriteFailed { failure, error })
}
