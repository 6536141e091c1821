//! Reads and writes, over the connection or through shared memory.
//!
//! All four forms of request share one prologue, [`DataService::authorize`] and [`DataService::begin`], which looks up
//! the target once. A write receives its payload between the two.
//!
//! | step | read | write | reason for its place |
//! |---|---|---|---|
//! | range, payload length | yes | yes | before memory is reserved |
//! | capability, target | yes | yes | before the payload is received |
//! | seal | yes | with the fence | |
//! | shared area | if used | if used | |
//! | counters, sample | yes | yes | |
//! | in flight | | yes | before the fence, see [`super::in_flight`] |
//! | fence and seal | | yes | after the payload, which may take long |
//! | change for watches | | yes | recorded at the end, before the write stops being in flight |
//!
//! A read checks the seal once more after it has read.

use super::in_flight::InFlightWrite;
use super::samples::PendingSample;
use super::watches::PendingChange;
use super::{Counters, DataConnection, DataService, ServedTarget, format_of, key};
use crate::connection::answer;
use crate::connections::Entry;
use crate::tiered::{DiskAdmission, Sending, Source};
use std::io::{self, IoSlice, IoSliceMut};
use weft_core::{ByteLen, LocalOffset};
use weft_env::{Env, Shared};
use weft_store::datafile::DatafileKey;
use weft_store::target::DATAFILE_LEN_MAX;
use weft_wire::data::{DataReply, DatafileId, IoHints, PAYLOAD_LEN_MAX};
use weft_wire::{Capability, Errno, Family, Incoming, Kind, Link, Malformed, Rights, WireError};

/// A request to read or write.
pub(super) struct IoRequest {
    pub datafile: DatafileId,
    pub cap: Capability,
    pub offset: LocalOffset,
    pub len: u32,
    pub hints: IoHints,
}

/// Direction of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

/// A request that has passed its checks.
struct Running<'a, E: Env> {
    key: DatafileKey,
    admission: DiskAdmission<'a, E>,
    _write: Option<RunningWrite<'a>>,
    /// Dropped last: the sample includes the whole request.
    _sample: Option<PendingSample<'a, E>>,
}

/// Registrations of a write. The fields are dropped in order: the change is recorded before the write stops being in
/// flight, so that a seal which waits for the write finds the change.
struct RunningWrite<'a> {
    _change: PendingChange<'a>,
    _in_flight: InFlightWrite,
}

/// Checks a range from the network before memory is reserved for it.
fn check_range(offset: LocalOffset, len: u32) -> Result<(), WireError> {
    if len > PAYLOAD_LEN_MAX {
        let detail = format!("{len} bytes in one request, of at most {PAYLOAD_LEN_MAX}");
        return Err(WireError::new(Errno::EINVAL, detail));
    }
    match offset.0.checked_add(len.into()) {
        Some(end) if end <= DATAFILE_LEN_MAX => Ok(()),
        _ => {
            let detail = format!("{len} bytes at {offset} end behind the last possible offset");
            Err(WireError::new(Errno::EFBIG, detail))
        }
    }
}

/// Checks that a datafile may be written up to `end`: a quota may limit that.
///
/// # Errors
/// `EDQUOT`. A client asks the metadata server for more before it writes, so only a faulty one gets this error.
pub(super) fn require_below_limit(cap: &Capability, end: u64) -> Result<(), WireError> {
    match cap.limit.map(|limit| limit.datafile_len) {
        Some(max) if end > max.0 => {
            let detail = format!(
                "{end} bytes in a datafile of file {}, for which {max} are charged to the quota",
                cap.file.inode()
            );
            Err(WireError::new(Errno::EDQUOT, detail))
        }
        _ => Ok(()),
    }
}

fn count(counters: &Counters, hints: &IoHints) {
    Counters::add(&counters.requests, 1);
    if hints.fragment || hints.small_random {
        Counters::add(&counters.fragments, 1);
    }
}

