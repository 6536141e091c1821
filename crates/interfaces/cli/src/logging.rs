//! The log of a server process: one line per event, to standard error or appended to a file.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};
use weft_config::LogLevel;
use weft_core::Timestamp;

/// Widest permissions of a log.
const LOG_MODE: u32 = 0o640;

/// A log. Lines that begin with `error`, `warn`, `info` or `debug` and a colon have that level, and others are `info`.
#[derive(Clone)]
pub struct Log {
    path: Option<Arc<Path>>,
    out: Arc<Mutex<Option<File>>>,
    level: LogLevel,
    name: Arc<str>,
}

impl Log {
    /// Opens the log of server `name`: `file`, or standard error.
    ///
    /// # Errors
    /// Fails if the file cannot be opened.
    pub fn open(name: &str, file: Option<&Path>, level: LogLevel) -> io::Result<Self> {
        if let Some(dir) = file.and_then(Path::parent) {
            std::fs::DirBuilder::new().recursive(true).mode(0o750).create(dir)?;
        }
        let opened = file.map(append).transpose()?;
        Ok(Self { path: file.map(Arc::from), out: Arc::new(Mutex::new(opened)), level, name: name.into() })
    }

    /// Reopens the file by its name, for log rotation. If that fails, the old file stays open.
    pub fn reopen(&self) {
        if let Some(Ok(file)) = self.path.as_deref().map(append) {
            *self.out.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(file);
        }
    }

    /// Writes one line.
    pub fn line(&self, line: &str) {
        let (level, text) = split(line);
        if level > self.level {
            return;
        }
        let word = match level {
            LogLevel::Error => "ERROR",
            LogLevel::Warn => "WARN",
            LogLevel::Info => "INFO",
            LogLevel::Debug => "DEBUG",
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let text = format!("{} {word:5} {}: {text}\n", utc(now.as_secs()), self.name);
        let out = self.out.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // A log that cannot be written, for example on a full disk, must not stop the server.
        let _ = match out.as_ref() {
            Some(mut file) => file.write_all(text.as_bytes()),
            None => io::stderr().write_all(text.as_bytes()),
        };
    }
}

/// Opens a log for appending. Its lines contain paths and users, so only the owner and the group may read it.
pub fn append(file: &Path) -> io::Result<File> {
    let opened = OpenOptions::new().append(true).create(true).mode(LOG_MODE).open(file)?;
    let meta = opened.metadata()?;
    let mode = meta.permissions().mode() & 0o7777;
    // An earlier version created logs that all users could read. Devices and pipes keep their permissions.
    if meta.is_file() && mode & !LOG_MODE != 0 {
        opened.set_permissions(Permissions::from_mode(mode & LOG_MODE))?;
    }
    Ok(opened)
}

fn split(line: &str) -> (LogLevel, &str) {
    let levels = [
        ("error: ", LogLevel::Error),
        ("warn: ", LogLevel::Warn),
        ("warning: ", LogLevel::Warn),
        ("info: ", LogLevel::Info),
        ("debug: ", LogLevel::Debug),
    ];
    for (word, level) in levels {
        if let Some(text) = line.strip_prefix(word) {
            return (level, text);
        }
    }
    (LogLevel::Info, line)
}

/// Formats seconds since 1970 as `2026-01-31T23:59:59Z`.
pub fn utc(seconds: u64) -> String {
    Timestamp(i128::from(seconds) * 1_000_000_000).utc()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_closed_to_others_also_when_it_was_open_before() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("s0.log");
        let mode = || std::fs::metadata(&file).expect("the log").permissions().mode() & 0o7777;
        for (before, after) in [(0o644, 0o640), (0o666, 0o640), (0o600, 0o600), (0o755, 0o640)] {
            std::fs::write(&file, "old\n").expect("written");
            std::fs::set_permissions(&file, Permissions::from_mode(before)).expect("set");
            Log::open("s0", Some(&file), LogLevel::Info).expect("a log").line("new");
            assert_eq!(mode(), after, "{before:o}");
            assert!(std::fs::read_to_string(&file).expect("the log").starts_with("old\n"));
        }
        std::fs::remove_file(&file).expect("removed");
        Log::open("s0", Some(&file), LogLevel::Info).expect("a log");
        assert_eq!(mode() & !LOG_MODE, 0, "{:o}", mode());
        append(Path::new("/dev/null")).expect("is no file");
    }

    #[test]
    fn levels_are_kept_apart() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("log/s0.log");
        let log = Log::open("s0", Some(&file), LogLevel::Warn).expect("a log");
        log.line("started");
        log.line("warn: slow");
        log.line("error: gone");
        let text = std::fs::read_to_string(&file).expect("the log");
        let words: Vec<_> = text.lines().map(|line| line.split_once(' ').expect("a time").1).collect();
        assert_eq!(words, ["WARN  s0: slow", "ERROR s0: gone"]);
    }
}
