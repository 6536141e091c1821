//! The `weft` command: one file per subcommand under `commands`.

#[macro_use]
mod output;
mod preloadable;

mod args;
mod audit;
mod commands;
mod embedded;
mod failure;
mod logging;
mod signals;
mod table;
mod whole;

use clap::Parser;
use std::process::ExitCode;

// Planted bugs come into a command only by its own name for them, not by what else is built with it.
const _: () = assert!(weft_env::plants::AVAILABLE == cfg!(feature = "plants"));

fn main() -> ExitCode {
    // A closed pipe (`weft ls | head`) ends the command quietly, as it does other tools.
    signals::default_pipe();
    let args = args::Weft::parse();
    match commands::run(args) {
        Ok(code) => {
            output::flush();
            ExitCode::from(code)
        }
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}
