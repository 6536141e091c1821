//! Requests of clients to servers.

use super::state::{ClientNumber, InFlight, Lockable, LockingFs, range_of};
use std::collections::BTreeMap;
use std::future::Future;
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, LocalOffset};
use weft_env::sim::{SimEnv, SimFile};
use weft_env::{Create, Dir, Env, File, Hollow, Notify, OpenMode};
use weft_models::locks::LockKind;

/// Mount path of a server's disk.
pub(super) const DISK: &str = "/t";
/// Directory of the objects.
pub(super) const OBJECTS: &str = "objects";
/// Bytes of a request or reply without its payload.
const HEAD_LEN: u64 = 256;

/// Ranges that one request writes to the object of a file at a server.
struct Request {
    server: u32,
    /// Ranges of the lockable.
    runs: Vec<ByteRange>,
    /// Ranges of the object.
    local: Vec<ByteRange>,
}

impl Request {
    fn len(&self) -> u64 {
        self.local.iter().map(|run| run.len()).sum()
    }
}

impl LockingFs {
    /// Bytes of a range that a client has not sent to a server yet.
    pub(super) fn dirty_bytes(&self, client: ClientNumber, lockable: Lockable, range: ByteRange) -> u64 {
        let state = self.state.lock();
        let cache = state.clients[client.0 as usize].caches.get(&lockable);
        let within = |run: ByteRange| run.intersection(range).map_or(0, ByteRange::len);
        cache.map_or(0, |cache| cache.dirty.overlapping(range).map(within).sum())
    }

    /// Marks a range as dirty.
    pub(super) fn add_dirty(&self, client: ClientNumber, lockable: Lockable, range: ByteRange) {
        let account = self.account_of(lockable);
        let mut state = self.state.lock();
        let client = &mut state.clients[client.0 as usize];
        let cache = client.caches.entry(lockable).or_default();
        cache.valid.insert(range);
        let added = cache.dirty.insert(range);
        *client.unwritten.entry(account).or_default() += added;
        state.counters.overwritten_bytes += range.len() - added;
    }

    /// Starts requests for as many dirty bytes of a lockable as fill whole ones: any bytes of an object (Lustre), or
    /// whole blocks (GPFS).
    pub(super) fn write_full_requests(
        self: &Arc<Self>,
        client: ClientNumber,
        lockable: Lockable,
        near: ByteRange,
    ) {
        let most = self.figures.request_max;
        let runs = {
            let state = self.state.lock();
            let Some(cache) = state.clients[client.0 as usize].caches.get(&lockable) else { return };
            match self.figures.kind {
                LockKind::Extents => {
                    let mut left = cache.dirty.bytes() / most * most;
                    let mut runs = Vec::new();
                    for run in cache.dirty.iter() {
                        if left == 0 {
                            break;
                        }
                        let len = run.len().min(left);
                        left -= len;
                        runs.extend(ByteRange::with_len(run.start(), len));
                    }
                    runs
                }
                LockKind::Tokens => {
                    let blocks = near.start() / most..near.end().div_ceil(most);
                    let blocks = blocks.filter_map(|block| ByteRange::new(block * most, (block + 1) * most));
                    blocks.filter(|block| cache.dirty.contains(*block)).collect()
                }
            }
        };
        for request in self.take_requests(client, lockable, &runs) {
            self.start_request(client, lockable, request);
        }
    }

    /// Writes all dirty bytes of a range and waits until none of it is under way.
    pub(super) async fn write_range(
        self: &Arc<Self>,
        client: ClientNumber,
        lockable: Lockable,
        range: ByteRange,
    ) {
        for request in self.take_requests(client, lockable, &[range]) {
            self.start_request(client, lockable, request);
        }
        let changed = self.changed(client);
        loop {
            let epoch = changed.epoch();
            let is_under_way = {
                let state = self.state.lock();
                let mut under_way = state.clients[client.0 as usize].in_flight.values();
                under_way
                    .any(|one| one.lockable == lockable && one.runs.iter().any(|run| run.overlaps(range)))
            };
            if !is_under_way {
                return;
            }
            changed.wait(epoch, None).await;
        }
    }

    /// Writes all dirty bytes of a file and waits until none is under way.
    pub(super) async fn write_file(self: &Arc<Self>, client: ClientNumber, file: u32) {
        let lockables: Vec<Lockable> = {
            let state = self.state.lock();
            let client = &state.clients[client.0 as usize];
            let cached = client.caches.keys().copied();
            let all = cached.chain(client.in_flight.values().map(|one| one.lockable));
            all.filter(|lockable| self.file_of(*lockable) == file).collect()
        };
        let each = lockables.into_iter().map(|lockable| self.write_range(client, lockable, ByteRange::ALL));
        all(each).await;
    }

