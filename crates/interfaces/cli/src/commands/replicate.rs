//! `weft replicate`: creates, shows, synchronizes and removes replicas of files, on Weft and on mounted file systems.

mod catalog;
mod pace;
mod show;
mod weft_files;

pub use catalog::{Catalog, Entry, Place, synchronize_all};
pub use pace::RateLimit;

use super::agent::{self, Job, WeftCommand, Work};
use super::bytes;
use crate::failure::{FAILED, Failure};
use crate::table::Table;
use clap::{Args, Subcommand};
use pace::{Pacing, Progress};
use std::cell::RefCell;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use weft_client::replicas::{Difference, Phase, Purpose, Replica, ReplicaInfo, Usage};
use weft_core::replicas::Mapping;
use weft_core::units::human_bytes;
use weft_core::{ByteLen, Nanos};
use weft_env::real::{RealEnv, block_on};
use weft_files::{WeftFile, WeftFiles};
use weft_planner::replicas::{PlannedReplica, ReplicaFile};

/// Exit code if a file is in use.
pub const IN_USE: u8 = 3;

const AFTER: &str = "\
A replica has the bytes of a file in the order in which each process of a program requests them. Programs with as many
processes as the plan use it in place of the file; all others use the file.

Files of Weft: the replica belongs to the file, wherever that is opened. Its first opener decides for all programs that
have the file open at the same time. Writes go to the replica, and `weft replicate sync` copies them to the file. Until
then, all programs use the replica.

Files on mounted file systems: replicas lie in the folder .weft beside the file, and programs under `weft run` use them.
The last process that closes the file copies written bytes to the file; if that is interrupted, the next `weft run`
completes it. Until then, programs without `weft run` see the old bytes.

If a program changes the file without its replica, the replica is outdated and not used any more, until `weft replicate
apply` or, on mounted file systems, `weft replicate sync` copies the file again.

Exit codes:
  0    done; verify: no byte differs
  1    something failed, or bytes differ; standard error says which
  2    wrong arguments or plan
  3    a file is in use

Examples:
  weft run --no-cluster --trace app.wtrace -- mpiexec -n 8 ./app /scratch/field
  weft plan app.wtrace --replicas --output replicas.toml
  weft replicate apply replicas.toml
  weft replicate apply --background replicas.toml      copied by the agent, see `weft help agent`
  weft replicate apply replicas.toml --to /scratch/field.2     the same pattern in a file of a later run
  weft run -- mpiexec -n 8 ./app /scratch/field
  weft replicate list
  weft replicate show /scratch/field
  weft replicate verify
  weft replicate drop /scratch/field";

/// Creates, shows and removes replicas of files.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Replicate {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Create the replicas of a plan
    Apply(Apply),
    /// List replicas
    List(List),
    /// Show where the bytes of a file lie
    Show(Show),
    /// Copy written bytes to the files, and changed files to their replicas
    Sync(Sync),
    /// Remove replicas
    Drop(Drop),
    /// Compare replicas with their files
    Verify(Verify),
}

/// Creates the replicas of a plan.
#[derive(Args)]
struct Apply {
    /// File that `weft plan --replicas --output` has written
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
    /// Space that all replicas may take, those that exist included
    #[arg(long, value_name = "SIZE", value_parser = super::size)]
    budget: Option<ByteLen>,
    /// Maximum number of bytes copied per second
    #[arg(long, value_name = "SIZE", value_parser = super::rate)]
    rate: Option<ByteLen>,
    /// Remove replicas that the files have already
    #[arg(long)]
    replace: bool,
    /// Only show what would be done
    #[arg(long, conflicts_with = "background")]
    dry_run: bool,
    /// Leave the copies to the agent (see `weft help agent`)
    #[arg(long)]
    background: bool,
    /// Only this file of the plan
    #[arg(long, value_name = "FILE")]
    only: Option<PathBuf>,
    /// Make the plan's replica for this file instead, which another run of the program has created; repeatable
    #[arg(long, value_name = "FILE")]
    to: Vec<PathBuf>,
    /// Print copied and total bytes, for the agent
    #[arg(long, hide = true, conflicts_with = "background")]
    report: bool,
    /// For files of Weft: copy only while the disks of the targets are idle
    #[arg(long, hide = true, conflicts_with_all = ["background", "rate"])]
    idle: bool,
}

