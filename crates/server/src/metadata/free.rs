//! State of the data servers: whether they answer, and how much space their targets have.
//!
//! A task for each server asks over a connection that it keeps, every few seconds, so that making a file asks nobody. A
//! server that dies is known to be down within about that time, one that is silent after two time-outs. The free space
//! may be as old, so a target can get fuller than its reserve; nobody knows how large a new file becomes, either.
//! A target whose server has never answered is not full, and not down either until the metadata service has run for a
//! while: servers of a cluster start together.

use super::Service;
use super::closed::{Closed, Down, Reason};
use super::keys::is_news;
use crate::peer::{Asker, ask};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weft_core::parts::RoomLeft;
use weft_core::{ByteLen, Nanos, Reserve, ServerId, TargetId};
use weft_env::{Env, Notify, Space};
use weft_wire::keys::Revoked;
use weft_wire::status::{ServerStatus, StatusReply, StatusRequest};
use weft_wire::{ClusterMap, ClusterSecret, Family, Link};

/// How long connecting to, sending to and receiving from a data server may take.
const TIMEOUT: Nanos = Nanos::from_s(2);
/// Failures in a row after which a server is down. The first may be a kept connection to a server that was started again.
const FAILURES_DOWN: u32 = 2;
/// How often a server that is down is asked again.
const DOWN_ASK_EVERY: Nanos = Nanos::from_ms(200);
/// Age of the metadata service before which no server is down.
const GRACE: Nanos = Nanos::from_s(5);

/// Last known state of servers and targets.
#[derive(Default)]
pub(super) struct Free {
    /// Of all targets that may be full.
    reserves: BTreeMap<TargetId, Reserve>,
    targets: BTreeMap<ServerId, Vec<TargetId>>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    spaces: BTreeMap<TargetId, Space>,
    down: BTreeMap<ServerId, Arc<Down>>,
    /// Targets that their servers do not use.
    refused: BTreeMap<TargetId, Arc<str>>,
}

impl Free {
    pub(super) fn new(reserves: BTreeMap<TargetId, Reserve>, cluster: &ClusterMap) -> Self {
        let mut targets: BTreeMap<ServerId, Vec<TargetId>> = BTreeMap::new();
        for entry in &cluster.targets {
            targets.entry(entry.server).or_default().push(entry.id);
        }
        Self { reserves, targets, known: Mutex::default() }
    }

    /// Data servers, those without targets left out.
    pub(super) fn servers(&self) -> impl Iterator<Item = ServerId> {
        self.targets.keys().copied()
    }

    /// The targets on which nothing new is to begin.
    pub(super) fn closed(&self) -> Closed {
        let known = self.known.lock();
        let full = known.spaces.iter().filter_map(|(target, space)| {
            let reserve = self.reserves.get(target)?;
            let full = Reason::Full { free: space.free, reserve: reserve.of(space.total) };
            reserve.is_reached(space.total, space.free).then_some((*target, full))
        });
        let mut closed = Closed(full.collect());
        closed.0.extend(known.refused.iter().map(|(id, why)| (*id, Reason::Refused(Arc::clone(why)))));
        for (server, down) in &known.down {
            let targets = self.targets.get(server).into_iter().flatten();
            closed.0.extend(targets.map(|target| (*target, Reason::Down(Arc::clone(down)))));
        }
        closed
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

    /// A target must not be used, until its server says otherwise.
    pub(super) fn refuse(&self, target: TargetId, why: &str) {
        self.known.lock().refused.insert(target, Arc::from(why));
    }

    /// A target is in use.
    pub(super) fn attached(&self, target: TargetId) {
        self.known.lock().refused.remove(&target);
    }

    /// A server says which of its targets it does not use, and why.
    fn refused(&self, server: ServerId, refused: impl IntoIterator<Item = (TargetId, Arc<str>)>) {
        let mut known = self.known.lock();
        let own = self.targets.get(&server).map_or(&[][..], Vec::as_slice);
        known.refused.retain(|target, _| !own.contains(target));
        known.refused.extend(refused);
    }

    /// A server has told of its targets; whether it was down.
    fn told(&self, server: ServerId, spaces: impl IntoIterator<Item = (TargetId, Space)>) -> bool {
        let mut known = self.known.lock();
        known.spaces.extend(spaces);
        known.down.remove(&server).is_some()
    }

    /// A server does not answer; whether that is new.
    fn down(&self, server: ServerId, name: &str, cause: String) -> bool {
        let down = Arc::new(Down { server: name.to_owned(), cause });
        self.known.lock().down.insert(server, down).is_none()
    }
}

impl<E: Env> Service<E> {
    /// Asks one data server every so often, until the service ends.
    pub(super) async fn watch_server(&self, server: ServerId, secret: ClusterSecret, every: Nanos) {
        let entry = self.cluster.server(server);
        let asker = Asker {
            env: self.env.clone(),
            server: self.cluster.metadata,
            cluster: self.cluster.name.clone(),
            cluster_id: self.cluster_id(),
            secret,
            timeout: TIMEOUT,
        };
        let began = self.env.now();
        let secret = asker.secret.clone();
        let (mut kept, mut number, mut failures, mut told) = (None, 0, 0u32, None);
        loop {
            let epoch = self.watch_work.epoch();
            if self.is_stopping() {
                return;
            }
            number += 1;
            let asked = async {
                let mut link: Link<E::Conn> = match kept.take() {
                    Some(link) => link,
                    None => {
                        told = None;
                        asker.connect(entry).await?
                    }
                };
                if is_news(told, &secret) {
                    let keys = secret.revoked();
                    let count = keys.len();
                    let revoke = StatusRequest::Revoke(Revoked { keys });
                    match ask(&mut link, Family::Status, number, &revoke).await? {
                        StatusReply::Revoked => told = Some(count),
                        other => return Err(format!("{other:?}")),
                    }
                    number += 1;
                }
                let reply = ask(&mut link, Family::Status, number, &StatusRequest::Status).await?;
                Ok::<_, String>((link, reply))
            };
            match asked.await {
                Ok((link, StatusReply::Status(status))) => {
                    (kept, failures) = (Some(link), 0);
                    self.heard(server, &status);
                }
                Ok((_, other)) => self.missed(server, &mut failures, format!("{other:?}"), began),
                Err(cause) => self.missed(server, &mut failures, cause, began),
            }
            let pause = match failures {
                0 => every,
                1 => continue,
                _ => every.min(DOWN_ASK_EVERY),
            };
            self.watch_work.wait(epoch, Some(pause)).await;
        }
    }

