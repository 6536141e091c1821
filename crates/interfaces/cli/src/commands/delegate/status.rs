//! `weft delegate status`, and the lines about jobs in `weft status`.

use super::{announced, job_of};
use crate::commands::session::why;
use crate::failure::{FAILED, Failure, without_numbers};
use crate::table::Table;
use clap::Args;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use weft_client::{ClientOptions, Delegates};
use weft_config::job::Job;
use weft_core::Nanos;
use weft_core::delegates::assignment::DelegateIndex;
use weft_core::units::human_bytes;
use weft_env::real::{RealEnv, block_on};
use weft_wire::delegate::{DelegateStatus, JobSettings};

/// Time after which a delegate without a reply is shown as down.
const REPLY_DEADLINE: Nanos = Nanos::from_ms(2500);

const AFTER: &str = "\
Without --job, the job is that of WEFT_DELEGATES, else the only job of this user on this host.

HITS is the share of reads from memory. PIECES/WRITE is the number of pieces of ranks that one write to a file merged.
DIRTY bytes are not in the files yet.

Exit codes:
  0  all delegates answered, and no write to a file failed
  1  a delegate is down, or a write to a file failed
  2  wrong arguments, or no such job

Examples:
  weft delegate status
  weft delegate status --job ~/jobs/17 -v
  weft delegate status --json | jq '.delegates[].dirty'";

/// Shows the delegates of a job.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Status {
    /// Job directory
    #[arg(long, value_name = "DIR")]
    job: Option<PathBuf>,
    /// Also show the open files
    #[arg(short = 'v', long)]
    verbose: bool,
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
}

/// Delegates of a job, each with its state or the reason why there is none.
struct Replies {
    settings: Option<JobSettings>,
    delegates: Vec<Result<DelegateStatus, String>>,
}

impl Status {
    /// Runs the command.
    pub fn run(self) -> Result<u8, Failure> {
        let (dir, job) = job_of(self.job)?;
        let replies = ask(&job)?;
        if self.json {
            outln!("{:#}", as_json(dir.as_deref(), &job, &replies));
        } else {
            out!("{}", as_text(dir.as_deref(), &job, &replies, self.verbose));
        }
        let is_well = |reply: &Result<DelegateStatus, String>| {
            reply.as_ref().is_ok_and(|status| status.write_errors == 0)
        };
        Ok(if replies.delegates.iter().all(is_well) { 0 } else { FAILED })
    }
}

/// Connects to the delegates of a job.
pub fn join(job: &Job) -> Result<Result<Delegates<RealEnv>, String>, Failure> {
    let options = ClientOptions {
        connect_timeout: REPLY_DEADLINE,
        request_timeout: REPLY_DEADLINE,
        retry_for: Nanos(0),
        pid: std::process::id(),
        ..ClientOptions::default()
    };
    // The table shows unreachable delegates, so the client's messages are not needed.
    weft_client::set_log(|_| ());
    let joined = block_on(Delegates::join(RealEnv::new(), job.map(), options, job.credentials()?, None));
    Ok(joined.map_err(|error| reason(&error)))
}

fn reason(error: &weft_client::Error) -> String {
    match error {
        weft_client::Error::Unreachable(unreachable) => without_numbers(&unreachable.cause),
        _ => why(error),
    }
}

fn ask(job: &Job) -> Result<Replies, Failure> {
    let joined = match join(job)? {
        Ok(joined) => joined,
        Err(why) => {
            let delegates = job.delegates.iter().map(|_| Err(why.clone())).collect();
            return Ok(Replies { settings: None, delegates });
        }
    };
    let delegates = std::thread::scope(|scope| {
        let one = |index: usize| {
            let joined = &joined;
            scope.spawn(move || {
                block_on(joined.status(DelegateIndex(index as u32))).map_err(|error| reason(&error))
            })
        };
        let asked: Vec<_> = (0..job.delegates.len()).map(one).collect();
        let answer = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err("asking it failed: see above".to_owned()))
        };
        asked.into_iter().map(answer).collect()
    });
    Ok(Replies { settings: Some(joined.settings().clone()), delegates })
}

