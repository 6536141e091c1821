//! Times at which dies and channels are free.

use super::SsdSpec;
use crate::time::{from_us, transfer};

#[derive(Clone, Copy, Debug, Default)]
struct Die {
    reads_until: u64,
    writes_until: u64,
}

/// Timing of dies and channels. Dies serve reads before programs and erases that have not started.
#[derive(Clone, Debug)]
pub(super) struct Times {
    dies: Vec<Die>,
    channels: Vec<u64>,
    read: u64,
    program: u64,
    erase: u64,
    suspend: u64,
    page_transfer: u64,
    channel_mb_s: f64,
}

impl Times {
    pub fn new(spec: &SsdSpec) -> Self {
        let channels = spec.channels.max(1) as usize;
        Self {
            dies: vec![Die::default(); channels * spec.dies_per_channel.max(1) as usize],
            channels: vec![0; channels],
            read: from_us(spec.read_us),
            program: from_us(spec.program_us),
            erase: from_us(spec.erase_us),
            suspend: from_us(spec.suspend_us),
            page_transfer: transfer(spec.page_kib * 1024, spec.channel_mb_s),
            channel_mb_s: spec.channel_mb_s,
        }
    }

    fn die_of(&self, page: u64) -> usize {
        (page % self.dies.len() as u64) as usize
    }

    /// Reserves `took` on a die's channel and returns the end of a transfer that is ready at `at`. The channel is
    /// reserved from `now`, so that a later transfer leaves the time before it to others.
    fn cross(&mut self, now: u64, die: usize, at: u64, took: u64) -> u64 {
        let count = self.channels.len();
        let channel = &mut self.channels[die % count];
        *channel = (*channel).max(now) + took;
        (*channel).max(at + took)
    }

    fn sense(&mut self, now: u64, die: usize) -> u64 {
        let (read, program, suspend) = (self.read, self.program, self.suspend);
        let die = &mut self.dies[die];
        let mut start = now.max(die.reads_until);
        if die.writes_until > start {
            // A program in progress ends or is suspended. Programs that have not started wait.
            let under_way = (die.writes_until - start) % program.max(1);
            start += if suspend > 0 { under_way.min(suspend) } else { under_way };
            die.writes_until += read;
        }
        die.reads_until = start + read;
        start + read
    }

    /// Reads `bytes` of a page. Returns the time at which they have left the channel.
    pub fn read(&mut self, now: u64, page: u64, bytes: u64) -> u64 {
        let die = self.die_of(page);
        let sensed = self.sense(now, die);
        let took = transfer(bytes, self.channel_mb_s);
        // No byte requested now can be available earlier.
        self.cross(now + self.read, die, sensed, took)
    }

    /// Reads a page in order to move it.
    pub fn read_to_move(&mut self, now: u64, page: u64) -> u64 {
        let die = self.die_of(page);
        let start = now.max(self.dies[die].writes_until).max(self.dies[die].reads_until);
        self.dies[die].writes_until = start + self.read;
        let took = self.page_transfer;
        self.cross(now, die, start + self.read, took)
    }

    /// Programs a page. Returns the time at which it is in the flash.
    pub fn program(&mut self, now: u64, page: u64) -> u64 {
        let die = self.die_of(page);
        let took = self.page_transfer;
        let here = self.cross(now, die, now, took);
        let die = &mut self.dies[die];
        die.writes_until = here.max(die.writes_until).max(die.reads_until) + self.program;
        die.writes_until
    }

    /// Erases one block on every die.
    pub fn erase(&mut self, now: u64) {
        for die in &mut self.dies {
            die.writes_until = die.writes_until.max(now) + self.erase;
        }
    }
}
