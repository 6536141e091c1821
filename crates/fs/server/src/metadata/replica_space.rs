//! Space: when a target fills up, the least useful replicas with bytes on it are dropped.
//!
//! Only replicas that no client has open, or may have open, and that have no newer bytes than their file. Outdated ones
//! go first, then those that save the least time for each byte by the model of their plan.

use super::Service;
use super::fault::Outcome;
use super::replicas::replicated_files;
use super::tables::{inode, path_of};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use weft_core::units::human_bytes;
use weft_core::{ByteLen, FileId, ServerId, TargetId, Timestamp};
use weft_env::Env;
use weft_store::metadata::{Engine, Node, Snapshot};

/// A replica that may be dropped.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Droppable {
    file: FileId,
    is_outdated: bool,
    gain_us: u64,
    len: ByteLen,
    targets: Vec<TargetId>,
}

impl Droppable {
    /// Bytes that are freed on each of its targets.
    fn share(&self) -> u64 {
        self.len.0 / (self.targets.len() as u64).max(1)
    }
}

/// Chooses the replicas to drop so that each target of `missing` gets its bytes, if they are enough.
fn choose(mut from: Vec<Droppable>, missing: &BTreeMap<TargetId, ByteLen>) -> Vec<Droppable> {
    let gain_per_byte =
        |replica: &Droppable| (u128::from(replica.gain_us) << 32) / u128::from(replica.len.0.max(1));
    from.sort_by_key(|replica| (!replica.is_outdated, gain_per_byte(replica), replica.file));
    let mut left: BTreeMap<TargetId, u64> =
        missing.iter().map(|(target, bytes)| (*target, bytes.0)).collect();
    from.retain(|replica| {
        let is_needed = replica.targets.iter().any(|target| left.get(target).is_some_and(|left| *left > 0));
        if is_needed {
            for target in &replica.targets {
                left.entry(*target).and_modify(|left| *left = left.saturating_sub(replica.share()));
            }
        }
        is_needed
    });
    from
}

impl<E: Env> Service<E> {
    /// Drops replicas if targets of `server` fill up.
    pub(super) async fn free_space_of_replicas(&self, server: ServerId) {
        let missing = self.core.server_health.missing(server);
        // Space that is being freed is not yet in the figures.
        if missing.is_empty() || self.core.reaping.load(Ordering::Relaxed) > 0 {
            return;
        }
        let now = self.env.wall();
        let dropped = self.journal.write(|t| -> Outcome<Vec<(Droppable, Vec<u8>)>> {
            let chosen = choose(self.droppable(t, now)?, &missing);
            chosen
                .into_iter()
                .map(|replica| {
                    let path = path_of(t, replica.file).unwrap_or_default();
                    self.core.drop_replica_of(t, replica.file)?;
                    Ok((replica, path))
                })
                .collect()
        });
        let Ok((dropped, _)) = dropped else { return };
        for (replica, path) in &dropped {
            let path = String::from_utf8_lossy(path);
            let len = human_bytes(replica.len.0);
            self.log(&format!("dropped the replica of {path} ({len}), because a target fills up"));
        }
        if !dropped.is_empty() {
            self.wake_reaper();
            self.journal.await_device().await;
        }
    }

    fn droppable(&self, s: &dyn Snapshot, now: Timestamp) -> Outcome<Vec<Droppable>> {
        let mut found = Vec::new();
        for file in replicated_files(s)? {
            let Some(row) = self.core.droppable_row(s, file, now)? else { continue };
            let Some(data) = inode(s, row.data)? else { continue };
            let Node::Regular { layout, .. } = &data.node else { continue };
            let mut targets: Vec<TargetId> = layout.objects().map(|(_, target)| target).collect();
            targets.sort_unstable();
            targets.dedup();
            found.push(Droppable {
                file,
                is_outdated: row.phase != weft_core::replicas::Phase::Valid,
                gain_us: row.gain_us,
                len: row.len,
                targets,
            });
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(file: u64, gain_us: u64, len: u64, targets: &[u32]) -> Droppable {
        let targets = targets.iter().copied().map(TargetId).collect();
        Droppable { file: FileId(file), is_outdated: false, gain_us, len: ByteLen(len), targets }
    }

    fn chosen(from: Vec<Droppable>, missing: &[(u32, u64)]) -> Vec<u64> {
        let missing = missing.iter().map(|(target, bytes)| (TargetId(*target), ByteLen(*bytes))).collect();
        choose(from, &missing).iter().map(|replica| replica.file.0).collect()
    }

    #[test]
    fn outdated_replicas_go_first_then_those_that_gain_least_for_each_byte() {
        let outdated = Droppable { is_outdated: true, ..replica(9, u64::MAX, 100, &[1]) };
        let all = || vec![replica(1, 500, 100, &[1]), replica(2, 400, 200, &[1]), outdated.clone()];
        assert_eq!(chosen(all(), &[(1, 1)]), [9]);
        assert_eq!(chosen(all(), &[(1, 100)]), [9]);
        assert_eq!(chosen(all(), &[(1, 101)]), [9, 2]);
        assert_eq!(chosen(all(), &[(1, 301)]), [9, 2, 1]);
        assert_eq!(chosen(all(), &[(1, u64::MAX)]), [9, 2, 1], "all of them are not enough");
        assert_eq!(chosen(vec![replica(1, 0, 0, &[1])], &[(1, 1)]), [1], "without bytes");
    }

    #[test]
    fn only_replicas_on_a_target_that_fills_up_are_dropped() {
        let all = || vec![replica(1, 1, 100, &[1, 2]), replica(2, 9, 100, &[2]), replica(3, 0, 100, &[3])];
        assert_eq!(chosen(all(), &[(4, 10)]), [0; 0]);
        assert_eq!(chosen(all(), &[(1, 50)]), [1]);
        assert_eq!(chosen(all(), &[(1, 50), (2, 60)]), [1, 2]);
        assert_eq!(chosen(all(), &[]), [0; 0]);
    }
}
