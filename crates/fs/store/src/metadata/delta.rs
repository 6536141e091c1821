//! Changes in memory, layered over the base.

use super::base::BaseSnapshot;
use super::engine::{EngineError, Scan, TABLES, Table, Visit};
use super::record::Untrusted;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Rows that were set (`Some`) or removed (`None`).
pub(super) type Rows = BTreeMap<Box<[u8]>, Option<Box<[u8]>>>;

/// A row of a table: key, and value unless it is removed.
pub(super) type Row<'a> = (Table, &'a [u8], Option<&'a [u8]>);

/// Approximate memory overhead of a row: the map's node and two allocations.
const ROW_OVERHEAD_BYTES: u64 = 96;

/// Changes of all tables.
#[derive(Clone, Default, Debug)]
pub(super) struct Delta {
    tables: [Rows; TABLES],
    bytes: u64,
}

impl Delta {
    pub(super) fn get(&self, table: Table, key: &[u8]) -> Option<Option<&[u8]>> {
        self.tables[table as usize].get(key).map(|value| value.as_deref())
    }

    pub(super) fn set(&mut self, table: Table, key: &[u8], value: Option<Box<[u8]>>) {
        let len = value.as_ref().map_or(0, |value| value.len() as u64);
        match self.tables[table as usize].get_mut(key) {
            Some(old) => {
                self.bytes -= old.as_ref().map_or(0, |value| value.len() as u64);
                *old = value;
            }
            None => {
                self.tables[table as usize].insert(key.into(), value);
                self.bytes += key.len() as u64 + ROW_OVERHEAD_BYTES;
            }
        }
        self.bytes += len;
    }

    /// Returns the approximate size in memory.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tables.iter().all(|rows| rows.is_empty())
    }

    pub(super) fn rows(&self, table: Table) -> &Rows {
        &self.tables[table as usize]
    }

    /// Iterates over all rows, table by table.
    pub(super) fn all_rows(&self) -> impl Iterator<Item = Row<'_>> {
        let of = |table| self.rows(table).iter().map(move |(key, value)| (table, &**key, value.as_deref()));
        Table::ALL.into_iter().flat_map(of)
    }

    /// Returns all rows in parts of about `len` bytes.
    pub(super) fn parts(&self, len: u64) -> Vec<Vec<Row<'_>>> {
        let mut parts = vec![Vec::new()];
        let mut room = len;
        for row in self.all_rows() {
            let (_, key, value) = row;
            let taken = (key.len() + value.map_or(0, <[u8]>::len)) as u64 + ROW_OVERHEAD_BYTES;
            if taken > room {
                parts.push(Vec::new());
                room = len;
            }
            room = room.saturating_sub(taken);
            parts.last_mut().expect("never empty").push(row);
        }
        parts
    }

    /// Applies the newer changes of `other`.
    pub(super) fn absorb(&mut self, other: Delta) {
        for (table, rows) in Table::ALL.into_iter().zip(other.tables) {
            for (key, value) in rows {
                self.set(table, &key, value);
            }
        }
    }
}

/// Layers of changes over a base, newest first.
pub(super) struct Layers<'a> {
    pub deltas: [Option<&'a Delta>; 3],
    pub base: &'a BaseSnapshot,
}

impl Layers<'_> {
    pub(super) fn get(&self, table: Table, key: &[u8]) -> Result<Option<Untrusted>, EngineError> {
        for delta in self.deltas.iter().flatten() {
            if let Some(value) = delta.get(table, key) {
                return Ok(value.map(|bytes| Untrusted::new(bytes.to_vec())));
            }
        }
        self.base.get(table, key)
    }

    pub(super) fn scan(
        &self,
        table: Table,
        from: Bound<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), EngineError> {
        let mut changes: Vec<_> = self
            .deltas
            .iter()
            .flatten()
            .map(|delta| delta.rows(table).range::<[u8], _>((from, Bound::Unbounded)).peekable())
            .collect();
        let mut base = self.base.range(table, from)?;
        let mut stored = base.next()?;
        loop {
            let changed = changes.iter_mut().filter_map(|rows| rows.peek().map(|(key, _)| &***key)).min();
            let key: Box<[u8]> = match (changed, &stored) {
                (None, None) => return Ok(()),
                (Some(key), None) => key.into(),
                (None, Some(row)) => row.key().into(),
                (Some(key), Some(row)) => key.min(row.key()).into(),
            };
            let mut value = None;
            for rows in &mut changes {
                if let Some((_, found)) = rows.next_if(|(found, _)| **found == key) {
                    value.get_or_insert_with(|| found.as_deref().map(<[u8]>::to_vec));
                }
            }
            if stored.as_ref().is_some_and(|row| row.key() == &*key) {
                if let Some(row) = &stored {
                    value.get_or_insert_with(|| Some(row.value().to_vec()));
                }
                stored = base.next()?;
            }
            if let Some(Some(bytes)) = value
                && visit(&key, Untrusted::new(bytes))? == Scan::Stop
            {
                return Ok(());
            }
        }
    }
}
