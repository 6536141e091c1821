//! Shared state of the simulated world: time, tasks, machines and processes.

use super::disk::{Device, SimDisk};
use super::net::{Link, ListenerKey, Network, Port};
use super::rng::Rng;
use super::{NetworkModel, SimConfig};
use crate::Coding;
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::task::Poll;
use weft_core::random::splitmix64;

/// Task. A later task in the same slot has another id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct TaskId {
    pub index: u32,
    generation: u32,
}

/// Process: one run of a program on a machine. Numbers are never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ProcessId(pub u32);

/// Machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct MachineId(pub u32);

/// Disk model with an entry in the executor's timer heap.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct DeviceId(u32);

/// Receiver of a timer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum TimerTarget {
    Task(TaskId),
    Device(DeviceId),
}

/// TaskStart of a task. The executor calls it on its own thread, so that only the closure has to be `Send`.
pub(super) type TaskStart = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

struct Task {
    generation: u32,
    alive: bool,
    process: ProcessId,
    name: String,
    is_ready: bool,
    /// Times of this task's entries in the timer heap, in descending order. A wake-up that is requested after the
    /// earliest of them needs no entry of its own: the task is polled at the earlier time and requests it again.
    /// Timeouts that never expire therefore leave no entries in the heap.
    timers: Vec<u64>,
    start: Option<TaskStart>,
}

pub(super) struct Process {
    pub machine: MachineId,
    /// Shared with every view of the process, so that each operation can check it cheaply.
    pub is_alive: Arc<AtomicBool>,
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

impl Process {
    pub fn is_alive(&self) -> bool {
        self.is_alive.load(Relaxed)
    }
}

pub(super) struct Machine {
    pub name: String,
    pub is_up: bool,
    /// Number of boots.
    pub boots: u64,
    /// Value of the clock since boot when the world's time is zero.
    pub boot_offset: u64,
    /// Error of civil time, in nanoseconds.
    pub wall_skew: u64,
    pub disks: BTreeMap<PathBuf, Arc<SimDisk>>,
    pub sync_points: u64,
    pub cut_at_sync: Option<u64>,
    pub next_port: u16,
    pub socket_names: BTreeSet<PathBuf>,
}

pub(super) struct State {
    sequence: u64,
    heap: BinaryHeap<Reverse<(u64, u64, TimerTarget)>>,
    ready: VecDeque<TaskId>,
    /// Models of all disks, each with the time of its next event, [`u64::MAX`] for none. A heap entry for another time
    /// is void.
    devices: Vec<(Arc<Device>, u64)>,
    /// Devices whose next event is due.
    due: Vec<(Arc<Device>, DeviceId)>,
    tasks: Vec<Task>,
    free: Vec<u32>,
    /// Tasks of dead processes whose futures are still to be dropped.
    pub doomed: Vec<TaskId>,
    pub rng: Rng,
    pub processes: Vec<Process>,
    pub machines: Vec<Machine>,
    pub ports: BTreeMap<(MachineId, ListenerKey), Arc<Port>>,
    pub links: Vec<Weak<Link>>,
    pub partitions: BTreeSet<(MachineId, MachineId)>,
}

/// The simulated world, except for the futures of its tasks.
pub(super) struct World {
    now: AtomicU64,
    hash: AtomicU64,
    current: AtomicU64,
    pub config: SimConfig,
    /// Model of compression; `None` if it takes no time.
    pub coding: Mutex<Option<Coding>>,
    pub network: Mutex<Network>,
    state: Mutex<State>,
}

/// Next task that the executor polls.
pub(super) struct NextPoll {
    pub task: TaskId,
    pub start: Option<TaskStart>,
}

impl World {
    pub fn new(config: SimConfig, model: Box<dyn NetworkModel>) -> Arc<Self> {
        let mut rng = Rng::new(config.seed);
        let network = Network::new(model, rng.fork());
        Arc::new(Self {
            now: AtomicU64::new(0),
            hash: AtomicU64::new(0),
            current: AtomicU64::new(u64::MAX),
            config,
            coding: Mutex::new(None),
            network: Mutex::new(network),
            state: Mutex::new(State {
                sequence: 0,
                heap: BinaryHeap::new(),
                ready: VecDeque::new(),
                devices: Vec::new(),
                due: Vec::new(),
                tasks: Vec::new(),
                free: Vec::new(),
                doomed: Vec::new(),
                rng,
                processes: Vec::new(),
                machines: Vec::new(),
                ports: BTreeMap::new(),
                links: Vec::new(),
                partitions: BTreeSet::new(),
            }),
        })
    }

