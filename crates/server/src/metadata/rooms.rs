//! The account of targets with limited room: what the layouts of files promise there.
//!
//! A layout promises the bytes of its parts that have an end, from the file's making until its datafiles are removed or
//! it gets another layout (while it is moved, by both); cutting the file changes nothing, for it may grow again. The account is a row of the database
//! for each target with a limit, changed in the transaction that makes, removes or changes the layout, so that it is exact
//! after any crash. A target that gets its limit later is counted at the next start.

use super::fault::{Fault, Outcome};
use super::tables::{put_row, row};
use std::collections::BTreeMap;
use std::ops::Bound;
use weft_core::parts::RoomLeft;
use weft_core::{ByteLen, Layout, TargetId};
use weft_store::metadata::{
    Inode, MoveRow, Node, ReapRow, RoomRow, Scan, Snapshot, Table, Transaction, target_key,
};
use weft_wire::Errno;
use weft_wire::meta::TargetRoom;

/// Targets with limited room.
#[derive(Clone, Default, Debug)]
pub(super) struct Rooms {
    limits: BTreeMap<TargetId, ByteLen>,
}

/// Bytes by target.
pub(super) type Bytes = BTreeMap<TargetId, ByteLen>;

impl Rooms {
    pub(super) fn new(limits: BTreeMap<TargetId, ByteLen>) -> Self {
        Self { limits }
    }

    fn of(s: &dyn Snapshot, target: TargetId) -> Outcome<ByteLen> {
        let row: Option<RoomRow> = row(s, Table::Rooms, &target_key(target))?;
        Ok(row.unwrap_or_default().promised)
    }

    /// What is left on each target with a limit.
    pub(super) fn left(&self, s: &dyn Snapshot) -> Outcome<RoomLeft> {
        let left = |(target, limit): (&TargetId, &ByteLen)| {
            Self::of(s, *target).map(|promised| (*target, ByteLen(limit.0.saturating_sub(promised.0))))
        };
        self.limits.iter().map(left).collect()
    }

    /// What this layout promises on targets with a limit, all together.
    pub(super) fn promised(&self, layout: &Layout) -> u64 {
        let limited = |(target, _): &(TargetId, ByteLen)| self.limits.contains_key(target);
        layout.promises().into_iter().filter(limited).map(|(_, bytes)| bytes.0).sum()
    }

    /// That what this layout promises is there, where the room of `besides` counts as free.
    pub(super) fn require(&self, s: &dyn Snapshot, layout: &Layout, besides: Option<&Layout>) -> Outcome<()> {
        if self.limits.is_empty() || layout.components().len() == 1 {
            return Ok(()); // almost every file
        }
        let left = self.left(s)?;
        let besides = besides.map(Layout::promises).unwrap_or_default();
        for (target, bytes) in layout.promises() {
            let more = besides.get(&target).map_or(0, |bytes| bytes.0);
            let left = left.get(&target).map(|left| ByteLen(left.0.saturating_add(more)));
            if let Some(left) = left.filter(|left| *left < bytes) {
                let limit = self.limits.get(&target).copied().unwrap_or_default();
                let detail = format!(
                    "{target} has {left} of its {limit} bytes of room left, and the layout promises {bytes} there: end \
                     the part earlier, remove files that have parts there, or raise the target's room in the cluster file"
                );
                return Err(Fault::new(Errno::ENOSPC, detail));
            }
        }
        Ok(())
    }

    /// A file gets this layout, if what that promises is there.
    pub(super) fn take(&self, t: &mut dyn Transaction, layout: &Layout) -> Outcome<()> {
        self.require(t, layout, None)?;
        self.change(t, layout, u64::saturating_add)
    }

    fn change(
        &self,
        t: &mut dyn Transaction,
        layout: &Layout,
        change: impl Fn(u64, u64) -> u64,
    ) -> Outcome<()> {
        if self.limits.is_empty() || layout.components().len() == 1 {
            return Ok(()); // almost every file
        }
        for (target, bytes) in layout.promises() {
            if self.limits.contains_key(&target) {
                let promised = ByteLen(change(Self::of(t, target)?.0, bytes.0));
                put_row(t, Table::Rooms, &target_key(target), &RoomRow { promised });
            }
        }
        Ok(())
    }

    /// The datafiles of this layout are gone.
    pub(super) fn give_back(&self, t: &mut dyn Transaction, layout: &Layout) -> Outcome<()> {
        self.change(t, layout, u64::saturating_sub)
    }

    /// A file whose datafiles are to be removed, if its layout can matter to the account.
    pub(super) fn counted_row(&self, s: &dyn Snapshot, key: &[u8]) -> Outcome<Option<ReapRow>> {
        if self.limits.is_empty() { Ok(None) } else { row(s, Table::Reap, key) }
    }

    /// The account, for people.
    pub(super) fn told(&self, s: &dyn Snapshot) -> Outcome<Vec<TargetRoom>> {
        let told = |(target, room): (&TargetId, &ByteLen)| {
            Self::of(s, *target).map(|promised| TargetRoom { target: *target, room: *room, promised })
        };
        self.limits.iter().map(told).collect()
    }

    /// At the start: every target with a limit has its row, and no other. New ones are counted.
    pub(super) fn begin(&self, t: &mut dyn Transaction) -> Outcome<()> {
        let mut rows = Vec::new();
        t.scan(Table::Rooms, Bound::Unbounded, &mut |key, _| {
            rows.push(key.to_vec());
            Ok(Scan::Next)
        })?;
        let limits: Vec<Vec<u8>> = self.limits.keys().map(|target| target_key(*target).to_vec()).collect();
        rows.iter().filter(|key| !limits.contains(key)).for_each(|key| t.delete(Table::Rooms, key));
        let missing: Vec<TargetId> = self
            .limits
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
            put_row(t, Table::Rooms, &target_key(target), &RoomRow { promised });
        }
        Ok(())
    }

    /// Where the account is not what the layouts say: the target, what the account has, what is right.
    pub(super) fn wrong(&self, s: &dyn Snapshot) -> Outcome<Vec<(TargetId, ByteLen, ByteLen)>> {
        if self.limits.is_empty() {
            return Ok(Vec::new());
        }
        let counted = counted(s)?;
        let mut wrong = Vec::new();
        for target in self.limits.keys() {
            let (has, right) = (Self::of(s, *target)?, counted.get(target).copied().unwrap_or_default());
            if has != right {
                wrong.push((*target, has, right));
            }
        }
        Ok(wrong)
    }

    /// Sets an account right.
    pub(super) fn mend(t: &mut dyn Transaction, target: TargetId, promised: ByteLen) {
        put_row(t, Table::Rooms, &target_key(target), &RoomRow { promised });
    }
}

/// What all layouts promise, by target.
fn counted(s: &dyn Snapshot) -> Outcome<Bytes> {
    let mut sum = Bytes::new();
    let mut add = |layout: &Layout| {
        for (target, bytes) in layout.promises() {
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
