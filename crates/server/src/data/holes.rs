//! Holes of datafiles: making them, and finding them.

use super::{Counters, DataConnection, DataService, key};
use crate::place::Gate;
use weft_core::{ByteLen, LocalExtent, LocalOffset};
use weft_env::Env;
use weft_store::target::DATAFILE_LEN_MAX;
use weft_wire::data::{DataReply, DatafileId};
use weft_wire::{Capability, Errno, Rights, WireError};

impl<E: Env> DataService<E> {
    pub(super) async fn punch(
        &self,
        connection: &mut DataConnection<E>,
        cap: Capability,
        extents: &[(DatafileId, LocalOffset, ByteLen)],
    ) -> Result<DataReply, WireError> {
        self.check_all(connection, &cap, Rights::WRITE, extents.iter().map(|&(datafile, ..)| datafile))?;
        let end = |offset: LocalOffset, len: ByteLen| offset.0.checked_add(len.0);
        let is_too_far = |&&(_, offset, len): &&(DatafileId, LocalOffset, ByteLen)| {
            end(offset, len).is_none_or(|end| end > DATAFILE_LEN_MAX)
        };
        if let Some((datafile, offset, len)) = extents.iter().find(is_too_far) {
            let detail = format!("a hole of {len} bytes from {offset} on in datafile {}", datafile.object);
            return Err(WireError::new(Errno::EFBIG, detail));
        }
        let _inside = connection.place(&self.insiders).enter(cap.file);
        for &(datafile, offset, len) in extents {
            let served = self.served(datafile.target)?;
            self.check_fence(served, &cap)?;
            let _changing = self.watches.changing(datafile, offset.0, offset.0 + len.0);
            Counters::add(&served.counters.requests, 1);
            let gate = Gate { admission: &served.admission, session: connection.session };
            let punched = served.placed.punch(key(datafile), LocalExtent { offset, len }, gate).await;
            punched.map_err(|error| self.failed(error))?;
        }
        Ok(DataReply::Done)
    }

    pub(super) async fn seek(
        &self,
        connection: &mut DataConnection<E>,
        cap: Capability,
        datafiles: &[(DatafileId, LocalOffset)],
        hole: bool,
    ) -> Result<DataReply, WireError> {
        self.check_all(connection, &cap, Rights::default(), datafiles.iter().map(|&(datafile, _)| datafile))?;
        let mut found = Vec::with_capacity(datafiles.len());
        for &(datafile, offset) in datafiles {
            let served = self.served(datafile.target)?;
            self.check_seal(served, &cap)?;
            // No file is longer, and the system takes no larger number.
            let offset = LocalOffset(offset.0.min(DATAFILE_LEN_MAX));
            let sought = match hole {
                true => served.placed.seek_hole(key(datafile), offset).await.map(Some),
                false => served.placed.seek_data(key(datafile), offset).await,
            };
            found.push(self.unless_moved(served, &cap, sought)?);
        }
        Ok(DataReply::Sought(found))
    }
}
