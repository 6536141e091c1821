//! Requests to end: of the agent, and of a single job.

use super::job::JobId;
use super::queue::Queue;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest time until the removal of the running job is noticed.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Whether the agent is asked to end.
#[derive(Default)]
pub struct Control {
    is_stopped: Mutex<bool>,
    changed: Condvar,
}

impl Control {
    /// Asks the agent to end.
    pub fn stop(&self) {
        *self.is_stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Whether the agent is asked to end.
    pub fn is_stopped(&self) -> bool {
        *self.is_stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for `time`, or until the agent is asked to end.
    pub fn wait(&self, time: Duration) {
        let stopped = self.is_stopped.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_timeout_while(stopped, time, |is_stopped| !*is_stopped));
    }
}

/// Whether the agent should go on with a job.
#[derive(Clone, Copy)]
pub struct JobControl<'a> {
    control: &'a Control,
    queue: &'a Queue,
    id: JobId,
}

impl<'a> JobControl<'a> {
    /// Begins a job.
    pub fn new(control: &'a Control, queue: &'a Queue, id: JobId) -> Self {
        Self { control, queue, id }
    }

    /// Whether the agent is asked to end, or the job was removed from the queue.
    pub fn is_ended(&self) -> bool {
        self.control.is_stopped() || !self.queue.contains(self.id)
    }

    /// Waits for `time`. Returns false, and waits no longer, if the job shall end.
    pub fn wait(&self, time: Duration) -> bool {
        let begin = Instant::now();
        loop {
            if self.is_ended() {
                return false;
            }
            let left = time.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return true;
            }
            self.control.wait(left.min(LOOK_INTERVAL));
        }
    }
}
