//! Reads and writes of an open file: split, route, exchange.

use crate::call::unexpected;
use crate::connect::{Area, Wire};
use crate::control::datafile;
use crate::core::Core;
use crate::exchange::Traffic;
use crate::file::Unsynced;
use crate::gather::{pick, pick_mut};
use crate::lease::attach_shared;
use std::cell::Cell;
use std::io::{self, IoSlice, IoSliceMut};
use weft_core::{ByteLen, FileId, LocalExtent, LocalOffset, ObjectId, SubRequest};
use weft_env::plants::{self, Plant, planted};
use weft_env::{Env, Shared};
use weft_wire::data::{DataReply, DataRequest, IoHints, PAYLOAD_LEN_MAX, Place, SIBLINGS_MAX};
use weft_wire::{Capability, Errno, Family, Malformed, WireError};

/// A sub-request on its way, and how far it is.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) sub: SubRequest,
    /// Bytes read or written.
    pub(crate) done: u64,
    /// Bytes under way.
    pub(crate) asked: u32,
    /// The length of the datafile, once a read met its end or was told.
    pub(crate) datafile_len: Option<ByteLen>,
    /// The datafile ended before the sub-request did.
    pub(crate) ended: bool,
    /// Where in the connection's shared area the bytes under way are to lie.
    shared_at: Option<u32>,
    /// Bytes of the datafile that its server found damaged.
    pub(crate) damaged: Option<LocalExtent>,
}

impl Part {
    pub(crate) fn new(sub: SubRequest) -> Self {
        Self { sub, done: 0, asked: 0, datafile_len: None, ended: false, shared_at: None, damaged: None }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.ended || self.done == self.sub.local.len.0
    }

    /// The next bytes to ask for, at most `max`.
    fn begin(&mut self, max: u32) -> (LocalOffset, u32) {
        self.asked = (self.sub.local.len.0 - self.done).min(u64::from(max)) as u32;
        (LocalOffset(self.sub.local.offset.0 + self.done), self.asked)
    }

    /// Bytes that are left.
    fn undone(&self) -> u64 {
        self.sub.local.len.0 - self.done
    }

    /// The file's bytes of this part begin here in the caller's buffer, behind what is done.
    pub(crate) fn undone_at(&self) -> u64 {
        self.sub.pieces_after(ByteLen(self.done)).next().map_or(u64::MAX, |piece| piece.offset.0)
    }
}

/// What the server of part `index` is to know of it and of the others.
fn hints(parts: &[Part], index: usize, call: u32) -> IoHints {
    let sub = &parts[index].sub;
    let mut sibling_targets = Vec::new();
    if sub.flags.fragment {
        let others = parts.iter().enumerate().filter(|(other, _)| *other != index);
        sibling_targets.extend(others.map(|(_, part)| part.sub.target).take(SIBLINGS_MAX));
    }
    IoHints {
        fragment: sub.flags.fragment,
        small_random: sub.flags.small_random,
        siblings: sub.siblings.min(u32::from(u16::MAX)) as u16,
        call,
        sibling_targets,
    }
}

/// Reads by message into the caller's buffers.
pub(crate) struct Reads<'a, 'b> {
    pub(crate) core_bounds: SharedBounds,
    pub(crate) file: FileId,
    pub(crate) cap: Capability,
    /// See [`IoHints::call`].
    pub(crate) call: u32,
    pub(crate) parts: &'a mut [Part],
    /// Which part each item of the exchange is.
    pub(crate) items: &'a [usize],
    pub(crate) bufs: &'a mut [IoSliceMut<'b>],
    pub(crate) buffer_len: usize,
    /// Room used in the payload area of the wire that is being sent on.
    pub(crate) area_used: u32,
}

impl<E: Env> Traffic<E> for Reads<'_, '_> {
    const AT_ONCE: bool = true;

    async fn prepare(&mut self, wire: &mut Wire<E>, items: &[usize]) -> io::Result<()> {
        self.area_used = 0;
        let bounds = self.core_bounds;
        let wanted = items.iter().any(|&item| self.parts[self.items[item]].undone() >= u64::from(bounds.min));
        prepare_area(wire, bounds, wanted).await
    }

