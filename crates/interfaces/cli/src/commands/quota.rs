//! `weft quota`: limits of users and directory trees.

use super::bytes;
use super::key::user_id;
use super::names::{Names, printable};
use super::session::{Weft, why};
use super::trace::bar;
use crate::failure::Failure;
use crate::table::Table;
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::PathBuf;
use weft_core::units::human_bytes;
use weft_core::{ByteLen, QuotaId, QuotaLimits};
use weft_env::real::block_on;
use weft_wire::meta::{InodePath, Quota, QuotaSubject};

const AFTER: &str = "\
Without arguments, the command shows your own quota. With paths, it shows the quota of the directory tree that each is in.
A quota exists once an administrator has set it (`weft quota set`); from then on its usage is counted.

A file counts with its length, whatever space it takes: holes count, and compression changes nothing. While a file is
open for writing, up to 64 MiB behind its end may count, too. Quotas do not limit root and the user who runs the
servers; their files count.

Exit codes: 0 shown, 1 failed or no quota, 2 wrong arguments

Examples:
  weft quota                                 your own
  weft quota results                         the tree that results is in
  weft quota --user alice
  weft quota --all --json
  weft quota set --user alice --bytes 10T --inodes 1000000
  weft quota set --tree /weft/projects/climate --bytes 50T
  weft quota set --user alice --bytes none";

/// Shows and sets quotas of users and directory trees.
#[derive(Args)]
#[command(after_long_help = AFTER, args_conflicts_with_subcommands = true)]
pub struct QuotaArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// Show the quota of this user
    #[arg(long, value_name = "NAME|NUMBER", conflicts_with_all = ["all", "paths"])]
    user: Option<String>,
    /// Show all quotas (administrators)
    #[arg(long, conflicts_with = "paths")]
    all: bool,
    /// Show exact bytes
    #[arg(long, conflicts_with = "json")]
    bytes: bool,
    /// Print JSON, with bytes
    #[arg(long)]
    json: bool,
    /// Show the quota of the tree that each path is in
    #[arg(value_parser = bytes::argument())]
    paths: Vec<String>,
}

#[derive(Subcommand)]
enum Action {
    /// Set limits of a user or tree (administrators)
    Set(Set),
}

/// Sets limits. The first limit of a tree counts its files, with a progress bar; if that is interrupted, repeat it.
#[derive(Args)]
struct Set {
    /// User
    #[arg(long, value_name = "NAME|NUMBER", required_unless_present = "tree", conflicts_with = "tree")]
    user: Option<String>,
    /// Directory: it and all below it count
    #[arg(long, value_name = "DIR", value_parser = bytes::argument())]
    tree: Option<String>,
    /// Maximum sum of the lengths of files, such as 10T, or `none`
    #[arg(long, value_name = "SIZE", value_parser = bytes_limit, required_unless_present = "inodes")]
    bytes: Option<Limit>,
    /// Maximum number of files and directories, or `none`
    #[arg(long, value_name = "NUMBER", value_parser = inodes_limit)]
    inodes: Option<Limit>,
    /// Show no progress and no result
    #[arg(short = 'q', long)]
    quiet: bool,
}

/// New limit; `None` removes it.
#[derive(Clone, Copy)]
struct Limit(Option<u64>);

fn bytes_limit(text: &str) -> Result<Limit, String> {
    if text == "none" { Ok(Limit(None)) } else { super::size(text).map(|size| Limit(Some(size.0))) }
}

fn inodes_limit(text: &str) -> Result<Limit, String> {
    match text {
        "none" => Ok(Limit(None)),
        _ => text.parse().map(|count| Limit(Some(count))).map_err(|_| "write a number or `none`".to_owned()),
    }
}

impl QuotaArgs {
    /// Runs the command.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let weft = Weft::open(file)?;
        if let Some(Action::Set(set)) = self.action {
            return set.run(&weft);
        }
        let (quotas, missing) = self.find(&weft)?;
        if self.json {
            outln!(
                "{}",
                json!({ "quotas": quotas.iter().map(|quota| as_json(&weft, quota)).collect::<Vec<_>>() })
            );
        } else if !quotas.is_empty() {
            out!("{}", table(&weft, &quotas, self.bytes));
        }
        for missing in &missing {
            errln!("{missing}: no quota");
        }
        Ok(u8::from(!missing.is_empty()))
    }

    /// Returns the chosen quotas, and the users and paths that have none.
    fn find(&self, weft: &Weft) -> Result<(Vec<Quota>, Vec<String>), Failure> {
        if self.all {
            let quotas =
                block_on(weft.client.quotas()).map_err(|error| Failure::new("quotas", why(&error)))?;
            return Ok((quotas, Vec::new()));
        }
        let (mut quotas, mut missing) = (Vec::new(), Vec::new());
        let mut take = |found: Option<Quota>, name: String| match found {
            Some(quota) if quotas.contains(&quota) => {}
            Some(quota) => quotas.push(quota),
            None => missing.push(name),
        };
        for path in &self.paths {
            let inside = weft.inside(path)?;
            take(tree_of(weft, inside)?, weft.shown(inside));
        }
        if self.paths.is_empty() {
            let uid = match &self.user {
                Some(user) => user_id(user)?,
                // SAFETY: geteuid cannot fail.
                None => unsafe { libc::geteuid() },
            };
            let name = format!("user {}", Names::default().user(uid));
            let found = block_on(weft.client.quota(QuotaSubject::User(uid)));
            take(found.map_err(|error| Failure::new(&name, why(&error)))?, name);
        }
        Ok((quotas, missing))
    }
}

