//! Causes of the EIO errors returned to the kernel, and of a refused key, for the mount's log and for `weft status`.
//!
//! The kernel gets only a number. Each cause is logged when it first occurs, and then at most once a minute with the
//! number of failed requests since. A bounded number of causes is kept; the attribute [`ATTRIBUTE`] of the mount's root
//! lists them.

use parking_lot::Mutex;
use std::sync::LazyLock;
use std::time::Instant;
use weft_client::Error;
use weft_core::Nanos;
use weft_core::repeats::{Occurrences, Repeats};

/// Extended attribute of the mount's root with the value of [`report`]. It is never stored.
pub const ATTRIBUTE: &str = "user.weft.errors";
/// Maximum number of causes. A new one replaces the one whose last occurrence is oldest.
const REASONS_MAX: usize = 32;
/// Begins the cause of a refused key.
const REFUSED: &str = "EACCES: ";

/// All causes in this process, each with the path of its last failed request.
pub struct Failures(Repeats<String, String>);

static FAILURES: Mutex<Failures> = Mutex::new(Failures(Repeats::new(REASONS_MAX)));
static START: LazyLock<Instant> = LazyLock::new(Instant::now);
static LOG: Mutex<fn(&str)> = Mutex::new(|line| eprintln!("weft: {line}"));

/// Sends the log lines to `log` instead of standard error.
pub fn set_log(log: fn(&str)) {
    *LOG.lock() = log;
}

/// Records an error that the kernel gets as EIO, or that the server refuses the mount's key.
pub fn note(error: &Error) {
    let path = error.path().map(|path| String::from_utf8_lossy(path).into_owned()).unwrap_or_default();
    let reason = error.clone().without_path().to_string();
    let reason = if error.errno() == libc::EACCES { format!("{REFUSED}{reason}") } else { reason };
    let line = FAILURES.lock().note(path, reason, now());
    if let Some(line) = line {
        let log = *LOG.lock();
        log(&line);
    }
}

/// Returns one line per cause, most recent first: number of requests, seconds since the last one, its path, and the
/// cause, separated by tabs.
pub fn report() -> String {
    FAILURES.lock().report(now())
}

fn now() -> Nanos {
    Nanos(u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

impl Failures {
    /// Records one request. Returns the line to log, if one is due.
    fn note(&mut self, path: String, reason: String, now: Nanos) -> Option<String> {
        let kind = if reason.starts_with(REFUSED) { "" } else { "EIO: " };
        let about = if path.is_empty() { kind.to_owned() } else { format!("{kind}{path}: ") };
        match self.0.note(reason.clone(), path, now)? {
            0 => Some(format!("{about}{reason}")),
            count => Some(format!("{about}{reason} ({count} requests since the last line about it)")),
        }
    }

    fn report(&self, now: Nanos) -> String {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|(_, failure)| std::cmp::Reverse(failure.last));
        let plain = |text: &str| text.replace(['\t', '\n'], " ");
        let line = |(reason, failure): (&String, &Occurrences<String>)| {
            let ago_s = now.saturating_sub(failure.last).0 / 1_000_000_000;
            format!("{}\t{ago_s}\t{}\t{}\n", failure.count, plain(&failure.latest), plain(reason))
        };
        all.into_iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_logged_at_first_and_then_once_a_minute_with_its_count() {
        let mut failures = Failures(Repeats::new(REASONS_MAX));
        let mut note =
            |path: &str, reason: &str, s| failures.note(path.into(), reason.into(), Nanos::from_s(s));
        assert_eq!(note("a/b", "s2 is down", 0).as_deref(), Some("EIO: a/b: s2 is down"));
        assert_eq!(note("", "s3 is down", 1).as_deref(), Some("EIO: s3 is down"));
        assert_eq!(note("c", "s2 is down", 59), None);
        assert_eq!(
            note("d\te", "s2 is down", 60).as_deref(),
            Some("EIO: d\te: s2 is down (2 requests since the last line about it)")
        );
        assert_eq!(note("e", "s2 is down", 61), None);
        assert_eq!(failures.report(Nanos::from_s(70)), "4\t9\te\ts2 is down\n1\t69\t\ts3 is down\n");
    }

    #[test]
    fn the_number_of_causes_is_bounded() {
        let mut failures = Failures(Repeats::new(REASONS_MAX));
        for reason in 0..100u64 {
            failures.note(String::new(), format!("{reason}"), Nanos::from_s(reason));
        }
        let report = failures.report(Nanos::from_s(100));
        assert_eq!(report.lines().count(), REASONS_MAX);
        assert!(report.starts_with("1\t1\t\t99\n") && report.ends_with("\t68\n"), "{report}");
    }
}
