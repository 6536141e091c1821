//! Record of the targets: which disks joined the cluster, in which state, and the latest attach of each.

use super::Service;
use super::closed_targets::{ClosedTargets, Reason};
use super::fault::{Fault, Outcome};
use super::moves::move_destinations;
use super::op::Op;
use super::serve::Call;
use super::tables::{file_of_key, put_inode, put_row, row};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weft_core::{AttachToken, ClusterId, Layout, TargetId, TargetState, TargetUuid};
use weft_env::Env;
use weft_env::mutants::{Mutant, is_seeded};
use weft_store::metadata::{
    Engine, Identity, Inode, Node, ReapRow, Scan, Snapshot, Table, TargetRow, Transaction, target_key,
};
use weft_wire::cluster::TargetPlace;
use weft_wire::meta::{MetaReply, TargetChange, TargetClaim, TargetRecord, TargetRefusal, TargetVerdict};
use weft_wire::{ClusterMap, Errno};

/// Counter row that exists once the table of targets has been created.
const REGISTRY: &[u8] = b"registry";
/// Counter row: see [`Registry::capabilities_from_s`].
const CAPABILITIES_FROM: &[u8] = b"capabilities-from";

/// The recorded targets, in memory.
pub(super) struct Registry {
    /// Identity of the cluster.
    pub cluster: ClusterId,
    /// Whether all targets of the cluster map take new files without having joined.
    is_off: bool,
    /// Time in seconds since 1970 before which no capability ends that was issued since a blank disk last became a target.
    /// Targets refuse earlier ones, so that no client writes to a blank disk before it knows what is lost.
    capabilities_from_s: AtomicU64,
    /// Whether capabilities may have been issued since then.
    has_granted: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Targets of the cluster map.
    named: BTreeSet<TargetId>,
    rows: BTreeMap<TargetId, TargetRow>,
    /// Targets of the cluster map that take no new files, and why.
    closed: BTreeMap<TargetId, &'static str>,
    /// Targets that attached after their latest recorded attach, which means that this is an older copy of the
    /// metadata.
    ahead: BTreeSet<TargetId>,
}

impl Registry {
    /// Reads the record at the start of the service, or creates it.
    ///
    /// # Errors
    /// The cluster file omits a target that may hold data.
    pub fn begin(
        t: &mut dyn Transaction,
        identity: &Identity,
        map: &ClusterMap,
        is_off: bool,
    ) -> Outcome<Self> {
        let named: BTreeSet<TargetId> = map.targets.iter().map(|entry| entry.id).collect();
        let is_new = row::<()>(t, Table::Counters, REGISTRY)?.is_none();
        if is_new {
            if identity.was_version_1 {
                // Disks of version 1 have no identity. The first disk of each target that attaches gets one.
                for target in targets_with_data(t)?.union(&named) {
                    put_row(
                        t,
                        Table::Targets,
                        &target_key(*target),
                        &TargetRow {
                            uuid: TargetUuid::NONE,
                            state: TargetState::Active,
                            token: AttachToken::NONE,
                            accepts: false,
                        },
                    );
                }
            }
            put_row(t, Table::Counters, REGISTRY, &());
        }
        let rows = rows(t)?;
        let omitted = |(target, row): (&TargetId, &TargetRow)| {
            (row.may_hold_data() && !named.contains(target)).then_some(target.0.to_string())
        };
        let omitted: Vec<_> = rows.iter().filter_map(omitted).collect();
        if !omitted.is_empty() && !is_off {
            let detail = format!(
                "the cluster file omits target {}, which joined this cluster and may hold data: name it again; to take \
                 a target out, `weft target drain` and `weft target remove` come first",
                omitted.join(", ")
            );
            return Err(Fault::new(Errno::EINVAL, detail));
        }
        let capabilities_from_s = row::<u64>(t, Table::Counters, CAPABILITIES_FROM)?.unwrap_or(0).into();
        let registry = Self {
            cluster: identity.id,
            is_off,
            capabilities_from_s,
            has_granted: (!is_new || identity.was_version_1).into(),
            state: Mutex::default(),
        };
        {
            let mut state = registry.state.lock();
            (state.named, state.rows) = (named, rows);
        }
        registry.update_closed();
        Ok(registry)
    }

