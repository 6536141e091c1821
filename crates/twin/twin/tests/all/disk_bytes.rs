//! Bytes on the modelled disks equal the bytes that ranks wrote, plus and minus the bytes that the model names.
//!
//! Every workload runs on every disk profile with and without the page cache. SSDs and locking file systems get every
//! second profile. Access and syncs change with the profile. Runs drain, so that all bytes of files that still exist are
//! on the disks.

use std::collections::{BTreeMap, BTreeSet};
use toml::{Table, Value};
use weft_core::cache::CacheMode;
use weft_core::ranges::ByteRange;
use weft_core::{Module, RangeSet};
use weft_models::profile;
use weft_twin::locking::{DelegatesSpec, LockingKind, LockingSpec};
use weft_twin::{
    CacheSpec, ClusterSpec, DeviceOutcome, DeviceRole, IbridgeSpec, OpKind, Outcome, Payload, RunOptions,
    ServerSpec, SsdStatus, TargetSpec, run_with,
};
use weft_workload::{FileRef, Op, Size, Workload, WorkloadSpec};

const SERVERS: u32 = 2;
const STRIPE: u64 = 64 << 10;
/// Unit of writes that bypass the page cache.
const BLOCK: u64 = 4096;
/// Maximum number of bytes that a server writes to its own files on the disk of a target during a run.
const SERVER_FILES_MAX: u64 = 4096;

const ACCESS: [&str; 3] = ["write", "rewrite", "both"];
const SYNC: [&str; 3] = ["never", "each", "end"];

/// Settings for small workloads with unaligned requests. A kind without an entry runs with its defaults.
const SMALL: [(&str, &str); 12] = [
    ("mpi-io-test", "size = 66500\niterations = 4"),
    ("ior", "transfer = 40000\nper_rank = 160000\nlayout = 'strided'"),
    ("hpio", "region_count = 8\nregion_size = 5000"),
    ("mpi-tile-io", "element = 1000"),
    ("btio", "dumps = 2"),
    ("flash-io", "blocks = 2"),
    ("s3d-io", "block = [5, 5, 5]\nheader = 1000"),
    ("server-span", "servers = 2\nextra = 1000\nrequests = 8"),
    ("sandia", "total = '1 MiB'"),
    ("segments", "loops = 4"),
    ("mdtest", "files = 6\nwrite = 6000\nread = 3000\nresize = 4500"),
    ("mpi-md-test", "files = 6"),
];

/// Calls `apply` with each workload in a description: the workload itself, and the programs of a mix.
fn for_each_kind(value: &mut Value, apply: &impl Fn(&str, &mut Table)) {
    match value {
        Value::Table(table) => {
            if let Some(kind) = table.get("kind").and_then(Value::as_str).map(str::to_owned) {
                apply(&kind, table);
            }
            table.iter_mut().for_each(|(_, value)| for_each_kind(value, apply));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| for_each_kind(value, apply)),
        _ => {}
    }
}

/// Returns a small version of a workload.
fn small(spec: &WorkloadSpec, access: &str, sync: &str) -> WorkloadSpec {
    let mut value = Value::try_from(spec).expect("a workload is a table");
    for_each_kind(&mut value, &|kind, table| {
        for (key, new) in [("ranks", Value::from(4)), ("access", access.into()), ("sync", sync.into())] {
            if let Some(old) = table.get_mut(key) {
                *old = new;
            }
        }
        if let Some((_, text)) = SMALL.iter().find(|(name, _)| *name == kind) {
            table.extend(text.parse::<Table>().expect("settings"));
        }
        if kind == "mdtest" {
            let removes = ["remove"].into_iter().filter(|_| sync != "never");
            let phases = ["create", "stat", "read", "resize"].into_iter().chain(removes);
            table.insert("phases".to_owned(), phases.collect::<Vec<_>>().into());
        }
    });
    value.try_into().expect("a workload")
}

/// Figures of a workload, computed from its operations alone.
#[derive(Default, Debug)]
struct Program {
    /// Bytes written.
    written: u64,
    /// Bytes written, without those that were written before.
    unique: u64,
    /// Bytes written that the files have at the end.
    live: u64,
    /// Maximum number of bytes in writes of whole blocks. The exact number if `has_fixed_lengths`.
    in_blocks: u64,
    /// Whether all files have their final lengths at the start.
    has_fixed_lengths: bool,
}

