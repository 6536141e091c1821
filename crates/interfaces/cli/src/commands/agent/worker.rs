//! The agent's loop: one job after another, oldest first.

use super::control::{Control, JobControl};
use super::job::{ATTEMPTS_MAX, Job, JobId, Work};
use super::lock::AgentLock;
use super::progress::Reporter;
use super::queue::{Listing, Queue};
use super::replicas::{self, Copy};
use super::retry;
use crate::failure::{FAILED, Failure};
use crate::logging::Log;
use crate::signals::Blocked;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weft_core::ByteLen;

/// Longest time until a new job is noticed.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// How a job ended, if it did not fail.
#[derive(Debug)]
pub enum Outcome {
    /// It is complete. The text says how.
    Done(String),
    /// Programs use the file, so that the job must wait. The text says why.
    InUse(String),
    /// The agent was asked to end, or the job was removed.
    Stopped,
}

/// Settings of the agent.
pub struct Settings {
    /// Whether it ends when the queue is empty.
    pub once: bool,
    /// Maximum number of bytes copied per second.
    pub rate: Option<ByteLen>,
    /// Pause after the first failed attempt.
    pub retry_pause: Duration,
}

/// The agent.
pub struct Worker<'a> {
    /// Its queue.
    pub queue: &'a Queue,
    /// Its settings.
    pub settings: Settings,
    /// Requests to end.
    pub control: &'a Control,
    /// Signals of this process, which its children do not block.
    pub signals: &'a Blocked,
    /// Its log.
    pub log: Log,
}

impl Worker<'_> {
    /// Does jobs until the agent is asked to end, or with `once` until no job is left. Returns the exit code.
    ///
    /// # Errors
    /// Errors of the queue.
    pub fn run(&self, lock: AgentLock) -> Result<u8, Failure> {
        self.queue.clean()?;
        while !self.control.is_stopped() {
            let listing = self.queue.list()?;
            self.set_aside(&listing)?;
            match self.next(&listing) {
                Next::Job(id, job) => self.attempt(id, &job)?,
                Next::After(time) => self.control.wait(time.min(POLL_INTERVAL)),
                Next::None if !self.settings.once => self.control.wait(POLL_INTERVAL),
                Next::None => {
                    // A job that is added after this look finds no agent, so that another one is started for it.
                    let _queue_lock = self.queue.lock()?;
                    let left = self.queue.list()?.jobs;
                    if left.iter().all(|(_, job)| job.has_failed()) {
                        drop(lock);
                        return Ok(if left.is_empty() { 0 } else { FAILED });
                    }
                }
            }
        }
        self.log.line("stopped; the jobs stay in the queue");
        Ok(0)
    }

    fn set_aside(&self, listing: &Listing) -> Result<(), Failure> {
        for damaged in &listing.damaged {
            let to = self.queue.set_aside(damaged)?;
            self.log.line(&format!(
                "error: {}: {}; it is not a job of this Weft and was moved to {}",
                damaged.path.display(),
                damaged.why,
                to.display()
            ));
        }
        Ok(())
    }

    fn next(&self, listing: &Listing) -> Next {
        let pause_max = retry::pause(self.settings.retry_pause.max(retry::PAUSE), ATTEMPTS_MAX);
        let now = now_s();
        let open = listing.jobs.iter().filter(|(_, job)| !job.has_failed());
        let waits = open.map(|(id, job)| (retry::remaining(now, job.retry_at_s, pause_max), *id, job));
        // The oldest one of those that need not wait.
        match waits.min_by_key(|(wait, id, _)| (*wait, *id)) {
            None => Next::None,
            Some((Duration::ZERO, id, job)) => Next::Job(id, job.clone()),
            Some((wait, ..)) => Next::After(wait),
        }
    }

    fn attempt(&self, id: JobId, job: &Job) -> Result<(), Failure> {
        let name = format!("job {id}, {} {}", job.work.kind(), job.work.path());
        self.log.line(&format!("{name}: begins"));
        match self.work(id, job) {
            Ok(Outcome::Done(what)) => {
                self.queue.finish(id, job)?;
                self.log.line(&format!("{name}: {what}"));
            }
            Ok(Outcome::Stopped) => self.log.line(&format!("{name}: stopped")),
            Ok(Outcome::InUse(why)) => {
                // The end of a program is no matter of attempts.
                let retry_at_s = now_s() + retry::pause(self.settings.retry_pause, 2).as_secs().max(1);
                self.queue.change(id, |job| {
                    job.retry_at_s = Some(retry_at_s);
                    job.set_error(&why);
                })?;
                self.log.line(&format!("{name}: {why}"));
            }
            Err(failure) => {
                let attempts = job.attempts + 1;
                let pause = retry::pause(self.settings.retry_pause, attempts);
                let changed = self.queue.change(id, |job| {
                    job.attempts = attempts;
                    job.retry_at_s = Some(now_s() + pause.as_secs());
                    job.set_error(failure.text());
                })?;
                let then = match changed.is_some_and(|job| job.has_failed()) {
                    true => format!("failed; `weft agent retry {id}` tries again"),
                    false => format!("next attempt in {} s", pause.as_secs()),
                };
                self.log.line(&format!(
                    "error: {name}: attempt {attempts} of {ATTEMPTS_MAX}: {}; {then}",
                    failure.text()
                ));
            }
        }
        Ok(())
    }

    fn work(&self, id: JobId, job: &Job) -> Result<Outcome, Failure> {
        let control = JobControl::new(self.control, self.queue, id);
        let mut reporter = Reporter::new(self.queue.dir(), id);
        let rate = [self.settings.rate, job.rate].into_iter().flatten().min();
        match &job.work {
            Work::ReplicateFill { path } => replicas::run(path, Copy::Fill, rate, control, &mut reporter),
            Work::ReplicateSync { path } => {
                replicas::run(path, Copy::Synchronize, rate, control, &mut reporter)
            }
            Work::OnWeft(work) => work.run(rate, self.signals, &control, &mut reporter),
        }
    }
}

/// Next step of the agent.
enum Next {
    Job(JobId, Job),
    /// All jobs wait for their next attempt, the first one for this time.
    After(Duration),
    /// No job is left, except for failed ones.
    None,
}

/// Seconds since 1970.
fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
