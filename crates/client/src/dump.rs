//! Reading the whole metadata database, for dumps and checks.

use crate::call::Effect;
use crate::client::Client;
use crate::control::odd_reply;
use crate::error::Result;
use weft_env::Env;
use weft_wire::meta::{DumpBegun, DumpedRow, MetaReply, MetaRequest};

/// A consistent state of the metadata database, read page by page.
pub struct MetadataDump<'a, E: Env> {
    client: &'a Client<E>,
    begun: DumpBegun,
    after: Option<(u8, Vec<u8>)>,
}

impl<E: Env> Client<E> {
    /// Begins a dump of the metadata database. Administrators only.
    ///
    /// # Errors
    /// `EPERM`; `EBUSY` when too many dumps are under way; `Unreachable`.
    pub async fn dump_metadata(&self) -> Result<MetadataDump<'_, E>> {
        match self.call(Effect::Repeatable, MetaRequest::DumpBegin).await? {
            MetaReply::DumpBegun(begun) => Ok(MetadataDump { client: self, begun: *begun, after: None }),
            _ => Err(odd_reply()),
        }
    }
}

impl<E: Env> MetadataDump<'_, E> {
    /// Number, time and identity of the dump.
    pub fn begun(&self) -> &DumpBegun {
        &self.begun
    }

    /// The next rows; none at the end.
    ///
    /// # Errors
    /// `ESTALE` when the server was restarted meanwhile; `EIO` when the database is damaged; `Unreachable`.
    pub async fn next_page(&mut self) -> Result<Vec<DumpedRow>> {
        let request = MetaRequest::DumpPage { number: self.begun.number, after: self.after.clone() };
        let rows = match self.client.call(Effect::Repeatable, request).await? {
            MetaReply::Dumped(rows) => rows,
            _ => return Err(odd_reply()),
        };
        let keys = rows.iter().map(|row| (row.table, &row.key));
        let last = self.after.as_ref().map(|(table, key)| (*table, key));
        // Rows come in rising order: else a page could be asked for over and over again.
        if !last.into_iter().chain(keys).is_sorted_by(|one, other| one < other) {
            return Err(odd_reply());
        }
        if let Some(last) = rows.last() {
            self.after = Some((last.table, last.key.clone()));
        }
        Ok(rows)
    }

    /// Lets the server forget it.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn end(self) -> Result<()> {
        let request = MetaRequest::DumpEnd { number: self.begun.number };
        self.client.call(Effect::Repeatable, request).await.map(drop)
    }
}
