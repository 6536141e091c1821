//! The processes that this crate starts, for its tests; `weft darshan-reader` and `weft replay-worker` in the command.

use std::path::Path;
use std::process::ExitCode;
use weft_trace::darshan::{Mode, serve};
use weft_trace::prepared::{self, Prepared, Timing};
use weft_trace::replay;

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
        (Some("replay"), Some(trace), Some(place)) => replay(Path::new(trace), Path::new(place)),
        _ => ExitCode::from(2),
    }
}

/// A replay with the pauses of the trace, for tests that end it early.
fn replay(trace: &Path, place: &Path) -> ExitCode {
    let mut stream = weft_trace::open(trace, &weft_trace::OpenOptions::default()).expect("a trace");
    let prepared = Prepared::new(trace, &mut *stream, &prepared::Options::default(), |_| {}).expect("sound");
    let options = replay::Options {
        dir: place.join("replay"),
        processes: 2,
        threads: 1,
        timing: Timing::Speed(1.0),
        verify: false,
        check_room: Some(u64::MAX),
        last: true,
        keep: false,
        worker: vec![std::env::current_exe().expect("this program").into(), "replay-worker".into()],
        environment: Vec::new(),
    };
    match replay::run(&prepared, &options, |_| {}) {
        Ok(_) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
