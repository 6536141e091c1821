//! Requests that touch chosen servers: the experiment behind striping magnification.

use crate::error::{Check, SpecError};
use crate::op::{FileRef, Workload};
use crate::passes::{Access, Ops, Style, SyncWhen, pass, phase_name, transfers};
use crate::permutation::Permutation;
use crate::size::Size;
use serde::{Deserialize, Serialize};

const CHECK: Check = Check("server-span");
const FILE: FileRef = FileRef(0);

/// Requests that begin at the same server of a striped file, each in a row of stripes (one stripe on every server) of
/// its own: `span` whole stripes from server `first` on, and `extra` bytes of the next one. Request n of rank i of N
/// lies at `row(n N + i) servers stripe + first stripe`.
///
/// Serves iBridge section I-A and figure 3: one program with `span = k`, `extra = "1 KiB"`, beside another with
/// `first = k`, `span = 1`, `order = "random"` (see the kind `mix`).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerSpan {
    /// Processes, N.
    pub ranks: u32,
    /// Servers over which the file is striped.
    pub servers: u32,
    /// Bytes of a stripe.
    pub stripe: Size,
    /// The server on which requests begin, from 0.
    pub first: u32,
    /// Servers from which a request takes a whole stripe.
    pub span: u32,
    /// Bytes that a request takes from the server after them.
    pub extra: Size,
    /// Requests of each rank.
    pub requests: u64,
    /// In which order rows are taken.
    pub order: SpanOrder,
    /// Of the random order.
    pub seed: u64,
    /// Whether all wait for each other before each request.
    pub barrier: bool,
    /// Which way bytes go.
    pub access: Access,
}

/// In which order rows are taken.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpanOrder {
    /// One after the other.
    #[default]
    Sequential,
    /// At random, each once.
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
        // A row more than there are requests: the last request may reach into the next row.
        let rows = CHECK.product("requests", &[u64::from(self.ranks), self.requests])?.saturating_add(1);
        let reach = self.first.saturating_add(self.span).saturating_add(1);
        CHECK.product("requests", &[rows, u64::from(self.servers.max(reach)), self.stripe.0])?;
        Ok(ServerSpanRun { spec: self.clone() })
    }
}

/// A description that was checked.
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
        Box::new((self.spec.access.finds_files()).then_some((FILE, end)).into_iter())
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
    fn the_other_program_stays_on_one_server() {
        let spec = ServerSpan { first: 3, order: SpanOrder::Random, ..ServerSpan::default() };
        let run = spec.build().unwrap();
        let mut all: Vec<_> = (0..16).flat_map(|rank| extents(&run, rank)).collect();
        assert_ne!(all[0].0 + 524_288 * 16, all[1].0);
        all.sort_unstable();
        // Stripe 3 of each row, once.
        assert!(all.into_iter().eq((0..1024).map(|row| ((row * 8 + 3) * 65_536, 65_536))));
    }

    #[test]
    fn nonsense_is_refused() {
        let refused = |spec: ServerSpan| spec.build().expect_err("nonsense").parameter;
        assert_eq!(refused(ServerSpan { first: 8, ..ServerSpan::default() }), "first");
        assert_eq!(refused(ServerSpan { extra: Size::kib(64), ..ServerSpan::default() }), "extra");
        assert_eq!(refused(ServerSpan { span: 0, ..ServerSpan::default() }), "span");
    }
}
