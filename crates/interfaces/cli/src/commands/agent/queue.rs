//! The durable queue of the agent: one file for each job.
//!
//! A job is added, changed or removed under a lock. Its file is written under a temporary name, synced, renamed, and the
//! directory is synced. So a crash leaves the old file, the new one, or none; a job that was added survives.

use super::job::{JOB_FILE_LEN_MAX, Job, JobId};
use crate::failure::Failure;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Maximum number of jobs in the queue.
pub const JOBS_MAX: usize = 10_000;
/// Ending of temporary files.
const TEMPORARY: &str = ".tmp";

/// The queue of a user.
pub struct Queue {
    /// Directory of the agent.
    dir: PathBuf,
}

/// A file in the queue that is no job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damaged {
    /// Path of the file.
    pub path: PathBuf,
    /// Reason.
    pub why: String,
}

/// The files of the queue.
#[derive(Default)]
pub struct Listing {
    /// Jobs, by number.
    pub jobs: Vec<(JobId, Job)>,
    /// Files that are no jobs.
    pub damaged: Vec<Damaged>,
}

/// The lock of the queue. Released when it is dropped.
pub struct QueueLock {
    file: File,
}

impl Queue {
    /// Returns the queue of this user, which may not exist yet.
    ///
    /// # Errors
    /// Without a home directory.
    pub fn of_user() -> Result<Self, Failure> {
        // The list of replicas lies in the directory of the user's state.
        let list = weft_config::replicas::replica_list();
        let state = list.as_deref().and_then(Path::parent).ok_or_else(|| {
            Failure::misuse("HOME", "without a home directory, the queue of the agent has no place")
                .remedy("set HOME")
        })?;
        Ok(Self::at(state.join("agent")))
    }

    fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Directory of the agent.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn folder(&self) -> PathBuf {
        self.dir.join("queue")
    }

    /// Folder of damaged files.
    pub fn damaged_folder(&self) -> PathBuf {
        self.dir.join("damaged")
    }

    /// Path of the file that exists after `weft agent stop`, until an agent begins.
    fn stopped_file(&self) -> PathBuf {
        self.dir.join("stopped")
    }

    /// Whether the user has stopped the agent.
    pub fn is_stopped(&self) -> bool {
        self.stopped_file().exists()
    }

