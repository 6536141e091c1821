//! Payload of reads and writes: what is sent and received for each sub-request.

use crate::connection::{Area, Connection, unexpected_reply};
use crate::control::datafile;
use crate::core::Core;
use crate::error::Error;
use crate::exchange::{Item, Traffic};
use crate::file::Unsynced;
use crate::gather::{pick, pick_mut};
use crate::lease::attach_shared;
use std::cell::Cell;
use std::io::{self, IoSlice, IoSliceMut};
use weft_core::{ByteLen, FileId, LocalExtent, LocalOffset, ObjectId, SubRequest};
use weft_env::mutants::{self, Mutant, is_seeded};
use weft_env::{Env, Shared};
use weft_wire::data::{DataReply, DataRequest, IoHints, PAYLOAD_LEN_MAX, PayloadLocation, SIBLINGS_MAX};
use weft_wire::{Capability, Errno, Family, Malformed, WireError};

/// A sub-request and its progress.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) sub: SubRequest,
    /// Bytes read or written.
    pub(crate) done: u64,
    /// Bytes requested and not yet answered.
    pub(crate) requested: u32,
    /// Length of the datafile, once a read has reached its end or the server has reported it.
    pub(crate) datafile_len: Option<ByteLen>,
    /// Whether the datafile ended before the sub-request did.
    pub(crate) ended: bool,
    /// Offset in the connection's shared area at which the reply will be placed.
    area_offset: Option<u32>,
    /// Bytes of the datafile that its server reports as damaged.
    pub(crate) damaged: Option<LocalExtent>,
}

impl Transfer {
    pub(crate) fn new(sub: SubRequest) -> Self {
        Self {
            sub,
            done: 0,
            requested: 0,
            datafile_len: None,
            ended: false,
            area_offset: None,
            damaged: None,
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.ended || self.done == self.sub.local.len.0
    }

    /// Begins the next request, for at most `max` bytes, and returns its offset and length.
    fn begin_request(&mut self, max: u32) -> (LocalOffset, u32) {
        self.requested = (self.sub.local.len.0 - self.done).min(u64::from(max)) as u32;
        (LocalOffset(self.sub.local.offset.0 + self.done), self.requested)
    }

    /// Bytes that remain to be transferred.
    fn remaining(&self) -> u64 {
        self.sub.local.len.0 - self.done
    }

    /// Offset in the caller's buffer of the first byte that remains to be transferred.
    pub(crate) fn remaining_offset(&self) -> u64 {
        self.sub.pieces_after(ByteLen(self.done)).next().map_or(u64::MAX, |piece| piece.offset.0)
    }
}

/// Returns the unfinished transfers, and an exchange item for each of them.
pub(crate) fn unfinished<E: Env>(
    core: &Core<E>,
    transfers: &[Transfer],
) -> Result<(Vec<usize>, Vec<Item>), Error> {
    let open: Vec<usize> =
        (0..transfers.len()).filter(|&transfer| !transfers[transfer].is_complete()).collect();
    let mut items = Vec::with_capacity(open.len());
    for &transfer in &open {
        items.push(Item::new(core.route(transfers[transfer].sub.target)?));
    }
    Ok((open, items))
}

/// Hints for the server of sub-request `index` about it and its siblings.
fn hints(transfers: &[Transfer], index: usize, call: u32) -> IoHints {
    let sub = &transfers[index].sub;
    let mut sibling_targets = Vec::new();
    if sub.flags.fragment {
        let others = transfers.iter().enumerate().filter(|(other, _)| *other != index);
        sibling_targets.extend(others.map(|(_, transfer)| transfer.sub.target).take(SIBLINGS_MAX));
    }
    IoHints {
        fragment: sub.flags.fragment,
        small_random: sub.flags.small_random,
        siblings: sub.siblings.min(u32::from(u16::MAX)) as u16,
        call,
        sibling_targets,
    }
}

/// Reads by messages into the caller's buffers.
pub(crate) struct Reads<'a, 'b> {
    pub(crate) shared_bounds: SharedBounds,
    pub(crate) file: FileId,
    pub(crate) cap: Capability,
    /// See [`IoHints::call`].
    pub(crate) call: u32,
    pub(crate) transfers: &'a mut [Transfer],
    /// Index of the sub-request of each item of the exchange.
    pub(crate) items: &'a [usize],
    pub(crate) bufs: &'a mut [IoSliceMut<'b>],
    pub(crate) buffer_len: usize,
    /// Bytes of the connection's payload area that are used already.
    pub(crate) area_used: u32,
}

