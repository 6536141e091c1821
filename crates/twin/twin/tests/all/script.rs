//! Workloads written by hand.

use weft_workload::{FileRef, Op, Workload};

/// A workload with the operations of each rank listed.
pub struct Script(pub Vec<Vec<Op>>);

impl Workload for Script {
    fn ranks(&self) -> u32 {
        self.0.len() as u32
    }

    fn name(&self, file: FileRef) -> String {
        format!("f{}", file.0)
    }

    fn phase(&self, phase: u16) -> String {
        phase.to_string()
    }

    fn ops(&self, rank: u32) -> Box<dyn Iterator<Item = Op> + Send + '_> {
        Box::new(self.0[rank as usize].iter().copied())
    }
}
