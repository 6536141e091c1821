//! Starts the agent of the server's user while the servers of this process have no clients.

use crate::commands::agent;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weft_core::Nanos;
use weft_env::real::RealEnv;
use weft_server::ServerHandle;

/// Time without clients after which the servers count as idle.
const IDLE_MIN: Nanos = Nanos::from_s(10);
/// Interval at which servers, queue and a started agent are checked.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Shortest time between two starts, so that an agent that fails at once does not fill its log.
const START_PAUSE: Duration = Duration::from_secs(60);

/// A thread that starts the agent for queued jobs.
pub struct AgentStarter {
    has_ended: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl AgentStarter {
    /// Watches the servers of this process.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn watch(servers: Arc<Vec<ServerHandle<RealEnv>>>) -> std::io::Result<Self> {
        let has_ended = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&has_ended);
        let watch = move || {
            let mut last: Option<(Child, Instant)> = None;
            while !is_over.load(Ordering::SeqCst) {
                std::thread::park_timeout(LOOK_EVERY);
                let is_due = match &mut last {
                    None => true,
                    // `try_wait` also takes the state of an agent that has ended from the system.
                    Some((agent, at)) => !matches!(agent.try_wait(), Ok(None)) && at.elapsed() >= START_PAUSE,
                };
                let are_idle = || servers.iter().all(|server| server.idle_for() >= IDLE_MIN);
                if is_due && are_idle() && !is_over.load(Ordering::SeqCst) {
                    last = agent::start_unless_stopped().map(|agent| (agent, Instant::now())).or(last);
                }
            }
        };
        let thread = std::thread::Builder::new().name("weft agent".into()).spawn(watch)?;
        Ok(Self { has_ended, thread })
    }

    /// Ends the thread. An agent that it has started goes on.
    pub fn end(self) {
        self.has_ended.store(true, Ordering::SeqCst);
        self.thread.thread().unpark();
        let _ = self.thread.join(); // a panic has been printed there
    }
}
