//! The progress bar of a copy.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// Duration after which a copy shows a progress bar.
const PROGRESS_AFTER: Duration = Duration::from_millis(500);

/// Returns a bar that is hidden for short copies and without a terminal.
pub fn bar(quiet: bool) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{wide_msg} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}");
    let bar = ProgressBar::new(0);
    bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let late = bar.clone();
    std::thread::spawn(move || {
        std::thread::sleep(PROGRESS_AFTER);
        if !late.is_finished() {
            late.set_draw_target(indicatif::ProgressDrawTarget::stderr());
        }
    });
    bar
}
