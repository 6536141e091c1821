//! Connections whose peers have not authenticated themselves yet, apart from those that have.
//!
//! Few greet at a time, each in a task of its own, and few of one address. The others wait without a task. A peer that is
//! slow to greet gives way when another one comes, and the latest comer is next: peers that connect and say nothing hold up
//! nobody who greets.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use weft_core::Nanos;
use weft_env::{Closer, Peer};

/// A greeting may take this long while others wait: many times what it takes between continents.
const GRACE: Nanos = Nanos::from_ms(500);

/// Where connections come from, as far as quotas tell one peer from another.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Source {
    /// A user of this node.
    User(u32),
    /// A host; of IPv6 its network, of whose addresses one host may have all.
    Host(IpAddr),
    /// A host of the simulated world.
    Named(String),
}

impl Source {
    pub fn of(peer: &Peer) -> Self {
        match peer {
            Peer::Local { uid, .. } => Self::User(*uid),
            Peer::Remote { address } => match address.parse::<SocketAddr>() {
                Ok(address) => Self::Host(network(address.ip())),
                Err(_) => {
                    Self::Named(address.rsplit_once(':').map_or(address.as_str(), |it| it.0).to_owned())
                }
            },
        }
    }
}

fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(ip) => IpAddr::V4(ip),
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & (!0 << 64))),
    }
}

/// Most connections before authentication.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quota {
    /// That greet at a time.
    pub greeting_max: usize,
    /// That greet at a time, from one source.
    pub greeting_per_source_max: usize,
    /// That wait for their turn.
    pub waiting_max: usize,
    /// That wait for their turn, from one source.
    pub waiting_per_source_max: usize,
    /// How long one may wait.
    pub patience: Nanos,
}

/// The connections of one server before authentication.
pub(crate) struct Pending<C> {
    quota: Quota,
    inner: Mutex<Inner<C>>,
}

struct Inner<C> {
    next: u64,
    /// By number, so the oldest is first.
    greeting: BTreeMap<u64, Greeting>,
    /// The latest comer is last.
    waiting: Vec<Waiting<C>>,
    /// Connections of each source that greet, and that wait.
    counts: BTreeMap<Source, (usize, usize)>,
}

struct Greeting {
    source: Source,
    since: Nanos,
    closer: Arc<dyn Closer>,
    is_closed: bool,
}

struct Waiting<C> {
    conn: C,
    source: Source,
    since: Nanos,
}

/// A connection that may greet; its place is to be given back.
pub(crate) struct Turn<C> {
    /// Number of its place.
    pub id: u64,
    pub conn: C,
}

impl<C: weft_env::Conn> Pending<C> {
    pub fn new(quota: Quota) -> Self {
        let inner =
            Inner { next: 0, greeting: BTreeMap::new(), waiting: Vec::new(), counts: BTreeMap::new() };
        Self { quota, inner: Mutex::new(inner) }
    }

    /// A peer has connected: the connection if it may greet at once. Otherwise it waits, or is dropped where too many do.
    pub fn arrive(&self, conn: C, now: Nanos) -> Option<Turn<C>> {
        let source = Source::of(conn.peer());
        let mut inner = self.inner.lock();
        if inner.has_place(&self.quota, &source) {
            return Some(inner.begin(conn, source, now));
        }
        let waiting = inner.counts.get(&source).map_or(0, |count| count.1);
        if inner.waiting.len() >= self.quota.waiting_max || waiting >= self.quota.waiting_per_source_max {
            // The one that has waited longest has the least to say.
            let mine = waiting >= self.quota.waiting_per_source_max;
            let oldest = inner.waiting.iter().position(|it| !mine || it.source == source);
            drop(oldest.map(|at| inner.take_waiting(at)));
        }
        if self.quota.waiting_max > 0 {
            inner.counts.entry(source.clone()).or_default().1 += 1;
            inner.waiting.push(Waiting { conn, source: source.clone(), since: now });
        }
        let is_crowded = inner.counts.get(&source).map_or(0, |count| count.0);
        let crowd = match is_crowded >= self.quota.greeting_per_source_max {
            true => Some(source),
            false => inner.largest(),
        };
        inner.hasten(crowd.as_ref(), now);
        None
    }

    /// The greeting of place `id` has ended, well or not: connections whose turn it is now.
    pub fn leave(&self, id: u64, now: Nanos) -> Vec<Turn<C>> {
        let mut inner = self.inner.lock();
        if let Some(greeting) = inner.greeting.remove(&id) {
            let count = inner.counts.get_mut(&greeting.source).expect("counted when it began");
            count.0 -= 1;
            if *count == (0, 0) {
                inner.counts.remove(&greeting.source);
            }
        }
        inner.forget_late(self.quota.patience, now);
        let mut turns = Vec::new();
        for at in (0..inner.waiting.len()).rev() {
            if inner.greeting.len() >= self.quota.greeting_max {
                break;
            }
            let source = inner.waiting[at].source.clone();
            if inner.has_place(&self.quota, &source) {
                let Waiting { conn, source, .. } = inner.take_waiting(at);
                turns.push(inner.begin(conn, source, now));
            }
        }
        turns
    }

