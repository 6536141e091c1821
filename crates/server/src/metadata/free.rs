//! Free space of targets as their servers last told it, and which have too little for new files.
//!
//! It is asked for at the start and then while files are made, every few seconds: a cluster that makes none asks nobody.
//! What is known may be that old, so a target can get fuller than its reserve; nobody knows how large a new file becomes,
//! either. What has never been told is not full.

use super::Service;
use crate::peer::{Asker, ask};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_core::parts::RoomLeft;
use weft_core::{ByteLen, Nanos, Reserve, TargetId, Timestamp};
use weft_env::{Env, Notify, Space};
use weft_wire::status::{StatusReply, StatusRequest};
use weft_wire::{ClusterMap, ClusterSecret, Family};

/// What was told is asked for again after this time, when a file is made.
const FRESH_FOR: Nanos = Nanos::from_s(5);
/// How long connecting to, sending to and receiving from a data server may take.
const TIMEOUT: Nanos = Nanos::from_s(2);
/// At the start those that do not answer are asked so often again, after so long each: they may be starting.
const AGAIN: u32 = 5;
const AGAIN_AFTER: Nanos = Nanos::from_s(1);

/// What is known of the targets.
#[derive(Default)]
pub(super) struct Free {
    /// Of all targets that may be full.
    reserves: BTreeMap<TargetId, Reserve>,
    known: Mutex<Known>,
    /// It is to be asked for.
    wanted: AtomicBool,
}

#[derive(Default)]
struct Known {
    spaces: BTreeMap<TargetId, Space>,
    /// When they were told last.
    told: Option<Timestamp>,
}

/// Targets that have too little for new files: what is free there, and what is to stay so.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Full(pub BTreeMap<TargetId, (ByteLen, ByteLen)>);

impl Full {
    pub(super) fn has(&self, target: TargetId) -> bool {
        self.0.contains_key(&target)
    }
}

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (number, (target, (free, reserve))) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{target} has {free} bytes free and keeps {reserve}")?;
        }
        Ok(())
    }
}

impl Free {
    pub(super) fn new(reserves: BTreeMap<TargetId, Reserve>) -> Self {
        Self { reserves, ..Self::default() }
    }

    /// Whether any target may be full.
    fn is_of_use(&self) -> bool {
        !self.reserves.is_empty()
    }

    /// The targets on which nothing new is to begin; what is known is asked for anew when it is old.
    pub(super) fn full(&self, now: Timestamp) -> Full {
        if !self.is_of_use() {
            return Full::default();
        }
        let known = self.known.lock();
        let is_fresh = |told: Timestamp| (told.0..told.0 + i128::from(FRESH_FOR.0)).contains(&now.0);
        if !known.told.is_some_and(is_fresh) {
            self.wanted.store(true, Ordering::Relaxed);
        }
        let full = known.spaces.iter().filter_map(|(target, space)| {
            let reserve = self.reserves.get(target)?;
            let told = (space.free, reserve.of(space.total));
            reserve.is_reached(space.total, space.free).then_some((*target, told))
        });
        Full(full.collect())
    }

    /// Room that is given away is there: no more of it than is free beside the reserve.
    pub(super) fn limit(&self, left: &mut RoomLeft) {
        let known = self.known.lock();
        for (target, left) in left {
            if let (Some(space), Some(reserve)) = (known.spaces.get(target), self.reserves.get(target)) {
                *left = (*left).min(ByteLen(space.free.0.saturating_sub(reserve.of(space.total).0)));
            }
        }
    }

    /// Servers have told of their targets.
    pub(super) fn told(&self, spaces: impl IntoIterator<Item = (TargetId, Space)>, now: Timestamp) {
        let mut known = self.known.lock();
        known.spaces.extend(spaces);
        known.told = Some(now);
    }

    fn take_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) && self.wanted.swap(false, Ordering::Relaxed)
    }
}

impl<E: Env> Service<E> {
    /// Who has asked for what is too old gets it.
    pub(super) fn wake_watcher(&self) {
        if self.core.free.take_wanted() {
            self.space_work.notify_all();
        }
    }

    /// Whether free space decides about anything.
    pub(super) fn watches_space(&self) -> bool {
        self.core.free.is_of_use()
    }

    /// Asks the data servers at the start, and whenever somebody wants to know, until the service ends.
    pub(super) async fn watch_space(&self, secret: ClusterSecret) {
        let (env, map) = (self.env.clone(), &self.cluster);
        let asker = Asker { env, server: map.metadata, cluster: map.name.clone(), secret, timeout: TIMEOUT };
        let mut again = AGAIN;
        loop {
            let epoch = self.space_work.epoch();
            if self.is_stopping() {
                return;
            }
            let all_told = self.ask_for_space(&asker, map).await;
            again = if all_told { 0 } else { again.saturating_sub(1) };
            self.space_work.wait(epoch, (again > 0).then_some(AGAIN_AFTER)).await;
        }
    }

    /// Whether all servers answered. Whose answer is missing keeps what was known: its files fail by themselves.
    async fn ask_for_space(&self, asker: &Asker<E>, map: &ClusterMap) -> bool {
        let mut all_told = true;
        for entry in &map.servers {
            if self.is_stopping() {
                break;
            }
            let asked = async {
                let mut link = asker.connect(entry).await?;
                ask(&mut link, Family::Status, 1, &StatusRequest::Status).await
            };
            match asked.await {
                Ok(StatusReply::Status(status)) => {
                    let space = |target: &weft_wire::status::TargetStatus| {
                        (target.target, Space { total: target.total, free: target.free })
                    };
                    self.core.free.told(status.targets.iter().map(space), self.env.wall());
                }
                Ok(_) | Err(_) => all_told = false,
            }
        }
        // Nobody is asked again at once because one of them does not answer.
        self.core.free.told([], self.env.wall());
        all_told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(free: u64) -> Space {
        Space { total: ByteLen(1000), free: ByteLen(free) }
    }

    #[test]
    fn what_is_told_decides_until_it_is_told_anew_and_is_asked_for_when_it_is_old() {
        let reserves = (0..3).map(|target| (TargetId(target), Reserve::Percent(10)));
        let free = Free::new(reserves.collect());
        let at = |s: i64| Timestamp::from_parts(s, 0);
        assert_eq!(free.full(at(1)), Full::default(), "nothing is known");
        assert!(free.take_wanted() && !free.take_wanted());
        free.told([(TargetId(0), space(99)), (TargetId(1), space(100)), (TargetId(9), space(0))], at(1));
        let full = free.full(at(5));
        assert!(full.has(TargetId(0)) && full.0.len() == 1, "{full:?}");
        assert_eq!(full.to_string(), "target 0 has 99 bytes free and keeps 100");
        assert!(!free.take_wanted());
        assert!(free.full(at(6)).has(TargetId(0)) && free.take_wanted(), "old, but what there is");
        free.full(at(0));
        assert!(free.take_wanted(), "a clock that was set back");
        let mut left: RoomLeft = [(TargetId(0), ByteLen(50)), (TargetId(2), ByteLen(50))].into();
        free.limit(&mut left);
        assert_eq!(left, [(TargetId(0), ByteLen(0)), (TargetId(2), ByteLen(50))].into());
        free.told([(TargetId(0), space(130))], at(7));
        assert_eq!(free.full(at(8)), Full::default());
        left.insert(TargetId(0), ByteLen(50));
        free.limit(&mut left);
        assert_eq!(left[&TargetId(0)], ByteLen(30));
    }
}
