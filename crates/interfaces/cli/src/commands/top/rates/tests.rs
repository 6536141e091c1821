use super::*;
use weft_core::{ClusterId, ServerId};
use weft_wire::activity::{ClientActivity, FileActivity, TargetLatency, UserActivity};
use weft_wire::status::{KeyStatus, ServerStatus, UserStatus};

const MIB: u64 = 1 << 20;

fn target_status(bytes_read: u64, bytes_written: u64) -> TargetStatus {
    TargetStatus {
        target: TargetId(3),
        class: "hdd".into(),
        path: "/d".into(),
        module: "buffered".into(),
        total: ByteLen(100 * MIB),
        free: ByteLen(40 * MIB),
        bytes_read,
        bytes_written,
        requests: 0,
        fragments: 0,
        queue: 0,
        leases: 2,
        damaged: 0,
        unverified: 0,
        bytes_compressed: 0,
        bytes_stored: 0,
        ssd: None,
        file_system: 9,
        refused: None,
        disk: Some(DeviceLoad { bytes_read: 2 * bytes_read, bytes_written, ..DeviceLoad::default() }),
    }
}

fn work(reads: u64, writes: u64) -> Work {
    Work {
        reads,
        writes,
        bytes_read: ByteLen(reads * MIB),
        bytes_written: ByteLen(writes * MIB),
        time: Nanos((reads + writes) * 1000),
        ..Work::default()
    }
}

/// A reply after `seconds` in which the server has done `all`, and each client (number, start in s, work) its part.
fn reply(seconds: u64, all: Work, clients: &[(u64, u64, Work)]) -> Activity {
    let counts = |count: u64| LatencyCounts { counts: vec![0, count], sum: Nanos(count * 1000) };
    let status = ServerStatus {
        server: ServerId(0),
        name: "s0".into(),
        version: String::new(),
        pid: 1,
        uptime: Nanos::from_s(seconds),
        connections: 1,
        memory: ByteLen(0),
        targets: vec![target_status(all.bytes_read.0, all.bytes_written.0)],
        metadata: None,
        cluster_id: ClusterId(1),
        users: vec![],
        bounds: UserStatus::default(),
        keys: KeyStatus::default(),
        audit: None,
    };
    let client = |(client, since, work): &(u64, u64, Work)| ClientActivity {
        client: *client,
        uid: *client as u32 % 2,
        since: Nanos::from_s(*since),
        process: Process::default(),
        address: String::new(),
        connections: 1,
        leases: 1,
        work: *work,
    };
    let clients: Vec<_> = clients.iter().map(client).collect();
    let file = |row: &ClientActivity| FileActivity {
        file: FileId(70 + row.client / 2),
        uid: row.uid,
        since: row.since,
        leases: 0,
        work: row.work,
    };
    let users: std::collections::BTreeSet<u32> = clients.iter().map(|row| row.uid).collect();
    let user = |uid: u32| {
        let mut sum = Work::default();
        clients.iter().filter(|row| row.uid == uid).for_each(|row| sum.add(&row.work));
        UserActivity { uid, since: Nanos(0), leases: 0, work: sum }
    };
    Activity {
        now: Nanos::from_s(seconds),
        incarnation: 5,
        is_complete: true,
        operations: vec![counts(all.reads), counts(all.writes), counts(0), counts(0)],
        targets: vec![TargetLatency {
            target: TargetId(3),
            read: counts(all.reads),
            write: counts(all.writes),
        }],
        files: clients.iter().map(file).collect(),
        users: users.into_iter().map(user).collect(),
        clients,
        status,
    }
}

fn rates(before: Option<&Activity>, after: &Activity) -> Rates {
    Rates::of([Replies { name: "s0", before, after: Ok(after) }])
}

#[test]
fn rows_have_the_rate_since_the_earlier_reply_or_their_start() {
    // Client 1 was there, client 2 began between the replies, client 3 made room and returned.
    let before = reply(10, work(20, 10), &[(1, 2, work(4, 2)), (3, 2, work(9, 9))]);
    let after = reply(12, work(34, 22), &[(1, 2, work(10, 2)), (2, 11, work(0, 8)), (3, 11, work(2, 0))]);
    let rates = rates(Some(&before), &after);
    let flow = |client: u64| rates.clients[&(client, client as u32 % 2)].measured.flow;
    assert_eq!((flow(1).reads, flow(1).writes, flow(1).read_bytes), (3.0, 0.0, 3.0 * MIB as f64));
    assert_eq!((flow(2).writes, flow(2).written_bytes), (4.0, 4.0 * MIB as f64));
    assert_eq!(flow(3).reads, 1.0, "from its new start");
    assert_eq!(flow(1).latency(), Some(Nanos(1000)));
    assert_eq!((rates.total.reads, rates.total.writes), (7.0, 6.0));
    // Of 14 reads and 12 writes, rows have 8 and 8.
    assert_eq!((rates.other_clients.reads, rates.other_clients.writes), (3.0, 2.0));
    assert_eq!((rates.other_files.reads, rates.other_files.written_bytes), (3.0, 2.0 * MIB as f64));
    assert_eq!(rates.clients[&(1, 1)].measured.total, work(10, 2));
    let target = &rates.targets[&TargetId(3)];
    assert_eq!((target.flow.read_bytes, target.flow.writes), (7.0 * MIB as f64, 6.0));
    assert_eq!(target.disk, Some((14.0 * MIB as f64, 6.0 * MIB as f64)));
    assert_eq!((rates.space(), rates.leases()), ((ByteLen(100 * MIB), ByteLen(40 * MIB)), 2));
}

#[test]
fn a_restarted_or_first_server_has_no_rates_and_servers_add_up() {
    let before = reply(10, work(20, 10), &[(1, 2, work(4, 2))]);
    let after = Activity { incarnation: 6, ..reply(12, work(34, 22), &[(1, 2, work(10, 2))]) };
    for before in [Some(&before), None] {
        let rates = rates(before, &after);
        assert!(rates.clients.is_empty() && rates.total == Flow::default());
        assert!(rates.servers[0].state.as_ref().is_ok_and(|state| state.flow.is_none()));
        assert_eq!(rates.leases(), 2, "the state of targets is shown");
    }
    let after = reply(12, work(34, 22), &[(1, 2, work(10, 2))]);
    let both = Rates::of([
        Replies { name: "s0", before: Some(&before), after: Ok(&after) },
        Replies { name: "s1", before: Some(&before), after: Ok(&after) },
        Replies { name: "s2", before: Some(&before), after: Err("refused") },
    ]);
    assert_eq!(both.clients[&(1, 1)].measured.flow.reads, 6.0, "one process, two servers");
    assert_eq!(both.clients[&(1, 1)].connections, 2);
    assert!(both.is_missing_a_server() && both.servers[2].state == Err("refused".into()));
}

#[test]
fn quantiles_lie_within_their_class() {
    assert_eq!(quantile(&[], 0.5), None);
    assert_eq!(quantile(&[0, 0], 0.5), None);
    // 100 requests between 10 and 25 us.
    assert_eq!(quantile(&[0, 100], 0.5), Some(Nanos(17_500)));
    assert_eq!(quantile(&[99, 0, 0, 1], 0.99), Some(BOUNDS[0]));
    assert_eq!(quantile(&[98, 0, 0, 2], 0.99), Some(Nanos((BOUNDS[2].0 + BOUNDS[3].0) / 2)));
    let mut slow = vec![0; BOUNDS.len() + 1];
    slow[BOUNDS.len()] = 1;
    assert_eq!(quantile(&slow, 0.5), BOUNDS.last().copied());
}
