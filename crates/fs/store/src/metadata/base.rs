//! The base: a redb database in a file of the environment.

use super::checked::{Backend, Checked};
use super::delta::{Delta, Row};
use super::engine::{BaseCheck, EngineError, TABLES, Table};
use super::log::LogKey;
use super::record::Untrusted;
use parking_lot::Mutex;
use redb::{
    AccessGuard, Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, TableDefinition, TableError,
};
use std::ops::Bound;
use std::sync::Arc;
use weft_core::ByteLen;
use weft_env::BlockingFile;

/// Table of the base that records its position in the logs.
const APPLIED: TableDefinition<'static, u8, u64> = TableDefinition::new("applied");
/// Row with the number of the last log frame that the base includes.
const LAST_FRAME: u8 = 0;
/// Row with the key of later frames; absent in bases written before keys existed.
const LOG_KEY: u8 = 1;

/// Remedy for damage that cannot be repaired.
pub(super) const RESTORE: &str = "restore the metadata from a dump (`weft meta restore`) or from a copy of the metadata path, then run `weft fsck`";

/// Linux errno for "no space left on device".
const ENOSPC: i32 = 28;

fn definition(table: Table) -> TableDefinition<'static, &'static [u8], &'static [u8]> {
    TableDefinition::new(table.name())
}

/// The base of a database.
pub(super) struct Base<B> {
    /// `None` once closed.
    db: Mutex<Option<Database>>,
    file: Arc<Checked<B>>,
    path: String,
    cache_bytes: usize,
}

impl<B: BlockingFile> Base<B> {
    /// Opens the base in `file`, or creates an empty one if the file is empty. `sums` holds the checksums of its
    /// blocks. `cache_bytes` limits redb's page cache. A base without checksums is verified by redb's own checksums
    /// first.
    pub(super) fn open(file: B, sums: B, path: String, cache_bytes: usize) -> Result<Self, EngineError> {
        let refused = |error: std::io::Error| refusal(&path, redb::Error::Io(error));
        let file = match Checked::load(file, sums).map_err(refused)? {
            Ok(checked) => checked,
            Err((file, sums)) => {
                let is_new = file.len().map_err(refused)? == ByteLen(0);
                let recorded = Checked::record(file, sums).map_err(refused)?;
                if is_new { recorded } else { verified(recorded, &path, cache_bytes)? }
            }
        };
        let this = Self { db: Mutex::new(None), file: Arc::new(file), path, cache_bytes };
        this.reopen()?;
        Ok(this)
    }

    /// Reopens the base as after a crash, because redb stops using a file after its first error. Earlier snapshots
    /// become invalid.
    pub(super) fn reopen(&self) -> Result<(), EngineError> {
        let mut db = self.db.lock();
        // Drop the old database before opening the new one, so that only one of them writes.
        *db = None;
        self.file.forget_pending().map_err(|error| refusal(&self.path, redb::Error::Io(error)))?;
        *db = Some(open_db(&self.file, &self.path, self.cache_bytes, false)?);
        Ok(())
    }

    /// Verifies every block of the file. With `repair`, repairs blocks with a single flipped bit.
    pub(super) fn check(&self, repair: bool) -> Result<BaseCheck, EngineError> {
        self.file.check(repair).map_err(|error| refusal(&self.path, redb::Error::Io(error)))
    }

    /// Returns the number of damaged blocks that have not been repaired.
    pub(super) fn damaged(&self) -> u64 {
        self.file.damaged()
    }

    /// Returns the number of the last log frame that the base includes; 0 for an empty base.
    pub(super) fn applied(&self) -> Result<u64, EngineError> {
        self.own_row(LAST_FRAME)
    }

    /// Returns the key of the frames that the base does not include.
    pub(super) fn log_key(&self) -> Result<LogKey, EngineError> {
        self.own_row(LOG_KEY).map(LogKey)
    }

    /// Returns a row of the base's own table; 0 if it is absent.
    fn own_row(&self, row: u8) -> Result<u64, EngineError> {
        let read = self.begin_read()?;
        match read.open_table(APPLIED) {
            Ok(table) => {
                let row = table.get(row).map_err(|error| failure(&self.path, error))?;
                Ok(row.map_or(0, |row| row.value()))
            }
            Err(TableError::TableDoesNotExist(_)) => Ok(0),
            Err(error) => Err(failure(&self.path, error)),
        }
    }

    /// Applies changes up to log frame `applied` in one durable transaction. Later frames use `key`.
    pub(super) fn apply(&self, delta: &Delta, applied: u64, key: LogKey) -> Result<(), EngineError> {
        self.write(delta.all_rows(), Some((applied, key)))
    }

    /// Applies some of the changes in a durable transaction of their own. The logs still contain all of them, so a
    /// crash between these transactions is harmless.
    pub(super) fn apply_part(&self, rows: &[Row<'_>]) -> Result<(), EngineError> {
        self.write(rows.iter().copied(), None)
    }

    fn write<'a>(
        &self,
        rows: impl Iterator<Item = Row<'a>>,
        frame: Option<(u64, LogKey)>,
    ) -> Result<(), EngineError> {
        match &*self.db.lock() {
            Some(db) => Self::try_write(db, rows, frame).map_err(|error| refusal(&self.path, error)),
            None => Err(closed(&self.path)),
        }
    }

