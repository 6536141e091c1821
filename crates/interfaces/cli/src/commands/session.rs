//! A command's connection to the cluster: cluster file, credentials and error messages.

use super::bytes;
use crate::embedded;
use crate::failure::Failure;
use std::collections::BTreeMap;
use std::path::PathBuf;
use weft_client::{Client, ClientOptions, Error, LastKnown};
use weft_config::Cluster;
use weft_core::Nanos;
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{Attr, Entry, FileType, InodePath};

/// Number of entries per request.
const PAGE: u32 = 1000;
/// Maximum number of symbolic links followed, the limit of Linux.
const LINKS_MAX: usize = 40;

/// A cluster and a client of it.
pub struct Weft {
    /// The cluster as its file describes it.
    pub cluster: Cluster,
    /// The client.
    pub client: Client<RealEnv>,
}

/// Loads the cluster file that applies.
pub fn load(file: Option<PathBuf>) -> Result<Cluster, Failure> {
    Ok(match file {
        Some(file) => Cluster::load(&file)?,
        None => Cluster::from_env()?,
    })
}

/// Loads the cluster file that applies. If none is configured, creates and starts the embedded cluster as needed.
pub fn load_or_start(file: Option<PathBuf>) -> Result<Cluster, Failure> {
    match file.or_else(Cluster::configured) {
        Some(file) => Ok(Cluster::load(&file)?),
        None => embedded::ensure(&embedded::state_dir(None)?, false, None),
    }
}

impl Weft {
    /// Loads the cluster file that applies and starts servers of an embedded cluster that do not run. The client's own
    /// messages about unreachable servers are suppressed, because the command's errors include them.
    pub fn open(file: Option<PathBuf>) -> Result<Self, Failure> {
        Self::reach(load(file)?)
    }

    /// Like [`Weft::open`], for a cluster file that is already loaded.
    pub fn reach(cluster: Cluster) -> Result<Self, Failure> {
        embedded::revive(&cluster)?;
        weft_client::set_log(|_| ());
        Ok(Self::of(cluster, |_| ())?.complete())
    }

    /// Like [`Weft::open`], for a command that transfers much data: it waits for servers as long as programs do, and says so.
    /// A cluster that does not answer at the start is an error as for all commands.
    pub fn open_for_transfer(file: Option<PathBuf>) -> Result<Self, Failure> {
        Self::reach_for_transfer(load(file)?)
    }

    /// Like [`Weft::open_for_transfer`], for a cluster file that is already loaded.
    pub fn reach_for_transfer(cluster: Cluster) -> Result<Self, Failure> {
        embedded::revive(&cluster)?;
        weft_client::set_log(|_| ());
        let mut weft = Self::of_program(cluster, |_| ())?;
        let map = block_on(weft.client.fetch_map()).map_err(|error| Failure::said(why(&error)))?;
        weft.cluster.complete(&map);
        // The command's error includes the reason for which a request fails.
        weft_client::set_log(|line| {
            if weft_client::is_about_waiting(line) || weft_client::is_end_of_outage(line) {
                errln!("weft: {line}");
            }
        });
        Ok(weft)
    }

    /// Completes the description of the cluster by what the metadata server knows. Without its answer, that of the cluster
    /// file remains.
    #[must_use]
    pub fn complete(mut self) -> Self {
        if let Ok(map) = block_on(self.client.fetch_map()) {
            self.cluster.complete(&map);
        }
        self
    }

    /// Creates a client for a mount. With `pages`, its opens ask whether the kernel may cache pages. Starts servers of
    /// an embedded cluster that do not run.
    pub fn for_mount(cluster: Cluster, pages: bool) -> Result<Self, Failure> {
        embedded::revive(&cluster)?;
        Self::of_program(cluster, |options| options.kernel_cache = pages)
    }

    /// Creates a client of `cluster` with changed options. It connects at its first use.
    pub fn of(cluster: Cluster, change: impl Fn(&mut ClientOptions)) -> Result<Self, Failure> {
        let options = cluster.command_options();
        Self::with(cluster, options, change)
    }

    /// Creates a client like [`Weft::of`] that waits for servers as long as the clients of programs do.
    pub fn of_program(cluster: Cluster, change: impl Fn(&mut ClientOptions)) -> Result<Self, Failure> {
        let options = cluster.client_options();
        Self::with(cluster, options, change)
    }

    fn with(
        cluster: Cluster,
        mut options: ClientOptions,
        change: impl Fn(&mut ClientOptions),
    ) -> Result<Self, Failure> {
        let credentials = cluster.credentials()?;
        options.program = own_name();
        change(&mut options);
        let client = Client::new(RealEnv::new(), cluster.map(), options, credentials);
        Ok(Self { cluster, client })
    }

