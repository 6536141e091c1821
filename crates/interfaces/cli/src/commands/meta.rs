//! `weft meta`: dumps the metadata database, and restores and verifies dumps.

use super::session::{Weft, load, why};
use crate::audit;
use crate::failure::{FAILED, Failure};
use crate::logging::utc;
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, IsTerminal, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use weft_config::Cluster;
use weft_core::Timestamp;
use weft_env::Env;
use weft_env::real::{RealEnv, block_on};
use weft_server::audit::EventKind;
use weft_server::metadata::NamespaceCheck;
use weft_store::metadata::{
    DumpError, DumpHeader, DumpReader, DumpWriter, Identity, JournalOptions, Table, Untrusted, restore,
};

/// Exit code: the dump or the database has problems.
const PROBLEMS: u8 = 4;

const AFTER: &str = "\
A dump contains all names, attributes, layouts and extended attributes of one moment, and no bytes of files. It is
made while the cluster is in use. Every row and the whole file have checksums, so that a damaged or incomplete dump is
refused.

Restoring needs an empty directory and a stopped metadata server. Changes after the dump are lost: files created since
have no name, and `weft fsck` lists their datafiles as orphans.

Only administrators may dump or verify a running cluster: root and the user that runs the servers, on the servers'
hosts, and holders of an administrator's key (`weft key admin`).

Exit codes:
  0  success, no problems
  1  failure
  2  wrong arguments, cluster file or key
  4  verify: the dump or the database is damaged, or names and inodes are inconsistent

Examples:
  weft meta dump /backup/weft.dump
  weft meta dump - | zstd > /backup/weft.dump.zst
  weft meta verify /backup/weft-2026-11-23.dump
  weft meta verify                               check the running cluster
  weft meta restore /backup/weft-2026-11-23.dump";

/// Dumps, restores and verifies the metadata.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Meta {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write all metadata of the running cluster to a file
    #[command(after_long_help = AFTER)]
    Dump {
        /// The file, replaced when the dump is complete; `-` is standard output
        file: PathBuf,
        /// Show no progress
        #[arg(short = 'q', long)]
        quiet: bool,
    },
    /// Create the metadata directory from a dump, on an empty disk
    #[command(after_long_help = AFTER)]
    Restore {
        /// The dump; `-` is standard input
        file: PathBuf,
        /// The empty directory [default: that of the cluster file]
        #[arg(long, value_name = "DIR")]
        metadata: Option<PathBuf>,
        /// Show no progress
        #[arg(short = 'q', long)]
        quiet: bool,
    },
    /// Check a dump, or the metadata of the running cluster
    #[command(after_long_help = AFTER)]
    Verify {
        /// The dump, `-` for standard input [default: check the running cluster]
        file: Option<PathBuf>,
        /// Show no progress
        #[arg(short = 'q', long)]
        quiet: bool,
    },
}

impl Meta {
    /// Runs the command.
    pub fn run(self, cluster: Option<PathBuf>) -> Result<u8, Failure> {
        match self.command {
            Command::Dump { file, quiet } => dump(cluster, &file, quiet),
            Command::Restore { file, metadata, quiet } => restored(cluster, &file, metadata, quiet),
            Command::Verify { file: Some(file), quiet } => verify_file(&file, quiet),
            Command::Verify { file: None, quiet } => verify_cluster(cluster, quiet),
        }
    }
}

fn bar(quiet: bool, message: &'static str) -> ProgressBar {
    if quiet || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} {msg}: {human_pos} rows");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
    ProgressBar::new_spinner().with_style(style).with_message(message)
}

fn date(time: Timestamp) -> String {
    utc(u64::try_from(time.parts().0).unwrap_or(0))
}

fn is_standard(file: &Path) -> bool {
    file == Path::new("-")
}

/// Formats the name of a dump.
fn shown(file: &Path) -> String {
    if is_standard(file) { "standard input".to_owned() } else { file.display().to_string() }
}

