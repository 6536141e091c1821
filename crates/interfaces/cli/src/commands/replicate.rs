//! `weft replicate`: creates, shows, synchronizes and removes replicas of files, on Weft and on mounted file systems.

mod catalog;
mod pace;
mod show;
mod weft_files;

pub use catalog::{Catalog, Entry, Place, synchronize_all};
pub use pace::RateLimit;

use super::agent::{self, Job, Work};
use super::bytes;
use crate::failure::{FAILED, Failure};
use crate::table::Table;
use clap::{Args, Subcommand};
use pace::Progress;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use weft_client::replicas::{Difference, Phase, Replica, ReplicaInfo, Usage};
use weft_core::ByteLen;
use weft_core::replicas::Mapping;
use weft_core::units::human_bytes;
use weft_env::real::{RealEnv, block_on};
use weft_files::WeftFile;
use weft_planner::replicas::{PlannedReplica, ReplicaFile};

/// Exit code if a file is in use.
const IN_USE: u8 = 3;

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
    /// Runs the command and returns the exit code.
    pub fn run(self) -> Result<u8, Failure> {
        match self.action {
            Action::Apply(apply) => apply.run(),
            Action::List(list) => list.run(),
            Action::Show(show) => show.run(),
            Action::Sync(sync) => sync.run(),
            Action::Drop(drop) => drop.run(),
            Action::Verify(verify) => verify.run(),
        }
    }
}

