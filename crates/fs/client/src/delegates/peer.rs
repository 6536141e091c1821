//! Requests between delegates, under the policy `first-touch`.

use super::traffic::{self, Batch, Call, call_all};
use super::{Delegates, Incarnations, JobMap, one};
use crate::core::Core;
use crate::error::{Error, Result};
use crate::options::{ClientOptions, Credentials};
use std::sync::Arc;
use weft_core::ServerId;
use weft_core::delegates::assignment::DelegateIndex;
use weft_core::delegates::ownership::{FileNumber, PageIndex};
use weft_core::delegates::page_locks::HolderId;
use weft_env::Env;
use weft_wire::ClusterMap;
use weft_wire::delegate::{DelegateReply, DelegateRequest, Grant, HomeGeneration, JobSettings};

/// Result of a request that a delegate has forwarded to the owner of pages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Forwarded {
    /// The bytes are written, or read; for each piece of a read, the number of bytes up to the last known one.
    Done(Vec<u32>),
    /// A grant was old: the homes are asked again.
    OldGrant,
    /// The rank's file is not registered at the owner.
    NotOpen {
        /// The owner.
        delegate: u32,
    },
}

impl<E: Env> Delegates<E> {
    /// Creates the connections of a delegate to the others, without a message.
    pub fn of_peer(
        env: E,
        job: JobMap,
        options: ClientOptions,
        credentials: Credentials,
        settings: JobSettings,
    ) -> Self {
        let incarnations = Arc::new(Incarnations::of(job.delegates.len()));
        let (name, servers) = (job.name, job.delegates);
        let map = ClusterMap {
            domains: Vec::new(),
            name,
            version: 0,
            servers,
            targets: Vec::new(),
            metadata: ServerId(0),
        };
        let core = Arc::new(Core::new(env, Arc::new(map), options, credentials));
        let own = DelegateIndex(settings.index);
        let (settings, last_handle) = (Arc::new(settings), Arc::default());
        Self { core, incarnations, settings, own, last_handle }
    }

    /// Locks pages of one home for an operation of this delegate, and returns their owners and the generation of the file
    /// there; `None` if it does not know the file. Waits for the locks.
    ///
    /// # Errors
    /// The home does not answer.
    pub async fn lock_pages(
        &self,
        home: DelegateIndex,
        holder: HolderId,
        file: FileNumber,
        pages: &[PageIndex],
        exclusive: bool,
    ) -> Result<Option<(Vec<u32>, HomeGeneration)>> {
        let requester = self.own.0;
        loop {
            let pages = pages.to_vec();
            let request = DelegateRequest::LockPages { holder, requester, file, pages, exclusive };
            match self.call_one(home, request).await? {
                DelegateReply::Locked { owners, generation } => return Ok(Some((owners, generation))),
                DelegateReply::NotOpen { .. } => return Ok(None),
                DelegateReply::Busy => {}
                _ => return Err(Error::unexpected_reply()),
            }
        }
    }

    /// Releases all page locks of an operation at one home.
    ///
    /// # Errors
    /// The home does not answer.
    pub async fn unlock_pages(&self, home: DelegateIndex, holder: HolderId) -> Result<()> {
        self.call_one(home, DelegateRequest::UnlockPages { holder }).await.map(drop)
    }

    /// Writes pieces at the owner of their pages.
    ///
    /// # Errors
    /// The owner does not answer.
    pub async fn forward_write(
        &self,
        owner: DelegateIndex,
        file: FileNumber,
        grants: &[Grant],
        pieces: &[(u64, &[u8])],
    ) -> Result<Forwarded> {
        let mut batches = traffic::Batches(Vec::new());
        for (index, (offset, bytes)) in pieces.iter().enumerate() {
            batches.push(ServerId(owner.0), index, *offset, *bytes);
        }
        let batches = &mut batches.0;
        one(traffic::write_all(&self.core, &self.incarnations, (file, grants), batches).await)?;
        Ok(forwarded(batches, pieces.len()))
    }

    /// Reads pieces at the owner of their pages.
    ///
    /// # Errors
    /// The owner does not answer.
    pub async fn forward_read(
        &self,
        owner: DelegateIndex,
        file: FileNumber,
        grants: &[Grant],
        pieces: Vec<(u64, &mut [u8])>,
    ) -> Result<Forwarded> {
        let count = pieces.len();
        let mut batches = traffic::Batches(Vec::new());
        for (index, (offset, bytes)) in pieces.into_iter().enumerate() {
            batches.push(ServerId(owner.0), index, offset, bytes);
        }
        let batches = &mut batches.0;
        one(traffic::read_all(&self.core, &self.incarnations, (file, grants), batches).await)?;
        Ok(forwarded(batches, count))
    }

    async fn call_one(&self, delegate: DelegateIndex, request: DelegateRequest) -> Result<DelegateReply> {
        let mut calls: [Call<E>; 1] = [Call::new(ServerId(delegate.0), request)];
        one(call_all(&self.core, &self.incarnations, &mut calls).await)?;
        calls[0].reply.take().ok_or_else(Error::unexpected_reply)
    }
}

/// Combines the replies to the parts of pieces, which lie in order within each piece.
fn forwarded<B>(batches: &[Batch<B>], pieces: usize) -> Forwarded {
    let mut known = vec![0; pieces];
    let mut starts = vec![None; pieces];
    for batch in batches {
        let ends: &[u32] = match &batch.reply {
            Some(DelegateReply::Done) => &[],
            Some(DelegateReply::Read { known }) => known,
            Some(DelegateReply::NotOpen { delegate }) => return Forwarded::NotOpen { delegate: *delegate },
            _ => return Forwarded::OldGrant,
        };
        for (index, (piece, part_of)) in batch.pieces.iter().zip(&batch.parts_of).enumerate() {
            let part_of = *part_of as usize;
            let start = *starts[part_of].get_or_insert(piece.offset);
            let of_part = ends.get(index).copied().unwrap_or(piece.len);
            if of_part > 0 {
                known[part_of] = (piece.offset - start) as u32 + of_part;
            }
        }
    }
    Forwarded::Done(known)
}
