//! `weft rebalance`: moves data from full targets to empty ones of their class.

use super::relayout::{self, Mover};
use super::session::{Weft, why};
use super::status;
use super::target;
use crate::failure::{FAILED, Failure};
use clap::Args;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use weft_core::units::human_bytes;
use weft_core::{ByteLen, FileId, Layout, TargetId, TargetState};
use weft_env::real::block_on;
use weft_wire::meta::ScannedInode;

/// Number of datafiles per request.
const PAGE: u32 = 4096;
/// Relative deviation from its share up to which a target stays as it is.
const TOLERANCE: f64 = 0.05;

const AFTER: &str = "\
Every target of a class gets a share of the class's data in proportion to its size, for example after `weft target
add`. Programs may use the files meanwhile. A file keeps its stripe size and count; one on all targets of its class
stays. A signal or a crash does no harm: the same command continues.

Exit codes:
  0    the targets hold their shares, or no further file can be moved
  1    some files could not be moved; standard error says which and why
  2    wrong arguments, cluster file or key
  130  stopped by a signal

Examples:
  weft rebalance --dry-run
  weft rebalance --rate 100M";

/// Moves data from full targets to empty ones.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Rebalance {
    /// At most this many bytes per second; K, M, G are powers of 1024
    #[arg(long, value_name = "SIZE", value_parser = super::rate)]
    rate: Option<ByteLen>,
    /// Only show what each target holds, and its share
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Print each file that was moved
    #[arg(short = 'v', long, conflicts_with = "quiet")]
    verbose: bool,
    /// Print neither progress nor a summary
    #[arg(short = 'q', long)]
    quiet: bool,
}

/// A target that accepts new files.
struct Account {
    class: String,
    /// Bytes of datafiles.
    held: u64,
    /// Bytes of datafiles plus free space.
    size: u64,
    share: u64,
}

impl Account {
    fn surplus(&self) -> u64 {
        let most = (self.share as f64 * (1.0 + TOLERANCE)) as u64;
        if self.held > most { self.held - self.share } else { 0 }
    }

    fn deficit(&self) -> u64 {
        self.share.saturating_sub(self.held)
    }
}

impl Rebalance {
    /// Runs the command.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let weft = Weft::open_for_transfer(file)?;
        let mut parts: BTreeMap<FileId, BTreeMap<TargetId, u64>> = BTreeMap::new();
        let mut accounts = accounts(&weft, &mut parts)?;
        if self.dry_run {
            for (target, account) in &accounts {
                let (held, share) = (human_bytes(account.held), human_bytes(account.share));
                outln!("target {}: holds {held}, its share is {share}", target.0);
            }
            return Ok(0);
        }
        let mut files: Vec<ScannedInode> = Vec::new();
        relayout::scan(&weft, |inode| {
            let is_on_full =
                |target: &TargetId| accounts.get(target).is_some_and(|found| found.surplus() > 0);
            let there = parts.get(&inode.file).is_some_and(|own| own.keys().any(is_on_full));
            if relayout::is_movable(&inode) && there {
                files.push(inode);
            }
        })?;
        // Largest first, for the fewest moves.
        files.sort_by_key(|inode| std::cmp::Reverse(inode.size));
        let mut mover = Mover::new(&weft, self.rate, self.quiet, self.verbose);
        for inode in files {
            if mover.is_stopped() {
                break;
            }
            let (Some(layout), Some(own)) = (&inode.layout, parts.get(&inode.file)) else { continue };
            let Some((moved, from, to, bytes)) = better(layout, own, &accounts) else { continue };
            if mover.file(&inode, &moved) {
                accounts.entry(from).and_modify(|found| found.held = found.held.saturating_sub(bytes));
                accounts.entry(to).and_modify(|found| found.held += bytes);
            }
        }
        mover.bar.finish_and_clear();
        if !self.quiet {
            outln!(
                "moved {} ({} copied)",
                super::migrate::files(mover.sum.files),
                human_bytes(mover.sum.bytes)
            );
        }
        Ok(match (mover.sum.stopped, mover.sum.failed) {
            (true, _) => super::migrate::INTERRUPTED,
            (false, 0) => 0,
            _ => FAILED,
        })
    }
}

/// Returns the targets in use with the bytes they hold. `parts` gets the bytes of each file on each target.
fn accounts(
    weft: &Weft,
    parts: &mut BTreeMap<FileId, BTreeMap<TargetId, u64>>,
) -> Result<BTreeMap<TargetId, Account>, Failure> {
    let active: BTreeSet<TargetId> = target::records(weft)?
        .iter()
        .filter(|record| record.state == TargetState::Active)
        .map(|record| record.target)
        .collect();
    let mut accounts = BTreeMap::new();
    for answer in status::query_servers(weft) {
        let status =
            answer.status.map_err(|why| Failure::new(format!("server {}", answer.server.name), why))?;
        for reported in status
            .targets
            .iter()
            .filter(|reported| reported.refused.is_none() && active.contains(&reported.target))
        {
            let mut held = 0;
            let mut after = None;
            loop {
                let page = block_on(weft.client.list_datafiles(reported.target, after, PAGE))
                    .map_err(|error| Failure::new(format!("target {}", reported.target.0), why(&error)))?;
                let Some((file, object, _)) = page.last() else { break };
                after = Some((*file, *object));
                for (file, _, len) in page.into_iter().filter(|(.., len)| *len != ByteLen::UNKNOWN) {
                    held += len.0;
                    *parts.entry(file).or_default().entry(reported.target).or_default() += len.0;
                }
            }
            let account =
                Account { class: reported.class.clone(), held, size: held + reported.free.0, share: 0 };
            accounts.insert(reported.target, account);
        }
    }
    let mut classes: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for account in accounts.values() {
        let sum = classes.entry(account.class.clone()).or_default();
        (sum.0, sum.1) = (sum.0 + account.held, sum.1 + account.size);
    }
    for account in accounts.values_mut() {
        let (held, size) = classes[&account.class];
        let share = u128::from(held) * u128::from(account.size) / u128::from(size.max(1));
        account.share = u64::try_from(share).unwrap_or(u64::MAX);
    }
    Ok(accounts)
}

/// Returns the layout that moves one datafile from a target with a surplus to the emptiest one of its class, with both
/// targets and the bytes. Returns `None` if the move would only exchange surplus and deficit.
fn better(
    layout: &Layout,
    own: &BTreeMap<TargetId, u64>,
    accounts: &BTreeMap<TargetId, Account>,
) -> Option<(Layout, TargetId, TargetId, u64)> {
    let has: BTreeSet<TargetId> = layout.objects().map(|(_, target)| target).collect();
    let full = own.iter().filter(|(target, _)| has.contains(target));
    let full = full.filter_map(|(target, bytes)| Some((*target, *bytes, accounts.get(target)?)));
    let (from, bytes, account) = full.max_by_key(|(_, _, account)| account.surplus())?;
    let empty = accounts.iter().filter(|(id, found)| found.class == account.class && !has.contains(id));
    let (to, empty) = empty.max_by_key(|(_, found)| found.deficit())?;
    if bytes == 0 || bytes > account.surplus() || bytes > empty.deficit() {
        return None;
    }
    let mut components = layout.components().to_vec();
    for strip in components.iter_mut().flat_map(|part| &mut part.strips) {
        if strip.target == from {
            strip.target = *to;
        }
    }
    Some((Layout::from_components(components).ok()?, from, *to, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_goes_where_its_class_holds_least_and_never_turns_the_tables() {
        let account = |class: &str, held, share| Account { class: class.into(), held, size: 1000, share };
        let accounts = BTreeMap::from([
            (TargetId(0), account("hdd", 300, 100)),
            (TargetId(1), account("hdd", 0, 100)),
            (TargetId(2), account("hdd", 50, 100)),
            (TargetId(3), account("ssd", 0, 100)),
        ]);
        let layout = |ids: &[u32]| {
            let targets: Vec<_> = ids.iter().map(|id| TargetId(*id)).collect();
            Layout::striped(&targets, ByteLen(4096)).expect("a layout")
        };
        let own = |ids: &[(u32, u64)]| ids.iter().map(|(id, len)| (TargetId(*id), *len)).collect();
        let found = better(&layout(&[0, 2]), &own(&[(0, 90), (2, 10)]), &accounts);
        assert_eq!(found, Some((layout(&[1, 2]), TargetId(0), TargetId(1), 90)));
        assert_eq!(better(&layout(&[0]), &own(&[(0, 101)]), &accounts), None, "more than is missing there");
        assert_eq!(better(&layout(&[0, 1, 2]), &own(&[(0, 9), (1, 9), (2, 9)]), &accounts), None);
        assert_eq!(better(&layout(&[2]), &own(&[(2, 10)]), &accounts), None, "it has no surplus");
    }
}
