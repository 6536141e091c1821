//! `weft delegate stop`.

use super::{job_of, meeting, ranks};
use crate::commands::session::{of_server, posix};
use crate::failure::Failure;
use clap::Args;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use weft_client::{Client, ClientOptions, Error};
use weft_config::job::Job;
use weft_core::{Nanos, ServerId};
use weft_env::real::{RealEnv, block_on};
use weft_wire::ClusterMap;

/// Maximum time that a delegate may take to write its bytes.
const WRITE_TIMEOUT: Duration = Duration::from_secs(3600);
/// Time after which the command says for which delegate it waits.
const NOTICE_AFTER: Duration = Duration::from_secs(2);
/// Interval between two looks whether a delegate has ended.
const POLL: Duration = Duration::from_millis(10);

const AFTER: &str = "\
Without --job, the job is that of WEFT_DELEGATES, else the only job of this user on this host. The delegates write all
bytes that they hold, then end. Later writes of programs fail with EIO. Files that killed delegates left in the job
directory are removed.

Examples:
  weft delegate stop --job ~/jobs/17";

/// Ends the delegates of a job.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Stop {
    /// Job directory
    #[arg(long, value_name = "DIR")]
    job: Option<PathBuf>,
}

impl Stop {
    /// Runs the command.
    pub fn run(self) -> Result<u8, Failure> {
        let (dir, job) = match (&self.job, job_of(self.job.clone())) {
            // Delegates that never met, or were killed, leave files but no job.
            (Some(dir), Err(failure)) if !meeting::announced(dir).is_empty() => {
                return end_announced(dir).map_err(|_| failure);
            }
            (_, found) => found?,
        };
        weft_client::set_log(|_| ()); // a delegate that has ended need not be stopped
        let client = client(&job)?;
        let (mut stopped, mut unreachable) = (Vec::new(), None);
        for (index, delegate) in job.delegates.iter().enumerate() {
            match block_on(client.shutdown(ServerId(index as u32))) {
                Ok(()) => stopped.push(index),
                Err(Error::Unreachable(why)) => unreachable = Some(why),
                Err(error) => return Err(of_server(&delegate.name, &error)),
            }
        }
        if let (Some(why), true, None) = (unreachable, stopped.is_empty(), &dir) {
            return Err(Failure::new("no delegate answers", why.cause));
        }
        let began = Instant::now();
        let mut is_told = false;
        for index in &stopped {
            while !matches!(block_on(client.status(ServerId(*index as u32))), Err(Error::Unreachable(_))) {
                if began.elapsed() > NOTICE_AFTER && !std::mem::replace(&mut is_told, true) {
                    errln!("delegate {index} is writing its bytes to the files");
                }
                if began.elapsed() > WRITE_TIMEOUT {
                    let why = format!("it has not ended within {} s", WRITE_TIMEOUT.as_secs());
                    return Err(Failure::new(format!("delegate {index}"), why));
                }
                std::thread::sleep(POLL);
            }
        }
        if let Some(dir) = dir {
            // Delegates remove their own files after they have stopped to listen.
            while stopped.iter().any(|index| dir.join(format!("delegate-{index}.toml")).exists())
                && began.elapsed() < WRITE_TIMEOUT
            {
                std::thread::sleep(POLL);
            }
            meeting::remove_all(&dir);
            if stopped.is_empty() {
                ranks::remove_all(&dir); // delegate 0 removes them otherwise
            }
        }
        match stopped.len() {
            0 => outln!("no delegate of {} answers", job.name),
            1 => outln!("stopped delegate {}", stopped[0]),
            count => outln!("stopped {count} delegates"),
        }
        Ok(0)
    }
}

/// Returns a client that asks the delegates of a job to end.
pub fn client(job: &Job) -> Result<Client<RealEnv>, Failure> {
    let options = ClientOptions { retry_for: Nanos(0), pid: std::process::id(), ..ClientOptions::default() };
    let map = ClusterMap {
        domains: Vec::new(),
        name: job.name.clone(),
        version: 0,
        servers: job.map().delegates,
        targets: Vec::new(),
        metadata: ServerId(0),
    };
    Ok(Client::new(RealEnv::new(), map, options, job.credentials()?))
}

/// Removes the files of delegates that never became a job, if none of those on this host runs.
fn end_announced(dir: &std::path::Path) -> Result<u8, Failure> {
    weft_config::job::check_job_dir(dir)?;
    let host = crate::job_dir::host_name();
    for (index, delegate) in meeting::announced(dir) {
        if delegate.host != host {
            continue;
        }
        match crate::signals::send(delegate.pid as i32, libc::SIGTERM) {
            Ok(()) => outln!("asked delegate {index} (process {}) to end", delegate.pid),
            Err(libc::ESRCH) => {}
            Err(errno) => return Err(Failure::new(format!("delegate {index}"), posix(errno))),
        }
    }
    meeting::remove_all(dir);
    ranks::remove_all(dir);
    outln!("removed the files of former delegates from {}", dir.display());
    Ok(0)
}
