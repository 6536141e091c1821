//! Dumps: consistent states of the database, read page by page while the service continues.

use super::fault::{Fault, Outcome};
use super::serve::Call;
use super::tables::allocator;
use super::{ConnectionContext, Service};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use weft_core::Nanos;
use weft_env::Env;
use weft_store::metadata::{Scan, Snapshot, StoredSnapshot, Table};
use weft_wire::BoundSession;
use weft_wire::Errno;
use weft_wire::meta::{DUMP_ROWS_MAX, DUMPS_MAX, DumpBegun, DumpedRow, MetaReply};

/// Approximate maximum size of a page.
const PAGE_BYTES_MAX: usize = 512 << 10;
/// Size of a row on a page in addition to its bytes.
const ROW_BYTES: usize = 16;
/// Time without a request after which a dump ends, because its client is gone.
const IDLE_MAX: Nanos = Nanos::from_s(60);

/// Dumps in progress.
#[derive(Default)]
pub(super) struct Dumps(Mutex<State>);

#[derive(Default)]
struct State {
    last_number: u64,
    dumps: BTreeMap<u64, Dump>,
}

struct Dump {
    session: BoundSession,
    snapshot: Arc<StoredSnapshot>,
    last_used: Nanos,
}

impl Dumps {
    /// Ends idle dumps. Returns whether another one may begin.
    fn has_room(&self, now: Nanos) -> bool {
        let mut state = self.0.lock();
        state.dumps.retain(|_, dump| now < dump.last_used.saturating_add(IDLE_MAX));
        state.dumps.len() < DUMPS_MAX
    }

    fn add(&self, session: BoundSession, snapshot: StoredSnapshot, now: Nanos) -> u64 {
        let mut state = self.0.lock();
        state.last_number += 1;
        let number = state.last_number;
        state.dumps.insert(number, Dump { session, snapshot: Arc::new(snapshot), last_used: now });
        number
    }

    fn get(&self, session: BoundSession, number: u64, now: Nanos) -> Option<Arc<StoredSnapshot>> {
        let mut state = self.0.lock();
        let dump = state.dumps.get_mut(&number).filter(|dump| dump.session == session)?;
        dump.last_used = now;
        Some(Arc::clone(&dump.snapshot))
    }

    fn end(&self, session: BoundSession, number: u64) {
        self.0.lock().dumps.retain(|found, dump| *found != number || dump.session != session);
    }

    /// Ends the dumps of a session that has ended.
    pub(super) fn session_ended(&self, session: BoundSession) {
        self.0.lock().dumps.retain(|_, dump| dump.session != session);
    }

    /// Ends all dumps.
    pub(super) fn clear(&self) {
        self.0.lock().dumps.clear();
    }
}

impl<E: Env> Service<E> {
    pub(super) async fn begin_dump(&self, ctx: &ConnectionContext) -> Outcome<MetaReply> {
        if !self.dumps.has_room(self.env.now()) {
            let why =
                format!("{DUMPS_MAX} dumps of the metadata are in progress: try again when one has ended");
            return Err(Fault::new(Errno::EBUSY, why));
        }
        let snapshot = self.journal.snapshot().await?;
        let inodes = allocator(&snapshot)?.inodes;
        let identity = self.journal.identity_bytes();
        let number = self.dumps.add(ctx.session, snapshot, self.env.now());
        Ok(MetaReply::DumpBegun(Box::new(DumpBegun { number, made: self.env.wall(), identity, inodes })))
    }

    /// Rows after `after`, or the first ones. The page is empty at the end.
    pub(super) fn dump_page(
        &self,
        call: &Call<'_>,
        number: u64,
        after: Option<(u8, Vec<u8>)>,
    ) -> Outcome<MetaReply> {
        let Some(snapshot) = self.dumps.get(call.ctx.session, number, self.env.now()) else {
            let why = "the metadata server does not know this dump any more: begin it again";
            return Err(Fault::new(Errno::ESTALE, why));
        };
        let (first, after) = match after {
            None => (0, None),
            Some((table, key)) => (table, Some(key)),
        };
        let (mut rows, mut bytes) = (Vec::new(), 0);
        for table in Table::ALL.into_iter().filter(|table| *table as u8 >= first) {
            let from = after.as_deref().filter(|_| table as u8 == first);
            let from = from.map_or(Bound::Unbounded, Bound::Excluded);
            let is_full = |rows: &Vec<_>, bytes| rows.len() >= DUMP_ROWS_MAX || bytes >= PAGE_BYTES_MAX;
            snapshot.scan(table, from, &mut |key, value| {
                bytes += key.len() + value.bytes().len() + ROW_BYTES;
                rows.push(DumpedRow { table: table as u8, key: key.to_vec(), value: value.bytes().to_vec() });
                Ok(if is_full(&rows, bytes) { Scan::Stop } else { Scan::Next })
            })?;
            if is_full(&rows, bytes) {
                break;
            }
        }
        Ok(MetaReply::Dumped(rows))
    }

    pub(super) fn end_dump(&self, call: &Call<'_>, number: u64) {
        self.dumps.end(call.ctx.session, number);
    }
}
