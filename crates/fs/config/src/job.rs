//! The job directory: where the I/O delegates of a job and its processes find each other.
//!
//! | file | contents |
//! | --- | --- |
//! | `job.toml` | name of the job, delegates with addresses, directories served through them |
//! | `job.key` | secret of the job, which proves both ends of a network connection |
//!
//! ```toml
//! name = "job-6f1d2c33a0b4"
//! over = ["/mnt/lustre/me"]
//!
//! [[delegate]]
//! address = ["unix:/run/user/1000/weft/job-7/d0.sock", "tcp:node1:40123"]
//! ```
//!
//! The directory has mode 0700. `job.toml` appears by a rename, when all delegates serve.

use crate::embedded::quoted;
use crate::error::ConfigError;
use crate::find::variable;
use crate::key::{ClusterKey, Key, KeyError, read_key};
use crate::section::{Section, Source};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use toml::de::DeTable;
use weft_client::{ClientOptions, Credentials, Delegates, JobMap, Key as ClientKey, RankOf};
use weft_env::{Address, Env};
use weft_wire::ClusterSecret;
use weft_wire::cluster::ServerEntry;
use weft_wire::hello::JobNumber;
use weft_wire::keys::MacUse;

/// Environment variable with the job directory, or with the delegates' addresses.
pub const DELEGATES_VARIABLE: &str = "WEFT_DELEGATES";
/// Environment variable with the key file of a job whose delegates are named by their addresses.
pub const DELEGATE_KEY_VARIABLE: &str = "WEFT_DELEGATE_KEY";
/// Environment variable with the directories served through delegates, separated by colons.
pub const OVER_VARIABLE: &str = "WEFT_OVER";
/// Pairs of environment variables in which launchers pass rank and number of ranks to a process.
const RANK_VARIABLES: [(&str, &str); 6] = [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("PALS_RANKID", "PALS_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("PMIX_RANK", "PMIX_SIZE"),
];
/// Name of the file with the delegates.
pub const JOB_FILE: &str = "job.toml";
/// Name of the file with the secret.
pub const JOB_KEY: &str = "job.key";
/// Maximum number of delegates of a job.
pub const DELEGATES_MAX: usize = 4096;

/// Time that a program waits for delegates that are started with it.
pub const WAIT: Duration = Duration::from_secs(30);
/// Interval between two looks for `job.toml`.
const WAIT_POLL: Duration = Duration::from_millis(5);

const REMEDY: &str = "start delegates with `weft run --delegates N` or `weft delegate --job DIR`";

/// Reason why a process cannot join the delegates of its job.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The job cannot be read.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The key of the job cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The delegates do not answer.
    #[error(transparent)]
    Delegates(#[from] weft_client::Error),
}

/// Delegates of a job, as its processes find them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// Name, which every greeting contains.
    pub name: String,
    /// Delegates, by index. The name of delegate 3 is `delegate 3`.
    pub delegates: Vec<ServerEntry>,
    /// Absolute directories served through the delegates under their own paths. The order counts: it decides the
    /// numbers of files.
    pub over: Vec<PathBuf>,
    /// File with the secret of the job.
    pub key_file: PathBuf,
}

impl Job {
    /// Creates a job whose files are in `dir`.
    pub fn new(dir: &Path, name: String, addresses: Vec<Vec<Address>>, over: Vec<PathBuf>) -> Self {
        Self { name, delegates: entries(addresses), over, key_file: dir.join(JOB_KEY) }
    }

    /// Reads the job directory `dir`.
    ///
    /// # Errors
    /// Another user may change the directory, or `job.toml` is missing or invalid.
    pub fn load(dir: &Path) -> Result<Self, ConfigError> {
        check_job_dir(dir)?;
        let file = dir.join(JOB_FILE);
        let text = std::fs::read_to_string(&file)
            .map_err(|error| ConfigError::whole(&file, format!("the job cannot be read: {error}"), REMEDY))?;
        Self::parse(&file, &text)
    }

    /// Reads the job directory `dir`, and first waits until its delegates serve.
    ///
    /// # Errors
    /// See [`Job::load`]; the delegates do not serve within `limit`.
    pub fn wait(dir: &Path, limit: Duration) -> Result<Self, ConfigError> {
        let began = Instant::now();
        while check_job_dir(dir).is_ok() && !dir.join(JOB_FILE).exists() {
            if began.elapsed() >= limit {
                let problem = format!("the delegates have not all come within {} s", limit.as_secs());
                return Err(ConfigError::whole(dir, problem, REMEDY));
            }
            std::thread::sleep(WAIT_POLL);
        }
        Self::load(dir)
    }

