//! Retries on an open file, after an expired capability or a move of the file.
//!
//! | retry | repeats | after |
//! | --- | --- | --- |
//! | [`LayoutRetry`] | an operation, on the newest layout version | a stale layout; an expired or fenced capability |
//! | [`CapabilityRetry`] | an exchange of a read or write, for the bytes that remain | an expired or fenced capability |
//! | [`State::with_capability`] | a single request | an expired or fenced capability |
//!
//! A lost connection is repeated below, by [`Attempts`](crate::attempts::Attempts), and never reaches these.

use super::State;
use super::layout_version::LayoutVersion;
use crate::backoff::Backoff;
use crate::error::{Error, Result};
use crate::exchange::{Item, first_error};
use weft_core::FileOffset;
use weft_env::Env;
use weft_wire::{Capability, Errno};

/// Fresh capabilities that one operation may need. Other clients may fence a file several times in a row: the metadata server
/// admits seven fences at once.
const RENEWALS_MAX: u32 = 8;

/// Further fresh capabilities that an operation may request.
struct Renewals(u32);

impl Renewals {
    /// Whether to repeat after this error, under a fresh capability. Counts it.
    fn allow(&mut self, error: &Error) -> bool {
        let allowed = error.is_expired() && self.0 > 0;
        self.0 -= u32::from(allowed);
        allowed
    }
}

/// Repeats an operation on an open file while the file moves to another layout.
pub(crate) struct LayoutRetry<'a, E: Env> {
    state: &'a State<E>,
    backoff: Backoff,
    renewals: Renewals,
}

impl<'a, E: Env> LayoutRetry<'a, E> {
    pub(crate) fn new(state: &'a State<E>) -> Self {
        Self { state, backoff: Backoff::default(), renewals: Renewals(RENEWALS_MAX) }
    }

    /// Runs `operation` on the newest layout version, and again whenever [`check`](Self::check) wants it repeated.
    pub(crate) async fn run<T>(
        &mut self,
        mut operation: impl AsyncFnMut(&'a LayoutVersion<E>) -> Result<T>,
    ) -> Result<T> {
        loop {
            let version = self.state.layout_version()?;
            let result = operation(version).await;
            if let Some(done) = self.check(version, result).await? {
                return Ok(done);
            }
        }
    }

    /// Runs `operation` like [`run`](Self::run), after a first attempt on `version` has failed with `error`.
    pub(crate) async fn run_again<T>(
        &mut self,
        version: &LayoutVersion<E>,
        error: Error,
        operation: impl AsyncFnMut(&'a LayoutVersion<E>) -> Result<T>,
    ) -> Result<T> {
        match self.check(version, Err(error)).await? {
            Some(done) => Ok(done),
            None => self.run(operation).await,
        }
    }

    /// Returns the result of an operation on `version`, or `None` if it must be repeated.
    ///
    /// It is repeated when the file has moved. It is also repeated, a few times, with a fresh capability when the old one has
    /// expired: the local clock alone cannot tell when that happens.
    ///
    /// # Errors
    /// All other errors, and `EIO` when the move takes too long.
    pub(crate) async fn check<T>(
        &mut self,
        version: &LayoutVersion<E>,
        result: Result<T>,
    ) -> Result<Option<T>> {
        match result {
            Ok(done) => Ok(Some(done)),
            Err(error) if error.is_stale_layout() => self.follow(version, error).await.map(|()| None),
            Err(error) if self.renewals.allow(&error) => self.state.renew().await.map(|_| None),
            Err(error) => Err(error),
        }
    }

    async fn follow(&mut self, version: &LayoutVersion<E>, error: Error) -> Result<()> {
        let state = self.state;
        let before = *state.record.cap.read();
        if state.layout_version()?.data != version.data && before.is_some_and(|cap| cap.file != version.data)
        {
            return Ok(());
        }
        let cap = state.renew().await?;
        if cap.file == version.data {
            // Perhaps a blank disk has replaced a lost one, which refuses the capabilities issued before.
            version.ends.expire();
        }
        let is_fresher = before.is_none_or(|before| before.expires_s < cap.expires_s);
        if cap.file != version.data || is_fresher || self.backoff.wait(&state.session.core.env).await {
            return Ok(());
        }
        const WHY: &str = "the file is being moved to another layout, and the move does not finish";
        Err(match error {
            Error::Refused(mut refused) => {
                refused.error.errno = Errno::EIO;
                Error::Refused(refused)
            }
            _ => Error::misuse(Errno::EIO, WHY),
        })
    }
}

/// The capability that all exchanges of one read or write use.
pub(crate) struct CapabilityRetry {
    cap: Option<Capability>,
    renewals: Renewals,
}

impl CapabilityRetry {
    /// Starts with the file's capability, which is renewed if it has expired.
    ///
    /// In an append, only the capability of its `grant` is used: a fresh one would pass the fence that must stop this
    /// write.
    pub(crate) fn new(grant: Option<Capability>) -> Self {
        Self { cap: grant, renewals: Renewals(if grant.is_some() { 0 } else { RENEWALS_MAX }) }
    }

    /// Returns the capability for the next exchange on `version`.
    ///
    /// # Errors
    /// `EREMCHG` when the capability is not for this version.
    pub(crate) async fn cap<E: Env>(
        &mut self,
        state: &State<E>,
        version: &LayoutVersion<E>,
    ) -> Result<Capability> {
        let cap = match self.cap {
            Some(cap) if cap.file == version.data => cap,
            Some(_) => return Err(Error::stale_layout()),
            None => state.cap_in(version).await?,
        };
        self.cap = Some(cap);
        Ok(cap)
    }

    /// Returns the capability for the next exchange of a write that ends at `end`. If a quota limits the file, the
    /// metadata server charges it for the bytes first.
    ///
    /// # Errors
    /// `EDQUOT`, and errors of [`cap`](Self::cap).
    pub(crate) async fn cap_for_write<E: Env>(
        &mut self,
        state: &State<E>,
        version: &LayoutVersion<E>,
        end: FileOffset,
    ) -> Result<Capability> {
        loop {
            let cap = self.cap(state, version).await?;
            if cap.limit.is_none_or(|limit| end.0 <= limit.file_len.0) {
                return Ok(cap);
            }
            match state.reserve_space(cap, end).await {
                Ok(cap) => {
                    self.cap = Some(cap);
                    return Ok(cap);
                }
                Err(error) if self.renewals.allow(&error) => {
                    self.cap = None;
                    state.renew().await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the result of an exchange; `Ok` also when the caller must repeat it under a fresh capability.
    pub(crate) async fn after<E: Env>(&mut self, state: &State<E>, items: Vec<Item>) -> Result<()> {
        match first_error(items) {
            Err(error) if self.renewals.allow(&error) => {
                self.cap = None;
                state.renew().await.map(drop)
            }
            result => result,
        }
    }
}

impl<E: Env> State<E> {
    /// Sends a request under a capability for `version`, and again under a fresh one if that has expired.
    pub(crate) async fn with_capability<T>(
        &self,
        version: &LayoutVersion<E>,
        request: impl AsyncFn(Capability) -> Result<T>,
    ) -> Result<T> {
        let mut renewals = Renewals(RENEWALS_MAX);
        loop {
            match request(self.cap_in(version).await?).await {
                Err(error) if renewals.allow(&error) => drop(self.renew().await?),
                result => return result,
            }
        }
    }
}
