//! Lines that say little about the device, because something else used the machine during the measurement.

use super::fit::FittedLine;
use super::report::{ClassReport, Lines};

/// Relative error of the time of a request from which on a line is unreliable. The planner distinguishes layouts that
/// differ by less than a factor of 1.5.
pub const UNRELIABLE_ERROR: f64 = 0.5;
/// Length of the request whose time is judged, bytes: the default stripe.
const JUDGED_LEN: f64 = 65_536.0;

impl FittedLine {
    /// Standard error of the time of a request of 64 KiB, relative to that time. An upper bound, because the errors of
    /// both parameters are added.
    pub fn relative_error(&self) -> f64 {
        let bytes_us = JUDGED_LEN / self.mb_s;
        let error_us = self.startup_error_us + bytes_us * self.mb_s_error / self.mb_s;
        error_us / (self.startup_us + bytes_us)
    }

    /// Whether the points agree with the line and the error is small enough for a plan.
    pub fn is_reliable(&self) -> bool {
        self.off <= UNRELIABLE_ERROR && self.is_certain()
    }

    /// Whether the error is small enough for a plan. The times of shuffled neighbors form no line on an idle disk either,
    /// because it has read short ones ahead and long ones not.
    pub fn is_certain(&self) -> bool {
        self.relative_error() <= UNRELIABLE_ERROR
    }
}

impl Lines {
    /// Whether each line is reliable.
    fn judged(&self) -> impl Iterator<Item = bool> {
        let by_depth = self.random.iter().chain(&self.past).map(|depth| &depth.line);
        let lines = [Some(&self.sequential), self.streams.as_ref()].into_iter().flatten().chain(by_depth);
        lines.map(FittedLine::is_reliable).chain(self.near.iter().map(FittedLine::is_certain))
    }
}

impl ClassReport {
    /// Number of unreliable lines, and of all lines.
    pub fn unreliable(&self) -> (usize, usize) {
        let lines = || self.read.judged().chain(self.write.judged());
        (lines().filter(|is_reliable| !is_reliable).count(), lines().count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(startup_us: f64, startup_error_us: f64, mb_s: f64, mb_s_error: f64, off: f64) -> FittedLine {
        FittedLine { startup_us, startup_error_us, mb_s, mb_s_error, off }
    }

    #[test]
    fn a_line_is_unreliable_if_its_points_or_its_errors_are() {
        // 64 KiB at 65.536 MB/s take 1000 us.
        let good = line(1000.0, 100.0, 65.536, 6.5536, 0.1);
        assert!((good.relative_error() - 0.1).abs() < 1e-9 && good.is_reliable());
        assert!(!FittedLine { off: 0.51, ..good }.is_reliable());
        assert!(FittedLine { off: 0.5, ..good }.is_reliable());
        assert!(FittedLine { off: 45.0, ..good }.is_certain());
        assert!(!FittedLine { startup_error_us: 1000.0, ..good }.is_reliable());
        // The rate does not matter where the startup does.
        assert!(line(10_000.0, 100.0, 655.36, 655.36, 0.0).is_reliable());
        assert!(!line(10.0, 1.0, 655.36, 655.36, 0.0).is_reliable());
        // A rate without a limit, found on a busy machine.
        assert!(!line(654.4, 44.68, 1e7, 1e7, 45.19).is_reliable());
        assert!(!line(0.0, 27.96, 205.2, 205.2, 0.1).is_reliable());
    }
}
