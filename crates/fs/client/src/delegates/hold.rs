//! A range of a file that delegates hold up for this process, which changes it in the underlying file.

use super::traffic::{Call, call_all};
use super::{Delegates, one};
use crate::error::{Error, Result};
use weft_core::ServerId;
use weft_core::delegates::ownership::FileNumber;
use weft_env::Env;
use weft_wire::Errno;
use weft_wire::delegate::{DelegateReply, DelegateRequest};

/// Outcome of a request to hold a range.
pub(super) enum HoldOutcome<'a, E: Env> {
    Held(Hold<'a, E>),
    /// Delegates that do not know the file.
    NotOpen(Vec<ServerId>),
}

/// Attempts to let delegates drop a range that they no longer held.
const DROPS_MAX: u32 = 4;

/// A held range. It must be released with [`Hold::release`]; otherwise, the end of the session releases it.
pub(super) struct Hold<'a, E: Env> {
    delegates: &'a Delegates<E>,
    held: Vec<ServerId>,
    file: FileNumber,
    start: u64,
    end: u64,
}

impl<E: Env> Delegates<E> {
    /// Holds a range at the delegates `at`, in ascending order. Asks all at once; if one is busy, gives up what it got
    /// and waits for one after the other, so that two processes cannot wait for each other.
    pub(super) async fn hold(
        &self,
        at: Vec<ServerId>,
        file: FileNumber,
        (start, end): (u64, u64),
    ) -> Result<HoldOutcome<'_, E>> {
        let request = |wait| DelegateRequest::Hold { file, start, end, wait };
        let mut hold = Hold { delegates: self, held: Vec::new(), file, start, end };
        let mut calls: Vec<Call<E>> =
            at.iter().map(|delegate| Call::new(*delegate, request(false))).collect();
        let failures = call_all(&self.core, &self.incarnations, &mut calls).await;
        let is_held = |call: &&Call<E>| matches!(call.reply, Some(DelegateReply::Done));
        hold.held.extend(calls.iter().filter(is_held).map(|call| call.delegate));
        if hold.held.len() == at.len() {
            return Ok(HoldOutcome::Held(hold));
        }
        let released = hold.release_all().await;
        one(failures)?;
        released?;
        let unknown = not_open(&calls);
        if !unknown.is_empty() {
            return Ok(HoldOutcome::NotOpen(unknown));
        }
        for delegate in at {
            let mut calls = [Call::new(delegate, request(true))];
            let failed = one(call_all(&self.core, &self.incarnations, &mut calls).await);
            if failed.is_ok() && calls[0].reply == Some(DelegateReply::Done) {
                hold.held.push(delegate);
                continue;
            }
            let released = hold.release_all().await;
            failed?;
            return released.map(|_| HoldOutcome::NotOpen(vec![delegate]));
        }
        Ok(HoldOutcome::Held(hold))
    }
}

impl<E: Env> Hold<'_, E> {
    /// Releases the range after the caller has changed it in the underlying file.
    ///
    /// A delegate that lost the connection has released the range earlier, and may have cached bytes from before the
    /// change. It then drops the range once more.
    ///
    /// # Errors
    /// A delegate does not answer.
    pub(super) async fn release(mut self) -> Result<()> {
        let mut lost = self.release_all().await?;
        for _ in 0..DROPS_MAX {
            let mut lost_again = Vec::new();
            for delegate in lost {
                let range = (self.start, self.end);
                let outcome = self.delegates.hold(vec![delegate], self.file, range).await?;
                if let HoldOutcome::Held(mut hold) = outcome {
                    lost_again.extend(hold.release_all().await?);
                }
            }
            if lost_again.is_empty() {
                return Ok(());
            }
            lost = lost_again;
        }
        const WHY: &str = "a delegate keeps losing the connection to this process";
        Err(Error::misuse(Errno::EIO, WHY))
    }

    /// Releases the range before the caller's change. Only for a mutant.
    pub(super) async fn release_early(&mut self) {
        let _ = self.release_all().await;
    }

    /// Releases the range, and returns the delegates that did not hold it any more.
    async fn release_all(&mut self) -> Result<Vec<ServerId>> {
        let (file, start, end) = (self.file, self.start, self.end);
        let request = || DelegateRequest::Release { file, start, end };
        let mut calls: Vec<Call<E>> =
            self.held.drain(..).map(|delegate| Call::new(delegate, request())).collect();
        let (core, incarnations) = (&self.delegates.core, &self.delegates.incarnations);
        one(call_all(core, incarnations, &mut calls).await)?;
        Ok(not_open(&calls))
    }
}

/// Returns the delegates that replied `NotOpen`.
fn not_open<E: Env>(calls: &[Call<E>]) -> Vec<ServerId> {
    let is_unknown = |call: &&Call<E>| matches!(call.reply, Some(DelegateReply::NotOpen { .. }));
    calls.iter().filter(is_unknown).map(|call| call.delegate).collect()
}
