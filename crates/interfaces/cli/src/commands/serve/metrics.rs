//! Metrics of a server in the OpenMetrics text format, over HTTP on an address of its own.
//!
//! Every process that reaches the address can read them. They have names of servers and classes, numbers and sizes, and
//! for quotas numbers of users and paths of trees, but no other names of files, users or clients, and no keys.

use crate::failure::Failure;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use tiny_http::{Header, Method, Request, Response};
use weft_core::{Nanos, QuotaId};
use weft_env::Address;
use weft_env::real::{RealEnv, block_on};
use weft_server::ServerHandle;
use weft_server::latency::{BOUNDS, Distribution, Operation};
use weft_wire::meta::Quota;
use weft_wire::status::{DelegateCounts, MetadataStatus, MoveCounts, ServerStatus, SsdStatus, TargetStatus};

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Maximum number of quotas with series. Those nearest to a limit are chosen, so that an alert misses none.
const QUOTAS_MAX: usize = 1000;
/// Requests that are answered at the same time.
const THREADS: usize = 2;

/// Labels of a sample.
type Labels = Vec<(&'static str, String)>;

/// Answers requests for the metrics of one server, until it is dropped.
pub struct MetricsListener {
    http: Arc<tiny_http::Server>,
    threads: Vec<JoinHandle<()>>,
    ended: Arc<AtomicBool>,
}

impl MetricsListener {
    /// Listens on `address` for the metrics of `handles[of]`. Programs see Weft at `mount`.
    ///
    /// # Errors
    /// The address cannot be used.
    pub fn start(
        address: &Address,
        handles: &Arc<Vec<ServerHandle<RealEnv>>>,
        of: usize,
        mount: &Path,
    ) -> Result<Self, Failure> {
        let failed = |why: String| Failure::new(format!("metrics at {address}"), why);
        let http = match address {
            Address::Tcp(host, port) => tiny_http::Server::http(format!("{host}:{port}")),
            Address::Unix(path) => {
                remove_stale(path).map_err(|error| failed(error.to_string()))?;
                tiny_http::Server::http_unix(path)
            }
        };
        let http = Arc::new(http.map_err(|error| failed(error.to_string()))?);
        let ended = Arc::new(AtomicBool::new(false));
        let thread = || {
            let (http, handles, ended) = (Arc::clone(&http), Arc::clone(handles), Arc::clone(&ended));
            let mount = mount.to_owned();
            let answer = move || {
                while !ended.load(Ordering::SeqCst) {
                    // An error concerns one connection, or is the end.
                    if let Ok(request) = http.recv() {
                        // A client that has gone needs no answer.
                        let _ = respond(request, &handles[of], &mount);
                    }
                }
            };
            std::thread::Builder::new().name("weft-metrics".into()).spawn(answer)
        };
        let threads = (0..THREADS).map(|_| thread()).collect::<io::Result<Vec<_>>>();
        let threads = threads.map_err(|error| failed(error.to_string()))?;
        Ok(Self { http, threads, ended })
    }
}

impl Drop for MetricsListener {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        self.threads.iter().for_each(|_| self.http.unblock());
        // A panic has been printed there.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Removes the socket of a server that has ended.
fn remove_stale(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => {
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there"));
            }
            std::fs::remove_file(path)
        }
        _ => Ok(()),
    }
}

fn respond(request: Request, handle: &ServerHandle<RealEnv>, mount: &Path) -> io::Result<()> {
    let header = |text: &str| Header::from_bytes(&b"Content-Type"[..], text.as_bytes()).expect("valid");
    let plain = |status: u16, text: &str| {
        Response::from_string(text).with_status_code(status).with_header(header("text/plain"))
    };
    let path = request.url().split('?').next().unwrap_or_default().to_owned();
    match (request.method(), path.as_str()) {
        (Method::Get, "/metrics") => {
            let text = metrics(handle, mount);
            request.respond(Response::from_string(text).with_header(header(CONTENT_TYPE)))
        }
        (Method::Get, "/") => request.respond(plain(200, "metrics are at /metrics\n")),
        (Method::Get, _) => request.respond(plain(404, "metrics are at /metrics\n")),
        _ => request.respond(plain(405, "only GET\n")),
    }
}

