//! Rates from two replies of each server, without clock and network.

use std::collections::BTreeMap;
use weft_core::{ByteLen, DeviceLoad, FileId, Nanos, TargetId};
use weft_server::latency::BOUNDS;
use weft_wire::activity::{Activity, LatencyCounts, Work};
use weft_wire::hello::Process;
use weft_wire::status::TargetStatus;

/// Work per second.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Flow {
    /// Bytes read by messages.
    pub read_bytes: f64,
    /// Bytes written by messages.
    pub written_bytes: f64,
    /// Reads.
    pub reads: f64,
    /// Writes.
    pub writes: f64,
    /// Other requests about datafiles.
    pub others: f64,
    /// Metadata requests.
    pub metadata: f64,
    /// Sum of the latencies of these requests, in nanoseconds.
    pub time_ns: f64,
}

impl Flow {
    fn of(work: &Work, seconds: f64) -> Self {
        let rate = |count: u64| count as f64 / seconds;
        Self {
            read_bytes: rate(work.bytes_read.0),
            written_bytes: rate(work.bytes_written.0),
            reads: rate(work.reads),
            writes: rate(work.writes),
            others: rate(work.others),
            metadata: rate(work.metadata),
            time_ns: rate(work.time.0),
        }
    }

    fn combined(self, other: Self, with: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            read_bytes: with(self.read_bytes, other.read_bytes),
            written_bytes: with(self.written_bytes, other.written_bytes),
            reads: with(self.reads, other.reads),
            writes: with(self.writes, other.writes),
            others: with(self.others, other.others),
            metadata: with(self.metadata, other.metadata),
            time_ns: with(self.time_ns, other.time_ns),
        }
    }

    /// Bytes in both directions.
    pub fn bytes(&self) -> f64 {
        self.read_bytes + self.written_bytes
    }

    /// Requests of all kinds.
    pub fn requests(&self) -> f64 {
        self.reads + self.writes + self.others + self.metadata
    }

    /// Average latency; `None` without requests.
    pub fn latency(&self) -> Option<Nanos> {
        (self.requests() > 0.0).then(|| Nanos((self.time_ns / self.requests()) as u64))
    }
}

/// One row of clients, users or files: its rate, its work since the row began, and its leases.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Measured {
    /// Rate.
    pub flow: Flow,
    /// Work since the row began on each server.
    pub total: Work,
    /// Leased descriptors, whose requests the servers do not see.
    pub leases: u32,
}

impl Measured {
    /// Adds another row.
    pub fn add(&mut self, other: &Self) {
        self.flow = self.flow.combined(other.flow, |a, b| a + b);
        self.total.add(&other.total);
        self.leases += other.leases;
    }
}

/// A client process.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Client {
    /// The process.
    pub process: Process,
    /// Network address; empty for a process on a server's host.
    pub address: String,
    /// Open connections.
    pub connections: u32,
    /// Its requests.
    pub measured: Measured,
}

/// Percentiles of latencies.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Latency {
    /// Median.
    pub p50: Option<Nanos>,
    /// 99th percentile.
    pub p99: Option<Nanos>,
}

/// A target.
#[derive(Clone, PartialEq, Debug)]
pub struct Target {
    /// Its server.
    pub server: String,
    /// Its state.
    pub status: TargetStatus,
    /// Reads and writes by messages.
    pub flow: Flow,
    /// Latencies of reads.
    pub read: Latency,
    /// Latencies of writes.
    pub write: Latency,
    /// Bytes per second that the disk reads and writes, for all its users; `None` without a local block device.
    pub disk: Option<(f64, f64)>,
}

/// A server.
#[derive(Clone, PartialEq, Debug)]
pub struct Server {
    /// Name in the cluster file.
    pub name: String,
    /// Its state, or why there is none.
    pub state: Result<ServerState, String>,
}

/// State of a server that answers.
#[derive(Clone, PartialEq, Debug)]
pub struct ServerState {
    /// Time since the start.
    pub uptime: Nanos,
    /// Open connections.
    pub connections: u32,
    /// Resident memory.
    pub memory: ByteLen,
    /// Requests; `None` until there are two replies since its start.
    pub flow: Option<Flow>,
}

