//! Shell completion of arguments: paths on Weft, targets and experiments.
//!
//! The shell calls `weft` with the variable `WEFT_COMPLETE` for each completion. That starts no servers, waits only shortly, and
//! prints nothing but candidates.

use super::session::{Weft, load};
use crate::embedded;
use clap::{Arg, Command};
use clap_complete::ArgValueCompleter;
use clap_complete::CompletionCandidate as Candidate;
use clap_complete::engine::{PathCompleter, ValueCompleter};
use std::ffi::OsStr;
use std::sync::mpsc;
use std::time::Duration;
use weft_config::Cluster;
use weft_lab::experiment;
use weft_wire::meta::FileType;

/// Longest wait for servers.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Most candidates in a directory. Shells ask before they show more.
const CANDIDATES_MAX: usize = 10_000;

/// Adds completers to the arguments of all commands.
pub fn with_completers(command: Command) -> Command {
    let within = command.get_name().to_owned();
    let command = command.mut_args(|arg| match completer(&within, &arg) {
        Some(completer) => arg.add(completer),
        None => arg,
    });
    command.mut_subcommands(|sub| match sub.get_name() {
        "target" => sub.mut_subcommands(|sub| {
            sub.mut_args(|arg| match arg.get_id().as_str() {
                "target" | "targets" => arg.add(ArgValueCompleter::new(targets)),
                _ => arg,
            })
        }),
        "lab" => sub.mut_subcommands(|sub| {
            sub.mut_args(|arg| match arg.get_id().as_str() {
                "name" | "names" => arg.add(ArgValueCompleter::new(experiments)),
                _ => arg,
            })
        }),
        _ => with_completers(sub),
    })
}

/// Completer of an argument that is a path on Weft, or a local one.
fn completer(command: &str, arg: &Arg) -> Option<ArgValueCompleter> {
    let is_path = matches!(
        (command, arg.get_id().as_str()),
        (
            "ls" | "cp"
                | "cat"
                | "mv"
                | "rm"
                | "mkdir"
                | "touch"
                | "stat"
                | "chmod"
                | "chown"
                | "du"
                | "setstripe"
                | "getstripe"
                | "migrate",
            "paths",
        ) | ("ln", "target" | "name")
            | ("quota", "paths")
            | ("set", "tree")
            | ("plan", "directory")
            | ("apply", "under")
    );
    is_path.then(|| ArgValueCompleter::new(paths))
}

/// The cluster that applies, if a client can reach it without starting servers.
fn cluster() -> Option<Cluster> {
    load(None).ok().filter(|cluster| cluster.embedded.is_none() || embedded::runs(cluster))
}

/// Runs `ask` and returns its result, unless that takes too long.
fn promptly<T: Send + Default + 'static>(ask: impl FnOnce() -> Option<T> + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    // Ends with the process.
    std::thread::spawn(move || sender.send(ask().unwrap_or_default()));
    receiver.recv_timeout(WAIT_MAX).unwrap_or_default()
}

fn paths(current: &OsStr) -> Vec<Candidate> {
    let mut found = PathCompleter::any().complete(current);
    if let Some(text) = current.to_str() {
        let text = text.to_owned();
        found.extend(promptly(move || on_weft(&text)));
    }
    found
}

/// Paths on Weft that begin with `text`.
fn on_weft(text: &str) -> Option<Vec<Candidate>> {
    let cluster = cluster()?;
    let mount = format!("{}/", cluster.mount.to_str()?);
    if mount.starts_with(text) {
        return Some(vec![Candidate::new(mount)]);
    }
    if !text.starts_with(&mount) {
        return None;
    }
    let weft = Weft::of(cluster, |_| ()).ok()?;
    weft_client::set_log(|_| ());
    let (dir, begin) = text.rsplit_once('/')?;
    let mut found = Vec::new();
    // An error ends the list early: a partial list of a directory serves as well.
    let _ = weft.list(weft.strip(dir)?, false, |entry| {
        if let Ok(name) = std::str::from_utf8(&entry.name)
            && name.starts_with(begin)
            && found.len() < CANDIDATES_MAX
        {
            let slash = if entry.kind == FileType::Directory { "/" } else { "" };
            found.push(Candidate::new(format!("{dir}/{name}{slash}")));
        }
        Ok(())
    });
    Some(found)
}

fn targets(current: &OsStr) -> Vec<Candidate> {
    let Some(cluster) = load(None).ok() else { return Vec::new() };
    let described = |server: &weft_config::Server, target: &weft_config::Target| {
        let help = format!("{} on {}: {}", target.class, server.name, target.path.display());
        (target.id.0.to_string(), help)
    };
    let all = cluster
        .servers
        .iter()
        .flat_map(|server| server.targets.iter().map(move |target| described(server, target)));
    all.filter(|(number, _)| begins(number, current))
        .map(|(number, help)| Candidate::new(number).help(Some(help.into())))
        .collect()
}

fn experiments(current: &OsStr) -> Vec<Candidate> {
    let names = experiment::all().iter().filter(|experiment| begins(&experiment.name, current));
    names.map(|experiment| Candidate::new(&experiment.name)).collect()
}

fn begins(word: &str, current: &OsStr) -> bool {
    current.to_str().is_some_and(|current| word.starts_with(current))
}