/// Returns the metrics of a server.
fn metrics(handle: &ServerHandle<RealEnv>, mount: &Path) -> String {
    let state = State {
        status: block_on(handle.status()),
        latencies: Operation::ALL.map(|operation| (operation, handle.latencies(operation))),
        panics: handle.panics(),
        quotas: handle.quotas(QUOTAS_MAX),
        mount: mount.to_owned(),
    };
    state.into_text()
}

/// Figures that become metrics.
#[derive(Debug)]
struct State {
    status: ServerStatus,
    latencies: [(Operation, Distribution); Operation::ALL.len()],
    panics: u64,
    /// Number of all quotas, and those with series.
    quotas: (u64, Vec<Quota>),
    mount: PathBuf,
}

impl State {
    fn into_text(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut out = String::new();
        text::encode(&mut out, &registry).expect("a string takes all text");
        out
    }
}

impl Collector for State {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Metrics(encoder);
        self.server(&mut out)?;
        targets(&mut out, &self.status.targets)?;
        let ssds: Vec<_> = self
            .status
            .targets
            .iter()
            .filter_map(|target| Some((of_target(target), target.ssd.as_ref()?)))
            .collect();
        ssd(&mut out, &ssds)?;
        match &self.status.metadata {
            Some(found) => {
                metadata(&mut out, found)?;
                self.quotas(&mut out)
            }
            None => Ok(()),
        }
    }
}

/// Writes metrics.
struct Metrics<'a>(DescriptorEncoder<'a>);

impl Metrics<'_> {
    fn gauge(
        &mut self,
        name: (&str, Option<Unit>),
        help: &str,
        samples: impl IntoIterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        self.family(MetricType::Gauge, name, help, samples, |metric, value| metric.encode_gauge(&value))
    }

    fn counter(
        &mut self,
        name: (&str, Option<Unit>),
        help: &str,
        samples: impl IntoIterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        self.family(MetricType::Counter, name, help, samples, |metric, value| {
            metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
        })
    }

    /// Writes a metric with its samples by `encode`.
    fn family(
        &mut self,
        kind: MetricType,
        (name, unit): (&str, Option<Unit>),
        help: &str,
        samples: impl IntoIterator<Item = (Labels, f64)>,
        encode: impl Fn(&mut MetricEncoder<'_>, f64) -> fmt::Result,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, unit.as_ref(), kind)?;
        samples.into_iter().try_for_each(|(labels, value)| match labels.is_empty() {
            true => encode(&mut metric, value),
            false => encode(&mut metric.encode_family(&labels)?, value),
        })
    }
}

fn one(value: f64) -> [(Labels, f64); 1] {
    [(Labels::new(), value)]
}

fn seconds(time: Nanos) -> f64 {
    time.0 as f64 / 1e9
}

fn bytes(name: &str) -> (&str, Option<Unit>) {
    (name, Some(Unit::Bytes))
}

fn of_target(target: &TargetStatus) -> Labels {
    vec![("target", target.target.0.to_string()), ("class", target.class.clone())]
}

fn with(labels: &Labels, name: &'static str, value: &str) -> Labels {
    let mut labels = labels.clone();
    labels.push((name, value.to_owned()));
    labels
}

