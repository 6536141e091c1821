//! One file per subcommand; what they share stands here.

pub mod apply;
pub mod bench;
mod bytes;
pub mod cat;
pub mod config;
pub mod cp;
pub mod df;
pub mod docs;
pub mod du;
pub mod flush;
pub mod fsck;
pub mod key;
pub mod lab;
pub mod ls;
pub mod migrate;
pub mod mount;
pub mod names;
pub mod plan;
pub mod profile;
pub mod replay;
pub mod run;
pub mod serve;
mod session;
pub mod stat;
pub mod status;
pub mod stop;
pub mod stripe;
pub mod trace;
pub mod tree;
pub mod twin;
mod wanted;
pub mod workload;

pub use bytes::shown;
pub use session::{Held, load, posix};

use crate::args::{self, Command};
use crate::failure::Failure;

/// Does what the command line says; the code to end with.
pub fn run(args: args::Weft) -> Result<u8, Failure> {
    let file = args.cluster;
    match args.command {
        Command::Run(command) => command.run(file),
        Command::Stop(command) => command.run(file),
        Command::Serve(command) => command.run(file),
        Command::Status(command) => command.run(file),
        Command::Mount(command) => command.run(file),
        Command::Umount(command) => command.run(),
        Command::Ls(command) => command.run(file),
        Command::Cp(command) => command.run(file),
        Command::Cat(command) => command.run(file),
        Command::Mv(command) => command.run(file),
        Command::Rm(command) => command.run(file),
        Command::Mkdir(command) => command.run(file),
        Command::Touch(command) => command.run(file),
        Command::Ln(command) => command.run(file),
        Command::Stat(command) => command.run(file),
        Command::Df(command) => command.run(file),
        Command::Du(command) => command.run(file),
        Command::Setstripe(command) => command.run(file),
        Command::Getstripe(command) => command.run(file),
        Command::Migrate(command) => command.run(file),
        Command::Fsck(command) => command.run(file),
        Command::Flush(command) => command.run(file),
        Command::Key(command) => command.run(file),
        Command::Config(command) => command.run(file),
        Command::Bench(command) => command.run(file),
        Command::Lab(command) => command.run(),
        Command::Workload(command) => command.run(),
        Command::BenchRank(command) => command.run(),
        Command::Twin(command) => command.run(),
        Command::Profile(command) => command.run(file),
        Command::Trace(command) => command.run(),
        Command::Plan(command) => command.run(file),
        Command::Apply(command) => command.run(file),
        Command::Replay(command) => command.run(file),
        Command::ReplayWorker(command) => command.run(),
        Command::DarshanReader(command) => Ok(command.run()),
        Command::Completions(command) => command.run(),
        Command::Man(command) => command.run(),
    }
}

/// For arguments.
pub fn duration(text: &str) -> Result<weft_core::Nanos, String> {
    weft_config::parse_duration(text)
}

/// For arguments.
pub fn size(text: &str) -> Result<weft_core::ByteLen, String> {
    weft_config::parse_size(text)
}

/// For a shell.
pub fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    let text = shown(text);
    if !text.is_empty() && text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// For arguments: bytes a second, at least one.
pub fn rate(text: &str) -> Result<weft_core::ByteLen, String> {
    size(text).and_then(|rate| {
        if rate.0 > 0 { Ok(rate) } else { Err("nothing would ever be done at that rate".into()) }
    })
}
