//! Messages to delegates: simple calls, and reads and writes of lists of pieces.

use super::Incarnations;
use crate::connection::{Area, Connection, unexpected_reply};
use crate::core::Core;
use crate::deadline::Deadline;
use crate::exchange::{Item, Outcome, Traffic, exchange};
use std::io::{self, IoSlice, IoSliceMut};
use weft_core::ServerId;
use weft_core::delegates::ownership::FileNumber;
use weft_env::{Attachment, Conn, Env, Shared};
use weft_wire::delegate::{
    DelegateReply, DelegateRequest, FilePiece, FileSource, Grant, PIECES_MAX, PayloadLocation,
};
use weft_wire::{Errno, Family, Kind, Malformed, WireError};

/// Longest read or write of one request, in bytes.
pub(super) const REQUEST_LEN_MAX: u32 = 1 << 20;
/// Shortest payload that goes through shared memory, in bytes.
const SHARED_MIN: u32 = 2048;

/// A request without payload.
pub(super) struct Call<E: Env> {
    pub(super) delegate: ServerId,
    pub(super) request: DelegateRequest,
    /// Sent with the request over a connection within the host; over others, the path of the source is used.
    pub(super) descriptor: Option<(E::File, FileSource)>,
    pub(super) reply: Option<DelegateReply>,
}

impl<E: Env> Call<E> {
    pub(super) const fn new(delegate: ServerId, request: DelegateRequest) -> Self {
        Self { delegate, request, descriptor: None, reply: None }
    }
}

/// Bytes of one request that reads or writes.
pub(super) struct Batch<B> {
    pub(super) delegate: ServerId,
    pub(super) pieces: Vec<FilePiece>,
    /// Memory of each piece.
    pub(super) buffers: Vec<B>,
    /// Index of the caller's piece that each is a part of.
    pub(super) parts_of: Vec<u32>,
    pub(super) len: u32,
    /// Offset in the shared area, if the bytes go through it.
    area_from: Option<u32>,
    pub(super) reply: Option<DelegateReply>,
}

impl<B> Batch<B> {
    fn new(delegate: ServerId) -> Self {
        let (pieces, buffers, parts_of) = (Vec::new(), Vec::new(), Vec::new());
        Self { delegate, pieces, buffers, parts_of, len: 0, area_from: None, reply: None }
    }
}

/// Memory that can be cut in two.
pub(super) trait Cut: Sized {
    fn len(&self) -> usize;
    fn cut(self, at: usize) -> (Self, Self);
}

impl Cut for &[u8] {
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }
    fn cut(self, at: usize) -> (Self, Self) {
        self.split_at(at)
    }
}

impl Cut for &mut [u8] {
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }
    fn cut(self, at: usize) -> (Self, Self) {
        self.split_at_mut(at)
    }
}

/// Requests under construction, by delegate.
pub(super) struct Batches<B>(pub(super) Vec<Batch<B>>);

impl<B: Cut> Batches<B> {
    /// Adds a part of the caller's piece number `part_of` to the last request of its delegate, and cuts it where that
    /// request is full.
    pub(super) fn push(&mut self, delegate: ServerId, part_of: usize, mut offset: u64, mut buffer: B) {
        while buffer.len() > 0 {
            let at = self
                .0
                .iter()
                .rposition(|batch| batch.delegate == delegate)
                .filter(|&at| self.0[at].len < REQUEST_LEN_MAX && self.0[at].pieces.len() < PIECES_MAX);
            let at = at.unwrap_or_else(|| {
                self.0.push(Batch::new(delegate));
                self.0.len() - 1
            });
            let batch = &mut self.0[at];
            let len = buffer.len().min((REQUEST_LEN_MAX - batch.len) as usize);
            let (head, tail) = buffer.cut(len);
            batch.pieces.push(FilePiece { offset, len: len as u32 });
            batch.buffers.push(head);
            batch.parts_of.push(part_of as u32);
            batch.len += len as u32;
            offset += len as u64;
            buffer = tail;
        }
    }
}

/// Requests with one kind of payload on their way.
struct Calls<'a, E: Env> {
    calls: &'a mut [Call<E>],
    incarnations: &'a Incarnations,
}

