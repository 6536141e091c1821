//! `weft serve`: the server process.

mod agent_starter;
mod key_file;
mod metrics;

use super::key::of_servers;
use super::profile::cluster as measured;
use crate::audit::AuditLog;
use crate::failure::Failure;
use crate::logging::Log;
use crate::signals::{self, Blocked};
use agent_starter::AgentStarter;
use clap::Args;
use key_file::KeyFile;
use metrics::MetricsListener;
use std::io::Write;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weft_config::{Cluster, Emulate, Server, TakesMeasured};
use weft_core::ibridge::{ServiceCurve, Thresholds};
use weft_core::{ByteLen, Nanos, ServerId};
use weft_env::Address;
use weft_env::real::{RealEnv, block_on};
use weft_models::Profile;
use weft_server::audit::Sink;
use weft_server::{
    CacheConfig, Hooks, IbridgeConfig, Join, Limits, LogConfig, ServerConfig, ServerHandle, TargetConfig,
    WritableLeases, metadata,
};
use weft_store::emulate::Emulation;
use weft_store::target::Target;
use weft_wire::ClusterSecret;

/// Interval at which the metadata server asks each data server for its state and free space.
const ASK_EVERY: Nanos = Nanos::from_s(1);

const AFTER: &str = "\
Without a name, all servers of this host run in one process: those whose `host` (or the host of whose tcp address) is
this one, and those with Unix sockets only.

The process stays in the foreground and logs to the `log` file of each server, or to standard error. SIGTERM and
SIGINT stop it in order: data on SSDs beside disks is first written to the disks, unless a second signal leaves it on
the SSDs, where it is durable, too. SIGHUP reopens the log files. A changed key file takes effect within seconds, or
at SIGHUP. Synced data survives SIGKILL at any moment.

After 10 seconds without clients, the process starts the agent of its own user (`weft help agent`) if that user has queued
jobs, no agent runs, and `weft agent stop` was not the last command. Mounts are clients.

A directory of a target or of the metadata is used only if it is the one that joined the cluster. A blank or missing
directory, or one of another cluster, is refused with a remedy. --format is for the first start: a blank metadata
directory becomes a new cluster with a new identity, and blank directories of targets without a disk on record are
created, formatted and join it. --format is refused while a target of this host belongs to a cluster whose metadata is
missing.

If the log of the metadata has lost changes that were durable, the start is refused: restore the metadata path from a
copy, or the metadata from a dump (`weft help meta`). --accept-lost-log goes on without these changes, once; files that
were created, renamed or removed by them are as before. Run `weft fsck` afterwards.

Examples:
  weft serve                                      all servers of this host
  weft serve node0 --cluster /etc/weft/cluster.toml
  weft serve --format                             first start of a cluster

As a service of systemd, with the unit that `make install` installs:
  systemctl enable --now weft@node0";

/// Runs one server of the cluster, or all servers of this host.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Serve {
    /// Name of the server in the cluster file
    server: Option<String>,
    /// Begin a new cluster in a blank metadata directory, and let blank targets join
    #[arg(long)]
    format: bool,
    /// Start although the log of the metadata has lost durable changes, and go on without them
    #[arg(long)]
    accept_lost_log: bool,
    /// Print "ready" and close standard output when all servers are running
    #[arg(long, hide = true)]
    announce: bool,
}

