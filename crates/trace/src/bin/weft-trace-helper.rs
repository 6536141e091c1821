//! The processes that this crate starts, for its tests; `weft darshan-reader` and `weft replay-worker` in the command.

use std::path::Path;
use std::process::ExitCode;
use weft_trace::darshan::{Mode, serve};

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().collect();
    let arg = |at: usize| args.get(at).and_then(|arg| arg.to_str());
    match (arg(1), arg(2), args.get(3)) {
        (Some("darshan-reader"), Some(mode), Some(path)) => match Mode::from_name(mode) {
            Some(mode) => ExitCode::from(serve(mode, Path::new(path))),
            None => ExitCode::from(2),
        },
        (Some("replay-worker"), Some(spec), None) => match weft_trace::replay::serve(spec) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("replay-worker: {error}");
                ExitCode::FAILURE
            }
        },
        _ => ExitCode::from(2),
    }
}
