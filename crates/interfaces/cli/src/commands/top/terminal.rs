//! The terminal: replies of servers and keys change the screen until the user quits or a signal comes.

use super::poll::{self, Observed, Reply};
use super::screen::{Action, Screen};
use super::view::{Sort, busiest_files};
use super::{labels, require_an_answer};
use crate::commands::session::Weft;
use crate::failure::Failure;
use crate::signals::{self, Blocked};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weft_core::{FileId, Nanos, ServerId};
use weft_wire::meta::KnownPath;

/// Longest time until a key, a signal or a reply is noticed.
const POLL: Duration = Duration::from_millis(50);
/// Time after which a path is asked for again, because the file may have been renamed.
const PATHS_KEPT: Duration = Duration::from_secs(10);
/// Files whose paths are shown at most.
const FILES_SHOWN: usize = 256;

/// Message to the screen.
enum Message {
    /// Reply of the server with this index.
    Reply(usize, Box<Reply>),
    /// Paths of files.
    Paths(BTreeMap<FileId, KnownPath>),
}

/// Interval of the observers, which a key changes while they wait.
struct Pace {
    interval_ns: AtomicU64,
    changed: (Mutex<u64>, Condvar),
}

impl Pace {
    fn set(&self, interval: Nanos) {
        self.interval_ns.store(interval.0, Ordering::SeqCst);
        *self.changed.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.1.notify_all();
    }

    /// Waits until an interval since `begin` is over.
    fn wait(&self, begin: Instant) {
        let mut changes = self.changed.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let interval = Nanos(self.interval_ns.load(Ordering::SeqCst)).as_duration();
            let left = interval.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return;
            }
            changes = self.changed.1.wait_timeout(changes, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Runs until the user quits.
pub fn run(weft: Weft, interval: Nanos, sort: Sort, filter: String) -> Result<u8, Failure> {
    // Threads that start from here on inherit the mask.
    let blocked = Blocked::new(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP]);
    let weft = Arc::new(weft);
    let mut observed = Observed::new(&weft);
    for (index, reply) in poll::ask_all(&weft).into_iter().enumerate() {
        observed.add(index, reply);
    }
    require_an_answer(&weft, &observed)?;
    let colors = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let screen = Screen::new(&weft.cluster.name, labels(&weft), interval, sort, filter, colors);
    let pace = Pace { interval_ns: AtomicU64::new(interval.0), changed: Default::default() };
    // `try_init` also restores the terminal when this thread panics.
    let terminal = ratatui::try_init().map_err(|error| Failure::new("top: terminal", error))?;
    let shown = show(&weft, terminal, screen, observed, Arc::new(pace));
    ratatui::restore();
    // A signal now ends the process, so that its parent sees it.
    blocked.unblock();
    shown.map(|()| 0).map_err(|error| Failure::new("top: terminal", error))
}

/// Starts a thread that asks for paths. A metadata server that does not answer delays paths only.
fn path_asker(weft: &Arc<Weft>, to: Sender<Message>) -> std::io::Result<Sender<Vec<FileId>>> {
    let (wanted, files) = channel::<Vec<FileId>>();
    let weft = Arc::clone(weft);
    let ask = move || {
        while let Ok(files) = files.recv() {
            if to.send(Message::Paths(poll::paths(&weft, &files))).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("weft paths".into()).spawn(ask)?;
    Ok(wanted)
}

/// Starts a thread for each server, so that one that does not answer delays no other. They end with the process.
fn observers(weft: &Arc<Weft>, pace: &Arc<Pace>) -> std::io::Result<(Sender<Message>, Receiver<Message>)> {
    let (to, from) = channel();
    let servers: Vec<ServerId> = weft.cluster.numbered().map(|(id, _)| id).collect();
    for (index, server) in servers.into_iter().enumerate() {
        let (weft, pace, to) = (Arc::clone(weft), Arc::clone(pace), to.clone());
        let observe = move || {
            loop {
                let begin = Instant::now();
                pace.wait(begin);
                if to.send(Message::Reply(index, Box::new(poll::ask(&weft, server)))).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("weft observer".into()).spawn(observe)?;
    }
    Ok((to, from))
}

fn show(
    weft: &Arc<Weft>,
    mut terminal: DefaultTerminal,
    mut screen: Screen,
    mut observed: Observed,
    pace: Arc<Pace>,
) -> std::io::Result<()> {
    let (to, messages) = observers(weft, &pace)?;
    let wanted = path_asker(weft, to)?;
    let mut asked: BTreeMap<FileId, Instant> = BTreeMap::new();
    let mut last_point = Instant::now();
    screen.update(observed.rates());
    let mut is_changed = true;
    loop {
        if signals::is_pending(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP]) {
            return Ok(());
        }
        if is_changed {
            terminal.draw(|frame| screen.draw(frame))?;
        }
        is_changed = false;
        if event::poll(POLL)? {
            is_changed = true;
            if let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
            {
                match screen.key(key) {
                    Action::Quit => return Ok(()),
                    Action::Interval => pace.set(screen.interval()),
                    Action::None => {}
                }
            }
        }
        let mut is_new = false;
        while let Ok(message) = messages.try_recv() {
            match message {
                Message::Reply(index, reply) => {
                    observed.add(index, *reply);
                    is_new = true;
                }
                Message::Paths(paths) => {
                    screen.labels.paths.extend(paths);
                    is_changed = true;
                }
            }
        }
        if is_new {
            let rates = observed.rates();
            let now = Instant::now();
            asked.retain(|_, at| now.duration_since(*at) < PATHS_KEPT);
            let mut files = busiest_files(&rates, screen.sort(), FILES_SHOWN);
            screen.labels.paths.retain(|file, _| asked.contains_key(file) || files.contains(file));
            files.retain(|file| !asked.contains_key(file));
            if !files.is_empty() {
                asked.extend(files.iter().map(|file| (*file, now)));
                // The thread ends with this process only.
                let _ = wanted.send(files);
            }
            is_changed |= screen.update(rates);
            if now.duration_since(last_point) >= screen.interval().as_duration() / 2 {
                screen.add_point();
                last_point = now;
            }
        }
    }
}
