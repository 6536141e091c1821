//! The process of one delegate.

use super::meeting::{Delegate, Meeting};
use super::spawn::Program;
use super::{Serve, directories, ranks};
use crate::commands::serve::{announce, is_this_host, more_files, resident_memory};
use crate::commands::session::Weft;
use crate::failure::{FAILED, Failure};
use crate::launcher::Position;
use crate::logging::Log;
use crate::signals::{self, Blocked};
use crate::{interface, job_dir};
use std::ffi::OsStr;
use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weft_client::ClientOptions;
use weft_config::job::{Job, Place, job_name, make_job_key};
use weft_config::{Cluster, LogLevel};
use weft_core::Nanos;
use weft_delegate::{DelegateConfig, HostOrWeft};
use weft_env::Address;
use weft_env::real::{RealEnv, block_on};
use weft_server::{Hooks, ServerHandle};
use weft_wire::ClusterSecret;
use weft_wire::hello::JobNumber;

/// Time without a request after which dirty bytes are written.
const IDLE: Nanos = Nanos::from_ms(50);
/// Time without a connected process after which a delegate without its parent ends.
const ORPHAN_IDLE: Nanos = Nanos::from_ms(500);
/// Interval at which a delegate without its parent looks for connected processes.
const ORPHAN_POLL: Duration = Duration::from_millis(100);

/// Place of a delegate in its job.
struct Part {
    index: u32,
    job: Job,
    secret: ClusterSecret,
    addresses: Vec<Address>,
    /// Number of delegates on this host.
    on_host: u32,
    meeting: Option<Meeting>,
    /// Local directory of the socket, unless it is the job directory.
    sockets: Option<PathBuf>,
    log: Option<PathBuf>,
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(meeting) = &self.meeting {
            meeting.leave();
        }
        if let Some(dir) = &self.sockets {
            job_dir::remove_sockets(dir);
        }
    }
}

