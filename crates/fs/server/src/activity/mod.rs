//! Activity by client, user and file, for `weft top`.
//!
//! Each connection keeps the rows of its client and of the files that it used last. Counting a request of a known file
//! therefore takes no lock and no memory. Rows are [bounded](table), for a server and for each user.
//!
//! | row | key | counts |
//! | --- | --- | --- |
//! | client | process and user | all its requests |
//! | user | user | the sum of the rows of its clients, and requests of clients without a row |
//! | file | inode and user | reads, writes and other requests under a valid capability; metadata requests that name the file in their reply |
//!
//! Connections of servers are not counted. The reply to an unprivileged user has the rows of that user only.

#[cfg(test)]
mod cost;
mod table;

use crate::greeting::Greeted;
use crate::latency::Operation;
use crate::lease::LeaseCounts;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use table::{Counters, Key, Row, Table};
use weft_core::{FileId, Nanos};
use weft_wire::activity::{
    CLIENTS_MAX, ClientActivity, FILES_MAX, FileActivity, USERS_MAX, UserActivity, Work,
};
use weft_wire::hello::{PROCESS_NAME_LEN_MAX, Process, SessionId};

/// Number of files whose rows a connection keeps. As many as capabilities, which are used together with them.
const KEPT_FILES_MAX: usize = 8;

/// Process of one user.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ClientKey {
    /// Anonymous number of the process.
    pub client: u64,
    /// User.
    pub uid: u32,
}

/// File as one user uses it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct FileKey {
    file: FileId,
    uid: u32,
}

impl Key for ClientKey {
    fn uid(&self) -> u32 {
        self.uid
    }
}

impl Key for FileKey {
    fn uid(&self) -> u32 {
        self.uid
    }
}

/// Description of a client.
#[derive(Debug)]
struct ClientAbout {
    process: Process,
    address: String,
}

/// Requests of a user that no row of a client has.
#[derive(Debug)]
struct UserRow {
    since: Nanos,
    counters: Counters,
}

/// Activity on one server.
pub(crate) struct Activity {
    clients: Table<ClientKey, ClientAbout>,
    files: Table<FileKey, ()>,
    users: Mutex<BTreeMap<u32, Arc<UserRow>>>,
}

/// Rows for one reply.
pub(crate) struct Rows {
    pub clients: Vec<ClientActivity>,
    pub users: Vec<UserActivity>,
    pub files: Vec<FileActivity>,
}

/// Number that names a client process. It is half as long as the session id and does not reveal it.
pub(crate) fn client_number(session: SessionId) -> u64 {
    use weft_core::random::mix64;
    let (high, low) = ((session.0 >> 64) as u64, session.0 as u64);
    mix64(mix64(high) ^ low)
}

impl Activity {
    pub fn new() -> Self {
        Self {
            clients: Table::new(CLIENTS_MAX, CLIENTS_MAX / 2),
            files: Table::new(FILES_MAX, FILES_MAX / 2),
            users: Mutex::default(),
        }
    }

    /// Returns the row of a user; `None` if there are too many users.
    fn user(&self, uid: u32, now: Nanos) -> Option<Arc<UserRow>> {
        let mut users = self.users.lock();
        if let Some(user) = users.get(&uid) {
            return Some(Arc::clone(user));
        }
        (users.len() < USERS_MAX).then(|| {
            let user = Arc::new(UserRow { since: now, counters: Counters::default() });
            users.insert(uid, Arc::clone(&user));
            user
        })
    }

    fn client(
        &self,
        key: ClientKey,
        now: Nanos,
        about: impl FnOnce() -> ClientAbout,
    ) -> Option<Arc<Row<ClientAbout>>> {
        self.clients.row(key, now, about, |key, row| {
            if let Some(user) = self.user(key.uid, row.since) {
                user.counters.add(&row.counters.work());
            }
        })
    }

    /// Returns the rows of one user, or of all users with `None`.
    pub fn rows(&self, of: Option<u32>, leases: &LeaseCounts) -> Rows {
        let wants = |uid: u32| of.is_none_or(|of| of == uid);
        // No row of a client makes room between the two, so that its work is in one of them.
        let (mut users, clients) = self.clients.read(|rows| {
            let users = self.users.lock();
            let mut users: BTreeMap<u32, UserActivity> = users
                .iter()
                .filter(|(uid, _)| wants(**uid))
                .map(|(uid, row)| (*uid, row.activity(*uid)))
                .collect();
            let clients: Vec<_> = rows
                .iter()
                .filter(|(key, _)| wants(key.uid))
                .map(|(key, row)| client_activity(key, row, leases))
                .collect();
            for client in &clients {
                if let Some(user) = users.get_mut(&client.uid) {
                    user.work.add(&client.work);
                }
            }
            (users, clients)
        });
        for (key, count) in &leases.by_client {
            if let Some(user) = users.get_mut(&key.uid) {
                user.leases += count;
            }
        }
        let mut files: Vec<_> = self.files.read(|rows| {
            let file = |(key, row): (&FileKey, &Arc<Row<()>>)| FileActivity {
                file: key.file,
                uid: key.uid,
                since: row.since,
                leases: leases.by_file.get(&(key.file, key.uid)).copied().unwrap_or(0),
                work: row.counters.work(),
            };
            rows.iter().filter(|(key, _)| wants(key.uid)).map(file).collect()
        });
        // A file can be used by leases alone for longer than its row lasts.
        let listed: BTreeSet<_> = files.iter().map(|row| (row.file, row.uid)).collect();
        for (&(file, uid), &leases) in leases.by_file.iter().filter(|((_, uid), _)| wants(*uid)) {
            if !listed.contains(&(file, uid)) && files.len() < FILES_MAX {
                files.push(FileActivity { file, uid, since: Nanos(0), leases, work: Work::default() });
            }
        }
        files.sort_by_key(|row| (row.file, row.uid));
        Rows { clients, users: users.into_values().collect(), files }
    }
}