impl Program {
    fn of(workload: &dyn Workload) -> Self {
        let lengths: BTreeMap<FileRef, u64> = workload.inputs().collect();
        let mut program = Self { has_fixed_lengths: true, ..Self::default() };
        let mut files: BTreeMap<FileRef, RangeSet> = BTreeMap::new();
        let cut = |files: &mut BTreeMap<FileRef, RangeSet>, file, len| {
            if let (Some(bytes), Some(range)) = (files.get_mut(&file), ByteRange::new(len, u64::MAX)) {
                bytes.remove(range);
            }
        };
        let mut ranks: Vec<_> = (0..workload.ranks()).map(|rank| workload.ops(rank).peekable()).collect();
        while ranks.iter_mut().any(|ops| ops.peek().is_some()) {
            // From one barrier to the next, ranks do not change the files of others in conflicting ways.
            for op in ranks.iter_mut().flat_map(|ops| ops.take_while(|op| *op != Op::Barrier)) {
                match op {
                    Op::Write { file, offset, len, .. } => {
                        let range = ByteRange::with_len(offset, len);
                        program.written += len;
                        program.unique +=
                            range.map_or(0, |range| files.entry(file).or_default().insert(range));
                        let file_len = lengths.get(&file).copied();
                        program.has_fixed_lengths &= file_len.is_some_and(|end| offset + len <= end);
                        program.in_blocks += in_blocks(offset, len, file_len);
                    }
                    Op::SetLen { file, len } | Op::Resize { file, len } => cut(&mut files, file, len),
                    Op::Remove { file } => cut(&mut files, file, 0),
                    _ => {}
                }
            }
        }
        program.live = files.values().map(RangeSet::bytes).sum();
        program
    }
}

/// Returns the bytes that servers write in blocks for a write that bypasses the page cache. A block that ends behind the
/// end of the datafile goes through the page cache without rounding.
fn in_blocks(offset: u64, len: u64, file_len: Option<u64>) -> u64 {
    let of_server = |server: u64| {
        // Each server stores its stripes one after another.
        let local = |at: u64| {
            let row = STRIPE * u64::from(SERVERS);
            at / row * STRIPE + (at % row).saturating_sub(server * STRIPE).min(STRIPE)
        };
        let (start, end) = (local(offset), local(offset + len));
        let (first, last) = (start / BLOCK * BLOCK, end.next_multiple_of(BLOCK));
        let is_tail = file_len.is_some_and(|len| end % BLOCK > 0 && last > local(len));
        match (start == end, is_tail) {
            (true, _) => 0,
            (false, false) => last - first,
            (false, true) => end - if start >= end / BLOCK * BLOCK { start } else { first },
        }
    };
    (0..u64::from(SERVERS)).map(of_server).sum()
}

/// One run and the figures of its program.
struct Run {
    name: String,
    profile: &'static str,
    program: Program,
    outcome: Outcome,
}

impl Run {
    /// Returns the sum of a figure over all disks of a role.
    fn sum(&self, role: DeviceRole, of: impl Fn(&DeviceOutcome) -> u64) -> u64 {
        self.outcome.devices.iter().filter(|device| device.role == role).map(of).sum()
    }

    /// Returns the sum of a figure over all SSDs beside disks.
    fn ssds(&self, of: impl Fn(&SsdStatus) -> u64) -> u64 {
        self.outcome.ibridge.iter().map(|ssd| of(&ssd.status)).sum()
    }

    /// Returns the bytes of all operations of a kind.
    fn bytes(&self, kind: OpKind) -> u64 {
        let phases = self.outcome.phases.iter().filter_map(|phase| phase.kinds.get(&kind));
        phases.map(|measure| measure.bytes).sum()
    }

    #[track_caller]
    fn assert_eq(&self, what: &str, seen: u64, expected: u64) {
        assert_eq!(seen, expected, "{}: {what}", self.name);
    }

    #[track_caller]
    fn assert_at_most(&self, what: &str, seen: u64, most: u64) {
        assert!(seen <= most, "{}: {what}: {seen} instead of at most {most}", self.name);
    }

