//! Creates a database from a dump.

use super::files::{BASE, IDENTITY, LOCK, SUMS, make_files, store_identity};
use super::{JournalOptions, OpenError};
use crate::metadata::base::Base;
use crate::metadata::dump::{DumpError, DumpHeader, DumpRow};
use crate::metadata::engine::{EngineError, Table};
use crate::metadata::identity::{Identity, IdentityError};
use crate::metadata::log::LogKey;
use crate::metadata::record::{Damaged, Untrusted, seal};
use crate::metadata::rows::{
    Inode, LEVELS_KEY, LevelsRow, Node, RESTORED_KEY, ReplicaRow, RestoredRow, START_KEY, StartRow, TargetRow,
};
use std::io;
use weft_core::replicas::Phase;
use weft_core::{FileId, Timestamp};
use weft_env::{Dir, Env, File, OpenMode};

/// Bytes of rows per transaction of the base.
const PART_LEN: usize = 4 << 20;
/// Start numbers skipped between dump and restored database. Starts after the dump used some of them, and state that
/// clients kept from those must not match the restored database. By the gap, the first start knows that the database was
/// restored.
const STARTS_SKIPPED: u32 = 1 << 16;
/// Generations skipped per file: moves after the dump may have left datafiles with these generations.
const GENERATIONS_SKIPPED: u16 = 256;
/// Frame number that the restored base includes; the logs begin after it.
const LAST_FRAME: u64 = 1;

/// A restored database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restored {
    /// Name and identity of its cluster.
    pub identity: Identity,
    /// Time when the dump was made.
    pub dumped: Timestamp,
    /// Number of rows.
    pub rows: u64,
    /// Number of inodes.
    pub inodes: u64,
    /// Highest file id of an inode.
    pub last_file: FileId,
}

/// Error of a restore.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The directory is not empty.
    #[error(
        "it is not empty (it contains {0:?}), and nothing is overwritten: give an empty directory, or move its \
         content elsewhere first"
    )]
    NotEmpty(String),
    /// The dump cannot be read.
    #[error(transparent)]
    Dump(#[from] DumpError),
    /// The dump's identity is invalid.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A row of the dump is damaged.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// The directory cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The base cannot be written.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Error of the file system.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Creates a database in the empty directory `dir` from the rows that `next_row` returns, in ascending order. The
/// identity is written last, so an incomplete restore cannot be started and must be removed by hand.
///
/// # Errors
/// [`RestoreError`].
pub async fn restore<E: Env>(
    env: &E,
    dir: &E::Dir,
    dir_name: &str,
    header: &DumpHeader,
    mut next_row: impl FnMut() -> Result<Option<DumpRow>, DumpError>,
    options: JournalOptions,
) -> Result<Restored, RestoreError> {
    let identity = Identity::decode(&header.identity)?;
    let in_the_way = |name: &&String| ![LOCK, "lost+found"].contains(&name.as_str());
    if let Some(name) = dir.list("").await?.iter().find(in_the_way) {
        return Err(RestoreError::NotEmpty(name.clone()));
    }
    let _lock = match dir.lock(LOCK).await {
        Ok(lock) => lock,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(OpenError::InUse.into()),
        Err(error) => return Err(error.into()),
    };
    make_files(dir, options).await?;
    let base = dir.open(BASE, OpenMode::WRITE).await?;
    let sums = dir.open(SUMS, OpenMode::WRITE).await?;
    let cache = usize::try_from(options.cache_len.0).unwrap_or(usize::MAX);
    let open = Base::open(base.blocking(), sums.blocking(), format!("{dir_name}/{BASE}"), cache)?;

    let mut restored = Restored { identity, dumped: header.made, rows: 0, inodes: 0, last_file: FileId(0) };
    let (mut part, mut part_len) = (Vec::new(), 0);
    let write = |part: &mut Vec<DumpRow>| {
        let rows: Vec<_> = part.iter().map(|row| (row.table, &row.key[..], Some(&row.value[..]))).collect();
        let written = open.apply_part(&rows);
        part.clear();
        written
    };
    while let Some(row) = next_row()? {
        restored.rows += 1;
        if row.table == Table::Inodes {
            restored.inodes += 1;
            let file = row.key.first_chunk().map_or(0, |key| u64::from_be_bytes(*key));
            restored.last_file = restored.last_file.max(FileId(file));
        }
        let row = changed(row)?;
        part_len += row.key.len() + row.value.len();
        part.push(row);
        if part_len > PART_LEN {
            write(&mut part)?;
            part_len = 0;
        }
    }
    write(&mut part)?;
    let marks = RestoredRow { dumped: header.made, restored: env.wall() };
    let value = seal(Table::Counters, RESTORED_KEY, &marks);
    open.apply_part(&[(Table::Counters, RESTORED_KEY, Some(&value))])?;
    let mut key = [0; 8];
    env.random(&mut key);
    open.apply(&crate::metadata::delta::Delta::default(), LAST_FRAME, LogKey(u64::from_le_bytes(key)))?;
    drop(open);
    base.sync().await?;
    sums.sync().await?;
    debug_assert!(!dir.list("").await?.iter().any(|name| name == IDENTITY));
    store_identity(dir, &header.identity).await?;
    Ok(restored)
}

/// Adapts a row of the dump to the restored database.
fn changed(row: DumpRow) -> Result<DumpRow, Damaged> {
    let DumpRow { table, key, value } = row;
    let value = match table {
        Table::Counters if key == START_KEY => {
            let start: StartRow = Untrusted::new(value).open(table, &key)?;
            // The restored database starts as after a crash.
            let incarnation = start.incarnation.saturating_add(STARTS_SKIPPED);
            seal(table, &key, &StartRow { incarnation, clean: false, unused: false })
        }
        Table::Counters if key == LEVELS_KEY => {
            // Servers may have returned to an earlier version after the dump. They report at their next start.
            let row: LevelsRow = Untrusted::new(value).open(table, &key)?;
            seal(table, &key, &LevelsRow { servers: Vec::new(), ..row })
        }
        Table::Targets => {
            // Targets were attached after the dump. A restore continues with them as they are.
            let row: TargetRow = Untrusted::new(value).open(table, &key)?;
            seal(table, &key, &TargetRow { accepts: true, ..row })
        }
        Table::Replicas => {
            let mut row: ReplicaRow = Untrusted::new(value).open(table, &key)?;
            // The file may have been changed without its replica after the dump. Newer bytes in the replica are not given up.
            if row.dirty.is_empty() {
                row.phase = Phase::Outdated;
            }
            seal(table, &key, &row)
        }
        Table::Inodes => {
            let mut inode: Inode = Untrusted::new(value).open(table, &key)?;
            if let Node::Regular { generations, .. } = &mut inode.node {
                generations.last = generations.last.saturating_add(GENERATIONS_SKIPPED);
            }
            seal(table, &key, &inode)
        }
        _ => value,
    };
    Ok(DumpRow { table, key, value })
}
