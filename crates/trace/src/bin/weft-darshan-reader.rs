//! Reads one Darshan log, for the tests of this crate; `weft darshan-reader` is the same in the command.

use std::path::Path;
use std::process::ExitCode;
use weft_trace::darshan::{Mode, serve};

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().collect();
    let mode = args.get(1).and_then(|mode| Mode::from_name(mode.to_str()?));
    match (mode, args.get(2)) {
        (Some(mode), Some(path)) => ExitCode::from(serve(mode, Path::new(path))),
        _ => ExitCode::from(2),
    }
}
