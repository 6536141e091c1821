//! `weft delegate --spawn`: delegates are the processes of an MPI job and start the program with MPI_Comm_spawn.
//!
//! ```text
//! all delegates   serve ── MPI_Init ───────────────────────────── write all bytes ── MPI_Finalize
//! delegate 0                     └─ MPI_Comm_spawn ── ranks end ──┘     (a rank failed: MPI_Abort)
//! ```
//!
//! A thread of its own calls MPI, because MPI_Comm_spawn returns only after all ranks have called MPI_Init, which they may
//! do after their first access to a file. Delegate 0 alone spawns: the others only take part in MPI_Init and MPI_Finalize.
//! The communicator between delegates and ranks is not disconnected. Open MPI fails to disconnect it when the program does
//! not do so, too, and MPI_Finalize of the ranks does not wait for delegates.

use super::mpi::Mpi;
use super::ranks::{self, Ranks};
use super::{Serve, meeting, stop};
use crate::failure::{FAILED, Failure, MISUSED};
use crate::logging::Log;
use crate::signals;
use libc::c_int;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weft_config::Cluster;
use weft_config::job::Job;
use weft_core::ServerId;
use weft_env::real::{RealEnv, block_on};
use weft_server::ServerHandle;

/// Time after the request to end within which ranks end.
const END_WAIT: Duration = Duration::from_secs(15);
/// Time within which MPI_Comm_spawn returns after all ranks have ended, if they have called MPI_Init.
const SPAWN_WAIT: Duration = Duration::from_secs(2);
/// Time within which the launcher ends this process after MPI_Abort.
const ABORT_WAIT: Duration = Duration::from_secs(30);
/// Time within which the launcher reads messages.
const READ_WAIT: Duration = Duration::from_secs(2);
/// Interval between two looks at the state of another thread or delegate.
const POLL: Duration = Duration::from_millis(10);

/// A program to start.
pub struct Program {
    mpi: Mpi,
    count: u32,
    name: String,
    words: Vec<CString>,
}

/// Progress of the thread that calls MPI.
#[derive(Clone, Default, Debug)]
enum Stage {
    /// MPI_Init has not returned.
    #[default]
    Starting,
    /// MPI_Comm_spawn has not returned. The field says whether other threads may call MPI.
    Spawning(bool),
    /// The program runs, or this delegate does not start it.
    Ready,
    /// The program was not started. The field says whether MPI_Finalize must be called.
    Failed(Failure, bool),
    /// MPI_Finalize is to be called.
    Finalize,
    /// MPI_Abort is to be called.
    Abort(u8),
    /// MPI_Finalize has returned.
    Finalized,
}

#[derive(Default)]
struct Shared {
    stage: Mutex<Stage>,
    changed: Condvar,
    /// End of the program: the rank that failed, if one did.
    end: Mutex<Option<Result<(), Failure>>>,
    /// Whether this delegate has ended.
    is_over: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn set(&self, stage: Stage) {
        *lock(&self.stage) = stage;
        self.changed.notify_all();
    }

    fn stage(&self) -> Stage {
        lock(&self.stage).clone()
    }

