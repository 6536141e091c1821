//! The parent's side of the ranks: starts them, leads them through phases, and ends them.

use crate::rank::{Phase, PhaseResult, RankSpec, Reach};
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The processes of one run.
pub struct Ranks {
    children: Vec<RankProcess>,
}

struct RankProcess {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

/// A phase over all ranks.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// From the first rank's begin to the last one's end, in seconds.
    pub seconds: f64,
    /// Operations of all ranks.
    pub ops: u64,
    /// Bytes of all ranks.
    pub bytes: u64,
    /// Processor time of all ranks, in seconds.
    pub cpu_s: f64,
}

impl Outcome {
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
    /// Starts `ranks` processes of this program; `environment` is added to their own.
    ///
    /// # Errors
    /// When they cannot be started.
    pub fn start(ranks: u64, reach: &Reach, environment: &[(String, String)]) -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let mut children = Vec::new();
        for rank in 0..ranks {
            let spec = RankSpec { rank, ranks, reach: reach.clone() };
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
        Ok(Self { children })
    }

    /// One phase on all ranks.
    ///
    /// # Errors
    /// What any rank reports, with its number; a rank that ended.
    pub fn phase(&mut self, phase: &Phase) -> io::Result<Outcome> {
        let line = serde_json::to_string(phase)?;
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
        let mut results: Vec<PhaseResult> = Vec::new();
        for (rank, process) in self.children.iter_mut().enumerate() {
            let answer = process.hear(rank)?;
            results.push(serde_json::from_str(&answer)?);
        }
        if let Some((rank, bad)) = results.iter().enumerate().find(|(_, result)| !result.error.is_empty()) {
            return Err(io::Error::other(format!("rank {rank}: {}", bad.error)));
        }
        let begin = results.iter().map(|r| r.begin_ns).min().unwrap_or(0);
        let end = results.iter().map(|r| r.end_ns).max().unwrap_or(0);
        Ok(Outcome {
            seconds: (end - begin).max(1) as f64 / 1e9,
            ops: results.iter().map(|r| r.ops).sum(),
            bytes: results.iter().map(|r| r.bytes).sum(),
            cpu_s: results.iter().map(|r| r.cpu_us).sum::<u64>() as f64 / 1e6,
        })
    }
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