    /// Records that the user has stopped the agent, or that an agent begins. A queue that does not exist stays so.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn set_stopped(&self, is_stopped: bool) -> Result<(), Failure> {
        let path = self.stopped_file();
        let changed = match is_stopped {
            true => File::create(&path).map(drop),
            false => std::fs::remove_file(&path),
        };
        match changed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Failure::new(path.display(), error)),
            _ => Ok(()),
        }
    }

    fn path(&self, id: JobId) -> PathBuf {
        self.folder().join(format!("{id}.toml"))
    }

    /// Creates the directories of the queue, which only the user can read.
    ///
    /// # Errors
    /// Errors of the file system; directories that other users may write.
    pub fn create(&self) -> Result<(), Failure> {
        for dir in [self.folder(), self.damaged_folder()] {
            let missing: Vec<&Path> = dir.ancestors().take_while(|dir| !dir.exists()).collect();
            let create = || {
                DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
                // The first job must not be lost with its directory.
                missing.iter().filter_map(|dir| dir.parent()).try_for_each(|dir| self.sync(dir))
            };
            create().map_err(|error| Failure::new(dir.display(), error))?;
            // Jobs of other users would run with the rights of this one.
            weft_config::check_private_dir(&dir)?;
        }
        Ok(weft_config::check_private_dir(&self.dir)?)
    }

    /// Locks the queue. Nobody else adds, changes or removes a job meanwhile.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn lock(&self) -> Result<QueueLock, Failure> {
        self.create()?;
        let path = self.dir.join("numbers");
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = opened.and_then(|file| file.lock().map(|()| file));
        Ok(QueueLock { file: file.map_err(|error| Failure::new(path.display(), error))? })
    }

    /// Adds jobs and returns their numbers. A job with the same work is replaced under its number: its failed attempts are
    /// forgotten, and if the agent is doing it, the agent repeats it.
    ///
    /// # Errors
    /// Errors of the file system; a full queue. Jobs before the one that failed are in the queue.
    pub fn add(&self, new: &[Job]) -> Result<Vec<JobId>, Failure> {
        let mut lock = self.lock()?;
        let mut jobs = self.list()?.jobs;
        let mut ids = Vec::new();
        for job in new {
            if let Some((id, known)) = jobs.iter_mut().find(|(_, known)| known.work == job.work) {
                *known = Job { requests: known.requests.wrapping_add(1), ..job.clone() };
                self.write(*id, known)?;
                ids.push(*id);
                continue;
            }
            if jobs.len() >= JOBS_MAX {
                return Err(Failure::new(self.folder().display(), format!("the queue has {JOBS_MAX} jobs"))
                    .remedy("wait until the agent has done some, or remove some with `weft agent cancel`"));
            }
            let id = lock.next(jobs.iter().map(|(id, _)| *id).max());
            let id = id.map_err(|error| Failure::new(self.dir.display(), error))?;
            self.write(id, job)?;
            jobs.push((id, job.clone()));
            ids.push(id);
        }
        Ok(ids)
    }

    /// Returns all jobs.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn list(&self) -> Result<Listing, Failure> {
        let folder = self.folder();
        let failed = |error: io::Error| Failure::new(folder.display(), error);
        let mut listing = Listing::default();
        let entries = match std::fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(listing),
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.ends_with(TEMPORARY) {
                continue;
            }
            match read(&path, &name) {
                Ok(Some(job)) => listing.jobs.push(job),
                Ok(None) => {}
                Err(why) => listing.damaged.push(Damaged { path, why }),
            }
        }
        listing.jobs.sort_unstable_by_key(|(id, _)| *id);
        listing.damaged.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        Ok(listing)
    }

    /// Whether a job is in the queue.
    pub fn contains(&self, id: JobId) -> bool {
        self.path(id).exists()
    }

    /// Changes a job. Returns the changed job; `None` if it was removed.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn change(&self, id: JobId, change: impl FnOnce(&mut Job)) -> Result<Option<Job>, Failure> {
        let _lock = self.lock()?;
        let path = self.path(id);
        let found = read(&path, &format!("{id}.toml")).map_err(|why| Failure::new(path.display(), why))?;
        let Some((_, mut job)) = found else { return Ok(None) };
        change(&mut job);
        self.write(id, &job)?;
        Ok(Some(job))
    }

    /// Removes a job. Returns whether it was there.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn remove(&self, id: JobId) -> Result<bool, Failure> {
        let _lock = self.lock()?;
        self.remove_locked(id)
    }

    /// Removes a job that is done, unless its work was requested again since it was read as `done`.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn finish(&self, id: JobId, done: &Job) -> Result<(), Failure> {
        let _lock = self.lock()?;
        match read(&self.path(id), &format!("{id}.toml")) {
            Ok(Some((_, now))) if now.requests != done.requests => Ok(()),
            _ => self.remove_locked(id).map(drop),
        }
    }

    /// Removes a job. The caller holds the lock.
    fn remove_locked(&self, id: JobId) -> Result<bool, Failure> {
        let path = self.path(id);
        match std::fs::remove_file(&path).and_then(|()| self.sync(&self.folder())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => removed.map(|()| true).map_err(|error| Failure::new(path.display(), error)),
        }
    }

    /// Moves a damaged file out of the queue, to the folder of damaged files. Returns its new path.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn set_aside(&self, damaged: &Damaged) -> Result<PathBuf, Failure> {
        let _lock = self.lock()?;
        let folder = self.damaged_folder();
        let to = folder.join(damaged.path.file_name().unwrap_or_default());
        let moved = std::fs::rename(&damaged.path, &to);
        moved
            .and_then(|()| self.sync(&folder))
            .and_then(|()| self.sync(&self.folder()))
            .map_err(|error| Failure::new(damaged.path.display(), error))?;
        Ok(to)
    }

    /// Returns the damaged files that were moved out of the queue, with the reason.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn set_aside_files(&self) -> Result<Vec<Damaged>, Failure> {
        let folder = self.damaged_folder();
        let entries = match std::fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|error| Failure::new(folder.display(), error))?,
        };
        let mut files: Vec<Damaged> = entries
            .flatten()
            .map(|entry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                let why = read(&entry.path(), &name).err();
                Damaged { path: entry.path(), why: why.unwrap_or_else(|| "it was damaged before".to_owned()) }
            })
            .collect();
        files.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        Ok(files)
    }

    /// Removes temporary files that killed processes have left.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn clean(&self) -> Result<(), Failure> {
        // Temporary files are used only under the lock.
        let _lock = self.lock()?;
        for entry in std::fs::read_dir(self.folder()).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().ends_with(TEMPORARY) {
                std::fs::remove_file(entry.path())
                    .map_err(|error| Failure::new(entry.path().display(), error))?;
            }
        }
        Ok(())
    }

    /// Writes the file of a job. The caller holds the lock.
    fn write(&self, id: JobId, job: &Job) -> Result<(), Failure> {
        let (path, temporary) = (self.path(id), self.folder().join(format!("{id}{TEMPORARY}")));
        let write = || {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
            file.write_all(job.to_toml().as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&temporary, &path)?;
            self.sync(&self.folder())
        };
        write().map_err(|error| Failure::new(path.display(), error))
    }

    fn sync(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }
}