impl Serve {
    /// Serves until a signal ends the process.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let cluster = super::load(file)?;
        let mut chosen: Vec<(ServerId, &Server)> = match &self.server {
            Some(name) => vec![cluster.server(name).ok_or_else(|| unknown(&cluster, name))?],
            None => cluster.numbered().filter(|(_, server)| runs_here(server)).collect(),
        };
        if chosen.is_empty() {
            return Err(Failure::misuse(cluster.file.display(), "none of its servers runs on this host")
                .remedy("name one, or set the `host` of each"));
        }
        // The metadata server first, because the others attach their targets there.
        chosen.sort_by_key(|(_, server)| server.metadata.is_none());
        if self.format {
            check_format(&cluster)?;
        }
        let join = if self.format { Join::Format } else { Join::Known };
        let secret = of_servers(&cluster)?.secret();
        more_files();
        // Threads inherit this mask: only the loop below receives these signals.
        let signals = Blocked::new(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP]);
        let mut logs = Vec::new();
        let mut audits = Vec::new();
        let mut handles = Vec::new();
        let mut exposed = Vec::new();
        for (number, (id, server)) in chosen.into_iter().enumerate() {
            exposed.extend(server.metrics.as_ref().map(|address| (number, address)));
            let log = Log::open(&server.name, server.log.as_deref(), server.log_level)
                .map_err(|error| Failure::new(format!("log of server {}", server.name), error))?;
            if let Some(path) = &server.log {
                errln!("server {} logs to {}", server.name, path.display());
            }
            let audit =
                server
                    .audit
                    .as_deref()
                    .map(|path| AuditLog::start(&server.name, path))
                    .transpose()
                    .map_err(|error| Failure::new(format!("audit log of server {}", server.name), error))?;
            audits.extend(audit.clone());
            let options = StartOptions { join, accept_lost_log: self.accept_lost_log };
            let handle =
                start(&cluster, id, server, (&secret, options, audit), &log).inspect_err(|failure| {
                    log.line(&format!("error: not started: {failure}"));
                })?;
            let addresses: Vec<_> = handle.addresses().iter().map(ToString::to_string).collect();
            log.line(&format!("serves cluster {} on {}", cluster.name, addresses.join(", ")));
            for (target, why) in handle.refused_targets() {
                errln!("weft: server {}: {target} is refused: {why}", server.name);
            }
            logs.push(log);
            handles.push(handle);
        }
        let handles = Arc::new(handles);
        let mut metrics = Vec::new();
        for (number, address) in exposed {
            metrics.push(MetricsListener::start(address, &handles, number, &cluster.mount)?);
            logs[number].line(&format!("metrics at {address}"));
        }
        if self.announce {
            announce();
        }
        let key_file = Arc::new(KeyFile::watch(&cluster, secret, logs.clone(), audits.clone()));
        let agent_starter = AgentStarter::watch(Arc::clone(&handles));
        if let Err(error) = &agent_starter {
            logs.iter()
                .for_each(|log| log.line(&format!("warn: the agent is not started: no thread: {error}")));
        }
        let (watched, ended) = (Arc::clone(&handles), Arc::new(AtomicBool::new(false)));
        let has_ended = Arc::clone(&ended);
        let watcher = std::thread::spawn(move || {
            watched.iter().for_each(|handle| block_on(handle.stopped()));
            has_ended.store(true, Ordering::SeqCst);
            let _ = signals::send(std::process::id() as i32, libc::SIGTERM); // wakes the loop below
        });
        let mut is_told = false;
        loop {
            let signal = signals.wait().number;
            if ended.load(Ordering::SeqCst) {
                break;
            } else if signal == libc::SIGHUP {
                logs.iter().for_each(Log::reopen);
                audits.iter().for_each(|audit| audit.reopen());
                key_file.take_up();
            } else if std::mem::replace(&mut is_told, true) {
                handles.iter().for_each(ServerHandle::skip_writeback);
            } else {
                handles.iter().for_each(ServerHandle::request_stop);
            }
        }
        let _ = watcher.join(); // a panic has been printed there
        if let Ok(starter) = agent_starter {
            starter.end();
        }
        drop(metrics);
        key_file.end();
        audits.iter().for_each(|audit| audit.finish());
        logs.iter().for_each(|log| log.line("ended in order"));
        Ok(0)
    }
}

