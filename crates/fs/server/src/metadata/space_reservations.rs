//! Space reservations on targets with limited space.
//!
//! A layout reserves the bytes of its parts that have an end. The reservation lasts from the creation of the file until
//! its datafiles are removed or it gets another layout; during a move, both layouts reserve. Truncation changes
//! nothing, because the file may grow again.
//!
//! The sum for each target is a row of the database. It changes in the transaction that creates, removes or changes the
//! layout, so it is exact after any crash. When a target gets a limit later, the next start computes its sum.

use super::cluster_map::Settings;
use super::fault::{Fault, Outcome};
use super::tables::{put_row, row};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use weft_core::parts::SpaceLeft;
use weft_core::{ByteLen, Layout, TargetId};
use weft_store::metadata::{
    Inode, MoveRow, Node, ReapRow, Scan, Snapshot, SpaceReservationRow, Table, Transaction, target_key,
};
use weft_wire::Errno;
use weft_wire::meta::SpaceReservation;

/// Targets with limited space.
#[derive(Default, Debug)]
pub(super) struct SpaceReservations {
    limits: RwLock<Arc<Bytes>>,
}

/// Bytes by target.
pub(super) type Bytes = BTreeMap<TargetId, ByteLen>;

impl SpaceReservations {
    pub(super) fn new(settings: &Settings) -> Self {
        Self { limits: RwLock::new(Arc::new(limits(settings))) }
    }

    fn limits(&self) -> Arc<Bytes> {
        Arc::clone(&self.limits.read())
    }

    /// Takes the capacities of a new cluster map. A target that is neither limited now nor new gets its limit at the next
    /// start, which computes its sum.
    pub(super) fn set_limits(&self, settings: &Settings, is_new: impl Fn(TargetId) -> bool) {
        let (before, mut now) = (self.limits(), limits(settings));
        now.retain(|target, _| before.contains_key(target) || is_new(*target));
        *self.limits.write() = Arc::new(now);
    }

    fn of(s: &dyn Snapshot, target: TargetId) -> Outcome<ByteLen> {
        let row: Option<SpaceReservationRow> = row(s, Table::SpaceReservations, &target_key(target))?;
        Ok(row.unwrap_or_default().promised)
    }

    /// Space left on each target with a limit.
    pub(super) fn available(&self, s: &dyn Snapshot) -> Outcome<SpaceLeft> {
        let left = |(target, limit): (&TargetId, &ByteLen)| {
            Self::of(s, *target).map(|promised| (*target, ByteLen(limit.0.saturating_sub(promised.0))))
        };
        self.limits().iter().map(left).collect()
    }

    /// Bytes that a layout reserves on targets with a limit, in total.
    pub(super) fn reserved(&self, layout: &Layout) -> u64 {
        let limited = |(target, _): &(TargetId, ByteLen)| self.limits().contains_key(target);
        layout.space_reservations().into_iter().filter(limited).map(|(_, bytes)| bytes.0).sum()
    }

    /// Checks that the space a layout reserves is available; the space of `besides` counts as free.
    pub(super) fn require(&self, s: &dyn Snapshot, layout: &Layout, besides: Option<&Layout>) -> Outcome<()> {
        if self.limits().is_empty() || layout.components().len() == 1 {
            return Ok(()); // almost every file
        }
        let left = self.available(s)?;
        let besides = besides.map(Layout::space_reservations).unwrap_or_default();
        for (target, bytes) in layout.space_reservations() {
            let more = besides.get(&target).map_or(0, |bytes| bytes.0);
            let left = left.get(&target).map(|left| ByteLen(left.0.saturating_add(more)));
            if let Some(left) = left.filter(|left| *left < bytes) {
                let limit = self.limits().get(&target).copied().unwrap_or_default();
                let detail = format!(
                    "{target} has {left} of its {limit} bytes of capacity left, and the layout reserves {bytes} \
                     there: end the part earlier, remove files that have parts there, or raise the target's \
                     capacity in the cluster file"
                );
                return Err(Fault::new(Errno::ENOSPC, detail));
            }
        }
        Ok(())
    }

    /// Reserves the space of a layout, if it is available.
    pub(super) fn reserve(&self, t: &mut dyn Transaction, layout: &Layout) -> Outcome<()> {
        self.require(t, layout, None)?;
        self.reserve_beyond(t, layout)
    }

    /// Reserves the space of a layout even beyond the capacity: for an unfinished copy of an inline file, which has few bytes,
    /// until it is removed.
    pub(super) fn reserve_beyond(&self, t: &mut dyn Transaction, layout: &Layout) -> Outcome<()> {
        self.change(t, layout, u64::saturating_add)
    }