    async fn send(&mut self, wire: &mut Wire<E>, item: usize) -> io::Result<()> {
        let hints = hints(self.parts, self.items[item], self.call);
        let part = &mut self.parts[self.items[item]];
        if planted(Plant::StaleRead) {
            plants::flag(part.asked > 0 && part.done == 0);
        }
        // What is longer than the area goes through it in pieces: copied twice, but out of the cache.
        let (offset, len) = part.begin(self.core_bounds.piece_max(&wire.area));
        let cap = self.cap;
        let datafile = datafile(self.file, (part.sub.object, part.sub.target));
        part.shared_at = self.core_bounds.reserve(&wire.area, &mut self.area_used, len).map(|(_, to)| to);
        if let Some(to) = part.shared_at {
            let request = DataRequest::ReadShared { datafile, cap, offset, len, to, hints };
            return wire.ask(Family::Data, &request, &[]).await;
        }
        let request = DataRequest::Read { datafile, cap, offset, len, hints };
        wire.ask(Family::Data, &request, &[]).await
    }

    async fn receive(&mut self, wire: &mut Wire<E>, item: usize) -> io::Result<Result<(), WireError>> {
        let incoming = wire.answer().await?;
        let header = incoming.header;
        let part = &mut self.parts[self.items[item]];
        let datafile_len = match wire.link.decode(&incoming)? {
            DataReply::Read { datafile_len } => datafile_len,
            DataReply::ReadShared { len, datafile_len } => {
                wire.link.skip_payload(u64::from(header.payload_len)).await?;
                let (Area::Attached(area, _), Some(at)) = (&wire.area, part.shared_at) else {
                    return Err(unexpected());
                };
                if len > part.asked {
                    return Err(Malformed::Field("len").into());
                }
                let mut from = at as usize;
                let pieces = part.sub.pieces_after(ByteLen(part.done));
                for mut piece in pick_mut(self.bufs, pieces, len as usize) {
                    area.copy_out(from, &mut piece);
                    from += piece.len();
                }
                plant_stale(self.file, part, self.bufs, len as usize);
                part.done += u64::from(len);
                part.ended = len < part.asked;
                part.datafile_len = datafile_len;
                return Ok(Ok(()));
            }
            DataReply::Failed(error) => {
                wire.link.skip_payload(u64::from(header.payload_len)).await?;
                return Ok(Err(error));
            }
            DataReply::Damaged { start, end, error } => {
                wire.link.skip_payload(u64::from(header.payload_len)).await?;
                let len = ByteLen(end.saturating_sub(start));
                part.damaged = Some(LocalExtent { offset: LocalOffset(start), len });
                return Ok(Err(error));
            }
            _ => return Err(unexpected()),
        };
        if header.payload_len > part.asked {
            return Err(Malformed::Field("payload_len").into());
        }
        let len = header.payload_len as usize;
        if len == self.buffer_len {
            wire.link.recv_payload(&header, self.bufs).await?;
        } else {
            let pieces = part.sub.pieces_after(ByteLen(part.done));
            wire.link.recv_payload(&header, &mut pick_mut(self.bufs, pieces, len)).await?;
        }
        plant_stale(self.file, part, self.bufs, len);
        part.done += u64::from(header.payload_len);
        part.ended = header.payload_len < part.asked;
        part.datafile_len = Some(datafile_len);
        Ok(Ok(()))
    }
}

/// Writes by message from the caller's buffers.
pub(crate) struct Writes<'a, 'b> {
    pub(crate) core_bounds: SharedBounds,
    pub(crate) file: FileId,
    pub(crate) cap: Capability,
    /// See [`IoHints::call`].
    pub(crate) call: u32,
    pub(crate) unsynced: &'a Unsynced,
    pub(crate) parts: &'a mut [Part],
    pub(crate) items: &'a [usize],
    pub(crate) bufs: &'a [IoSlice<'b>],
    pub(crate) buffer_len: usize,
    /// Payloads that went through shared memory.
    pub(crate) shared: u32,
    /// Room used in the payload area of the wire that is being sent on.
    pub(crate) area_used: u32,
}

/// Which payloads go through shared memory.
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

    /// The most bytes to read by one request.
    fn piece_max<S>(self, area: &Area<S>) -> u32 {
        let Area::Attached(_, room) = area else { return PAYLOAD_LEN_MAX };
        let piece = self.max.min(*room);
        if piece >= self.min { piece } else { PAYLOAD_LEN_MAX }
    }

    /// Takes `len` bytes of an attached area, of which the first `used` are taken: the area, and where they begin.
    /// `None` when this payload is not to go through it, or there is no room left.
    fn reserve<'a, S>(self, area: &'a Area<S>, used: &mut u32, len: u32) -> Option<(&'a S, u32)> {
        let Area::Attached(shared, room) = area else { return None };
        if !self.fit(u64::from(len)) || len > room - *used {
            return None;
        }
        let from = *used;
        *used += len;
        Some((shared, from))
    }
}