impl State {
    fn server(&self, out: &mut Metrics<'_>) -> fmt::Result {
        let status = &self.status;
        let build = vec![
            ("server", status.name.clone()),
            ("cluster", status.cluster_id.to_string()),
            ("version", status.version.clone()),
        ];
        out.gauge(("weft_server_info", None), "Server, cluster and version", [(build, 1.0)])?;
        let uptime = seconds(status.uptime);
        out.gauge(("weft_uptime", Some(Unit::Seconds)), "Time since the start", one(uptime))?;
        out.gauge(("weft_connections", None), "Open connections", one(f64::from(status.connections)))?;
        out.gauge(bytes("weft_memory"), "Resident memory", one(status.memory.0 as f64))?;
        out.counter(("weft_panics", None), "Connections ended by a bug", one(self.panics as f64))?;
        out.gauge(("weft_keys_revoked", None), "Revoked keys", one(f64::from(status.keys.revoked)))?;
        if let Some(audit) = &status.audit {
            out.counter(("weft_audit_events", None), "Events written", one(audit.written as f64))?;
            out.counter(("weft_audit_events_lost", None), "Events lost", one(audit.lost as f64))?;
        }
        let unit = Unit::Seconds;
        let mut metric = out.0.encode_descriptor(
            "weft_request_duration",
            "Time from the arrival of a request to its reply",
            Some(&unit),
            MetricType::Histogram,
        )?;
        for (operation, found) in &self.latencies {
            let bounds = BOUNDS.iter().map(|bound| seconds(*bound)).chain([f64::MAX]);
            let buckets: Vec<_> = bounds.zip(found.counts).collect();
            metric.encode_family(&[("operation", operation.name())])?.encode_histogram::<NoLabelSet>(
                seconds(found.sum),
                found.count(),
                &buckets,
                None,
            )?;
        }
        Ok(())
    }
}

fn targets(out: &mut Metrics<'_>, all: &[TargetStatus]) -> fmt::Result {
    let used = || all.iter().filter(|target| target.refused.is_none());
    let each = |value: fn(&TargetStatus) -> f64| used().map(move |target| (of_target(target), value(target)));
    let up = |target: &TargetStatus| f64::from(u8::from(target.refused.is_none()));
    out.gauge(
        ("weft_target_up", None),
        "Whether the server uses the target",
        all.iter().map(|target| (of_target(target), up(target))),
    )?;
    out.gauge(bytes("weft_target_size"), "Size of the file system", each(|t| t.total.0 as f64))?;
    out.gauge(bytes("weft_target_free"), "Free space on it", each(|t| t.free.0 as f64))?;
    out.counter(bytes("weft_target_read"), "Bytes read by messages", each(|t| t.bytes_read as f64))?;
    out.counter(bytes("weft_target_written"), "Bytes written by messages", each(|t| t.bytes_written as f64))?;
    out.counter(("weft_target_requests", None), "Requests by messages", each(|t| t.requests as f64))?;
    out.counter(
        ("weft_target_fragments", None),
        "Fragments and small random requests among them",
        each(|t| t.fragments as f64),
    )?;
    out.gauge(("weft_target_queue", None), "Requests that run or wait", each(|t| f64::from(t.queue)))?;
    out.gauge(("weft_target_leases", None), "Leased descriptors", each(|t| f64::from(t.leases)))?;
    out.counter(
        ("weft_target_damaged_blocks", None),
        "Blocks that did not match their checksums",
        each(|t| t.damaged as f64),
    )?;
    out.counter(
        ("weft_target_unverified_blocks", None),
        "Blocks accepted without checksums after a loss of power",
        each(|t| t.unverified as f64),
    )?;
    out.counter(bytes("weft_compression_input"), "Bytes compressed", each(|t| t.bytes_compressed as f64))?;
    out.counter(bytes("weft_compression_stored"), "Bytes stored for them", each(|t| t.bytes_stored as f64))?;
    let disks = || used().filter_map(|target| Some((of_target(target), target.disk?)));
    out.gauge(
        ("weft_disk_requests_in_flight", None),
        "Requests of all programs that the disk has not completed",
        disks().map(|(labels, disk)| (labels, disk.in_flight as f64)),
    )?;
    out.counter(
        ("weft_disk_queue", Some(Unit::Seconds)),
        "Sum of the times that requests were queued or served",
        disks().map(|(labels, disk)| (labels, disk.queued_ms as f64 / 1e3)),
    )
}

