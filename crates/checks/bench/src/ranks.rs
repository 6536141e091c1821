//! The parent of the ranks: starts them, gives them tasks, and ends them.

use crate::barrier::{BarrierFile, OTHER_FAILED};
use crate::player::PhaseResult;
use crate::rank::{FileAccess, RankSpec, Task, TaskResult};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The rank processes of one arm.
pub struct Ranks {
    children: Vec<RankProcess>,
    /// Kept open because ranks open it by path.
    _barrier: BarrierFile,
}

struct RankProcess {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

/// Result of a phase over all ranks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Time from the first rank's start to the last rank's end, in seconds, summed if the phase occurs more than once.
    pub seconds: f64,
    /// Number of operations of all ranks.
    pub ops: u64,
    /// Bytes transferred by all ranks.
    pub bytes: u64,
    /// Processor time of all ranks, in seconds.
    pub cpu_s: f64,
}

/// Result of each phase of a task, by phase number.
pub type Outcomes = BTreeMap<u16, Outcome>;

impl Outcome {
    /// Adds another result of the phase.
    pub fn add(&mut self, more: &Self) {
        self.seconds += more.seconds;
        self.ops += more.ops;
        self.bytes += more.bytes;
        self.cpu_s += more.cpu_s;
    }

    /// Throughput in MiB/s.
    pub fn mib_s(&self) -> f64 {
        self.bytes as f64 / 1_048_576.0 / self.seconds
    }

    /// Operations per second.
    pub fn ops_s(&self) -> f64 {
        self.ops as f64 / self.seconds
    }
}

impl Ranks {
    /// Starts `ranks` processes of this program.
    ///
    /// `environment` is added to their environment. With `spin` they spin instead of sleeping while they wait.
    ///
    /// # Errors
    /// Fails if a process cannot be started.
    pub fn start(
        ranks: u32,
        access: &FileAccess,
        environment: &[(String, String)],
        spin: bool,
    ) -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let barrier = BarrierFile::new(ranks)?;
        let mut children = Vec::new();
        for rank in 0..ranks {
            let spec = RankSpec { rank, ranks, access: access.clone(), barrier: barrier.path(), spin };
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
        Ok(Self { children, _barrier: barrier })
    }

    /// Runs one task on all ranks and returns the results by phase number.
    ///
    /// # Errors
    /// Returns the first failure with its rank, or that a rank has exited.
    pub fn run(&mut self, task: &Task) -> io::Result<Outcomes> {
        let line = serde_json::to_string(task)?;
        for process in &mut self.children {
            process.send(&line)?;
        }
        for (rank, process) in self.children.iter_mut().enumerate() {
            let answer = process.receive(rank)?;
            if answer != "ready" {
                return Err(io::Error::other(format!("rank {rank} answered {answer:?} instead of ready")));
            }
        }
        for process in &mut self.children {
            process.send("go")?;
        }
        let mut results: Vec<TaskResult> = Vec::new();
        for (rank, process) in self.children.iter_mut().enumerate() {
            let answer = process.receive(rank)?;
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

/// Combines the phases of all ranks. The nth occurrence of a phase on one rank is the nth on every other.
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
    fn send(&mut self, line: &str) -> io::Result<()> {
        let stdin = self.child.stdin.as_mut().expect("piped");
        writeln!(stdin, "{line}")?;
        stdin.flush()
    }

    fn receive(&mut self, rank: usize) -> io::Result<String> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line)? == 0 {
            let status = self.child.wait()?;
            return Err(io::Error::other(format!(
                "rank {rank} exited early ({status}); see its message above"
            )));
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for process in &mut self.children {
            // A rank exits when its input ends. A rank that is busy is killed after the deadline.
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
    fn phases_are_combined_over_ranks() {
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
        // Phase 1 lasts from 100 to 260 and from 390 to 500, 270 ns in total. Phase 2 runs on one rank only.
        assert!((got[&1].seconds - 270e-9).abs() < 1e-15);
        assert_eq!((got[&1].ops, got[&1].bytes), (13, 40));
        assert!((got[&1].cpu_s - 4.0).abs() < 1e-12);
        assert!((got[&2].seconds - 50e-9).abs() < 1e-15);
    }
}
