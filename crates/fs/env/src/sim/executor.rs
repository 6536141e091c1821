//! Executor that runs the tasks of the simulated world one at a time, in the order of virtual time.

use super::control::Control;
use super::disk::SimpleDisk;
use super::net::SimpleNetwork;
use super::world::{TaskId, World};
use super::{SimConfig, SimEnv};
use std::cell::RefCell;
use std::future::Future;
use std::ops::Deref;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use weft_core::Nanos;

/// Maximum number of polls at one instant. More are a bug of the code under test, which never lets time advance.
const POLLS_PER_INSTANT_MAX: u64 = 50_000_000;

type LocalFuture<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Simulated world and the thread that runs it. Dereferences to its [`Control`]. Tasks may borrow data that outlives
/// the world.
pub struct Sim<'a> {
    control: Control,
    futures: Vec<Option<LocalFuture<'a>>>,
    polls: u64,
    instant: (u64, u64),
}

impl Deref for Sim<'_> {
    type Target = Control;
    fn deref(&self) -> &Control {
        &self.control
    }
}

impl<'a> Sim<'a> {
    /// Creates a world without machines, with the simple network.
    pub fn new(config: SimConfig) -> Self {
        let world = World::new(config, Box::new(SimpleNetwork::default()));
        Self { control: Control { world }, futures: Vec::new(), polls: 0, instant: (0, 0) }
    }

    /// Creates a world with this seed and otherwise default settings.
    pub fn with_seed(seed: u64) -> Self {
        Self::new(SimConfig { seed, ..SimConfig::default() })
    }

    /// Adds a machine with a simple disk at `/`, and returns its process.
    pub fn node(&self, name: &str) -> SimEnv {
        let env = self.control.add_machine(name);
        self.control.add_disk(&env, Path::new("/"), Box::new(SimpleDisk::default()));
        env
    }

    /// Returns the control, for use inside tasks.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Returns the number of polls so far.
    pub fn polls(&self) -> u64 {
        self.polls
    }

    /// Returns a hash of all events so far: runs with the same seed return the same hash.
    pub fn event_hash(&self) -> u64 {
        self.control.world.hash()
    }

    /// Runs until nothing can happen any more.
    pub fn run(&mut self) {
        while self.step(u64::MAX) {}
    }

    /// Runs for `duration` of virtual time.
    pub fn run_for(&mut self, duration: Nanos) {
        let end = self.control.world.now().saturating_add(duration.0);
        while self.step(end) {}
        self.control.world.idle_until(end);
    }

    /// Runs `future` to its end as a task of the process of `env`, and all other tasks with it.
    ///
    /// # Panics
    /// If the process dies first, or nothing can happen any more.
    pub fn block_on<F>(&mut self, env: &SimEnv, future: F) -> F::Output
    where
        F: Future + 'a,
        F::Output: 'a,
    {
        self.try_block_on(env, future).expect("the process died before its task ended")
    }

    /// Runs `future` to its end as a task of the process of `env`; `None` if the process dies first.
    ///
    /// # Panics
    /// If nothing can happen any more.
    pub fn try_block_on<F>(&mut self, env: &SimEnv, future: F) -> Option<F::Output>
    where
        F: Future + 'a,
        F::Output: 'a,
    {
        if !self.control.world.is_alive(env.process()) {
            return None;
        }
        let slot = Rc::new(RefCell::new(None));
        let result = Rc::clone(&slot);
        let task = self.control.world.state().add_task(env.process(), "main", None);
        self.keep(
            task,
            Box::pin(async move {
                let output = future.await;
                *slot.borrow_mut() = Some(output);
            }),
        );
        loop {
            if let Some(output) = result.borrow_mut().take() {
                return Some(output);
            }
            if !self.control.world.is_alive(env.process()) {
                self.drop_doomed();
                return None;
            }
            if !self.step(u64::MAX) {
                panic!(
                    "nothing can happen any more, and these tasks wait: {:?}",
                    self.control.world.waiting()
                );
            }
        }
    }

    /// Starts `future` as a task of the process of `env`; it never runs if the process is dead.
    pub fn start(&mut self, env: &SimEnv, name: &str, future: impl Future<Output = ()> + 'a) {
        if self.control.world.is_alive(env.process()) {
            let task = self.control.world.state().add_task(env.process(), name, None);
            self.keep(task, Box::pin(future));
        }
    }

    fn keep(&mut self, task: TaskId, future: LocalFuture<'a>) {
        let index = task.index as usize;
        if self.futures.len() <= index {
            self.futures.resize_with(index + 1, || None);
        }
        self.futures[index] = Some(future);
    }

    /// Polls the next task. Returns false if nothing can happen until `limit`.
    fn step(&mut self, limit: u64) -> bool {
        self.drop_doomed();
        let world = &self.control.world;
        let Some(turn) = world.next(limit) else { return false };
        self.polls += 1;
        let now = world.now();
        self.instant = if self.instant.0 == now { (now, self.instant.1 + 1) } else { (now, 0) };
        assert!(self.instant.1 < POLLS_PER_INSTANT_MAX, "tasks run forever without time advancing");
        let mut future = match turn.start {
            Some(start) => start(),
            None => self.futures.get_mut(turn.task.index as usize).and_then(Option::take).expect("a future"),
        };
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => self.keep(turn.task, future),
            Poll::Ready(()) => {
                // Dropping the future may wake other tasks, so the world must not be locked here.
                drop(future);
                self.control.world.state().end_task(turn.task);
            }
        }
        true
    }

    fn drop_doomed(&mut self) {
        loop {
            let doomed = {
                let mut state = self.control.world.state();
                let Some(task) = state.doomed.pop() else { return };
                if !state.is_doomed(task) {
                    continue;
                }
                let start = state.end_task(task);
                drop(state);
                (start, self.futures.get_mut(task.index as usize).and_then(Option::take))
            };
            drop(doomed);
        }
    }
}

impl Drop for Sim<'_> {
    fn drop(&mut self) {
        // Tasks and the world reference each other.
        for future in &mut self.futures {
            drop(future.take());
        }
        self.control.world.forget_starts();
    }
}
