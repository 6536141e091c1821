//! A prepared trace as a [`Workload`], for the twin.

use super::{Prepared, Steps, Timing};
use crate::error::{Result, TraceError};
use std::sync::{Mutex, PoisonError};
use weft_workload::{FileRef, Op, Workload};

/// Workload that repeats the operations of a trace.
pub struct TraceWorkload<'a> {
    prepared: &'a Prepared,
    timing: Timing,
    failed: Mutex<Option<TraceError>>,
}

impl<'a> TraceWorkload<'a> {
    /// Creates a workload from a prepared trace.
    pub const fn new(prepared: &'a Prepared, timing: Timing) -> Self {
        Self { prepared, timing, failed: Mutex::new(None) }
    }

    /// Checks that every rank was read to its end. Call after the workload has run.
    ///
    /// # Errors
    /// Returns the error that ended a rank early.
    pub fn finish(self) -> Result<()> {
        self.failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

struct Ops<'a> {
    steps: Steps<'a>,
    failed: &'a Mutex<Option<TraceError>>,
}

impl Iterator for Ops<'_> {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        let next = self.steps.next();
        if next.is_none()
            && let Some(error) = self.steps.error()
        {
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
        next.map(|step| step.op)
    }
}

impl Workload for TraceWorkload<'_> {
    fn ranks(&self) -> u32 {
        self.prepared.ranks()
    }

    fn name(&self, file: FileRef) -> String {
        self.prepared.name(file.0)
    }

    fn phase(&self, phase: u16) -> String {
        format!("phase {phase}")
    }

    fn inputs(&self) -> Box<dyn Iterator<Item = (FileRef, u64)> + Send + '_> {
        let files = self.prepared.facts.files.iter().enumerate();
        Box::new(files.filter_map(|(file, plan)| Some((FileRef(file as u32), plan.input?))))
    }

    fn ops(&self, rank: u32) -> Box<dyn Iterator<Item = Op> + Send + '_> {
        Box::new(Ops { steps: self.prepared.steps(rank, self.timing), failed: &self.failed })
    }
}
