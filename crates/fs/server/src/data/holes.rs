//! Holes of datafiles: punching and finding them.

use super::{Counters, DataConnection, DataService, key};
use crate::tiered::DiskAdmission;
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
            let detail = format!(
                "a hole of {len} bytes from {offset} on ends behind the last possible offset of datafile {}",
                datafile.object
            );
            return Err(WireError::new(Errno::EFBIG, detail));
        }
        let _in_flight = connection.in_flight_slot(&self.in_flight).enter(cap.file);
        for &(datafile, offset, len) in extents {
            let served = self.served(datafile.target)?;
            self.check_fence(served, &cap)?;
            self.require_compressed(served, &cap, datafile).await?;
            let _change = self.watches.record_change(datafile, offset.0, offset.0 + len.0);
            Counters::add(&served.counters.requests, 1);
            let admission = DiskAdmission { queue: &served.admission, session: connection.session };
            let punched = served.tiered.punch(key(datafile), LocalExtent { offset, len }, admission).await;
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
            self.require_compressed(served, &cap, datafile).await?;
            // No datafile is longer, and the system rejects larger numbers.
            let offset = LocalOffset(offset.0.min(DATAFILE_LEN_MAX));
            let sought = match hole {
                true => served.tiered.seek_hole(key(datafile), offset).await.map(Some),
                false => served.tiered.seek_data(key(datafile), offset).await,
            };
            found.push(self.unless_moved(served, &cap, sought)?);
        }
        Ok(DataReply::Sought(found))
    }
}
