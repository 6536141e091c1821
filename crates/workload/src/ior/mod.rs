//! IOR: segments of blocks of transfers, in one file or in a file of each process.

use crate::collective::{Calls, Party, TwoPhase, Union, body, check_collective};
use crate::dice;
use crate::error::{Check, SpecError};
use crate::op::{FileRef, Workload};
use crate::passes::{Access, Direction, Ops, Style, SyncWhen, pass, phase_name, transfers};
use crate::permutation::{Permutation, mix};
use crate::size::Size;
use serde::{Deserialize, Serialize};

const CHECK: Check = Check("ior");

/// IOR. A file consists of `segments`, a segment of one `block` of each rank, a block of `transfer`s: transfer j of
/// segment s of rank i of N lies at `(s N + i) block + j transfer`.
///
/// Serves CEDA section 2.2 and figure 3 (`layout = "sequential"` against `"strided"`, 4 to 64 KiB, 4 ranks), 6.2.1
/// and figures 9 to 12 (`order = "random"`), figure 16; iBridge section III-C and figure 8 (ior-mpi-io: `"sequential"`,
/// 64 ranks, 10 GiB); PSA section IV-B and figures 7 to 10 (512 KiB, 16 ranks, 16 GiB, sequential and random).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ior {
    /// Processes, N.
    pub ranks: u32,
    /// Bytes of each transfer (`-t`).
    pub transfer: Size,
    /// Contiguous bytes of each rank in a segment (`-b`), a multiple of `transfer`. Not with `per_rank`.
    pub block: Option<Size>,
    /// Segments (`-s`). Not with `per_rank`.
    pub segments: Option<u64>,
    /// Bytes of each rank, instead of `block` and `segments`, laid out as `layout` says; rounded down to whole
    /// transfers.
    pub per_rank: Option<Size>,
    /// How `per_rank` is laid out.
    pub layout: IorLayout,
    /// In which order transfers are made.
    pub order: IorOrder,
    /// Of random orders and of `reorder_random`.
    pub seed: u64,
    /// A file of each process (`-F`).
    pub file_per_process: bool,
    /// Which way bytes go.
    pub access: Access,
    /// In passes of reading, rank i takes the part of rank (i + `reorder`) mod N, so that nobody reads what its own
    /// node has cached. IOR's `-C` shifts by the ranks of a node where ranks are placed node by node, `-Q n` by n times
    /// as many.
    pub reorder: u32,
    /// In passes of reading, parts are dealt to ranks at random, each once (`-Z -Z`; with one `-Z` ranks choose by dice
    /// and may read the same).
    pub reorder_random: bool,
    /// When written bytes are brought to the disks (`-Y` each, `-e` end).
    pub sync: SyncWhen,
    /// Whether all wait for each other before each transfer.
    pub barrier: bool,
    /// Whether transfers are collective calls (`-c`).
    pub collective: bool,
    /// What MPI-IO makes of collective calls; in a shared file by rising offsets only. Ranks that follow each other
    /// (`layout`) are left alone without `force` there.
    pub two_phase: Option<TwoPhase>,
}

/// How the bytes of each rank lie in a shared file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IorLayout {
    /// Each rank a contiguous 1/N of the file (one segment).
    #[default]
    Sequential,
    /// The transfers of the ranks interleaved: the stride is N transfers (a block is one transfer).
    Strided,
}

/// In which order transfers are made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IorOrder {
    /// By rising offsets.
    #[default]
    Sequential,
    /// The transfers of a segment (a block of each rank) dealt to all ranks at random, as many to each, and moved in
    /// random order; the same in each segment. With blocks of one transfer the whole file is dealt at once: so IOR did
    /// always up to 3.0; 4.1 refuses such blocks. With a file of each process, as `random-own`.
    Random,
    /// As `random`, but each transfer goes to a rank by dice, so that some ranks get a few more (`-z` on a shared
    /// file).
    RandomDice,
    /// Each rank the transfers of its own block in random order, the same in each segment (`-z -F`).
    RandomOwn,
}

impl Default for Ior {
    fn default() -> Self {
        Self {
            ranks: 16,
            transfer: Size::kib(64),
            block: None,
            segments: None,
            per_rank: None,
            layout: IorLayout::Sequential,
            order: IorOrder::Sequential,
            seed: 1,
            file_per_process: false,
            access: Access::Write,
            reorder: 0,
            reorder_random: false,
            sync: SyncWhen::Never,
            barrier: false,
            collective: false,
            two_phase: None,
        }
    }
}

