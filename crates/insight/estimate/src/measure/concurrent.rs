//! Tasks that run at the same time and whose results are collected.

use parking_lot::Mutex;
use std::sync::Arc;
use weft_client::Error;
use weft_env::{Env, Notify};
use weft_wire::Errno;

/// Runs `count` tasks at the same time, the first one on the calling task, and returns their results by number.
///
/// # Errors
/// The error of a task, or `EAGAIN` if the system has no thread for one. All other tasks end first.
pub(super) async fn concurrently<E, T, F, Fut>(env: &E, count: u32, task: F) -> Result<Vec<T>, Error>
where
    E: Env,
    T: Default + Clone + Send + 'static,
    F: Fn(u32) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<T, Error>> + 'static,
{
    let shared = Arc::new(TaskResults {
        done: Mutex::new((vec![T::default(); count as usize], count, None)),
        changed: env.notify(),
    });
    for number in 1..count {
        let (task, worker) = (task.clone(), Arc::clone(&shared));
        let body = move || async move {
            let outcome = task(number).await;
            worker.finish(number, outcome);
        };
        if env.spawn("weft profile", body).is_err() {
            let why = "no thread to measure with";
            shared.finish(number, Err(Error::Misuse { errno: Errno::EAGAIN, why }));
        }
    }
    shared.finish(0, task(0).await);
    loop {
        let seen = shared.changed.epoch();
        if shared.done.lock().1 == 0 {
            break;
        }
        shared.changed.wait(seen, None).await;
    }
    let (results, _, failed) = std::mem::take(&mut *shared.done.lock());
    failed.map_or(Ok(results), Err)
}

/// State shared by the tasks: their results, the number still running, and an error.
struct TaskResults<T, N> {
    done: Mutex<(Vec<T>, u32, Option<Error>)>,
    changed: N,
}

impl<T, N: Notify> TaskResults<T, N> {
    fn finish(&self, number: u32, outcome: Result<T, Error>) {
        let mut done = self.done.lock();
        match outcome {
            Ok(result) => done.0[number as usize] = result,
            Err(error) => done.2 = Some(error),
        }
        done.1 -= 1;
        drop(done);
        self.changed.notify_all();
    }
}