    /// Time before which no new capability may end, in seconds since 1970.
    pub fn capabilities_from_s(&self) -> u64 {
        self.capabilities_from_s.load(Ordering::Acquire)
    }

    /// Registers that a capability is issued.
    #[inline]
    pub fn note_grant(&self) {
        if !self.has_granted.load(Ordering::Relaxed) {
            self.has_granted.store(true, Ordering::Relaxed);
        }
    }

    /// Separates the capabilities issued so far, all of which end before `from_s`, from later ones. Always writes the record,
    /// because an earlier transaction may have failed.
    fn separate_capabilities(&self, t: &mut dyn Transaction, from_s: u64) {
        if self.has_granted.swap(false, Ordering::AcqRel) {
            self.capabilities_from_s.fetch_max(from_s, Ordering::AcqRel);
        }
        put_row(t, Table::Counters, CAPABILITIES_FROM, &self.capabilities_from_s());
    }

    /// Takes the targets of a new cluster map.
    pub fn set_named(&self, map: &ClusterMap) {
        self.state.lock().named = map.targets.iter().map(|entry| entry.id).collect();
        self.update_closed();
    }

    /// Adds the targets whose state excludes new files.
    pub fn close(&self, closed: &mut ClosedTargets) {
        let state = self.state.lock();
        closed.0.extend(state.closed.iter().map(|(target, why)| (*target, Reason::State(why))));
    }

    pub fn put(&self, t: &mut dyn Transaction, target: TargetId, row: TargetRow) {
        put_row(t, Table::Targets, &target_key(target), &row);
        {
            let mut state = self.state.lock();
            state.rows.insert(target, row);
            state.ahead.remove(&target);
        }
        self.update_closed();
    }

    fn update_closed(&self) {
        let mut state = self.state.lock();
        let why = |target: &TargetId| match state.rows.get(target).map(|row| row.state) {
            _ if self.is_off => None,
            Some(TargetState::Active) => None,
            Some(TargetState::Draining) => Some("is being drained"),
            Some(TargetState::Retired) => Some("was removed from the cluster"),
            Some(TargetState::Joining) | None => Some("has not joined the cluster"),
        };
        let closed = state.named.iter().filter_map(|target| Some((*target, why(target)?))).collect();
        state.closed = closed;
    }

    /// Reason why this metadata must not be used: a target is ahead of it.
    pub fn outdated(&self) -> Option<Fault> {
        let target = self.state.lock().ahead.first().copied()?;
        let detail = format!(
            "the metadata is older than {target}: an older copy of the metadata was restored, and files made since are \
             unknown to it: restore the latest copy; to go on with this one, `weft target accept {}`, start that \
             target's server again, then run `weft fsck`",
            target.0
        );
        Some(Fault::new(Errno::EIO, detail))
    }

    /// Records of all targets.
    pub fn records(&self) -> Vec<TargetRecord> {
        let record = |(target, row): (&TargetId, &TargetRow)| TargetRecord {
            target: *target,
            state: row.state,
            uuid: row.uuid,
            attaches: row.token.counter,
            accepts: row.accepts,
        };
        self.state.lock().rows.iter().map(record).collect()
    }
}

fn rows(s: &dyn Snapshot) -> Outcome<BTreeMap<TargetId, TargetRow>> {
    let mut rows = BTreeMap::new();
    s.scan(Table::Targets, Bound::Unbounded, &mut |key, value| {
        let target = TargetId(key.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes)));
        rows.insert(target, value.open(Table::Targets, key)?);
        Ok(Scan::Next)
    })?;
    Ok(rows)
}

/// All targets in layouts of files, of moves, and of datafiles to be removed.
fn targets_with_data(s: &dyn Snapshot) -> Outcome<BTreeSet<TargetId>> {
    let mut found = targets_of_files(s)?;
    s.scan(Table::Reap, Bound::Unbounded, &mut |key, value| {
        let row: ReapRow = value.open(Table::Reap, key)?;
        found.extend(row.layout.objects().map(|(_, target)| target));
        Ok(Scan::Next)
    })?;
    Ok(found)
}

