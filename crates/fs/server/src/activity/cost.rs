//! Cost of counting, for measurements: `cargo test --release -p weft-server --lib activity_cost -- --ignored --nocapture`.

use super::{Activity, ConnectionActivity, KEPT_FILES_MAX};
use crate::greeting::Greeted;
use crate::latency::Operation;
use std::sync::Arc;
use std::time::Instant;
use weft_core::{FileId, Nanos};
use weft_wire::hello::{Identity, Process, SessionId};
use weft_wire::keys::Principal;

const REQUESTS: u64 = 4_000_000;

fn connection(activity: &Arc<Activity>, session: u128) -> ConnectionActivity {
    let identity = Identity { uid: 1000, gid: 100, groups: vec![] };
    let greeted = Greeted {
        level: weft_wire::Level::LATEST,
        session: SessionId(session),
        slot: 0,
        principal: Principal::local(identity, false),
        key: None,
        pid: 1,
        local: true,
        job: None,
        process: Process::default(),
        address: String::new(),
    };
    ConnectionActivity::new(activity, &greeted, Nanos(0))
}

/// Nanoseconds for each request to one of `files` files, in turn.
fn ns_per_request(files: u64, threads: u128) -> f64 {
    let activity = Arc::new(Activity::new());
    let took = std::thread::scope(|scope| {
        let run = |session| {
            let mut connection = connection(&activity, session);
            move || {
                let begin = Instant::now();
                for request in 0..REQUESTS {
                    let file = FileId(2 + request % files);
                    connection.count(Operation::Read, Some(file), 4096, Nanos(9000), Nanos(request));
                }
                begin.elapsed()
            }
        };
        let running: Vec<_> = (0..threads).map(|session| scope.spawn(run(session))).collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).max().expect("a thread")
    });
    took.as_nanos() as f64 / REQUESTS as f64
}

#[test]
#[ignore = "a measurement"]
fn activity_cost() {
    for (files, threads, about) in [
        (1, 1, "one file"),
        (KEPT_FILES_MAX as u64, 1, "as many files as a connection keeps"),
        (500, 1, "500 files"),
        (1, 2, "one file, two connections at the same time"),
        (500, 2, "500 files, two connections at the same time"),
    ] {
        println!("{about}: {:.0} ns for each request", ns_per_request(files, threads));
    }
}
