//! Reading and writing.

use super::samples::Noted;
use super::watches::Changing;
use super::{Counters, DataConnection, DataService, Served, key};
use crate::connection::answer;
use crate::connections::Entry;
use crate::place::{Gate, ReadPlan, Sending, Source};
use std::io::{self, IoSlice, IoSliceMut};
use weft_core::{ByteLen, LocalOffset};
use weft_env::{Env, Shared};
use weft_store::target::DATAFILE_LEN_MAX;
use weft_wire::data::{DataReply, DatafileId, IoHints, PAYLOAD_LEN_MAX};
use weft_wire::{Capability, Errno, Family, Incoming, Kind, Link, Malformed, Rights, WireError};

/// A read as it came.
pub(super) struct Read {
    pub datafile: DatafileId,
    pub cap: Capability,
    pub offset: LocalOffset,
    pub len: u32,
    pub hints: IoHints,
}

/// A write as it came.
pub(super) struct Write {
    pub datafile: DatafileId,
    pub cap: Capability,
    pub offset: LocalOffset,
    pub len: u32,
    pub hints: IoHints,
}

/// What came from the wire is bounded before anything is reserved or done for it.
fn check_range(offset: LocalOffset, len: u32) -> Result<(), WireError> {
    if len > PAYLOAD_LEN_MAX {
        let detail = format!("{len} bytes in one request, of at most {PAYLOAD_LEN_MAX}");
        return Err(WireError::new(Errno::EINVAL, detail));
    }
    match offset.0.checked_add(len.into()) {
        Some(end) if end <= DATAFILE_LEN_MAX => Ok(()),
        _ => Err(WireError::new(Errno::EFBIG, format!("{len} bytes at {offset} end past the last offset"))),
    }
}

fn count(counters: &Counters, hints: &IoHints) {
    Counters::add(&counters.requests, 1);
    if hints.fragment || hints.small_random {
        Counters::add(&counters.fragments, 1);
    }
}

