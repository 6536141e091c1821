//! Model of one file: its bytes, its size and its layout.

use super::bytes::{Bytes, ChangeId, Fill, Moment, NEVER};
use super::sizes::Sizes;
use std::collections::{BTreeMap, BTreeSet};
use weft_core::{Access, ByteLen, ClassLayout, Extent, Layout, SplitPolicy, TargetId};
use weft_wire::meta::LayoutSpec;

/// Key of an open file, unique over all clients.
pub type HandleKey = u64;

/// Model of one file, including operations in progress.
#[derive(Clone, Default, Debug)]
pub struct FileModel {
    /// Bytes that a read may return.
    pub bytes: Bytes,
    /// Bounds of the length.
    pub sizes: Sizes,
    /// Layout at the first open.
    pub layout: Option<Layout>,
    /// Other layouts that it may have because of a move.
    pub moved_to: Vec<Layout>,
    /// Wishes of moves by class. Each may have resulted in any layout that fits.
    pub moved_by: Vec<ClassLayout>,
    /// Whether its bytes may be on any target, because it may have a replica.
    pub may_be_anywhere: bool,
    /// Latest move that was begun. It may not have finished.
    pub begun: Option<(LayoutSpec, Layout)>,
    /// Moment of the first open.
    pub known_at: Moment,
    /// Moments at which reads in progress began.
    pub reads: BTreeSet<Moment>,
    /// Moments at which machines with a part of the file lost power.
    power_cuts: Vec<Moment>,
    /// Changes of each open file that no sync has covered.
    unsynced: BTreeMap<HandleKey, Vec<(ChangeId, Moment)>>,
    /// Whether loss of power may have taken the end of the file, which the metadata server cannot notice by itself.
    pub end_lost: bool,
    /// Ranges of the appends since the last truncation.
    appends: Vec<(u64, u64, Moment)>,
    /// Number of truncations in progress.
    cuts: u32,
    /// Moment at which the last truncation ended.
    cut_at: Moment,
}

/// End of an unbounded range.
const ALL: u64 = u64::MAX;
/// Offset greater than the length of any file in the search.
const FAR: u64 = 1 << 40;

impl FileModel {
    /// Creates the model of a file first seen at `now`.
    pub fn new(now: Moment) -> Self {
        Self { known_at: now, ..Self::default() }
    }

    fn oldest_read(&self) -> Moment {
        self.reads.first().copied().unwrap_or(NEVER)
    }

    /// Whether a machine with a part of the file lost power after `moment`.
    pub fn lost_power_since(&self, moment: Moment) -> bool {
        self.power_cuts.iter().any(|cut| *cut > moment)
    }

    /// A write of `start..end` begins.
    pub fn begin_write(&mut self, id: ChangeId, kind: Fill, start: u64, end: u64, now: Moment) {
        self.bytes.begin(id, kind, (start, end), now);
        self.sizes.begin_write(id, end, now);
    }

    /// An append begins.
    pub fn begin_append(&mut self, id: ChangeId, now: Moment) {
        // At any offset: the file may be truncated before the append finds its end.
        self.bytes.begin(id, Fill::Uniform, (0, ALL), now);
        self.sizes.begin_write(id, FAR, now);
    }

    /// A hole punch of `start..end` begins.
    pub fn begin_punch(&mut self, id: ChangeId, start: u64, end: u64, now: Moment) {
        self.bytes.begin(id, Fill::Zero, (start, end), now);
    }

    /// A hole punch by `handle` that began at `began` has succeeded.
    pub fn end_punch(
        &mut self,
        id: ChangeId,
        handle: HandleKey,
        range: (u64, u64),
        began: Moment,
        now: Moment,
    ) {
        let sure = !self.lost_power_since(began);
        self.bytes.end(id, range, now, sure);
        self.unsynced.entry(handle).or_default().push((id, now));
    }

    /// A truncation or extension to `size` begins.
    pub fn begin_cut(&mut self, id: ChangeId, size: u64, now: Moment) {
        self.appends.clear();
        self.cuts += 1;
        self.bytes.begin(id, Fill::Zero, (size, ALL), now);
        self.sizes.begin_cut(id, size, now);
    }

    /// A write of `start..end` by `handle` that began at `began` was answered. The reply confirms `count` bytes.
    pub fn end_write(
        &mut self,
        id: ChangeId,
        handle: HandleKey,
        (start, end, count): (u64, u64, u64),
        began: Moment,
        now: Moment,
    ) {
        // Loss of power on one server may undo a part that was acknowledged before the whole write was.
        let sure = !self.lost_power_since(began);
        self.bytes.end(id, (start, start + count), now, sure);
        let is_whole = start + count == end;
        self.sizes.end(id, now, sure && is_whole);
        if is_whole {
            self.unsynced.entry(handle).or_default().push((id, now));
        } else {
            self.bytes.end(id, (start + count, end), now, false);
            if sure {
                self.sizes.seen(start + count, began, now);
            }
        }
    }

    /// An append was answered with its offset `start`.
    pub fn end_append(
        &mut self,
        id: ChangeId,
        handle: HandleKey,
        (start, len, count): (u64, u64, u64),
        began: Moment,
        now: Moment,
    ) {
        self.bytes.narrow(id, (start, start + len));
        self.sizes.amend(id, start + len);
        self.end_write(id, handle, (start, start + len, count), began, now);
    }