    /// Once a second: connections that wait for too long are dropped, and greetings that take long give way to others.
    pub fn tick(&self, now: Nanos) {
        let mut inner = self.inner.lock();
        inner.forget_late(self.quota.patience, now);
        let sources: Vec<_> =
            inner.counts.iter().filter(|(_, count)| count.1 > 0).map(|(it, _)| it.clone()).collect();
        for source in sources {
            inner.hasten(Some(&source), now);
        }
    }

    /// Drops all that wait.
    pub fn close(&self) {
        let waiting = {
            let mut inner = self.inner.lock();
            inner.counts.values_mut().for_each(|count| count.1 = 0);
            inner.counts.retain(|_, count| *count != (0, 0));
            std::mem::take(&mut inner.waiting)
        };
        drop(waiting);
    }

    /// Connections that greet, and that wait.
    #[cfg(test)]
    fn counts(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        let sums = inner.counts.values().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
        assert_eq!(sums, (inner.greeting.len(), inner.waiting.len()));
        sums
    }
}

impl<C: weft_env::Conn> Inner<C> {
    fn has_place(&self, quota: &Quota, source: &Source) -> bool {
        let of_source = self.counts.get(source).map_or(0, |count| count.0);
        self.greeting.len() < quota.greeting_max && of_source < quota.greeting_per_source_max
    }

    fn begin(&mut self, conn: C, source: Source, now: Nanos) -> Turn<C> {
        let id = self.next;
        self.next += 1;
        self.counts.entry(source.clone()).or_default().0 += 1;
        let closer = Arc::from(conn.closer());
        self.greeting.insert(id, Greeting { source, since: now, closer, is_closed: false });
        Turn { id, conn }
    }

    fn take_waiting(&mut self, at: usize) -> Waiting<C> {
        let taken = self.waiting.remove(at);
        let count = self.counts.get_mut(&taken.source).expect("counted when it came");
        count.1 -= 1;
        if *count == (0, 0) {
            self.counts.remove(&taken.source);
        }
        taken
    }

    fn forget_late(&mut self, patience: Nanos, now: Nanos) {
        while self.waiting.first().is_some_and(|it| now.saturating_sub(it.since) > patience) {
            drop(self.take_waiting(0));
        }
    }

    /// The source with the most greetings.
    fn largest(&self) -> Option<Source> {
        self.counts.iter().max_by_key(|(_, count)| count.0).map(|(source, _)| source.clone())
    }