impl<E: Env> DataService<E> {
    /// Counts a request that passed its checks, and notes it where it is to be kept as a sample; it has been served when
    /// the result is dropped.
    fn counted(
        &self,
        connection: &mut DataConnection<E>,
        served: &Served<E>,
        what: (DatafileId, LocalOffset, u32, bool),
        hints: &IoHints,
    ) -> Option<Noted<'_, E>> {
        count(&served.counters, hints);
        self.sampler.as_ref()?.note(&self.env, connection, what, hints)
    }

    pub(super) async fn read(
        &self,
        link: &mut Link<E::Conn>,
        entry: &Entry,
        connection: &mut DataConnection<E>,
        incoming: &Incoming,
        read: Read,
    ) -> io::Result<()> {
        let Read { datafile, offset, .. } = read;
        let request = incoming.header.request;
        let checked = check_range(offset, read.len).and_then(|()| {
            connection.check(&self.secret, &read.cap, datafile.file, Rights::READ, self.env.wall())?;
            let served = self.served(datafile.target)?;
            self.check_seal(served, &read.cap).map(|()| served)
        });
        let served = match checked {
            Ok(served) => served,
            Err(error) => return answer(link, entry, incoming, &DataReply::Failed(error)).await,
        };
        let _noted = self.counted(connection, served, (datafile, offset, read.len, false), &read.hints);
        let (family, kind) = (Family::Data, Kind::Reply);
        let key = key(datafile);
        let gate = Gate { admission: &served.admission, session: connection.session };
        if let Err(error) = served.placed.target().require_sums(key, read.cap.rights.integrity()).await {
            let reply = self.read_failed(served, &read.cap, error);
            return answer(link, entry, incoming, &reply).await;
        }
        let mut plan = served.placed.plan_read(key, offset, read.len, &read.hints);
        if served.placed.target().sends_files() && link.sends_files() && plan.is_of_disk() {
            let permit = served.placed.enter(gate).await;
            match served.placed.file_to_send(&plan, key, offset, read.len).await {
                Ok(Sending::Bytes) => drop(permit),
                Ok(Sending::File(file, datafile_len)) => {
                    let len = ByteLen(datafile_len.0.saturating_sub(offset.0).min(read.len.into()));
                    let reply = DataReply::Read { datafile_len };
                    if len.0 == 0 || incoming.header.kind != Kind::Request {
                        drop(permit);
                        return answer(link, entry, incoming, &reply).await;
                    }
                    Counters::add(&served.counters.bytes_read, len.0);
                    entry.expect_peer();
                    // Held while the bytes are sent, because that is when the device is read.
                    let _permit = permit.lend(entry, datafile.target);
                    return link.send_file(kind, family, request, &reply, &file, offset, len).await;
                }
                Ok(Sending::Nothing) => {
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
        let got = served.placed.read(&mut plan, key, offset, &mut buf, gate).await;
        let got = got.map_err(|error| self.read_failed(served, &read.cap, error));
        let got =
            got.and_then(|got| self.check_seal(served, &read.cap).map_err(DataReply::Failed).map(|()| got));
        let (len, datafile_len) = match got {
            Ok(got) => got,
            Err(reply) => return answer(link, entry, incoming, &reply).await,
        };
        if incoming.header.kind == Kind::Request {
            Counters::add(&served.counters.bytes_read, len as u64);
            entry.expect_peer();
            let reply = DataReply::Read { datafile_len };
            let payload = [IoSlice::new(&buf[..len])];
            entry.set_holds_memory(true);
            let sent = link.send(kind, family, request, &reply, if len > 0 { &payload } else { &[] }).await;
            entry.set_holds_memory(false);
            sent?;
        }
        if let ReadPlan::Copy(miss) = &plan {
            entry.at_ease();
            served.placed.keep(miss, key, offset, &buf[..len]).await;
        }
        Ok(())
    }

    /// A read whose bytes go to the connection's shared area.
    pub(super) async fn read_shared(
        &self,
        connection: &mut DataConnection<E>,
        read: Read,
        to: usize,
    ) -> Result<DataReply, WireError> {
        check_range(read.offset, read.len)?;
        connection.check(&self.secret, &read.cap, read.datafile.file, Rights::READ, self.env.wall())?;
        let served = self.served(read.datafile.target)?;
        self.check_seal(served, &read.cap)?;
        let len = read.len as usize;
        shared_part(connection, to, len)?;
        let _noted =
            self.counted(connection, served, (read.datafile, read.offset, read.len, false), &read.hints);
        let area = shared_part(connection, to, len)?;
        let (key, offset) = (key(read.datafile), read.offset);
        let gate = Gate { admission: &served.admission, session: connection.session };
        if let Err(error) = served.placed.target().require_sums(key, read.cap.rights.integrity()).await {
            return Ok(self.read_failed(served, &read.cap, error));
        }
        let mut plan = served.placed.plan_read(key, offset, read.len, &read.hints);
        let got = served.placed.read_shared(&mut plan, key, offset, (area, to, len), gate).await;
        let got = match got {
            Ok(got) => got,
            Err(error) => return Ok(self.read_failed(served, &read.cap, error)),
        };
        if let Some((count, datafile_len)) = got {
            Counters::add(&served.counters.bytes_read, count as u64);
            if let ReadPlan::Copy(miss) = &plan {
                served.placed.keep_later(miss, key, offset, count);
            }
            return Ok(DataReply::ReadShared { len: count as u32, datafile_len });
        }
        let mut buf = self.pool.borrow(len, connection.user).await;
        let got = served.placed.read(&mut plan, key, offset, &mut buf, gate).await;
        let (count, datafile_len) = match got {
            Ok(got) => self.check_seal(served, &read.cap).map(|()| got)?,
            Err(error) => return Ok(self.read_failed(served, &read.cap, error)),
        };
        area.copy_in(to, &buf[..count]);
        Counters::add(&served.counters.bytes_read, count as u64);
        if let ReadPlan::Copy(miss) = &plan {
            served.placed.keep(miss, key, offset, &buf[..count]).await;
        }
        let datafile_len = (count < len).then_some(datafile_len);
        Ok(DataReply::ReadShared { len: count as u32, datafile_len })
    }

    /// A write whose bytes come as payload.
    ///
    /// The outer result is the connection's, the inner one goes to the client.
    pub(super) async fn write(
        &self,
        link: &mut Link<E::Conn>,
        entry: &Entry,
        connection: &mut DataConnection<E>,
        incoming: &Incoming,
        write: Write,
    ) -> io::Result<Result<(), WireError>> {
        let payload_len = incoming.header.payload_len;
        let checked = check_range(write.offset, write.len).and_then(|()| match write.len == payload_len {
            true => self.may_write(connection, &write),
            false => {
                let detail = format!("a write of {} bytes with a payload of {payload_len}", write.len);
                Err(WireError::new(Errno::EINVAL, detail))
            }
        });
        entry.expect_peer();
        if let Err(error) = checked {
            link.skip_payload(payload_len.into()).await?;
            return Ok(Err(error));
        }
        if payload_len == 0 {
            return Ok(Ok(()));
        }
        entry.at_ease(); // waiting for memory is not the peer's fault
        let mut buf = self.pool.borrow(payload_len as usize, connection.user).await;
        entry.expect_peer();
        entry.set_holds_memory(true);
        let received = link.recv_payload(&incoming.header, &mut [IoSliceMut::new(&mut buf)]).await;
        entry.set_holds_memory(false);
        entry.at_ease();
        if let Err(error) = received {
            if is_damage(&error) {
                return Ok(Err(WireError::new(Errno::EBADMSG, error.to_string())));
            }
            return Err(error);
        }
        let served = match self.served(write.datafile.target) {
            Ok(served) => served,
            Err(error) => return Ok(Err(error)),
        };
        let _noted =
            self.counted(connection, served, (write.datafile, write.offset, write.len, true), &write.hints);
        let _inside = connection.place(&self.insiders).enter(write.datafile.file);
        if let Err(error) = self.check_fence(served, &write.cap) {
            return Ok(Err(error));
        }
        let _changing = self.changing(&write);
        let gate = Gate { admission: &served.admission, session: connection.session };
        let (key, source) = (key(write.datafile), Source::Bytes(&buf));
        if let Err(error) = served.placed.prepare(key, write.cap.rights.integrity()).await {
            return Ok(Err(self.failed(error)));
        }
        let written = served.placed.write(key, write.offset, source, &write.hints, gate).await;
        Counters::add(&served.counters.bytes_written, payload_len.into());
        Ok(written.map_err(|error| self.failed(error)))
    }

    /// A write whose bytes lie in the connection's shared area.
    pub(super) async fn write_shared(
        &self,
        connection: &mut DataConnection<E>,
        write: Write,
        from: usize,
    ) -> Result<(), WireError> {
        check_range(write.offset, write.len)?;
        self.may_write(connection, &write)?;
        let served = self.served(write.datafile.target)?;
        let len = write.len as usize;
        shared_part(connection, from, len)?;
        if len == 0 {
            return Ok(());
        }
        let _noted =
            self.counted(connection, served, (write.datafile, write.offset, write.len, true), &write.hints);
        let _inside = connection.place(&self.insiders).enter(write.datafile.file);
        self.check_fence(served, &write.cap)?;
        let _changing = self.changing(&write);
        let area = shared_part(connection, from, len)?;
        let gate = Gate { admission: &served.admission, session: connection.session };
        let (key, source) = (key(write.datafile), Source::Shared(area, from, len));
        let prepared = served.placed.prepare(key, write.cap.rights.integrity()).await;
        prepared.map_err(|error| self.failed(error))?;
        let written = served.placed.write(key, write.offset, source, &write.hints, gate).await;
        Counters::add(&served.counters.bytes_written, write.len.into());
        written.map_err(|error| self.failed(error))
    }

    /// The write is noted where somebody copies the datafile, once the result is dropped.
    fn changing(&self, write: &Write) -> Changing<'_> {
        self.watches.changing(write.datafile, write.offset.0, write.offset.0 + u64::from(write.len))
    }

    fn may_write(&self, connection: &mut DataConnection<E>, write: &Write) -> Result<(), WireError> {
        let (file, now) = (write.datafile.file, self.env.wall());
        connection.check(&self.secret, &write.cap, file, Rights::WRITE, now)?;
        self.served(write.datafile.target).map(drop)
    }
}

/// The connection's shared payload area, if `len` bytes from `from` lie in it.
fn shared_part<E: Env>(
    connection: &DataConnection<E>,
    from: usize,
    len: usize,
) -> Result<&E::Shared, WireError> {
    connection.payload_area.as_ref().filter(|area| from + len <= area.len()).ok_or_else(|| {
        let detail = format!("{len} bytes at {from} do not lie in a shared area of this connection");
        WireError::new(Errno::EINVAL, detail)
    })
}

/// Whether a payload came whole but damaged, so that the connection can go on.
fn is_damage(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Malformed>());
    matches!(inner, Some(Malformed::PayloadCheck))
}