    /// Returns the path below the mount for `path` with or without the mount's prefix.
    ///
    /// # Errors
    /// If it is a path of this host: the user may have meant another program.
    pub fn inside<'a>(&self, path: &'a str) -> Result<&'a str, Failure> {
        if let Some(inside) = self.strip(path) {
            return Ok(inside);
        }
        let inside = path.trim_start_matches('/');
        let is_of_host = path.starts_with('/')
            && !inside.is_empty()
            && std::fs::symlink_metadata(bytes::local(path)).is_ok();
        if !is_of_host {
            return Ok(inside);
        }
        let mount = self.cluster.mount.display();
        let why = format!(
            "this is a file of this host, and the command takes paths on Weft, which begin with {mount}"
        );
        Err(Failure::misuse(path, why).remedy(format!("write {} if you mean that one", self.shown(inside))))
    }

    /// Returns the path below the mount if `path` has the mount's prefix.
    pub fn strip<'a>(&self, path: &'a str) -> Option<&'a str> {
        let rest = path.strip_prefix(self.cluster.mount.to_str()?)?;
        (rest.is_empty() || rest.starts_with('/')).then(|| rest.trim_start_matches('/'))
    }

    /// Formats a path below the mount with the mount's prefix.
    pub fn shown(&self, inside: &str) -> String {
        let mount = self.cluster.mount.display();
        let inside = inside.trim_matches('/');
        if inside.is_empty() { mount.to_string() } else { format!("{mount}/{inside}") }
    }

    /// Calls `ask` with the path below the mount. Follows symbolic links with absolute targets under the mount.
    pub fn at<T>(
        &self,
        inside: &str,
        follow: bool,
        ask: impl Fn(&InodePath) -> weft_client::Result<T>,
    ) -> Result<T, Failure> {
        let mut path = bytes::bytes(inside);
        for _ in 0..LINKS_MAX {
            match ask(&InodePath::from_root(path, follow)) {
                Err(Error::ExternalLink { target, rest, .. }) => {
                    let target = bytes::text(&target);
                    let Some(below) = self.strip(&target) else {
                        let why = match target.as_str() {
                            ".." => "its .. lead above the root of Weft".to_owned(),
                            _ => format!("it is a symbolic link to {target}, outside of Weft"),
                        };
                        return Err(Failure::new(self.shown(inside), why));
                    };
                    path = bytes::bytes(below.trim_end_matches('/'));
                    if !rest.is_empty() {
                        path.push(b'/');
                        path.extend_from_slice(&rest);
                    }
                }
                Err(error) => return Err(Failure::new(self.shown(inside), why(&error))),
                Ok(found) => return Ok(found),
            }
        }
        Err(Failure::new(self.shown(inside), posix(libc::ELOOP)))
    }

    /// Returns the attributes of a path below the mount.
    pub fn stat(&self, inside: &str, follow: bool) -> Result<Attr, Failure> {
        self.at(inside, follow, |place| block_on(self.client.stat(place)))
    }

    /// Returns the attributes of a path below the mount, or the last known ones if a data server is unreachable.
    pub fn known(&self, inside: &str, follow: bool) -> Result<LastKnown, Failure> {
        self.at(inside, follow, |place| block_on(self.client.stat_last_known(place)))
    }

    /// Returns attributes like [`Weft::known`], or `None` if the path does not exist.
    pub fn look(&self, inside: &str, follow: bool) -> Result<Option<LastKnown>, Failure> {
        let place = InodePath::from_root(bytes::bytes(inside), follow);
        match block_on(self.client.stat_last_known(&place)) {
            Ok(known) => Ok(Some(known)),
            Err(error) if error.errno() == libc::ENOENT => Ok(None),
            Err(Error::ExternalLink { .. }) => self.known(inside, follow).map(Some),
            Err(error) => Err(Failure::new(self.shown(inside), why(&error))),
        }
    }

    /// Returns the file type of a path, or `None` if it does not exist.
    pub fn kind(&self, inside: &str, follow: bool) -> Result<Option<FileType>, Failure> {
        Ok(self.look(inside, follow)?.map(|known| known.attr.kind))
    }

    /// Calls `each` with every entry of a directory, ordered by name.
    pub fn list(
        &self,
        inside: &str,
        with_attr: bool,
        mut each: impl FnMut(Entry) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut after = Vec::new();
        loop {
            let (entries, more) =
                self.at(inside, true, |place| block_on(self.client.list(place, &after, PAGE, with_attr)))?;
            let Some(last) = entries.last() else { return Ok(()) };
            after = last.name.clone();
            entries.into_iter().try_for_each(&mut each)?;
            if !more {
                return Ok(());
            }
        }
    }

    /// Calls `each` with the path below the mount and the last known attributes of everything at and below `inside`.
    /// With `bottom_up`, directories come after their entries.
    pub fn walk(
        &self,
        inside: &str,
        bottom_up: bool,
        each: &mut dyn FnMut(&str, &LastKnown) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.walk_past(inside, bottom_up, each, &mut |_, _, failure| Err(failure))
    }

    /// Like [`Self::walk`]; calls `failed` with the path and the kind of an entry whose attributes cannot be found.
    pub fn walk_past(
        &self,
        inside: &str,
        bottom_up: bool,
        each: &mut dyn FnMut(&str, &LastKnown) -> Result<(), Failure>,
        failed: &mut dyn FnMut(&str, FileType, Failure) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let known = self.known(inside, false)?;
        self.walk_from(inside, &known, bottom_up, each, failed)
    }

    fn walk_from(
        &self,
        inside: &str,
        known: &LastKnown,
        bottom_up: bool,
        each: &mut dyn FnMut(&str, &LastKnown) -> Result<(), Failure>,
        failed: &mut dyn FnMut(&str, FileType, Failure) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if !bottom_up {
            each(inside, known)?;
        }
        if known.attr.kind == FileType::Directory {
            // Collect the names first, because `each` may remove them.
            let mut names = Vec::new();
            self.list(inside, false, |entry| {
                names.push((bytes::text(&entry.name), entry.kind));
                Ok(())
            })?;
            for (name, kind) in names {
                let path = join(inside, &name);
                match self.look(&path, false) {
                    Ok(Some(known)) => self.walk_from(&path, &known, bottom_up, each, failed)?,
                    // A name that another process has removed since is not an error.
                    Ok(None) => {}
                    Err(failure) => failed(&path, kind, failure)?,
                }
            }
        }
        if bottom_up { each(inside, known) } else { Ok(()) }
    }
}