impl<E: Env> Traffic<E> for Reads<'_, '_> {
    const ANSWERED_FROM_MEMORY: bool = true;

    async fn prepare(&mut self, connection: &mut Connection<E>, items: &[usize]) -> io::Result<()> {
        self.area_used = 0;
        let bounds = self.shared_bounds;
        let is_requested =
            items.iter().any(|&item| self.transfers[self.items[item]].remaining() >= u64::from(bounds.min));
        prepare_area(connection, bounds, is_requested).await
    }

    async fn send(&mut self, connection: &mut Connection<E>, item: usize) -> io::Result<()> {
        let hints = hints(self.transfers, self.items[item], self.call);
        let transfer = &mut self.transfers[self.items[item]];
        if is_seeded(Mutant::StaleRead) {
            mutants::set_flag(transfer.requested > 0 && transfer.done == 0);
        }
        // A read longer than the area goes through it in pieces: copied twice, but through the cache.
        let (offset, len) = transfer.begin_request(self.shared_bounds.piece_max(&connection.area));
        let cap = self.cap;
        let datafile = datafile(self.file, (transfer.sub.object, transfer.sub.target));
        transfer.area_offset =
            self.shared_bounds.reserve(&connection.area, &mut self.area_used, len).map(|(_, to)| to);
        if let Some(to) = transfer.area_offset {
            let request = DataRequest::ReadShared { datafile, cap, offset, len, to, hints };
            return connection.send_request(Family::Data, &request, &[]).await;
        }
        let request = DataRequest::Read { datafile, cap, offset, len, hints };
        connection.send_request(Family::Data, &request, &[]).await
    }

    async fn receive(
        &mut self,
        connection: &mut Connection<E>,
        item: usize,
    ) -> io::Result<Result<(), WireError>> {
        let incoming = connection.recv_reply().await?;
        let header = incoming.header;
        let transfer = &mut self.transfers[self.items[item]];
        let datafile_len = match connection.link.decode(&incoming)? {
            DataReply::Read { datafile_len } => datafile_len,
            DataReply::ReadShared { len, datafile_len } => {
                connection.link.skip_payload(u64::from(header.payload_len)).await?;
                let (Area::Attached(area, _), Some(at)) = (&connection.area, transfer.area_offset) else {
                    return Err(unexpected_reply());
                };
                if len > transfer.requested {
                    return Err(Malformed::Field("len").into());
                }
                let mut from = at as usize;
                let pieces = transfer.sub.pieces_after(ByteLen(transfer.done));
                for mut piece in pick_mut(self.bufs, pieces, len as usize) {
                    area.copy_out(from, &mut piece);
                    from += piece.len();
                }
                mutate_stale_read(self.file, transfer, self.bufs, len as usize);
                transfer.done += u64::from(len);
                transfer.ended = len < transfer.requested;
                transfer.datafile_len = datafile_len;
                return Ok(Ok(()));
            }
            DataReply::Failed(error) => {
                connection.link.skip_payload(u64::from(header.payload_len)).await?;
                return Ok(Err(error));
            }
            DataReply::Damaged { start, end, error } => {
                connection.link.skip_payload(u64::from(header.payload_len)).await?;
                let len = ByteLen(end.saturating_sub(start));
                transfer.damaged = Some(LocalExtent { offset: LocalOffset(start), len });
                return Ok(Err(error));
            }
            _ => return Err(unexpected_reply()),
        };
        if header.payload_len > transfer.requested {
            return Err(Malformed::Field("payload_len").into());
        }
        let len = header.payload_len as usize;
        if len == self.buffer_len {
            connection.link.recv_payload(&header, self.bufs).await?;
        } else {
            let pieces = transfer.sub.pieces_after(ByteLen(transfer.done));
            connection.link.recv_payload(&header, &mut pick_mut(self.bufs, pieces, len)).await?;
        }
        mutate_stale_read(self.file, transfer, self.bufs, len);
        transfer.done += u64::from(header.payload_len);
        transfer.ended = header.payload_len < transfer.requested;
        transfer.datafile_len = Some(datafile_len);
        Ok(Ok(()))
    }
}

