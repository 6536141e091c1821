//! `weft key`.

use crate::failure::Failure;
use clap::{Args, Subcommand};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use weft_config::{Cluster, Key, make_cluster_key, read_key};
use weft_wire::hello::Identity;

const AFTER: &str = "\
The cluster key is the secret of a cluster. Every server needs a copy, readable by its owner alone; whoever has it
can be any user. Users on other hosts get a key of their own instead, with which they can be nobody else. It names
user and groups; make it again when they change. On one host, over Unix sockets, nobody needs a key.

Examples:
  weft key make /etc/weft/cluster.key
  weft key user ada -o ada.key       then give ada.key to ada, for ~/.config/weft/key
  weft key show ada.key";

/// Makes keys.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct KeyArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a cluster key in a new file
    Make {
        /// The file; an existing one is never overwritten
        file: PathBuf,
    },
    /// Make the key of one user from the cluster key
    User {
        /// Name or number of the user
        user: String,
        /// Groups by number, instead of those that this host knows (the first is the primary one)
        #[arg(long, value_delimiter = ',', value_name = "GID,...")]
        groups: Option<Vec<u32>>,
        /// The new file
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// The cluster key, instead of the cluster file's
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
    },
    /// Tell what a key file is, without the secret
    Show {
        /// The file
        file: PathBuf,
    },
}

impl KeyArgs {
    /// Does it.
    pub fn run(self, cluster: Option<PathBuf>) -> Result<u8, Failure> {
        match self.command {
            Command::Make { file } => {
                let key = make_cluster_key().map_err(|error| Failure::new("random bytes", error))?;
                key.write_new(&file)?;
                outln!(
                    "{}: a new cluster key; copy it to every server and write key_file = {file:?}",
                    file.display()
                );
            }
            Command::User { user, groups, output, key } => {
                let file = match key {
                    Some(key) => key,
                    None => super::load(cluster)?.key_file,
                };
                let Key::Cluster(secret) = read_key(&file)? else {
                    return Err(Failure::misuse(file.display(), "this is a user's key")
                        .remedy("user keys are made from the cluster key: name it with --key"));
                };
                let identity = identity(&user, groups)?;
                let text = describe(&identity);
                Key::for_user(&secret, identity).write_new(&output)?;
                outln!("{}: a key for {text}", output.display());
            }
            Command::Show { file } => match read_key(&file)? {
                Key::Cluster(_) => outln!("{}: a cluster key", file.display()),
                Key::User(identity, _) => outln!("{}: a key for {}", file.display(), describe(&identity)),
            },
        }
        Ok(0)
    }
}

fn describe(identity: &Identity) -> String {
    let groups: Vec<_> = identity.groups.iter().map(u32::to_string).collect();
    format!("user {}, group {}, further groups [{}]", identity.uid, identity.gid, groups.join(" "))
}

/// The user as this host knows him, or by number alone.
fn identity(user: &str, groups: Option<Vec<u32>>) -> Result<Identity, Failure> {
    let unknown = || {
        Failure::misuse(format!("user {user:?}"), "this host does not know it")
            .remedy("give the number, and --groups with the primary group first")
    };
    let known = lookup(user);
    let uid = user.parse().ok().or(known.as_ref().map(|(uid, _)| *uid)).ok_or_else(unknown)?;
    let groups = groups.or_else(|| known.map(|(_, groups)| groups)).ok_or_else(unknown)?;
    let (gid, rest) = groups.split_first().ok_or_else(unknown)?;
    let mut rest = rest.to_vec();
    rest.sort_unstable();
    rest.dedup();
    rest.truncate(64);
    Ok(Identity { uid, gid: *gid, groups: rest })
}

/// Number and groups, the primary one first.
fn lookup(user: &str) -> Option<(u32, Vec<u32>)> {
    let name = CString::new(OsStr::new(user).as_bytes()).ok()?;
    // SAFETY: getpwnam and getpwuid return null or a record that is valid until the next call; this program has one
    // thread here, and what is needed is copied at once. getgrouplist writes at most `count` groups.
    unsafe {
        let entry = match user.parse() {
            Ok(uid) => libc::getpwuid(uid),
            Err(_) => libc::getpwnam(name.as_ptr()),
        };
        let entry = entry.as_ref()?;
        let name = std::ffi::CStr::from_ptr(entry.pw_name).to_owned();
        let (uid, gid) = (entry.pw_uid, entry.pw_gid);
        let mut groups = vec![0; 1024];
        let mut count = groups.len() as i32;
        if libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) < 0 {
            return Some((uid, vec![gid]));
        }
        groups.truncate(count as usize);
        groups.retain(|group| *group != gid);
        groups.insert(0, gid);
        Some((uid, groups))
    }
}

/// The cluster's secret, for a server.
pub fn secret(cluster: &Cluster) -> Result<[u8; 32], Failure> {
    match read_key(&cluster.key_file)? {
        Key::Cluster(secret) => Ok(secret),
        Key::User(..) => Err(Failure::misuse(cluster.key_file.display(), "this is a user's key")
            .remedy("servers need the cluster key, as `weft key make` makes it")),
    }
}
