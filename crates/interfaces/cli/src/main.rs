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
mod help_text;
mod interface;
mod job_dir;
mod launcher;
mod logging;
mod processor;
mod progress;
mod signals;
mod table;

use clap::{CommandFactory, FromArgMatches};
use std::process::ExitCode;

// Mutants enter the command only through its own feature, never because another crate of the build enables them.
const _: () = assert!(weft_env::mutants::AVAILABLE == cfg!(feature = "mutants"));

fn main() -> ExitCode {
    // A closed pipe (`weft ls | head`) ends the command silently, as for other tools.
    signals::default_pipe();
    let mut args = std::env::args_os();
    if commands::mount_helper::is_called(args.next().as_deref()) {
        return ExitCode::from(commands::mount_helper::run(args));
    }
    // Returns unless a shell asks for completions.
    clap_complete::CompleteEnv::with_factory(commands::docs::command_with_completers)
        .var(commands::docs::VARIABLE)
        .complete();
    let matches = help_text::by_topic(help_text::wrapped(args::Weft::command())).get_matches();
    let args = args::Weft::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
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
