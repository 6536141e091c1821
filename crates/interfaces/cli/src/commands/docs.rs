//! `weft completions` and `weft man`: generated from the same definitions as the command line itself.

use super::completion;
use crate::args::Weft;
use crate::failure::Failure;
use crate::help_text;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Variable by which a shell asks for completions.
pub const VARIABLE: &str = "WEFT_COMPLETE";

/// Prints shell completions.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  weft completions bash > ~/.local/share/bash-completion/completions/weft
  weft completions zsh > ~/.zfunc/_weft
  weft completions fish > ~/.config/fish/completions/weft.fish")]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    /// Prints the completions.
    pub fn run(self) -> Result<u8, Failure> {
        let failed = |error: std::io::Error| Failure::new("weft completions", error);
        let shells = clap_complete::env::Shells::builtins();
        let shell = self.shell.to_string();
        let Some(shell) = shells.completer(&shell) else {
            return Err(Failure::misuse("weft completions", format!("{shell} is not supported")));
        };
        shell.write_registration(VARIABLE, "weft", "weft", "weft", &mut std::io::stdout()).map_err(failed)?;
        Ok(0)
    }
}

/// Returns the command line with completers of its arguments.
pub fn command_with_completers() -> clap::Command {
    completion::with_completers(public_commands())
}

/// Returns the command line without internal commands, which shells would offer otherwise.
fn public_commands() -> clap::Command {
    let all = Weft::command();
    let shown = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    clap::Command::new("weft").args(all.get_arguments().cloned()).subcommands(shown)
}

/// Writes manual pages.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  weft man | man -l -                      the main page
  weft man --out /usr/local/share/man/man1    one page for each command, such as weft-run.1")]
pub struct Man {
    /// Write all pages into this directory instead of the main one to standard output
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Man {
    /// Writes the pages.
    pub fn run(self) -> Result<u8, Failure> {
        let failed = |error: std::io::Error| Failure::new("writing a manual page", error);
        match self.out {
            None => {
                let page = render(&Weft::command(), "weft").map_err(failed)?;
                std::io::stdout().write_all(page.as_bytes()).map_err(failed)?;
            }
            Some(dir) => {
                let failed = |error: std::io::Error| Failure::new(dir.display(), error);
                std::fs::create_dir_all(&dir).map_err(failed)?;
                let mut command = Weft::command();
                command.build();
                pages(&command, "weft", &dir).map_err(failed)?;
            }
        }
        Ok(0)
    }
}

/// Writes the page of `command` and of all its subcommands.
fn pages(command: &clap::Command, name: &str, dir: &Path) -> std::io::Result<()> {
    std::fs::write(dir.join(format!("{name}.1")), render(command, name)?)?;
    command
        .get_subcommands()
        .filter(|sub| sub.get_name() != "help" && !sub.is_hide_set())
        .try_for_each(|sub| pages(sub, &format!("{name}-{}", sub.get_name()), dir))
}

fn render(command: &clap::Command, name: &str) -> std::io::Result<String> {
    let mut page = Vec::new();
    let notes = command.get_after_long_help().map(|text| help_text::manual(&text.to_string()));
    let command = command.clone().after_long_help(None::<&'static str>);
    clap_mangen::Man::new(command).title(name.to_uppercase()).render(&mut page)?;
    let mut page = String::from_utf8_lossy(&page).into_owned();
    if let Some(notes) = notes {
        page += &format!(".SH NOTES\n{notes}");
    }
    Ok(page)
}