fn as_text(dir: Option<&Path>, job: &Job, replies: &Replies, verbose: bool) -> String {
    let mut table = Table::new([
        "DELEGATE",
        "HOST",
        "PID",
        "SESSIONS",
        "PAGES",
        "MEMORY",
        "OF",
        "DIRTY",
        "HITS",
        "REQUESTS",
        "PIECES",
        "WRITES",
        "PIECES/WRITE",
        "ERRORS",
    ]);
    let mut files = Table::new(["FILE", "DELEGATE", "SESSIONS", "PAGE", "PAGES", "DIRTY"]);
    let mut troubles = String::new();
    let hosts = dir.map(announced).unwrap_or_default();
    for (index, reply) in replies.delegates.iter().enumerate() {
        match reply {
            Ok(status) => {
                table.row(row(status));
                for file in &status.files {
                    files.row([
                        String::from_utf8_lossy(&file.name).into_owned(),
                        status.index.to_string(),
                        file.sessions.to_string(),
                        human_bytes(file.page_len),
                        file.pages.to_string(),
                        human_bytes(file.dirty.0),
                    ]);
                }
                if status.write_errors > 0 {
                    troubles += &format!(
                        "delegate {index}: {} writes to files have failed; see its log\n",
                        status.write_errors
                    );
                }
            }
            Err(why) => {
                let known = hosts.iter().find(|(at, _)| *at as usize == index).map(|(_, known)| known);
                let mut cells: [String; 14] = std::array::from_fn(|_| "-".into());
                cells[0] = index.to_string();
                cells[1] = known.map_or_else(|| "-".into(), |known| known.host.clone());
                cells[2] = known.map_or_else(|| "DOWN".into(), |known| known.pid.to_string());
                cells[3] = "DOWN".into();
                table.row(cells);
                troubles += &format!("delegate {index} is down: {why}\n");
            }
        }
    }
    let place = dir.map(|dir| format!(" ({})", dir.display())).unwrap_or_default();
    let mut text = format!("job {}{place}", job.name);
    if let Some(settings) = &replies.settings {
        text += &format!(": policy {}, ", settings.policy);
        text += match settings.write_behind {
            true => "write-behind",
            false => "writes at sync and close",
        };
        if let Some(len) = settings.page_len {
            text += &format!(", pages of {}", human_bytes(len));
        }
    }
    text.push('\n');
    for over in &job.over {
        text += &format!("over {}\n", over.display());
    }
    text += &format!("\n{}", table.render());
    if verbose {
        text += &format!("\n{}", files.render());
    }
    if !troubles.is_empty() {
        text += &format!("\n{troubles}");
    }
    text
}

fn row(status: &DelegateStatus) -> [String; 14] {
    [
        status.index.to_string(),
        status.host.clone(),
        status.pid.to_string(),
        status.sessions.to_string(),
        status.pages.to_string(),
        human_bytes(status.memory.0),
        human_bytes(status.memory_max.0),
        human_bytes(status.dirty.0),
        percent(status.hits, status.misses),
        status.requests.to_string(),
        status.pieces.to_string(),
        status.file_writes.to_string(),
        ratio(status.pieces, status.file_writes),
        status.write_errors.to_string(),
    ]
}

fn percent(hits: u64, misses: u64) -> String {
    match hits + misses {
        0 => "-".into(),
        all => format!("{:.0} %", 100.0 * hits as f64 / all as f64),
    }
}

fn ratio(pieces: u64, writes: u64) -> String {
    match writes {
        0 => "-".into(),
        writes => format!("{:.1}", pieces as f64 / writes as f64),
    }
}

fn as_json(dir: Option<&Path>, job: &Job, replies: &Replies) -> Value {
    let delegates: Vec<_> = replies
        .delegates
        .iter()
        .enumerate()
        .map(|(index, reply)| match reply {
            Ok(status) => delegate_as_json(status),
            Err(why) => json!({ "index": index, "up": false, "reason": why }),
        })
        .collect();
    let settings = replies.settings.as_ref().map(|settings| {
        json!({
            "policy": settings.policy.to_string(), "page_size": settings.page_len, "memory": settings.memory.0,
            "write_behind": settings.write_behind,
        })
    });
    json!({
        "name": job.name, "directory": dir, "over": job.over, "settings": settings, "delegates": delegates,
    })
}

fn delegate_as_json(status: &DelegateStatus) -> Value {
    let files: Vec<_> = status
        .files
        .iter()
        .map(|file| {
            json!({
                "name": String::from_utf8_lossy(&file.name), "sessions": file.sessions, "page_size": file.page_len,
                "pages": file.pages, "dirty": file.dirty.0,
            })
        })
        .collect();
    json!({
        "index": status.index, "up": true, "host": status.host, "pid": status.pid, "sessions": status.sessions,
        "uptime_ns": status.uptime.0, "memory_max": status.memory_max.0, "memory": status.memory.0,
        "pages": status.pages, "dirty": status.dirty.0, "requests": status.requests, "pieces": status.pieces,
        "bytes_read": status.bytes_read.0, "bytes_written": status.bytes_written.0, "hits": status.hits,
        "misses": status.misses, "read_ahead": status.read_ahead, "file_reads": status.file_reads,
        "file_writes": status.file_writes, "file_bytes_written": status.file_bytes_written.0,
        "forwarded": status.forwarded, "write_errors": status.write_errors, "files": files,
    })
}