impl QueueLock {
    /// Returns a number greater than all numbers so far.
    fn next(&mut self, last: Option<JobId>) -> io::Result<JobId> {
        let mut text = String::new();
        // After damage, numbers begin after that of the last job.
        let _ = self.file.read_to_string(&mut text);
        let counted = text.trim().parse().unwrap_or(0);
        let next = last.map_or(0, |last| last.0).max(counted) + 1;
        self.file.rewind()?;
        self.file.set_len(0)?;
        self.file.write_all(format!("{next}\n").as_bytes())?;
        Ok(JobId(next))
    }
}

/// Reads a file of the queue. Returns `None` if it was removed, and why it is no job.
fn read(path: &Path, name: &str) -> Result<Option<(JobId, Job)>, String> {
    let said = |error: io::Error| crate::failure::without_numbers(&error.to_string());
    let number = name.strip_suffix(".toml").and_then(|number| number.parse::<u64>().ok());
    let id = number.filter(|id| format!("{id}.toml") == name).map(JobId);
    let id = id.ok_or_else(|| "its name is not NUMBER.toml".to_owned())?;
    match path.symlink_metadata() {
        Ok(meta) if meta.is_file() => {}
        Ok(_) => return Err("it is not a regular file".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(said(error)),
    }
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(said)?,
    };
    let mut text = String::new();
    file.take(JOB_FILE_LEN_MAX + 1).read_to_string(&mut text).map_err(said)?;
    if text.len() as u64 > JOB_FILE_LEN_MAX {
        return Err(format!("it is longer than {JOB_FILE_LEN_MAX} bytes"));
    }
    Job::of_toml(&text).map(|job| Some((id, job)))
}

#[cfg(test)]
mod tests {
    use super::super::job::Work;
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn queue() -> (tempfile::TempDir, Queue) {
        let dir = tempfile::tempdir().expect("a directory");
        let queue = Queue::at(dir.path().join("agent"));
        (dir, queue)
    }

    fn add(queue: &Queue, job: Job) -> JobId {
        queue.add(&[job]).unwrap_or_else(|failure| panic!("{failure}"))[0]
    }

    fn fill(path: &str) -> Job {
        Job::new(Work::ReplicateFill { path: path.to_owned() }, None)
    }