    /// Locks the state. The lock is never held while a link, a disk or a notify is locked after it.
    pub fn state(&self) -> parking_lot::MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns the world's time in nanoseconds.
    pub fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }

    /// Adds an event to the hash of the run.
    pub fn note(&self, event: u64) {
        self.hash.store(splitmix64(self.hash.load(Relaxed) ^ event), Relaxed);
    }

    pub fn hash(&self) -> u64 {
        self.hash.load(Relaxed)
    }

    /// Returns the task that is being polled.
    pub fn current(&self) -> TaskId {
        let packed = self.current.load(Relaxed);
        TaskId { index: packed as u32, generation: (packed >> 32) as u32 }
    }

    pub fn is_alive(&self, process: ProcessId) -> bool {
        self.state().processes[process.0 as usize].is_alive()
    }

    /// Makes `task` runnable now.
    pub fn wake(&self, task: TaskId) {
        self.state().wake(task);
    }

    /// Makes `task` runnable at `at`; it may run earlier.
    pub fn wake_at(&self, task: TaskId, at: u64) {
        if at <= self.now() {
            self.wake(task);
        } else {
            self.state().wake_at(task, at);
        }
    }

    /// Schedules the next event of the device for `at`, and cancels earlier ones.
    pub fn ring_device_at(&self, device: DeviceId, at: u64) {
        let mut state = self.state();
        if std::mem::replace(&mut state.devices[device.0 as usize].1, at) != at {
            state.sequence += 1;
            let sequence = state.sequence;
            state.heap.push(Reverse((at, sequence, TimerTarget::Device(device))));
        }
    }

    /// Waits until `at`.
    pub async fn sleep_until(&self, at: u64) {
        std::future::poll_fn(|_| {
            if self.now() >= at {
                return Poll::Ready(());
            }
            self.wake_at(self.current(), at);
            Poll::Pending
        })
        .await;
    }

    /// Lets every other runnable task run first.
    pub async fn step_back(&self) {
        let mut stepped = false;
        std::future::poll_fn(|_| {
            if std::mem::replace(&mut stepped, true) {
                return Poll::Ready(());
            }
            self.wake(self.current());
            Poll::Pending
        })
        .await;
    }

    /// Selects the next task to poll and advances time to it. Returns `None` if nothing can happen until `limit`.
    pub fn next(&self, limit: u64) -> Option<NextPoll> {
        let mut state = self.state();
        let task = loop {
            match state.take_ready(self.config.shuffle) {
                Some(task) if state.is_task(task) => break task,
                Some(_) => {}
                None => {
                    let &Reverse((at, ..)) = state.heap.peek()?;
                    if at > limit {
                        return None;
                    }
                    if !state.ring(at) {
                        continue;
                    }
                    self.now.store(at, Relaxed);
                    if !state.due.is_empty() {
                        let mut due = std::mem::take(&mut state.due);
                        drop(state);
                        due.drain(..).for_each(|(device, id)| device.ring(self, id));
                        state = self.state();
                        state.due = due;
                    }
                }
            }
        };
        let start = state.tasks[task.index as usize].start.take();
        drop(state);
        self.current.store(u64::from(task.generation) << 32 | u64::from(task.index), Relaxed);
        self.note(self.now() ^ (u64::from(task.index) << 40));
        Some(NextPoll { task, start })
    }

    /// Advances time to `at` if nothing happens before.
    pub fn idle_until(&self, at: u64) {
        self.now.fetch_max(at, Relaxed);
    }

    /// Drops tasks that were never started.
    pub fn forget_starts(&self) {
        let starts: Vec<_> = self.state().tasks.iter_mut().filter_map(|task| task.start.take()).collect();
        drop(starts);
    }

    /// Returns the names of the waiting tasks, for the report of a deadlock.
    pub fn waiting(&self) -> Vec<String> {
        let state = self.state();
        let alive = state.tasks.iter().filter(|task| task.alive);
        alive.map(|task| format!("{}/{}", state.processes[task.process.0 as usize].name, task.name)).collect()
    }
}

impl State {
    fn is_task(&self, task: TaskId) -> bool {
        let slot = &self.tasks[task.index as usize];
        slot.alive && slot.generation == task.generation
    }