    /// Ends the greetings of `source` that have had time enough.
    fn hasten(&mut self, source: Option<&Source>, now: Nanos) {
        for greeting in self.greeting.values_mut() {
            let is_slow = now.saturating_sub(greeting.since) >= GRACE;
            if is_slow && !greeting.is_closed && Some(&greeting.source) == source {
                greeting.closer.close();
                greeting.is_closed = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, IoSlice, IoSliceMut};
    use std::sync::atomic::{AtomicBool, Ordering};
    use weft_core::{ByteLen, LocalOffset};
    use weft_env::Attachment;

    /// A connection that only has a peer and can be closed.
    struct Peered {
        peer: Peer,
        closed: Arc<AtomicBool>,
    }

    struct Close(Arc<AtomicBool>);

    impl Closer for Close {
        fn close(&self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    impl weft_env::Conn for Peered {
        type File = ();
        type Shared = ();
        async fn send(&mut self, _: &[IoSlice<'_>]) -> io::Result<()> {
            unreachable!()
        }
        async fn send_file(
            &mut self,
            _: &[IoSlice<'_>],
            _: &(),
            _: LocalOffset,
            _: ByteLen,
        ) -> io::Result<()> {
            unreachable!()
        }
        async fn send_attached(&mut self, _: &[u8], _: &[Attachment<(), ()>]) -> io::Result<()> {
            unreachable!()
        }
        async fn recv(&mut self, _: &mut [u8]) -> io::Result<usize> {
            unreachable!()
        }
        async fn recv_exact(&mut self, _: &mut [IoSliceMut<'_>]) -> io::Result<()> {
            unreachable!()
        }
        fn take_file(&mut self) -> Option<()> {
            unreachable!()
        }
        fn take_shared(&mut self, _: usize) -> io::Result<()> {
            unreachable!()
        }
        fn peer(&self) -> &Peer {
            &self.peer
        }
        fn set_timeout(&mut self, _: Option<Nanos>) -> io::Result<()> {
            unreachable!()
        }
        fn closer(&self) -> Box<dyn Closer> {
            Box::new(Close(Arc::clone(&self.closed)))
        }
    }

    fn from(address: &str) -> (Peered, Arc<AtomicBool>) {
        let closed = Arc::new(AtomicBool::new(false));
        let peer = Peer::Remote { address: address.to_owned() };
        (Peered { peer, closed: Arc::clone(&closed) }, closed)
    }

    fn pending() -> Pending<Peered> {
        Pending::new(Quota {
            greeting_max: 4,
            greeting_per_source_max: 2,
            waiting_max: 5,
            waiting_per_source_max: 3,
            patience: Nanos::from_s(10),
        })
    }

    #[test]
    fn sources_are_hosts_networks_and_users() {
        let of = |address: &str| Source::of(&Peer::Remote { address: address.to_owned() });
        assert_eq!(of("10.0.0.1:5"), of("10.0.0.1:6"));
        assert_ne!(of("10.0.0.1:5"), of("10.0.0.2:5"));
        assert_eq!(of("[2001:db8::1]:5"), of("[2001:db8::ffff:2]:7"));
        assert_ne!(of("[2001:db8::1]:5"), of("[2001:db8:0:1::1]:5"));
        assert_eq!(of("[::ffff:10.0.0.1]:5"), of("10.0.0.1:6"));
        assert_eq!(of("node3:5"), of("node3:6"));
        let user = |uid| Source::of(&Peer::Local { uid, gid: 1, groups: vec![], pid: 1 });
        assert_eq!(user(7), user(7));
        assert_ne!(user(7), user(8));
    }

    #[test]
    fn silent_peers_of_one_address_take_no_place_from_others() {
        let pending = pending();
        let mut silent = Vec::new();
        for port in 0..200 {
            let (conn, closed) = from(&format!("10.0.0.1:{port}"));
            silent.push((pending.arrive(conn, Nanos(port)).is_some(), closed));
        }
        assert_eq!(silent.iter().filter(|it| it.0).count(), 2, "greet");
        assert_eq!(pending.counts(), (2, 3), "the others wait, or were dropped");
        let turn = pending.arrive(from("10.0.0.2:1").0, Nanos(300)).expect("another address greets at once");
        assert_eq!(pending.counts(), (3, 3));
        assert!(pending.leave(turn.id, Nanos(301)).is_empty(), "its place is not for the crowd");
        assert!(silent.iter().all(|it| !it.1.load(Ordering::SeqCst)), "nobody was slow yet");
    }

    #[test]
    fn slow_greetings_give_way_and_the_latest_comer_is_next() {
        let pending = pending();
        let (first, first_closed) = from("10.0.0.1:1");
        let first = pending.arrive(first, Nanos(0)).expect("room");
        let second = pending.arrive(from("10.0.0.1:2").0, Nanos(0)).expect("room");
        assert!(pending.arrive(from("10.0.0.1:3").0, Nanos(1)).is_none());
        assert!(!first_closed.load(Ordering::SeqCst), "it had no time yet");
        assert!(pending.arrive(from("10.0.0.1:4").0, GRACE).is_none());
        assert!(first_closed.load(Ordering::SeqCst));
        let turns = pending.leave(first.id, GRACE);
        let [turn] = turns.as_slice() else { panic!("one place, one turn") };
        assert_eq!(turn.conn.peer, Peer::Remote { address: "10.0.0.1:4".into() });
        let turns = pending.leave(second.id, GRACE);
        assert_eq!(turns.len(), 1, "the one before it");
        assert_eq!(pending.counts(), (2, 0));
    }

    #[test]
    fn many_addresses_share_the_places_and_none_waits_for_ever() {
        let pending = pending();
        let mut turns = Vec::new();
        for host in 0..10 {
            turns.extend(pending.arrive(from(&format!("10.0.0.{host}:1")).0, Nanos(host)));
        }
        assert_eq!(pending.counts(), (4, 5), "the first of those that wait was dropped for the last");
        pending.tick(Nanos::from_s(11));
        assert_eq!(pending.counts(), (4, 0));
        for turn in turns {
            assert!(pending.leave(turn.id, Nanos::from_s(12)).is_empty());
        }
        assert_eq!(pending.counts(), (0, 0));
        assert!(pending.inner.lock().counts.is_empty());
    }

    #[test]
    fn what_waits_is_dropped_at_the_end() {
        let pending = pending();
        let turns: Vec<_> =
            (0..3).filter_map(|port| pending.arrive(from(&format!("a:{port}")).0, Nanos(0))).collect();
        assert_eq!(pending.counts(), (2, 1));
        pending.close();
        assert_eq!(pending.counts(), (2, 0));
        for turn in turns {
            assert!(pending.leave(turn.id, Nanos(1)).is_empty());
        }
    }
}
