//! Requests other than reads and writes: lengths, sync, removal, fences, leases and listings.

use super::probe::Probe;
use super::{Counters, DataConnection, DataService, format_of, key};
use crate::audit;
use crate::connection::answer;
use crate::connections::Entry;
use crate::tiered::{DiskAdmission, Position};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weft_core::{ByteLen, TargetId};
use weft_env::{Attachment, Env, Shared};
use weft_store::datafile::DatafileKey;
use weft_store::target::{DATAFILE_LEN_MAX, Module};
use weft_wire::data::{Damage, DataReply, DataRequest, DatafileId, DatafileMeta, SCRUB_LEN_MAX, Scrubbed};
use weft_wire::{Capability, Errno, Incoming, Kind, Link, Rights, WireError};

/// Maximum number of datafiles in one request, and in one page of a listing.
const DATAFILES_MAX: usize = 4096;

fn check_count(count: usize) -> Result<(), WireError> {
    match count <= DATAFILES_MAX {
        true => Ok(()),
        false => {
            let detail = format!("{count} datafiles in one request, of at most {DATAFILES_MAX}");
            Err(WireError::new(Errno::EINVAL, detail))
        }
    }
}

impl<E: Env> DataService<E> {
    /// Serves a request that is neither a read nor a write, and records it in the audit log.
    pub(super) async fn serve_other(
        &self,
        link: &mut Link<E::Conn>,
        entry: &Entry,
        connection: &mut DataConnection<E>,
        incoming: &Incoming,
        request: DataRequest,
    ) -> io::Result<()> {
        let audited = connection.origin.as_ref().and_then(|_| audit::of_data(&request, connection.is_server));
        let result = match request {
            DataRequest::Lease { datafile, cap, write } => {
                return self.lease(link, entry, connection, incoming, (datafile, cap, write)).await;
            }
            DataRequest::AttachShared { payload_len } => {
                return self.attach(link, entry, connection, incoming, payload_len).await;
            }
            DataRequest::GetLens { cap, datafiles } => self.lens(connection, cap, &datafiles).await,
            DataRequest::SetLens { cap, datafiles } => self.set_lens(connection, cap, &datafiles).await,
            DataRequest::Sync { cap, datafiles } => self.sync(connection, cap, &datafiles).await,
            DataRequest::Remove { datafiles } => self.remove(connection, &datafiles).await,
            DataRequest::Release { slots } => {
                self.leases.release(connection.id(), &slots);
                Ok(DataReply::Done)
            }
            DataRequest::RevokeLeases { target } => self.revoke(connection, target).await,
            DataRequest::Fence { cap, before_s, datafiles } => {
                self.fence(connection, cap, before_s, &datafiles).await
            }
            DataRequest::Watch { cap, datafiles } => self.watch(connection, cap, &datafiles).await,
            DataRequest::Changes { cap, watch, round } => self.changes(connection, cap, watch, round),
            DataRequest::Seal { cap, before_s, datafiles } => {
                self.seal(connection, cap, before_s, &datafiles).await
            }
            DataRequest::SetTimes { cap, mtime, datafiles } => {
                self.set_times(connection, cap, mtime, &datafiles).await
            }
            DataRequest::Punch { cap, extents } => self.punch(connection, cap, &extents).await,
            DataRequest::Seek { cap, datafiles, hole } => self.seek(connection, cap, &datafiles, hole).await,
            DataRequest::ListDatafiles { target, after, limit } => {
                let after = after.map(|(file, object)| DatafileKey::new(file, object));
                self.list(connection, target, after, limit as usize).await
            }
            DataRequest::Flush { target, from } => {
                let from = from.map(|(file, object, at)| (DatafileKey::new(file, object), at));
                self.flush(connection, target, from).await
            }
            DataRequest::Scrub { target, from, len } => {
                let from = from.map(|(file, object, at)| (DatafileKey::new(file, object), at));
                self.scrub(connection, target, from, len).await
            }
            DataRequest::Samples { run, from, limit } => self.samples(connection, run, from, limit as usize),
            DataRequest::Probe { target, work, len, offsets, within } => {
                let probe = Probe { target, work, len, offsets, within };
                self.probe(connection, probe).await
            }
            DataRequest::Read { .. } | DataRequest::ReadShared { .. } | DataRequest::Write { .. } => {
                Err(WireError::new(Errno::EPROTO, "a read with a payload"))
            }
        };
        if let (Some(what), Some(origin)) = (audited, &connection.origin) {
            origin.record(self.env.wall(), &what, result.as_ref().err());
        }
        answer(link, entry, incoming, &result.unwrap_or_else(DataReply::Failed)).await
    }

