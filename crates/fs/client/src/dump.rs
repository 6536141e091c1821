//! Dumps of the whole metadata database, for backups and checks.

use crate::call::Effect;
use crate::client::Client;
use crate::error::{Error, Result};
use weft_env::Env;
use weft_wire::meta::{DumpBegun, DumpedRow, MetaReply, MetaRequest};

/// A consistent snapshot of the metadata database, read page by page.
pub struct MetadataDump<'a, E: Env> {
    client: &'a Client<E>,
    begun: DumpBegun,
    after: Option<(u8, Vec<u8>)>,
}

impl<E: Env> Client<E> {
    /// Begins a dump of the metadata database. For administrators only.
    ///
    /// # Errors
    /// `EPERM`; `EBUSY` when too many dumps are in progress; `Unreachable`.
    pub async fn dump_metadata(&self) -> Result<MetadataDump<'_, E>> {
        match self.session.call(Effect::Repeatable, MetaRequest::DumpBegin).await? {
            MetaReply::DumpBegun(begun) => Ok(MetadataDump { client: self, begun: *begun, after: None }),
            _ => Err(Error::unexpected_reply()),
        }
    }
}

impl<E: Env> MetadataDump<'_, E> {
    /// Returns number, time and identity of the dump.
    pub fn begun(&self) -> &DumpBegun {
        &self.begun
    }

    /// Returns the next rows; empty at the end.
    ///
    /// # Errors
    /// `ESTALE` when the server has restarted since the dump began; `EIO` when the database is damaged; `Unreachable`.
    pub async fn next_page(&mut self) -> Result<Vec<DumpedRow>> {
        let request = MetaRequest::DumpPage { number: self.begun.number, after: self.after.clone() };
        let rows = match self.client.session.call(Effect::Repeatable, request).await? {
            MetaReply::Dumped(rows) => rows,
            _ => return Err(Error::unexpected_reply()),
        };
        let keys = rows.iter().map(|row| (row.table, &row.key));
        let last = self.after.as_ref().map(|(table, key)| (*table, key));
        // Keys must rise from page to page, or the same page could be requested forever.
        if !last.into_iter().chain(keys).is_sorted_by(|one, other| one < other) {
            return Err(Error::unexpected_reply());
        }
        if let Some(last) = rows.last() {
            self.after = Some((last.table, last.key.clone()));
        }
        Ok(rows)
    }

    /// Ends the dump and frees it on the server.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn end(self) -> Result<()> {
        let request = MetaRequest::DumpEnd { number: self.begun.number };
        self.client.session.call(Effect::Repeatable, request).await.map(drop)
    }
}