    /// Parses `text` as the contents of `file`.
    ///
    /// # Errors
    /// The first problem, with its position and the remedy.
    pub fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        let source = Source { file, text };
        let table = DeTable::parse(text).map_err(|error| {
            let problem = format!("this is not TOML: {}", error.message());
            source.refuse(error.span().unwrap_or(0..0), problem, REMEDY)
        })?;
        let root = Section::new(source, "the file", 0..0, table.get_ref());
        let name =
            root.text("name", "job-1")?.ok_or_else(|| root.missing("name", "write name = \"job-1\""))?;
        let over = root.list::<Directory>("over", "[\"/mnt/lustre/me\"]")?;
        let sections = root.tables("delegate", "[[delegate]]")?;
        if sections.is_empty() || sections.len() > DELEGATES_MAX {
            let problem = format!("a job has 1 to {DELEGATES_MAX} delegates, not {}", sections.len());
            return Err(ConfigError::whole(file, problem, REMEDY));
        }
        let mut addresses = Vec::new();
        for section in sections {
            let found = section.list::<Address>("address", "\"tcp:node1:40123\"")?;
            if found.is_empty() {
                return Err(section.missing("address", "write address = \"tcp:node1:40123\""));
            }
            addresses.push(found.into_iter().map(|item| item.value).collect());
            section.finish()?;
        }
        root.finish()?;
        Ok(Self {
            name: name.value,
            delegates: entries(addresses),
            over: over.into_iter().map(|item| item.value.0).collect(),
            key_file: file.with_file_name(JOB_KEY),
        })
    }

    /// Returns the contents of `job.toml`.
    ///
    /// # Errors
    /// The name of a directory is not UTF-8.
    pub fn to_text(&self) -> Result<String, ConfigError> {
        let over = self.over.iter().map(|dir| {
            let text = dir.to_str().ok_or_else(|| {
                ConfigError::whole(dir, "its name is not UTF-8, which job.toml requires", "rename it")
            })?;
            Ok(quoted(text))
        });
        let over = over.collect::<Result<Vec<_>, ConfigError>>()?;
        let mut out = format!("name = {}\nover = [{}]\n", quoted(&self.name), over.join(", "));
        for delegate in &self.delegates {
            let addresses: Vec<_> =
                delegate.addresses.iter().map(|address| quoted(&address.to_string())).collect();
            // Writing to a String succeeds.
            let _ = write!(out, "\n[[delegate]]\naddress = [{}]\n", addresses.join(", "));
        }
        Ok(out)
    }

    /// Writes `job.toml` in the job directory. A reader sees the complete file or none.
    ///
    /// # Errors
    /// The directory is not private, or cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), ConfigError> {
        check_job_dir(dir)?;
        replace(&dir.join(JOB_FILE), self.to_text()?.as_bytes())
    }

    /// Returns the job that `WEFT_DELEGATES` names; `None` if it is not set. The variable contains a job directory, or
    /// addresses such as `node1:40123,node2:40123`; the key of the latter is in the file that `WEFT_DELEGATE_KEY` names.
    /// Directories of `WEFT_OVER` count for a job that has none.
    ///
    /// # Errors
    /// A variable, the directory, the file or the key is invalid.
    pub fn from_env() -> Result<Option<Self>, ConfigError> {
        let Some(value) = variable(DELEGATES_VARIABLE) else { return Ok(None) };
        let mut job = match Place::parse(&value)? {
            Place::Directory(dir) => Self::wait(&dir, WAIT)?,
            Place::Addresses(addresses) => {
                let key_file = variable(DELEGATE_KEY_VARIABLE).map(PathBuf::from).ok_or_else(|| {
                    ConfigError::whole(
                        Path::new(DELEGATES_VARIABLE),
                        "it contains addresses, but WEFT_DELEGATE_KEY is not set",
                        format!("set WEFT_DELEGATE_KEY to a copy of the job's {JOB_KEY}"),
                    )
                })?;
                let name = job_name(&secret(&key_file).map_err(|error| of_key(&key_file, &error))?);
                let delegates = entries(addresses.into_iter().map(|address| vec![address]).collect());
                Self { name, delegates, over: Vec::new(), key_file }
            }
        };
        if job.over.is_empty() {
            job.over = over_from_env()?;
        }
        Ok(Some(job))
    }

    /// Returns the number of the job, for [`ClientOptions::job`].
    pub fn number(&self) -> JobNumber {
        JobNumber::of_name(&self.name)
    }

    /// Joins the delegates of the job, as the rank that a launcher has given to this process.
    ///
    /// # Errors
    /// The key cannot be used, or no delegate answers.
    pub async fn join<E: Env>(&self, env: E) -> Result<Delegates<E>, JoinError> {
        let options = ClientOptions { pid: std::process::id(), ..ClientOptions::default() };
        Ok(Delegates::join(env, self.map(), options, self.credentials()?, rank_from_env()).await?)
    }

    /// Returns name and delegates. A delegate whose socket does not exist on this host is on another one: it has only its
    /// network addresses here.
    pub fn map(&self) -> JobMap {
        let here = |delegate: &ServerEntry| {
            let is_here = |address: &&Address| !matches!(address, Address::Unix(path) if !path.exists());
            let addresses: Vec<_> = delegate.addresses.iter().filter(is_here).cloned().collect();
            match addresses.is_empty() {
                true => delegate.clone(),
                false => ServerEntry { name: delegate.name.clone(), addresses },
            }
        };
        JobMap { name: self.name.clone(), delegates: self.delegates.iter().map(here).collect() }
    }

    /// Returns the secret of the job.
    ///
    /// # Errors
    /// The file cannot be read, or other users may read it.
    pub fn secret(&self) -> Result<ClusterSecret, KeyError> {
        secret(&self.key_file)
    }

    /// Returns the identity of this process and the secret that proves it to delegates of other hosts.
    ///
    /// # Errors
    /// The key cannot be used, and a delegate is reachable only over the network.
    pub fn credentials(&self) -> Result<Credentials, KeyError> {
        let own = crate::client::own_identity();
        match self.secret() {
            Ok(secret) => Ok(own.with_key(ClientKey::Cluster(Box::new(secret)))),
            Err(_) if !self.needs_key() => Ok(own),
            Err(error) => Err(error),
        }
    }

    fn needs_key(&self) -> bool {
        let has_socket = |delegate: &ServerEntry| {
            delegate.addresses.iter().any(|address| matches!(address, Address::Unix(path) if path.exists()))
        };
        !self.delegates.iter().all(has_socket)
    }
}

