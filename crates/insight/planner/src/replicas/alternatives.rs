//! The alternatives for one pattern, judged by the queueing model.

use super::arrangement::Arrangement;
use super::cost::{PaperBenefit, ProcessRequest, Server, server_loads, system_ns};
use crate::best::Search;
use crate::figures::Figures;
use crate::mix::{Direction, OffsetHistogram};
use crate::model::{Load, run_averaged};
use crate::placement::ClassPlacement;
use crate::sample::Request;
use crate::survey::FileGroup;
use std::collections::BTreeMap;
use std::fmt;
use weft_core::{Extent, TargetId};

/// Length of the requests that copy a file or a replica, bytes.
const COPY_LEN: u64 = 1 << 20;
/// Bytes of a copy that the model simulates. Longer copies take proportionally longer.
const COPY_SIMULATED: u64 = 64 << 20;
/// Requests of a pattern that the model simulates.
const REQUESTS_MAX: usize = 32_768;

/// What to do with a pattern.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Leave the file as it is.
    Leave,
    /// Give the file another layout.
    Move,
    /// Replicate the bytes of each process in sequence, one process after another, with the layout of the file (CIDA).
    InSequence,
    /// Replicate by algorithm 1: the bytes of each process on one server (CEDA).
    ByServer,
    /// Replicate as `InSequence`, with a layout chosen for the requests.
    OwnLayout,
}

impl Kind {
    /// Whether it makes a replica.
    pub const fn is_replica(self) -> bool {
        matches!(self, Self::InSequence | Self::ByServer | Self::OwnLayout)
    }

    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Leave => "leave",
            Self::Move => "move",
            Self::InSequence => "replica in sequence",
            Self::ByServer => "replica by server",
            Self::OwnLayout => "replica, own layout",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One alternative for a pattern.
#[derive(Clone, PartialEq, Debug)]
pub struct Alternative {
    /// What to do.
    pub kind: Kind,
    /// Time of all requests of one run by the queueing model, seconds.
    pub requests_s: f64,
    /// Time to copy written replicas back after each run, seconds.
    pub sync_s: f64,
    /// Time to make the replica or to move the file, once, seconds.
    pub copy_s: f64,
    /// Bytes that it takes in addition to the file.
    pub bytes: u64,
    /// Layout of the file or of the replica.
    pub placement: ClassPlacement,
    /// For a replica: first byte of each object of the arrangement in it.
    pub starts: Vec<u64>,
}

impl Alternative {
    /// Time of one run, seconds.
    pub fn run_s(&self) -> f64 {
        self.requests_s + self.sync_s
    }

    /// Number of executions of the program after which the saved time exceeds that of the copy, if one takes `now_s`
    /// seconds without this alternative; `None` if never.
    pub fn pays_after(&self, now_s: f64) -> Option<u64> {
        runs_to_pay(self.copy_s, now_s - self.run_s())
    }
}

/// Number of executions after which a copy of `copy_s` seconds has paid for itself, if each saves `gain_s` seconds; `None` if
/// never.
pub(super) fn runs_to_pay(copy_s: f64, gain_s: f64) -> Option<u64> {
    (gain_s > 0.0).then(|| (copy_s / gain_s).ceil().max(1.0) as u64)
}

/// A pattern with everything that its alternatives need.
pub(super) struct Pattern<'a> {
    pub(super) figures: &'a Figures,
    pub(super) group: &'a FileGroup,
    /// Requests to the files of the group in time order.
    pub(super) requests: &'a [Request],
    /// Present layout of the files.
    pub(super) original: &'a ClassPlacement,
    pub(super) arrangement: &'a Arrangement,
}