/// Refuses to begin a new cluster while a target of this host belongs to one. Its metadata is missing, not new.
fn check_format(cluster: &Cluster) -> Result<(), Failure> {
    let env = RealEnv::new();
    let here = || cluster.servers.iter().filter(|server| runs_here(server));
    let Some(metadata) = here().find_map(|server| server.metadata.as_ref()) else { return Ok(()) };
    if block_on(metadata::is_formatted(&env, &metadata::Config::new(metadata.path.clone(), cluster.map()))) {
        return Ok(());
    }
    for target in here().flat_map(|server| &server.targets) {
        if block_on(Target::has_identity(&env, &target.path)) {
            let why = format!("blank, but {} at {} belongs to a cluster", target.id, target.path.display());
            return Err(Failure::new(metadata.path.display(), why).remedy(
                "mount the disk of the metadata, or restore it from a copy; for a new cluster, give all targets blank \
                 directories",
            ));
        }
    }
    Ok(())
}

fn unknown(cluster: &Cluster, name: &str) -> Failure {
    let names: Vec<_> = cluster.servers.iter().map(|server| server.name.as_str()).collect();
    Failure::misuse(format!("server {name:?}"), format!("{} does not name it", cluster.file.display()))
        .remedy(format!("it names: {}", names.join(", ")))
}

/// How servers start.
#[derive(Clone, Copy)]
struct StartOptions {
    join: Join,
    accept_lost_log: bool,
}

fn start(
    cluster: &Cluster,
    id: ServerId,
    server: &Server,
    (secret, options, audit): (&ClusterSecret, StartOptions, Option<Arc<AuditLog>>),
    log: &Log,
) -> Result<ServerHandle<RealEnv>, Failure> {
    let join = options.join;
    let targets = server.targets.iter().map(|target| target.path.as_path());
    let logs = server.targets.iter().filter_map(|target| Some(target.log()?.0));
    let metadata = server.metadata.iter().map(|metadata| metadata.path.as_path());
    // A missing directory of a target or of the metadata may mean that its disk is not mounted.
    let blank = targets.clone().chain(metadata.clone()).filter(|_| join == Join::Format);
    for path in blank.chain(logs.clone()) {
        directory(path, 0o700)?;
    }
    for path in targets.chain(logs).chain(metadata) {
        weft_config::check_private_dir(path)?;
    }
    for address in &server.addresses {
        if let Address::Unix(socket) = address {
            let dir = socket.parent().unwrap_or(Path::new("/"));
            directory(dir, 0o755)?;
            weft_config::check_private_dir(dir)?;
        }
    }
    let sink = log.clone();
    let map = cluster.map();
    let config = ServerConfig {
        server: id,
        name: server.name.clone(),
        cluster: cluster.name.clone(),
        addresses: server.addresses.clone(),
        secret: secret.clone(),
        targets: server.targets.iter().map(|found| target(cluster, found, log)).collect::<Result<_, _>>()?,
        metadata: (server.metadata.as_ref())
            .map(|found| metadata_config(cluster, found, options.accept_lost_log))
            .transpose()?,
        metadata_server: Some(map.server(map.metadata).clone()),
        limits: Limits {
            connections_max: server.connections_max,
            greetings_max: server.greetings_max,
            user_connections: cluster.limits.user_connections,
            payload_memory_max: server.payload_memory,
            user_payload: cluster.limits.user_payload,
            writable_leases: match cluster.limits.writable_leases {
                weft_config::WritableLeases::Own => WritableLeases::Own,
                weft_config::WritableLeases::All => WritableLeases::All,
            },
            ..Limits::default()
        },
        security: cluster.security,
        idle_exit: cluster.idle_exit,
        levels: weft_config::levels(),
        sample: server.sample,
        join,
        registers: true,
        hooks: Hooks {
            memory: resident_memory,
            log: Arc::new(move |line| sink.line(line)),
            pid: std::process::id(),
            // SAFETY: geteuid has no preconditions and cannot fail.
            uid: unsafe { libc::geteuid() },
            is_ended: signals::end_is_pending,
            audit: audit.map(|audit| audit as Arc<dyn Sink>),
        },
    };
    block_on(weft_server::Server::start(RealEnv::new(), config))
        .map_err(|error| Failure::new(format!("server {}", server.name), error))
}

