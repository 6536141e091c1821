//! Whatever is asked of a model: every ticket ends once, time does not run backwards, and the same requests take the
//! same times.

mod common;

use common::{Runner, request};
use proptest::prelude::*;
use weft_env::device::{DeviceAction, DeviceRequest};
use weft_models::{Profile, profile};

#[derive(Clone, Debug)]
struct Step {
    request: DeviceRequest,
    /// Events that pass before the next request.
    events: usize,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let action = prop_oneof![
        4 => Just(DeviceAction::Read),
        6 => Just(DeviceAction::Write),
        2 => Just(DeviceAction::Sync),
        1 => Just(DeviceAction::SyncNames),
        1 => Just(DeviceAction::Name),
        1 => Just(DeviceAction::Cut),
    ];
    let len = prop_oneof![Just(0), 1..5000u64, Just(65_536), 1..3_000_000u64];
    let step = (action, 1..6u64, 0..200_000_000u64, len, any::<bool>(), 0..4usize);
    let step = step.prop_map(|(action, file, offset, len, is_direct, events)| Step {
        request: request(action, file, offset, len, is_direct),
        events,
    });
    prop::collection::vec(step, 1..120)
}

/// The course of events: which ticket ended when.
fn course(profile: &Profile, seed: u64, steps: &[Step]) -> Vec<(u64, u64)> {
    let mut runner = Runner::new(profile.build(seed));
    let mut ends = Vec::new();
    let mut take = |runner: &mut Runner| {
        let before = runner.now;
        let ended = runner.step();
        assert!(runner.now >= before);
        ends.extend(ended.into_iter().map(|(ticket, _)| (runner.now, ticket.0)));
    };
    for step in steps {
        runner.submit(&step.request);
        for _ in 0..step.events {
            if runner.model.next_event().is_some() {
                take(&mut runner);
            }
        }
    }
    let mut left = 2_000_000;
    while runner.model.next_event().is_some() {
        take(&mut runner);
        left -= 1;
        assert!(left > 0, "the model comes to rest");
    }
    drop(runner.settle());
    ends
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn every_ticket_ends_once_and_at_the_same_time_again(
        which in 0..profile::names().len(), cache_mib in prop_oneof![Just(0u64), Just(16)], seed in any::<u64>(), steps in steps(),
    ) {
        let mut profile = Profile::by_name(profile::names()[which]).expect("a name of the list");
        profile.files.page_cache_mib = cache_mib;
        profile.files.dirty_limit_mib = 8;
        profile.files.dirty_background_mib = 2;
        let ends = course(&profile, seed, &steps);
        let mut tickets: Vec<_> = ends.iter().map(|&(_, ticket)| ticket).collect();
        tickets.sort_unstable();
        prop_assert_eq!(tickets, (0..steps.len() as u64).collect::<Vec<_>>());
        prop_assert_eq!(course(&profile, seed, &steps), ends);
    }
}