    /// Checks a capability for datafiles, all of which must belong to its file.
    pub(super) fn check_all(
        &self,
        connection: &mut DataConnection<E>,
        cap: &Capability,
        needed: Rights,
        datafiles: impl ExactSizeIterator<Item = DatafileId>,
    ) -> Result<(), WireError> {
        check_count(datafiles.len())?;
        connection.check(&self.secret, cap, cap.file, needed, self.env.wall())?;
        for datafile in datafiles {
            if datafile.file != cap.file {
                let detail =
                    format!("the capability for file {} does not cover file {}", cap.file, datafile.file);
                return Err(WireError::new(Errno::EACCES, detail));
            }
            self.served(datafile.target)?;
        }
        Ok(())
    }

    async fn lens(
        &self,
        connection: &mut DataConnection<E>,
        cap: Capability,
        datafiles: &[DatafileId],
    ) -> Result<DataReply, WireError> {
        self.check_all(connection, &cap, Rights::default(), datafiles.iter().copied())?;
        let mut found = Vec::with_capacity(datafiles.len());
        for &datafile in datafiles {
            let served = self.served(datafile.target)?;
            self.check_seal(served, &cap)?;
            self.require_compressed(served, &cap, datafile).await?;
            let meta = served.tiered.meta(key(datafile)).await;
            let meta = self.unless_moved(served, &cap, meta)?;
            let cached = served.tiered.cached(key(datafile)).unwrap_or_default();
            let keeps_nothing = served.tiered.target().module() == Module::Null;
            let missing = DatafileMeta { keeps_nothing, ..DatafileMeta::default() };
            found.push(meta.map_or(missing, |meta| DatafileMeta {
                len: meta.len,
                blocks_512: meta.blocks_512,
                mtime: Some(meta.mtime),
                ssd_dirty: cached.dirty,
                ssd_clean: cached.clean,
                keeps_nothing,
            }));
        }
        Ok(DataReply::Lens(found))
    }

    async fn set_lens(
        &self,
        connection: &mut DataConnection<E>,
        cap: Capability,
        datafiles: &[(DatafileId, ByteLen)],
    ) -> Result<DataReply, WireError> {
        self.check_all(connection, &cap, Rights::WRITE, datafiles.iter().map(|&(datafile, _)| datafile))?;
        if let Some((datafile, len)) = datafiles.iter().find(|(_, len)| len.0 > DATAFILE_LEN_MAX) {
            let detail = format!("{len} bytes exceed the maximum length of datafile {}", datafile.object);
            return Err(WireError::new(Errno::EFBIG, detail));
        }
        datafiles.iter().try_for_each(|(_, len)| super::io::require_below_limit(&cap, len.0))?;
        let _in_flight = connection.in_flight_slot(&self.in_flight).enter(cap.file);
        for &(datafile, len) in datafiles {
            let served = self.served(datafile.target)?;
            self.check_fence(served, &cap)?;
            // An extension changes no bytes behind the old end. The length is always read from the datafile itself.
            let _change = self.watches.record_change(datafile, len.0, u64::MAX);
            Counters::add(&served.counters.requests, 1);
            let admission = DiskAdmission { queue: &served.admission, session: connection.session };
            if len.0 > 0 {
                let prepared = served.tiered.prepare(key(datafile), format_of(&cap)).await;
                prepared.map_err(|error| self.failed(error))?;
            }
            served.tiered.set_len(key(datafile), len, admission).await.map_err(|error| self.failed(error))?;
        }
        Ok(DataReply::Done)
    }