impl Serve {
    /// Serves until a signal ends the process.
    pub(super) fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let settings = self.settings();
        settings.check()?;
        more_files();
        // Threads inherit this mask: only the loop below receives these signals.
        let signals = Blocked::new(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP]);
        let program = Program::of(&self)?;
        let part = if self.peers.is_some() { self.without_directory()? } else { self.meet()? };
        let name = format!("delegate {}", part.index);
        let log = Log::open(&name, part.log.as_deref(), LogLevel::Info)
            .map_err(|error| Failure::new(format!("log of {name}"), error))?;
        let is_named = file.is_some();
        let cluster = self.cluster(file)?;
        let client = client(cluster.clone(), &part.job.name)?;
        if program.is_some() && part.index == 0 {
            ranks::remove_all(&self.job_dir()?); // of an earlier program
        }
        let has_failed = Arc::new(AtomicBool::new(false));
        let count = part.job.delegates.len() as u32;
        let job = settings.of_job(part.index, count, part.on_host);
        let config = DelegateConfig {
            job: part.job.name.clone(),
            delegates: part.job.delegates.clone(),
            addresses: part.addresses.clone(),
            secret: part.secret.clone(),
            dirty_high: job.memory.0 / 2,
            settings: job,
            idle: IDLE,
            idle_exit: self.idle_exit,
            host: job_dir::host_name(),
            hooks: hooks(&name, &log, &has_failed),
        };
        let env = RealEnv::new();
        let handle = block_on(weft_delegate::start(env, config, HostOrWeft::new(env, client)))
            .map_err(|error| Failure::new(&name, error))
            .inspect_err(|failure| log.line(&format!("error: not started: {failure}")))?;
        let addresses: Vec<_> = handle.addresses().iter().map(ToString::to_string).collect();
        log.line(&format!("serves job {} on {}", part.job.name, addresses.join(", ")));
        if let Some(meeting) = &part.meeting
            && let Err(failure) = meeting.serve(&part.job)
        {
            block_on(handle.stop());
            return Err(failure);
        }
        if self.announce {
            announce();
        }
        let handle = Arc::new(handle);
        let is_orphan = Arc::new(AtomicBool::new(false));
        if self.child_of.is_some() {
            watch_parent(&handle, &is_orphan);
        }
        let start = |program: Program| {
            let place = (&*self.job_dir()?, part.index, &part.job);
            // As with `weft run`, directories need no cluster.
            let cluster = cluster.as_ref().filter(|_| is_named || self.over.is_empty());
            program.start(&self, cluster, place, &handle, &log)
        };
        let running = program.map(start).transpose().inspect_err(|_| block_on(handle.stop()))?;
        wait_for_end(&signals, &handle, &log);
        log.line("ended in order");
        drop(part);
        let code = if has_failed.load(Ordering::SeqCst) { FAILED } else { 0 };
        if let Some(running) = running {
            return running.finish(code);
        }
        if let Some(dir) = self.child_of.filter(|_| is_orphan.load(Ordering::SeqCst)) {
            // The last delegate cleans up for the parent.
            let _ = job_dir::remove(&dir);
        }
        Ok(code)
    }

    /// Returns the job directory.
    fn job_dir(&self) -> Result<PathBuf, Failure> {
        let dir = self.job.as_ref().ok_or_else(|| {
            Failure::misuse("weft delegate", "no job directory is named")
                .remedy("give --job DIR, a directory that all hosts of the job share")
        })?;
        std::path::absolute(dir).map_err(|error| Failure::misuse(dir.display(), error))
    }

    /// Meets the other delegates in the job directory.
    fn meet(&self) -> Result<Part, Failure> {
        let position = Position::from_env();
        let index = self.index.or(position.index).unwrap_or(0);
        let count = self.of.or(position.count).unwrap_or(1);
        if index >= count {
            let why = format!("there are only {count} delegates, counted from 0");
            return Err(Failure::misuse(format!("delegate {index}"), why)
                .remedy("give --index and --of, or start as many as --of says"));
        }
        let dir = self.job_dir()?;
        let over = directories(&self.over)?;
        let dir = job_dir::open(&dir)?;
        let secret = make_job_key(&dir)?;
        let name = job_name(&secret);
        let (socket_dir, sockets) = match &self.child_of {
            Some(dir) => (dir.clone(), None),
            None => {
                let dir = job_dir::sockets(&name, &dir)?;
                (dir.clone(), Some(dir))
            }
        };
        let mut addresses = vec![Address::Unix(socket_dir.join(format!("d{index}.sock")))];
        addresses.extend(self.network()?);
        let own = Delegate {
            host: job_dir::host_name(),
            pid: std::process::id(),
            address: addresses.iter().map(ToString::to_string).collect(),
            settings: self.settings().text(&over),
        };
        let wait = self.wait.as_duration();
        let meeting = Meeting { dir: dir.clone(), index, count, wait };
        let come = meeting.come(&own);
        // A refusal leaves the files of the delegate that is in the way.
        let others = match come {
            Ok(others) => others,
            Err(failure) => {
                meeting.leave_if_own(&own);
                sockets.iter().for_each(|dir| job_dir::remove_sockets(dir));
                return Err(failure);
            }
        };
        let on_host = others.iter().filter(|other| other.host == own.host).count() as u32;
        let job = Job::new(&dir, name, others.iter().map(Delegate::addresses).collect(), over);
        let log = Some(dir.join(format!("delegate-{index}.log")));
        let part = Part { index, job, secret, addresses, on_host, meeting: Some(meeting), sockets, log };
        let hidden = others.iter().find(|other| other.host != own.host && other.address.len() < 2);
        match hidden {
            Some(other) => {
                let why = format!(
                    "delegates run on several hosts, and that on {} has no network address",
                    other.host
                );
                Err(Failure::misuse(dir.display(), why).remedy("start all delegates with --listen HOST:PORT"))
            }
            None => Ok(part),
        }
    }

    /// Takes its place in a job whose delegates all know all addresses.
    fn without_directory(&self) -> Result<Part, Failure> {
        let (Some(peers), Some(key)) = (&self.peers, &self.key) else { unreachable!("clap requires both") };
        let Place::Addresses(all) = Place::parse(OsStr::new(peers))? else {
            return Err(Failure::misuse("--peers", "it is a directory").remedy("write HOST:PORT,HOST:PORT"));
        };
        let here = |address: &Address| matches!(address, Address::Tcp(host, _) if is_this_host(host));
        let index = match (self.index.or(Position::from_env().index), all.iter().position(here)) {
            (Some(index), _) => index as usize,
            (None, Some(first)) if all.iter().filter(|address| here(address)).count() == 1 => first,
            _ => {
                return Err(Failure::misuse("--peers", "which of them is this delegate is not known")
                    .remedy("give --index I, from 0"));
            }
        };
        let address = all.get(index).cloned().ok_or_else(|| {
            Failure::misuse(
                format!("delegate {index}"),
                format!("--peers names only {} addresses", all.len()),
            )
        })?;
        let on_host = all.iter().filter(|address| here(address)).count() as u32;
        let delegates = all.into_iter().map(|address| vec![address]).collect();
        let mut job = Job::new(Path::new("/"), String::new(), delegates, directories(&self.over)?);
        job.key_file = std::path::absolute(key).map_err(|error| Failure::misuse(key.display(), error))?;
        let secret = job.secret()?;
        job.name = job_name(&secret);
        let (addresses, meeting, sockets, log) = (vec![address], None, None, None);
        Ok(Part { index: index as u32, job, secret, addresses, on_host, meeting, sockets, log })
    }

    /// Returns the network address to listen on.
    fn network(&self) -> Result<Option<Address>, Failure> {
        if self.listen == "unix" {
            return Ok(None);
        }
        let wrong = || {
            Failure::misuse(format!("--listen {}", self.listen), "not a network address")
                .remedy("write HOST:PORT, INTERFACE:PORT, :PORT for this host's name, port 0 for a free port, or unix")
        };
        let (host, port) = self.listen.rsplit_once(':').ok_or_else(wrong)?;
        let is_own_name = host.is_empty();
        let host = match interface::address(host) {
            Some(address) => address.to_string(),
            None if is_own_name => job_dir::host_name(),
            None => host.to_owned(),
        };
        let mut port: u16 = port.parse().map_err(|_| wrong())?;
        let _: Address = format!("tcp:{host}:{port}").parse().map_err(|_| wrong())?;
        // The other delegates learn the port before this one serves.
        let free = TcpListener::bind((host.trim_matches(['[', ']']), 0)).and_then(|bound| bound.local_addr());
        let free = free.map_err(|error| {
            Failure::new(format!("--listen {}", self.listen), error).remedy("name an address of this host")
        })?;
        if is_own_name && free.ip().is_loopback() {
            let why = format!(
                "the name {host} of this host leads to {}, which other hosts cannot reach",
                free.ip()
            );
            return Err(Failure::misuse(format!("--listen {}", self.listen), why)
                .remedy("name an address or an interface, such as --listen ib0:0"));
        }
        if port == 0 {
            port = free.port();
        }
        Ok(Some(Address::Tcp(host, port)))
    }

    /// Returns the cluster whose files the delegate serves, if there is one.
    fn cluster(&self, file: Option<PathBuf>) -> Result<Option<Cluster>, Failure> {
        let file = file.or_else(|| Cluster::find().ok()).filter(|_| !self.no_cluster);
        Ok(file.map(|file| Cluster::load(&file)).transpose()?)
    }
}