impl<E: Env> DataService<E> {
    /// First part of the prologue: checks the range, the length of a payload that comes with the request,
    /// the capability and, for a read, the seal. Returns the target.
    fn authorize(
        &self,
        connection: &mut DataConnection<E>,
        request: &IoRequest,
        direction: Direction,
        payload_len: Option<u32>,
    ) -> Result<&ServedTarget<E>, WireError> {
        check_range(request.offset, request.len)?;
        if let Some(payload_len) = payload_len.filter(|payload_len| *payload_len != request.len) {
            let detail = format!("a write of {} bytes with a payload of {payload_len}", request.len);
            return Err(WireError::new(Errno::EINVAL, detail));
        }
        let needed = match direction {
            Direction::Read => Rights::READ,
            Direction::Write => Rights::WRITE,
        };
        connection.check(&self.secret, &request.cap, request.datafile.file, needed, self.env.wall())?;
        if direction == Direction::Write {
            require_below_limit(&request.cap, request.offset.0 + u64::from(request.len))?;
        }
        let served = self.served(request.datafile.target)?;
        if direction == Direction::Read {
            self.check_seal(served, &request.cap)?;
        }
        Ok(served)
    }

    /// Second part of the prologue: counts the request, samples it if its turn has come, and registers a write that no
    /// fence or seal refuses. The registrations end when the result is dropped.
    fn begin<'a>(
        &'a self,
        connection: &mut DataConnection<E>,
        served: &'a ServedTarget<E>,
        request: &IoRequest,
        direction: Direction,
    ) -> Result<Running<'a, E>, WireError> {
        let IoRequest { datafile, offset, len, .. } = *request;
        count(&served.counters, &request.hints);
        let is_write = direction == Direction::Write;
        let sample = match &self.sampler {
            Some(sampler) => {
                sampler.begin(&self.env, connection, (datafile, offset, len, is_write), &request.hints)
            }
            None => None,
        };
        let write = match direction {
            Direction::Read => None,
            Direction::Write => {
                let in_flight = connection.in_flight_slot(&self.in_flight).enter(datafile.file);
                self.check_fence(served, &request.cap)?;
                let change = self.watches.record_change(datafile, offset.0, offset.0 + u64::from(len));
                Some(RunningWrite { _change: change, _in_flight: in_flight })
            }
        };
        let admission = DiskAdmission { queue: &served.admission, session: connection.session };
        Ok(Running { key: key(datafile), admission, _write: write, _sample: sample })
    }

    /// Serves a read whose bytes are sent over the connection.
    pub(super) async fn read(
        &self,
        link: &mut Link<E::Conn>,
        entry: &Entry,
        connection: &mut DataConnection<E>,
        incoming: &Incoming,
        read: IoRequest,
    ) -> io::Result<()> {
        let IoRequest { datafile, offset, .. } = read;
        let request = incoming.header.request;
        let begun = self.authorize(connection, &read, Direction::Read, None).and_then(|served| {
            let running = self.begin(connection, served, &read, Direction::Read)?;
            Ok((served, running))
        });
        let (served, running) = match begun {
            Ok(begun) => begun,
            Err(error) => return answer(link, entry, incoming, &DataReply::Failed(error)).await,
        };
        let (family, kind) = (Family::Data, Kind::Reply);
        let (key, admission) = (running.key, running.admission);
        if let Err(error) = served.tiered.target().require_format(key, format_of(&read.cap)).await {
            let reply = self.read_failed(served, &read.cap, error);
            return answer(link, entry, incoming, &reply).await;
        }
        let mut plan = served.tiered.plan_read(admission.session, key, (offset, read.len), &read.hints);
        if served.tiered.target().sends_files() && link.sends_files() && plan.is_of_disk() {
            let permit = served.tiered.enter(admission).await;
            let found = served.tiered.file_to_send(&plan, key, offset, read.len).await;
            // While the request waited, a move may have sealed and removed the datafile. A descriptor opened before the
            // removal still has the bytes, and nothing changes them after the seal.
            if let Err(moved) = self.check_seal_after_read(served, &read.cap) {
                drop(permit);
                return answer(link, entry, incoming, &DataReply::Failed(moved)).await;
            }
            match found {
                Ok(Sending::Assemble) => drop(permit),
                Ok(Sending::File(file, datafile_len)) => {
                    let len = ByteLen(datafile_len.0.saturating_sub(offset.0).min(read.len.into()));
                    let reply = DataReply::Read { datafile_len };
                    if len.0 == 0 || incoming.header.kind != Kind::Request {
                        drop(permit);
                        return answer(link, entry, incoming, &reply).await;
                    }
                    Counters::add(&served.counters.bytes_read, len.0);
                    connection.transferred = len.0;
                    entry.expect_peer();
                    // Held while the bytes are sent, because the device is read then.
                    let _permit = permit.make_revocable(entry, datafile.target);
                    return link.send_file(kind, family, request, &reply, &file, offset, len).await;
                }
                Ok(Sending::Missing) => {
                    drop(permit);
                    let reply = DataReply::Read { datafile_len: ByteLen(0) };
                    return answer(link, entry, incoming, &reply).await;
                }
                Err(error) => {
                    drop(permit);
                    return answer(link, entry, incoming, &DataReply::Failed(self.failed(error))).await;
                }
            }
        }
        let mut buf = self.pool.borrow(read.len as usize, connection.user).await;
        let got = served.tiered.read(&mut plan, key, offset, &mut buf, admission).await;
        let got = got.map_err(|error| self.read_failed(served, &read.cap, error));
        let got = got.and_then(|got| {
            self.check_seal_after_read(served, &read.cap).map_err(DataReply::Failed).map(|()| got)
        });
        let (len, datafile_len) = match got {
            Ok(got) => got,
            Err(reply) => return answer(link, entry, incoming, &reply).await,
        };
        if incoming.header.kind == Kind::Request {
            Counters::add(&served.counters.bytes_read, len as u64);
            connection.transferred = len as u64;
            entry.expect_peer();
            let reply = DataReply::Read { datafile_len };
            let payload = [IoSlice::new(&buf[..len])];
            entry.set_holds_memory(true);
            let sent = link.send(kind, family, request, &reply, if len > 0 { &payload } else { &[] }).await;
            entry.set_holds_memory(false);
            sent?;
        }
        if let Some(miss) = plan.miss() {
            entry.stop_expecting();
            served.tiered.preload(miss, key, offset, &buf[..len]).await;
        }
        Ok(())
    }

    /// Serves a read whose bytes go to the connection's shared area.
    pub(super) async fn read_shared(
        &self,
        connection: &mut DataConnection<E>,
        read: IoRequest,
        to: usize,
    ) -> Result<DataReply, WireError> {
        let served = self.authorize(connection, &read, Direction::Read, None)?;
        let (offset, len) = (read.offset, read.len as usize);
        shared_part(connection, to, len)?;
        let running = self.begin(connection, served, &read, Direction::Read)?;
        let area = shared_part(connection, to, len)?;
        let (key, admission) = (running.key, running.admission);
        if let Err(error) = served.tiered.target().require_format(key, format_of(&read.cap)).await {
            return Ok(self.read_failed(served, &read.cap, error));
        }
        let mut plan = served.tiered.plan_read(admission.session, key, (offset, read.len), &read.hints);
        let got = served.tiered.read_shared(&mut plan, key, offset, (area, to, len), admission).await;
        let got = match got {
            Ok(got) => got,
            Err(error) => return Ok(self.read_failed(served, &read.cap, error)),
        };
        // A move may have sealed and removed the datafile during the read, which then found nothing.
        self.check_seal_after_read(served, &read.cap)?;
        if let Some((count, datafile_len)) = got {
            Counters::add(&served.counters.bytes_read, count as u64);
            if let Some(miss) = plan.miss() {
                served.tiered.preload_later(miss, key, offset, count);
            }
            return Ok(DataReply::ReadShared { len: count as u32, datafile_len });
        }
        let mut buf = self.pool.borrow(len, connection.user).await;
        let got = served.tiered.read(&mut plan, key, offset, &mut buf, admission).await;
        let (count, datafile_len) = match got {
            Ok(got) => self.check_seal_after_read(served, &read.cap).map(|()| got)?,
            Err(error) => return Ok(self.read_failed(served, &read.cap, error)),
        };
        area.copy_in(to, &buf[..count]);
        Counters::add(&served.counters.bytes_read, count as u64);
        if let Some(miss) = plan.miss() {
            served.tiered.preload(miss, key, offset, &buf[..count]).await;
        }
        let datafile_len = (count < len).then_some(datafile_len);
        Ok(DataReply::ReadShared { len: count as u32, datafile_len })
    }

    /// Serves a write whose bytes come as payload.
    ///
    /// The outer result concerns the connection; the inner one is the client's reply.
    pub(super) async fn write(
        &self,
        link: &mut Link<E::Conn>,
        entry: &Entry,
        connection: &mut DataConnection<E>,
        incoming: &Incoming,
        write: IoRequest,
    ) -> io::Result<Result<(), WireError>> {
        let payload_len = incoming.header.payload_len;
        let authorized = self.authorize(connection, &write, Direction::Write, Some(payload_len));
        entry.expect_peer();
        let served = match authorized {
            Ok(served) => served,
            Err(error) => {
                link.skip_payload(payload_len.into()).await?;
                return Ok(Err(error));
            }
        };
        if payload_len == 0 {
            return Ok(Ok(()));
        }
        entry.stop_expecting(); // the peer does not count as stalled while memory is short
        let mut buf = self.pool.borrow(payload_len as usize, connection.user).await;
        entry.expect_peer();
        entry.set_holds_memory(true);
        let received = link.recv_payload(&incoming.header, &mut [IoSliceMut::new(&mut buf)]).await;
        entry.set_holds_memory(false);
        entry.stop_expecting();
        if let Err(error) = received {
            if is_damage(&error) {
                return Ok(Err(WireError::new(Errno::EBADMSG, error.to_string())));
            }
            return Err(error);
        }
        let running = match self.begin(connection, served, &write, Direction::Write) {
            Ok(running) => running,
            Err(error) => return Ok(Err(error)),
        };
        Ok(self.write_from(served, &running, &write, Source::Bytes(&buf)).await)
    }

    /// Serves a write whose bytes are in the connection's shared area.
    pub(super) async fn write_shared(
        &self,
        connection: &mut DataConnection<E>,
        write: IoRequest,
        from: usize,
    ) -> Result<(), WireError> {
        let served = self.authorize(connection, &write, Direction::Write, None)?;
        let len = write.len as usize;
        shared_part(connection, from, len)?;
        if len == 0 {
            return Ok(());
        }
        let running = self.begin(connection, served, &write, Direction::Write)?;
        let area = shared_part(connection, from, len)?;
        self.write_from(served, &running, &write, Source::Shared(area, from, len)).await
    }

    /// Prepares the datafile and writes `source` to it.
    async fn write_from(
        &self,
        served: &ServedTarget<E>,
        running: &Running<'_, E>,
        write: &IoRequest,
        source: Source<'_, E>,
    ) -> Result<(), WireError> {
        let (key, admission) = (running.key, running.admission);
        let prepared = served.tiered.prepare(key, format_of(&write.cap)).await;
        prepared.map_err(|error| self.failed(error))?;
        let written = served.tiered.write(key, write.offset, source, &write.hints, admission).await;
        Counters::add(&served.counters.bytes_written, write.len.into());
        written.map_err(|error| self.failed(error))
    }
}

/// The connection's shared payload area, if `len` bytes from `from` are inside it.
fn shared_part<E: Env>(
    connection: &DataConnection<E>,
    from: usize,
    len: usize,
) -> Result<&E::Shared, WireError> {
    connection.payload_area.as_ref().filter(|area| from + len <= area.len()).ok_or_else(|| {
        let detail = format!("{len} bytes at {from} are outside the shared area of this connection");
        WireError::new(Errno::EINVAL, detail)
    })
}

/// Whether a payload arrived in full but failed its check, so that the connection can continue.
fn is_damage(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Malformed>());
    matches!(inner, Some(Malformed::PayloadCheck))
}