/// Returns the name under which servers show this process: `weft` and the subcommand.
fn own_name() -> String {
    let mut args = std::env::args_os().skip(1);
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("--cluster") => drop(args.next()),
            Some(option) if option.starts_with('-') => {}
            Some(command) => return format!("weft {command}"),
            None => break,
        }
    }
    "weft".into()
}

/// Joins `dir/name`, without a leading slash.
pub fn join(dir: &str, name: &str) -> String {
    match dir.trim_end_matches('/') {
        "" => name.to_owned(),
        dir => format!("{dir}/{name}"),
    }
}

/// Returns the last name of a path.
pub fn base_name(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

/// Formats a client error: the system's text for the number, and the server's message.
pub fn why(error: &Error) -> String {
    match error {
        Error::Refused(refused) if refused.error.detail.is_empty() => posix(error.errno()),
        Error::Refused(refused) => refused.error.detail.clone(),
        Error::Host(failure) => posix(failure.errno.0),
        other => other.clone().without_path().to_string(),
    }
}

/// Files whose size could not be queried, reported at the end of a command.
#[derive(Default)]
pub struct InexactSizes(BTreeMap<String, (String, u64)>);

impl InexactSizes {
    /// Notes a path if its attributes are not exact.
    pub fn note(&mut self, shown: &str, known: &LastKnown) {
        let Some(error) = &known.error else { return };
        let (_, count) = self.0.entry(why(error)).or_insert_with(|| (shown.to_owned(), 0));
        *count += 1;
    }

    /// Prints for each reason the number of files and the first one. Returns whether there were any.
    pub fn print(&self) -> bool {
        for (why, (first, count)) in &self.0 {
            let more = match count - 1 {
                0 => String::new(),
                more => format!(" (and of {more} more)"),
            };
            errln!("{}", Failure::new(first, format!("the size shown{more} is the last known one: {why}")));
        }
        !self.0.is_empty()
    }
}

/// Formats an error of a server. The error may contain the server's name already.
pub fn of_server(name: &str, error: &Error) -> Failure {
    let why = why(error);
    let server = format!("server {name}");
    match why.strip_prefix(&server).is_some_and(|rest| rest.starts_with(' ')) {
        true => Failure::said(why),
        false => Failure::new(server, why),
    }
}

/// Returns the system's text for an error number.
pub fn posix(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    match text.split_once(" (os error") {
        Some((text, _)) => text.to_owned(),
        None => text,
    }
}

/// Open connections to all servers.
pub struct HeldConnections {
    /// The client's pool holds the connections.
    _client: Client<RealEnv>,
}

impl HeldConnections {
    /// Connects to all servers of an embedded cluster. Other servers do not end when idle and need no connection.
    pub fn new(cluster: &Cluster) -> Result<Self, Failure> {
        let weft = Weft::of(cluster.clone(), |options| {
            options.retry_for = Nanos(0);
        })?;
        if cluster.embedded.is_some() {
            for (id, server) in cluster.numbered() {
                block_on(weft.client.status(id)).map_err(|error| of_server(&server.name, &error))?;
            }
        }
        Ok(Self { _client: weft.client })
    }
}