    /// An append of `len` bytes that began at `began` failed. Its offset is unknown, and it may not have happened.
    pub fn fail_append(&mut self, id: ChangeId, len: u64, began: Moment) {
        self.sizes.amend(id, 0);
        // It may have found the end that the file had before a truncation that has ended since.
        let (_, most) = self.sizes.bounds(began);
        self.sizes.amend(id, most + len);
    }

    /// Records an append to `start..end` and returns an earlier append that it overlaps.
    pub fn append_at(&mut self, start: u64, end: u64, began: Moment) -> Option<(u64, u64)> {
        let overlaps =
            |other: &&(u64, u64, Moment)| start < other.1 && other.0 < end && self.cut_at < other.2;
        let over = self.appends.iter().find(overlaps).map(|other| (other.0, other.1));
        self.appends.push((start, end, began));
        over.filter(|_| self.cuts == 0 && self.cut_at < began)
    }

    /// A truncation was answered.
    pub fn end_cut(&mut self, id: ChangeId, began: Moment, now: Moment) {
        self.appends.clear();
        self.cuts -= 1;
        self.cut_at = now;
        let sure = !self.lost_power_since(began);
        self.bytes.end(id, (0, ALL), now, sure);
        self.sizes.end(id, now, sure);
    }

    /// A sync by `handle` that began at `began` has succeeded.
    pub fn synced(&mut self, handle: HandleKey, began: Moment, now: Moment) {
        // Writes of this handle are durable even on a machine that has lost power since. Otherwise the sync had to
        // fail.
        let own = self.unsynced.remove(&handle).unwrap_or_default();
        let (own, later): (Vec<_>, Vec<_>) = own.into_iter().partition(|(_, ended)| *ended < began);
        if !later.is_empty() {
            self.unsynced.insert(handle, later);
        }
        if self.power_cuts.iter().any(|cut| own.iter().any(|(_, ended)| cut > ended)) {
            for (id, _) in own {
                self.bytes.confirm(id, now);
                self.sizes.confirm(id, now);
            }
        }
        if !self.lost_power_since(began) {
            let oldest = self.oldest_read();
            self.bytes.synced(began, oldest);
            self.sizes.synced(began, oldest);
        }
    }

    /// Whether recorded bytes may be missing: a machine with a part of the file lost power before everything was
    /// synced.
    pub fn may_miss_bytes(&self) -> bool {
        self.lost_power_ever()
    }

    /// Whether all writes are recorded and on disks: each open file that wrote has synced.
    pub fn is_durable(&self) -> bool {
        self.unsynced.is_empty() && !self.lost_power_ever() && self.cuts == 0
    }

    /// Whether a machine with a part of the file ever lost power.
    pub fn lost_power_ever(&self) -> bool {
        !self.power_cuts.is_empty()
    }

    /// A sync by `handle` failed. Its program knows that its writes may be lost.
    pub fn not_synced(&mut self, handle: HandleKey) {
        self.unsynced.remove(&handle);
    }

    /// A machine with these targets lost power.
    pub fn lost_power(&mut self, targets: &[TargetId], now: Moment) {
        let places = |layout: &&Layout| layout.objects().any(|(_, target)| targets.contains(&target));
        let hit: Vec<Layout> = self.layout.iter().chain(&self.moved_to).filter(places).cloned().collect();
        if hit.is_empty() && self.moved_by.is_empty() && !self.may_be_anywhere {
            return;
        }
        self.power_cuts.push(now);
        self.appends.clear();
        self.cut_at = now;
        self.end_lost |= self.sizes.lost_power();
        let end = self.bytes.last_start();
        let extent = Extent { offset: weft_core::FileOffset(0), len: ByteLen(end) };
        if !self.moved_by.is_empty() || self.may_be_anywhere {
            // The layout is unknown, so any byte may have been on that machine.
            self.bytes.lost_power(0, end);
        } else if end > 0 {
            let subs = |layout: &Layout| layout.split(extent, Access::Random, SplitPolicy::default());
            for sub in hit.iter().flat_map(subs) {
                if targets.contains(&sub.target) {
                    for piece in sub.pieces() {
                        self.bytes.lost_power(piece.offset.0, piece.offset.0 + piece.len.0);
                    }
                }
            }
        }
    }

    /// Bytes of `start..end` that were acknowledged may be lost, because the process that had them died or could not
    /// write them.
    pub fn lost_bytes(&mut self, start: u64, end: u64, now: Moment) {
        self.power_cuts.push(now);
        self.appends.clear();
        self.cut_at = now;
        self.end_lost |= self.sizes.lost_power();
        self.bytes.lost_power(start, end);
    }

    /// No operation is in progress any more.
    pub fn quiesced(&mut self, now: Moment) {
        self.bytes.quiesced(now);
        self.sizes.quiesced(now);
        self.reads.clear();
        if std::mem::take(&mut self.cuts) > 0 {
            // A truncation without a reply may have happened at any time until now.
            self.appends.clear();
            self.cut_at = now;
        }
    }
}