/// Lists replicas.
#[derive(Args)]
struct List {
    /// Directories with replicas [default: all that `weft replicate apply` has used]
    #[arg(value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// Print JSON, one object per replica
    #[arg(long)]
    json: bool,
}

/// Shows where the bytes of a file lie.
#[derive(Args)]
struct Show {
    /// File with a replica
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Synchronizes replicas.
#[derive(Args)]
struct Sync {
    /// Files with replicas [default: all]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Copy written bytes even if another program has changed the file since
    #[arg(long, requires = "files")]
    force: bool,
    /// Maximum number of bytes copied per second
    #[arg(long, value_name = "SIZE", value_parser = super::rate)]
    rate: Option<ByteLen>,
    /// Leave the copies to the agent (see `weft help agent`)
    #[arg(long, conflicts_with = "force")]
    background: bool,
    /// Print copied and total bytes, for the agent
    #[arg(long, hide = true, conflicts_with = "background")]
    report: bool,
    /// For files of Weft: copy only while the disks of the targets are idle
    #[arg(long, hide = true, conflicts_with_all = ["background", "rate"])]
    idle: bool,
}

/// Removes replicas.
#[derive(Args)]
struct Drop {
    /// Files with replicas, or replicas as `weft replicate list` shows them
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Discard bytes that the file does not have
    #[arg(long)]
    force: bool,
}

/// Compares replicas with their files.
#[derive(Args)]
struct Verify {
    /// Files with replicas [default: all]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl Replicate {
    /// Runs the command and returns the exit code. `cluster` is the cluster file that the caller named.
    pub fn run(self, cluster: Option<PathBuf>) -> Result<u8, Failure> {
        let weft = WeftFiles::new(cluster)?;
        match self.action {
            Action::Apply(apply) => apply.run(&weft),
            Action::List(list) => list.run(&weft),
            Action::Show(show) => show.run(&weft),
            Action::Sync(sync) => sync.run(&weft),
            Action::Drop(drop) => drop.run(&weft),
            Action::Verify(verify) => verify.run(&weft),
        }
    }
}

/// Reads a plan of replicas.
///
/// # Errors
/// Errors of the file system; a file that is no such plan.
pub fn read_plan(path: &Path) -> Result<ReplicaFile, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::new(path.display(), error))?;
    ReplicaFile::of_toml(&text).map_err(|error| {
        Failure::misuse(path.display(), error)
            .remedy("`weft plan TRACE --replicas --output FILE` writes such a file")
    })
}

impl Apply {
    fn run(&self, weft: &WeftFiles) -> Result<u8, Failure> {
        let shown = self.plan.display();
        let plan = read_plan(&self.plan)?;
        if plan.replicas.is_empty() {
            outln!("{shown} has no replicas");
            return Ok(0);
        }
        let catalog = Catalog::of_user()?;
        let mut taken = 0;
        if self.budget.is_some() {
            taken += catalog.entries()?.iter().map(Entry::bytes).sum::<u64>();
            taken += weft.list()?.iter().map(WeftFile::bytes).sum::<u64>();
        }
        let mut code = 0;
        let mut jobs = Vec::new();
        for (planned, from) in self.wanted(&plan)? {
            match self.create(weft, (&planned, &from), &catalog, &mut taken) {
                Ok(job) => jobs.extend(job),
                Err(failure) => {
                    errln!("{failure}");
                    code = code.max(failure.exit_code());
                }
            }
        }
        if !jobs.is_empty() {
            agent::queue_jobs(&jobs)?;
        }
        Ok(code)
    }