/// Activity of the cluster in one interval.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Rates {
    /// Longest time between the two replies of a server.
    pub interval: Nanos,
    /// Whether all users are visible.
    pub is_complete: bool,
    /// Servers, in the order of the cluster file.
    pub servers: Vec<Server>,
    /// All requests.
    pub total: Flow,
    /// Latencies of reads, writes, other requests about datafiles, and metadata requests.
    pub latencies: [Latency; 4],
    /// Clients, by number and user.
    pub clients: BTreeMap<(u64, u32), Client>,
    /// Users.
    pub users: BTreeMap<u32, Measured>,
    /// Files, by inode and user.
    pub files: BTreeMap<(FileId, u32), Measured>,
    /// Requests that no client in the table has: those of clients without a row, of other users, and of servers.
    pub other_clients: Flow,
    /// Reads and writes that no file in the table has.
    pub other_files: Flow,
    /// Targets.
    pub targets: BTreeMap<TargetId, Target>,
}

/// Replies of one server.
pub struct Replies<'a> {
    /// Name in the cluster file.
    pub name: &'a str,
    /// Earlier reply.
    pub before: Option<&'a Activity>,
    /// Latest reply, or why there is none.
    pub after: Result<&'a Activity, &'a str>,
}

/// Interval between two replies of one start of a server.
struct Interval<'a> {
    before: &'a Activity,
    seconds: f64,
}

impl<'a> Interval<'a> {
    fn between(before: Option<&'a Activity>, after: &Activity) -> Option<Self> {
        let before = before.filter(|before| before.incarnation == after.incarnation)?;
        let ns = after.now.saturating_sub(before.now).0;
        (ns > 0).then_some(Self { before, seconds: ns as f64 / 1e9 })
    }

    /// Rate of a row. A row that began after the earlier reply started at zero then.
    fn flow(&self, now: (&Work, Nanos), earlier: Option<(&Work, Nanos)>) -> Flow {
        let (mut work, since) = (*now.0, now.1);
        match earlier {
            Some((earlier, began)) if began == since => work.subtract(earlier),
            _ if since >= self.before.now => {}
            _ => return Flow::default(),
        }
        Flow::of(&work, self.seconds)
    }

    /// Growth of the classes of latencies.
    fn counts(&self, now: &LatencyCounts, earlier: Option<&LatencyCounts>) -> Vec<u64> {
        let earlier = |class: usize| earlier.and_then(|e| e.counts.get(class)).copied().unwrap_or(0);
        now.counts.iter().enumerate().map(|(class, count)| count.saturating_sub(earlier(class))).collect()
    }
}

fn add_counts(sum: &mut Vec<u64>, counts: &[u64]) {
    sum.resize(sum.len().max(counts.len()), 0);
    sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
}

/// Estimates a quantile, evenly within its class. Latencies above the last bound count as that bound.
fn quantile(counts: &[u64], q: f64) -> Option<Nanos> {
    let all: u64 = counts.iter().sum();
    let rank = (q * all as f64).ceil().max(1.0) as u64;
    let mut before = 0;
    for (class, count) in counts.iter().enumerate() {
        if *count > 0 && before + count >= rank {
            let low = class.checked_sub(1).map_or(0, |below| BOUNDS[below.min(BOUNDS.len() - 1)].0);
            let high = BOUNDS.get(class).map_or(low, |bound| bound.0);
            let part = (rank - before) as f64 / *count as f64;
            return Some(Nanos(low + ((high - low) as f64 * part) as u64));
        }
        before += count;
    }
    None
}

fn latency(counts: &[u64]) -> Latency {
    Latency { p50: quantile(counts, 0.5), p99: quantile(counts, 0.99) }
}

