//! Requests that touch selected servers: the experiment on striping magnification.

use crate::error::{Check, SpecError};
use crate::op::{FileRef, Workload};
use crate::passes::{Access, Ops, Style, SyncWhen, pass, phase_name, transfers};
use crate::permutation::Permutation;
use crate::size::Size;
use serde::{Deserialize, Serialize};

const CHECK: Check = Check("server-span");
const FILE: FileRef = FileRef(0);

/// Requests that start at the same server of a striped file.
///
/// A row is one stripe on every server. Each request lies in a row of its own: `span` whole stripes from server `first`
/// on, then `extra` bytes of the next stripe. Request n of rank i of N starts at
/// `row(n N + i) * servers * stripe + first * stripe`.
///
/// Serves iBridge section I-A and figure 3: one program with `span = k`, `extra = "1 KiB"`, beside another with
/// `first = k`, `span = 1`, `order = "random"` (see the kind `mix`).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerSpan {
    /// Number of ranks, N.
    pub ranks: u32,
    /// Number of servers over which the file is striped.
    pub servers: u32,
    /// Stripe size.
    pub stripe: Size,
    /// Server on which requests start, from 0.
    pub first: u32,
    /// Number of servers from which a request takes a whole stripe.
    pub span: u32,
    /// Bytes that a request takes from the next server.
    pub extra: Size,
    /// Number of requests of each rank.
    pub requests: u64,
    /// Order of the rows.
    pub order: SpanOrder,
    /// Seed of the random order.
    pub seed: u64,
    /// Whether all ranks wait at a barrier before each request.
    pub barrier: bool,
    /// Direction of the transfers.
    pub access: Access,
}

/// Order of the rows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpanOrder {
    /// Ascending.
    #[default]
    Sequential,
    /// Random, each row once.
    Random,
}

impl Default for ServerSpan {
    fn default() -> Self {
        Self {
            ranks: 16,
            servers: 8,
            stripe: Size::kib(64),
            first: 0,
            span: 1,
            extra: Size(0),
            requests: 64,
            order: SpanOrder::Sequential,
            seed: 1,
            barrier: false,
            access: Access::Read,
        }
    }
}

impl ServerSpan {
    pub(crate) fn build(&self) -> Result<ServerSpanRun, SpecError> {
        CHECK.positive("ranks", u64::from(self.ranks))?;
        CHECK.positive("servers", u64::from(self.servers))?;
        CHECK.positive("stripe", self.stripe.0)?;
        CHECK.positive("requests", self.requests)?;
        if self.first >= self.servers {
            return CHECK.fail("first", format!("servers are numbered 0 to {}", self.servers - 1));
        }
        if self.extra >= self.stripe {
            return CHECK.fail("extra", format!("{} is a whole stripe: raise span instead", self.extra));
        }
        CHECK.positive("span", u64::from(self.span) + self.extra.0)?;
        // One row more than there are requests, because the last request may extend into the next row.
        let rows = CHECK.product("requests", &[u64::from(self.ranks), self.requests])?.saturating_add(1);
        let reach = self.first.saturating_add(self.span).saturating_add(1);
        CHECK.product("requests", &[rows, u64::from(self.servers.max(reach)), self.stripe.0])?;
        Ok(ServerSpanRun { spec: self.clone() })
    }
}

/// A validated description.
#[derive(Debug)]
pub(crate) struct ServerSpanRun {
    spec: ServerSpan,
}

impl ServerSpanRun {
    fn rows(&self) -> u64 {
        u64::from(self.spec.ranks) * self.spec.requests
    }

    fn len(&self) -> u64 {
        u64::from(self.spec.span) * self.spec.stripe.0 + self.spec.extra.0
    }

    fn offset(&self, row: u64) -> u64 {
        (row * u64::from(self.spec.servers) + u64::from(self.spec.first)) * self.spec.stripe.0
    }
}

impl Workload for ServerSpanRun {
    fn ranks(&self) -> u32 {
        self.spec.ranks
    }

    fn name(&self, _file: FileRef) -> String {
        "server-span".to_owned()
    }

    fn phase(&self, phase: u16) -> String {
        phase_name(phase)
    }

    fn inputs(&self) -> Box<dyn Iterator<Item = (FileRef, u64)> + Send + '_> {
        let end = self.offset(self.rows() - 1) + self.len();
        Box::new((self.spec.access.needs_existing_files()).then_some((FILE, end)).into_iter())
    }

    fn ops(&self, rank: u32) -> Ops<'_> {
        let ServerSpan { ranks, requests, order, seed, barrier, access, .. } = self.spec;
        let random = Permutation::new(self.rows(), seed);
        let row = move |n: u64| match order {
            SpanOrder::Sequential => n,
            SpanOrder::Random => random.at(n),
        };
        Box::new(access.directions().iter().flat_map(move |&direction| {
            let style = Style { direction, barrier, sync: SyncWhen::Never, collective: false };
            let extents = (0..requests)
                .map(move |n| (self.offset(row(n * u64::from(ranks) + u64::from(rank))), self.len()));
            pass(direction, FILE, transfers(style, FILE, extents))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{extents, well_formed};

    #[test]
    fn fragments_by_hand() {
        // 3 stripes and 1 KiB from server 0 of 8: 197,632 B; request 1 of rank 2 of 16 in row 18: 18 * 512 KiB.
        let spec = ServerSpan { span: 3, extra: Size::kib(1), requests: 2, ..ServerSpan::default() };
        let run = spec.build().unwrap();
        assert_eq!(extents(&run, 2), [(2 * 524_288, 197_632), (18 * 524_288, 197_632)]);
        assert_eq!(run.inputs().collect::<Vec<_>>(), [(FILE, 31 * 524_288 + 197_632)]);
        well_formed(&run);
    }

    #[test]
    fn the_second_program_uses_only_one_server() {
        let spec = ServerSpan { first: 3, order: SpanOrder::Random, ..ServerSpan::default() };
        let run = spec.build().unwrap();
        let mut all: Vec<_> = (0..16).flat_map(|rank| extents(&run, rank)).collect();
        assert_ne!(all[0].0 + 524_288 * 16, all[1].0);
        all.sort_unstable();
        // Stripe 3 of each row, once.
        assert!(all.into_iter().eq((0..1024).map(|row| ((row * 8 + 3) * 65_536, 65_536))));
    }

    #[test]
    fn invalid_descriptions_are_rejected() {
        let refused = |spec: ServerSpan| spec.build().expect_err("an invalid description").parameter;
        assert_eq!(refused(ServerSpan { first: 8, ..ServerSpan::default() }), "first");
        assert_eq!(refused(ServerSpan { extra: Size::kib(64), ..ServerSpan::default() }), "extra");
        assert_eq!(refused(ServerSpan { span: 0, ..ServerSpan::default() }), "span");
    }
}