impl<E: Env> Traffic<E> for Calls<'_, E> {
    async fn send(&mut self, connection: &mut Connection<E>, item: usize) -> io::Result<()> {
        let call = &self.calls[item];
        match (&call.descriptor, &call.request) {
            (Some((file, _)), request) if connection.local => {
                connection.next_request += 1;
                let number = connection.next_request;
                let files = [Attachment::File(file.clone())];
                let link = &mut connection.link;
                link.send_attached(Kind::Request, Family::Delegate, number, request, &files).await?;
                connection.replies_pending += 1;
                Ok(())
            }
            (Some((_, path)), DelegateRequest::Open { file, handle, read, write, page_len, name, .. }) => {
                let request = DelegateRequest::Open {
                    file: *file,
                    handle: *handle,
                    source: path.clone(),
                    read: *read,
                    write: *write,
                    page_len: *page_len,
                    name: name.clone(),
                };
                connection.send_request(Family::Delegate, &request, &[]).await
            }
            (_, request) => connection.send_request(Family::Delegate, request, &[]).await,
        }
    }

    async fn receive(
        &mut self,
        connection: &mut Connection<E>,
        item: usize,
    ) -> io::Result<Result<(), WireError>> {
        let reply = reply(connection).await?;
        let call = &mut self.calls[item];
        settle(self.incarnations, connection, call.delegate, reply, &mut call.reply)
    }
}

async fn reply<E: Env>(connection: &mut Connection<E>) -> io::Result<DelegateReply> {
    let incoming = connection.recv_reply().await?;
    let reply = connection.link.decode(&incoming)?;
    connection.link.skip_payload(u64::from(incoming.header.payload_len)).await?;
    Ok(reply)
}

/// Stores a reply. An error is the outcome of the request; so is a delegate that has restarted.
#[allow(clippy::unnecessary_wraps)] // The outer result is the one of `Traffic::receive`.
fn settle<E: Env>(
    incarnations: &Incarnations,
    connection: &Connection<E>,
    delegate: ServerId,
    reply: DelegateReply,
    place: &mut Option<DelegateReply>,
) -> io::Result<Result<(), WireError>> {
    if !incarnations.is_known(delegate, connection.incarnation) {
        let detail = "it ended and another one has its place: bytes that it had not written are lost; run the program \
                      again";
        return Ok(Err(WireError::new(Errno::EIO, detail)));
    }
    if let DelegateReply::Failed(error) = reply {
        // Damaged in transit: sent once more over another connection.
        if error.errno == Errno::EBADMSG {
            return Err(io::Error::other(error));
        }
        return Ok(Err(error));
    }
    *place = Some(reply);
    Ok(Ok(()))
}

/// Sends calls to delegates, and receives their replies. Returns the failure of each.
pub(super) async fn call_all<E: Env>(
    core: &Core<E>,
    incarnations: &Incarnations,
    calls: &mut [Call<E>],
) -> Vec<Option<crate::Error>> {
    let mut items: Vec<Item> = calls.iter().map(|call| Item::new(call.delegate)).collect();
    exchange(core, &mut items, &mut Calls { calls, incarnations }, Deadline::of_request(core)).await;
    failures(items)
}

fn failures(items: Vec<Item>) -> Vec<Option<crate::Error>> {
    let failed = |item: Item| match item.outcome {
        Outcome::Failed(error) => Some(error),
        _ => None,
    };
    items.into_iter().map(failed).collect()
}

