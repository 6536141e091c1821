//! What moves of files to other layouts ask of a data server.

use super::{Counters, DataConnection, DataService, key};
use crate::place::Gate;
use weft_core::Timestamp;
use weft_env::Env;
use weft_wire::data::{DataReply, DatafileId, WATCHED_MAX};
use weft_wire::{Capability, Errno, Rights, WireError};

impl<E: Env> DataService<E> {
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
            let detail = format!("server {:?} watches as many files as it can: try again later", self.name);
            return Err(WireError::new(Errno::EBUSY, detail));
        };
        // From here on none is lent for writing, and what is written past the server has ended after this.
        for &datafile in datafiles {
            let stuck = self.leases.revoke_datafile(datafile, self.limits.revoke_timeout).await;
            self.note_stuck(stuck);
        }
        Ok(DataReply::Watching { watch })
    }

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

    pub(super) async fn seal(
        &self,
        connection: &mut DataConnection<E>,
        cap: Capability,
        before_s: u64,
        datafiles: &[DatafileId],
    ) -> Result<DataReply, WireError> {
        self.check_all(connection, &cap, Rights::MOVE, datafiles.iter().copied())?;
        if before_s > cap.expires_s {
            let detail = format!("a seal of file {} that its own capability does not pass", cap.file);
            return Err(WireError::new(Errno::EINVAL, detail));
        }
        for datafile in datafiles {
            let served = self.served(datafile.target)?;
            self.check_seal(served, &cap)?;
            served.placed.target().seal(cap.file, before_s).await.map_err(|error| self.failed(error))?;
        }
        self.wait_for_insiders(&cap, datafiles).await
    }

    pub(super) async fn set_times(
        &self,
        connection: &mut DataConnection<E>,
        cap: Capability,
        mtime: Timestamp,
        datafiles: &[DatafileId],
    ) -> Result<DataReply, WireError> {
        self.check_all(connection, &cap, Rights::MOVE.and(Rights::WRITE), datafiles.iter().copied())?;
        let _inside = connection.place(&self.insiders).enter(cap.file);
        for &datafile in datafiles {
            let served = self.served(datafile.target)?;
            self.check_fence(served, &cap)?;
            Counters::add(&served.counters.requests, 1);
            let gate = Gate { admission: &served.admission, session: connection.session };
            let _permit = served.placed.enter(gate).await;
            let set = served.placed.target().set_mtime(key(datafile), mtime).await;
            set.map_err(|error| self.failed(error))?;
        }
        Ok(DataReply::Done)
    }
}