fn metadata_config(
    cluster: &Cluster,
    found: &weft_config::Metadata,
    accept_lost_log: bool,
) -> Result<metadata::Config, Failure> {
    let mut config = metadata::Config::new(found.path.clone(), cluster.map());
    let options = &mut config.options;
    options.accept_lost_log = accept_lost_log;
    options.levels = weft_config::levels();
    options.placement = cluster.placement.clone();
    options.compression = cluster.compression;
    options.inline_max = cluster.inline_max;
    options.grace = found.grace;
    // As long as a client waits for a server by default, and a little more.
    options.orphans_kept = Nanos::from_s(20 * 60);
    options.syncs_all_names = found.syncs_all_names;
    options.targets = cluster.settings();
    options.keeps_map = true;
    let weft_config::Limits { user_opens: opens, user_locks: locks, user_inodes: inodes, .. } =
        cluster.limits;
    options.user = metadata::UserBounds { opens, locks, inodes };
    options.poll_interval = Some(ASK_EVERY);
    options.journal.cache_len = found.cache;
    options.journal.commit_delay = found.commit_delay;
    options.journal.commit_changes_max = found.commit_max;
    options.emulate = found.emulate.as_ref().map(emulation).transpose()?;
    Ok(config)
}

/// Reads the parameters of a device. `line` of the cluster file is named in errors.
fn profile(device: &Emulate, line: &str) -> Result<Profile, Failure> {
    let profile = match device {
        Emulate::Named(name) => Profile::by_name(name),
        Emulate::File(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| {
                Failure::new(path.display(), error).remedy("write one with `weft profile --output FILE PATH`")
            })?;
            Profile::from_toml(&text)
        }
    };
    profile.map_err(|error| Failure::misuse(format!("{line} = \"{device}\""), error))
}

/// Returns the emulation of a device.
fn emulation(device: &Emulate) -> Result<Emulation, Failure> {
    let profile = profile(device, "emulate")?;
    // Disks differ in their initial angle.
    let seed = Arc::new(AtomicU64::new(std::process::id().into()));
    let name = profile.name.clone();
    let build = move || profile.build(seed.fetch_add(0x9e37_79b9, Ordering::Relaxed));
    Ok(Emulation { profile: name, build: Arc::new(build) })
}

fn target(cluster: &Cluster, target: &weft_config::Target, log: &Log) -> Result<TargetConfig, Failure> {
    Ok(TargetConfig {
        id: target.id,
        class: target.class.clone(),
        settings: target.settings(),
        path: target.path.clone(),
        module: target.module,
        queue_depth: target.queue_depth,
        leases: target.leases,
        integrity: target.integrity,
        emulate: target.emulate.as_ref().map(emulation).transpose()?,
        ibridge: target.ibridge.as_ref().map(|found| ibridge(cluster, target, found, log)).transpose()?,
        cache: target.cache.as_ref().map(|found| cache(cluster, target, found, log)).transpose()?,
    })
}

/// Returns the service-time curve of a target's disk for iBridge: of the device in the cluster file, or measured.
fn curve(cluster: &Cluster, target: &weft_config::Target, log: &Log) -> Result<ServiceCurve, Failure> {
    let of_profile = || Ok(profile(&target.figures(), "profile")?.service_curve());
    let takes = target.takes_measured();
    if takes == TakesMeasured::No {
        return of_profile();
    }
    let found = measured::figures(cluster).and_then(|report| {
        let report =
            report.ok_or_else(|| Failure::misuse("profile = \"measured\"", "nothing was measured"))?;
        let class = measured::of_target(&report, target).and_then(|class| class.curve.as_ref());
        let class = class.ok_or_else(|| {
            let why = format!("class {} has changed since it was measured", target.class);
            Failure::misuse("profile = \"measured\"", why)
        })?;
        class.service_curve().map_err(|error| Failure::misuse("profile = \"measured\"", error))
    });
    match found {
        Ok(curve) => {
            log.line(&format!("target {}: seek times are those that weft profile measured", target.id.0));
            Ok(curve)
        }
        Err(failure) if takes == TakesMeasured::Must => Err(failure.remedy("measure with `weft profile`")),
        Err(_) => of_profile(),
    }
}