    /// Returns the replicas to make, each with the file that the plan has it for.
    fn wanted(&self, plan: &ReplicaFile) -> Result<Vec<(PlannedReplica, String)>, Failure> {
        let is_wanted = |planned: &&PlannedReplica| {
            self.only.as_deref().is_none_or(|only| Path::new(&planned.path) == only)
        };
        let wanted: Vec<&PlannedReplica> = plan.replicas.iter().filter(is_wanted).collect();
        let shown = self.plan.display();
        if let (Some(only), true) = (&self.only, wanted.is_empty()) {
            return Err(Failure::misuse(shown, format!("it has no replica of {}", only.display())));
        }
        if self.to.is_empty() {
            return Ok(wanted.iter().map(|planned| ((*planned).clone(), planned.path.clone())).collect());
        }
        let [planned] = wanted[..] else {
            return Err(Failure::misuse(
                shown,
                format!("it has {} replicas, and --to needs one", wanted.len()),
            )
            .remedy("--only names the file whose replica is meant"));
        };
        let for_file = |path: &PathBuf| {
            let path = bytes::text(path.as_os_str().as_bytes());
            (PlannedReplica { path, ..planned.clone() }, planned.path.clone())
        };
        Ok(self.to.iter().map(for_file).collect())
    }

    /// Creates a replica and copies the file, or returns the job that copies it. The plan has it for the file `from`.
    fn create(
        &self,
        weft: &WeftFiles,
        (planned, from): (&PlannedReplica, &str),
        catalog: &Catalog,
        taken: &mut u64,
    ) -> Result<Option<Job>, Failure> {
        let path = &planned.path;
        let mapping = planned.mapping().map_err(|error| Failure::misuse(self.plan.display(), error))?;
        if let Some(file) = weft.at(path)? {
            return self.create_on_weft((planned, from), &file, &mapping, taken);
        }
        let place = Place::beside(Path::new(path))?;
        let id = place.id();
        let bytes = mapping.replica_len();
        let known = place.list()?.contains(&id);
        if known && !self.replace {
            let replica = place.open(&id)?;
            if **replica.mapping() == mapping {
                if self.background {
                    return Ok(self.job(&place));
                }
                return fill(&place, replica, path, self.rate).map(|()| None);
            }
            return Err(Failure::new(path, "it has another replica").remedy("--replace removes it"));
        }
        self.check_budget(path, bytes, *taken)?;
        place.check_space(bytes)?;
        if self.dry_run {
            outln!("{path}: {}", would_be(planned, &mapping));
            return Ok(None);
        }
        if known {
            drop_replica(&place, Some(&place), &id, false)?;
        }
        let info = ReplicaInfo {
            phase: Phase::Copying,
            ranks: planned.ranks,
            original: place.identity()?,
            mapping_hash: 0,
            path: path.as_bytes().to_vec(),
        };
        let dir = place.create()?;
        let created =
            block_on(Replica::<RealEnv>::create(RealEnv::new(), dir, &place.shown(), &id, &mapping, &info));
        let replica = created.map_err(Failure::said)?;
        catalog.add(place.directory())?;
        *taken += bytes;
        if self.background {
            return Ok(self.job(&place));
        }
        fill(&place, replica, path, self.rate)?;
        say_when_it_pays(planned);
        Ok(None)
    }

    /// Returns the job that copies a file to its replica.
    fn job(&self, place: &Place) -> Option<Job> {
        let path = bytes::text(place.file()?.as_os_str().as_bytes());
        Some(Job::new(Work::ReplicateFill { path }, self.rate))
    }

