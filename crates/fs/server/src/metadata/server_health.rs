//! State of the data servers: whether they answer, and the free space of their targets.
//!
//! A task for each server polls it over a connection that stays open, so that creating a file needs no message. A
//! server that dies counts as down after about one interval, a server that is silent after two time-outs. The free
//! space may be that old too, so a target may exceed its reserve slightly. The final size of a new file is unknown
//! anyway.
//!
//! A target whose server has never answered is open until the metadata service has run for a grace time, because the
//! servers of a cluster start together.

use super::Service;
use super::closed_targets::{ClosedTargets, DownServer, Reason};
use super::cluster_map::Settings;
use super::keys::needs_revoked_list;
use crate::peer::{PeerConnector, round_trip};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weft_core::parts::SpaceLeft;
use weft_core::{ByteLen, Nanos, Reserve, ServerId, TargetId};
use weft_env::{Env, Notify, Space};
use weft_wire::keys::Revoked;
use weft_wire::status::{MetadataEntry, ServerStatus, StatusReply, StatusRequest};
use weft_wire::{ClusterMap, ClusterSecret, Family, Link};

/// Timeout of each of connecting, sending and receiving.
const TIMEOUT: Nanos = Nanos::from_s(2);
/// Number of consecutive failures after which a server is down. The first may be an open connection to a server that
/// restarted.
const FAILURES_DOWN: u32 = 2;
/// Interval between polls of a server that is down.
const DOWN_POLL_INTERVAL: Nanos = Nanos::from_ms(200);
/// Free space, as a percentage of a target's reserve, below which replicas on it are dropped: before the target takes no
/// new files.
const ROOM_PERCENT: u128 = 125;
/// Age of the metadata service before which no server counts as down.
const START_GRACE: Nanos = Nanos::from_s(5);

/// Last known state of data servers and targets.
#[derive(Default)]
pub(super) struct ServerHealth {
    known: Mutex<KnownState>,
}

#[derive(Default)]
struct KnownState {
    /// Reserves of all targets that can be full.
    reserves: BTreeMap<TargetId, Reserve>,
    /// Targets by server.
    targets: BTreeMap<ServerId, Vec<TargetId>>,
    spaces: BTreeMap<TargetId, Space>,
    down: BTreeMap<ServerId, Arc<DownServer>>,
    /// Targets that their servers refuse to use.
    refused: BTreeMap<TargetId, Arc<str>>,
}

impl ServerHealth {
    pub(super) fn new(cluster: &ClusterMap, settings: &Settings) -> Self {
        let health = Self::default();
        health.set_map(cluster, settings);
        health
    }

    /// Takes a new cluster map.
    pub(super) fn set_map(&self, cluster: &ClusterMap, settings: &Settings) {
        let mut targets: BTreeMap<ServerId, Vec<TargetId>> = BTreeMap::new();
        for entry in &cluster.targets {
            targets.entry(entry.server).or_default().push(entry.id);
        }
        let reserves = settings.iter().filter_map(|(target, settings)| Some((*target, settings.reserve?)));
        let mut known = self.known.lock();
        known.down.retain(|server, _| targets.contains_key(server));
        known.reserves = reserves.collect();
        known.targets = targets;
    }

    /// Data servers that have targets.
    pub(super) fn servers(&self) -> Vec<ServerId> {
        self.known.lock().targets.keys().copied().collect()
    }

    /// Targets that take no new files.
    pub(super) fn closed(&self) -> ClosedTargets {
        let known = self.known.lock();
        let full = known.spaces.iter().filter_map(|(target, space)| {
            let reserve = known.reserves.get(target)?;
            let full = Reason::Full { free: space.free, reserve: reserve.of(space.total) };
            reserve.is_reached(space.total, space.free).then_some((*target, full))
        });
        let mut closed = ClosedTargets(full.collect());
        closed.0.extend(known.refused.iter().map(|(id, why)| (*id, Reason::Refused(Arc::clone(why)))));
        for (server, down) in &known.down {
            let targets = known.targets.get(server).into_iter().flatten();
            closed.0.extend(targets.map(|target| (*target, Reason::Down(Arc::clone(down)))));
        }
        closed
    }

    /// Limits space that layouts may reserve to the space that is free beside the reserve.
    pub(super) fn limit(&self, left: &mut SpaceLeft) {
        let known = self.known.lock();
        for (target, left) in left {
            if let (Some(space), Some(reserve)) = (known.spaces.get(target), known.reserves.get(target)) {
                *left = (*left).min(ByteLen(space.free.0.saturating_sub(reserve.of(space.total).0)));
            }
        }
    }

    /// Bytes by which targets of a server have less free than [`ROOM_PERCENT`] of their reserve.
    pub(super) fn missing(&self, server: ServerId) -> BTreeMap<TargetId, ByteLen> {
        let known = self.known.lock();
        let own = known.targets.get(&server).into_iter().flatten();
        own.filter_map(|target| {
            let (space, reserve) = (known.spaces.get(target)?, known.reserves.get(target)?);
            let wanted = u128::from(reserve.of(space.total).0) * ROOM_PERCENT / 100;
            let missing = u64::try_from(wanted).unwrap_or(u64::MAX).saturating_sub(space.free.0);
            (space.total > ByteLen(0) && missing > 0).then_some((*target, ByteLen(missing)))
        })
        .collect()
    }