fn ibridge(
    cluster: &Cluster,
    target: &weft_config::Target,
    found: &weft_config::Ibridge,
    log: &Log,
) -> Result<IbridgeConfig, Failure> {
    Ok(IbridgeConfig {
        path: found.path.clone(),
        size: found.size,
        policy: found.policy,
        thresholds: Thresholds { fragments_below: found.fragments_below, random_below: found.random_below },
        weight: found.weight,
        curve: curve(cluster, target, log)?,
        exchange: found.exchange,
        stale: found.stale,
        idle: found.idle,
        dirty_high: found.dirty_high,
        dirty_low: found.dirty_low,
        preload: found.preload,
        entry_len: found.entry_size,
        emulate: found.emulate.as_ref().map(emulation).transpose()?,
    })
}

fn cache(
    cluster: &Cluster,
    target: &weft_config::Target,
    found: &weft_config::Cache,
    log: &Log,
) -> Result<CacheConfig, Failure> {
    let own = |own: &weft_config::CacheLog| -> Result<LogConfig, Failure> {
        Ok(LogConfig {
            path: own.path.clone(),
            size: own.size,
            curve: curve(cluster, target, log)?,
            idle: own.idle,
            dirty_high: own.dirty_high,
            dirty_low: own.dirty_low,
            entry_len: own.entry_size,
            emulate: own.emulate.as_ref().map(emulation).transpose()?,
        })
    };
    Ok(CacheConfig {
        mode: found.mode,
        eviction: found.eviction,
        share: found.share,
        prefetch: found.prefetch,
        log: found.log.as_ref().map(own).transpose()?,
    })
}

/// Creates a directory, but not its parents: if a disk is not mounted, data would go to the wrong disk.
fn directory(path: &Path, mode: u32) -> Result<(), Failure> {
    use std::os::unix::fs::DirBuilderExt;
    match std::fs::DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => {
            Err(Failure::new(path.display(), error)
                .remedy("is its disk mounted? create its parent directory"))
        }
        Ok(()) => Ok(()),
    }
}

/// Whether the server runs on this host.
pub fn runs_here(server: &Server) -> bool {
    let tcp = server.addresses.iter().find_map(|address| match address {
        Address::Tcp(host, _) => Some(host.as_str()),
        Address::Unix(_) => None,
    });
    server.host.as_deref().or(tcp).is_none_or(is_this_host)
}

pub fn is_this_host(host: &str) -> bool {
    let name = weft_config::host_name();
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    // Only an address of this host can be bound.
    host == name
        || short(host) == short(&name) && !host.contains(':')
        || UdpSocket::bind((host.trim_matches(['[', ']']), 0)).is_ok()
}

/// Raises the limit of open files to the system's maximum, for connections and datafiles.
pub fn more_files() {
    // SAFETY: rlimit is plain data; both pointers are to a local.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Reports "ready" to the parent process and closes its pipe.
pub fn announce() {
    let mut out = std::io::stdout();
    let _ = out.write_all(b"ready\n").and_then(|()| out.flush()); // the parent may have ended
    // SAFETY: the path is a C string; both descriptors are this process's own.
    unsafe {
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if null >= 0 {
            libc::dup2(null, 1);
            libc::close(null);
        }
    }
}

/// Returns the resident memory of this process.
pub fn resident_memory() -> ByteLen {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    // SAFETY: sysconf has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    ByteLen(pages.unwrap_or(0) * page)
}