impl Apply {
    fn run(&self) -> Result<u8, Failure> {
        let shown = self.plan.display();
        let text = std::fs::read_to_string(&self.plan).map_err(|error| Failure::new(&shown, error))?;
        let plan = ReplicaFile::of_toml(&text).map_err(|error| {
            Failure::misuse(&shown, error)
                .remedy("`weft plan TRACE --replicas --output FILE` writes such a file")
        })?;
        if plan.replicas.is_empty() {
            outln!("{shown} has no replicas");
            return Ok(0);
        }
        let catalog = Catalog::of_user()?;
        let mut taken = 0;
        if self.budget.is_some() {
            taken += catalog.entries()?.iter().map(Entry::bytes).sum::<u64>();
            taken += weft_files::list()?.iter().map(WeftFile::bytes).sum::<u64>();
        }
        let mut code = 0;
        let mut jobs = Vec::new();
        for planned in &plan.replicas {
            match self.create(planned, &catalog, &mut taken) {
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

    /// Creates a replica and copies the file, or returns the job that copies it.
    fn create(
        &self,
        planned: &PlannedReplica,
        catalog: &Catalog,
        taken: &mut u64,
    ) -> Result<Option<Job>, Failure> {
        let path = &planned.path;
        let mapping = planned.mapping().map_err(|error| Failure::misuse(self.plan.display(), error))?;
        if let Some(file) = WeftFile::of_path(path)? {
            self.create_on_weft(planned, &file, &mapping, taken)?;
            return Ok(None);
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
            outln!("{path}: a replica of {} for {} processes", human_bytes(mapping.bytes()), planned.ranks);
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
        planned: &PlannedReplica,
        file: &WeftFile,
        mapping: &Mapping,
        taken: &mut u64,
    ) -> Result<(), Failure> {
        let bytes = mapping.replica_len();
        if self.background {
            return Err(Failure::misuse(
                file.shown(),
                "replicas of Weft's files are copied in the foreground",
            )
            .remedy("leave out --background; --rate limits the copy"));
        }
        if file.has_valid_replica() {
            if !self.replace {
                if file.mapping()? == *mapping {
                    outln!("{}: the replica is valid", file.shown());
                    return Ok(());
                }
                return Err(
                    Failure::new(file.shown(), "it has another replica").remedy("--replace removes it")
                );
            }
        } else {
            self.check_budget(file.shown(), bytes, *taken)?;
        }
        if self.dry_run {
            outln!(
                "{}: a replica of {} for {} processes",
                file.shown(),
                human_bytes(mapping.bytes()),
                planned.ranks
            );
            return Ok(());
        }
        if file.has_valid_replica() {
            file.synchronize(self.rate)?;
            file.remove(false)?;
        }
        let layout = planned.class_layout().map_err(|error| Failure::misuse(self.plan.display(), error))?;
        file.create(mapping, planned.ranks, layout, self.rate)?;
        *taken += bytes;
        say_when_it_pays(planned);
        Ok(())
    }
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
    let mut progress = Progress::new(path, replica.mapping().bytes(), rate);
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
    fn run(&self) -> Result<u8, Failure> {
        let catalog = match self.directories.is_empty() {
            true => Catalog::of_user()?,
            false => Catalog::of(&self.directories),
        };
        let entries = catalog.entries()?;
        let (mut views, mut code) = (Vec::new(), 0);
        if self.directories.is_empty() {
            match weft_files::list() {
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
    fn run(&self) -> Result<u8, Failure> {
        let view = match find(&self.file)? {
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

fn find(file: &Path) -> Result<Either, Failure> {
    match WeftFile::of_path(&file.to_string_lossy())? {
        Some(found) => {
            found.require_replica()?;
            Ok(Either::Weft(Box::new(found)))
        }
        None => Ok(Either::Host(Box::new(Catalog::find(file)?))),
    }
}

/// Runs `on_weft` or `work` on the replicas of these files, or of all, and returns the highest exit code.
fn each(
    files: &[PathBuf],
    mut on_weft: impl FnMut(&WeftFile) -> Result<u8, Failure>,
    mut work: impl FnMut(&Entry) -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    let mut code = 0;
    let entries = match files.is_empty() {
        true => {
            let mut all: Vec<Result<Either, Failure>> = match weft_files::list() {
                Ok(files) => files.into_iter().map(|file| Ok(Either::Weft(Box::new(file)))).collect(),
                // Replicas on mounted file systems need no servers.
                Err(failure) => vec![Err(failure)],
            };
            let of_host = Catalog::of_user()?.entries()?;
            all.extend(of_host.into_iter().map(|entry| Ok(Either::Host(Box::new(entry)))));
            all
        }
        false => files.iter().map(|file| find(file)).collect::<Vec<_>>(),
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
    fn run(&self) -> Result<u8, Failure> {
        if self.background {
            return self.queue();
        }
        let on_weft = |file: &WeftFile| file.bring_up_to_date(self.rate);
        each(&self.files, on_weft, |entry| {
            let Some(place) = entry.original() else {
                return Err(entry.without_original());
            };
            let mut progress = Progress::new(&entry.path, entry.written_bytes(), self.rate);
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
    fn queue(&self) -> Result<u8, Failure> {
        let mut jobs = Vec::new();
        let on_weft = |file: &WeftFile| file.bring_up_to_date(self.rate);
        let code = each(&self.files, on_weft, |entry| {
            let place = entry.original();
            let Some(file) = place.as_ref().and_then(Place::file) else {
                return Err(entry.without_original());
            };
            if entry.state() != "valid" {
                let path = bytes::text(file.as_os_str().as_bytes());
                jobs.push(Job::new(Work::ReplicateSync { path }, self.rate));
            }
            Ok(0)
        })?;
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
    fn run(&self) -> Result<u8, Failure> {
        let on_weft = |file: &WeftFile| file.remove(self.force);
        each(&self.files, on_weft, |entry| {
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
    fn run(&self) -> Result<u8, Failure> {
        each(&self.files, WeftFile::verify, |entry| {
            let Some(place) = entry.original() else {
                return Err(entry.without_original());
            };
            if !["valid", "written"].contains(&entry.state()) {
                outln!("{}: not compared: the replica is {}", entry.path, entry.state());
                return Ok(0);
            }
            let mut progress = Progress::new(&entry.path, entry.bytes(), None);
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