/// All targets in layouts of files and of moves.
fn targets_of_files(s: &dyn Snapshot) -> Outcome<BTreeSet<TargetId>> {
    let mut found = BTreeSet::new();
    let mut add = |layout: &Layout| found.extend(layout.objects().map(|(_, target)| target));
    s.scan(Table::Inodes, Bound::Unbounded, &mut |key, value| {
        let inode: Inode = value.open(Table::Inodes, key)?;
        if let Node::Regular { layout, .. } = &inode.node {
            add(layout);
        }
        Ok(Scan::Next)
    })?;
    move_destinations(s)?.iter().for_each(|(_, layout)| add(layout));
    Ok(found)
}

/// Marks the datafiles on a lost target whose lengths are not all on record: those of files that may have been written since
/// their size was last valid. The records of other files are complete.
fn mark_unknown_lens(t: &mut dyn Transaction, target: TargetId) -> Outcome<()> {
    let mut marked = Vec::new();
    t.scan(Table::Inodes, Bound::Unbounded, &mut |key, value| {
        let mut inode: Inode = value.open(Table::Inodes, key)?;
        if let Node::Regular { layout, recorded, is_size_valid: false, is_inline: false, .. } =
            &mut inode.node
        {
            let lost = layout.objects().enumerate().filter(|(_, (_, of))| *of == target);
            let lost: Vec<usize> = lost.map(|(index, _)| index).collect();
            if !lost.is_empty() && !is_seeded(Mutant::ForgottenRecord) {
                lost.into_iter().for_each(|index| recorded.mark_unknown(index));
                marked.push((file_of_key(key), inode));
            }
        }
        Ok(Scan::Next)
    })?;
    marked.iter().for_each(|(file, inode)| put_inode(t, *file, inode));
    Ok(())
}

/// Whether a target with this record may use the directory that the claim describes.
fn check_claim(row: Option<&TargetRow>, claim: &TargetClaim, format: bool, own: ClusterId) -> TargetVerdict {
    use TargetRefusal as R;
    use TargetVerdict::{Attach, Join, Refused};
    if let TargetClaim::Identity { cluster, .. } = claim
        && *cluster != own
    {
        return Refused(R::Foreign { found: *cluster });
    }
    let Some(row) = row.filter(|row| row.state != TargetState::Joining) else {
        let former = row.map_or(TargetUuid::NONE, |row| row.uuid);
        return match claim {
            TargetClaim::Identity { uuid, .. } if *uuid == former => Refused(R::Replaced),
            TargetClaim::Version1 => Refused(R::Foreign { found: ClusterId::NONE }),
            _ if row.is_some() || format => Join,
            _ => Refused(R::NotJoined),
        };
    };
    if row.state == TargetState::Retired {
        return Refused(R::Retired);
    }
    match *claim {
        TargetClaim::Blank => Refused(R::Blank),
        // A disk of version 1 attaches for the first time, or again after that was interrupted.
        _ if row.uuid.is_none() => Attach(row.token),
        TargetClaim::Version1 => Refused(R::OlderTarget),
        TargetClaim::Identity { uuid, .. } if uuid != row.uuid => {
            Refused(R::OtherDisk { found: uuid, joined: row.uuid })
        }
        TargetClaim::Identity { tokens, .. }
            if row.accepts || tokens.contains(&row.token) || is_seeded(Mutant::UncheckedIdentity) =>
        {
            Attach(row.token)
        }
        TargetClaim::Identity { tokens, .. } => {
            let known = tokens.map(|token| token.counter);
            Refused(if known.iter().all(|counter| *counter < row.token.counter) {
                R::OlderTarget
            } else if known.iter().all(|counter| *counter > row.token.counter) {
                R::OlderMetadata
            } else {
                R::Diverged
            })
        }
    }
}