/// Writes by messages from the caller's buffers.
pub(crate) struct Writes<'a, 'b> {
    pub(crate) shared_bounds: SharedBounds,
    pub(crate) file: FileId,
    pub(crate) cap: Capability,
    /// See [`IoHints::call`].
    pub(crate) call: u32,
    pub(crate) unsynced: &'a Unsynced,
    pub(crate) transfers: &'a mut [Transfer],
    pub(crate) items: &'a [usize],
    pub(crate) bufs: &'a [IoSlice<'b>],
    pub(crate) buffer_len: usize,
    /// Number of payloads that went through shared memory.
    pub(crate) shared: u32,
    /// Bytes of the connection's payload area that are used already.
    pub(crate) area_used: u32,
}

/// Lengths of the payloads that go through shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedBounds {
    min: u32,
    max: u32,
}

impl SharedBounds {
    pub(crate) fn of<E: Env>(core: &Core<E>) -> Self {
        Self { min: core.options.shared_payload_min, max: core.options.shared_payload_max }
    }

    fn fit(self, len: u64) -> bool {
        u64::from(self.min) <= len && len <= u64::from(self.max)
    }

    /// Most bytes to read by one request.
    fn piece_max<S>(self, area: &Area<S>) -> u32 {
        let Area::Attached(_, area_len) = area else { return PAYLOAD_LEN_MAX };
        let piece = self.max.min(*area_len);
        if piece >= self.min { piece } else { PAYLOAD_LEN_MAX }
    }

    /// Reserves `len` bytes of an attached area, of which the first `used` are taken, and returns the area and their
    /// offset. `None` if this payload must not go through the area, or does not fit.
    fn reserve<'a, S>(self, area: &'a Area<S>, used: &mut u32, len: u32) -> Option<(&'a S, u32)> {
        let Area::Attached(shared, area_len) = area else { return None };
        if !self.fit(u64::from(len)) || len > area_len - *used {
            return None;
        }
        let from = *used;
        *used += len;
        Some((shared, from))
    }
}

/// Attaches the shared payload area of a local connection, if `is_requested`.
async fn prepare_area<E: Env>(
    connection: &mut Connection<E>,
    bounds: SharedBounds,
    is_requested: bool,
) -> io::Result<()> {
    if is_requested
        && connection.local
        && bounds.min <= bounds.max
        && matches!(connection.area, Area::Unknown)
    {
        // The lease page that comes with it is not needed here: leases have a connection of their own.
        drop(attach_shared(connection, bounds.max).await?);
    }
    Ok(())
}

impl<E: Env> Traffic<E> for Writes<'_, '_> {
    const ANSWERED_FROM_MEMORY: bool = true;

    async fn prepare(&mut self, connection: &mut Connection<E>, items: &[usize]) -> io::Result<()> {
        self.area_used = 0;
        let bounds = self.shared_bounds;
        let is_requested = items.iter().any(|&item| bounds.fit(self.transfers[self.items[item]].remaining()));
        prepare_area(connection, bounds, is_requested).await
    }