    /// Waits until the delegate ends. Returns the command.
    fn command(&self) -> Stage {
        let mut stage = lock(&self.stage);
        loop {
            match &*stage {
                command @ (Stage::Finalize | Stage::Abort(_)) => return command.clone(),
                _ => stage = self.changed.wait(stage).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl Program {
    /// Loads the MPI library of the program that `--spawn` starts.
    pub fn of(serve: &Serve) -> Result<Option<Self>, Failure> {
        let Some(count) = serve.spawn else { return Ok(None) };
        let mpi = Mpi::load(serve.mpi.as_deref().map(Path::as_os_str), &serve.program[0])?;
        mpi.check_launcher()?;
        let name = serve.program[0].to_string_lossy().into_owned();
        Ok(Some(Self { mpi, count, name, words: Vec::new() }))
    }

    /// Sets the command of each rank.
    fn command(
        &mut self,
        cluster: Option<&Cluster>,
        dir: &Path,
        program: &[OsString],
    ) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::new("finding this program's own file", error);
        let absolute = |path: &Path| std::path::absolute(path).map(PathBuf::into_os_string).map_err(failed);
        let mut words = vec![std::env::current_exe().map_err(failed)?.into_os_string()];
        // `weft run` knows embedded clusters by their state directory.
        match cluster.map(|cluster| (cluster, &cluster.embedded)) {
            Some((_, Some(state))) => words.extend(["run".into(), "--state".into(), absolute(state)?]),
            Some((cluster, None)) => {
                words.extend(["--cluster".into(), absolute(&cluster.file)?, "run".into()]);
            }
            None => words.push("run".into()),
        }
        words.extend(["--spawned".into(), "--job".into(), absolute(dir)?, "--".into()]);
        words.push(match program[0].as_bytes().contains(&b'/') {
            true => absolute(Path::new(&program[0]))?,
            false => program[0].clone(),
        });
        words.extend_from_slice(&program[1..]);
        let word = |word: OsString| {
            CString::new(word.into_vec()).map_err(|error| Failure::misuse("the program's arguments", error))
        };
        self.words = words.into_iter().map(word).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Starts the program from delegate 0, and watches the ranks of this host.
    pub fn start(
        mut self,
        serve: &Serve,
        cluster: Option<&Cluster>,
        part: (&Path, u32, &Job),
        handle: &Arc<ServerHandle<RealEnv>>,
        log: &Log,
    ) -> Result<Running, Failure> {
        let (dir, index, job) = part;
        self.command(cluster, dir, &serve.program)?;
        let count = self.count;
        let running = Running {
            shared: Arc::default(),
            mpi: self.mpi.clone(),
            dir: dir.to_owned(),
            index,
            delegates: job.delegates.len() as u32,
        };
        if index == 0 {
            let (name, library, abi) = (&self.name, &self.mpi.library, self.mpi.abi());
            log.line(&format!("starts {count} ranks of {name} with {library} ({abi} ABI)"));
        }
        let stop = Stop { job: job.clone(), index, handle: Arc::clone(handle) };
        let (shared, delegates, stop_failed) = (Arc::clone(&running.shared), running.delegates, stop.clone());
        std::thread::spawn(move || self.call_mpi(&shared, index, delegates, &stop_failed));
        let (shared, dir) = (Arc::clone(&running.shared), dir.to_owned());
        std::thread::spawn(move || {
            if let Some(end) = watch(&dir, index, count, &shared.is_over) {
                *lock(&shared.end) = Some(end);
                stop.all();
            }
        });
        Ok(running)
    }

    fn call_mpi(&self, shared: &Shared, index: u32, delegates: u32, stop: &Stop) {
        let fail = |failure: Failure, is_initialized: bool| {
            shared.set(Stage::Failed(failure, is_initialized));
            stop.all();
        };
        match self.mpi.init() {
            Err(failure) => return fail(failure, false),
            Ok((size, _)) if size != delegates => {
                let why =
                    format!("the size of MPI_COMM_WORLD is {size}, and the job has {delegates} delegates");
                let failure = Failure::misuse(format!("MPI library {}", self.mpi.library), why).remedy(
                    "start all delegates with one mpiexec of this library, or name its library with --mpi LIB",
                );
                fail(failure, true);
            }
            Ok((_, is_multiple)) if index == 0 => {
                shared.set(Stage::Spawning(is_multiple));
                match self.mpi.spawn(&self.words[0], &self.words[1..], self.count) {
                    Ok(()) => shared.set(Stage::Ready),
                    Err(failure) => {
                        let remedy = "this MPI or its launcher may not support it or have too few slots; \
                                      use `weft run --delegates N -- mpiexec ... PROGRAM`";
                        fail(failure.remedy(remedy), true);
                    }
                }
            }
            Ok(_) => shared.set(Stage::Ready),
        }
        match shared.command() {
            Stage::Abort(code) => self.mpi.abort(code),
            _ => self.mpi.finalize(),
        }
        shared.set(Stage::Finalized);
    }
}

/// Waits until the launcher has read the messages of this process. MPICH's launcher drops messages that it has not read when
/// a process calls MPI_Abort.
fn wait_until_read() {
    let began = Instant::now();
    while unread_bytes() > 0 && began.elapsed() < READ_WAIT {
        std::thread::sleep(POLL);
    }
}

/// Returns the number of bytes of standard error that its reader has not read. Zero if it is a file.
fn unread_bytes() -> i32 {
    let mut len: c_int = 0;
    // SAFETY: zeros are a valid `stat`, which the first call fills in, and each of the requests writes one int. Pipes know
    // FIONREAD, sockets and terminals TIOCOUTQ; an error leaves the zero.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        let is_known = libc::fstat(libc::STDERR_FILENO, &raw mut stat) == 0;
        let is_pipe = is_known && stat.st_mode & libc::S_IFMT == libc::S_IFIFO;
        let request = if is_pipe { libc::FIONREAD } else { libc::TIOCOUTQ };
        libc::ioctl(libc::STDERR_FILENO, request, &raw mut len);
    }
    len
}

/// Ends the delegates.
#[derive(Clone)]
struct Stop {
    job: Job,
    index: u32,
    handle: Arc<ServerHandle<RealEnv>>,
}

impl Stop {
    /// Ends all delegates from delegate 0, and else this one. They first write all bytes.
    fn all(&self) {
        if self.index == 0
            && let Ok(client) = stop::client(&self.job)
        {
            for index in 1..self.job.delegates.len() {
                let _ = block_on(client.shutdown(ServerId(index as u32))); // it may have ended
            }
        }
        self.handle.request_stop();
    }
}

/// Watches the ranks until all have ended. Delegate 0 ends the others when one has failed. Returns how the program ended,
/// `None` if this delegate ended before.
fn watch(dir: &Path, index: u32, count: u32, is_over: &AtomicBool) -> Option<Result<(), Failure>> {
    let mut ranks = Ranks::new(dir);
    let mut ending: Option<Instant> = None;
    loop {
        if let Err(failure) = ranks.look() {
            return (index == 0).then_some(Err(failure));
        }
        if index == 0 {
            let failure = ranks
                .failed()
                .map(|(rank, end)| Failure::new(format!("rank {rank}"), end.text()).code(end.code));
            let is_late = ending.is_some_and(|since| since.elapsed() > END_WAIT);
            if ranks.ended() == count as usize || ending.is_some() && ranks.all_started_ended() || is_late {
                return Some(failure.map_or(Ok(()), Err));
            }
            if let (Some(failure), None) = (failure, ending) {
                if let Err(other) = ranks::end_all(dir) {
                    errln!("{other}");
                    return Some(Err(failure));
                }
                ending = Some(Instant::now());
            }
        }
        if is_over.load(Ordering::SeqCst) {
            return None;
        }
        std::thread::sleep(ranks::POLL);
    }
}

/// The program's delegates, as one of them sees it.
pub struct Running {
    shared: Arc<Shared>,
    mpi: Mpi,
    dir: PathBuf,
    index: u32,
    delegates: u32,
}

impl Running {
    /// Ends MPI after this delegate has written all its bytes. Returns the exit code of the program in delegate 0.
    pub fn finish(self, code: u8) -> Result<u8, Failure> {
        self.shared.is_over.store(true, Ordering::SeqCst);
        if self.index > 0 {
            return Ok(match self.shared.stage() {
                Stage::Starting => code,
                Stage::Failed(_, false) => FAILED,
                Stage::Failed(..) => {
                    self.finalize();
                    MISUSED
                }
                _ => {
                    self.finalize();
                    code
                }
            });
        }
        if let Stage::Failed(failure, is_initialized) = self.shared.stage() {
            if is_initialized {
                self.finalize();
            }
            ranks::remove_all(&self.dir);
            return Err(failure);
        }
        let mut end = lock(&self.shared.end).take().unwrap_or_else(|| {
            let _ = ranks::end_all(&self.dir); // the launcher ends the ranks, too
            Err(Failure::new("the program", "its delegates were ended before it"))
        });
        self.wait(SPAWN_WAIT, |stage| !matches!(stage, Stage::Starting | Stage::Spawning(_)));
        let stage = self.shared.stage();
        if end.is_ok() && !matches!(stage, Stage::Ready) {
            end = Err(Failure::new("the program", "its ranks have ended without MPI_Init")
                .remedy("start it with `weft run --delegates N -- PROGRAM`"));
        }
        let Err(failure) = end else {
            self.finalize();
            ranks::remove_all(&self.dir);
            return Ok(code);
        };
        // MPI_Abort ends the other delegates, too: each removes its file after it has written all bytes.
        while meeting::announced(&self.dir).iter().any(|(index, _)| *index < self.delegates)
            && !signals::end_is_pending()
        {
            std::thread::sleep(POLL);
        }
        errln!("{failure}");
        wait_until_read();
        match stage {
            Stage::Ready => self.shared.set(Stage::Abort(failure.exit_code())),
            // Its own thread waits in MPI_Comm_spawn.
            Stage::Spawning(true) => self.mpi.abort(failure.exit_code()),
            _ => return Ok(failure.exit_code()),
        }
        self.wait(ABORT_WAIT, |stage| matches!(stage, Stage::Finalized));
        Ok(failure.exit_code())
    }

    /// Calls MPI_Finalize, which returns when all delegates have called it.
    fn finalize(&self) {
        self.shared.set(Stage::Finalize);
        while !matches!(self.shared.stage(), Stage::Finalized) && !signals::end_is_pending() {
            std::thread::sleep(POLL);
        }
    }

    fn wait(&self, limit: Duration, is_done: impl Fn(&Stage) -> bool) {
        let stage = lock(&self.shared.stage);
        drop(self.shared.changed.wait_timeout_while(stage, limit, |stage| !is_done(stage)));
    }
}