    fn heard(&self, server: ServerId, status: &ServerStatus) {
        let space = |target: &weft_wire::status::TargetStatus| {
            (target.target, Space { total: target.total, free: target.free, device: 0 })
        };
        let used = status.targets.iter().filter(|target| target.refused.is_none());
        self.core.free.refused(
            server,
            status.targets.iter().filter_map(|target| {
                let refused = target.refused.as_ref()?;
                Some((target.target, Arc::from(refused.state.as_str())))
            }),
        );
        if self.core.free.told(server, used.map(space)) {
            let name = &self.cluster.server(server).name;
            self.log(&format!("server {name} answers again: it gets new files"));
            self.server_returned.store(true, Ordering::SeqCst);
            self.reap_work.notify_all();
        }
    }

    fn missed(&self, server: ServerId, failures: &mut u32, cause: String, began: Nanos) {
        *failures = failures.saturating_add(1);
        if *failures < FAILURES_DOWN || self.env.now().saturating_sub(began) < GRACE {
            return;
        }
        let name = &self.cluster.server(server).name;
        let told = format!("server {name} does not answer: new files are placed on other servers: {cause}");
        if self.core.free.down(server, name, cause) {
            self.log(&told);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_wire::cluster::TargetEntry;

    fn space(free: u64) -> Space {
        Space { total: ByteLen(1000), free: ByteLen(free), device: 0 }
    }

    fn free() -> Free {
        let reserves = (0..3).map(|target| (TargetId(target), Reserve::Percent(10)));
        // Targets 0 and 2 are of server 0, 1 and 3 of server 1.
        let target = |id| TargetEntry { id: TargetId(id), server: ServerId(id % 2), class: "hdd".into() };
        let targets = (0..4).map(target).collect();
        let cluster = ClusterMap { name: "c".into(), servers: vec![], targets, metadata: ServerId(0) };
        Free::new(reserves.collect(), &cluster)
    }

    #[test]
    fn what_servers_told_last_decides() {
        let free = free();
        assert_eq!(free.closed(), Closed::default(), "nothing is known");
        free.told(
            ServerId(0),
            [(TargetId(0), space(99)), (TargetId(2), space(100)), (TargetId(9), space(0))],
        );
        let closed = free.closed();
        assert!(closed.has(TargetId(0)) && closed.0.len() == 1, "{closed:?}");
        assert_eq!(closed.to_string(), "target 0 has 99 bytes free and keeps 100");
        let mut left: RoomLeft = [(TargetId(0), ByteLen(50)), (TargetId(1), ByteLen(50))].into();
        free.limit(&mut left);
        assert_eq!(left, [(TargetId(0), ByteLen(0)), (TargetId(1), ByteLen(50))].into());
        free.told(ServerId(0), [(TargetId(0), space(130))]);
        assert_eq!(free.closed(), Closed::default());
        left.insert(TargetId(0), ByteLen(50));
        free.limit(&mut left);
        assert_eq!(left[&TargetId(0)], ByteLen(30));
    }

    #[test]
    fn a_server_that_is_down_closes_its_targets_until_it_answers() {
        let free = free();
        assert!(
            free.down(ServerId(1), "s1", "refused".into()) && !free.down(ServerId(1), "s1", "gone".into())
        );
        free.told(ServerId(0), [(TargetId(0), space(9))]);
        let closed = free.closed();
        assert_eq!(
            closed.to_string(),
            "target 0 has 9 bytes free and keeps 100, target 1: server s1 does not answer: gone, target 3: server s1 \
             does not answer: gone"
        );
        let mut reopened = closed;
        reopened.reopen_down([TargetId(0), TargetId(3)]);
        assert_eq!(reopened.0.keys().map(|target| target.0).collect::<Vec<_>>(), [0, 1]);
        assert!(free.told(ServerId(1), []) && !free.told(ServerId(1), []));
        assert_eq!(free.closed().0.len(), 1);
        assert_eq!(free.servers().collect::<Vec<_>>(), [ServerId(0), ServerId(1)]);
    }
}
