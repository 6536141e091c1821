//! Jobs that copy between files and their replicas.

use super::control::JobControl;
use super::pace::{Bound, IdleDevice, JobPace};
use super::progress::Reporter;
use super::worker::Outcome;
use crate::commands::bytes;
use crate::commands::replicate::{Catalog, Entry, Place};
use crate::failure::Failure;
use std::path::Path;
use weft_client::Error;
use weft_client::replicas::{Phase, Usage};
use weft_core::ByteLen;
use weft_core::units::human_bytes;
use weft_env::real::block_on;

/// Direction of a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Copy {
    /// The file to its incomplete replica.
    Fill,
    /// Written bytes to the file; a changed file to its replica.
    Synchronize,
}

/// Copies between the file at `path` and its replica.
///
/// # Errors
/// Errors of the file system and of the replica.
pub fn run(
    path: &str,
    copy: Copy,
    rate: Option<ByteLen>,
    control: JobControl<'_>,
    reporter: &mut Reporter,
) -> Result<Outcome, Failure> {
    let file = bytes::local(path);
    let Some(entry) = Catalog::look(&file)? else {
        return Ok(Outcome::Done("it has no replica any more".to_owned()));
    };
    let Some(place) = entry.original() else { return Err(entry.without_original()) };
    let mut said = Vec::new();
    // A replica that was written in the meantime owns the newest bytes.
    if copy == Copy::Synchronize || entry.written {
        match synchronize(&entry, &place, &file, rate, control, reporter)? {
            Step::Copied(0) => {}
            Step::Copied(bytes) => said.push(format!("copied {} to the file", human_bytes(bytes))),
            Step::Ended(outcome) => return Ok(outcome),
        }
    }
    match fill(&entry, &place, rate, control, reporter)? {
        Step::Copied(0) => {}
        Step::Copied(bytes) => said.push(format!("copied {} to the replica", human_bytes(bytes))),
        Step::Ended(outcome) => return Ok(outcome),
    }
    if said.is_empty() {
        said.push("the replica is valid".to_owned());
    }
    Ok(Outcome::Done(said.join(", ")))
}

/// Part of a job.
enum Step {
    /// Bytes copied.
    Copied(u64),
    /// The job ends here.
    Ended(Outcome),
}

/// Converts the result of a copy.
fn step(copied: weft_client::Result<Option<u64>>, why: &str) -> Result<Step, Failure> {
    match copied {
        Ok(Some(bytes)) => Ok(Step::Copied(bytes)),
        Ok(None) => Ok(Step::Ended(Outcome::InUse(why.to_owned()))),
        Err(Error::Interrupted) => Ok(Step::Ended(Outcome::Stopped)),
        Err(error) => Err(Failure::said(error)),
    }
}

fn synchronize(
    entry: &Entry,
    place: &Place,
    file: &Path,
    rate: Option<ByteLen>,
    control: JobControl<'_>,
    reporter: &mut Reporter,
) -> Result<Step, Failure> {
    // Programs that open the file wait during this copy. So it begins when the device is idle, but does not pause.
    if rate.is_none()
        && let Some(device) = IdleDevice::below(file)
        && !device.wait(&control, reporter)
    {
        return Ok(Step::Ended(Outcome::Stopped));
    }
    let bound = match rate {
        Some(_) => Bound::new(rate, file),
        None => Bound::None,
    };
    let mut pace = JobPace::new(bound, entry.written_bytes(), control, reporter);
    let done = block_on(Usage::synchronize(entry.open()?, place.origin()?, false, &mut pace));
    step(
        done.map(|done| done.map(|done| done.copied)),
        "programs use it; the agent synchronizes it afterwards",
    )
}

fn fill(
    entry: &Entry,
    place: &Place,
    rate: Option<ByteLen>,
    control: JobControl<'_>,
    reporter: &mut Reporter,
) -> Result<Step, Failure> {
    let replica = entry.open()?;
    if block_on(replica.info()).map_err(Failure::said)?.phase == Phase::Valid && !entry.is_changed() {
        return Ok(Step::Copied(0));
    }
    let bound = Bound::new(rate, &entry.place.data_path(&entry.id));
    let mut pace = JobPace::new(bound, entry.bytes(), control, reporter);
    let filled = match pace.begin() {
        Ok(()) => block_on(Usage::fill(replica, place.origin()?, &mut pace)),
        Err(error) => Err(error),
    };
    step(filled, "programs use or change it, so that its replica is not complete")
}
