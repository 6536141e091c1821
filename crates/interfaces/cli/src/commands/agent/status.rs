//! `weft agent status`, and the agent's line in `weft status`.

use super::job::{Job, JobId};
use super::lock::{AgentLock, Holder};
use super::progress::Progress;
use super::queue::{Damaged, Queue};
use crate::failure::Failure;
use crate::table::Table;
use serde_json::{Value, json};
use weft_core::units::human_bytes;

/// State of the agent and its queue.
pub struct AgentStatus {
    holder: Option<Holder>,
    progress: Option<Progress>,
    jobs: Vec<(JobId, Job)>,
    damaged: Vec<Damaged>,
}

impl AgentStatus {
    /// Reads the state of this user's agent.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn read(queue: &Queue) -> Result<Self, Failure> {
        let holder = AgentLock::holder(queue.dir())?;
        // A killed agent has left its last progress.
        let progress = holder.as_ref().and_then(|_| Progress::read(queue.dir()));
        let listing = queue.list()?;
        let damaged = listing.damaged.into_iter().chain(queue.set_aside_files()?).collect();
        Ok(Self { holder, progress, jobs: listing.jobs, damaged })
    }

    /// Reads the state of this user's agent, if its queue has jobs or damaged files.
    pub fn unless_empty() -> Option<Self> {
        let this = Self::read(&Queue::of_user().ok()?).ok()?;
        (!this.jobs.is_empty() || !this.damaged.is_empty()).then_some(this)
    }

    /// Whether the agent has given up a job, or found a damaged file.
    pub fn is_unwell(&self) -> bool {
        !self.damaged.is_empty() || self.jobs.iter().any(|(_, job)| job.has_failed())
    }

    fn state(&self, id: JobId, job: &Job) -> &'static str {
        match &self.progress {
            Some(progress) if progress.job == id.0 => "running",
            _ if job.has_failed() => "failed",
            _ if job.retry_at_s.is_some() => "retry",
            _ => "waiting",
        }
    }

    /// Returns a line for `weft status`.
    pub fn line(&self) -> String {
        let count = |state: &str| self.jobs.iter().filter(|(id, job)| self.state(*id, job) == state).count();
        let parts: Vec<String> = [
            (count("running"), "running"),
            (count("waiting") + count("retry"), "waiting"),
            (count("failed"), "failed"),
            (self.damaged.len(), "damaged"),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, state)| format!("{count} {state}"))
        .collect();
        let advice = match self.holder {
            Some(_) => "`weft agent status` shows them",
            None => "no agent runs, `weft agent start` starts it",
        };
        format!("queue of the agent: {}; {advice}", parts.join(", "))
    }

    /// Returns the state as JSON.
    pub fn json(&self) -> Value {
        let progress = self.progress.as_ref().map(|progress| {
            json!({
                "job": progress.job,
                "activity": progress.activity,
                "done_bytes": progress.done_bytes,
                "total_bytes": progress.total_bytes,
                "elapsed_s": progress.elapsed_s(),
                "bytes_per_s": progress.bytes_per_s(),
                "rate_bytes_per_s": progress.rate_bytes_per_s,
            })
        });
        let job = |(id, job): &(JobId, Job)| {
            json!({
                "id": id.0,
                "kind": job.work.kind(),
                "path": job.work.path(),
                "state": self.state(*id, job),
                "attempts": job.attempts,
                "retry_at_s": job.retry_at_s,
                "rate_bytes_per_s": job.rate.map(|rate| rate.0),
                "last_error": job.last_error,
            })
        };
        let damaged =
            |damaged: &Damaged| json!({ "path": damaged.path.display().to_string(), "why": damaged.why });
        json!({
            "running": self.holder.is_some(),
            "pid": self.holder.as_ref().and_then(|holder| holder.pid),
            "host": self.holder.as_ref().map(|holder| &holder.host),
            "current": progress,
            "jobs": self.jobs.iter().map(job).collect::<Vec<_>>(),
            "damaged": self.damaged.iter().map(damaged).collect::<Vec<_>>(),
        })
    }

    /// Returns the state for a person.
    pub fn text(&self) -> String {
        let mut out = match (&self.holder, &self.progress) {
            (None, _) => "no agent runs\n".to_owned(),
            (Some(holder), None) => format!("the agent is {holder}\n"),
            (Some(holder), Some(progress)) => {
                let limit = progress.rate_bytes_per_s;
                let limit = limit.map_or_else(
                    || "while the device is idle".to_owned(),
                    |rate| format!("at most {}/s", human_bytes(rate)),
                );
                format!(
                    "the agent is {holder}; job {}: {}, {limit}\n",
                    progress.job,
                    progress.activity.words()
                )
            }
        };
        if self.jobs.is_empty() {
            out += "the queue is empty\n";
        } else {
            let mut table = Table::new(["JOB", "KIND", "STATE", "DONE", "SIZE", "RATE", "ATTEMPTS", "PATH"]);
            self.jobs.iter().for_each(|(id, job)| table.row(self.row(*id, job)));
            out += &table.render();
        }
        for (id, job) in &self.jobs {
            if let Some(error) = &job.last_error {
                out += &format!("job {id}: {error}\n");
            }
            if job.has_failed() {
                out += &format!(
                    "job {id} has failed: `weft agent retry {id}` tries again, `weft agent cancel {id}` removes it\n"
                );
            }
        }
        for Damaged { path, why } in &self.damaged {
            out += &format!("{}: damaged, not executed: {why}; remove the file\n", path.display());
        }
        out
    }

    fn row(&self, id: JobId, job: &Job) -> [String; 8] {
        let dash = || "-".to_owned();
        let progress = self.progress.as_ref().filter(|progress| progress.job == id.0);
        let rate = progress.and_then(Progress::bytes_per_s);
        [
            id.to_string(),
            job.work.kind().to_owned(),
            self.state(id, job).to_owned(),
            progress.map_or_else(dash, |progress| human_bytes(progress.done_bytes)),
            progress.map_or_else(dash, |progress| human_bytes(progress.total_bytes)),
            rate.map_or_else(dash, |rate| format!("{}/s", human_bytes(rate as u64))),
            job.attempts.to_string(),
            job.work.path().to_owned(),
        ]
    }
}
