//! The `weft` command: one file per subcommand under `commands`.

#[macro_use]
mod output;
mod preloadable;

mod args;
mod atomic_file;
mod audit;
mod commands;
mod embedded;
mod failure;
mod interface;
mod job_dir;
mod launcher;
mod logging;
mod processor;
mod signals;
mod table;

use clap::Parser;
use std::process::ExitCode;

// Mutants enter the command only through its own feature, never because another crate of the build enables them.
const _: () = assert!(weft_env::mutants::AVAILABLE == cfg!(feature = "mutants"));

fn main() -> ExitCode {
    // A closed pipe (`weft ls | head`) ends the command silently, as for other tools.
    signals::default_pipe();
    let args = args::Weft::parse();
    match commands::run(args) {
        Ok(code) => {
            output::flush();
            ExitCode::from(code)
        }
        Err(failure) => {
            errln!("{failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}