    fn check_budget(&self, path: &str, bytes: u64, taken: u64) -> Result<(), Failure> {
        match self.budget.map(|budget| budget.0.saturating_sub(taken)) {
            Some(left) if bytes > left => Err(Failure::new(
                path,
                format!(
                    "its replica needs {}, and the budget has {} left",
                    human_bytes(bytes),
                    human_bytes(left)
                ),
            )),
            _ => Ok(()),
        }
    }

    fn create_on_weft(
        &self,
        (planned, from): (&PlannedReplica, &str),
        file: &WeftFile,
        mapping: &Mapping,
        taken: &mut u64,
    ) -> Result<Option<Job>, Failure> {
        let bytes = mapping.replica_len();
        if file.has_valid_replica() {
            if file.mapping()? == *mapping {
                outln!("{}: the replica is valid", file.shown());
                return Ok(None);
            }
            if !self.replace {
                return Err(
                    Failure::new(file.shown(), "it has another replica").remedy("--replace removes it")
                );
            }
        } else {
            self.check_budget(file.shown(), bytes, *taken)?;
        }
        if self.dry_run {
            outln!("{}: {}", file.shown(), would_be(planned, mapping));
            return Ok(None);
        }
        *taken += bytes;
        if self.background {
            let command = WeftCommand::ReplicateApply {
                plan: agent::absolute(&self.plan)?,
                from: from.to_owned(),
                replace: self.replace,
            };
            return Ok(Some(Job::new(file.work(command)?, self.rate)));
        }
        let pacing = Pacing { rate: self.rate, idle: self.idle, report: self.report };
        if file.has_valid_replica() {
            file.synchronize(pacing)?;
            file.remove(false)?;
        }
        let layout = planned.class_layout().map_err(|error| Failure::misuse(self.plan.display(), error))?;
        let gain = Nanos(((planned.now_s - planned.run_s).max(0.0) * 1e9) as u64);
        file.create(mapping, Purpose { ranks: planned.ranks, gain }, layout, pacing)?;
        say_when_it_pays(planned);
        Ok(None)
    }
}

/// Describes a replica that would be made.
fn would_be(planned: &PlannedReplica, mapping: &Mapping) -> String {
    let processes = match planned.ranks {
        0 => "any number of".to_owned(),
        ranks => ranks.to_string(),
    };
    format!("a replica of {} for {processes} processes", human_bytes(mapping.bytes()))
}

fn say_when_it_pays(planned: &PlannedReplica) {
    if let Some(runs) = planned.pays_after() {
        outln!(
            "  by the planner's model it has paid for its copy after {runs} {}",
            if runs == 1 { "run" } else { "runs" }
        );
    }
}

/// Copies a file to its replica, unless the replica is valid.
fn fill(place: &Place, replica: Replica<RealEnv>, path: &str, rate: Option<ByteLen>) -> Result<(), Failure> {
    let mut progress = Progress::new(path, replica.mapping().bytes(), Pacing { rate, ..Pacing::default() });
    let begin = std::time::Instant::now();
    let filled = block_on(Usage::fill(replica, place.origin()?, &mut progress)).map_err(Failure::said)?;
    progress.end();
    match filled {
        Some(0) => outln!("{path}: the replica is valid"),
        Some(bytes) => {
            outln!(
                "{path}: copied {} to the replica in {:.2} s",
                human_bytes(bytes),
                begin.elapsed().as_secs_f64()
            );
        }
        None => {
            return Err(Failure::new(path, "programs use or change it, so that its replica is not complete")
                .remedy("`weft replicate sync` copies it when they have ended")
                .code(IN_USE));
        }
    }
    Ok(())
}