/// Reads and checks all rows of the running cluster's metadata.
fn each_row(
    weft: &Weft,
    bar: &ProgressBar,
    begin: impl FnOnce(&DumpHeader) -> Result<(), Failure>,
    mut each: impl FnMut(Table, &[u8], Vec<u8>) -> Result<(), Failure>,
) -> Result<DumpHeader, Failure> {
    let refused = |error: &weft_client::Error| Failure::new("metadata", why(error));
    let mut dump = block_on(weft.client.dump_metadata()).map_err(|error| refused(&error))?;
    let header = DumpHeader { made: dump.begun().made, identity: dump.begun().identity.clone() };
    begin(&header)?;
    loop {
        let rows = block_on(dump.next_page()).map_err(|error| refused(&error))?;
        if rows.is_empty() {
            break;
        }
        bar.inc(rows.len() as u64);
        for row in rows {
            let Some(table) = Table::from_number(row.table) else {
                let why = format!(
                    "the server has a table of number {}, which this program does not know",
                    row.table
                );
                return Err(Failure::new("metadata", why).remedy("install the same version of Weft on both"));
            };
            each(table, &row.key, row.value)?;
        }
    }
    // The server also ends the dump by itself.
    let _ = block_on(dump.end());
    Ok(header)
}

fn dump(cluster: Option<PathBuf>, file: &Path, quiet: bool) -> Result<u8, Failure> {
    let weft = Weft::open(cluster)?;
    let bar = bar(quiet, "dumped");
    if is_standard(file) {
        write_dump(&weft, &bar, io::stdout().lock(), "standard output")?;
        return Ok(0);
    }
    // An earlier dump stays until this one is complete.
    let mut name = file.as_os_str().to_owned();
    name.push(".partial");
    let partial = PathBuf::from(name);
    let failed = |error: io::Error| Failure::new(partial.display(), error);
    // The dump contains all names, so only its owner may read it.
    let mut options = File::options();
    let out = options.write(true).create(true).truncate(true).mode(0o600).open(&partial).map_err(failed)?;
    let written = write_dump(&weft, &bar, &out, &partial.display().to_string()).and_then(|said| {
        out.sync_all().map_err(failed)?;
        std::fs::rename(&partial, file).map_err(|error| Failure::new(file.display(), error))?;
        let parent = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent).and_then(|dir| dir.sync_all()).map_err(|e| Failure::new(parent.display(), e))?;
        Ok(said)
    });
    bar.finish_and_clear();
    match written {
        Ok(said) => {
            outln!("{}: {said}", file.display());
            Ok(0)
        }
        Err(failure) => {
            let _ = std::fs::remove_file(&partial); // it is incomplete
            Err(failure)
        }
    }
}

/// Writes the dump and returns a summary.
fn write_dump(weft: &Weft, bar: &ProgressBar, out: impl Write, name: &str) -> Result<String, Failure> {
    let failed = |error: io::Error| Failure::new(name, error);
    let mut out = Some(BufWriter::with_capacity(1 << 20, out));
    let writer = std::cell::RefCell::new(None);
    let mut inodes = 0u64;
    let header = each_row(
        weft,
        bar,
        |header| {
            let out = out.take().expect("begun once");
            *writer.borrow_mut() = Some(DumpWriter::new(out, header).map_err(failed)?);
            Ok(())
        },
        |table, key, value| {
            inodes += u64::from(table == Table::Inodes);
            let value = Untrusted::new(value);
            value.verify(table, key).map_err(|error| Failure::said(error.to_string()))?;
            let mut writer = writer.borrow_mut();
            writer.as_mut().expect("begun").row(table, key, value.bytes()).map_err(failed)
        },
    )?;
    let writer = writer.into_inner().expect("begun");
    let (out, rows) = writer.end().map_err(failed)?;
    out.into_inner().map_err(|error| failed(error.into_error()))?.flush().map_err(failed)?;
    Ok(format!("{inodes} inodes in {rows} rows, as of {}", date(header.made)))
}

fn open_dump(file: &Path) -> Result<DumpReader<BufReader<Box<dyn Read>>>, Failure> {
    let input: Box<dyn Read> = if is_standard(file) {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(file).map_err(|error| Failure::new(file.display(), error))?)
    };
    DumpReader::new(BufReader::with_capacity(1 << 20, input)).map_err(|error| unreadable(file, &error))
}

fn unreadable(file: &Path, error: &DumpError) -> Failure {
    let failure = Failure::new(shown(file), error);
    match error {
        DumpError::Cut { .. } | DumpError::Damaged { .. } => failure.code(PROBLEMS),
        _ => failure.code(FAILED),
    }
}