impl Op<'_> {
    pub(super) fn judge_target(
        &self,
        s: &dyn Snapshot,
        target: TargetId,
        claim: &TargetClaim,
        format: bool,
    ) -> Outcome<MetaReply> {
        let registry = &self.core.registry;
        let row = row::<TargetRow>(s, Table::Targets, &target_key(target))?;
        if !self.core.keeps_map && !registry.state.lock().named.contains(&target) {
            let detail = format!(
                "the metadata server's cluster file does not name {target}: give all servers the same cluster file, \
                 and start the metadata server again"
            );
            return Err(Fault::new(Errno::EINVAL, detail));
        }
        let verdict = check_claim(row.as_ref(), claim, format, registry.cluster);
        // An attach to metadata that must not be used would separate the target from the latest copy.
        let accepts = row.is_some_and(|row| row.accepts);
        if !accepts && registry.outdated().is_some() && !matches!(verdict, TargetVerdict::Refused(_)) {
            return Ok(MetaReply::TargetVerdict(TargetVerdict::Refused(TargetRefusal::OlderMetadata)));
        }
        if let TargetVerdict::Refused(TargetRefusal::OlderMetadata | TargetRefusal::Diverged) = verdict {
            registry.state.lock().ahead.insert(target);
        }
        Ok(MetaReply::TargetVerdict(verdict))
    }

    pub(super) fn attach_target(
        &self,
        t: &mut dyn Transaction,
        target: TargetId,
        uuid: TargetUuid,
        (from, to): (Option<AttachToken>, AttachToken),
        place: Option<TargetPlace>,
    ) -> Outcome<MetaReply> {
        let registry = &self.core.registry;
        let found = row::<TargetRow>(t, Table::Targets, &target_key(target))?;
        let is_repeated = found.as_ref().is_some_and(|row| (row.uuid, row.token) == (uuid, to));
        let state = match (&found, from) {
            (None, None) => TargetState::Active,
            (Some(row), None) if row.state == TargetState::Joining && row.uuid != uuid => TargetState::Active,
            // A repeated request after a lost reply.
            (Some(row), _) if is_repeated => row.state,
            (Some(row), Some(from))
                if row.token == from
                    && (row.uuid == uuid || row.uuid.is_none())
                    && matches!(row.state, TargetState::Active | TargetState::Draining) =>
            {
                row.state
            }
            _ => {
                let detail = format!("{target} changed on record while it attached: start the server again");
                return Err(Fault::new(Errno::EAGAIN, detail));
            }
        };
        if from.is_none() && !is_repeated {
            registry.separate_capabilities(t, self.core.capabilities_end_by_s(self.now) + 1);
        }
        registry.put(t, target, TargetRow { uuid, state, token: to, accepts: false });
        self.place_target(t, target, place)?;
        Ok(MetaReply::Attached { capabilities_from_s: registry.capabilities_from_s() })
    }

    pub(super) fn targets(&self) -> MetaReply {
        let registry = &self.core.registry;
        MetaReply::Targets { cluster: registry.cluster, targets: registry.records() }
    }

    /// Checks that a target which is to be removed has no data of files, or had none when its disk was lost.
    pub(super) fn require_no_data(
        &self,
        s: &dyn Snapshot,
        target: TargetId,
        state: TargetState,
    ) -> Outcome<()> {
        let found = match state {
            // Datafiles to be removed are gone with the disk.
            TargetState::Joining => targets_of_files(s)?,
            _ => targets_with_data(s)?,
        };
        if !found.contains(&target) {
            return Ok(());
        }
        let detail = match state {
            TargetState::Joining => format!(
                "{target} held data of files when its disk was given up: remove those files first, or mount a blank \
                 disk, start its server and drain it; `weft fsck` names them"
            ),
            _ => format!(
                "{target} holds data of files, or of files that are being removed: `weft target drain {}` first; \
                 `weft target drain` shows what is left",
                target.0
            ),
        };
        Err(Fault::new(Errno::EBUSY, detail))
    }

    pub(super) fn change_target(
        &self,
        t: &mut dyn Transaction,
        target: TargetId,
        change: TargetChange,
    ) -> Outcome<MetaReply> {
        let registry = &self.core.registry;
        let found = row::<TargetRow>(t, Table::Targets, &target_key(target))?;
        let refused = |why: String| Err(Fault::new(Errno::EINVAL, why));
        let unknown =
            || refused(format!("{target} has not joined the cluster: `weft target add {}`", target.0));
        let changed = match (change, found) {
            (TargetChange::Add, _)
                if !self.core.keeps_map && !registry.state.lock().named.contains(&target) =>
            {
                return refused(format!(
                    "the metadata server's cluster file does not name {target}: add it there, on all hosts, and start \
                     the metadata server again"
                ));
            }
            (TargetChange::Add, None) => TargetRow {
                uuid: TargetUuid::NONE,
                state: TargetState::Joining,
                token: AttachToken::NONE,
                accepts: false,
            },
            (TargetChange::Add, Some(row)) if row.state == TargetState::Joining => row,
            (TargetChange::Add, Some(row)) => {
                let word = row.state.word();
                return refused(format!(
                    "{target} is on record as {word}: a new target needs a number of its own"
                ));
            }
            (_, None) => return unknown(),
            (_, Some(row)) if row.state == TargetState::Retired => {
                return refused(format!(
                    "{target} was removed from the cluster: a new target needs another number"
                ));
            }
            (TargetChange::Accept, Some(row)) => TargetRow { accepts: true, ..row },
            (TargetChange::Drain | TargetChange::Activate, Some(row))
                if row.state == TargetState::Joining =>
            {
                return unknown();
            }
            (TargetChange::Drain, Some(row)) => TargetRow { state: TargetState::Draining, ..row },
            (TargetChange::Activate, Some(row)) => TargetRow { state: TargetState::Active, ..row },
            (TargetChange::Replace { data_lost }, Some(row)) => {
                if data_lost {
                    mark_unknown_lens(t, target)?;
                }
                TargetRow { state: TargetState::Joining, token: AttachToken::NONE, accepts: false, ..row }
            }
            (TargetChange::Remove, Some(row)) if row.state == TargetState::Active => {
                return refused(format!("{target} is in use: `weft target drain {}` first", target.0));
            }
            (TargetChange::Remove, Some(row)) => TargetRow { state: TargetState::Retired, ..row },
        };
        registry.put(t, target, changed);
        if changed.state == TargetState::Retired {
            self.forget_place(t, target)?;
        }
        Ok(self.targets())
    }
}