impl UserRow {
    fn activity(&self, uid: u32) -> UserActivity {
        UserActivity { uid, since: self.since, leases: 0, work: self.counters.work() }
    }
}

fn client_activity(key: &ClientKey, row: &Row<ClientAbout>, leases: &LeaseCounts) -> ClientActivity {
    ClientActivity {
        client: key.client,
        uid: key.uid,
        since: row.since,
        process: row.about.process.clone(),
        address: row.about.address.clone(),
        connections: row.connections.load(Ordering::Relaxed),
        leases: leases.by_client.get(key).copied().unwrap_or(0),
        work: row.counters.work(),
    }
}

/// Rows of one connection.
pub(crate) struct ConnectionActivity {
    activity: Arc<Activity>,
    /// `None` for a connection of a server, which is not counted.
    key: Option<ClientKey>,
    process: Process,
    address: String,
    client: Option<Arc<Row<ClientAbout>>>,
    user: Option<Arc<UserRow>>,
    files: [Option<(FileId, Arc<Row<()>>)>; KEPT_FILES_MAX],
    next: usize,
}

/// Bounds a name that a client claims.
fn clipped(name: &str) -> String {
    let mut end = name.len().min(PROCESS_NAME_LEN_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].to_owned()
}

impl ConnectionActivity {
    /// Begins to count a connection.
    pub fn new(activity: &Arc<Activity>, greeted: &Greeted, now: Nanos) -> Self {
        let uid = greeted.principal.identity.uid;
        let is_counted = !greeted.principal.is_server;
        let key = is_counted.then(|| ClientKey { client: client_number(greeted.session), uid });
        let mut this = Self {
            activity: Arc::clone(activity),
            key,
            process: Process {
                host: clipped(&greeted.process.host),
                pid: greeted.process.pid,
                program: clipped(&greeted.process.program),
            },
            address: clipped(&greeted.address),
            client: None,
            user: None,
            files: Default::default(),
            next: 0,
        };
        this.find_client(now);
        this
    }

    /// Client and user, for leases; `None` for a server.
    pub fn key(&self) -> Option<ClientKey> {
        self.key
    }

    fn find_client(&mut self, now: Nanos) {
        let Some(key) = self.key else { return };
        self.leave_client();
        let about = || ClientAbout { process: self.process.clone(), address: self.address.clone() };
        self.client = self.activity.client(key, now, about);
        if let Some(client) = &self.client {
            client.connections.fetch_add(1, Ordering::Relaxed);
        }
        if self.user.is_none() {
            self.user = self.activity.user(key.uid, now);
        }
    }

    fn leave_client(&mut self) {
        if let Some(client) = self.client.take() {
            client.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Counts a request that moved `bytes` and ended at `now`, on a file if it was authorized for one.
    pub fn count(&mut self, operation: Operation, file: Option<FileId>, bytes: u64, took: Nanos, now: Nanos) {
        let Some(key) = self.key else { return };
        if !self.client.as_ref().is_some_and(|row| row.count(operation, bytes, took, now)) {
            self.find_client(now);
            if !self.client.as_ref().is_some_and(|row| row.count(operation, bytes, took, now))
                && let Some(user) = &self.user
            {
                user.counters.count(operation, bytes, took);
            }
        }
        let Some(file) = file.map(FileId::inode) else { return };
        let kept = self.files.iter().flatten().find(|(kept, _)| *kept == file);
        if kept.is_some_and(|(_, row)| row.count(operation, bytes, took, now)) {
            return;
        }
        let key = FileKey { file, uid: key.uid };
        let Some(row) = self.activity.files.row(key, now, || (), |_, _| ()) else { return };
        row.count(operation, bytes, took, now);
        // A row that made room is replaced first.
        let slot = self.files.iter().position(|kept| kept.as_ref().is_none_or(|(_, row)| !row.is_listed()));
        let slot = slot.unwrap_or(self.next);
        self.files[slot] = Some((file, row));
        self.next = (slot + 1) % KEPT_FILES_MAX;
    }
}

impl Drop for ConnectionActivity {
    fn drop(&mut self) {
        self.leave_client();
    }
}