    fn take_ready(&mut self, shuffle: bool) -> Option<TaskId> {
        let task = if shuffle && self.ready.len() > 1 {
            let pick = self.rng.below(self.ready.len() as u64) as usize;
            self.ready.swap_remove_back(pick)?
        } else {
            self.ready.pop_front()?
        };
        let slot = &mut self.tasks[task.index as usize];
        if slot.generation == task.generation {
            slot.is_ready = false;
        }
        Some(task)
    }

    /// Wakes all tasks that wait for the time `at`, and queues the devices with an event then. Returns whether there
    /// are any.
    fn ring(&mut self, at: u64) -> bool {
        let mut is_any = false;
        while let Some(&Reverse((next, _, alarm))) = self.heap.peek()
            && next == at
        {
            self.heap.pop();
            match alarm {
                TimerTarget::Task(task) if self.is_task(task) => {
                    let timer = self.tasks[task.index as usize].timers.pop();
                    debug_assert_eq!(timer, Some(at));
                    self.wake(task);
                    is_any = true;
                }
                TimerTarget::Device(id) if self.devices[id.0 as usize].1 == at => {
                    let (device, time) = &mut self.devices[id.0 as usize];
                    *time = u64::MAX;
                    self.due.push((Arc::clone(device), id));
                    is_any = true;
                }
                TimerTarget::Task(_) | TimerTarget::Device(_) => {}
            }
        }
        is_any
    }

    pub fn add_device(&mut self, device: Arc<Device>) -> DeviceId {
        let id = DeviceId(u32::try_from(self.devices.len()).expect("fewer than 2^32 disks"));
        self.devices.push((device, u64::MAX));
        id
    }

    pub fn wake(&mut self, task: TaskId) {
        if self.is_task(task) && !std::mem::replace(&mut self.tasks[task.index as usize].is_ready, true) {
            self.ready.push_back(task);
        }
    }

    fn wake_at(&mut self, task: TaskId, at: u64) {
        if !self.is_task(task) {
            return;
        }
        let timers = &mut self.tasks[task.index as usize].timers;
        if timers.last().is_some_and(|&earliest| earliest <= at) {
            return;
        }
        timers.push(at);
        self.sequence += 1;
        self.heap.push(Reverse((at, self.sequence, TimerTarget::Task(task))));
    }

    /// Adds a task that is runnable at once.
    pub fn add_task(&mut self, process: ProcessId, name: &str, start: Option<TaskStart>) -> TaskId {
        let fresh = |generation| Task {
            generation,
            alive: true,
            process,
            name: name.to_owned(),
            is_ready: false,
            timers: Vec::new(),
            start,
        };
        let task = match self.free.pop() {
            Some(index) => {
                let slot = &mut self.tasks[index as usize];
                let generation = slot.generation + 1;
                *slot = fresh(generation);
                TaskId { index, generation }
            }
            None => {
                let index = u32::try_from(self.tasks.len()).expect("fewer than 2^32 tasks");
                self.tasks.push(fresh(0));
                TaskId { index, generation: 0 }
            }
        };
        self.wake(task);
        task
    }

    /// Removes a task that has ended and frees its slot.
    pub fn end_task(&mut self, task: TaskId) -> Option<TaskStart> {
        let slot = &mut self.tasks[task.index as usize];
        if slot.generation != task.generation || !slot.alive {
            return None;
        }
        slot.alive = false;
        let start = slot.start.take();
        self.free.push(task.index);
        start
    }

    /// Ends a process: its tasks never run again.
    pub fn end_process(&mut self, process: ProcessId) {
        self.processes[process.0 as usize].is_alive.store(false, Relaxed);
        for (index, task) in self.tasks.iter().enumerate() {
            if task.alive && task.process == process {
                self.doomed.push(TaskId { index: index as u32, generation: task.generation });
            }
        }
    }

    pub fn is_doomed(&self, task: TaskId) -> bool {
        self.is_task(task) && !self.processes[self.tasks[task.index as usize].process.0 as usize].is_alive()
    }

    pub fn machine(&mut self, machine: MachineId) -> &mut Machine {
        &mut self.machines[machine.0 as usize]
    }

    pub fn are_parted(&self, a: MachineId, b: MachineId) -> bool {
        self.partitions.contains(&(a.min(b), a.max(b)))
    }
}