impl Rates {
    /// Computes the rates between the replies of all servers.
    pub fn of<'a>(replies: impl IntoIterator<Item = Replies<'a>>) -> Self {
        let mut rates = Self { is_complete: true, ..Self::default() };
        let mut counts: [Vec<u64>; 4] = Default::default();
        for Replies { name, before, after } in replies {
            let after = match after {
                Ok(after) => after,
                Err(why) => {
                    rates.servers.push(Server { name: name.to_owned(), state: Err(why.to_owned()) });
                    continue;
                }
            };
            rates.is_complete &= after.is_complete;
            let interval = Interval::between(before, after);
            let flow = interval.as_ref().map(|interval| rates.add(name, interval, after, &mut counts));
            if interval.is_none() {
                rates.add_targets_without_rates(name, after);
            }
            let status = &after.status;
            let state = ServerState {
                uptime: status.uptime,
                connections: status.connections,
                memory: status.memory,
                flow,
            };
            rates.servers.push(Server { name: name.to_owned(), state: Ok(state) });
        }
        rates.latencies = std::array::from_fn(|index| latency(&counts[index]));
        let rest = |total: Flow, flows: &mut dyn Iterator<Item = Flow>| {
            flows.fold(total, |rest, flow| rest.combined(flow, |a, b| (a - b).max(0.0)))
        };
        rates.other_clients = rest(rates.total, &mut rates.clients.values().map(|row| row.measured.flow));
        let io = |flow: Flow| Flow { others: 0.0, metadata: 0.0, time_ns: 0.0, ..flow };
        rates.other_files = rest(io(rates.total), &mut rates.files.values().map(|row| io(row.flow)));
        rates
    }

    fn add(
        &mut self,
        name: &str,
        interval: &Interval<'_>,
        after: &Activity,
        counts: &mut [Vec<u64>; 4],
    ) -> Flow {
        let (before, seconds) = (interval.before, interval.seconds);
        self.interval = self.interval.max(after.now.saturating_sub(before.now));
        let mut work = Work::default();
        for (index, (now, sum)) in after.operations.iter().zip(counts).enumerate() {
            let earlier = before.operations.get(index);
            let grown = interval.counts(now, earlier);
            let requests = grown.iter().sum();
            match index {
                0 => work.reads = requests,
                1 => work.writes = requests,
                2 => work.others = requests,
                _ => work.metadata = requests,
            }
            work.time.0 += now.sum.saturating_sub(earlier.map_or(Nanos(0), |e| e.sum)).0;
            add_counts(sum, &grown);
        }
        for (status, latencies) in targets_of(after) {
            let earlier = targets_of(before).find(|(earlier, _)| earlier.target == status.target);
            let target = target_rates(name, interval, (status, latencies), earlier);
            let bytes = |per_s: f64| ByteLen((per_s * seconds).round() as u64);
            work.bytes_read.0 += bytes(target.flow.read_bytes).0;
            work.bytes_written.0 += bytes(target.flow.written_bytes).0;
            self.targets.insert(status.target, target);
        }
        let earlier: BTreeMap<_, _> = before.clients.iter().map(|row| ((row.client, row.uid), row)).collect();
        for row in &after.clients {
            let key = (row.client, row.uid);
            let flow =
                interval.flow((&row.work, row.since), earlier.get(&key).map(|row| (&row.work, row.since)));
            let client = self.clients.entry(key).or_default();
            client.process = row.process.clone();
            client.address.clone_from(&row.address);
            client.connections += row.connections;
            client.measured.add(&Measured { flow, total: row.work, leases: row.leases });
        }
        let earlier: BTreeMap<_, _> = before.users.iter().map(|row| (row.uid, row)).collect();
        for row in &after.users {
            let flow = interval
                .flow((&row.work, row.since), earlier.get(&row.uid).map(|row| (&row.work, row.since)));
            let measured = Measured { flow, total: row.work, leases: row.leases };
            self.users.entry(row.uid).or_default().add(&measured);
        }
        let earlier: BTreeMap<_, _> = before.files.iter().map(|row| ((row.file, row.uid), row)).collect();
        for row in &after.files {
            let key = (row.file, row.uid);
            let flow =
                interval.flow((&row.work, row.since), earlier.get(&key).map(|row| (&row.work, row.since)));
            let measured = Measured { flow, total: row.work, leases: row.leases };
            self.files.entry(key).or_default().add(&measured);
        }
        let flow = Flow::of(&work, seconds);
        self.total = self.total.combined(flow, |a, b| a + b);
        flow
    }

    fn add_targets_without_rates(&mut self, name: &str, after: &Activity) {
        for status in &after.status.targets {
            let target = Target {
                server: name.to_owned(),
                status: status.clone(),
                flow: Flow::default(),
                read: Latency::default(),
                write: Latency::default(),
                disk: None,
            };
            self.targets.insert(status.target, target);
        }
    }

    /// Leased descriptors of all targets.
    pub fn leases(&self) -> u32 {
        self.targets.values().map(|target| target.status.leases).sum()
    }

    /// Whether a server did not answer.
    pub fn is_missing_a_server(&self) -> bool {
        self.servers.iter().any(|server| server.state.is_err())
    }

    /// Size and free space of all targets, each file system counted once.
    pub fn space(&self) -> (ByteLen, ByteLen) {
        let mut seen = std::collections::BTreeSet::new();
        let (mut total, mut free) = (ByteLen(0), ByteLen(0));
        for TargetStatus { file_system, total: size, free: left, .. } in
            self.targets.values().map(|t| &t.status)
        {
            if *file_system == 0 || seen.insert(*file_system) {
                total.0 += size.0;
                free.0 += left.0;
            }
        }
        (total, free)
    }

    /// Capacity of the SSDs beside disks, and the bytes that lie only there; `None` without such SSDs.
    pub fn ssds(&self) -> Option<(ByteLen, ByteLen)> {
        let ssds = self.targets.values().filter_map(|target| target.status.ssd.as_ref());
        ssds.fold(None, |sum, ssd| {
            let (capacity, dirty) = sum.unwrap_or((ByteLen(0), ByteLen(0)));
            Some((ByteLen(capacity.0 + ssd.capacity.0), ByteLen(dirty.0 + ssd.dirty.0)))
        })
    }
}