    #[test]
    fn jobs_are_kept_in_order_and_numbers_are_not_used_again() {
        let (_dir, queue) = queue();
        assert!(queue.list().expect("no queue").jobs.is_empty());
        let ids: Vec<u64> = (0..12).map(|n| add(&queue, fill(&format!("/f{n}"))).0).collect();
        assert_eq!(ids, (1..=12).collect::<Vec<_>>());
        let listed = queue.list().expect("a queue").jobs;
        assert_eq!(listed.iter().map(|(id, _)| id.0).collect::<Vec<_>>(), ids);
        for id in ids {
            assert!(queue.remove(JobId(id)).expect("removed"));
            assert!(!queue.remove(JobId(id)).expect("removed before"));
        }
        assert_eq!(add(&queue, fill("/f")), JobId(13));
        std::fs::write(queue.dir.join("numbers"), "\u{0}").expect("damaged");
        assert_eq!(add(&queue, fill("/g")), JobId(14));
    }

    #[test]
    fn the_same_work_is_queued_once_and_tried_again() {
        let (_dir, queue) = queue();
        let id = add(&queue, fill("/f"));
        let changed = queue.change(id, |job| {
            job.attempts = 5;
            job.set_error("gone");
        });
        assert!(changed.expect("changed").expect("there").has_failed());
        assert_eq!(add(&queue, fill("/f")), id);
        let again = Job { requests: 2, ..fill("/f") };
        assert_eq!(queue.list().expect("a queue").jobs, [(id, again.clone())]);
        queue.finish(id, &fill("/f")).expect("requested again since");
        assert!(queue.contains(id));
        queue.finish(id, &again).expect("done");
        assert!(!queue.contains(id));
        assert_eq!(queue.change(JobId(9), Job::reset).expect("no such job"), None);
    }

    #[test]
    fn a_stop_is_remembered_until_an_agent_begins() {
        let (_dir, queue) = queue();
        queue.set_stopped(true).expect("no queue, which nobody has to be kept from");
        assert!(!queue.is_stopped() && !queue.dir.exists());
        add(&queue, fill("/f"));
        queue.set_stopped(true).expect("recorded");
        queue.set_stopped(true).expect("again");
        assert!(queue.is_stopped());
        queue.set_stopped(false).expect("forgotten");
        queue.set_stopped(false).expect("again");
        assert!(!queue.is_stopped());
    }

    #[test]
    fn damaged_files_are_set_aside_and_temporary_ones_removed() {
        let (_dir, queue) = queue();
        let id = add(&queue, fill("/f"));
        let at = |name: &str| queue.folder().join(name);
        std::fs::write(at("7.toml"), "version = 1\nkind").expect("written");
        std::fs::write(at("8.toml"), [0xff; 20]).expect("written");
        std::fs::write(at("9.toml"), " ".repeat(JOB_FILE_LEN_MAX as usize + 1)).expect("written");
        std::fs::write(at("01.toml"), fill("/f").to_toml()).expect("written");
        std::fs::create_dir(at("10.toml")).expect("made");
        std::fs::write(at("11.tmp"), "").expect("written");
        let listing = queue.list().expect("a queue");
        assert_eq!(listing.jobs, [(id, fill("/f"))]);
        let names = listing.damaged.iter().map(|one| one.path.file_name().expect("a name"));
        assert_eq!(names.collect::<Vec<_>>(), ["01.toml", "10.toml", "7.toml", "8.toml", "9.toml"]);
        for damaged in &listing.damaged {
            assert!(queue.set_aside(damaged).expect("moved").exists());
        }
        queue.clean().expect("cleaned");
        assert!(!at("11.tmp").exists());
        let listing = queue.list().expect("a queue");
        assert_eq!((listing.jobs.len(), listing.damaged.len()), (1, 0));
    }

    #[test]
    fn a_queue_that_others_may_write_is_refused() {
        let (_dir, queue) = queue();
        add(&queue, fill("/f"));
        let mode = |mode| std::fs::set_permissions(queue.folder(), std::fs::Permissions::from_mode(mode));
        mode(0o770).expect("set");
        let failure = queue.add(&[fill("/g")]).expect_err("others could add jobs").to_string();
        assert!(failure.contains("queue") && failure.contains("chmod go-w"), "{failure}");
        mode(0o700).expect("set");
        assert_eq!(queue.list().expect("a queue").jobs.len(), 1);
    }
}
