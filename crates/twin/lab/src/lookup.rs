//! A workload whose requests are looked up in a mapping without entries, as those of a file without replicas.

use std::ops::Range;
use weft_core::replicas::Mapping;
use weft_core::{Extent, Nanos};
use weft_workload::{FileRef, Op, Workload};

/// A workload with a lookup before each read and write.
pub struct LookedUpWorkload<'a> {
    workload: &'a dyn Workload,
    mapping: Mapping,
    /// Time that a lookup takes.
    lookup: Nanos,
}

impl<'a> LookedUpWorkload<'a> {
    /// Looks the requests of a workload up in an empty mapping.
    pub fn new(workload: &'a dyn Workload, lookup: Nanos) -> Self {
        Self { workload, mapping: Mapping::default(), lookup }
    }

    fn look_up(&self, op: Op) -> Vec<Op> {
        let (offset, len) = match op {
            Op::Read { offset, len, .. } | Op::Write { offset, len, .. } => (offset, len),
            other => return vec![other],
        };
        let parts = self.mapping.split(Extent::new(offset, len)).map(|part| {
            let (offset, len) = (part.replica.unwrap_or(part.file.offset.0), part.file.len.0);
            match op {
                Op::Read { file, collective, .. } => Op::Read { file, offset, len, collective },
                Op::Write { file, collective, .. } => Op::Write { file, offset, len, collective },
                other => other,
            }
        });
        std::iter::once(Op::Compute(self.lookup)).chain(parts).collect()
    }
}

impl Workload for LookedUpWorkload<'_> {
    fn ranks(&self) -> u32 {
        self.workload.ranks()
    }

    fn name(&self, file: FileRef) -> String {
        self.workload.name(file)
    }

    fn phase(&self, phase: u16) -> String {
        self.workload.phase(phase)
    }

    fn group(&self, rank: u32) -> Range<u32> {
        self.workload.group(rank)
    }

    fn exchange(&self, rank: u32, barrier: u64) -> Vec<(u32, u64)> {
        self.workload.exchange(rank, barrier)
    }

    fn inputs(&self) -> Box<dyn Iterator<Item = (FileRef, u64)> + Send + '_> {
        self.workload.inputs()
    }

    fn ops(&self, rank: u32) -> Box<dyn Iterator<Item = Op> + Send + '_> {
        Box::new(self.workload.ops(rank).flat_map(move |op| self.look_up(op)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_workload::WorkloadSpec;

    #[test]
    fn requests_stay_the_same_and_each_has_a_lookup() {
        let workload = WorkloadSpec::of_kind("ior").expect("a kind").build().expect("defaults");
        let looked_up = LookedUpWorkload::new(&*workload, Nanos(70));
        let lookups = looked_up.ops(3).filter(|op| *op == Op::Compute(Nanos(70))).count();
        let is_transfer = |op: &Op| matches!(op, Op::Read { .. } | Op::Write { .. });
        assert_eq!(lookups, workload.ops(3).filter(is_transfer).count());
        assert!(lookups > 0);
        let others: Vec<Op> = looked_up.ops(3).filter(|op| !matches!(op, Op::Compute(_))).collect();
        assert!(others.into_iter().eq(workload.ops(3)));
    }
}