impl<E: Env> Service<E> {
    /// Identity of the cluster.
    pub fn cluster_id(&self) -> ClusterId {
        self.core.registry.cluster
    }

    pub(super) async fn change_target_state(
        &self,
        call: &Call<'_>,
        target: TargetId,
        change: TargetChange,
    ) -> Outcome<MetaReply> {
        let needs_it_empty =
            matches!(change, TargetChange::Remove | TargetChange::Replace { data_lost: false });
        if needs_it_empty {
            // An active target may get new files, so those states are refused here or by the change itself.
            let row = self.journal.read(|s| row::<TargetRow>(s, Table::Targets, &target_key(target)))?;
            if row.is_some_and(|row| row.state == TargetState::Active) && change != TargetChange::Remove {
                let detail = format!(
                    "{target} is in use: `weft target drain {0}` first; if its disk is lost, `weft target replace {0} \
                     --data-lost`",
                    target.0
                );
                return Err(Fault::new(Errno::EBUSY, detail));
            }
            let state = row.map(|row| row.state);
            let is_given_up = state == Some(TargetState::Joining) && change == TargetChange::Remove;
            if let Some(state) = state
                && (state == TargetState::Draining || is_given_up)
            {
                self.read(call, |s, op| op.require_no_data(s, target, state))?;
            }
        }
        self.change(call, |t, op| op.change_target(t, target, change)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: ClusterId = ClusterId(7);

    fn token(counter: u64) -> AttachToken {
        AttachToken { counter, nonce: counter * 10 }
    }

    fn of(state: TargetState, uuid: u128, counter: u64) -> TargetRow {
        TargetRow { uuid: TargetUuid(uuid), state, token: token(counter), accepts: false }
    }

    fn claim(uuid: u128, previous: u64, latest: u64) -> TargetClaim {
        TargetClaim::Identity {
            cluster: OWN,
            uuid: TargetUuid(uuid),
            tokens: [token(previous), token(latest)],
        }
    }

    fn refusal(row: Option<&TargetRow>, claim: &TargetClaim) -> TargetRefusal {
        match check_claim(row, claim, false, OWN) {
            TargetVerdict::Refused(refusal) => refusal,
            other => panic!("{claim:?} for {row:?}: {other:?}"),
        }
    }

    #[test]
    fn a_known_target_never_joins_again() {
        for state in [TargetState::Active, TargetState::Draining] {
            let row = of(state, 1, 5);
            for format in [false, true] {
                let blank = check_claim(Some(&row), &TargetClaim::Blank, format, OWN);
                assert_eq!(blank, TargetVerdict::Refused(TargetRefusal::Blank));
            }
            let other = TargetRefusal::OtherDisk { found: TargetUuid(2), joined: TargetUuid(1) };
            assert_eq!(refusal(Some(&row), &claim(2, 4, 5)), other);
            assert_eq!(refusal(Some(&row), &TargetClaim::Version1), TargetRefusal::OlderTarget);
        }
        let retired = of(TargetState::Retired, 1, 5);
        assert_eq!(refusal(Some(&retired), &claim(1, 4, 5)), TargetRefusal::Retired);
    }

    #[test]
    fn an_unknown_target_joins_by_command_only() {
        assert_eq!(refusal(None, &TargetClaim::Blank), TargetRefusal::NotJoined);
        assert_eq!(refusal(None, &claim(1, 0, 1)), TargetRefusal::NotJoined);
        assert_eq!(check_claim(None, &TargetClaim::Blank, true, OWN), TargetVerdict::Join);
        let joining = of(TargetState::Joining, 1, 0);
        assert_eq!(check_claim(Some(&joining), &TargetClaim::Blank, false, OWN), TargetVerdict::Join);
        assert_eq!(check_claim(Some(&joining), &claim(2, 0, 1), false, OWN), TargetVerdict::Join);
        assert_eq!(refusal(Some(&joining), &claim(1, 4, 5)), TargetRefusal::Replaced, "the replaced disk");
    }

    #[test]
    fn a_target_of_another_cluster_is_refused_in_every_state() {
        let foreign = TargetClaim::Identity {
            cluster: ClusterId(8),
            uuid: TargetUuid(1),
            tokens: [token(4), token(5)],
        };
        for row in [None, Some(of(TargetState::Active, 1, 5)), Some(of(TargetState::Joining, 0, 0))] {
            for format in [false, true] {
                let verdict = check_claim(row.as_ref(), &foreign, format, OWN);
                assert_eq!(verdict, TargetVerdict::Refused(TargetRefusal::Foreign { found: ClusterId(8) }));
            }
        }
    }

    #[test]
    fn an_older_copy_of_either_side_is_detected() {
        let row = of(TargetState::Active, 1, 5);
        for (previous, latest) in [(4, 5), (5, 6)] {
            // The metadata may have stopped before it recorded the last attach.
            let verdict = check_claim(Some(&row), &claim(1, previous, latest), false, OWN);
            assert_eq!(verdict, TargetVerdict::Attach(token(5)));
        }
        assert_eq!(refusal(Some(&row), &claim(1, 3, 4)), TargetRefusal::OlderTarget);
        assert_eq!(refusal(Some(&row), &claim(1, 6, 7)), TargetRefusal::OlderMetadata);
        let other = AttachToken { counter: 5, nonce: 1 };
        let diverged = TargetClaim::Identity { cluster: OWN, uuid: TargetUuid(1), tokens: [token(4), other] };
        assert_eq!(refusal(Some(&row), &diverged), TargetRefusal::Diverged);
        let accepted = TargetRow { accepts: true, ..row };
        for claim in [claim(1, 3, 4), claim(1, 6, 7), diverged] {
            assert_eq!(check_claim(Some(&accepted), &claim, false, OWN), TargetVerdict::Attach(token(5)));
        }
    }

    #[test]
    fn a_disk_of_version_1_attaches_once() {
        let row = of(TargetState::Active, 0, 0);
        assert_eq!(
            check_claim(Some(&row), &TargetClaim::Version1, false, OWN),
            TargetVerdict::Attach(token(0))
        );
        // Interrupted between the identity file and the record.
        assert_eq!(check_claim(Some(&row), &claim(1, 0, 1), false, OWN), TargetVerdict::Attach(token(0)));
        assert_eq!(refusal(Some(&row), &TargetClaim::Blank), TargetRefusal::Blank);
        let none = TargetRefusal::Foreign { found: ClusterId::NONE };
        assert_eq!(refusal(None, &TargetClaim::Version1), none);
    }
}
