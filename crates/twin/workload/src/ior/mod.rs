//! IOR: segments of blocks of transfers, in a shared file or in one file per rank.

use crate::collective::{CallRank, Calls, TwoPhase, Union, body, check_collective, check_no_exchange};
use crate::dice;
use crate::error::{Check, SpecError};
use crate::op::{FileRef, Workload};
use crate::passes::{Access, Direction, Ops, Style, SyncWhen, pass, phase_name, transfers};
use crate::permutation::Permutation;
use crate::size::Size;
use serde::{Deserialize, Serialize};
use weft_core::random::splitmix64;

const CHECK: Check = Check("ior");

/// IOR.
///
/// ```text
/// file     | segment 0                                 | segment 1 …
/// segment  | block of rank 0 | block of rank 1 | …     |
/// block    | transfer | transfer | … |
/// ```
///
/// Transfer j in segment s of rank i of N starts at `(s N + i) block + j transfer`.
///
/// | paper | parameters |
/// | --- | --- |
/// | CEDA 2.2, figure 3 | `layout = "sequential"` and `"strided"`, 4 to 64 KiB, 4 ranks |
/// | CEDA 6.2.1, figures 9 to 12, 16 | `order = "random"` |
/// | iBridge III-C, figure 8 | ior-mpi-io: `"sequential"`, 64 ranks, 10 GiB |
/// | PSA IV-B, figures 7 to 10 | 512 KiB, 16 ranks, 16 GiB, sequential and random |
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ior {
    /// Number of ranks, N.
    pub ranks: u32,
    /// Length of a transfer (`-t`).
    pub transfer: Size,
    /// Contiguous bytes of each rank in a segment (`-b`), a multiple of `transfer`. Excludes `per_rank`.
    pub block: Option<Size>,
    /// Number of segments (`-s`). Excludes `per_rank`.
    pub segments: Option<u64>,
    /// Bytes of each rank, rounded down to whole transfers, instead of `block` and `segments`. They are laid out
    /// according to `layout`.
    pub per_rank: Option<Size>,
    /// Layout of `per_rank`.
    pub layout: IorLayout,
    /// Order of the transfers.
    pub order: IorOrder,
    /// Seed of random orders and of `reorder_random`.
    pub seed: u64,
    /// Whether each rank has a file of its own (`-F`).
    pub file_per_process: bool,
    /// Direction of the transfers.
    pub access: Access,
    /// When reading, rank i takes the part of rank (i + `reorder`) mod N, so that no rank reads data cached by its own
    /// node. IOR's `-C` shifts by the number of ranks per node if ranks are placed node by node, `-Q n` by n
    /// times that number.
    pub reorder: u32,
    /// When reading, parts are assigned to ranks at random, each part once (`-Z -Z`). With one `-Z`, IOR's ranks choose
    /// independently and may read the same part.
    pub reorder_random: bool,
    /// When written data is flushed to stable storage (`-Y` each, `-e` end).
    pub sync: SyncWhen,
    /// Whether all ranks wait at a barrier before each transfer.
    pub barrier: bool,
    /// Whether transfers are collective calls (`-c`).
    pub collective: bool,
    /// Collective buffering of MPI-IO, only for a shared file in ascending order. Without `force` it has no effect if
    /// the ranks' ranges do not interleave (`layout`).
    pub two_phase: Option<TwoPhase>,
}

/// Layout of the ranks' bytes in a shared file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IorLayout {
    /// Each rank has a contiguous 1/N of the file (one segment).
    #[default]
    Sequential,
    /// The ranks' transfers are interleaved with a stride of N transfers (a block is one transfer).
    Strided,
}

/// Order of the transfers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IorOrder {
    /// Ascending offsets.
    #[default]
    Sequential,
    /// The transfers of a segment are distributed to all ranks at random and accessed in random order. Each rank gets
    /// the same number, and every segment uses the same distribution.
    ///
    /// With blocks of one transfer the whole file is one segment. IOR up to 3.0 always worked this way; IOR 4.1 rejects
    /// such blocks. With one file per rank, the same as `random-own`.
    Random,
    /// Like `random`, but each transfer goes to an independently chosen rank, so that some ranks get a few more than
    /// others (`-z` on a shared file).
    RandomDice,
    /// Each rank accesses its own block in random order, the same in each segment (`-z -F`).
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

