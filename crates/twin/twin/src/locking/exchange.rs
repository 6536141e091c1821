//! Messages between the ranks of a group in two-phase I/O.

use crate::barrier::Barrier;
use std::cell::RefCell;
use weft_core::{ByteLen, Nanos};
use weft_env::Env;
use weft_env::sim::{Control, SimEnv};

/// The exchange before the windows of a collective call. All ranks of a group take part.
///
/// The messages use the network of the cluster. A rank goes on when its own messages have left and all messages to it
/// have arrived.
pub(super) struct Exchange {
    control: Control,
    /// First rank of the group.
    first: u32,
    /// Machines of the ranks.
    machines: Vec<SimEnv>,
    /// Times at which the last message to each rank arrives.
    arrivals: RefCell<Vec<Nanos>>,
    all_sent: Barrier,
}

impl Exchange {
    pub(super) fn new(control: &Control, first: u32, machines: Vec<SimEnv>) -> Self {
        let all_sent = Barrier::new(&machines[0], machines.len() as u32, Nanos::ZERO);
        let arrivals = RefCell::new(vec![Nanos::ZERO; machines.len()]);
        Self { control: control.clone(), first, machines, arrivals, all_sent }
    }

    /// Sends the messages `(rank, bytes)` of `rank` and waits for those of the others.
    pub(super) async fn run(&self, env: &SimEnv, rank: u32, mut messages: Vec<(u32, u64)>) {
        // Each rank begins with the messages to the ranks above it, so that not all begin with the same one.
        let from = messages.partition_point(|(to, _)| *to <= rank);
        messages.rotate_left(from);
        let here = &self.machines[(rank - self.first) as usize];
        let mut last = Nanos::ZERO;
        for (to, bytes) in messages.into_iter().filter(|(to, _)| *to != rank) {
            let index = (to - self.first) as usize;
            let at = self.control.transfer(here, &self.machines[index], ByteLen(bytes));
            let arrival = &mut self.arrivals.borrow_mut()[index];
            *arrival = (*arrival).max(at);
            last = last.max(at);
        }
        self.all_sent.wait(env).await;
        let arrival = self.arrivals.borrow()[(rank - self.first) as usize];
        let wait = arrival.max(last).saturating_sub(self.control.elapsed());
        if wait > Nanos::ZERO {
            env.sleep(wait).await;
        }
    }
}