fn ssd(out: &mut Metrics<'_>, all: &[(Labels, &SsdStatus)]) -> fmt::Result {
    let each =
        |value: fn(&SsdStatus) -> f64| all.iter().map(move |(labels, found)| (labels.clone(), value(found)));
    out.gauge(
        ("weft_ssd_up", None),
        "Whether the SSD beside the disk is used",
        each(|ssd| f64::from(u8::from(ssd.failed.is_none()))),
    )?;
    out.gauge(bytes("weft_ssd_capacity"), "Capacity for payload", each(|ssd| ssd.capacity.0 as f64))?;
    out.gauge(bytes("weft_ssd_dirty"), "Bytes only on the SSD", each(|ssd| ssd.dirty.0 as f64))?;
    out.gauge(bytes("weft_ssd_lost"), "Bytes only there and unreadable", each(|ssd| ssd.lost.0 as f64))?;
    let classes = || all.iter().flat_map(|(labels, ssd)| ssd.classes.iter().map(move |one| (labels, one)));
    out.gauge(
        bytes("weft_ssd_stored"),
        "Bytes on the SSD by kind",
        classes().map(|(labels, one)| (with(labels, "kind", &one.name), one.bytes.0 as f64)),
    )?;
    out.counter(
        ("weft_ssd_admitted_requests", None),
        "Requests admitted by kind",
        classes().map(|(labels, one)| (with(labels, "kind", &one.name), one.admitted as f64)),
    )?;
    let reads = all.iter().flat_map(|(labels, ssd)| {
        let results = [("hit", ssd.read_hits), ("partial", ssd.read_partial_hits), ("miss", ssd.read_misses)];
        results.map(|(result, count)| (with(labels, "result", result), count as f64))
    });
    out.counter(("weft_ssd_reads", None), "Reads by the device that had the bytes", reads)?;
    out.counter(bytes("weft_ssd_read"), "Bytes read from the SSD", each(|ssd| ssd.bytes_read.0 as f64))?;
    out.counter(bytes("weft_ssd_written"), "Bytes written to it", each(|ssd| ssd.bytes_written.0 as f64))?;
    out.counter(
        bytes("weft_ssd_written_back"),
        "Bytes written back to the disk",
        each(|ssd| ssd.bytes_written_back.0 as f64),
    )?;
    let caches = || all.iter().filter_map(|(labels, ssd)| Some((labels.clone(), ssd.cache.as_ref()?)));
    out.counter(
        bytes("weft_cache_hit"),
        "Bytes of reads that the cache had",
        caches().map(|(labels, cache)| (labels, cache.bytes_hit.0 as f64)),
    )?;
    out.counter(
        bytes("weft_cache_missed"),
        "Bytes of reads that the disk had to read",
        caches().map(|(labels, cache)| (labels, cache.bytes_missed.0 as f64)),
    )
}

fn metadata(out: &mut Metrics<'_>, found: &MetadataStatus) -> fmt::Result {
    out.gauge(("weft_metadata_inodes", None), "Inodes in use", one(found.inodes as f64))?;
    out.gauge(("weft_metadata_sessions", None), "Sessions of clients", one(f64::from(found.sessions)))?;
    out.gauge(("weft_metadata_opens", None), "Open files", one(f64::from(found.opens)))?;
    out.gauge(("weft_metadata_locks", None), "Byte-range locks", one(f64::from(found.locks)))?;
    out.counter(("weft_metadata_requests", None), "Requests", one(found.requests as f64))?;
    out.counter(("weft_metadata_mutations", None), "Changes", one(found.mutations as f64))?;
    out.counter(("weft_metadata_commits", None), "Commits to the device", one(found.commits as f64))?;
    out.gauge(
        ("weft_metadata_reaping_files", None),
        "Removed files that still have datafiles",
        one(found.reaping as f64),
    )?;
    out.gauge(bytes("weft_metadata_size"), "Size of the file system", one(found.total.0 as f64))?;
    out.gauge(bytes("weft_metadata_free"), "Free space on it", one(found.free.0 as f64))?;
    out.gauge(
        ("weft_metadata_damaged_blocks", None),
        "Damaged blocks of the database",
        one(found.damaged_blocks as f64),
    )?;
    let of = |target: weft_core::TargetId| vec![("target", target.0.to_string())];
    let reservations = || found.space_reservations.iter();
    out.gauge(
        bytes("weft_reservable"),
        "Capacity that layouts may reserve",
        reservations().map(|one| (of(one.target), one.capacity.0 as f64)),
    )?;
    out.gauge(
        bytes("weft_reserved"),
        "Capacity that layouts have reserved",
        reservations().map(|one| (of(one.target), one.reserved.0 as f64)),
    )?;
    out.gauge(
        ("weft_target_state", None),
        "State of each target on record",
        found.targets.iter().map(|record| (with(&of(record.target), "state", record.state.word()), 1.0)),
    )?;
    moves(out, &found.moves)?;
    delegates(out, &found.delegates)
}