type OfTarget<'a> = (&'a TargetStatus, Option<(&'a LatencyCounts, &'a LatencyCounts)>);

fn targets_of(activity: &Activity) -> impl Iterator<Item = OfTarget<'_>> {
    activity.status.targets.iter().map(|status| {
        let found = activity.targets.iter().find(|found| found.target == status.target);
        (status, found.map(|found| (&found.read, &found.write)))
    })
}

fn target_rates(
    name: &str,
    interval: &Interval<'_>,
    now: OfTarget<'_>,
    earlier: Option<OfTarget<'_>>,
) -> Target {
    let (status, latencies) = now;
    let rate = |value: fn(&TargetStatus) -> u64| {
        let before = earlier.map_or(0, |(earlier, _)| value(earlier));
        value(status).saturating_sub(before) as f64 / interval.seconds
    };
    let before = earlier.and_then(|(_, latencies)| latencies);
    let (read_counts, read_time) = growth(latencies.map(|both| both.0), before.map(|both| both.0));
    let (write_counts, write_time) = growth(latencies.map(|both| both.1), before.map(|both| both.1));
    let per_s = |count: u64| count as f64 / interval.seconds;
    let disk = |load: DeviceLoad| {
        let before = earlier.and_then(|(earlier, _)| earlier.disk)?;
        let grown = |now: u64, before: u64| now.saturating_sub(before) as f64 / interval.seconds;
        Some((grown(load.bytes_read, before.bytes_read), grown(load.bytes_written, before.bytes_written)))
    };
    Target {
        server: name.to_owned(),
        flow: Flow {
            read_bytes: rate(|status| status.bytes_read),
            written_bytes: rate(|status| status.bytes_written),
            reads: per_s(read_counts.iter().sum()),
            writes: per_s(write_counts.iter().sum()),
            time_ns: per_s(read_time.0 + write_time.0),
            ..Flow::default()
        },
        read: latency(&read_counts),
        write: latency(&write_counts),
        disk: status.disk.and_then(disk),
        status: status.clone(),
    }
}

/// Requests by class of latency since an earlier reply, and the sum of their times.
fn growth(now: Option<&LatencyCounts>, earlier: Option<&LatencyCounts>) -> (Vec<u64>, Nanos) {
    let of = |latencies: Option<&LatencyCounts>| {
        latencies.map(|latencies| (latencies.counts.clone(), latencies.sum)).unwrap_or_default()
    };
    let ((mut counts, sum), (before, sum_before)) = (of(now), of(earlier));
    counts.iter_mut().zip(before).for_each(|(count, before)| *count = count.saturating_sub(before));
    (counts, sum.saturating_sub(sum_before))
}

#[cfg(test)]
mod tests;
