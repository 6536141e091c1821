//! Snapshots that outlive changes of the database.

use super::Journal;
use crate::metadata::base::BaseSnapshot;
use crate::metadata::delta::{Delta, Layers};
use crate::metadata::engine::{Engine, EngineError, Point, Snapshot, Table, Visit};
use crate::metadata::record::Untrusted;
use std::ops::Bound;
use std::sync::Arc;
use weft_env::Env;

/// A consistent state of all tables. It holds the changes that the base does not include, bounded by the length of a
/// log, and the pages of the base that it needs.
pub struct StoredSnapshot {
    delta: Delta,
    frozen: Option<Arc<Delta>>,
    base: Arc<BaseSnapshot>,
}

impl StoredSnapshot {
    fn layers(&self) -> Layers<'_> {
        Layers { deltas: [Some(&self.delta), self.frozen.as_deref(), None], base: &self.base }
    }
}

impl Snapshot for StoredSnapshot {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Untrusted>, EngineError> {
        self.layers().get(table, key)
    }

    fn scan(&self, table: Table, from: Bound<&[u8]>, visit: &mut Visit<'_>) -> Result<(), EngineError> {
        self.layers().scan(table, from, visit)
    }
}

impl<E: Env> Journal<E> {
    /// Takes a snapshot of the current state and waits until that state survives a loss of power.
    ///
    /// # Errors
    /// Errors of the log.
    pub async fn snapshot(&self) -> Result<StoredSnapshot, EngineError> {
        let (snapshot, point) = {
            let state = self.0.state.read();
            let frozen = state.frozen.as_ref().map(|(delta, _)| Arc::clone(delta));
            let snapshot =
                StoredSnapshot { delta: state.delta.clone(), frozen, base: Arc::clone(&state.base) };
            (snapshot, Point(state.point))
        };
        self.durable(point).await?;
        Ok(snapshot)
    }
}