    fn begin_read(&self) -> Result<ReadTransaction, EngineError> {
        match &*self.db.lock() {
            Some(db) => db.begin_read().map_err(|error| failure(&self.path, error)),
            None => Err(closed(&self.path)),
        }
    }

    /// Stops writing. Snapshots stay readable.
    pub(super) fn close(&self) {
        *self.db.lock() = None;
    }

    fn try_write<'a>(
        db: &Database,
        rows: impl Iterator<Item = Row<'a>>,
        frame: Option<(u64, LogKey)>,
    ) -> Result<(), redb::Error> {
        let mut write = db.begin_write()?;
        // Checkpoints are rare and large, so two phases and saving the allocator's state cost little. In return, a
        // start after a crash is as fast as after a clean shutdown, whatever the size of the base.
        write.set_quick_repair(true);
        let mut rows = rows.peekable();
        while let Some(table) = rows.peek().map(|(table, ..)| *table) {
            let mut open = write.open_table(definition(table))?;
            while let Some((_, key, value)) = rows.next_if(|(next, ..)| *next == table) {
                match value {
                    Some(value) => open.insert(key, value).map(drop)?,
                    None => open.remove(key).map(drop)?,
                }
            }
        }
        if let Some((applied, key)) = frame {
            let mut own = write.open_table(APPLIED)?;
            own.insert(LAST_FRAME, applied)?;
            own.insert(LOG_KEY, key.0)?;
        }
        write.commit()?;
        Ok(())
    }

    /// Takes a snapshot of the base.
    pub(super) fn snapshot(&self) -> Result<BaseSnapshot, EngineError> {
        let read = self.begin_read()?;
        let mut tables = [const { None }; TABLES];
        for table in Table::ALL {
            tables[table as usize] = match read.open_table(definition(table)) {
                Ok(open) => Some(open),
                Err(TableError::TableDoesNotExist(_)) => None,
                Err(error) => return Err(failure(&self.path, error)),
            };
        }
        Ok(BaseSnapshot { tables, path: self.path.clone() })
    }

    /// Returns the file of the base and the file of its checksums.
    pub(super) fn files(&self) -> [&B; 2] {
        [self.file.file(), self.file.sums()]
    }
}

/// Opens redb over a file; with `verify`, redb checks the checksums of all its pages.
fn open_db<B: BlockingFile>(
    file: &Arc<Checked<B>>,
    path: &str,
    cache_bytes: usize,
    verify: bool,
) -> Result<Database, EngineError> {
    redb::Builder::new()
        .set_cache_size(cache_bytes)
        .set_check_integrity_on_open(verify)
        .create_with_backend(Backend(Arc::clone(file)))
        .map_err(|error| refusal(path, error.into()))
}

/// Verifies a base whose checksums have just been recorded.
fn verified<B: BlockingFile>(
    recorded: Checked<B>,
    path: &str,
    cache_bytes: usize,
) -> Result<Checked<B>, EngineError> {
    let file = Arc::new(recorded);
    let checked = open_db(&file, path, cache_bytes, true).map(drop);
    if let Err(error) = checked {
        // Without checksums, the next start verifies it again.
        let _ = file.sums().set_len(ByteLen(0)).and_then(|()| file.sums().sync());
        return Err(error);
    }
    Ok(Arc::into_inner(file).expect("redb has dropped it"))
}

/// Separates a full device, which free space resolves, and damage from other errors.
fn refusal(path: &str, error: redb::Error) -> EngineError {
    let path = path.to_owned();
    match error {
        redb::Error::Io(io) if io.raw_os_error() == Some(ENOSPC) => EngineError::Full { path },
        redb::Error::Io(io) if io.kind() == std::io::ErrorKind::InvalidData => {
            EngineError::Corrupt { path, what: io.to_string() }
        }
        redb::Error::Corrupted(what) => EngineError::Corrupt { path, what: format!("{what}: {RESTORE}") },
        redb::Error::PreviousIo => {
            EngineError::Corrupt { path, what: format!("a part of it could not be read: {RESTORE}") }
        }
        other => EngineError::Base { path, what: other.to_string() },
    }
}

fn failure(path: &str, what: impl Into<redb::Error>) -> EngineError {
    refusal(path, what.into())
}

fn closed(path: &str) -> EngineError {
    EngineError::Base { path: path.to_owned(), what: "closed".to_owned() }
}

/// A snapshot of the base.
pub(super) struct BaseSnapshot {
    tables: [Option<ReadOnlyTable<&'static [u8], &'static [u8]>>; TABLES],
    path: String,
}

impl BaseSnapshot {
    pub(super) fn get(&self, table: Table, key: &[u8]) -> Result<Option<Untrusted>, EngineError> {
        let Some(open) = &self.tables[table as usize] else { return Ok(None) };
        let row = open.get(key).map_err(|error| failure(&self.path, error))?;
        Ok(row.map(|row| Untrusted::new(row.value().to_vec())))
    }