/// Attaches the shared payload area of a connection within the host.
async fn prepare_area<E: Env>(connection: &mut Connection<E>) -> io::Result<()> {
    if !connection.local || !matches!(connection.area, Area::Unknown) {
        return Ok(());
    }
    connection.area = Area::None;
    let request = DelegateRequest::AttachShared { payload_len: 2 * REQUEST_LEN_MAX };
    if let DelegateReply::Attached { payload_len } = connection.exchange(Family::Delegate, &request).await?
        && payload_len > 0
    {
        match connection.link.conn().take_shared(payload_len as usize) {
            Ok(shared) => connection.area = Area::Attached(shared, payload_len),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {} // no free descriptor: works without
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reserves a part of the shared area for a payload of `len` bytes.
fn reserve<'a, E: Env>(
    connection: &'a Connection<E>,
    used: &mut u32,
    len: u32,
) -> Option<(&'a E::Shared, u32)> {
    let Area::Attached(shared, area_len) = &connection.area else { return None };
    if len < SHARED_MIN || len > area_len - *used {
        return None;
    }
    let from = *used;
    // Whole cache lines, so that copies of neighbors do not share one.
    *used = (*used + len).next_multiple_of(64).min(*area_len);
    Some((shared, from))
}

struct Writes<'a, 'b> {
    /// File, and grants of a delegate that forwards.
    target: (FileNumber, &'a [Grant]),
    batches: &'a mut [Batch<&'b [u8]>],
    used: u32,
    incarnations: &'a Incarnations,
}

impl<E: Env> Traffic<E> for Writes<'_, '_> {
    const ANSWERED_FROM_MEMORY: bool = true;

    async fn prepare(&mut self, connection: &mut Connection<E>, _items: &[usize]) -> io::Result<()> {
        self.used = 0;
        prepare_area(connection).await
    }

    async fn send(&mut self, connection: &mut Connection<E>, item: usize) -> io::Result<()> {
        let batch = &mut self.batches[item];
        let (file, pieces, grants) = (self.target.0, batch.pieces.clone(), self.target.1.to_vec());
        if let Some((area, from)) = reserve(connection, &mut self.used, batch.len) {
            let mut to = from as usize;
            for bytes in &batch.buffers {
                area.copy_in(to, bytes);
                to += bytes.len();
            }
            let place = PayloadLocation::Shared(from);
            let request = DelegateRequest::Write { file, pieces, place, grants };
            return connection.send_request(Family::Delegate, &request, &[]).await;
        }
        let place = PayloadLocation::Payload;
        let request = DelegateRequest::Write { file, pieces, place, grants };
        let slices: Vec<IoSlice<'_>> = batch.buffers.iter().map(|bytes| IoSlice::new(bytes)).collect();
        connection.send_request(Family::Delegate, &request, &slices).await
    }

    async fn receive(
        &mut self,
        connection: &mut Connection<E>,
        item: usize,
    ) -> io::Result<Result<(), WireError>> {
        let reply = reply(connection).await?;
        let batch = &mut self.batches[item];
        settle(self.incarnations, connection, batch.delegate, reply, &mut batch.reply)
    }
}

/// Sends writes. Returns the failure of each.
pub(super) async fn write_all<E: Env>(
    core: &Core<E>,
    incarnations: &Incarnations,
    target: (FileNumber, &[Grant]),
    batches: &mut [Batch<&[u8]>],
) -> Vec<Option<crate::Error>> {
    let mut items: Vec<Item> = batches.iter().map(|batch| Item::new(batch.delegate)).collect();
    exchange(
        core,
        &mut items,
        &mut Writes { target, batches, used: 0, incarnations },
        Deadline::of_request(core),
    )
    .await;
    failures(items)
}

struct Reads<'a, 'b> {
    /// File, and grants of a delegate that forwards.
    target: (FileNumber, &'a [Grant]),
    batches: &'a mut [Batch<&'b mut [u8]>],
    used: u32,
    incarnations: &'a Incarnations,
}

impl<E: Env> Traffic<E> for Reads<'_, '_> {
    const ANSWERED_FROM_MEMORY: bool = true;

    async fn prepare(&mut self, connection: &mut Connection<E>, _items: &[usize]) -> io::Result<()> {
        self.used = 0;
        prepare_area(connection).await
    }

    async fn send(&mut self, connection: &mut Connection<E>, item: usize) -> io::Result<()> {
        let batch = &mut self.batches[item];
        let (file, pieces, grants) = (self.target.0, batch.pieces.clone(), self.target.1.to_vec());
        batch.area_from = reserve(connection, &mut self.used, batch.len).map(|(_, from)| from);
        let place = batch.area_from.map_or(PayloadLocation::Payload, PayloadLocation::Shared);
        let request = DelegateRequest::Read { file, pieces, place, grants };
        connection.send_request(Family::Delegate, &request, &[]).await
    }

    async fn receive(
        &mut self,
        connection: &mut Connection<E>,
        item: usize,
    ) -> io::Result<Result<(), WireError>> {
        let incoming = connection.recv_reply().await?;
        let payload_len = incoming.header.payload_len;
        let reply: DelegateReply = connection.link.decode(&incoming)?;
        let batch = &mut self.batches[item];
        if let DelegateReply::Read { known } = &reply {
            let fits = known.is_empty() || known.len() == batch.pieces.len();
            if !fits || known.iter().zip(&batch.pieces).any(|(known, piece)| *known > piece.len) {
                return Err(Malformed::Field("known").into());
            }
            match (batch.area_from, &connection.area) {
                (Some(from), Area::Attached(area, _)) if payload_len == 0 => {
                    let mut from = from as usize;
                    for buffer in &mut batch.buffers {
                        area.copy_out(from, buffer);
                        from += buffer.len();
                    }
                }
                (None, _) if payload_len == batch.len => {
                    let mut slices: Vec<IoSliceMut<'_>> =
                        batch.buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
                    connection.link.recv_payload(&incoming.header, &mut slices).await?;
                }
                _ => return Err(unexpected_reply()),
            }
        } else {
            connection.link.skip_payload(u64::from(payload_len)).await?;
        }
        settle(self.incarnations, connection, batch.delegate, reply, &mut batch.reply)
    }
}

/// Sends reads. Returns the failure of each.
pub(super) async fn read_all<E: Env>(
    core: &Core<E>,
    incarnations: &Incarnations,
    target: (FileNumber, &[Grant]),
    batches: &mut [Batch<&mut [u8]>],
) -> Vec<Option<crate::Error>> {
    let mut items: Vec<Item> = batches.iter().map(|batch| Item::new(batch.delegate)).collect();
    exchange(
        core,
        &mut items,
        &mut Reads { target, batches, used: 0, incarnations },
        Deadline::of_request(core),
    )
    .await;
    failures(items)
}