/// Attaches the shared payload area of a local connection when it is `wanted`.
async fn prepare_area<E: Env>(wire: &mut Wire<E>, bounds: SharedBounds, wanted: bool) -> io::Result<()> {
    if wanted && wire.local && bounds.min <= bounds.max && matches!(wire.area, Area::Unknown) {
        // The lease page that comes with it is the channel's business, not this connection's.
        drop(attach_shared(wire, bounds.max).await?);
    }
    Ok(())
}

impl<E: Env> Traffic<E> for Writes<'_, '_> {
    const AT_ONCE: bool = true;

    async fn prepare(&mut self, wire: &mut Wire<E>, items: &[usize]) -> io::Result<()> {
        self.area_used = 0;
        let bounds = self.core_bounds;
        let wanted = items.iter().any(|&item| bounds.fit(self.parts[self.items[item]].undone()));
        prepare_area(wire, bounds, wanted).await
    }

    async fn send(&mut self, wire: &mut Wire<E>, item: usize) -> io::Result<()> {
        let hints = hints(self.parts, self.items[item], self.call);
        let part = &mut self.parts[self.items[item]];
        let (offset, len) = part.begin(PAYLOAD_LEN_MAX);
        let datafile = datafile(self.file, (part.sub.object, part.sub.target));
        let cap = self.cap;
        let pieces = part.sub.pieces_after(ByteLen(part.done));
        if let Some((area, from)) = self.core_bounds.reserve(&wire.area, &mut self.area_used, len) {
            let mut to = from as usize;
            for piece in pick(self.bufs, pieces, len as usize) {
                area.copy_in(to, &piece);
                to += piece.len();
            }
            self.shared += 1;
            let request =
                DataRequest::Write { datafile, cap, offset, len, place: Place::Shared(from), hints };
            return wire.ask(Family::Data, &request, &[]).await;
        }
        let request = DataRequest::Write { datafile, cap, offset, len, place: Place::Payload, hints };
        if len as usize == self.buffer_len {
            return wire.ask(Family::Data, &request, self.bufs).await;
        }
        wire.ask(Family::Data, &request, &pick(self.bufs, pieces, len as usize)).await
    }

    async fn receive(&mut self, wire: &mut Wire<E>, item: usize) -> io::Result<Result<(), WireError>> {
        let incoming = wire.answer().await?;
        let reply = wire.link.decode(&incoming)?;
        wire.link.skip_payload(u64::from(incoming.header.payload_len)).await?;
        match reply {
            DataReply::Written => {
                let part = &mut self.parts[self.items[item]];
                part.done += u64::from(part.asked);
                if !wire.local {
                    self.unsynced.note(part.sub.target, wire.boot);
                }
                Ok(Ok(()))
            }
            // Damaged on the way: once more, over another connection.
            DataReply::Failed(error) if error.errno == Errno::EBADMSG => Err(io::Error::other(error)),
            DataReply::Failed(error) => Ok(Err(error)),
            _ => Err(unexpected()),
        }
    }
}

/// The planted bug: a read that was sent again gives what was read there before.
#[inline]
fn plant_stale(file: FileId, part: &Part, bufs: &mut [IoSliceMut<'_>], len: usize) {
    if !planted(Plant::StaleRead) {
        return;
    }
    let ObjectId { component, column } = part.sub.object;
    let of = (file.0, u64::from(component) << 16 | u64::from(column));
    let mut at = part.sub.local.offset.0 + part.done;
    for mut piece in pick_mut(bufs, part.sub.pieces_after(ByteLen(part.done)), len) {
        match plants::is_flagged() {
            true => plants::kept(of, at, &mut piece),
            false => plants::keep(of, at, &piece),
        }
        at += piece.len() as u64;
    }
}

/// The list of sub-requests of one request, whose memory is used again by the next one of the same thread.
pub(crate) struct Subs(pub(crate) Vec<SubRequest>);

thread_local! {
    static SPARE: Cell<Vec<SubRequest>> = const { Cell::new(Vec::new()) };
}

impl Subs {
    #[inline]
    pub(crate) fn take() -> Self {
        // At the very end of a thread there is no spare one any more.
        Self(SPARE.try_with(Cell::take).unwrap_or_default())
    }
}

impl Drop for Subs {
    #[inline]
    fn drop(&mut self) {
        let subs = std::mem::take(&mut self.0);
        if subs.capacity() <= 256 {
            let _ = SPARE.try_with(|spare| spare.set(subs));
        }
    }
}
