//! Where the bytes of an open file are: its layout and the name of its datafiles, which change when the file is moved to
//! another layout.
//!
//! Homes are only ever added, so that whoever uses one keeps a good reference to it while others have gone on. An operation
//! takes the newest one, and begins anew when a server says that the bytes have another.

use super::State;
use super::ends::Ends;
use super::leases::Cells;
use crate::error::{Error, Result};
use crate::write::expired;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use weft_core::{FileId, Layout, Nanos};
use weft_env::Env;
use weft_wire::{Capability, Errno};

/// The first wait of an operation for a move to end, and the longest.
const PAUSE_MIN: Nanos = Nanos(500_000);
const PAUSE_MAX: Nanos = Nanos::from_ms(50);
/// A move is over, one way or the other, long before.
const PATIENCE: Nanos = Nanos::from_s(30);

/// One place of a file's bytes.
pub(crate) struct Home<E: Env> {
    /// Names the datafiles.
    pub(crate) data: FileId,
    pub(crate) layout: Layout,
    /// Where its datafiles end.
    pub(crate) ends: Ends,
    pub(super) cells: Cells<E>,
    /// Data servers refuse capabilities that end before this, in seconds since 1970.
    pub(crate) fenced_s: AtomicU64,
    next: OnceLock<Box<Home<E>>>,
}

impl<E: Env> Home<E> {
    pub(super) fn new(data: FileId, layout: Layout, with_leases: bool, ends: Ends) -> Self {
        let cells = Cells::new(Some(&layout), with_leases);
        Self { data, layout, ends, cells, fenced_s: AtomicU64::new(0), next: OnceLock::new() }
    }

    /// The one that the bytes have now, as far as known.
    #[inline]
    pub(super) fn last(&self) -> &Self {
        let mut home = self;
        while let Some(next) = home.next.get() {
            home = next;
        }
        home
    }

    /// All that there were.
    pub(super) fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |home| home.next.get().map(Box::as_ref))
    }

    /// Drops all leases; whether there had been any.
    pub(super) fn clear(&mut self) -> bool {
        let leased = self.cells.clear();
        self.next.get_mut().is_some_and(|next| next.clear()) | leased
    }
}

/// How long an operation has waited for a file on its way.
#[derive(Default)]
pub(crate) struct Patience {
    until: Option<Nanos>,
    pause: Nanos,
    /// A fresh capability was asked for.
    renewed: bool,
}

impl Patience {
    /// Waits a little; false when it was long enough.
    pub(crate) async fn wait<E: Env>(&mut self, env: &E) -> bool {
        let now = env.now();
        if now >= *self.until.get_or_insert(now.saturating_add(PATIENCE)) {
            return false;
        }
        self.pause = Nanos(self.pause.0 * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        env.sleep(self.pause).await;
        true
    }
}

/// Whether it was not done because the bytes have, or are about to get, another home.
pub(crate) fn moved(error: &Error) -> bool {
    error.errno() == Errno::EREMCHG.0
}

/// A capability that is not for the home that it was to be used in.
pub(crate) fn another_home() -> Error {
    Error::misuse(Errno::EREMCHG, "the file was moved to another layout")
}

impl<E: Env> State<E> {
    /// Takes what the metadata service says of the file.
    pub(crate) fn relocated(&self, cap: Capability, layout: Layout) {
        if let Some(mut home) = self.home.as_ref() {
            let mut fresh = None;
            loop {
                home = home.last();
                if home.data.generation() >= cap.file.generation() {
                    break;
                }
                let with_leases = self.client.core.options.transport != crate::options::Transport::Socket;
                let next = fresh.take().unwrap_or_else(|| {
                    let ends = Ends::new(&layout, None, self.record.flags.write);
                    Box::new(Home::new(cap.file, layout.clone(), with_leases, ends))
                });
                home.cells.let_go();
                match home.next.set(next) {
                    Ok(()) => break,
                    Err(next) => fresh = Some(next),
                }
            }
        }
        self.renewed(cap);
    }

    /// After an operation in `home`: its result, or `None` when it is to begin anew because the bytes have another home, or
    /// because the time of its capability was over: our clock alone does not say when.
    ///
    /// # Errors
    /// Others, and when the file was on its way for too long.
    pub(crate) async fn unless_moved<T>(
        &self,
        home: &Home<E>,
        result: Result<T>,
        patience: &mut Patience,
    ) -> Result<Option<T>> {
        match result {
            Ok(done) => Ok(Some(done)),
            Err(error) if moved(&error) => self.follow(home, error, patience).await.map(|()| None),
            Err(error) if expired(&error) && !patience.renewed => {
                patience.renewed = true;
                self.renew().await.map(|_| None)
            }
            Err(error) => Err(error),
        }
    }

    async fn follow(&self, home: &Home<E>, error: Error, patience: &mut Patience) -> Result<()> {
        let before = *self.record.cap.read();
        if self.home()?.data != home.data && before.is_some_and(|cap| cap.file != home.data) {
            return Ok(());
        }
        let cap = self.renew().await?;
        let is_fresher = before.is_none_or(|before| before.expires_s < cap.expires_s);
        if cap.file != home.data || is_fresher || patience.wait(&self.client.core.env).await {
            return Ok(());
        }
        const WHY: &str = "the file is being moved to another layout, and that does not end";
        Err(match error {
            Error::Refused(mut refused) => {
                refused.error.errno = Errno::EIO;
                Error::Refused(refused)
            }
            _ => Error::misuse(Errno::EIO, WHY),
        })
    }

    /// A capability for `home` that is good for a while.
    ///
    /// # Errors
    /// That there is another home, by now.
    pub(crate) async fn cap_in(&self, home: &Home<E>) -> Result<Capability> {
        let cap = self.cap().await?;
        if cap.file == home.data { Ok(cap) } else { Err(another_home()) }
    }
}
