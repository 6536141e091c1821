//! Watches the cluster key file: a changed file takes effect without a restart.

use super::of_servers;
use crate::audit::AuditLog;
use crate::logging::Log;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weft_config::Cluster;
use weft_core::Timestamp;
use weft_server::audit::{Event, EventKind, Sink};
use weft_wire::ClusterSecret;

/// Interval at which the file is checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Device, inode, modification time and size of the file, which change with its contents.
type Seen = Option<(u64, u64, i64, i64, u64)>;

/// A watch of the key file.
pub struct KeyFile {
    taker: Arc<Taker>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Taker {
    cluster: Cluster,
    secret: ClusterSecret,
    logs: Vec<Log>,
    audits: Vec<Arc<AuditLog>>,
    seen: Mutex<Seen>,
    has_ended: AtomicBool,
}

impl KeyFile {
    /// Watches the key file of `cluster` for `secret`, which all servers of this process share.
    pub fn watch(
        cluster: &Cluster,
        secret: ClusterSecret,
        logs: Vec<Log>,
        audits: Vec<Arc<AuditLog>>,
    ) -> Self {
        let taker = Arc::new(Taker {
            cluster: cluster.clone(),
            secret,
            logs,
            audits,
            // A change since the start takes effect at the first check.
            seen: Mutex::new(None),
            has_ended: AtomicBool::new(false),
        });
        let own = Arc::clone(&taker);
        let watch = move || {
            while !own.has_ended.load(Ordering::SeqCst) {
                own.look(false);
                std::thread::park_timeout(LOOK_EVERY);
            }
        };
        let thread = std::thread::Builder::new().name("weft key".into()).spawn(watch);
        if let Err(error) = &thread {
            taker.log(&format!("warn: the key file is only checked on SIGHUP: no thread: {error}"));
        }
        Self { taker, thread: Mutex::new(thread.ok()) }
    }

    /// Reads the file now.
    pub fn take_up(&self) {
        self.taker.look(true);
    }

    /// Ends the watch.
    pub fn end(&self) {
        self.taker.has_ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            thread.thread().unpark();
            let _ = thread.join(); // a panic has been printed there
        }
    }
}

impl Taker {
    /// Reads the file if it has changed, or with `always`.
    fn look(&self, always: bool) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let found = std::fs::metadata(&self.cluster.key_file).ok();
        let found = found.map(|it| (it.dev(), it.ino(), it.mtime(), it.mtime_nsec(), it.size()));
        if found == *seen && !always {
            return;
        }
        *seen = found;
        let key = match of_servers(&self.cluster) {
            Ok(key) => key,
            // The servers keep their present key.
            Err(failure) => {
                return self.log(&format!("warn: the cluster key was not reloaded: {}", failure.text()));
            }
        };
        if !self.secret.replace(key.roots()) {
            return;
        }
        let generations: Vec<_> = key.generations().iter().map(u32::to_string).collect();
        let (used, others) = generations.split_first().expect("at least one");
        let others =
            if others.is_empty() { String::new() } else { format!(", {} accepted", others.join(", ")) };
        let message = format!("generation {used} of the cluster's secret is in use{others}");
        self.log(&message);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let event = Event {
            at: Timestamp(i128::try_from(now.as_nanos()).unwrap_or_default()),
            kind: EventKind::Key,
            action: "key.taken_up",
            detail: &message,
            peer: "this server",
            key: None,
            uid: None,
            refused: None,
            repeated: 0,
        };
        self.audits.iter().for_each(|audit| audit.record(&event));
    }

    fn log(&self, line: &str) {
        self.logs.iter().for_each(|log| log.line(line));
    }
}