    async fn fence(
        &self,
        connection: &mut DataConnection<E>,
        cap: Capability,
        before_s: u64,
        datafiles: &[DatafileId],
    ) -> Result<DataReply, WireError> {
        self.check_all(connection, &cap, Rights::WRITE, datafiles.iter().copied())?;
        for datafile in datafiles {
            self.check_seal(self.served(datafile.target)?, &cap)?;
        }
        if before_s > cap.expires_s {
            let detail = format!("a fence for file {} that would refuse its own capability", cap.file);
            return Err(WireError::new(Errno::EINVAL, detail));
        }
        for datafile in datafiles {
            self.served(datafile.target)?.tiered.target().fence(cap.file, before_s).await;
        }
        self.wait_for_in_flight(&cap, datafiles).await
    }

    /// Waits for writes that passed their checks before the caller recorded a fence or seal, and revokes leases.
    pub(super) async fn wait_for_in_flight(
        &self,
        cap: &Capability,
        datafiles: &[DatafileId],
    ) -> Result<DataReply, WireError> {
        for &datafile in datafiles {
            let stuck = self.leases.revoke_datafile(datafile, self.limits.revoke_timeout).await;
            self.note_stuck(stuck);
        }
        if !self.in_flight.wait(&self.env, cap.file, self.limits.stall_timeout).await {
            let detail =
                format!("server {:?}: a write of file {} has not ended in time", self.name, cap.file);
            return Err(WireError::new(Errno::EIO, detail));
        }
        Ok(DataReply::Done)
    }

    async fn sync(
        &self,
        connection: &mut DataConnection<E>,
        cap: Capability,
        datafiles: &[DatafileId],
    ) -> Result<DataReply, WireError> {
        self.check_all(connection, &cap, Rights::default(), datafiles.iter().copied())?;
        for &datafile in datafiles {
            let served = self.served(datafile.target)?;
            self.check_seal(served, &cap)?;
            Counters::add(&served.counters.requests, 1);
            let admission = DiskAdmission { queue: &served.admission, session: connection.session };
            let synced = served.tiered.sync(key(datafile), admission).await;
            self.unless_moved(served, &cap, synced)?;
        }
        Ok(DataReply::Done)
    }

    async fn remove(
        &self,
        connection: &DataConnection<E>,
        datafiles: &[DatafileId],
    ) -> Result<DataReply, WireError> {
        require(connection.is_server || connection.is_administrator(), "remove datafiles")?;
        check_count(datafiles.len())?;
        let mut removed: BTreeMap<TargetId, Vec<DatafileKey>> = BTreeMap::new();
        for &datafile in datafiles {
            let served = self.served(datafile.target)?;
            Counters::add(&served.counters.requests, 1);
            removed.entry(datafile.target).or_default().push(key(datafile));
            if connection.is_server {
                // An administrator may remove a datafile of a file that stays.
                served.tiered.target().tombstone(key(datafile)).await;
                self.watches.end(datafile.file);
            }
            let stuck = self.leases.revoke_datafile(datafile, self.limits.revoke_timeout).await;
            self.note_stuck(stuck);
            let admission = DiskAdmission { queue: &served.admission, session: connection.session };
            served.tiered.remove(key(datafile), admission).await.map_err(|error| self.failed(error))?;
        }
        // The removals become durable before the reply, because the metadata service then forgets them: a datafile that
        // reappeared after a loss of power would stay.
        for (target, keys) in removed {
            let served = self.served(target)?;
            let _permit = served.admission.enter(connection.session).await;
            served.tiered.sync_removals(&keys).await.map_err(|error| self.failed(error))?;
        }
        Ok(DataReply::Done)
    }

    async fn revoke(
        &self,
        connection: &DataConnection<E>,
        target: weft_core::TargetId,
    ) -> Result<DataReply, WireError> {
        require(connection.is_administrator(), "take leases back")?;
        self.served(target)?;
        let stuck = self.leases.revoke_target(target, self.limits.revoke_timeout).await;
        self.note_stuck(stuck);
        Ok(DataReply::Done)
    }

    async fn flush(
        &self,
        connection: &DataConnection<E>,
        target: weft_core::TargetId,
        from: Option<Position>,
    ) -> Result<DataReply, WireError> {
        require(connection.is_server || connection.is_administrator(), "write a target back")?;
        let served = self.served(target)?;
        let (step, dirty) = served.tiered.flush(from).await.map_err(|error| self.failed(error))?;
        let next = step.next.map(|(key, at)| (key.file, key.object, at));
        Ok(DataReply::Flushed { next, written: step.written, dirty })
    }

