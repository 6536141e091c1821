//! Quota of connections whose peers have not authenticated, apart from those that have.
//!
//! A few connections greet at a time, each in a task of its own, and few of them from one address. The others wait
//! without a task. A peer that is slow to greet is closed when another one waits, and the latest arrival is next. So
//! peers that connect and stay silent do not block peers that greet.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use weft_core::Nanos;
use weft_env::{Closer, Peer};

/// Time that a greeting always has, while others wait. Many times what it takes between continents.
const GREETING_TIME_MIN: Nanos = Nanos::from_ms(500);

/// Origin of a connection, as far as quotas distinguish peers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Source {
    /// A user of this host.
    User(u32),
    /// A host; for IPv6 its network, because one host may have all its addresses.
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

/// Limits of connections before authentication.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quota {
    /// Maximum number that greet at a time.
    pub greeting_max: usize,
    /// Maximum number that greet at a time, from one source.
    pub greeting_per_source_max: usize,
    /// Maximum number that wait.
    pub waiting_max: usize,
    /// Maximum number that wait, from one source.
    pub waiting_per_source_max: usize,
    /// Longest time to wait.
    pub waiting_time_max: Nanos,
}

/// Connections of one server before authentication.
pub(crate) struct Pending<C> {
    quota: Quota,
    inner: Mutex<Inner<C>>,
}

struct Inner<C> {
    next: u64,
    /// By number, so the oldest is first.
    greeting: BTreeMap<u64, Greeting>,
    /// In the order of arrival.
    waiting: Vec<WaitingConnection<C>>,
    /// Greeting and waiting connections of each source.
    counts: BTreeMap<Source, (usize, usize)>,
}

struct Greeting {
    source: Source,
    since: Nanos,
    closer: Arc<dyn Closer>,
    is_closed: bool,
}

struct WaitingConnection<C> {
    conn: C,
    source: Source,
    since: Nanos,
}

/// A connection that may greet, until its slot is released.
pub(crate) struct GreetingSlot<C> {
    /// Number of its slot.
    pub id: u64,
    pub conn: C,
}

impl<C: weft_env::Conn> Pending<C> {
    pub fn new(quota: Quota) -> Self {
        let inner =
            Inner { next: 0, greeting: BTreeMap::new(), waiting: Vec::new(), counts: BTreeMap::new() };
        Self { quota, inner: Mutex::new(inner) }
    }

    /// Adds a new connection. Returns it if it may greet at once; otherwise it waits, or the oldest waiting one is
    /// dropped.
    pub fn arrive(&self, conn: C, now: Nanos) -> Option<GreetingSlot<C>> {
        let source = Source::of(conn.peer());
        let mut inner = self.inner.lock();
        if inner.has_free_slot(&self.quota, &source) {
            return Some(inner.begin(conn, source, now));
        }
        let waiting = inner.counts.get(&source).map_or(0, |count| count.1);
        if inner.waiting.len() >= self.quota.waiting_max || waiting >= self.quota.waiting_per_source_max {
            // The one that has waited longest is the least likely to be answered.
            let mine = waiting >= self.quota.waiting_per_source_max;
            let oldest = inner.waiting.iter().position(|it| !mine || it.source == source);
            drop(oldest.map(|at| inner.take_waiting(at)));
        }
        if self.quota.waiting_max > 0 {
            inner.counts.entry(source.clone()).or_default().1 += 1;
            inner.waiting.push(WaitingConnection { conn, source: source.clone(), since: now });
        }
        let greeting_of_source = inner.counts.get(&source).map_or(0, |count| count.0);
        let source_to_close = match greeting_of_source >= self.quota.greeting_per_source_max {
            true => Some(source),
            false => inner.largest(),
        };
        inner.close_slow(source_to_close.as_ref(), now);
        None
    }

    /// Releases the slot of a greeting that has ended. Returns the connections that may greet now.
    pub fn leave(&self, id: u64, now: Nanos) -> Vec<GreetingSlot<C>> {
        let mut inner = self.inner.lock();
        if let Some(greeting) = inner.greeting.remove(&id) {
            let count = inner.counts.get_mut(&greeting.source).expect("counted when it began");
            count.0 -= 1;
            if *count == (0, 0) {
                inner.counts.remove(&greeting.source);
            }
        }
        inner.drop_overdue(self.quota.waiting_time_max, now);
        let mut ready = Vec::new();
        for at in (0..inner.waiting.len()).rev() {
            if inner.greeting.len() >= self.quota.greeting_max {
                break;
            }
            let source = inner.waiting[at].source.clone();
            if inner.has_free_slot(&self.quota, &source) {
                let WaitingConnection { conn, source, .. } = inner.take_waiting(at);
                ready.push(inner.begin(conn, source, now));
            }
        }
        ready
    }

    /// Called once a second: drops connections that have waited too long, and closes slow greetings if others wait.
    pub fn tick(&self, now: Nanos) {
        let mut inner = self.inner.lock();
        inner.drop_overdue(self.quota.waiting_time_max, now);
        let sources: Vec<_> =
            inner.counts.iter().filter(|(_, count)| count.1 > 0).map(|(it, _)| it.clone()).collect();
        for source in sources {
            inner.close_slow(Some(&source), now);
        }
    }

    /// Drops all waiting connections.
    pub fn close(&self) {
        let waiting = {
            let mut inner = self.inner.lock();
            inner.counts.values_mut().for_each(|count| count.1 = 0);
            inner.counts.retain(|_, count| *count != (0, 0));
            std::mem::take(&mut inner.waiting)
        };
        drop(waiting);
    }