fn restored(
    cluster: Option<PathBuf>,
    file: &Path,
    metadata: Option<PathBuf>,
    quiet: bool,
) -> Result<u8, Failure> {
    let mut dump = open_dump(file)?;
    let header = dump.header().clone();
    let found = Identity::decode(&header.identity).map_err(|error| Failure::new(shown(file), error))?;
    let named = load(cluster);
    let path = match metadata {
        Some(path) => path,
        None => path_of(named.as_ref().map_err(Failure::clone)?, &found, file)?,
    };
    let bar = bar(quiet, "restored");
    let env = RealEnv::new();
    let failed =
        |error: &dyn std::fmt::Display| Failure::new(format!("metadata path {}", path.display()), error);
    let result = block_on(async {
        let dir = env.dir(&path).await.map_err(|error| failed(&error))?;
        let next = || {
            bar.inc(1);
            dump.next_row()
        };
        let name = path.display().to_string();
        let restored = restore(&env, &dir, &name, &header, next, JournalOptions::default()).await;
        restored.map_err(|error| failed(&error).code(FAILED))
    });
    bar.finish_and_clear();
    let restored = result?;
    if let Ok(cluster) = named.as_ref()
        && cluster.name == found.cluster
    {
        let detail = format!("{} to {}", shown(file), path.display());
        audit::local(cluster, EventKind::Action, "meta.restore", &detail);
    }
    outln!(
        "{}: {} inodes in {} rows of cluster {}, as of {}",
        path.display(),
        restored.inodes,
        restored.rows,
        restored.identity.cluster,
        date(restored.dumped)
    );
    outln!(
        "start the metadata server, then run `weft fsck`: it lists datafiles of files created after the dump, which"
    );
    outln!("`weft fsck --repair --delete-orphans` deletes");
    Ok(0)
}

/// Returns the metadata directory of the cluster file, which must belong to the dump's cluster.
fn path_of(cluster: &Cluster, found: &Identity, file: &Path) -> Result<PathBuf, Failure> {
    if cluster.name != found.cluster {
        let why =
            format!("it is a dump of cluster {:?}, the cluster file is of {:?}", found.cluster, cluster.name);
        return Err(Failure::new(shown(file), why).remedy("give the right cluster file, or --metadata DIR"));
    }
    let metadata = cluster.servers.iter().find_map(|server| server.metadata.as_ref());
    Ok(metadata.expect("a loaded cluster has one metadata server").path.clone())
}

fn verify_file(file: &Path, quiet: bool) -> Result<u8, Failure> {
    let mut dump = open_dump(file)?;
    let header = dump.header().clone();
    let identity = Identity::decode(&header.identity)
        .map_err(|error| Failure::new(shown(file), error).code(PROBLEMS))?;
    let bar = bar(quiet, "verified");
    let mut check = NamespaceCheck::default();
    while let Some(row) = dump.next_row().map_err(|error| unreadable(file, &error))? {
        bar.inc(1);
        check.row(row.table, &row.key, row.value);
    }
    bar.finish_and_clear();
    let about = format!("dump of cluster {}, as of {}", identity.cluster, date(header.made));
    Ok(print_result(
        &about,
        dump.rows(),
        "checksums of the file and of every row, names, inodes and link counts",
        check,
    ))
}

fn verify_cluster(cluster: Option<PathBuf>, quiet: bool) -> Result<u8, Failure> {
    let weft = Weft::open(cluster)?;
    let bar = bar(quiet, "verified");
    let (mut check, mut rows) = (NamespaceCheck::default(), 0);
    let header = each_row(
        &weft,
        &bar,
        |_| Ok(()),
        |table, key, value| {
            rows += 1;
            check.row(table, key, value);
            Ok(())
        },
    )?;
    // Then the parts of the database file that hold no row.
    bar.set_message("the database's file");
    let report =
        block_on(weft.client.check_namespace(false)).map_err(|e| Failure::new("metadata", why(&e)))?;
    bar.finish_and_clear();
    check.add(report.problems);
    let about = format!("metadata of cluster {}, as of {}", weft.cluster.name, date(header.made));
    let checked = "checksums of the database's file and of every row, names, inodes, link counts, rules and \
        space reservations";
    Ok(print_result(&about, rows, checked, check))
}

/// Prints the result and returns the exit code.
fn print_result(about: &str, rows: u64, checked: &str, check: NamespaceCheck) -> u8 {
    let report = check.report();
    report.problems.iter().for_each(|problem| outln!("{problem}"));
    let (inodes, entries) = (report.inodes, report.entries);
    outln!("{about}: {inodes} inodes, {entries} names, {rows} rows: {} problems", report.problems.len());
    outln!("checked: {checked}");
    outln!("not checked: whether the targets hold the datafiles of these inodes; `weft fsck` checks that");
    if report.problems.is_empty() { 0 } else { PROBLEMS }
}