impl List {
    fn run(&self, weft: &WeftFiles) -> Result<u8, Failure> {
        let catalog = match self.directories.is_empty() {
            true => Catalog::of_user()?,
            false => Catalog::of(&self.directories),
        };
        let entries = catalog.entries()?;
        let (mut views, mut code) = (Vec::new(), 0);
        if self.directories.is_empty() {
            match weft.list() {
                Ok(files) => views.extend(files.iter().map(|file| file.view(self.json))),
                // Replicas on mounted file systems need no servers.
                Err(failure) => {
                    errln!("{failure}");
                    code = failure.exit_code();
                }
            }
        }
        views.extend(entries.iter().map(Entry::view));
        if self.json {
            views.iter().for_each(|view| outln!("{}", view.json()));
            return Ok(code);
        }
        if views.is_empty() {
            outln!("no replicas");
            return Ok(code);
        }
        let mut table = Table::new(show::COLUMNS);
        views.iter().for_each(|view| table.row(view.row()));
        out!("{}", table.render());
        Ok(code)
    }
}

impl Show {
    fn run(&self, weft: &WeftFiles) -> Result<u8, Failure> {
        let view = match find(weft, &self.file)? {
            Either::Weft(file) => file.view(true),
            Either::Host(entry) => entry.view(),
        };
        match self.json {
            true => outln!("{}", view.json()),
            false => show::show(&view),
        }
        Ok(0)
    }
}

/// A file with a replica, or a replica.
enum Either {
    Weft(Box<WeftFile>),
    Host(Box<Entry>),
}

fn find(weft: &WeftFiles, file: &Path) -> Result<Either, Failure> {
    match weft.at(&file.to_string_lossy())? {
        Some(found) => {
            found.require_replica()?;
            Ok(Either::Weft(Box::new(found)))
        }
        None => Ok(Either::Host(Box::new(Catalog::find(file)?))),
    }
}

/// Runs `on_weft` or `work` on the replicas of these files, or of all, and returns the highest exit code.
fn each(
    weft: &WeftFiles,
    files: &[PathBuf],
    mut on_weft: impl FnMut(&WeftFile) -> Result<u8, Failure>,
    mut work: impl FnMut(&Entry) -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    let mut code = 0;
    let entries = match files.is_empty() {
        true => {
            let mut all: Vec<Result<Either, Failure>> = match weft.list() {
                Ok(files) => files.into_iter().map(|file| Ok(Either::Weft(Box::new(file)))).collect(),
                // Replicas on mounted file systems need no servers.
                Err(failure) => vec![Err(failure)],
            };
            let of_host = Catalog::of_user()?.entries()?;
            all.extend(of_host.into_iter().map(|entry| Ok(Either::Host(Box::new(entry)))));
            all
        }
        false => files.iter().map(|file| find(weft, file)).collect::<Vec<_>>(),
    };
    if entries.is_empty() {
        outln!("no replicas");
    }
    for entry in entries {
        let done = entry.and_then(|entry| match entry {
            Either::Weft(file) => on_weft(&file),
            Either::Host(entry) => work(&entry),
        });
        code = code.max(done.unwrap_or_else(|failure| {
            errln!("{failure}");
            failure.exit_code()
        }));
    }
    Ok(code)
}

impl Sync {
    fn run(&self, weft: &WeftFiles) -> Result<u8, Failure> {
        if self.background {
            return self.queue(weft);
        }
        let pacing = Pacing { rate: self.rate, idle: self.idle, report: self.report };
        let on_weft = |file: &WeftFile| file.bring_up_to_date(pacing);
        each(weft, &self.files, on_weft, |entry| {
            let Some(place) = entry.original() else {
                return Err(entry.without_original());
            };
            let mut progress = Progress::new(&entry.path, entry.written_bytes(), pacing);
            let origin = place.origin()?;
            let done = block_on(Usage::synchronize(entry.open()?, origin, self.force, &mut progress));
            progress.end();
            let Some(done) = done.map_err(Failure::said)? else {
                return Err(Failure::new(&entry.path, "it is in use").code(IN_USE));
            };
            if done.copied > 0 {
                outln!("{}: copied {} to the file", entry.path, human_bytes(done.copied));
            }
            if done.info.phase == Phase::Valid && done.copied > 0 {
                return Ok(0);
            }
            fill(&place, entry.open()?, &entry.path, self.rate)?;
            Ok(0)
        })
    }
}

