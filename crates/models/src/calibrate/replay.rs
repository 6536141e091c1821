//! The same cases on a model.

use super::{Case, Place, Sample, Work};
use crate::Profile;
use std::collections::BTreeMap;
use weft_core::{ByteLen, LocalOffset, Nanos};
use weft_env::device::{DeviceAction, DeviceModel, DeviceRequest, Ticket};

/// The file that all requests go to.
const FILE: u64 = 1;

/// What a new device of this profile would have measured, the same whenever it is asked.
pub fn predict(profile: &Profile, case: &Case, span: ByteLen) -> Sample {
    let mut model = profile.build(1);
    let mut clock = 0;
    let mut ticket = 0;
    // The file is there. What is written here is not waited for by the case.
    if !matches!(case.work, Work::Write(Place::Sequential)) {
        let mut at = 0;
        let end = if profile.is_hard_disk() { 1 << 20 } else { span.0.min(64 << 20) };
        while at < end {
            let write = asked(DeviceAction::Write, at, 1 << 20, true);
            one(&mut *model, &mut clock, &mut ticket, &write);
            at += 1 << 20;
        }
        one(&mut *model, &mut clock, &mut ticket, &asked(DeviceAction::Sync, 0, 0, false));
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
            one(&mut *model, &mut clock, &mut ticket, &asked(action, at, len, false));
            one(&mut *model, &mut clock, &mut ticket, &asked(DeviceAction::Sync, 0, 0, false));
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
                model.submit(Nanos(clock), Ticket(ticket), &asked(action, at, len, is_direct));
            }
            if begun.is_empty() {
                break;
            }
            clock = clock.max(model.next_event().expect("something is under way").0);
            model.advance(Nanos(clock), &mut done);
            times
                .extend(done.drain(..).filter_map(|ticket| begun.remove(&ticket)).map(|since| clock - since));
        }
    }
    times.sort_unstable();
    Sample { case: case.clone(), times, elapsed: clock - start }
}

fn asked(action: DeviceAction, at: u64, len: u64, is_direct: bool) -> DeviceRequest {
    DeviceRequest { action, file: FILE, offset: LocalOffset(at), len: ByteLen(len), is_direct }
}

/// Hands one in and waits for it.
fn one(model: &mut dyn DeviceModel, clock: &mut u64, ticket: &mut u64, request: &DeviceRequest) {
    *ticket += 1;
    let mine = Ticket(*ticket);
    model.submit(Nanos(*clock), mine, request);
    let mut done = Vec::new();
    while !done.contains(&mine) {
        *clock = (*clock).max(model.next_event().expect("something is under way").0);
        model.advance(Nanos(*clock), &mut done);
    }
}
