//! A state of the database that stays while the database goes on.

use super::Journal;
use crate::metadata::base::BaseSnapshot;
use crate::metadata::delta::{Delta, Layers};
use crate::metadata::engine::{Engine, EngineError, Point, Snapshot, Table, Visit};
use crate::metadata::record::Untrusted;
use std::ops::Bound;
use std::sync::Arc;
use weft_env::Env;

/// A consistent state of all tables. It takes the memory of the changes that are not in the base, which the length of a
/// log bounds, and the base keeps the pages that it needs.
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
    /// The state of the database as it is now, once it survives loss of power.
    ///
    /// # Errors
    /// Of the log.
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