impl Sync {
    /// Queues a job for each replica that is not valid.
    fn queue(&self, weft: &WeftFiles) -> Result<u8, Failure> {
        let jobs = RefCell::new(Vec::new());
        let on_weft = |file: &WeftFile| {
            if file.needs_synchronization()? {
                jobs.borrow_mut().push(Job::new(file.work(WeftCommand::ReplicateSync)?, self.rate));
            }
            Ok(0)
        };
        let code = each(weft, &self.files, on_weft, |entry| {
            let place = entry.original();
            let Some(file) = place.as_ref().and_then(Place::file) else {
                return Err(entry.without_original());
            };
            if entry.state() != "valid" {
                let path = bytes::text(file.as_os_str().as_bytes());
                jobs.borrow_mut().push(Job::new(Work::ReplicateSync { path }, self.rate));
            }
            Ok(0)
        })?;
        let jobs = jobs.into_inner();
        if !jobs.is_empty() {
            agent::queue_jobs(&jobs)?;
        }
        Ok(code)
    }
}

/// Removes a replica that nobody uses; `original` is the place of its file, if that exists.
fn drop_replica(place: &Place, original: Option<&Place>, id: &str, force: bool) -> Result<(), Failure> {
    let replica = match place.open(id) {
        Ok(replica) => replica,
        // A damaged one has nothing to synchronize.
        Err(_) if force => return place.remove(id),
        Err(failure) => {
            return Err(failure.remedy("--force removes it, with all bytes that its file does not have"));
        }
    };
    let origin = original.map(Place::origin).transpose()?;
    match block_on(Usage::remove(replica, origin, force)).map_err(Failure::said)? {
        true => Ok(()),
        false => Err(in_use(place, id)),
    }
}

fn in_use(place: &Place, id: &str) -> Failure {
    Failure::new(format!("{}/{id}", place.shown()), "programs use it").code(IN_USE)
}

impl Drop {
    fn run(&self, weft: &WeftFiles) -> Result<u8, Failure> {
        let on_weft = |file: &WeftFile| file.remove(self.force);
        each(weft, &self.files, on_weft, |entry| {
            let original = entry.original();
            if original.is_none() && entry.written && !self.force {
                return Err(entry.without_original());
            }
            drop_replica(&entry.place, original.as_ref(), &entry.id, self.force)?;
            outln!("{}: the replica is removed", entry.path);
            entry.place.forget_if_empty()?;
            Ok(0)
        })
    }
}

impl Verify {
    fn run(&self, weft: &WeftFiles) -> Result<u8, Failure> {
        each(weft, &self.files, WeftFile::verify, |entry| {
            let Some(place) = entry.original() else {
                return Err(entry.without_original());
            };
            if !["valid", "written"].contains(&entry.state()) {
                outln!("{}: not compared: the replica is {}", entry.path, entry.state());
                return Ok(0);
            }
            let mut progress = Progress::new(&entry.path, entry.bytes(), Pacing::default());
            let compared = block_on(Usage::verify(entry.open()?, place.origin()?, &mut progress));
            progress.end();
            let Some(difference) = compared.map_err(Failure::said)? else {
                return Err(Failure::new(&entry.path, "it is in use").code(IN_USE));
            };
            Ok(report(&entry.path, &difference))
        })
    }
}

/// Prints the result of a comparison, and returns the exit code.
fn report(path: &str, difference: &Difference) -> u8 {
    let Some(first) = difference.first else {
        outln!("{path}: {} compared, no difference", human_bytes(difference.compared));
        return 0;
    };
    let why = format!("{} bytes differ from the replica, the first at offset {first}", difference.differing);
    errln!("{}", Failure::new(path, why).remedy("`weft replicate drop` removes the replica"));
    FAILED
}
