//! The parent's side of the ranks: starts them, leads them through tasks, and ends them.

use crate::meeting::{MeetingFile, OTHER_FAILED};
use crate::player::PhaseResult;
use crate::rank::{RankSpec, Reach, Task, TaskResult};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The processes of one run.
pub struct Ranks {
    children: Vec<RankProcess>,
    /// Open as long as ranks may ask for it.
    _meeting: MeetingFile,
}

struct RankProcess {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

/// A phase over all ranks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// From the first rank's begin to the last one's end, in seconds; the sum of them if it comes several times.
    pub seconds: f64,
    /// Operations of all ranks.
    pub ops: u64,
    /// Bytes of all ranks.
    pub bytes: u64,
    /// Processor time of all ranks, in seconds.
    pub cpu_s: f64,
}

/// What came of each phase of a task, by its number.
pub type Outcomes = BTreeMap<u16, Outcome>;

impl Outcome {
    /// And what came another time.
    pub fn add(&mut self, more: &Self) {
        self.seconds += more.seconds;
        self.ops += more.ops;
        self.bytes += more.bytes;
        self.cpu_s += more.cpu_s;
    }

    /// MiB per second.
    pub fn mib_s(&self) -> f64 {
        self.bytes as f64 / 1_048_576.0 / self.seconds
    }

    /// Operations per second.
    pub fn ops_s(&self) -> f64 {
        self.ops as f64 / self.seconds
    }
}

impl Ranks {
    /// Starts `ranks` processes of this program, which keep their processors while they wait if they `spin`;
    /// `environment` is added to their own.
    ///
    /// # Errors
    /// When they cannot be started.
    pub fn start(
        ranks: u32,
        reach: &Reach,
        environment: &[(String, String)],
        spin: bool,
    ) -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let meeting = MeetingFile::new(ranks)?;
        let mut children = Vec::new();
        for rank in 0..ranks {
            let spec = RankSpec { rank, ranks, reach: reach.clone(), meeting: meeting.path(), spin };
            let mut child = Command::new(&program)
                .arg("bench-rank")
                .arg(serde_json::to_string(&spec)?)
                .envs(environment.iter().map(|(name, value)| (name, value)))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let stdout = BufReader::new(child.stdout.take().expect("piped"));
            children.push(RankProcess { child, stdout });
        }
        Ok(Self { children, _meeting: meeting })
    }

    /// One task on all ranks: what came of each phase, by its number.
    ///
    /// # Errors
    /// What any rank reports, with its number; a rank that ended.
    pub fn run(&mut self, task: &Task) -> io::Result<Outcomes> {
        let line = serde_json::to_string(task)?;
        for process in &mut self.children {
            process.say(&line)?;
        }
        for (rank, process) in self.children.iter_mut().enumerate() {
            let answer = process.hear(rank)?;
            if answer != "ready" {
                return Err(io::Error::other(format!("rank {rank} said {answer:?} instead of ready")));
            }
        }
        for process in &mut self.children {
            process.say("go")?;
        }
        let mut results: Vec<TaskResult> = Vec::new();
        for (rank, process) in self.children.iter_mut().enumerate() {
            let answer = process.hear(rank)?;
            results.push(serde_json::from_str(&answer)?);
        }
        let failed = |(_, result): &(usize, &TaskResult)| !result.error.is_empty();
        let first_cause = |(_, result): &(usize, &TaskResult)| result.error == OTHER_FAILED;
        if let Some((rank, bad)) = results.iter().enumerate().filter(failed).min_by_key(first_cause) {
            return Err(io::Error::other(format!("rank {rank}: {}", bad.error)));
        }
        Ok(over_all_ranks(results.into_iter().map(|result| result.phases)))
    }
}

/// Puts together what the ranks tell: the n-th time of a phase on one rank is the n-th time on every other.
fn over_all_ranks(ranks: impl Iterator<Item = Vec<PhaseResult>>) -> Outcomes {
    let mut times: BTreeMap<(u16, usize), (u64, u64)> = BTreeMap::new();
    let mut outcomes = Outcomes::new();
    for phases in ranks {
        let mut seen: BTreeMap<u16, usize> = BTreeMap::new();
        for part in phases {
            let nth = seen.entry(part.phase).or_default();
            let time = times.entry((part.phase, *nth)).or_insert((part.begin_ns, part.end_ns));
            *time = (time.0.min(part.begin_ns), time.1.max(part.end_ns));
            *nth += 1;
            let outcome = outcomes.entry(part.phase).or_default();
            outcome.ops += part.ops;
            outcome.bytes += part.bytes;
            outcome.cpu_s += part.cpu_us as f64 / 1e6;
        }
    }
    for ((phase, _), (begin, end)) in times {
        outcomes.entry(phase).or_default().seconds += (end - begin).max(1) as f64 / 1e9;
    }
    outcomes
}

impl RankProcess {
    fn say(&mut self, line: &str) -> io::Result<()> {
        let stdin = self.child.stdin.as_mut().expect("piped");
        writeln!(stdin, "{line}")?;
        stdin.flush()
    }

    fn hear(&mut self, rank: usize) -> io::Result<String> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line)? == 0 {
            let status = self.child.wait()?;
            return Err(io::Error::other(format!(
                "rank {rank} ended early ({status}); see its message above"
            )));
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for process in &mut self.children {
            // Closing its input ends a rank that waits for a phase; a busy one is given a moment and then killed.
            drop(process.child.stdin.take());
        }
        let deadline = Instant::now() + Duration::from_secs(2);
        for process in &mut self.children {
            while matches!(process.child.try_wait(), Ok(None)) {
                if Instant::now() > deadline {
                    let _ = process.child.kill();
                    let _ = process.child.wait();
                    break;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_over_all_ranks_by_hand() {
        let part = |phase, begin_ns, end_ns, ops| PhaseResult {
            phase,
            begin_ns,
            end_ns,
            cpu_us: 1_000_000,
            ops,
            bytes: 10,
        };
        let a = vec![part(1, 100, 200, 1), part(2, 250, 300, 2), part(1, 400, 500, 3)];
        let b = vec![part(1, 150, 260, 4), part(1, 390, 450, 5)];
        let got = over_all_ranks([a, b].into_iter());
        // Phase 1: 100 to 260 and 390 to 500, 270 ns together; phase 2 on one rank only.
        assert!((got[&1].seconds - 270e-9).abs() < 1e-15);
        assert_eq!((got[&1].ops, got[&1].bytes), (13, 40));
        assert!((got[&1].cpu_s - 4.0).abs() < 1e-12);
        assert!((got[&2].seconds - 50e-9).abs() < 1e-15);
    }
}