/// Totals of one job on this host.
pub struct JobLine {
    dir: PathBuf,
    name: String,
    up: usize,
    delegates: usize,
    sessions: u32,
    pages: u64,
    dirty: u64,
    write_errors: u64,
}

impl JobLine {
    /// Returns the jobs of this user on this host. Those that cannot be read are left out.
    pub fn all() -> Vec<Self> {
        crate::job_dir::list().into_iter().filter_map(|dir| Self::of(dir).ok()).collect()
    }

    fn of(dir: PathBuf) -> Result<Self, Failure> {
        let job = Job::load(&dir)?;
        let replies = ask(&job)?;
        let known = || replies.delegates.iter().flatten();
        Ok(Self {
            dir,
            name: job.name,
            up: known().count(),
            delegates: replies.delegates.len(),
            sessions: known().map(|status| status.sessions).sum(),
            pages: known().map(|status| status.pages).sum(),
            dirty: known().map(|status| status.dirty.0).sum(),
            write_errors: known().map(|status| status.write_errors).sum(),
        })
    }

    /// Returns the line of `weft status`.
    pub fn text(&self) -> String {
        let down = match self.delegates - self.up {
            0 => String::new(),
            down => format!(", {down} DOWN"),
        };
        let errors = match self.write_errors {
            0 => String::new(),
            errors => format!(", {errors} failed writes"),
        };
        format!(
            "{}: {} delegates{down}, {} sessions, {} pages, {} dirty{errors} ({})",
            self.name,
            self.delegates,
            self.sessions,
            self.pages,
            human_bytes(self.dirty),
            self.dir.display()
        )
    }

    /// Returns the entry of `weft status --json`.
    pub fn json(&self) -> Value {
        json!({
            "name": self.name, "directory": self.dir, "delegates": self.delegates, "up": self.up,
            "sessions": self.sessions, "pages": self.pages, "dirty": self.dirty, "write_errors": self.write_errors,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::ByteLen;
    use weft_core::delegates::ownership::Policy;
    use weft_wire::delegate::FileStatus;

    fn replies() -> (Job, Replies) {
        let address = vec!["tcp:n:1".parse().expect("an address")];
        let job =
            Job::new(Path::new("/j"), "job-1".into(), vec![address.clone(), address], vec!["/data".into()]);
        let file =
            FileStatus { name: b"/data/x".to_vec(), sessions: 4, page_len: 1 << 20, ..Default::default() };
        let status = DelegateStatus {
            host: "node1".into(),
            pid: 7,
            hits: 3,
            misses: 1,
            pieces: 100,
            file_writes: 8,
            dirty: ByteLen(2048),
            files: vec![file],
            ..Default::default()
        };
        let settings = JobSettings {
            delegates: 2,
            index: 0,
            policy: Policy::Hashed,
            group_pages: 1,
            page_len: None,
            memory: ByteLen(1 << 30),
            write_behind: true,
            direct_min: None,
        };
        (
            job,
            Replies {
                settings: Some(settings),
                delegates: vec![Ok(status), Err("Connection refused".into())],
            },
        )
    }

    #[test]
    fn the_table_shows_ratios_and_who_is_down() {
        let (job, replies) = replies();
        let text = as_text(None, &job, &replies, true);
        for words in [
            "job job-1: policy hashed, write-behind",
            "over /data",
            "75 %",
            "12.5",
            "2.00 KiB",
            "DOWN",
            "delegate 1 is down: Connection refused",
            "/data/x",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert_eq!((percent(0, 0), ratio(5, 0)), ("-".into(), "-".into()));
    }

    #[test]
    fn the_object_has_all_fields() {
        let (job, replies) = replies();
        let value = as_json(Some(Path::new("/j")), &job, &replies);
        assert_eq!(value["delegates"][0]["files"][0]["name"], "/data/x");
        assert_eq!(value["delegates"][1]["up"], false);
        assert_eq!(value["settings"]["policy"], "hashed");
        assert_eq!(value["over"][0], "/data");
    }
}
