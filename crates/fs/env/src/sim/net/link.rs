//! Connection between two processes: one pipe in each direction.

use crate::sim::world::{MachineId, ProcessId, TaskId, World};
use crate::sim::{SimFile, SimShared};
use crate::{Attachment, Hollow};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// Capacity of a pipe in bytes; a sender waits while it is full.
const PIPE_BYTES: usize = 512 * 1024;
/// Arrival time of a segment that waits for a partition to heal.
const HELD: u64 = u64::MAX;
/// Time without an answer after which a connection fails, in nanoseconds.
const GIVE_UP: u64 = 30_000_000_000;

pub type SimAttachment = Attachment<SimFile, SimShared>;

struct Segment {
    at: u64,
    bytes: Vec<u8>,
    /// Number of hollow bytes behind `bytes`.
    hollow: usize,
    read: usize,
    attached: Vec<SimAttachment>,
}

impl Segment {
    fn len(&self) -> usize {
        self.bytes.len() + self.hollow
    }

    /// Moves the rest of the segment into `out` and returns the number of bytes moved. It stops once between bytes and
    /// hollow ones, so that a reader that reads ahead of a hollow payload finds the payload complete.
    fn take(&mut self, out: &mut [u8], is_hollow: bool) -> usize {
        let bytes = &self.bytes[self.read.min(self.bytes.len())..];
        let count = if bytes.is_empty() { self.len() - self.read } else { bytes.len() }.min(out.len());
        if !is_hollow && bytes.is_empty() {
            out[..count].fill(0);
        } else if !is_hollow {
            out[..count].copy_from_slice(&bytes[..count]);
        }
        self.read += count;
        count
    }
}

/// Unsent rest of a message: bytes, followed by hollow ones.
pub struct Message {
    pub bytes: Vec<u8>,
    pub hollow: usize,
    /// Number of bytes sent.
    pub sent: usize,
    pub attached: Vec<SimAttachment>,
}

impl Message {
    pub fn left(&self) -> usize {
        self.bytes.len() + self.hollow - self.sent
    }

    /// Takes the next `count` bytes.
    fn take(&mut self, at: u64, count: usize) -> Segment {
        let start = self.sent.min(self.bytes.len());
        let end = (self.sent + count).min(self.bytes.len());
        let hollow = count - (end - start);
        let is_all_bytes = start == 0 && end == self.bytes.len();
        self.sent += count;
        let bytes = match is_all_bytes {
            // The rest of the bytes is sent as hollow ones.
            true => {
                self.hollow += self.bytes.len();
                std::mem::take(&mut self.bytes)
            }
            false => self.bytes[start..end].to_vec(),
        };
        Segment { at, bytes, hollow, read: 0, attached: std::mem::take(&mut self.attached) }
    }
}

/// One direction. Its sender and its receiver may wait for it.
#[derive(Default)]
struct Pipe {
    segments: VecDeque<Segment>,
    bytes: usize,
    last_arrival: u64,
    /// Time at which the receiver learns of the end of the stream.
    end_at: Option<u64>,
    /// Whether the receiver accepts no more bytes.
    is_refused: bool,
    reader: Option<TaskId>,
    writer: Option<TaskId>,
}

struct State {
    /// Pipes, by the end that sends.
    pipes: [Pipe; 2],
    /// Whether each end was closed by a closer on its own side.
    is_closed: [bool; 2],
    /// Time from which on every use fails.
    reset_at: Option<u64>,
    /// Time from which on every use fails unless the partition heals before.
    given_up_at: Option<u64>,
}

/// Connection. Its ends are numbered 0 (the side that connected) and 1 (the side that accepted).
pub(in crate::sim) struct Link {
    world: Arc<World>,
    machines: [MachineId; 2],
    processes: [ProcessId; 2],
    state: Mutex<State>,
}

/// Result of polling one end.
pub enum Progress {
    /// Number of bytes moved; zero at the end of the stream.
    Moved(usize),
    /// Not ready; the task is woken when that may have changed.
    Wait,
}