/// Default of `per_rank`.
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
            let message = format!("{} is not a multiple of the transfer of {}", Size(block), self.transfer);
            return CHECK.fail("block", message);
        }
        if self.reorder != 0 && self.reorder_random {
            return CHECK.fail("reorder", "give either reorder or reorder_random");
        }
        CHECK.product("segments", &[u64::from(self.ranks), block, segments])?;
        check_collective(CHECK, self.ranks, self.collective, self.two_phase.as_ref())?;
        check_no_exchange(CHECK, self.two_phase.as_ref())?;
        if self.order == IorOrder::RandomDice && !self.file_per_process && (self.barrier || self.collective) {
            let why =
                "barriers and collective calls need equally many transfers in each rank: use \"random\"";
            return CHECK.fail("order", why);
        }
        if self.two_phase.is_some() && (self.file_per_process || self.order != IorOrder::Sequential) {
            return CHECK.fail("two_phase", "needs one shared file in ascending order");
        }
        let per_block = block / transfer;
        let run = IorRun { spec: self.clone(), block, per_block, count: per_block * segments };
        Ok(run)
    }
}

/// A validated description.
#[derive(Debug)]
pub(crate) struct IorRun {
    spec: Ior,
    /// Length of a block in bytes.
    block: u64,
    /// Number of transfers in a block.
    per_block: u64,
    /// Number of transfers of each rank.
    count: u64,
}

impl IorRun {
    /// Returns the offset of transfer n of rank `part`'s share, in ascending order.
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

    /// Returns the rank whose share `rank` accesses.
    fn part(&self, rank: u32, direction: Direction) -> u32 {
        let Ior { ranks, reorder, reorder_random, seed, .. } = self.spec;
        match direction {
            Direction::Write => rank,
            Direction::Read if reorder_random => {
                // A seed that differs from that of the order of transfers.
                Permutation::new(u64::from(ranks), splitmix64(seed)).at(u64::from(rank)) as u32
            }
            Direction::Read => ((u64::from(rank) + u64::from(reorder)) % u64::from(ranks)) as u32,
        }
    }

    /// Whether some rank's share lies before that of the previous rank.
    fn is_out_of_order(&self, direction: Direction) -> bool {
        let Ior { ranks, reorder, reorder_random, .. } = self.spec;
        let part = |rank| self.part(rank, direction);
        let shifted = !reorder.is_multiple_of(ranks);
        direction == Direction::Read
            && (shifted || (reorder_random && (1..ranks).any(|rank| part(rank) < part(rank - 1))))
    }

    /// Returns the offsets of rank `part`'s share, in the order of access.
    fn offsets(&self, part: u32) -> Box<dyn Iterator<Item = u64> + Send + '_> {
        let Ior { order, seed, file_per_process, transfer, .. } = self.spec;
        // Blocks of one transfer cannot be reordered, so all of them together form one segment.
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
                    dice::share(all, self.ranks64(), u64::from(part), splitmix64(seed))
                };
                let segment = move |index| share.clone().map(move |n| index * all + slots.at(n));
                Box::new((0..segments).flat_map(segment).map(move |slot| slot * transfer.0))
            }
            IorOrder::Random | IorOrder::RandomDice | IorOrder::RandomOwn => {
                let own = Permutation::new(in_segment, splitmix64(seed) ^ u64::from(part));
                let segment = move |index| (0..in_segment).map(move |n| index * in_segment + own.at(n));
                Box::new((0..segments).flat_map(segment).map(move |n| self.offset(part, n)))
            }
        }
    }
}

/// The nth transfers of all ranks as one call.
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
        match (self.spec.access.needs_existing_files(), self.spec.file_per_process) {
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
                let is_out_of_order = self.is_out_of_order(direction);
                let two_phase = two_phase.as_ref();
                let party = CallRank { rank, part, is_out_of_order, ranks, two_phase, before: None };
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
