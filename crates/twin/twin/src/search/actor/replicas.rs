//! Replicas of files: creation, synchronization, comparison and removal while programs use the files.

use super::Actor;
use crate::search::plan::pick;
use weft_client::Error;
use weft_client::replicas::Unpaced;
use weft_core::replicas::{MappedExtent, Mapping};
use weft_core::{ByteLen, FileId, TargetId};
use weft_wire::meta::LayoutSpec;

impl Actor {
    pub(super) async fn replicate(&mut self) {
        let at = self.replicas_rng.below(self.handles.len() as u64) as usize;
        let file = self.handles[at].file.file();
        // A replica can only be created and used while no program has the file open otherwise.
        if self.replicas_rng.below(3) > 0 {
            while let Some(at) = self.handles.iter().position(|handle| handle.file.file() == file) {
                self.close(at).await;
            }
        }
        match self.replicas_rng.below(8) {
            0..5 => self.create_replica(file).await,
            5..7 => self.synchronize_replica(file).await,
            _ => self.drop_replica(file).await,
        }
    }

    /// Draws pieces with gaps between them, in an order of their own in the replica.
    fn draw_mapping(&mut self) -> Mapping {
        let span = self.cluster.plan.span;
        let rng = &mut self.replicas_rng;
        let regular = 1 + rng.below(span / 8);
        let is_regular = rng.below(2) == 0;
        let (mut pieces, mut start) = (Vec::new(), rng.below(span / 4));
        while start < span {
            let len = if is_regular { regular } else { 1 + rng.below(span / 6) };
            pieces.push(MappedExtent { start, len, at: 0 });
            start += len + if rng.below(2) == 0 { 0 } else { rng.below(span / 8) };
        }
        let mut order: Vec<usize> = (0..pieces.len()).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, rng.below(last as u64 + 1) as usize);
        }
        let mut at = 0;
        for number in order {
            pieces[number].at = at;
            at += pieces[number].len;
        }
        Mapping::of_pieces(pieces).expect("pieces without overlaps")
    }

    async fn create_replica(&mut self, file: FileId) {
        let mapping = self.draw_mapping();
        let count = self.cluster.plan.targets() as u64;
        let targets: Vec<u64> =
            (0..1 + self.replicas_rng.below(2)).map(|_| self.replicas_rng.below(count)).collect();
        let stripe = ByteLen(pick(&mut self.replicas_rng, &self.cluster.plan.stripes));
        let mut strips: Vec<(TargetId, ByteLen)> =
            targets.iter().map(|target| (TargetId(*target as u32), stripe)).collect();
        strips.dedup();
        let layout = LayoutSpec { strips: Some(strips), ..LayoutSpec::default() };
        // Clients have one or two processes; see the creation of clients.
        let ranks = self.replicas_rng.below(3) as u32;
        let id = self.begins(|| format!("replicate file {file} for {ranks} ranks"));
        self.judge.hit("op: replicate");
        // From here on its bytes may be on any target, whatever the reply.
        self.judge.file(file, |model, _| model.may_be_anywhere = true);
        let made =
            self.client.create_replica(&self.by_number(file), &mapping, ranks, &layout, &mut Unpaced).await;
        self.ends(id, &made);
        match made {
            Ok(_) => {
                self.judge.hit("replica: created");
                if self.cluster.plan.replica_use {
                    self.use_replica(file).await;
                }
            }
            Err(error) => self.check_replica_error(file, &error),
        }
    }

    /// Changes and reads a file that has a replica, while this program has no other file open. Then copies the changes
    /// back, or drops the replica, or both, and reads the file again.
    async fn use_replica(&mut self, file: FileId) {
        for _ in 0..1 + self.replicas_rng.below(2) {
            while let Some(last) = self.handles.len().checked_sub(1) {
                self.close(last).await;
            }
            self.open_by_number(file, true).await;
            for _ in 0..2 + self.replicas_rng.below(6) {
                if self.handles.is_empty() {
                    return;
                }
                match self.replicas_rng.below(9) {
                    0..4 => self.write().await,
                    4..6 => self.read().await,
                    6 => self.truncate().await,
                    7 => self.append().await,
                    _ => self.sync(false).await,
                }
            }
            self.finish().await;
            if self.replicas_rng.below(4) > 0 {
                self.synchronize_replica(file).await;
            }
            if self.replicas_rng.below(4) == 0 {
                self.drop_replica(file).await;
            }
            self.open_by_number(file, false).await;
            self.finish().await;
        }
    }

    /// Opens a file that may have been removed.
    async fn open_by_number(&mut self, file: FileId, write: bool) {
        if let Err(error) = self.reopen(file, write, false).await {
            self.judge.check_excuse(&error, &[libc::ESTALE, libc::ENOENT]);
        }
    }

    async fn synchronize_replica(&mut self, file: FileId) {
        let id = self.begins(|| format!("synchronize the replica of file {file}"));
        self.judge.hit("op: synchronize a replica");
        let done = self.client.synchronize_replica(&self.by_number(file), &mut Unpaced).await;
        self.judge.ends(id, || format!("{done:?}"));
        match done {
            Ok(Some(copied)) if copied > 0 => self.judge.hit("replica: synchronized"),
            Ok(_) => {}
            Err(error) => self.check_replica_error(file, &error),
        }
    }

    async fn drop_replica(&mut self, file: FileId) {
        let id = self.begins(|| format!("drop the replica of file {file}"));
        let done = self.client.drop_replica(&self.by_number(file), false).await;
        self.ends(id, &done);
        match done {
            Ok(()) => self.judge.hit("replica: dropped"),
            Err(error) => self.check_replica_error(file, &error),
        }
    }

    fn check_replica_error(&self, file: FileId, error: &Error) {
        self.judge.hit("replica: failed");
        let mut legal = [self.legal_errors_of_copies(file), vec![libc::EEXIST]].concat();
        if self.cluster.plan.inline_max > 0 && error.to_string().contains("its bytes are in the metadata") {
            self.judge.hit("replica: refused for an inline file");
            legal.push(libc::EINVAL);
        }
        self.judge.check_excuse(error, &legal);
    }
}