    /// Checks each disk by its own reasons, and savings by the program. `payload_saved` are bytes that ranks wrote but
    /// no disk was asked to write.
    #[track_caller]
    fn check_disks(&self, payload_saved: u64) {
        for device in &self.outcome.devices {
            let counters = &device.counters;
            let (reads, writes) = (&counters.read_reasons, &counters.write_reasons);
            self.assert_eq(
                &format!("{:?} wrote: {writes:?}", device.role),
                counters.write_bytes,
                writes.expected_bytes(),
            );
            self.assert_eq(
                &format!("{:?} read: {reads:?}", device.role),
                counters.read_bytes,
                reads.expected_bytes(),
            );
            if self.profile == "simple" && device.role == DeviceRole::Target {
                let more = writes.padding_bytes + writes.journal_bytes + reads.padding_bytes;
                self.assert_eq("the simple disk has no pages and no journal", more, 0);
                self.assert_eq("the simple disk joins no writes", writes.overwritten_bytes, 0);
            }
        }
        let Program { written, unique, live, .. } = self.program;
        self.assert_eq("bytes of the ranks", self.bytes(OpKind::Write), written);
        let of = |of: fn(&DeviceOutcome) -> u64| self.sum(DeviceRole::Target, of);
        let server_files = of(server_files);
        self.assert_at_most("files of the servers", server_files, SERVER_FILES_MAX);
        let overwritten = of(|disk| disk.counters.write_reasons.overwritten_bytes);
        self.assert_at_most("overwritten bytes", overwritten, written - unique);
        let dropped = of(|disk| disk.counters.write_reasons.dropped_bytes);
        let waiting = of(|disk| disk.counters.write_reasons.waiting_bytes).saturating_sub(server_files);
        let saved = overwritten + dropped + waiting + payload_saved;
        self.assert_at_most("bytes that reached no disk", saved, written - live);
    }
}

/// Bytes of a disk's writes to files other than datafiles and the payload of SSDs.
fn server_files(disk: &DeviceOutcome) -> u64 {
    disk.counters.write_reasons.requested_bytes - disk.counters.write_reasons.payload_bytes
}

fn payload_written(disk: &DeviceOutcome) -> u64 {
    disk.counters.write_reasons.payload_bytes
}

fn payload_read(disk: &DeviceOutcome) -> u64 {
    disk.counters.read_reasons.payload_bytes
}

/// Runs every workload on every `stride`-th profile.
///
/// With a stride of 2, half of the workloads start at the second profile. `cluster` gets a number that rises with the
/// profiles of a workload.
fn for_all(
    accesses: &[&str],
    stride: usize,
    cluster: impl Fn(&str, usize) -> ClusterSpec,
    check: impl Fn(&Run),
) {
    let profiles: Vec<&str> = profile::names().into_iter().chain(["simple"]).collect();
    let mut refused = BTreeSet::new();
    for (kind, spec) in WorkloadSpec::all().iter().enumerate() {
        for (index, profile) in profiles.iter().copied().enumerate().skip(kind % stride).step_by(stride) {
            let number = index / stride + kind;
            let (access, sync) = (accesses[number % accesses.len()], SYNC[(number / 3 + kind) % SYNC.len()]);
            let name = format!("{} on {profile}, access {access}, sync {sync}", spec.kind());
            let workload =
                small(spec, access, sync).build().unwrap_or_else(|error| panic!("{name}: {error}"));
            let spec = cluster(profile, number);
            let has_ssd = spec.servers[0]
                .targets
                .iter()
                .any(|target| target.ibridge.is_some() || target.cache.is_some());
            // An SSD may still have bytes of input files. A first run brings them to the disk.
            let passes = if has_ssd && workload.inputs().next().is_some() { 2 } else { 1 };
            let options = RunOptions { drain: true, passes, ..RunOptions::default() };
            match run_with(&spec, &*workload, options) {
                Ok(outcome) => {
                    let program = Program::of(&*workload);
                    check(&Run { name, profile, program, outcome });
                }
                Err(error)
                    if spec.locking.is_some() && error.to_string().contains("has no such operation") =>
                {
                    refused.insert(kind);
                }
                Err(error) => panic!("{name}: {error}"),
            }
        }
    }
    assert!(refused.len() <= 3, "workloads that a locking file system refuses: {refused:?}");
}

fn cluster(profile: &str, module: Module) -> ClusterSpec {
    let target = TargetSpec { profile: profile.to_owned(), module, ..TargetSpec::default() };
    let mut spec = ClusterSpec {
        servers: vec![ServerSpec { count: SERVERS, targets: vec![target], ..ServerSpec::default() }],
        ..ClusterSpec::default()
    };
    spec.layout.stripe_size = Size(STRIPE);
    spec
}

#[test]
fn page_caches_write_what_ranks_wrote() {
    let cluster = |profile: &str, number: usize| ClusterSpec {
        payload: if number % 4 == 1 { Payload::Bytes } else { Payload::Lengths },
        ..cluster(profile, Module::Buffered)
    };
    for_all(&ACCESS, 1, cluster, |run| {
        run.check_disks(0);
        run.assert_eq("payload written", run.sum(DeviceRole::Target, payload_written), run.program.written);
        run.assert_eq("payload read", run.sum(DeviceRole::Target, payload_read), run.bytes(OpKind::Read));
    });
}

