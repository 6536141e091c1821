//! One file as the search knows it.

use super::bytes::{Bytes, ChangeId, Fill, Moment, NEVER};
use super::sizes::Sizes;
use std::collections::{BTreeMap, BTreeSet};
use weft_core::{Access, ByteLen, ClassLayout, Extent, Layout, SplitPolicy, TargetId};
use weft_wire::meta::LayoutSpec;

/// An open file of the search, over all clients.
pub type HandleKey = u64;

/// Bytes and length of a file, with what is under way.
#[derive(Clone, Default, Debug)]
pub struct FileModel {
    /// What its bytes may be.
    pub bytes: Bytes,
    /// How long it may be.
    pub sizes: Sizes,
    /// Where its parts are, once known.
    pub layout: Option<Layout>,
    /// Where they may be besides: it was, or may have been, moved.
    pub moved_to: Vec<Layout>,
    /// What it was, or may have been, moved to by class, wherever that is.
    pub moved_by: Vec<ClassLayout>,
    /// Where somebody began to move it who may not have come to the end.
    pub begun: Option<(LayoutSpec, Layout)>,
    /// When the search first heard of it.
    pub known_at: Moment,
    /// When reads under way began.
    pub reads: BTreeSet<Moment>,
    /// When machines with a part of it lost power.
    power_cuts: Vec<Moment>,
    /// What was written by each open file and not synced since.
    unsynced: BTreeMap<HandleKey, Vec<(ChangeId, Moment)>>,
    /// Loss of power may have taken its end, which the metadata service does not learn of by itself.
    pub end_lost: bool,
    /// Where appends went since it was cut.
    appends: Vec<(u64, u64, Moment)>,
    /// Cuts under way.
    cuts: u32,
    /// When the last cut ended.
    cut_at: Moment,
}

/// The end of everything.
const ALL: u64 = u64::MAX;
/// More than any file of the search.
const FAR: u64 = 1 << 40;

impl FileModel {
    /// A file that was first heard of at `now`.
    pub fn new(now: Moment) -> Self {
        Self { known_at: now, ..Self::default() }
    }

    fn oldest_read(&self) -> Moment {
        self.reads.first().copied().unwrap_or(NEVER)
    }

    /// Whether a machine with a part of it lost power after `moment`.
    pub fn lost_power_since(&self, moment: Moment) -> bool {
        self.power_cuts.iter().any(|cut| *cut > moment)
    }

    /// A write of `start..end` begins.
    pub fn begin_write(&mut self, id: ChangeId, start: u64, end: u64, now: Moment) {
        self.bytes.begin(id, Fill::Placed, (start, end), now);
        self.sizes.begin_write(id, end, now);
    }

    /// Something is appended.
    pub fn begin_append(&mut self, id: ChangeId, now: Moment) {
        // Anywhere: it may be cut before the append finds its end.
        self.bytes.begin(id, Fill::Flat, (0, ALL), now);
        self.sizes.begin_write(id, FAR, now);
    }

    /// A hole is made in `start..end`.
    pub fn begin_punch(&mut self, id: ChangeId, start: u64, end: u64, now: Moment) {
        self.bytes.begin(id, Fill::Zero, (start, end), now);
    }

    /// A hole that `handle` began to make at `began` is there.
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

    /// It is cut or extended to `size`.
    pub fn begin_cut(&mut self, id: ChangeId, size: u64, now: Moment) {
        self.appends.clear();
        self.cuts += 1;
        self.bytes.begin(id, Fill::Zero, (size, ALL), now);
        self.sizes.begin_cut(id, size, now);
    }

    /// A write of `start..end` by `handle` that began at `began` was answered: `count` of its bytes are written.
    pub fn end_write(
        &mut self,
        id: ChangeId,
        handle: HandleKey,
        (start, end, count): (u64, u64, u64),
        began: Moment,
        now: Moment,
    ) {
        // What a server had acknowledged before it lost power may be lost although the write as a whole was answered.
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

    /// An append was answered: it went to `start`.
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

    /// An append of `len` bytes that began at `began` failed: nobody knows where it went, if it did.
    pub fn fail_append(&mut self, id: ChangeId, len: u64, began: Moment) {
        self.sizes.amend(id, 0);
        // It may have found the end as it was before a cut that has ended meanwhile.
        let (_, most) = self.sizes.bounds(began);
        self.sizes.amend(id, most + len);
    }

    /// An append went to `start..end`; another one that it lies over, if any.
    pub fn append_at(&mut self, start: u64, end: u64, began: Moment) -> Option<(u64, u64)> {
        let overlaps =
            |other: &&(u64, u64, Moment)| start < other.1 && other.0 < end && self.cut_at < other.2;
        let over = self.appends.iter().find(overlaps).map(|other| (other.0, other.1));
        self.appends.push((start, end, began));
        over.filter(|_| self.cuts == 0 && self.cut_at < began)
    }

    /// A cut was answered.
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
        // Its own writes are safe, even those to a machine that lost power since: else it had to say so.
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

    /// Whether bytes may be missing that were recorded: a machine with a part of it lost power, and not all was synced then.
    pub fn may_miss_bytes(&self) -> bool {
        self.lost_power_ever()
    }

    /// Whether everything that was written is surely recorded and on disks: synced by each open file that wrote.
    pub fn is_safe(&self) -> bool {
        self.unsynced.is_empty() && !self.lost_power_ever() && self.cuts == 0
    }

    /// Whether a machine lost power that had a part of it.
    pub fn lost_power_ever(&self) -> bool {
        !self.power_cuts.is_empty()
    }

    /// A sync by `handle` failed: it was told that what it wrote may be lost.
    pub fn not_synced(&mut self, handle: HandleKey) {
        self.unsynced.remove(&handle);
    }

    /// A machine with these targets lost power.
    pub fn lost_power(&mut self, targets: &[TargetId], now: Moment) {
        let places = |layout: &&Layout| layout.objects().any(|(_, target)| targets.contains(&target));
        let hit: Vec<Layout> = self.layout.iter().chain(&self.moved_to).filter(places).cloned().collect();
        if hit.is_empty() && self.moved_by.is_empty() {
            return;
        }
        self.power_cuts.push(now);
        self.appends.clear();
        self.cut_at = now;
        self.end_lost |= self.sizes.lost_power();
        let end = self.bytes.last_start();
        let extent = Extent { offset: weft_core::FileOffset(0), len: ByteLen(end) };
        if !self.moved_by.is_empty() {
            // Nobody knows where which byte was.
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

    /// Nothing is under way any more.
    pub fn quiet(&mut self, now: Moment) {
        self.bytes.quiet(now);
        self.sizes.quiet(now);
        self.reads.clear();
        if std::mem::take(&mut self.cuts) > 0 {
            // One that nobody answered may have been done at any time until now.
            self.appends.clear();
            self.cut_at = now;
        }
    }
}
