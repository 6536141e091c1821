//! Rows of results: one per figure, as a table for people and as JSON lines for programs.

use serde::Serialize;
use std::io::{self, Write};

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which workload: `ior-segmented`, `ior-interleaved`, `ior-file-per-process`, `mdtest`, or a kind of workload.
    pub case: String,
    /// Which interface: `library`, `preload`, `fuse`, or `path` for another file system.
    pub interface: String,
    /// `descriptor`, `socket`, `auto`, or `-` for another file system.
    pub transport: String,
    /// Bytes of one transfer, on the average; 0 for operations without.
    pub transfer_bytes: u64,
    /// `write`, `write+sync`, `read`, `create`, `stat`, `remove`, or the name of a workload's phase.
    pub operation: String,
    /// The figure: median over the rounds.
    pub value: f64,
    /// Of `value` and `control`.
    pub unit: &'static str,
    /// The same on the plain local directory, in the same rounds: median.
    pub control: f64,
    /// Median over the rounds of figure over control of the round.
    pub ratio: f64,
    /// Processor microseconds per operation in the ranks.
    pub client_cpu_us_per_op: f64,
    /// Processor microseconds per operation in the servers.
    pub server_cpu_us_per_op: f64,
    /// Requests that data and metadata servers got, per operation.
    pub messages_per_op: f64,
    /// What else is known when the control is another cluster.
    #[serde(flatten)]
    pub against: Option<Against>,
    /// The figure is that of emulated devices.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub emulated: bool,
}

/// The same work on two clusters.
#[derive(Clone, Debug, Serialize)]
pub struct Against {
    /// The name of the cluster whose figures these are, or its setting of checksums at rest.
    pub cluster: String,
    /// Median over the rounds of its processor time per operation over the other's, ranks and servers together.
    pub cpu_ratio: f64,
    /// Median time of a round.
    pub seconds: f64,
    /// That of the other cluster.
    pub control_seconds: f64,
    /// Processor microseconds per operation in the ranks of the other cluster.
    pub control_client_cpu_us_per_op: f64,
    /// And in its servers.
    pub control_server_cpu_us_per_op: f64,
}

/// The middle value; the mean of the two middle ones for an even number.
///
/// # Panics
/// When there is none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

/// The head of the table.
pub fn table_head(out: &mut impl Write, against: bool) -> io::Result<()> {
    write!(
        out,
        "{:<22} {:<8} {:<10} {:>9} {:<14} {:>10} {:>10} {:<6} {:>6} {:>8} {:>8} {:>6}",
        "case",
        "by",
        "transport",
        "transfer",
        "operation",
        "measured",
        if against { "other" } else { "local" },
        "unit",
        "ratio",
        "cli us",
        "srv us",
        "msg/op"
    )?;
    if against {
        write!(
            out,
            " {:>8} {:>8} {:>8} {:>8} {:>6} {:>6}  cluster",
            "s", "other s", "o cli us", "o srv us", "speed", "cpu"
        )?;
    }
    writeln!(out)
}

/// A line of the table.
pub fn table_row(out: &mut impl Write, row: &Row) -> io::Result<()> {
    write!(
        out,
        "{:<22} {:<8} {:<10} {:>9} {:<14} {:>10.0} {:>10.0} {:<6} {:>6.2} {:>8.1} {:>8.1} {:>6.2}",
        row.case,
        row.interface,
        row.transport,
        row.transfer_bytes,
        row.operation,
        row.value,
        row.control,
        row.unit,
        row.ratio,
        row.client_cpu_us_per_op,
        row.server_cpu_us_per_op,
        row.messages_per_op
    )?;
    if let Some(against) = &row.against {
        let Against { seconds, control_seconds, cpu_ratio, cluster, .. } = against;
        let [client, server] = [against.control_client_cpu_us_per_op, against.control_server_cpu_us_per_op];
        write!(out, " {seconds:>8.2} {control_seconds:>8.2} {client:>8.1} {server:>8.1}")?;
        write!(out, " {:>6.3} {cpu_ratio:>6.3}  {cluster}", row.ratio)?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_by_hand() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-12);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-12);
    }
}