#[test]
fn direct_writes_write_whole_blocks() {
    for_all(
        &ACCESS,
        1,
        |profile, _| cluster(profile, Module::Direct),
        |run| {
            run.check_disks(0);
            let payload = run.sum(DeviceRole::Target, payload_written);
            if run.program.has_fixed_lengths {
                run.assert_eq("whole blocks", payload, run.program.in_blocks);
            } else {
                // The order of writes decides which of them go through the page cache, because the datafile ended before
                // the end of their last block.
                run.assert_at_most("payload in blocks", payload, run.program.in_blocks);
                run.assert_at_most("payload", run.program.written, payload);
            }
        },
    );
}

#[test]
fn ssds_beside_disks_write_back_what_they_got() {
    let modes = [CacheMode::Read, CacheMode::WriteThrough, CacheMode::WriteBack];
    let mode = |number: usize| modes.get(number % 4).copied();
    let cluster = |ssd: &str, number: usize| {
        let mut spec = cluster(ssd, Module::Buffered);
        let (profile, size) = (ssd.to_owned(), Size::mib(32));
        let target = &mut spec.servers[0].targets[0];
        match mode(number) {
            Some(mode) => target.cache = Some(CacheSpec { mode, profile, size, ..CacheSpec::default() }),
            None => target.ibridge = Some(IbridgeSpec { profile, size, ..IbridgeSpec::default() }),
        }
        spec
    };
    for_all(&ACCESS, 2, cluster, |run| {
        let (put, counted) = (run.ssds(|ssd| ssd.bytes_written.0), run.ssds(|ssd| ssd.bytes_written_back.0));
        let Program { written, live, .. } = run.program;
        let on_disks = run.sum(DeviceRole::Target, payload_written);
        run.check_disks(written.saturating_sub(on_disks));
        // Besides reads of ranks and moves, SSDs are read only for write-back.
        let other_reads = run.ssds(|ssd| ssd.bytes_read.0 + ssd.bytes_moved.0);
        let read_back = run.sum(DeviceRole::Log, payload_read) - other_reads;
        // A file may be removed between the read from the SSD, the write to the disk, and the sync that counts as
        // write-back.
        let back = on_disks + put - written;
        run.assert_at_most("bytes counted as written back", counted, back);
        run.assert_at_most("bytes written back", back, read_back);
        run.assert_at_most("write-back of removed files", read_back - counted, written - live);
        run.assert_eq("dirty bytes on SSDs", run.ssds(|ssd| ssd.dirty.0), 0);
        let copied = run.ssds(|ssd| ssd.bytes_preloaded.0 + ssd.bytes_moved.0);
        // A cache that writes through copies each write to the SSD.
        let is_through = run.outcome.ibridge.iter().any(|ssd| {
            ssd.status.cache.as_ref().is_some_and(|cache| cache.mode == CacheMode::WriteThrough.word())
        });
        let through = if is_through { run.program.written } else { 0 };
        run.assert_eq("payload on SSDs", run.sum(DeviceRole::Log, payload_written), put + copied + through);
    });
}

#[test]
fn locking_file_systems_write_what_clients_sent() {
    let cluster = |profile: &str, number: usize| {
        let kind = [LockingKind::LustreLike, LockingKind::GpfsLike][number % 2];
        let delegates = DelegatesSpec { count: [0, 2][number / 2 % 2], ..DelegatesSpec::default() };
        let profile = profile.to_owned();
        let locking = LockingSpec { kind, servers: Some(SERVERS), profile, ..LockingSpec::default() };
        ClusterSpec { locking: Some(locking), delegates, ..ClusterSpec::default() }
    };
    // Files are new.
    for_all(&["write", "both"], 2, cluster, |run| {
        let locking = run.outcome.locking.expect("the cluster has a locking file system");
        let sent = run.outcome.delegates.map_or(run.program.written, |delegates| delegates.file_bytes);
        // Delegates join bytes that are written again before a sync.
        run.assert_at_most("bytes of delegates", sent, run.program.written);
        run.check_disks(run.program.written - sent + locking.overwritten_bytes);
        run.assert_eq("bytes of clients", locking.write_bytes + locking.overwritten_bytes, sent);
        let payload = run.sum(DeviceRole::Target, payload_written);
        run.assert_eq("payload", payload, locking.write_bytes + locking.unit_rest_bytes);
    });
}
