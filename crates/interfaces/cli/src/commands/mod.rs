//! Subcommands, one file each, and their common functions.

pub mod agent;
pub mod apply;
pub mod bench;
mod bytes;
pub mod cache;
pub mod cat;
mod completion;
pub mod config;
pub mod cp;
pub mod delegate;
pub mod df;
pub mod docs;
pub mod du;
mod file_json;
pub mod find;
pub mod flush;
pub mod fsck;
pub mod key;
pub mod lab;
mod layout_arguments;
pub mod ls;
pub mod meta;
pub mod migrate;
pub mod mount;
pub mod mount_helper;
pub mod names;
pub mod owners;
pub mod plan;
pub mod private_mount;
pub mod profile;
pub mod quota;
pub mod rebalance;
mod relayout;
pub mod replay;
pub mod replicate;
pub mod run;
pub mod scrub;
pub mod serve;
pub mod server;
mod session;
pub mod stat;
pub mod status;
pub mod stop;
pub mod stripe;
pub mod target;
pub mod top;
pub mod trace;
pub mod tree;
pub mod twin;
pub mod upgrade;
pub mod workload;

pub use session::{HeldConnections, load, load_or_start, posix};

use crate::args::{self, Command};
use crate::failure::Failure;

/// Runs the command of the command line and returns the exit code.
pub fn run(args: args::Weft) -> Result<u8, Failure> {
    let file = args.cluster;
    match args.command {
        Command::Run(command) => command.run(file),
        Command::Stop(command) => command.run(file),
        Command::Serve(command) => command.run(file),
        Command::Status(command) => command.run(file),
        Command::Top(command) => command.run(file),
        Command::Delegate(command) => command.run(file),
        Command::Mount(command) => command.run(file),
        Command::PrivateMount(command) => command.run(file),
        Command::Umount(command) => command.run(),
        Command::Ls(command) => command.run(file),
        Command::Find(command) => command.run(file),
        Command::Cp(command) => command.run(file),
        Command::Cat(command) => command.run(file),
        Command::Mv(command) => command.run(file),
        Command::Rm(command) => command.run(file),
        Command::Mkdir(command) => command.run(file),
        Command::Touch(command) => command.run(file),
        Command::Ln(command) => command.run(file),
        Command::Stat(command) => command.run(file),
        Command::Chmod(command) => command.run(file),
        Command::Chown(command) => command.run(file),
        Command::Df(command) => command.run(file),
        Command::Du(command) => command.run(file),
        Command::Quota(command) => command.run(file),
        Command::Setstripe(command) => command.run(file),
        Command::Getstripe(command) => command.run(file),
        Command::Migrate(command) => command.run(file),
        Command::Replicate(command) => command.run(file),
        Command::Agent(command) => command.run(),
        Command::Fsck(command) => command.run(file),
        Command::Meta(command) => command.run(file),
        Command::Flush(command) => command.run(file),
        Command::Target(command) => command.run(file),
        Command::Server(command) => command.run(file),
        Command::Upgrade(command) => command.run(file),
        Command::Rebalance(command) => command.run(file),
        Command::Key(command) => command.run(file),
        Command::Config(command) => command.run(file),
        Command::Bench(command) => command.run(file),
        Command::Lab(command) => command.run(),
        Command::Workload(command) => command.run(),
        Command::Cache(command) => command.run(),
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

/// Parses a duration argument.
pub fn duration(text: &str) -> Result<weft_core::Nanos, String> {
    weft_config::parse_duration(text)
}

/// Parses a duration argument of at least one second.
pub fn seconds(text: &str) -> Result<weft_core::Nanos, String> {
    let time = duration(text)?;
    if time < weft_core::Nanos::from_s(1) { Err("write at least 1s".into()) } else { Ok(time) }
}

/// Parses a size argument.
pub fn size(text: &str) -> Result<weft_core::ByteLen, String> {
    weft_config::parse_size(text)
}

/// Quotes a name for a shell.
pub fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    let bytes = bytes::bytes(text);
    match std::str::from_utf8(&bytes) {
        Ok(name) if !name.is_empty() && name.chars().all(plain) => name.to_owned(),
        Ok(name) if !name.contains(char::is_control) => format!("'{}'", name.replace('\'', "'\\''")),
        // The syntax of bash, zsh and ksh.
        _ => {
            let mut out = "$'".to_owned();
            for (piece, byte) in weft_core::escape::pieces(text) {
                match (piece, byte) {
                    ("'" | "\\", None) => out.extend(["\\", piece]),
                    (control, None) if control.contains(char::is_control) => {
                        control.bytes().for_each(|byte| weft_core::escape::escape(&mut out, byte));
                    }
                    (piece, _) => out.push_str(piece),
                }
            }
            out + "'"
        }
    }
}

/// Quotes a local path for a shell.
pub fn quoted_path(path: &std::path::Path) -> String {
    quoted(&bytes::text(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str())))
}

/// Parses a rate argument in bytes per second, at least one.
pub fn rate(text: &str) -> Result<weft_core::ByteLen, String> {
    size(text).and_then(|rate| {
        if rate.0 > 0 { Ok(rate) } else { Err("the rate must be at least 1 byte per second".into()) }
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_shell_gets_the_bytes_of_a_name() {
        for name in [
            &b"/weft/a"[..],
            b"",
            b"a b",
            b"it's\\ $x",
            b"caf\xe9's \\ \"x\"",
            b"\\x41 \xff",
            b"line\nfeed\x01",
        ] {
            let quoted = super::quoted(&super::bytes::text(name));
            let script = format!("printf %s {quoted}");
            let said = std::process::Command::new("bash").args(["-c", &script]).output().expect("bash");
            assert_eq!(said.stdout, name, "{script}");
        }
    }
}
