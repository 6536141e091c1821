//! The audit log file. A separate thread writes it, so that a full or unresponsive disk blocks no request.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weft_config::Cluster;
use weft_core::Timestamp;
use weft_server::audit::{Event, EventKind, Sink};
use weft_wire::status::AuditStatus;

/// Maximum number of events that wait for the disk. Further events are lost and counted.
const WAITING_MAX: usize = 4096;
/// Maximum time that the process waits at its end for events to reach the file.
const FLUSHED_WITHIN: Duration = Duration::from_secs(2);
/// Mode of the file. Its group may read it.
const MODE: u32 = 0o640;

/// An audit log.
pub struct AuditLog {
    server: String,
    shared: Arc<Shared>,
    sender: Mutex<Option<SyncSender<String>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    path: PathBuf,
    status: Mutex<AuditStatus>,
    reopen: AtomicBool,
    has_ended: AtomicBool,
}

impl AuditLog {
    /// Starts the audit log of a server in the file at `path`, which is created if missing.
    pub fn start(server: &str, path: &Path) -> io::Result<Arc<Self>> {
        let status = AuditStatus { path: path.display().to_string(), ..AuditStatus::default() };
        let shared = Arc::new(Shared {
            path: path.to_owned(),
            status: Mutex::new(status),
            reopen: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        });
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let own = Arc::clone(&shared);
        let writer = std::thread::Builder::new().name("weft audit".into()).spawn(move || {
            let mut file = Out::new(&own.path);
            // Opens the file now, so that the status shows an unwritable file before the first event is lost.
            own.note(file.ready());
            own.write_all(&receiver, &mut file);
            own.has_ended.store(true, Ordering::SeqCst);
        })?;
        Ok(Arc::new(Self {
            server: server.to_owned(),
            shared,
            sender: Mutex::new(Some(sender)),
            writer: Mutex::new(Some(writer)),
        }))
    }

    /// Reopens the file by its name before the next event.
    pub fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::SeqCst);
    }

    /// Writes waiting events for a bounded time, and ends the thread.
    pub fn finish(&self) {
        drop(lock(&self.sender).take());
        let Some(writer) = lock(&self.writer).take() else { return };
        let began = std::time::Instant::now();
        while !self.shared.has_ended.load(Ordering::SeqCst) && began.elapsed() < FLUSHED_WITHIN {
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.shared.has_ended.load(Ordering::SeqCst) {
            let _ = writer.join(); // a panic has been printed there
        }
    }
}

impl Sink for AuditLog {
    fn record(&self, event: &Event<'_>) {
        let line = event.to_line(&self.server);
        let sent = match &*lock(&self.sender) {
            Some(sender) => sender.try_send(line),
            None => Err(TrySendError::Disconnected(line)),
        };
        if sent.is_err() {
            lock(&self.shared.status).lost += 1;
        }
    }

    fn status(&self) -> AuditStatus {
        lock(&self.shared.status).clone()
    }
}

impl Shared {
    fn write_all(&self, lines: &Receiver<String>, file: &mut Out<'_>) {
        for line in lines {
            if self.reopen.swap(false, Ordering::SeqCst) {
                file.close();
            }
            let written = file.write(&line);
            {
                let mut status = lock(&self.status);
                match written {
                    Ok(()) => status.written += 1,
                    Err(_) => status.lost += 1,
                }
            }
            self.note(written);
        }
    }

    fn note(&self, result: io::Result<()>) {
        lock(&self.status).failed = result.err().map(|error| error.to_string());
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file that receives the events.
struct Out<'p> {
    path: &'p Path,
    file: Option<(File, (u64, u64))>,
}

impl<'p> Out<'p> {
    fn new(path: &'p Path) -> Self {
        Self { path, file: None }
    }

    fn close(&mut self) {
        self.file = None;
    }