impl Pattern<'_> {
    /// Time of requests by the paper's model, nanoseconds; `None` if the layout is not possible.
    fn paper_ns(&self, placement: &ClassPlacement, requests: &[Request]) -> Option<f64> {
        let targets = self.figures.targets();
        let layout = placement.layout(&targets).ok()?;
        let writes = requests.iter().filter(|request| request.direction == Direction::Write).count();
        let is_written = 2 * writes > requests.len();
        let requests: Vec<ProcessRequest> = requests
            .iter()
            .filter(|request| !request.is_sync())
            .map(|request| ProcessRequest {
                process: request.rank,
                file: request.file,
                extent: Extent::new(request.offset, request.len),
            })
            .collect();
        let server = |target: TargetId| {
            let holds = |of: &Vec<TargetId>| of.last().is_some_and(|last| *last >= target);
            let class = targets.iter().position(holds).expect("each target has a class");
            let class = &self.figures.classes[class];
            let service = if is_written { &class.write } else { &class.read };
            let random = service.random.first().expect("figures have a random line");
            Server { startup_ns: random.startup_us * 1e3, byte_ns: 1e3 / service.sequential.mb_s }
        };
        Some(system_ns(&server_loads(&layout, &requests), server))
    }

    /// Returns all alternatives, and the benefit of algorithm 1 by the paper's model if its layout is possible.
    /// `capacities` bounds the bytes on each target of a class for layouts that are searched.
    pub(super) fn judged(
        &self,
        capacities: &[u64],
        parts_max: usize,
    ) -> (Vec<Alternative>, Option<PaperBenefit>) {
        let transfers = self.requests.iter().filter(|request| !request.is_sync()).count();
        let load = |requests: &[Request]| {
            let all = requests.iter().filter(|request| !request.is_sync()).count();
            let load = Load::from(requests, all as u64).with_reads_by_head();
            load.subsample_long(REQUESTS_MAX * all.max(1) / transfers.max(1))
        };
        let now = load(self.requests);
        let leave = Alternative {
            kind: Kind::Leave,
            requests_s: run_averaged(self.figures, &now, self.original).seconds,
            sync_s: 0.0,
            copy_s: 0.0,
            bytes: 0,
            placement: self.original.clone(),
            starts: Vec::new(),
        };
        let search = Search { figures: self.figures, group: self.group, capacities, load: &now, parts_max };
        let moved = search.best(&[self.original]);
        let moved = Alternative {
            kind: Kind::Move,
            requests_s: moved.outcome.seconds,
            sync_s: 0.0,
            copy_s: self.copy_s(self.group.extent_sum, self.original, &moved.placement),
            bytes: 0,
            placement: moved.placement,
            starts: Vec::new(),
        };
        let writes = self.requests.iter().filter(|request| request.direction == Direction::Write);
        let written = Arrangement::of(&writes.copied().collect::<Vec<_>>()).bytes();
        let replica = |kind, requests_s, placement: ClassPlacement, starts: &[u64]| Alternative {
            kind,
            requests_s,
            sync_s: self.copy_s(written, &placement, self.original),
            copy_s: self.copy_s(self.arrangement.bytes(), self.original, &placement),
            bytes: self.arrangement.bytes(),
            placement,
            starts: starts.to_vec(),
        };

        let starts = self.arrangement.starts_in_sequence();
        let redirected = self.arrangement.redirected(self.requests, &starts);
        let group = self.group_of_replica(&redirected);
        let redirected = load(&redirected);
        let in_sequence = run_averaged(self.figures, &redirected, self.original).seconds;
        let in_sequence = replica(Kind::InSequence, in_sequence, self.original.clone(), &starts);
        let search =
            Search { figures: self.figures, group: &group, capacities, load: &redirected, parts_max };
        let own = search.best(&[self.original]);
        let own = replica(Kind::OwnLayout, own.outcome.seconds, own.placement, &starts);

        let (starts, stripe) = self.arrangement.starts_by_server();
        let planned = ClassPlacement::whole(vec![stripe; self.figures.classes.len()]);
        let redirected = self.arrangement.redirected(self.requests, &starts);
        let paper = self.paper_ns(self.original, self.requests).zip(self.paper_ns(&planned, &redirected));
        let paper = paper.map(|(original_ns, planned_ns)| PaperBenefit { original_ns, planned_ns });
        let by_server = run_averaged(self.figures, &load(&redirected), &planned).seconds;
        let by_server = replica(Kind::ByServer, by_server, planned, &starts);
        (vec![leave, moved, in_sequence, by_server, own], paper)
    }

    /// Time to copy bytes by one process that reads and writes in turn, seconds.
    fn copy_s(&self, bytes: u64, from: &ClassPlacement, to: &ClassPlacement) -> f64 {
        if bytes == 0 {
            return 0.0;
        }
        let simulated = bytes.min(COPY_SIMULATED);
        let time = |placement: &ClassPlacement, direction| {
            let request = |n: u64| {
                let offset = n * COPY_LEN;
                Request::new(0, 0, direction, offset, COPY_LEN.min(simulated - offset), (n, n + 1))
            };
            let requests: Vec<Request> = (0..simulated.div_ceil(COPY_LEN)).map(request).collect();
            let load = Load::from(&requests, requests.len() as u64);
            crate::model::run(self.figures, &load, &[placement]).seconds
        };
        (time(from, Direction::Read) + time(to, Direction::Write)) * (bytes as f64 / simulated as f64)
    }

    /// The group as the search sees it in the replica's offsets.
    fn group_of_replica(&self, redirected: &[Request]) -> FileGroup {
        let mut extents = BTreeMap::new();
        let mut bytes_by_offset = OffsetHistogram::default();
        for request in redirected.iter().filter(|request| !request.is_sync()) {
            let extent = extents.entry(request.file).or_insert(0u64);
            *extent = (*extent).max(request.offset.saturating_add(request.len));
            bytes_by_offset.add(request.offset, request.len);
        }
        FileGroup {
            extent: extents.values().copied().max().unwrap_or(0),
            extent_sum: extents.values().copied().fold(0, u64::saturating_add),
            bytes_by_offset,
            ..self.group.clone()
        }
    }
}