    /// Waits until the client's account of a lockable has room for its dirty bytes.
    pub(super) async fn wait_for_cache(self: &Arc<Self>, client: ClientNumber, lockable: Lockable) {
        let account = self.account_of(lockable);
        let changed = self.changed(client);
        loop {
            let epoch = changed.epoch();
            let is_full = {
                let state = self.state.lock();
                let unwritten = &state.clients[client.0 as usize].unwritten;
                unwritten.get(&account).copied().unwrap_or(0) > self.figures.cache
            };
            if !is_full {
                return;
            }
            let all: Vec<Lockable> = {
                let state = self.state.lock();
                let caches = state.clients[client.0 as usize].caches.iter();
                let of_account = caches.filter(|(lockable, cache)| {
                    self.account_of(**lockable) == account && !cache.dirty.is_empty()
                });
                of_account.map(|(lockable, _)| *lockable).collect()
            };
            for lockable in all {
                for request in self.take_requests(client, lockable, &[ByteRange::ALL]) {
                    self.start_request(client, lockable, request);
                }
            }
            changed.wait(epoch, None).await;
        }
    }

    /// Takes the dirty bytes in `ranges` and divides them into requests.
    fn take_requests(&self, client: ClientNumber, lockable: Lockable, ranges: &[ByteRange]) -> Vec<Request> {
        let mut state = self.state.lock();
        let Some(cache) = state.clients[client.0 as usize].caches.get_mut(&lockable) else {
            return Vec::new();
        };
        let mut requests: Vec<Request> = Vec::new();
        let mut open: BTreeMap<u32, usize> = BTreeMap::new();
        for range in ranges {
            let dirty = cache.dirty.overlapping(*range);
            let runs: Vec<ByteRange> = dirty.filter_map(|run| run.intersection(*range)).collect();
            cache.dirty.remove(*range);
            for run in runs {
                for (server, part, local) in self.pieces(lockable, run) {
                    let fits = open.get(&server).filter(|index| {
                        let request = &requests[**index];
                        self.figures.kind == LockKind::Extents
                            && request.len() + local.len() <= self.figures.request_max
                    });
                    let index = match fits {
                        Some(index) => *index,
                        None => {
                            requests.push(Request { server, runs: Vec::new(), local: Vec::new() });
                            requests.len() - 1
                        }
                    };
                    open.insert(server, index);
                    requests[index].runs.push(part);
                    requests[index].local.push(local);
                }
            }
        }
        requests
    }

    /// Divides a range of a lockable into parts that each fit into a request: server, range, and range of the object.
    fn pieces(&self, lockable: Lockable, range: ByteRange) -> Vec<(u32, ByteRange, ByteRange)> {
        let f = &self.figures;
        let step = if f.kind == LockKind::Tokens { f.stripe.min(f.request_max) } else { f.request_max };
        let mut pieces = Vec::new();
        let mut at = range.start();
        while at < range.end() {
            let end = ((at / step + 1) * step).min(range.end());
            let (server, local) = match f.kind {
                LockKind::Extents => (lockable.0 % f.servers, at),
                LockKind::Tokens => {
                    let number = at / f.stripe;
                    ((number + lockable.0) % f.servers, number / f.servers * f.stripe + at % f.stripe)
                }
            };
            pieces.push((server as u32, range_of(at..end), range_of(local..local + end - at)));
            at = end;
        }
        pieces
    }

    /// Starts a task that performs a request.
    fn start_request(self: &Arc<Self>, client: ClientNumber, lockable: Lockable, request: Request) {
        let (number, env) = {
            let mut state = self.state.lock();
            let number = state.next_request;
            state.next_request += 1;
            state.counters.write_requests += 1;
            state.counters.write_bytes += request.len();
            let client = &mut state.clients[client.0 as usize];
            client.in_flight.insert(number, InFlight { lockable, runs: request.runs.clone() });
            (number, client.env.clone())
        };
        let (fs, here) = (Arc::clone(self), env.clone());
        let started = env.spawn("write-back", move || async move {
            fs.perform(client, &here, lockable, &request).await;
            let account = fs.account_of(lockable);
            let mut state = fs.state.lock();
            let client = &mut state.clients[client.0 as usize];
            client.in_flight.remove(&number);
            let bytes: u64 = request.runs.iter().map(|run| run.len()).sum();
            *client.unwritten.get_mut(&account).expect("added with the bytes") -= bytes;
            *client.running.get_mut(&request.server).expect("added by the request") -= 1;
            client.changed.notify_all();
        });
        started.expect("the client is alive");
    }