    /// Opens the file if it is not open, or if its name refers to another file by now.
    fn ready(&mut self) -> io::Result<()> {
        let named = std::fs::symlink_metadata(self.path).ok().map(|named| (named.dev(), named.ino()));
        if self.file.as_ref().is_some_and(|(_, identity)| Some(*identity) == named) {
            return Ok(());
        }
        self.file = None;
        let mut options = OpenOptions::new();
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = options.append(true).create(true).mode(MODE).custom_flags(flags).open(self.path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        if found.mode() & 0o7777 & !MODE != 0 {
            file.set_permissions(std::fs::Permissions::from_mode(found.mode() & MODE))?;
        }
        self.file = Some((file, (found.dev(), found.ino())));
        Ok(())
    }

    /// Appends a whole line or nothing.
    fn write(&mut self, line: &str) -> io::Result<()> {
        self.ready()?;
        let Some((file, _)) = &mut self.file else { return Err(io::ErrorKind::NotFound.into()) };
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            match file.write(rest) {
                Ok(0) => return cut(file, line.len() - rest.len(), io::ErrorKind::WriteZero.into()),
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return cut(file, line.len() - rest.len(), error),
            }
        }
        Ok(())
    }
}

/// Truncates an incomplete line, unless another process has appended to the file since.
fn cut(file: &mut File, written: usize, error: io::Error) -> io::Result<()> {
    use std::io::Seek;
    if written > 0 {
        let end = file.metadata()?.len();
        if file.stream_position()? == end {
            file.set_len(end - written as u64)?;
        } else {
            file.write_all(b"\n")?;
        }
    }
    Err(error)
}

/// Adds an event about keys of the cluster key in `key_file` to the audit logs of this host's servers, if a cluster
/// file names that key.
pub fn of_keys(file: Option<PathBuf>, key_file: &Path, action: &str, detail: &str) {
    let Ok(cluster) = crate::commands::load(file) else { return };
    let real = |path: &Path| path.canonicalize().ok();
    if real(&cluster.key_file).is_some_and(|own| Some(own) == real(key_file)) {
        local(&cluster, EventKind::Key, action, detail);
    }
}

/// Adds an event of this command to the audit logs of this host's servers of `cluster`.
pub fn local(cluster: &Cluster, kind: EventKind, action: &str, detail: &str) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let peer = format!("pid {}", std::process::id());
    let event = Event {
        at: Timestamp(i128::try_from(now.as_nanos()).unwrap_or_default()),
        kind,
        action,
        detail,
        peer: &peer,
        key: None,
        // SAFETY: geteuid has no preconditions and cannot fail.
        uid: Some(unsafe { libc::geteuid() }),
        refused: None,
        repeated: 0,
    };
    let mut noted = Vec::new();
    let here = cluster.servers.iter().filter(|server| crate::commands::serve::runs_here(server));
    for (name, path) in here.filter_map(|server| Some((&server.name, server.audit.as_deref()?))) {
        if !noted.contains(&path) {
            noted.push(path);
            if let Err(error) = Out::new(path).write(&event.to_line(name)) {
                errln!("weft: audit log {}: {error}; this command is not in it", path.display());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(action: &str) -> Event<'_> {
        Event {
            at: Timestamp(0),
            kind: EventKind::Action,
            action,
            detail: "with \"quotes\"\nand lines",
            peer: "here",
            key: None,
            uid: None,
            refused: None,
            repeated: 0,
        }
    }

    /// Waits until `count` events were written or lost.
    fn settled(log: &AuditLog, count: u64) -> AuditStatus {
        let began = std::time::Instant::now();
        loop {
            let status = log.status();
            if status.written + status.lost >= count {
                return status;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{status:?}");
            std::thread::yield_now();
        }
    }

    fn actions(path: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(path).expect("the log");
        let action = |line: &str| {
            let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
            value["action"].as_str().expect("a text").to_owned()
        };
        text.lines().map(action).collect()
    }

    #[test]
    fn events_follow_the_name_of_the_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, old) = (dir.path().join("audit"), dir.path().join("audit.1"));
        let log = AuditLog::start("s0", &path).expect("a thread");
        log.record(&event("a"));
        settled(&log, 1);
        assert_eq!(std::fs::metadata(&path).expect("there").mode() & 0o7777 & !MODE, 0);
        std::fs::rename(&path, &old).expect("renamed");
        log.record(&event("b"));
        log.reopen();
        log.record(&event("c"));
        log.finish();
        assert_eq!((actions(&old), actions(&path)), (vec!["a".to_owned()], vec!["b".into(), "c".into()]));
        log.record(&event("d"));
        assert_eq!(
            log.status(),
            AuditStatus { path: path.display().to_string(), written: 3, lost: 1, failed: None }
        );
    }

    #[test]
    fn a_log_that_cannot_be_written_says_so_and_goes_on_later() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("none/audit");
        let log = AuditLog::start("s0", &path).expect("a thread");
        log.record(&event("a"));
        let status = settled(&log, 1);
        assert_eq!((status.written, status.lost), (0, 1));
        std::fs::create_dir(dir.path().join("none")).expect("made");
        log.record(&event("b"));
        settled(&log, 2);
        log.finish();
        assert_eq!(log.status().failed, None);
        assert_eq!(actions(&path), ["b"]);
    }

    #[test]
    fn a_full_disk_leaves_no_half_of_a_line() {
        let log = AuditLog::start("s0", Path::new("/dev/full")).expect("a thread");
        log.record(&event("a"));
        let status = settled(&log, 1);
        log.finish();
        assert_eq!(status.lost, 1);
        assert!(log.status().failed.is_some());
        // With a size limit, the file is full in the middle of a line.
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("audit");
        let line = event("a").to_line("s0");
        let mut file = OpenOptions::new().append(true).create(true).open(&path).expect("made");
        file.write_all(line.as_bytes()).expect("written");
        file.write_all(&line.as_bytes()[..10]).expect("written");
        assert!(cut(&mut file, 10, io::ErrorKind::StorageFull.into()).is_err());
        assert_eq!(actions(&path), ["a"]);
    }

    #[test]
    fn links_are_not_followed_and_modes_are_narrowed() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, link) = (dir.path().join("audit"), dir.path().join("link"));
        std::fs::write(&path, "").expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).expect("chmod");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        assert!(Out::new(&link).write("x\n").is_err());
        Out::new(&path).write("x\n").expect("written");
        assert_eq!(std::fs::metadata(&path).expect("there").mode() & 0o7777, 0o640);
    }
}