impl State {
    fn quotas(&self, out: &mut Metrics<'_>) -> fmt::Result {
        let (count, shown) = &self.quotas;
        let labels = |quota: &Quota| match quota.id {
            QuotaId::User(uid) => Labels::from([("user", uid.to_string())]),
            QuotaId::Tree(_) => Labels::from([("tree", escaped(&self.mount, &quota.path))]),
        };
        let each = |value: fn(&Quota) -> Option<u64>| {
            shown.iter().filter_map(move |quota| Some((labels(quota), value(quota)? as f64)))
        };
        out.gauge(("weft_quotas", None), "Quotas, also those without series", one(*count as f64))?;
        out.gauge(
            bytes("weft_quota_used"),
            "Bytes that count in the quota",
            each(|q| Some(q.usage.bytes.0)),
        )?;
        out.gauge(bytes("weft_quota_limit"), "Limit of bytes", each(|q| Some(q.limits.bytes?.0)))?;
        out.gauge(("weft_quota_used_files", None), "Files and directories", each(|q| Some(q.usage.inodes)))?;
        out.gauge(
            ("weft_quota_limit_files", None),
            "Limit of files and directories",
            each(|q| q.limits.inodes),
        )
    }
}

/// Value of a label with the path of a tree. The encoder does not escape.
fn escaped(mount: &Path, path: &[u8]) -> String {
    let path = mount.join(String::from_utf8_lossy(path).as_ref()).display().to_string();
    path.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn moves(out: &mut Metrics<'_>, found: &MoveCounts) -> fmt::Result {
    let label = |name, value: &str| Labels::from([(name, value.to_owned())]);
    let states = [("running", found.running), ("interrupted", found.interrupted)];
    out.gauge(
        ("weft_moves", None),
        "Moves of files to other layouts",
        states.map(|(state, count)| (label("state", state), f64::from(count))),
    )?;
    out.counter(("weft_moves_started", None), "Moves started or continued", one(found.started as f64))?;
    let results = [
        ("completed", found.completed),
        ("lost", found.lost),
        ("abandoned", found.abandoned),
        ("removed", found.removed),
    ];
    out.counter(
        ("weft_moves_ended", None),
        "Moves that ended, by result",
        results.map(|(result, count)| (label("result", result), count as f64)),
    )?;
    out.counter(bytes("weft_moves_copied"), "Bytes that movers have copied", one(found.bytes_copied.0 as f64))
}

fn delegates(out: &mut Metrics<'_>, found: &DelegateCounts) -> fmt::Result {
    out.gauge(("weft_delegate_jobs", None), "Jobs with I/O delegates", one(f64::from(found.jobs)))?;
    out.gauge(
        ("weft_delegates", None),
        "I/O delegates that may cache pages",
        one(f64::from(found.delegates)),
    )?;
    let files = [("open", found.open_files), ("cached", found.cached_files)];
    out.gauge(
        ("weft_delegate_files", None),
        "Files of jobs with I/O delegates",
        files.map(|(state, count)| (Labels::from([("state", state.to_owned())]), f64::from(count))),
    )?;
    out.counter(("weft_delegate_recalls", None), "Files recalled from delegates", one(found.recalls as f64))?;
    out.counter(
        ("weft_delegate_recalls_failed", None),
        "Recalls that delegates did not complete in time",
        one(found.recalls_failed as f64),
    )?;
    out.counter(
        ("weft_delegate_recall_wait", Some(Unit::Seconds)),
        "Sum of the times for which opens waited for recalls",
        one(seconds(found.recall_time)),
    )
}