/// Of each rank when the description does not say.
const PER_RANK_DEFAULT: Size = Size::mib(4);

impl Ior {
    pub(crate) fn build(&self) -> Result<IorRun, SpecError> {
        CHECK.positive("ranks", u64::from(self.ranks))?;
        let transfer = CHECK.positive("transfer", self.transfer.0)?;
        let (block, segments) = match (self.per_rank, self.block, self.segments) {
            (Some(_), Some(_), _) => {
                return CHECK.fail("block", "give either per_rank or block and segments");
            }
            (Some(_), _, Some(_)) => {
                return CHECK.fail("segments", "give either per_rank or block and segments");
            }
            (None, Some(block), segments) => (block.0, segments.unwrap_or(1)),
            (None, None, Some(segments)) => (transfer, segments),
            (per_rank, None, None) => {
                let count = match per_rank {
                    Some(per_rank) if per_rank.0 < transfer => {
                        let message = format!("{per_rank} is less than one transfer of {}", self.transfer);
                        return CHECK.fail("per_rank", message);
                    }
                    Some(per_rank) => per_rank.0 / transfer,
                    None => (PER_RANK_DEFAULT.0 / transfer).max(1),
                };
                match self.layout {
                    IorLayout::Sequential => (CHECK.product("per_rank", &[count, transfer])?, 1),
                    IorLayout::Strided => (transfer, count),
                }
            }
        };
        CHECK.positive("block", block)?;
        CHECK.positive("segments", segments)?;
        if !block.is_multiple_of(transfer) {
            let message = format!("{} is no multiple of the transfer of {}", Size(block), self.transfer);
            return CHECK.fail("block", message);
        }
        if self.reorder != 0 && self.reorder_random {
            return CHECK.fail("reorder", "give either reorder or reorder_random");
        }
        CHECK.product("segments", &[u64::from(self.ranks), block, segments])?;
        check_collective(CHECK, self.ranks, self.collective, self.two_phase.as_ref())?;
        if self.order == IorOrder::RandomDice && !self.file_per_process && (self.barrier || self.collective) {
            return CHECK
                .fail("order", "ranks that wait for each other need as many transfers: use \"random\"");
        }
        if self.two_phase.is_some() && (self.file_per_process || self.order != IorOrder::Sequential) {
            return CHECK.fail("two_phase", "is for one shared file by rising offsets");
        }
        let per_block = block / transfer;
        let run = IorRun { spec: self.clone(), block, per_block, count: per_block * segments };
        Ok(run)
    }
}

/// A description that was checked.
#[derive(Debug)]
pub(crate) struct IorRun {
    spec: Ior,
    /// Bytes of a block.
    block: u64,
    /// Transfers of a block.
    per_block: u64,
    /// Transfers of each rank.
    count: u64,
}

impl IorRun {
    /// The offset of the n-th transfer of the part of `part`, by rising offsets.
    fn offset(&self, part: u32, n: u64) -> u64 {
        let (segment, in_block) = (n / self.per_block, n % self.per_block);
        let blocks =
            if self.spec.file_per_process { segment } else { segment * self.ranks64() + u64::from(part) };
        blocks * self.block + in_block * self.spec.transfer.0
    }

    fn ranks64(&self) -> u64 {
        u64::from(self.spec.ranks)
    }

    fn file(&self, part: u32) -> FileRef {
        FileRef(if self.spec.file_per_process { part } else { 0 })
    }

    /// Whose part `rank` moves.
    fn part(&self, rank: u32, direction: Direction) -> u32 {
        let Ior { ranks, reorder, reorder_random, seed, .. } = self.spec;
        match direction {
            Direction::Write => rank,
            Direction::Read if reorder_random => {
                // The seed is another one than that of the order of transfers.
                Permutation::new(u64::from(ranks), mix(seed)).at(u64::from(rank)) as u32
            }
            Direction::Read => ((u64::from(rank) + u64::from(reorder)) % u64::from(ranks)) as u32,
        }
    }