fn tree_of(weft: &Weft, inside: &str) -> Result<Option<Quota>, Failure> {
    weft.at(inside, true, |at| block_on(weft.client.quota(QuotaSubject::TreeOf(at.clone()))))
}

impl Set {
    fn run(&self, weft: &Weft) -> Result<u8, Failure> {
        let (subject, name, before) = match (&self.user, &self.tree) {
            (Some(user), _) => {
                let subject = QuotaSubject::User(user_id(user)?);
                let before = block_on(weft.client.quota(subject.clone()));
                let name = format!("user {user}");
                (subject, name.clone(), before.map_err(|error| Failure::new(name, why(&error)))?)
            }
            (None, tree) => {
                let inside = weft.inside(tree.as_deref().unwrap_or_default())?;
                let dir = weft.stat(inside, true)?;
                let before = tree_of(weft, inside)?.filter(|quota| quota.id == QuotaId::Tree(dir.file));
                let at = InodePath::at_inode(dir.file, dir.proof);
                (QuotaSubject::TreeOf(at), weft.shown(inside), before)
            }
        };
        let before = before.map(|quota| quota.limits).unwrap_or_default();
        let limits = QuotaLimits {
            bytes: self.bytes.map_or(before.bytes, |limit| limit.0.map(ByteLen)),
            inodes: self.inodes.map_or(before.inodes, |limit| limit.0),
        };
        let bar = if self.quiet { indicatif::ProgressBar::hidden() } else { bar() };
        bar.set_message("files counted");
        let set = block_on(weft.client.set_quota(&subject, limits, |entries| bar.set_position(entries)));
        bar.finish_and_clear();
        let quota = set.map_err(|error| Failure::new(name, why(&error)))?;
        if !self.quiet {
            out!("{}", table(weft, &[quota], false));
        }
        Ok(0)
    }
}

fn table(weft: &Weft, quotas: &[Quota], exact: bool) -> String {
    let size = |bytes: u64| if exact { bytes.to_string() } else { human_bytes(bytes) };
    let or_dash = |limit: Option<String>| limit.unwrap_or_else(|| "-".to_owned());
    let mut names = Names::default();
    let mut table = Table::new(["QUOTA", "BYTES", "LIMIT", "USE%", "FILES", "LIMIT", "USE%"]);
    let mut uncounted = String::new();
    for Quota { id, path, limits, usage, is_counted } in quotas {
        let name = match id {
            QuotaId::User(uid) => format!("user {}", names.user(*uid)),
            QuotaId::Tree(_) => printable(&weft.shown(&bytes::text(path))),
        };
        if !is_counted {
            uncounted += &format!(
                "{name}: its files are not all counted yet; if no `weft quota set` is running, repeat it\n"
            );
        }
        let percent = |used: u64, max: u64| match max {
            0 => "100%".to_owned(),
            max => format!("{:.0}%", (100.0 * used as f64 / max as f64).ceil()),
        };
        table.row([
            name,
            size(usage.bytes.0),
            or_dash(limits.bytes.map(|max| size(max.0))),
            or_dash(limits.bytes.map(|max| percent(usage.bytes.0, max.0))),
            usage.inodes.to_string(),
            or_dash(limits.inodes.map(|max| max.to_string())),
            or_dash(limits.inodes.map(|max| percent(usage.inodes, max))),
        ]);
    }
    table.render() + &uncounted
}

fn as_json(weft: &Weft, quota: &Quota) -> serde_json::Value {
    let Quota { id, path, limits, usage, is_counted } = quota;
    let (user, tree) = match id {
        QuotaId::User(uid) => (Some(*uid), None),
        QuotaId::Tree(_) => (None, Some(weft.shown(&bytes::text(path)))),
    };
    json!({
        "user": user,
        "tree": tree,
        "bytes": usage.bytes.0,
        "bytes_max": limits.bytes.map(|max| max.0),
        "inodes": usage.inodes,
        "inodes_max": limits.inodes,
        "is_counted": is_counted,
    })
}
