//! Tasks, time and waiting.

use super::*;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Four producers and four consumers exchange items through a counter and an event count. A lost wake-up would leave a
/// consumer waiting.
pub async fn notifications_are_not_lost<E: Env>(stage: Stage<E>) {
    const ITEMS: u64 = 20_000;
    const TASKS: u64 = 4;
    let (made, taken) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let notify = stage.env.notify();
    let consumers: Vec<_> = (0..TASKS)
        .map(|_| {
            let (made, taken, notify) = (Arc::clone(&made), Arc::clone(&taken), notify.clone());
            let env = stage.env.clone();
            start(&stage.env, move || async move {
                let mut mine = 0;
                while mine < ITEMS {
                    let seen = notify.epoch();
                    let available = made.load(Relaxed);
                    let claim = taken
                        .fetch_update(Relaxed, Relaxed, |taken| (taken < available).then_some(taken + 1));
                    match claim {
                        Ok(_) => mine += 1,
                        Err(_) => {
                            let before = env.now();
                            assert!(notify.wait(seen, Some(LONG)).await, "nothing was produced");
                            let waited = env.now().saturating_sub(before);
                            assert!(waited.0 < LONG.0 / 2, "a wake-up was lost");
                        }
                    }
                }
            })
        })
        .collect();
    let producers: Vec<_> = (0..TASKS)
        .map(|_| {
            let (env, made, notify) = (stage.env.clone(), Arc::clone(&made), notify.clone());
            start(&stage.env, move || async move {
                for item in 0..ITEMS {
                    made.fetch_add(1, Relaxed);
                    notify.notify_all();
                    if item % 1000 == 0 {
                        env.sleep(Nanos(1000)).await;
                    }
                }
            })
        })
        .collect();
    for task in producers.into_iter().chain(consumers) {
        task.join().await;
    }
    assert_eq!(taken.load(Relaxed), ITEMS * TASKS);
    assert_eq!(notify.epoch(), ITEMS * TASKS);
}

pub async fn waiting_for_a_notification_ends<E: Env>(stage: Stage<E>) {
    let notify = stage.env.notify();
    let before = stage.env.now();
    assert!(!notify.wait(notify.epoch(), Some(SOON)).await, "no notification");
    assert!(stage.env.now().saturating_sub(before) >= SOON);
    let seen = notify.epoch();
    notify.notify_all();
    assert!(notify.wait(seen, None).await, "notified before");
    let seen = notify.epoch();
    let (env, other) = (stage.env.clone(), notify.clone());
    let task = start(&stage.env, move || async move {
        env.sleep(SOON).await;
        other.notify_all();
    });
    assert!(notify.wait(seen, None).await);
    assert!(notify.wait(seen, Some(Nanos(0))).await, "the count still differs");
    task.join().await;
}

pub async fn time_passes<E: Env>(stage: Stage<E>) {
    let (now, wall) = (stage.env.now(), stage.env.wall());
    stage.env.sleep(SOON).await;
    let (later, wall_later) = (stage.env.now(), stage.env.wall());
    assert!(later.saturating_sub(now) >= SOON, "{now} {later}");
    assert!(wall_later > wall);
    let (mut a, mut b) = ([0_u8; 32], [0_u8; 32]);
    stage.env.random(&mut a);
    stage.env.random(&mut b);
    assert!(a != b && a != [0; 32]);
}
