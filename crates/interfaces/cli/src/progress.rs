//! Progress of long commands on standard error: a bar on a terminal, otherwise a line now and then.
//!
//! The first line comes after ten seconds, and each pause is twice as long as the one before, up to five minutes. The
//! log of a command that takes an hour has about 16 lines.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time until the first line without a terminal.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// Longest time between two lines.
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// Interval at which a terminal shows the time.
const TICK: Duration = Duration::from_millis(200);

/// Progress that is shown until it is dropped.
pub struct Progress {
    bar: ProgressBar,
    state: Arc<Mutex<State>>,
    lines: Option<(Sender<()>, JoinHandle<()>)>,
}

struct State {
    what: String,
    done: u64,
    all: u64,
    step: String,
    started: Instant,
    /// Total time that the command has planned, if it plans by time.
    planned: Option<Duration>,
}

impl Progress {
    /// Shows the progress of `what`, such as the name of a command.
    pub fn new(what: impl Into<String>) -> Self {
        let state = State {
            what: what.into(),
            done: 0,
            all: 0,
            step: String::new(),
            started: Instant::now(),
            planned: None,
        };
        let style = ProgressStyle::with_template("{prefix} {bar:20} {pos}/{len} {msg}");
        // Hidden by the library if standard error is not a terminal.
        let bar = ProgressBar::new(0).with_style(style.expect("the template is well formed"));
        bar.set_prefix(state.what.clone());
        let state = Arc::new(Mutex::new(state));
        let lines =
            if std::io::stderr().is_terminal() { bar_thread(&bar, &state) } else { line_thread(&state) };
        Self { bar, state, lines: Some(lines) }
    }

    /// Sets the time that the whole command takes, as planned.
    pub fn plan(&self, time: Duration) {
        self.change(|state| state.planned = Some(time));
    }

    /// Sets the number of steps, how many are done, and the name of the step that runs or has ended.
    pub fn set(&self, done: u64, all: u64, step: impl Into<String>) {
        self.change(|state| (state.done, state.all, state.step) = (done, all, step.into()));
    }

    /// Begins a step. The one before is done.
    pub fn begin(&self, step: impl Into<String>) {
        self.change(|state| (state.done, state.step) = (state.done + 1, step.into()));
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().expect("no thread panics with the lock");
        change(&mut state);
        self.bar.set_length(state.all);
        self.bar.set_position(state.done.min(state.all));
        self.bar.set_message(state.message());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.lines.take() {
            drop(stop);
            // The thread only prints; its end needs no report.
            let _ = thread.join();
        }
        self.bar.finish_and_clear();
    }
}

impl State {
    fn message(&self) -> String {
        let left = self.left().map_or_else(String::new, |left| format!("about {} left, ", in_words(left)));
        format!("{left}{}", self.step)
    }

    fn left(&self) -> Option<Duration> {
        left(self.started.elapsed(), self.planned, self.done, self.all)
    }

    fn line(&self) -> String {
        let passed = in_words(self.started.elapsed());
        let Self { what, done, all, .. } = self;
        format!("weft: {what}: {done} of {all} done after {passed}, {}", self.message())
    }
}

/// Estimates the remaining time: from the planned one, or from the time of the steps so far.
fn left(passed: Duration, planned: Option<Duration>, done: u64, all: u64) -> Option<Duration> {
    if done >= all {
        return None;
    }
    if let Some(left) = planned.and_then(|planned| planned.checked_sub(passed)) {
        return Some(left);
    }
    // One step says little about the others.
    (done >= 2).then(|| passed.mul_f64((all - done) as f64 / done as f64))
}

/// Writes a duration with the precision that an estimate has.
fn in_words(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..100 => format!("{seconds} s"),
        seconds @ 100..7200 => format!("{} min", (seconds + 30) / 60),
        seconds => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}

fn bar_thread(bar: &ProgressBar, state: &Arc<Mutex<State>>) -> (Sender<()>, JoinHandle<()>) {
    let (bar, state) = (bar.clone(), state.clone());
    repeatedly(
        |_| TICK,
        move || bar.set_message(state.lock().expect("no thread panics with the lock").message()),
    )
}

fn line_thread(state: &Arc<Mutex<State>>) -> (Sender<()>, JoinHandle<()>) {
    let state = state.clone();
    repeatedly(pause, move || {
        errln!("{}", state.lock().expect("no thread panics with the lock").line());
    })
}

/// Returns the pause before a line, counted from 0.
fn pause(line: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << line.min(10)).min(PAUSE_MAX)
}

/// Calls `act` after each pause until the sender is dropped.
fn repeatedly(
    pause: impl Fn(u32) -> Duration + Send + 'static,
    act: impl Fn() + Send + 'static,
) -> (Sender<()>, JoinHandle<()>) {
    let (stop, stopped) = channel();
    let thread = std::thread::spawn(move || {
        let mut count = 0;
        while stopped.recv_timeout(pause(count)) == Err(RecvTimeoutError::Timeout) {
            act();
            count = count.saturating_add(1);
        }
    });
    (stop, thread)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_remaining_time_is_that_of_the_plan_or_of_the_steps() {
        // Nothing is known at first, and nothing is left at the end.
        assert_eq!(left(s(0), None, 0, 10), None);
        assert_eq!(left(s(9), None, 1, 10), None);
        assert_eq!(left(s(20), None, 10, 10), None);
        assert_eq!(left(s(20), None, 0, 0), None);
        assert_eq!(left(s(20), None, 4, 10), Some(s(30)));
        assert_eq!(left(s(5), Some(s(18)), 0, 10), Some(s(13)));
        // Later than planned: by the steps.
        assert_eq!(left(s(20), Some(s(18)), 8, 10), Some(s(5)));
        assert_eq!(left(s(20), Some(s(18)), 10, 10), None);
    }

    #[test]
    fn an_hour_has_few_lines() {
        let mut passed = Duration::ZERO;
        let mut lines = 0;
        while passed <= s(3600) {
            passed += pause(lines);
            lines += 1;
        }
        assert!((10..20).contains(&lines), "{lines}");
        assert_eq!(
            (pause(0), pause(1), pause(4), pause(5), pause(u32::MAX)),
            (s(10), s(20), s(160), s(300), s(300))
        );
    }

    #[test]
    fn a_line_has_the_count_the_time_and_the_step() {
        let state = State {
            what: "profile".into(),
            done: 3,
            all: 9,
            step: "read 4 KiB".into(),
            started: Instant::now(),
            planned: Some(s(1000)),
        };
        assert_eq!(state.line(), "weft: profile: 3 of 9 done after 0 s, about 17 min left, read 4 KiB");
        for (seconds, words) in [(0, "0 s"), (99, "99 s"), (100, "2 min"), (7199, "120 min"), (9000, "2.5 h")]
        {
            assert_eq!(in_words(s(seconds)), words);
        }
    }

    #[test]
    fn progress_ends_at_once_when_it_is_dropped() {
        let progress = Progress::new("test");
        progress.plan(s(60));
        progress.set(0, 2, "one");
        progress.begin("two");
        let begun = Instant::now();
        drop(progress);
        assert!(begun.elapsed() < FIRST_PAUSE, "{:?}", begun.elapsed());
    }
}