    /// Marks a target as refused until its server reports otherwise.
    pub(super) fn refuse(&self, target: TargetId, why: &str) {
        self.known.lock().refused.insert(target, Arc::from(why));
    }

    /// Marks a target as in use.
    pub(super) fn attached(&self, target: TargetId) {
        self.known.lock().refused.remove(&target);
    }

    /// Records which of its targets a server refuses.
    fn refused(&self, server: ServerId, refused: impl IntoIterator<Item = (TargetId, Arc<str>)>) {
        let mut known = self.known.lock();
        let own = known.targets.get(&server).cloned().unwrap_or_default();
        known.refused.retain(|target, _| !own.contains(target));
        known.refused.extend(refused);
    }

    /// Records the free space that a server reported. Returns whether the server was down.
    fn reported(&self, server: ServerId, spaces: impl IntoIterator<Item = (TargetId, Space)>) -> bool {
        let mut known = self.known.lock();
        known.spaces.extend(spaces);
        known.down.remove(&server).is_some()
    }

    /// Marks a server as down. Returns whether it was up.
    fn down(&self, server: ServerId, name: &str, cause: String) -> bool {
        let down = Arc::new(DownServer { server: name.to_owned(), cause });
        self.known.lock().down.insert(server, down).is_none()
    }
}

impl<E: Env> Service<E> {
    /// Polls all data servers of the cluster map, as it changes, until the service ends.
    pub(super) async fn watch_servers(self: Arc<Self>, secret: ClusterSecret, every: Nanos) {
        let mut watched = BTreeSet::new();
        loop {
            let epoch = self.map_changed.epoch();
            if self.is_stopping() {
                return;
            }
            for server in self.core.server_health.servers() {
                if watched.insert(server) {
                    let started = Self::spawn_watcher(&self, server, &secret, every);
                    if let Err(error) = started {
                        watched.remove(&server);
                        self.log(&format!("error: a server is not watched: {error}"));
                    }
                }
            }
            self.map_changed.wait(epoch, None).await;
        }
    }

    /// Starts the task that polls a data server.
    pub(super) fn spawn_watcher(
        this: &Arc<Self>,
        server: ServerId,
        secret: &ClusterSecret,
        every: Nanos,
    ) -> std::io::Result<()> {
        let (watcher, secret) = (Arc::clone(this), secret.clone());
        let task = move || async move { watcher.watch_server(server, secret, every).await };
        this.env.spawn("weft-watch", task)
    }

    /// Polls a data server until the service ends. While the server has no targets, it is not asked.
    async fn watch_server(&self, server: ServerId, secret: ClusterSecret, every: Nanos) {
        let map = self.core.map.get();
        let connector = PeerConnector {
            env: self.env.clone(),
            server: map.metadata,
            cluster: map.name.clone(),
            cluster_id: self.cluster_id(),
            secret,
            levels: self.core.levels,
            timeout: TIMEOUT,
        };
        let began = self.env.now();
        let secret = connector.secret.clone();
        let (mut open_link, mut number, mut failures, mut known_keys) = (None, 0, 0u32, None);
        let mut told = None;
        loop {
            let epoch = self.watch_work.epoch();
            if self.is_stopping() {
                return;
            }
            let entry = self.core.map.get().server(server).clone();
            if entry.is_blank() || !self.core.server_health.servers().contains(&server) {
                open_link = None;
                self.watch_work.wait(epoch, Some(every)).await;
                continue;
            }
            number += 1;
            let polled = async {
                let mut link: Link<E::Conn> = match open_link.take() {
                    Some(link) => link,
                    None => {
                        (known_keys, told) = (None, None);
                        connector.connect(&entry).await?
                    }
                };
                if needs_revoked_list(known_keys, &secret) {
                    let keys = secret.revoked();
                    let count = keys.len();
                    let revoke = StatusRequest::Revoke(Revoked { keys });
                    match round_trip(&mut link, Family::Status, number, &revoke).await? {
                        StatusReply::Revoked => known_keys = Some(count),
                        other => return Err(format!("{other:?}")),
                    }
                    number += 1;
                }
                let map = self.core.map.get();
                let own = map.server(map.metadata);
                if self.core.keeps_map && server != map.metadata && told.as_ref() != Some(own) {
                    let entry = MetadataEntry { version: map.version, entry: own.clone() };
                    let tell = StatusRequest::SetMetadataServer(entry);
                    match round_trip(&mut link, Family::Status, number, &tell).await? {
                        StatusReply::MetadataServer(_) => told = Some(own.clone()),
                        other => return Err(format!("{other:?}")),
                    }
                    number += 1;
                }
                let reply = round_trip(&mut link, Family::Status, number, &StatusRequest::Status).await?;
                Ok::<_, String>((link, reply))
            };
            match polled.await {
                Ok((link, StatusReply::Status(status))) => {
                    (open_link, failures) = (Some(link), 0);
                    self.on_status(server, &status);
                    self.free_space_of_replicas(server).await;
                }
                Ok((_, other)) => self.on_failure(server, &mut failures, format!("{other:?}"), began),
                Err(cause) => self.on_failure(server, &mut failures, cause, began),
            }
            let pause = match failures {
                0 => every,
                1 => continue,
                _ => every.min(DOWN_POLL_INTERVAL),
            };
            self.watch_work.wait(epoch, Some(pause)).await;
        }
    }