    /// Number of greeting and of waiting connections.
    #[cfg(test)]
    fn counts(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        let sums = inner.counts.values().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
        assert_eq!(sums, (inner.greeting.len(), inner.waiting.len()));
        sums
    }
}

impl<C: weft_env::Conn> Inner<C> {
    fn has_free_slot(&self, quota: &Quota, source: &Source) -> bool {
        let of_source = self.counts.get(source).map_or(0, |count| count.0);
        self.greeting.len() < quota.greeting_max && of_source < quota.greeting_per_source_max
    }

    fn begin(&mut self, conn: C, source: Source, now: Nanos) -> GreetingSlot<C> {
        let id = self.next;
        self.next += 1;
        self.counts.entry(source.clone()).or_default().0 += 1;
        let closer = Arc::from(conn.closer());
        self.greeting.insert(id, Greeting { source, since: now, closer, is_closed: false });
        GreetingSlot { id, conn }
    }

    fn take_waiting(&mut self, at: usize) -> WaitingConnection<C> {
        let taken = self.waiting.remove(at);
        let count = self.counts.get_mut(&taken.source).expect("counted when it came");
        count.1 -= 1;
        if *count == (0, 0) {
            self.counts.remove(&taken.source);
        }
        taken
    }

    fn drop_overdue(&mut self, waiting_time_max: Nanos, now: Nanos) {
        while self.waiting.first().is_some_and(|it| now.saturating_sub(it.since) > waiting_time_max) {
            drop(self.take_waiting(0));
        }
    }

    /// Source with the most greetings.
    fn largest(&self) -> Option<Source> {
        self.counts.iter().max_by_key(|(_, count)| count.0).map(|(source, _)| source.clone())
    }

    /// Closes the greetings of `source` that have had enough time.
    fn close_slow(&mut self, source: Option<&Source>, now: Nanos) {
        for greeting in self.greeting.values_mut() {
            let is_slow = now.saturating_sub(greeting.since) >= GREETING_TIME_MIN;
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
            waiting_time_max: Nanos::from_s(10),
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
    fn silent_peers_of_one_address_do_not_block_others() {
        let pending = pending();
        let mut silent = Vec::new();
        for port in 0..200 {
            let (conn, closed) = from(&format!("10.0.0.1:{port}"));
            silent.push((pending.arrive(conn, Nanos(port)).is_some(), closed));
        }
        assert_eq!(silent.iter().filter(|it| it.0).count(), 2, "they greet");
        assert_eq!(pending.counts(), (2, 3), "the others wait, or were dropped");
        let slot = pending.arrive(from("10.0.0.2:1").0, Nanos(300)).expect("another address greets at once");
        assert_eq!(pending.counts(), (3, 3));
        assert!(pending.leave(slot.id, Nanos(301)).is_empty(), "its slot is not for the other address");
        assert!(silent.iter().all(|it| !it.1.load(Ordering::SeqCst)), "none has been slow yet");
    }

    #[test]
    fn slow_greetings_are_closed_and_the_latest_arrival_is_next() {
        let pending = pending();
        let (first, first_closed) = from("10.0.0.1:1");
        let first = pending.arrive(first, Nanos(0)).expect("a free slot");
        let second = pending.arrive(from("10.0.0.1:2").0, Nanos(0)).expect("a free slot");
        assert!(pending.arrive(from("10.0.0.1:3").0, Nanos(1)).is_none());
        assert!(!first_closed.load(Ordering::SeqCst), "it is within its time");
        assert!(pending.arrive(from("10.0.0.1:4").0, GREETING_TIME_MIN).is_none());
        assert!(first_closed.load(Ordering::SeqCst));
        let ready = pending.leave(first.id, GREETING_TIME_MIN);
        let [slot] = ready.as_slice() else { panic!("one slot, one connection") };
        assert_eq!(slot.conn.peer, Peer::Remote { address: "10.0.0.1:4".into() });
        let ready = pending.leave(second.id, GREETING_TIME_MIN);
        assert_eq!(ready.len(), 1, "the earlier one");
        assert_eq!(pending.counts(), (2, 0));
    }

    #[test]
    fn many_addresses_share_the_slots_and_none_waits_forever() {
        let pending = pending();
        let mut ready = Vec::new();
        for host in 0..10 {
            ready.extend(pending.arrive(from(&format!("10.0.0.{host}:1")).0, Nanos(host)));
        }
        assert_eq!(pending.counts(), (4, 5), "the oldest waiting one was dropped for the latest");
        pending.tick(Nanos::from_s(11));
        assert_eq!(pending.counts(), (4, 0));
        for slot in ready {
            assert!(pending.leave(slot.id, Nanos::from_s(12)).is_empty());
        }
        assert_eq!(pending.counts(), (0, 0));
        assert!(pending.inner.lock().counts.is_empty());
    }

    #[test]
    fn waiting_connections_are_dropped_at_the_end() {
        let pending = pending();
        let ready: Vec<_> =
            (0..3).filter_map(|port| pending.arrive(from(&format!("a:{port}")).0, Nanos(0))).collect();
        assert_eq!(pending.counts(), (2, 1));
        pending.close();
        assert_eq!(pending.counts(), (2, 0));
        for slot in ready {
            assert!(pending.leave(slot.id, Nanos(1)).is_empty());
        }
    }
}