    pub(super) fn range(&self, table: Table, from: Bound<&[u8]>) -> Result<BaseRange<'_>, EngineError> {
        let rows = match &self.tables[table as usize] {
            None => None,
            Some(open) => Some(
                open.range::<&[u8]>((from, Bound::Unbounded)).map_err(|error| failure(&self.path, error))?,
            ),
        };
        Ok(BaseRange { rows, path: &self.path })
    }
}

/// Iterator over rows of a table in the order of their keys.
pub(super) struct BaseRange<'a> {
    rows: Option<redb::Range<'a, &'static [u8], &'static [u8]>>,
    path: &'a str,
}

impl<'a> BaseRange<'a> {
    pub(super) fn next(&mut self) -> Result<Option<BaseRow<'a>>, EngineError> {
        match self.rows.as_mut().and_then(Iterator::next) {
            None => Ok(None),
            Some(Ok((key, value))) => Ok(Some(BaseRow { key, value })),
            Some(Err(error)) => Err(failure(self.path, error)),
        }
    }
}

/// A row of a table of the base.
pub(super) struct BaseRow<'a> {
    key: AccessGuard<'a, &'static [u8]>,
    value: AccessGuard<'a, &'static [u8]>,
}

impl BaseRow<'_> {
    pub(super) fn key(&self) -> &[u8] {
        self.key.value()
    }

    pub(super) fn value(&self) -> &[u8] {
        self.value.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use weft_core::LocalOffset;

    /// An in-memory file in which the `fails_at`-th change and all later ones fail, until repaired.
    #[derive(Clone, Default, Debug)]
    struct Failing {
        bytes: Arc<Mutex<Vec<u8>>>,
        changes: Arc<Mutex<(u64, Option<u64>)>>,
    }

    impl Failing {
        fn beside(other: &Self) -> Self {
            Self { bytes: Arc::default(), changes: Arc::clone(&other.changes) }
        }

        fn change(&self) -> io::Result<()> {
            let mut changes = self.changes.lock();
            changes.0 += 1;
            match changes.1 {
                Some(fails_at) if changes.0 >= fails_at => Err(io::Error::from_raw_os_error(5)),
                _ => Ok(()),
            }
        }

        /// Lets every change from the `fails_at`-th on fail; `None` lets all succeed.
        fn fail(&self, fails_at: Option<u64>) {
            *self.changes.lock() = (0, fails_at);
        }
    }

    impl BlockingFile for Failing {
        fn read_at(&self, buf: &mut [u8], offset: LocalOffset) -> io::Result<()> {
            let bytes = self.bytes.lock();
            let from = bytes.get(offset.0 as usize..).and_then(|from| from.get(..buf.len()));
            buf.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        }

        fn write_at(&self, buf: &[u8], offset: LocalOffset) -> io::Result<()> {
            self.change()?;
            let (mut bytes, end) = (self.bytes.lock(), offset.0 as usize + buf.len());
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[offset.0 as usize..end].copy_from_slice(buf);
            Ok(())
        }

        fn sync(&self) -> io::Result<()> {
            self.change()
        }

        fn len(&self) -> io::Result<ByteLen> {
            Ok(ByteLen(self.bytes.lock().len() as u64))
        }

        fn set_len(&self, len: ByteLen) -> io::Result<()> {
            self.change()?;
            self.bytes.lock().resize(len.0 as usize, 0);
            Ok(())
        }
    }

    fn put(base: &Base<Failing>, numbers: std::ops::Range<u32>, value: &[u8]) -> Result<(), EngineError> {
        let keys: Vec<_> = numbers.map(u32::to_be_bytes).collect();
        let rows: Vec<Row<'_>> = keys.iter().map(|key| (Table::Inodes, &key[..], Some(value))).collect();
        base.apply_part(&rows)
    }

    #[test]
    fn a_failed_write_causes_no_damage_and_is_atomic() {
        let mut failures = 0;
        for fails_at in 1.. {
            let file = Failing::default();
            let sums = Failing::beside(&file);
            let base = Base::open(file.clone(), sums, "base".into(), 1 << 20).expect("opens");
            put(&base, 0..200, &[1; 100]).expect("no failure yet");
            file.fail(Some(fails_at));
            let failed = put(&base, 100..300, &[2; 100]).is_err();
            file.fail(None);
            if !failed {
                break;
            }
            failures += 1;
            base.reopen().expect("the device works again");
            let check = base.check(false).expect("checked");
            assert_eq!(check.damaged, [], "after failure {fails_at}");
            put(&base, 400..420, &[3; 100]).expect("the device works again");
            let check = base.check(false).expect("checked");
            assert_eq!(check.damaged, [], "after failure {fails_at} and another change");
            let snapshot = base.snapshot().expect("readable");
            let rows = (0..420u32).filter(|number| {
                snapshot.get(Table::Inodes, &number.to_be_bytes()).expect("readable").is_some()
            });
            // The failed change is applied completely or not at all.
            let rows = rows.count();
            assert!(rows == 220 || rows == 320, "after failure {fails_at}: {rows} rows");
        }
        assert!(failures > 5, "a change of the base has only {failures} steps");
    }
}