/// Returns the client of a job for files of Weft; `None` without a cluster.
fn client(cluster: Option<Cluster>, job: &str) -> Result<Option<weft_client::Client<RealEnv>>, Failure> {
    let Some(cluster) = cluster else { return Ok(None) };
    let of_job = |options: &mut ClientOptions| options.job = Some(JobNumber::of_name(job));
    Ok(Some(Weft::of_program(cluster, of_job)?.client))
}

fn hooks(name: &str, log: &Log, has_failed: &Arc<AtomicBool>) -> Hooks {
    let (sink, has_failed, name) = (log.clone(), Arc::clone(has_failed), name.to_owned());
    Hooks {
        memory: resident_memory,
        log: Arc::new(move |line| {
            sink.line(line);
            if let Some(error) = line.strip_prefix("error: ") {
                has_failed.store(true, Ordering::SeqCst);
                errln!("weft: {name}: {error}");
            }
        }),
        pid: std::process::id(),
        uid: job_dir::uid(),
        is_ended: signals::end_is_pending,
        audit: None,
    }
}

/// Ends the delegate when its parent has ended and no process is connected.
fn watch_parent(handle: &Arc<ServerHandle<RealEnv>>, is_orphan: &Arc<AtomicBool>) {
    let (handle, is_orphan) = (Arc::clone(handle), Arc::clone(is_orphan));
    std::thread::spawn(move || {
        let mut byte = [0];
        while std::io::stdin().read(&mut byte).is_ok_and(|read| read > 0) {}
        is_orphan.store(true, Ordering::SeqCst);
        while handle.idle_for() < ORPHAN_IDLE {
            std::thread::sleep(ORPHAN_POLL);
        }
        handle.request_stop();
    });
}

/// Waits until the delegate has ended, by a signal, a message or itself.
fn wait_for_end(signals: &Blocked, handle: &Arc<ServerHandle<RealEnv>>, log: &Log) {
    let (watched, ended) = (Arc::clone(handle), Arc::new(AtomicBool::new(false)));
    let has_ended = Arc::clone(&ended);
    let watcher = std::thread::spawn(move || {
        block_on(watched.stopped());
        has_ended.store(true, Ordering::SeqCst);
        let _ = signals::send(std::process::id() as i32, libc::SIGTERM); // wakes the loop below
    });
    loop {
        let signal = signals.wait().number;
        if ended.load(Ordering::SeqCst) {
            break;
        } else if signal == libc::SIGHUP {
            log.reopen();
        } else {
            handle.request_stop();
        }
    }
    let _ = watcher.join(); // a panic has been printed there
}