/// Returns the rank of this process and the number of ranks, if a launcher has set them.
fn rank_from_env() -> Option<RankOf> {
    let number = |name| variable(name)?.to_str()?.trim().parse().ok();
    RANK_VARIABLES
        .iter()
        .filter_map(|(rank, ranks)| Some(RankOf { rank: number(rank)?, ranks: number(ranks)? }))
        .find(|of| of.rank < of.ranks)
}

/// Contents of `WEFT_DELEGATES`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// A job directory.
    Directory(PathBuf),
    /// Addresses of the delegates, by index.
    Addresses(Vec<Address>),
}

impl Place {
    /// Parses the variable's value.
    ///
    /// # Errors
    /// The value is neither an absolute path nor a list of addresses.
    pub fn parse(value: &OsStr) -> Result<Self, ConfigError> {
        if value.as_bytes().starts_with(b"/") {
            return Ok(Self::Directory(PathBuf::from(value)));
        }
        let shown = value.to_string_lossy();
        let addresses: Result<Vec<Address>, _> =
            shown.split(',').map(|part| format!("tcp:{}", part.trim()).parse()).collect();
        match addresses {
            Ok(addresses) if addresses.len() <= DELEGATES_MAX => Ok(Self::Addresses(addresses)),
            _ => Err(ConfigError::whole(
                Path::new(DELEGATES_VARIABLE),
                format!("{shown:?} is neither a job directory nor a list of addresses"),
                "write an absolute path, or node1:40123,node2:40123",
            )),
        }
    }
}

/// Creates the secret of a job in its directory, unless there is one.
///
/// # Errors
/// The file cannot be written, or an existing one cannot be used.
pub fn make_job_key(dir: &Path) -> Result<ClusterSecret, KeyError> {
    let file = dir.join(JOB_KEY);
    if !file.exists() {
        let remedy = "choose another job directory";
        let io = |source| KeyError::Io { path: file.clone(), source, remedy };
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let key = Key::Cluster(ClusterKey::make(now.as_secs()).map_err(io)?);
        // A complete file gets the name, so that a concurrent delegate never reads half of it; the first one wins.
        let draft = draft_of(&file);
        key.write_new(&draft)?;
        let linked = std::fs::hard_link(&draft, &file);
        let _ = std::fs::remove_file(&draft); // a leftover is harmless
        match linked {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(io(error)),
            _ => {}
        }
    }
    secret(&file)
}