impl Link {
    pub fn new(world: Arc<World>, machines: [MachineId; 2], processes: [ProcessId; 2]) -> Arc<Self> {
        let state =
            State { pipes: Default::default(), is_closed: [false; 2], reset_at: None, given_up_at: None };
        let link = Arc::new(Self { world, machines, processes, state: Mutex::new(state) });
        let mut shared = link.world.state();
        if shared.links.len().is_power_of_two() {
            shared.links.retain(|link| link.strong_count() > 0);
        }
        shared.links.push(Arc::downgrade(&link));
        drop(shared);
        link
    }

    /// Whether both ends are on one machine.
    pub fn is_within_machine(&self) -> bool {
        self.machines[0] == self.machines[1]
    }

    fn is_parted(&self) -> bool {
        !self.is_within_machine() && self.world.state().are_parted(self.machines[0], self.machines[1])
    }

    fn check_reset(&self, state: &State, task: TaskId) -> io::Result<()> {
        let first = [state.reset_at, state.given_up_at].into_iter().flatten().min();
        match first {
            Some(at) if at <= self.world.now() => Err(io::ErrorKind::ConnectionReset.into()),
            Some(at) => {
                self.world.wake_at(task, at);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Moves bytes that have arrived for `end` into `out`, and attachments to `attached`.
    pub fn receive(
        &self,
        end: usize,
        out: &mut [u8],
        attached: &mut VecDeque<SimAttachment>,
    ) -> io::Result<Progress> {
        let (now, task) = (self.world.now(), self.world.current());
        let is_hollow = Hollow::holds(out);
        let mut state = self.state.lock();
        self.check_reset(&state, task)?;
        if state.is_closed[end] {
            return Ok(Progress::Moved(0));
        }
        let pipe = &mut state.pipes[1 - end];
        let mut done = 0;
        while done < out.len()
            && let Some(segment) = pipe.segments.front_mut().filter(|segment| segment.at <= now)
        {
            attached.extend(segment.attached.drain(..));
            if done > 0 && !is_hollow && segment.hollow > 0 && segment.read == segment.bytes.len() {
                break;
            }
            done += segment.take(&mut out[done..], is_hollow);
            if segment.read == segment.len() {
                pipe.segments.pop_front();
            }
        }
        if done > 0 {
            pipe.bytes -= done;
            let writer = pipe.writer.take();
            drop(state);
            writer.into_iter().for_each(|writer| self.world.wake(writer));
            return Ok(Progress::Moved(done));
        }
        let next = pipe.segments.front().map(|segment| segment.at).or(pipe.end_at);
        match next {
            Some(at) if at <= now => return Ok(Progress::Moved(0)),
            Some(at) if at < HELD => self.world.wake_at(task, at),
            _ => {}
        }
        pipe.reader = Some(task);
        Ok(Progress::Wait)
    }

    /// Sends as much of `message` from `end` as the pipe has space for.
    pub fn send(&self, end: usize, message: &mut Message) -> io::Result<Progress> {
        let (now, task) = (self.world.now(), self.world.current());
        let is_parted = self.is_parted();
        let mut state = self.state.lock();
        self.check_reset(&state, task)?;
        if state.is_closed[end] || state.pipes[end].is_refused {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let count = message.left().min(PIPE_BYTES - state.pipes[end].bytes);
        if count == 0 {
            state.pipes[end].writer = Some(task);
            return Ok(Progress::Wait);
        }
        let at = if is_parted {
            state.given_up_at.get_or_insert(now + GIVE_UP);
            HELD
        } else {
            let (from, to) = (self.machines[end].0, self.machines[1 - end].0);
            let Some(at) = self.world.network.lock().arrival(now, from, to, count) else {
                drop(state);
                self.reset(0);
                return Err(io::ErrorKind::ConnectionReset.into());
            };
            at
        };
        let pipe = &mut state.pipes[end];
        let at = at.max(pipe.last_arrival);
        pipe.last_arrival = at;
        pipe.segments.push_back(message.take(at, count));
        pipe.bytes += count;
        let reader = pipe.reader.take();
        drop(state);
        self.world.note((count as u64) ^ (at << 8));
        if let (Some(reader), true) = (reader, at < HELD) {
            self.world.wake_at(reader, at);
        } else if let Some(reader) = reader {
            self.state.lock().pipes[end].reader = Some(reader);
        }
        Ok(Progress::Moved(count))
    }

    /// Closes both directions as seen from `end`; `is_gone` if no process holds that end any more.
    pub fn close(&self, end: usize, is_gone: bool) {
        let is_parted = self.is_parted();
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.is_closed[end], true) && !is_gone {
            return;
        }
        let pipe = &mut state.pipes[end];
        if pipe.end_at.is_none() {
            let (from, to) = (self.machines[end].0, self.machines[1 - end].0);
            let at = match is_parted {
                true => HELD,
                false => self.world.network.lock().arrival(self.world.now(), from, to, 0).unwrap_or(0),
            };
            pipe.end_at = Some(at.max(pipe.last_arrival));
        }
        state.pipes[1 - end].is_refused = true;
        self.wake_all(state);
    }

    /// Makes every use fail after `delay` nanoseconds; data in flight is lost.
    pub fn reset(&self, delay: u64) {
        let mut state = self.state.lock();
        let at = self.world.now().saturating_add(delay);
        state.reset_at = Some(state.reset_at.map_or(at, |before| before.min(at)));
        self.wake_all(state);
    }

    /// Silences the link after one end has lost power: the other end gets no answer and fails eventually.
    fn sever(&self) {
        if self.is_within_machine() {
            return self.reset(0);
        }
        self.reset(GIVE_UP);
    }

    /// Sends the segments that a partition held back.
    fn release(&self) {
        let now = self.world.now();
        let mut state = self.state.lock();
        state.given_up_at = state.given_up_at.filter(|&at| at <= now);
        for end in 0..2 {
            let (from, to) = (self.machines[end].0, self.machines[1 - end].0);
            let pipe = &mut state.pipes[end];
            let mut last = 0;
            for segment in &mut pipe.segments {
                if segment.at == HELD {
                    let at = self.world.network.lock().arrival(now, from, to, segment.len());
                    segment.at = at.unwrap_or(now);
                }
                segment.at = segment.at.max(last);
                last = segment.at;
            }
            if pipe.last_arrival == HELD {
                pipe.last_arrival = last.max(now);
            }
            pipe.end_at = pipe.end_at.map(|at| if at == HELD { pipe.last_arrival } else { at });
        }
        self.wake_all(state);
    }

    /// Wakes all waiters, so that they check the state again.
    fn wake_all(&self, mut state: parking_lot::MutexGuard<'_, State>) {
        let waiting: Vec<TaskId> = state
            .pipes
            .iter_mut()
            .flat_map(|pipe| [pipe.reader.take(), pipe.writer.take()])
            .flatten()
            .collect();
        drop(state);
        waiting.into_iter().for_each(|task| self.world.wake(task));
    }
}

/// Operations on all connections of a process or a machine.
impl World {
    fn links_where(&self, pick: impl Fn(&Link) -> bool) -> Vec<Arc<Link>> {
        let links: Vec<_> = self.state().links.iter().filter_map(std::sync::Weak::upgrade).collect();
        links.into_iter().filter(|link| pick(link)).collect()
    }

    /// Closes the connections of a process that died, as the system does.
    pub fn close_links_of(&self, process: ProcessId) {
        for link in self.links_where(|link| link.processes.contains(&process)) {
            (0..2).filter(|&end| link.processes[end] == process).for_each(|end| link.close(end, true));
        }
    }

    /// Silences the connections of a machine.
    pub fn sever_links_of(&self, machine: MachineId) {
        self.links_where(|link| link.machines.contains(&machine)).iter().for_each(|link| link.sever());
    }

    /// Refuses the connections of a machine that was down, as soon as they are used or probed.
    pub fn refuse_links_of(&self, machine: MachineId, delay: u64) {
        self.links_where(|link| link.machines.contains(&machine)).iter().for_each(|link| link.reset(delay));
    }

    /// Resets the connections between two machines.
    pub fn reset_links_between(&self, a: MachineId, b: MachineId) {
        self.links_where(|link| link.machines == [a, b] || link.machines == [b, a])
            .iter()
            .for_each(|link| link.reset(0));
    }

    /// Sends what a healed partition held back.
    pub fn release_links_between(&self, a: MachineId, b: MachineId) {
        self.links_where(|link| link.machines == [a, b] || link.machines == [b, a])
            .iter()
            .for_each(|link| link.release());
    }
}