    /// Whether some rank's part lies before that of the rank before it.
    fn disordered(&self, direction: Direction) -> bool {
        let Ior { ranks, reorder, reorder_random, .. } = self.spec;
        let part = |rank| self.part(rank, direction);
        let shifted = !reorder.is_multiple_of(ranks);
        direction == Direction::Read
            && (shifted || (reorder_random && (1..ranks).any(|rank| part(rank) < part(rank - 1))))
    }

    /// The offsets of the part of `part`, in order.
    fn offsets(&self, part: u32) -> Box<dyn Iterator<Item = u64> + Send + '_> {
        let Ior { order, seed, file_per_process, transfer, .. } = self.spec;
        // Blocks of one transfer leave nothing to put in order: all of them together are one segment.
        let (in_segment, segments) = match self.per_block {
            1 => (self.count, 1),
            per_block => (per_block, self.count / per_block),
        };
        match order {
            IorOrder::Sequential => Box::new((0..self.count).map(move |n| self.offset(part, n))),
            IorOrder::Random | IorOrder::RandomDice if !file_per_process => {
                let all = in_segment * self.ranks64();
                let slots = Permutation::new(all, seed);
                let share = if order == IorOrder::Random {
                    let first = u64::from(part) * in_segment;
                    first..first + in_segment
                } else {
                    dice::share(all, self.ranks64(), u64::from(part), mix(seed))
                };
                let segment = move |index| share.clone().map(move |n| index * all + slots.at(n));
                Box::new((0..segments).flat_map(segment).map(move |slot| slot * transfer.0))
            }
            IorOrder::Random | IorOrder::RandomDice | IorOrder::RandomOwn => {
                let own = Permutation::new(in_segment, mix(seed) ^ u64::from(part));
                let segment = move |index| (0..in_segment).map(move |n| index * in_segment + own.at(n));
                Box::new((0..segments).flat_map(segment).map(move |n| self.offset(part, n)))
            }
        }
    }
}

/// The n-th transfers of all ranks as one call.
impl Calls for IorRun {
    fn calls(&self) -> u64 {
        self.count
    }

    fn union(&self, call: u64) -> Union {
        let transfer = self.spec.transfer.0;
        let end = self.offset(self.spec.ranks - 1, call) + transfer;
        Union { start: self.offset(0, call), end, run: transfer, period: self.block, interleaved: false }
    }

    fn pieces(&self, call: u64, part: u32) -> Box<dyn Iterator<Item = (u64, u64)> + Send + '_> {
        Box::new(std::iter::once((self.offset(part, call), self.spec.transfer.0)))
    }
}

impl Workload for IorRun {
    fn ranks(&self) -> u32 {
        self.spec.ranks
    }

    fn name(&self, file: FileRef) -> String {
        if self.spec.file_per_process { format!("ior.{:08}", file.0) } else { "ior".to_owned() }
    }

    fn phase(&self, phase: u16) -> String {
        phase_name(phase)
    }

    fn inputs(&self) -> Box<dyn Iterator<Item = (FileRef, u64)> + Send + '_> {
        let own = self.count * self.spec.transfer.0;
        match (self.spec.access.finds_files(), self.spec.file_per_process) {
            (true, true) => Box::new((0..self.spec.ranks).map(move |rank| (FileRef(rank), own))),
            (true, false) => Box::new(std::iter::once((FileRef(0), own * self.ranks64()))),
            (false, _) => Box::new(std::iter::empty()),
        }
    }

    fn ops(&self, rank: u32) -> Ops<'_> {
        let Ior { ranks, transfer, barrier, sync, collective, access, ref two_phase, .. } = self.spec;
        Box::new(access.directions().iter().flat_map(move |&direction| {
            let part = self.part(rank, direction);
            let file = self.file(part);
            let moved: Ops<'_> = if two_phase.is_some() {
                let style = Style { direction, barrier, sync, collective };
                let disordered = self.disordered(direction);
                let two_phase = two_phase.as_ref();
                let party = Party { rank, part, disordered, ranks, two_phase, before: None };
                body(self, style, file, party)
            } else {
                let style = Style { direction, barrier: barrier || collective, sync, collective };
                let extents = self.offsets(part).map(move |offset| (offset, transfer.0));
                Box::new(transfers(style, file, extents))
            };
            pass(direction, file, moved)
        }))
    }
}

#[cfg(test)]
mod tests;