    async fn perform(&self, client: ClientNumber, env: &SimEnv, lockable: Lockable, request: &Request) {
        let changed = self.changed(client);
        loop {
            let epoch = changed.epoch();
            {
                let mut state = self.state.lock();
                let running = state.clients[client.0 as usize].running.entry(request.server).or_default();
                if *running < self.figures.in_flight {
                    *running += 1;
                    break;
                }
            }
            changed.wait(epoch, None).await;
        }
        let object = self.object(request.server, self.file_of(lockable)).await;
        let at = self.control.transfer(env, self.server(request.server), ByteLen(request.len() + HEAD_LEN));
        self.sleep_until(env, at.0).await;
        self.use_server(env, request.server).await;
        let units: Vec<ByteRange> = request.local.iter().map(|run| self.whole_units(*run)).collect();
        let units_len: u64 = units.iter().map(|run| run.len()).sum();
        self.state.lock().counters.unit_rest_bytes += units_len - request.len();
        let writes = units.into_iter().map(|run| {
            let object = object.clone();
            async move {
                let bytes = payload(run.len());
                let written = object.write_at(&[IoSlice::new(&bytes)], LocalOffset(run.start())).await;
                written.expect("the disk of a model has no faults");
            }
        });
        all(writes).await;
        let at = self.control.transfer(self.server(request.server), env, ByteLen(HEAD_LEN));
        self.sleep_until(env, at.0).await;
    }

    /// Reads a range from the servers.
    pub(super) async fn read_range(&self, client: ClientNumber, lockable: Lockable, range: ByteRange) {
        let env = self.env_of(client);
        let file = self.file_of(lockable);
        let reads = self.pieces(lockable, self.whole_units(range)).into_iter().map(|(server, _, local)| {
            let env = env.clone();
            async move {
                let object = self.object(server, file).await;
                let at = self.control.transfer(&env, self.server(server), ByteLen(HEAD_LEN));
                self.sleep_until(&env, at.0).await;
                self.use_server(&env, server).await;
                let mut bytes = payload(local.len());
                let read =
                    object.read_at(&mut [IoSliceMut::new(&mut bytes)], LocalOffset(local.start())).await;
                read.expect("the disk of a model has no faults");
                let at = self.control.transfer(self.server(server), &env, ByteLen(local.len() + HEAD_LEN));
                self.sleep_until(&env, at.0).await;
            }
        });
        all(reads).await;
        let mut state = self.state.lock();
        state.clients[client.0 as usize]
            .caches
            .entry(lockable)
            .or_default()
            .valid
            .insert(self.whole_units(range));
    }

    /// Extends a range to whole write units.
    pub(super) fn whole_units(&self, range: ByteRange) -> ByteRange {
        let unit = self.figures.unit;
        range_of(range.start() / unit * unit..range.end().next_multiple_of(unit))
    }

    fn server(&self, server: u32) -> &SimEnv {
        &self.servers[server as usize]
    }

    /// Waits for the processor of a server and its work for a request.
    async fn use_server(&self, env: &SimEnv, server: u32) {
        let at = {
            let mut state = self.state.lock();
            let free = &mut state.server_free[server as usize];
            *free = (*free).max(self.control.elapsed().0) + self.figures.request_ns;
            *free
        };
        self.sleep_until(env, at).await;
    }

    /// Opens the object of a file at a server.
    async fn object(&self, server: u32, file: u32) -> SimFile {
        if let Some(object) = self.state.lock().objects.get(&(server, file)) {
            return object.clone();
        }
        let opened = async {
            // The name contains the directory, by which the disk recognizes objects.
            let disk = self.server(server).dir(Path::new(DISK)).await?;
            let mode = OpenMode { write: true, create: Create::IfMissing, direct: true };
            disk.open(&format!("{OBJECTS}/{file}"), mode).await
        };
        let object = opened.await.expect("the disk of a model has no faults");
        self.state.lock().objects.entry((server, file)).or_insert(object).clone()
    }
}

/// Buffer of a payload without contents.
fn payload(len: u64) -> Hollow {
    Hollow::new(len as usize).expect("addresses for a buffer")
}

/// Runs all futures at once.
pub(super) async fn all<F: Future<Output = ()>>(futures: impl IntoIterator<Item = F>) {
    let mut left: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    std::future::poll_fn(|context| {
        left.retain_mut(|future| future.as_mut().poll(context).is_pending());
        if left.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