    async fn list(
        &self,
        connection: &DataConnection<E>,
        target: weft_core::TargetId,
        after: Option<DatafileKey>,
        limit: usize,
    ) -> Result<DataReply, WireError> {
        require(connection.is_server || connection.is_administrator(), "list datafiles")?;
        let served = self.served(target)?;
        let limit = limit.clamp(1, DATAFILES_MAX);
        let found = served.tiered.list(after, limit).await.map_err(|error| self.failed(error))?;
        Ok(DataReply::Datafiles(found.into_iter().map(|(key, len)| (key.file, key.object, len)).collect()))
    }

    async fn scrub(
        &self,
        connection: &DataConnection<E>,
        target: weft_core::TargetId,
        from: Option<(DatafileKey, weft_core::LocalOffset)>,
        len: u32,
    ) -> Result<DataReply, WireError> {
        require(connection.is_server || connection.is_administrator(), "verify a target")?;
        let served = self.served(target)?;
        let admission = DiskAdmission { queue: &served.admission, session: connection.session };
        let _permit = served.tiered.enter(admission).await;
        let budget = ByteLen(len.clamp(1, SCRUB_LEN_MAX).into());
        let step = served.tiered.target().scrub(from, budget).await.map_err(|error| self.failed(error))?;
        let damaged = step.damaged.iter().map(|damage| Damage {
            file: damage.key.file,
            object: damage.key.object,
            start: damage.start,
            end: damage.end,
        });
        Ok(DataReply::Scrubbed(Scrubbed {
            next: step.next.map(|(key, at)| (key.file, key.object, at)),
            verified: step.verified,
            checked: step.checked,
            unchecked: step.unchecked.iter().map(|key| (key.file, key.object)).collect(),
            damaged: damaged.collect(),
        }))
    }

    fn samples(
        &self,
        connection: &DataConnection<E>,
        run: u64,
        from: u64,
        limit: usize,
    ) -> Result<DataReply, WireError> {
        require(connection.is_server || connection.is_administrator(), "see samples of requests")?;
        let samples = self.sampler.as_ref().map(|sampler| sampler.read(run, from, limit));
        Ok(DataReply::Samples(samples.unwrap_or_default()))
    }

    async fn attach(
        &self,
        link: &mut Link<E::Conn>,
        entry: &Entry,
        connection: &mut DataConnection<E>,
        incoming: &Incoming,
        requested_len: u32,
    ) -> io::Result<()> {
        let areas = self.areas(connection, entry, requested_len);
        let (payload, leases) = match areas {
            Ok(areas) if incoming.header.kind == Kind::Request => areas,
            Ok(_) => return Ok(()),
            Err(error) => return answer(link, entry, incoming, &DataReply::Failed(error)).await,
        };
        let payload_len = payload.as_ref().map_or(0, |area| area.len() as u32);
        let attachments: Vec<_> = payload.into_iter().chain([leases]).map(Attachment::Shared).collect();
        let reply = DataReply::Attached { payload_len };
        let header = &incoming.header;
        entry.expect_peer();
        link.send_attached(Kind::Reply, header.family, header.request, &reply, &attachments).await
    }

    /// Lease page of a connection, and its payload area if there is memory for one.
    fn areas(
        &self,
        connection: &mut DataConnection<E>,
        entry: &Entry,
        requested_len: u32,
    ) -> Result<(Option<E::Shared>, E::Shared), WireError> {
        if !connection.local {
            let detail = "shared memory needs a Unix socket: the client is not on this server's node";
            return Err(WireError::new(Errno::EOPNOTSUPP, detail));
        }
        if std::mem::replace(&mut connection.attached, true) {
            return Err(WireError::new(Errno::EBUSY, "this connection already has its shared areas"));
        }
        let len = u64::from(requested_len).min(self.limits.shared_payload_max.0) as usize;
        if len > 0 {
            connection.payload_area = self.payload_area(len, connection.user);
        }
        let leases =
            self.leases.attach(connection.id(), connection.activity.key(), Arc::clone(&entry.closer))?;
        Ok((connection.payload_area.clone(), leases))
    }

