//! Requests of the mover that gives a file another layout: watches, seals and times. The whole protocol is in
//! `metadata/moves.rs`.

use super::{Counters, DataConnection, DataService, key};
use crate::tiered::DiskAdmission;
use weft_core::Timestamp;
use weft_env::Env;
use weft_wire::data::{DataReply, DatafileId, WATCHED_MAX};
use weft_wire::{Capability, Errno, Rights, WireError};

impl<E: Env> DataService<E> {
    /// Begins a watch of a file's datafiles.
    pub(super) async fn watch(
        &self,
        connection: &mut DataConnection<E>,
        cap: Capability,
        datafiles: &[DatafileId],
    ) -> Result<DataReply, WireError> {
        self.check_all(connection, &cap, Rights::MOVE, datafiles.iter().copied())?;
        if datafiles.len() > WATCHED_MAX {
            let detail = format!("{} datafiles in one watch, of at most {WATCHED_MAX}", datafiles.len());
            return Err(WireError::new(Errno::EINVAL, detail));
        }
        let Some(watch) = self.watches.add(&self.env, cap.file, datafiles) else {
            let detail = format!("server {:?} has no room for another watch: try again later", self.name);
            return Err(WireError::new(Errno::EBUSY, detail));
        };
        // No lease for writing is granted after the watch began, and writes under older leases have ended after this.
        for &datafile in datafiles {
            let stuck = self.leases.revoke_datafile(datafile, self.limits.revoke_timeout).await;
            self.note_stuck(stuck);
        }
        Ok(DataReply::Watching { watch })
    }

    /// Ranges that changed since the previous round.
    pub(super) fn changes(
        &self,
        connection: &mut DataConnection<E>,
        cap: Capability,
        watch: u64,
        round: u64,
    ) -> Result<DataReply, WireError> {
        connection.check(&self.secret, &cap, cap.file, Rights::MOVE, self.env.wall())?;
        let changes = self.watches.changes(cap.file, watch, round, self.env.now());
        Ok(changes.map_or(DataReply::NotWatching, DataReply::Changes))
    }

    /// Seals datafiles, and waits for the writes in flight.
    pub(super) async fn seal(
        &self,
        connection: &mut DataConnection<E>,
        cap: Capability,
        before_s: u64,
        datafiles: &[DatafileId],
    ) -> Result<DataReply, WireError> {
        self.check_all(connection, &cap, Rights::MOVE, datafiles.iter().copied())?;
        if before_s > cap.expires_s {
            let detail = format!("a seal of file {} that would refuse its own capability", cap.file);
            return Err(WireError::new(Errno::EINVAL, detail));
        }
        for datafile in datafiles {
            let served = self.served(datafile.target)?;
            self.check_seal(served, &cap)?;
            served.tiered.target().seal(cap.file, before_s).await.map_err(|error| self.failed(error))?;
        }
        self.wait_for_in_flight(&cap, datafiles).await
    }

    /// Sets the modification time of new datafiles to that of the old ones.
    pub(super) async fn set_times(
        &self,
        connection: &mut DataConnection<E>,
        cap: Capability,
        mtime: Timestamp,
        datafiles: &[DatafileId],
    ) -> Result<DataReply, WireError> {
        self.check_all(connection, &cap, Rights::MOVE.and(Rights::WRITE), datafiles.iter().copied())?;
        let _in_flight = connection.in_flight_slot(&self.in_flight).enter(cap.file);
        for &datafile in datafiles {
            let served = self.served(datafile.target)?;
            self.check_fence(served, &cap)?;
            Counters::add(&served.counters.requests, 1);
            let admission = DiskAdmission { queue: &served.admission, session: connection.session };
            let _permit = served.tiered.enter(admission).await;
            let set = served.tiered.set_mtime(key(datafile), mtime).await;
            set.map_err(|error| self.failed(error))?;
        }
        Ok(DataReply::Done)
    }
}
