//! Result rows: one per figure, printed as a table or as JSON lines.

use serde::Serialize;
use std::io::{self, Write};

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Workload: `ior-segmented`, `ior-interleaved`, `ior-file-per-process`, `mdtest`, `mdtest-hard`, or a kind of
    /// workload.
    pub case: String,
    /// Interface: `library`, `preload`, `fuse`, or `path` for another file system.
    pub interface: String,
    /// Transport: `descriptor`, `socket`, `auto`, or `-` for another file system.
    pub transport: String,
    /// Mean length of a transfer in bytes; 0 for operations without transfers.
    pub transfer_bytes: u64,
    /// Operation: `write`, `write+sync`, `read`, `create`, `stat`, `remove`, or the name of a workload's phase.
    pub operation: String,
    /// The measured figure: median over the rounds.
    pub value: f64,
    /// Unit of `value` and `control`.
    pub unit: &'static str,
    /// Figure of the control in the same rounds: median.
    pub control: f64,
    /// Median over the rounds of the figure divided by the control's figure.
    pub ratio: f64,
    /// Processor time of the ranks per operation, in microseconds.
    pub client_cpu_us_per_op: f64,
    /// Processor time of the servers per operation, in microseconds.
    pub server_cpu_us_per_op: f64,
    /// Requests to data and metadata servers per operation.
    pub messages_per_op: f64,
    /// Further figures if the control is another cluster.
    #[serde(flatten)]
    pub against: Option<Against>,
    /// Whether devices of the cluster are emulated.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub emulated: bool,
}

/// Further figures of a comparison of two clusters.
#[derive(Clone, Debug, Serialize)]
pub struct Against {
    /// Name of the measured cluster, or its setting of checksums at rest.
    pub cluster: String,
    /// Median over the rounds of the processor time per operation, ranks and servers, divided by the control's.
    pub cpu_ratio: f64,
    /// Median time of a round in seconds.
    pub seconds: f64,
    /// Median time of a round of the control in seconds.
    pub control_seconds: f64,
    /// Processor time of the control's ranks per operation, in microseconds.
    pub control_client_cpu_us_per_op: f64,
    /// Processor time of the control's servers per operation, in microseconds.
    pub control_server_cpu_us_per_op: f64,
}

/// Median of the values; the mean of the two middle values if their number is even.
///
/// # Panics
/// Panics if there are no values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

/// Prints the heading of the table.
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

/// Prints a row of the table.
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
    fn medians_of_odd_and_even_numbers() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-12);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-12);
    }
}