    fn on_status(&self, server: ServerId, status: &ServerStatus) {
        let space = |target: &weft_wire::status::TargetStatus| {
            (target.target, Space { total: target.total, free: target.free, device: 0 })
        };
        let used = status.targets.iter().filter(|target| target.refused.is_none());
        self.core.server_health.refused(
            server,
            status.targets.iter().filter_map(|target| {
                let refused = target.refused.as_ref()?;
                Some((target.target, Arc::from(refused.state.as_str())))
            }),
        );
        if self.core.server_health.reported(server, used.map(space)) {
            let name = self.core.map.get().server(server).name.clone();
            self.log(&format!("server {name} answers again: it gets new files"));
            self.server_returned.store(true, Ordering::SeqCst);
            self.reap_work.notify_all();
        }
    }

    fn on_failure(&self, server: ServerId, failures: &mut u32, cause: String, began: Nanos) {
        *failures = failures.saturating_add(1);
        if *failures < FAILURES_DOWN || self.env.now().saturating_sub(began) < START_GRACE {
            return;
        }
        let name = self.core.map.get().server(server).name.clone();
        let message =
            format!("warn: server {name} does not answer: new files are placed on other servers: {cause}");
        if self.core.server_health.down(server, &name, cause) {
            self.log(&message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::TargetSettings;
    use weft_wire::cluster::TargetEntry;

    fn space(free: u64) -> Space {
        Space { total: ByteLen(1000), free: ByteLen(free), device: 0 }
    }

    fn health() -> ServerHealth {
        let settings = TargetSettings { reserve: Some(Reserve::Percent(10)), ..TargetSettings::default() };
        let settings = (0..3).map(|target| (TargetId(target), settings)).collect();
        // Targets 0 and 2 are on server 0, targets 1 and 3 on server 1.
        let target = |id| TargetEntry { id: TargetId(id), server: ServerId(id % 2), class: "hdd".into() };
        let targets = (0..4).map(target).collect();
        let cluster = ClusterMap {
            domains: Vec::new(),
            name: "c".into(),
            version: 0,
            servers: vec![],
            targets,
            metadata: ServerId(0),
        };
        ServerHealth::new(&cluster, &settings)
    }

    #[test]
    fn the_last_report_of_a_server_decides() {
        let health = health();
        assert_eq!(health.closed(), ClosedTargets::default(), "nothing is known");
        health.reported(
            ServerId(0),
            [(TargetId(0), space(99)), (TargetId(2), space(100)), (TargetId(9), space(0))],
        );
        let closed = health.closed();
        assert!(closed.has(TargetId(0)) && closed.0.len() == 1, "{closed:?}");
        assert_eq!(closed.to_string(), "target 0 has 99 bytes free and keeps 100");
        let mut left: SpaceLeft = [(TargetId(0), ByteLen(50)), (TargetId(1), ByteLen(50))].into();
        health.limit(&mut left);
        assert_eq!(left, [(TargetId(0), ByteLen(0)), (TargetId(1), ByteLen(50))].into());
        health.reported(ServerId(0), [(TargetId(0), space(130))]);
        assert_eq!(health.closed(), ClosedTargets::default());
        left.insert(TargetId(0), ByteLen(50));
        health.limit(&mut left);
        assert_eq!(left[&TargetId(0)], ByteLen(30));
    }

    #[test]
    fn a_server_that_is_down_closes_its_targets_until_it_answers() {
        let health = health();
        assert!(
            health.down(ServerId(1), "s1", "refused".into())
                && !health.down(ServerId(1), "s1", "gone".into())
        );
        health.reported(ServerId(0), [(TargetId(0), space(9))]);
        let closed = health.closed();
        assert_eq!(
            closed.to_string(),
            "target 0 has 9 bytes free and keeps 100, target 1: server s1 does not answer: gone, target 3: server s1 \
             does not answer: gone"
        );
        let mut reopened = closed;
        reopened.reopen_down([TargetId(0), TargetId(3)]);
        assert_eq!(reopened.0.keys().map(|target| target.0).collect::<Vec<_>>(), [0, 1]);
        assert!(health.reported(ServerId(1), []) && !health.reported(ServerId(1), []));
        assert_eq!(health.closed().0.len(), 1);
        assert_eq!(health.servers(), [ServerId(0), ServerId(1)]);
    }
}
