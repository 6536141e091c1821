//! Views of readers and writers: layers of changes over the base.

use super::State;
use crate::metadata::delta::{Delta, Layers};
use crate::metadata::engine::{EngineError, Snapshot, Table, Transaction, Visit};
use crate::metadata::record::Untrusted;
use std::ops::Bound;

impl State {
    pub(super) fn layers<'a>(&'a self, newest: Option<&'a Delta>) -> Layers<'a> {
        let frozen = self.frozen.as_ref().map(|(delta, _)| &**delta);
        Layers { deltas: [newest, Some(&self.delta), frozen], base: &self.base }
    }
}

pub(super) struct Reader<'a>(pub(super) Layers<'a>);

impl Snapshot for Reader<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Untrusted>, EngineError> {
        self.0.get(table, key)
    }

    fn scan(&self, table: Table, from: Bound<&[u8]>, visit: &mut Visit<'_>) -> Result<(), EngineError> {
        self.0.scan(table, from, visit)
    }
}

pub(super) struct Writer<'a> {
    pub(super) state: &'a State,
    pub(super) changes: Delta,
}

impl Snapshot for Writer<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Untrusted>, EngineError> {
        self.state.layers(Some(&self.changes)).get(table, key)
    }

    fn scan(&self, table: Table, from: Bound<&[u8]>, visit: &mut Visit<'_>) -> Result<(), EngineError> {
        self.state.layers(Some(&self.changes)).scan(table, from, visit)
    }
}

impl Transaction for Writer<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: Vec<u8>) {
        self.changes.set(table, key, Some(value.into_boxed_slice()));
    }

    fn delete(&mut self, table: Table, key: &[u8]) {
        self.changes.set(table, key, None);
    }
}