    /// Allocates a payload area of `len` bytes within the limits of the server and of `user`.
    fn payload_area(&self, len: usize, user: Option<u32>) -> Option<E::Shared> {
        let share = self.limits.shared_of_user().0;
        let mut by_user = user.map(|uid| (uid, self.shared_by_user.lock()));
        if let Some((uid, by_user)) = &by_user
            && (by_user.get(uid).copied().unwrap_or(0) + len) as u64 > share
        {
            return None;
        }
        let max = self.limits.shared_memory_max.0;
        let fits = |used: usize| Some(used + len).filter(|&used| used as u64 <= max);
        self.shared_memory.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        let area = self.env.shared(len).ok();
        // The area is rounded up to whole pages.
        let area_len = area.as_ref().map_or(0, Shared::len);
        self.shared_memory.fetch_add(area_len.wrapping_sub(len), Ordering::Relaxed);
        if let Some((uid, by_user)) = &mut by_user
            && area_len > 0
        {
            *by_user.entry(*uid).or_default() += area_len;
        }
        area
    }

    /// Answers a request for a lease.
    async fn lease(
        &self,
        link: &mut Link<E::Conn>,
        entry: &Entry,
        connection: &mut DataConnection<E>,
        incoming: &Incoming,
        requested: (DatafileId, Capability, bool),
    ) -> io::Result<()> {
        let header = &incoming.header;
        match self.grant_lease(connection, requested).await {
            Err(error) => answer(link, entry, incoming, &DataReply::Failed(error)).await,
            Ok(None) => answer(link, entry, incoming, &DataReply::NotLeased).await,
            Ok(Some((slot, _))) if requested.2 && self.watches.has(requested.0) => {
                // Checked after the grant: a watch that begins after this check revokes the lease.
                self.leases.release(connection.id(), &[slot]);
                answer(link, entry, incoming, &DataReply::WriteLeasesSuspended).await
            }
            Ok(Some((slot, _))) if header.kind != Kind::Request => {
                self.leases.release(connection.id(), &[slot]);
                Ok(())
            }
            Ok(Some((slot, file))) => {
                entry.expect_peer();
                let (reply, file) = (DataReply::Leased { slot }, [Attachment::File(file)]);
                link.send_attached(Kind::Reply, header.family, header.request, &reply, &file).await
            }
        }
    }

    /// Opens and grants a descriptor of a datafile; `None` if the client must send its requests to the server.
    async fn grant_lease(
        &self,
        connection: &mut DataConnection<E>,
        (datafile, cap, write): (DatafileId, Capability, bool),
    ) -> Result<Option<(u32, E::File)>, WireError> {
        let needed = if write { Rights::WRITE } else { Rights::READ };
        connection.check(&self.secret, &cap, datafile.file, needed, self.env.wall())?;
        let served = self.served(datafile.target)?;
        // A writable descriptor can also be read through.
        let readable = !write || cap.rights.allow(Rights::READ);
        // Requests under a lease would be missing from samples.
        let may_lease = served.leases && served.tiered.tier().is_none() && self.sampler.is_none();
        if !may_lease || !connection.local || !connection.attached || !readable {
            return Ok(None);
        }
        // A descriptor cannot be revoked from a process that keeps it; see `WritableLeases`. Nor can one end at a limit.
        if write && (!connection.leases_writable || cap.limit.is_some()) {
            return Ok(None);
        }
        let target = served.tiered.target();
        if !target.is_plain(format_of(&cap)) {
            return Ok(None);
        }
        let file = target.lease_file(key(datafile), write).await;
        let Some(file) = file.map_err(|error| self.failed(error))? else { return Ok(None) };
        let slot = self.leases.grant(connection.id(), datafile);
        // Checked after the grant: a fence or seal that comes after this check revokes the lease.
        let checked = if write { self.check_fence(served, &cap) } else { self.check_seal(served, &cap) };
        if let Err(error) = checked {
            self.leases.release(connection.id(), slot.as_slice());
            return Err(error);
        }
        Ok(slot.map(|slot| (slot, file)))
    }
}

pub(super) fn require(allowed: bool, what: &str) -> Result<(), WireError> {
    match allowed {
        true => Ok(()),
        false => Err(WireError::new(Errno::EPERM, format!("only servers and administrators may {what}"))),
    }
}
