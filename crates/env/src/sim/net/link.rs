//! A connection between two processes: one pipe in each direction.

use crate::sim::world::{MachineId, ProcessId, TaskId, World};
use crate::sim::{SimFile, SimShared};
use crate::{Attachment, Hollow};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// What a pipe holds before its sender has to wait, in bytes.
const PIPE_BYTES: usize = 512 * 1024;
/// A segment that waits for a partition to heal.
const HELD: u64 = u64::MAX;
/// After this time without an answer a connection is given up, in nanoseconds.
const GIVE_UP: u64 = 30_000_000_000;

pub type SimAttachment = Attachment<SimFile, SimShared>;

struct Segment {
    at: u64,
    bytes: Vec<u8>,
    /// Bytes behind `bytes` of which only the number matters.
    hollow: usize,
    read: usize,
    attached: Vec<SimAttachment>,
}

impl Segment {
    fn len(&self) -> usize {
        self.bytes.len() + self.hollow
    }

    /// Moves what is left of it into `out`; how much. Where bytes end and hollow ones begin it stops once, so that who
    /// reads ahead of a hollow payload finds it whole.
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

/// What is still to be sent: bytes, and behind them hollow ones.
pub struct Message {
    pub bytes: Vec<u8>,
    pub hollow: usize,
    /// How much of it has been sent.
    pub sent: usize,
    pub attached: Vec<SimAttachment>,
}

impl Message {
    pub fn left(&self) -> usize {
        self.bytes.len() + self.hollow - self.sent
    }

    /// The next `count` bytes of it.
    fn take(&mut self, at: u64, count: usize) -> Segment {
        let start = self.sent.min(self.bytes.len());
        let end = (self.sent + count).min(self.bytes.len());
        let hollow = count - (end - start);
        let is_all_bytes = start == 0 && end == self.bytes.len();
        self.sent += count;
        let bytes = match is_all_bytes {
            // What is sent of the rest is hollow.
            true => {
                self.hollow += self.bytes.len();
                std::mem::take(&mut self.bytes)
            }
            false => self.bytes[start..end].to_vec(),
        };
        Segment { at, bytes, hollow, read: 0, attached: std::mem::take(&mut self.attached) }
    }
}

/// One direction. The sender's own end of it and the receiver's may wait for it.
#[derive(Default)]
struct Pipe {
    segments: VecDeque<Segment>,
    bytes: usize,
    last_arrival: u64,
    /// When the receiver learns that nothing more comes.
    end_at: Option<u64>,
    /// The receiver takes no more.
    is_refused: bool,
    reader: Option<TaskId>,
    writer: Option<TaskId>,
}

struct State {
    /// By the end that sends.
    pipes: [Pipe; 2],
    /// Ends that were closed by a closer on their own side.
    is_closed: [bool; 2],
    /// From when on every use is an error.
    reset_at: Option<u64>,
    /// The same, unless the partition that is in the way heals before.
    given_up_at: Option<u64>,
}

/// A connection; its two ends are numbered 0 (who connected) and 1 (who accepted).
pub(in crate::sim) struct Link {
    world: Arc<World>,
    machines: [MachineId; 2],
    processes: [ProcessId; 2],
    state: Mutex<State>,
}

/// What a poll of one end found.
pub enum Progress {
    /// So many bytes moved; none is the end of the stream.
    Moved(usize),
    /// Nothing yet; the task is woken when that may have changed.
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

    /// Moves what has arrived for `end` into `out`, and attachments to `attached`.
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

    /// Takes from `end` as much of `message` as there is room for.
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

    /// Ends both directions as seen from `end`; `is_gone` when nobody holds that end any more.
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

    /// Every use fails from `delay` nanoseconds on; what was under way is lost.
    pub fn reset(&self, delay: u64) {
        let mut state = self.state.lock();
        let at = self.world.now().saturating_add(delay);
        state.reset_at = Some(state.reset_at.map_or(at, |before| before.min(at)));
        self.wake_all(state);
    }

    /// The machine of one end has lost its power: the other hears nothing and gives up in the end.
    fn sever(&self) {
        if self.is_within_machine() {
            return self.reset(0);
        }
        self.reset(GIVE_UP);
    }

    /// Sends what a partition has held back.
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

    /// Everybody who waits looks again.
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

/// What happens to all connections of a process or a machine.
impl World {
    fn links_where(&self, pick: impl Fn(&Link) -> bool) -> Vec<Arc<Link>> {
        let links: Vec<_> = self.state().links.iter().filter_map(std::sync::Weak::upgrade).collect();
        links.into_iter().filter(|link| pick(link)).collect()
    }

    /// The system closes the connections of a process that died.
    pub fn close_links_of(&self, process: ProcessId) {
        for link in self.links_where(|link| link.processes.contains(&process)) {
            (0..2).filter(|&end| link.processes[end] == process).for_each(|end| link.close(end, true));
        }
    }

    /// The connections of a machine fall silent.
    pub fn sever_links_of(&self, machine: MachineId) {
        self.links_where(|link| link.machines.contains(&machine)).iter().for_each(|link| link.sever());
    }

    /// The connections of a machine that was down are refused as soon as they are used or probed.
    pub fn refuse_links_of(&self, machine: MachineId, delay: u64) {
        self.links_where(|link| link.machines.contains(&machine)).iter().for_each(|link| link.reset(delay));
    }

    /// Resets the connections between two machines.
    pub fn reset_links_between(&self, a: MachineId, b: MachineId) {
        self.links_where(|link| link.machines == [a, b] || link.machines == [b, a])
            .iter()
            .for_each(|link| link.reset(0));
    }

    /// A partition has healed.
    pub fn release_links_between(&self, a: MachineId, b: MachineId) {
        self.links_where(|link| link.machines == [a, b] || link.machines == [b, a])
            .iter()
            .for_each(|link| link.release());
    }
}