    async fn send(&mut self, connection: &mut Connection<E>, item: usize) -> io::Result<()> {
        let hints = hints(self.transfers, self.items[item], self.call);
        let transfer = &mut self.transfers[self.items[item]];
        let (offset, len) = transfer.begin_request(PAYLOAD_LEN_MAX);
        let datafile = datafile(self.file, (transfer.sub.object, transfer.sub.target));
        let cap = self.cap;
        let pieces = transfer.sub.pieces_after(ByteLen(transfer.done));
        if let Some((area, from)) = self.shared_bounds.reserve(&connection.area, &mut self.area_used, len) {
            let mut to = from as usize;
            for piece in pick(self.bufs, pieces, len as usize) {
                area.copy_in(to, &piece);
                to += piece.len();
            }
            self.shared += 1;
            let request = DataRequest::Write {
                datafile,
                cap,
                offset,
                len,
                place: PayloadLocation::Shared(from),
                hints,
            };
            return connection.send_request(Family::Data, &request, &[]).await;
        }
        let request =
            DataRequest::Write { datafile, cap, offset, len, place: PayloadLocation::Payload, hints };
        if len as usize == self.buffer_len {
            return connection.send_request(Family::Data, &request, self.bufs).await;
        }
        connection.send_request(Family::Data, &request, &pick(self.bufs, pieces, len as usize)).await
    }

    async fn receive(
        &mut self,
        connection: &mut Connection<E>,
        item: usize,
    ) -> io::Result<Result<(), WireError>> {
        let incoming = connection.recv_reply().await?;
        let reply = connection.link.decode(&incoming)?;
        connection.link.skip_payload(u64::from(incoming.header.payload_len)).await?;
        match reply {
            DataReply::Written => {
                let transfer = &mut self.transfers[self.items[item]];
                transfer.done += u64::from(transfer.requested);
                if !connection.local {
                    self.unsynced.note(transfer.sub.target, connection.boot);
                }
                Ok(Ok(()))
            }
            // Damaged in transit: sent once more over another connection.
            DataReply::Failed(error) if error.errno == Errno::EBADMSG => Err(io::Error::other(error)),
            DataReply::Failed(error) => Ok(Err(error)),
            _ => Err(unexpected_reply()),
        }
    }
}

/// Seeded mutant: a repeated read returns the bytes that were there earlier.
#[inline]
fn mutate_stale_read(file: FileId, transfer: &Transfer, bufs: &mut [IoSliceMut<'_>], len: usize) {
    if !is_seeded(Mutant::StaleRead) {
        return;
    }
    let ObjectId { component, column } = transfer.sub.object;
    let of = (file.0, u64::from(component) << 16 | u64::from(column));
    let mut at = transfer.sub.local.offset.0 + transfer.done;
    for mut piece in pick_mut(bufs, transfer.sub.pieces_after(ByteLen(transfer.done)), len) {
        match mutants::is_flag_set() {
            true => mutants::restore(of, at, &mut piece),
            false => mutants::save(of, at, &piece),
        }
        at += piece.len() as u64;
    }
}

/// The sub-requests of one request. The thread's next request reuses the memory.
pub(crate) struct SubRequests(pub(crate) Vec<SubRequest>);

thread_local! {
    static SPARE: Cell<Vec<SubRequest>> = const { Cell::new(Vec::new()) };
}

impl SubRequests {
    #[inline]
    pub(crate) fn take() -> Self {
        // At the end of a thread, the thread-local value is gone.
        Self(SPARE.try_with(Cell::take).unwrap_or_default())
    }
}

impl Drop for SubRequests {
    #[inline]
    fn drop(&mut self) {
        let subs = std::mem::take(&mut self.0);
        if subs.capacity() <= 256 {
            let _ = SPARE.try_with(|spare| spare.set(subs));
        }
    }
}
