//! The `weft` command: one file per subcommand under `commands`.

#[macro_use]
mod output;
mod preloadable;

mod args;
mod commands;
mod embedded;
mod failure;
mod logging;
mod signals;
mod table;

use clap::Parser;
use std::process::ExitCode;

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