/// Returns the name of the job that has this secret. It does not reveal the secret.
pub fn job_name(secret: &ClusterSecret) -> String {
    let mac = secret.mac(MacUse::Capability, b"name of the job");
    mac[..6].iter().fold("job-".to_owned(), |mut name, byte| {
        let _ = write!(name, "{byte:02x}"); // writing to a String succeeds
        name
    })
}

/// Rejects a job directory that another user owns or can enter: files in it would lead the job's processes to a
/// server of that user.
///
/// # Errors
/// An error with owner or mode, and the remedy.
pub fn check_job_dir(dir: &Path) -> Result<(), ConfigError> {
    let refuse = |problem: String, remedy: &str| Err(ConfigError::whole(dir, problem, remedy));
    let meta = match std::fs::metadata(dir) {
        Ok(meta) => meta,
        Err(error) => return refuse(format!("the job directory cannot be used: {error}"), REMEDY),
    };
    if !meta.is_dir() {
        return refuse("it is not a directory".into(), "name a job directory");
    }
    crate::check_private_dir(dir)?;
    // SAFETY: geteuid has no preconditions and cannot fail.
    if meta.uid() != unsafe { libc::geteuid() } {
        return refuse(
            format!("it belongs to user {}", meta.uid()),
            "a job directory belongs to the job's user",
        );
    }
    if meta.mode() & 0o077 != 0 {
        let problem = format!("other users can enter it (mode {:o})", meta.mode() & 0o7777);
        return refuse(problem, &format!("run: chmod 700 {}", dir.display()));
    }
    Ok(())
}

/// Replaces a file of a job directory. A reader sees the complete old or new file.
///
/// # Errors
/// The file cannot be written.
pub fn replace(file: &Path, bytes: &[u8]) -> Result<(), ConfigError> {
    let draft = draft_of(file);
    let written = (|| {
        let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        out.write_all(bytes)?;
        // Processes on other hosts read the file through a shared file system.
        out.sync_all()?;
        std::fs::rename(&draft, file)?;
        File::open(file.parent().unwrap_or(Path::new("/")))?.sync_all()
    })();
    written.map_err(|error: std::io::Error| {
        let _ = std::fs::remove_file(&draft); // it may not exist
        ConfigError::whole(file, format!("it cannot be written: {error}"), "choose another job directory")
    })
}

/// Returns a name for a temporary file. Process ids repeat on other hosts of a shared file system; the time makes a
/// collision unlikely, and creation of an existing name fails.
fn draft_of(file: &Path) -> PathBuf {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new-{}-{}", std::process::id(), now.as_nanos()));
    file.with_file_name(name)
}

fn secret(file: &Path) -> Result<ClusterSecret, KeyError> {
    match read_key(file)? {
        Key::Cluster(key) => Ok(key.secret()),
        Key::Issued(_) => Err(KeyError::Malformed { path: file.to_owned() }),
    }
}

fn of_key(file: &Path, error: &KeyError) -> ConfigError {
    ConfigError::whole(file, error.to_string(), format!("{DELEGATE_KEY_VARIABLE} names a copy of {JOB_KEY}"))
}

fn entries(addresses: Vec<Vec<Address>>) -> Vec<ServerEntry> {
    let named = addresses.into_iter().enumerate();
    named.map(|(index, addresses)| ServerEntry { name: format!("delegate {index}"), addresses }).collect()
}

/// Returns the directories of `WEFT_OVER`.
///
/// # Errors
/// A path is not an absolute path without `..`.
pub fn over_from_env() -> Result<Vec<PathBuf>, ConfigError> {
    let Some(value) = variable(OVER_VARIABLE) else { return Ok(Vec::new()) };
    let parts = value.as_bytes().split(|byte| *byte == b':').filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let dir = PathBuf::from(OsStr::from_bytes(part));
            check_directory(&dir)
                .map_err(|remedy| {
                    let problem = format!("{} cannot be used", dir.display());
                    ConfigError::whole(Path::new(OVER_VARIABLE), problem, remedy)
                })
                .map(|()| dir)
        })
        .collect()
}

fn check_directory(dir: &Path) -> Result<(), &'static str> {
    if !dir.is_absolute() {
        return Err("write an absolute path");
    }
    if dir.components().any(|part| part == std::path::Component::ParentDir) {
        return Err("write the path without ..");
    }
    Ok(())
}

/// Directory in `over`.
struct Directory(PathBuf);

impl std::str::FromStr for Directory {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let dir = PathBuf::from(text);
        check_directory(&dir).map(|()| Self(dir))
    }
}

#[cfg(test)]
mod tests;