    fn change(
        &self,
        t: &mut dyn Transaction,
        layout: &Layout,
        change: impl Fn(u64, u64) -> u64,
    ) -> Outcome<()> {
        if self.limits().is_empty() || layout.components().len() == 1 {
            return Ok(()); // almost every file
        }
        for (target, bytes) in layout.space_reservations() {
            if self.limits().contains_key(&target) {
                let promised = ByteLen(change(Self::of(t, target)?.0, bytes.0));
                put_row(t, Table::SpaceReservations, &target_key(target), &SpaceReservationRow { promised });
            }
        }
        Ok(())
    }

    /// Releases the space of a layout whose datafiles are gone.
    pub(super) fn release(&self, t: &mut dyn Transaction, layout: &Layout) -> Outcome<()> {
        self.change(t, layout, u64::saturating_sub)
    }

    /// The row of a file to be removed, if its layout can affect the reservations.
    pub(super) fn counted_row(&self, s: &dyn Snapshot, key: &[u8]) -> Outcome<Option<ReapRow>> {
        if self.limits().is_empty() { Ok(None) } else { row(s, Table::Reap, key) }
    }

    /// Reservations for `weft status`.
    pub(super) fn status(&self, s: &dyn Snapshot) -> Outcome<Vec<SpaceReservation>> {
        let status = |(target, capacity): (&TargetId, &ByteLen)| {
            Self::of(s, *target).map(|reserved| SpaceReservation {
                target: *target,
                capacity: *capacity,
                reserved,
            })
        };
        self.limits().iter().map(status).collect()
    }

    /// Called at the start: creates the rows of targets with a limit, and deletes all others. New ones are computed.
    pub(super) fn begin(&self, t: &mut dyn Transaction) -> Outcome<()> {
        let mut rows = Vec::new();
        t.scan(Table::SpaceReservations, Bound::Unbounded, &mut |key, _| {
            rows.push(key.to_vec());
            Ok(Scan::Next)
        })?;
        let limits: Vec<Vec<u8>> = self.limits().keys().map(|target| target_key(*target).to_vec()).collect();
        rows.iter()
            .filter(|key| !limits.contains(key))
            .for_each(|key| t.delete(Table::SpaceReservations, key));
        let missing: Vec<TargetId> = self
            .limits()
            .keys()
            .copied()
            .filter(|target| !rows.contains(&target_key(*target).to_vec()))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let counted = counted(t)?;
        for target in missing {
            let promised = counted.get(&target).copied().unwrap_or_default();
            put_row(t, Table::SpaceReservations, &target_key(target), &SpaceReservationRow { promised });
        }
        Ok(())
    }

    /// Wrong reservations: target, recorded bytes, correct bytes.
    pub(super) fn wrong(&self, s: &dyn Snapshot) -> Outcome<Vec<(TargetId, ByteLen, ByteLen)>> {
        if self.limits().is_empty() {
            return Ok(Vec::new());
        }
        let counted = counted(s)?;
        let mut wrong = Vec::new();
        for target in self.limits().keys() {
            let (has, right) = (Self::of(s, *target)?, counted.get(target).copied().unwrap_or_default());
            if has != right {
                wrong.push((*target, has, right));
            }
        }
        Ok(wrong)
    }

    /// Corrects a reservation.
    pub(super) fn correct(t: &mut dyn Transaction, target: TargetId, promised: ByteLen) {
        put_row(t, Table::SpaceReservations, &target_key(target), &SpaceReservationRow { promised });
    }
}

fn limits(settings: &Settings) -> Bytes {
    settings.iter().filter_map(|(target, settings)| Some((*target, settings.capacity?))).collect()
}

/// Bytes that all layouts reserve, by target.
fn counted(s: &dyn Snapshot) -> Outcome<Bytes> {
    let mut sum = Bytes::new();
    let mut add = |layout: &Layout| {
        for (target, bytes) in layout.space_reservations() {
            let entry = sum.entry(target).or_default();
            entry.0 = entry.0.saturating_add(bytes.0);
        }
    };
    s.scan(Table::Inodes, Bound::Unbounded, &mut |key, value| {
        let inode: Inode = value.open(Table::Inodes, key)?;
        if let Node::Regular { layout, .. } = &inode.node {
            add(layout);
        }
        Ok(Scan::Next)
    })?;
    s.scan(Table::Reap, Bound::Unbounded, &mut |key, value| {
        let row: ReapRow = value.open(Table::Reap, key)?;
        add(&row.layout);
        Ok(Scan::Next)
    })?;
    s.scan(Table::Moves, Bound::Unbounded, &mut |key, value| {
        let row: MoveRow = value.open(Table::Moves, key)?;
        add(&row.layout);
        Ok(Scan::Next)
    })?;
    Ok(sum)
}
