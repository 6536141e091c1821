//! Runs a case on a model.

use super::{AccessPattern, Case, Sample, Work};
use crate::Profile;
use std::collections::BTreeMap;
use weft_core::{ByteLen, LocalOffset, Nanos};
use weft_env::device::{DeviceAction, DeviceModel, DeviceRequest, Ticket};

/// Number of the file that all requests access.
const FILE: u64 = 1;

/// Returns the measurement that a new device of this profile would give. The result is deterministic.
pub fn predict(profile: &Profile, case: &Case, span: ByteLen) -> Sample {
    let mut model = profile.build(1);
    let mut clock = 0;
    let mut ticket = 0;
    // Write the file first. The case does not wait for these writes.
    if !matches!(case.work, Work::Write(AccessPattern::Sequential)) {
        let mut at = 0;
        let end = if profile.is_hard_disk() { 1 << 20 } else { span.0.min(64 << 20) };
        while at < end {
            let write = device_request(DeviceAction::Write, at, 1 << 20, true);
            submit_and_wait(&mut *model, &mut clock, &mut ticket, &write);
            at += 1 << 20;
        }
        submit_and_wait(
            &mut *model,
            &mut clock,
            &mut ticket,
            &device_request(DeviceAction::Sync, 0, 0, false),
        );
        clock += 1_000_000_000;
    }
    let start = clock;
    let len = case.len.0;
    let (action, is_direct) = match case.work {
        Work::Read(_) => (DeviceAction::Read, true),
        Work::Write(_) => (DeviceAction::Write, true),
        Work::Sync | Work::Copy => (DeviceAction::Write, false),
    };
    let mut offsets = case.offsets(span);
    let mut times = Vec::with_capacity(case.count as usize);
    if case.work == Work::Sync {
        for LocalOffset(at) in offsets {
            let begun = clock;
            submit_and_wait(&mut *model, &mut clock, &mut ticket, &device_request(action, at, len, false));
            submit_and_wait(
                &mut *model,
                &mut clock,
                &mut ticket,
                &device_request(DeviceAction::Sync, 0, 0, false),
            );
            times.push(clock - begun);
        }
    } else {
        let mut begun = BTreeMap::new();
        let mut done = Vec::new();
        loop {
            while begun.len() < case.depth as usize
                && let Some(LocalOffset(at)) = offsets.next()
            {
                ticket += 1;
                begun.insert(Ticket(ticket), clock);
                model.submit(Nanos(clock), Ticket(ticket), &device_request(action, at, len, is_direct));
            }
            if begun.is_empty() {
                break;
            }
            clock = clock.max(model.next_event().expect("a request is in progress").0);
            model.advance(Nanos(clock), &mut done);
            times
                .extend(done.drain(..).filter_map(|ticket| begun.remove(&ticket)).map(|since| clock - since));
        }
    }
    times.sort_unstable();
    Sample { case: case.clone(), times, elapsed: clock - start }
}

fn device_request(action: DeviceAction, at: u64, len: u64, is_direct: bool) -> DeviceRequest {
    DeviceRequest { action, file: FILE, offset: LocalOffset(at), len: ByteLen(len), is_direct }
}

/// Submits a request and waits for its end.
fn submit_and_wait(model: &mut dyn DeviceModel, clock: &mut u64, ticket: &mut u64, request: &DeviceRequest) {
    *ticket += 1;
    let own = Ticket(*ticket);
    model.submit(Nanos(*clock), own, request);
    let mut done = Vec::new();
    while !done.contains(&own) {
        *clock = (*clock).max(model.next_event().expect("a request is in progress").0);
        model.advance(Nanos(*clock), &mut done);
    }
}
