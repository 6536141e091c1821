//! `weft key`.

mod register;
mod rotate;

use super::session::{Weft, why};
use crate::audit;
use crate::failure::{FAILED, Failure};
use crate::table::Table;
use clap::{Args, Subcommand};
use register::{Entry, Register};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use weft_config::{Cluster, ClusterKey, Key, read_key};
use weft_core::{Nanos, Timestamp};
use weft_env::real::block_on;
use weft_wire::hello::Identity;
use weft_wire::keys::{Holder, KeyId};

/// Maximum time that a revocation waits for all servers to confirm it.
const REVOKED_WITHIN: Nanos = Nanos::from_s(10);
/// Interval between queries to the servers during that wait.
const ASK_EVERY: Nanos = Nanos::from_ms(200);

const AFTER: &str = "\
The cluster key contains the root secret of a cluster, from which all other keys are derived. It belongs on the
servers only, readable by its owner: a process with this key can act as a server, an administrator or any user.
Everyone else gets a separate key:

  admin  an administrator: may act for any user and change targets and keys, but cannot act as a server
  user   one user with its present groups; issue a new key when they change
  host   a mount that acts for several users of one host, without administrator rights; root of the host is nobody

Over Unix sockets on one host, no key is needed. A user's key file is ~/.config/weft/key or the path in WEFT_KEY; a
host's key is host.key beside the cluster file. Key files that other users can read or change are refused.

`make`, `derive`, `user`, `admin`, `host` and `rotate` need the cluster key and no running cluster. The file FILE.issued beside
the cluster key FILE lists the issued keys. `revoke` tells the metadata server, which stores revoked keys in its
database. All servers refuse the key and end its connections without a restart. A server that is down learns of it
when it starts.

`rotate` exchanges the root secret in three steps while programs run. After each step, copy the key file to every
server, which reads it within seconds. Issue new keys before the last step, which invalidates all keys of the former
secret.

Exit codes:
  0  success
  1  failure; with revoke: a server has not confirmed it
  2  wrong arguments, cluster file or key

Examples:
  weft key make /etc/weft/cluster.key
  weft key admin --expires 30d -o admin.key
  weft key user ada --expires 90d -o ada.key      then give ada.key to ada, for ~/.config/weft/key
  weft key host node17 --uids 1000-60000 -o host.key
  weft key show ada.key
  weft key list
  weft key revoke 00112233445566ff
  weft key rotate                  servers accept the next secret as well
  weft key rotate --use            and use it for new keys and capabilities
  weft key rotate --finish         and refuse the former one
  weft key derive job17.key --from site.key --name 'job 17'     the same on every host with site.key";

/// Creates, lists, revokes and rotates keys.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct KeyArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create a cluster key in a new file
    Make {
        /// The file; an existing one is never overwritten
        file: PathBuf,
    },
    /// Create the cluster key of another cluster from a cluster key: equal on all hosts, for clusters of batch jobs
    Derive {
        /// The new file; an existing one is never overwritten
        file: PathBuf,
        /// Cluster key to derive from
        #[arg(long, value_name = "FILE")]
        from: PathBuf,
        /// Name of the other cluster; another name gives another key
        #[arg(long, value_name = "NAME")]
        name: String,
    },
    /// Create the key of one user
    User {
        /// Name or number of the user
        user: String,
        /// Group numbers, the primary one first [default: the user's groups on this host]
        #[arg(long, value_delimiter = ',', value_name = "GID,...")]
        groups: Option<Vec<u32>>,
        #[command(flatten)]
        new: New,
    },
    /// Create the key of an administrator
    Admin {
        #[command(flatten)]
        new: New,
    },
    /// Create the key of a host, whose mount acts for several users
    Host {
        /// Name of the host, for display
        name: String,
        /// Range of users that the host may act for
        #[arg(long, value_name = "FIRST-LAST", value_parser = range)]
        uids: (u32, u32),
        /// Keep root of the host as root of the files, instead of nobody
        #[arg(long)]
        no_squash_root: bool,
        #[command(flatten)]
        new: New,
    },
    /// Describe a key file, without the secret
    Show {
        /// The file
        file: PathBuf,
    },
    /// List the issued and revoked keys
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Use this cluster key instead of the one named in the cluster file
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
    },
    /// Refuse keys on all servers from now on, and end their connections
    Revoke {
        /// Ids of keys, as shown by `weft key list` and `weft key show`
        #[arg(required = true, value_name = "ID")]
        ids: Vec<KeyId>,
    },
    /// Exchange the root secret in three steps, while programs run
    Rotate(rotate::Rotate),
}

/// Arguments of all commands that issue keys.
#[derive(Args)]
struct New {
    /// When the key expires: days such as 90d, hours such as 12h, or never
    #[arg(long, value_name = "TIME", value_parser = life, default_value = "never")]
    expires: Life,
    /// The new file
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// The cluster key [default: that of the cluster file]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

/// Lifetime of a key. `None` is unlimited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Life(Option<Nanos>);

fn life(text: &str) -> Result<Life, String> {
    const LONGEST_DAYS: u64 = 36_500;
    if text == "never" {
        return Ok(Life(None));
    }
    let time = match text.strip_suffix('d').map(|days| days.trim().parse::<u64>()) {
        Some(Ok(days)) if days <= LONGEST_DAYS => Nanos::from_s(days * 86_400),
        Some(_) => return Err(format!("write a number of days up to {LONGEST_DAYS}, such as 90d")),
        None => weft_config::parse_duration(text)?,
    };
    if time < Nanos::from_s(1) {
        return Err("write a lifetime of at least one second, such as 90d".to_owned());
    }
    Ok(Life(Some(time)))
}

fn range(text: &str) -> Result<(u32, u32), String> {
    let bounds =
        text.split_once('-').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    match bounds {
        Some((first, last)) if first <= last => Ok((first, last)),
        _ => Err("write the first and the last user, such as 1000-60000".to_owned()),
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn date(seconds: u64) -> String {
    Timestamp(i128::from(seconds) * 1_000_000_000).utc()
}

impl KeyArgs {
    /// Runs the command.
    pub fn run(self, cluster: Option<PathBuf>) -> Result<u8, Failure> {
        match self.command {
            Command::Make { file } => {
                let key = ClusterKey::make(now_s()).map_err(|error| Failure::new("random bytes", error))?;
                Key::Cluster(key).write_new(&file)?;
                outln!(
                    "{}: a new cluster key; copy it to every server and write key_file = {file:?}",
                    file.display()
                );
            }
            Command::Derive { file, from, name } => {
                let (_, key) = cluster_key(None, Some(from))?;
                Key::Cluster(key.derive(&name)).write_new(&file)?;
                outln!("{}: the cluster key of {name}", file.display());
            }
            Command::User { user, groups, new } => {
                let holder = Holder::User(identity(&user, groups)?);
                issue(cluster, holder, &new)?;
            }
            Command::Admin { new } => issue(cluster, Holder::Administrator, &new)?,
            Command::Host { name, uids: (first_uid, last_uid), no_squash_root, new } => {
                let squash_root = !no_squash_root;
                let holder = Holder::Host { name, first_uid, last_uid, squash_root };
                issue(cluster, holder, &new)?;
            }
            Command::Show { file } => show(&file)?,
            Command::List { json, key } => return list(cluster, key, json),
            Command::Revoke { ids } => return revoke(cluster, &ids),
            Command::Rotate(rotate) => return rotate.run(cluster),
        }
        Ok(0)
    }
}

/// Returns path and contents of the cluster key of `--key` or the cluster file.
fn cluster_key(cluster: Option<PathBuf>, key: Option<PathBuf>) -> Result<(PathBuf, ClusterKey), Failure> {
    let file = match key {
        Some(key) => key,
        None => super::load(cluster)?.key_file,
    };
    match read_key(&file)? {
        Key::Cluster(key) => Ok((file, key)),
        Key::Issued(_) => Err(Failure::misuse(file.display(), "this key was issued from a cluster key")
            .remedy("issue keys with the cluster key, on a server: name it with --key")),
    }
}

fn issue(cluster: Option<PathBuf>, holder: Holder, new: &New) -> Result<(), Failure> {
    let (file, cluster_key) = cluster_key(cluster.clone(), new.key.clone())?;
    let now = now_s();
    let expires_s = new.expires.0.map_or(0, |life| now + life.0 / 1_000_000_000);
    let key = cluster_key.issue(holder, expires_s).map_err(|error| Failure::new("random bytes", error))?;
    key.claims.check().map_err(|error| Failure::misuse("key", error.detail))?;
    let claims = key.claims.clone();
    // Add the key to the list first. An unlisted key could not be found for a revocation.
    Register::beside(&file).add(&Entry::issued(&claims, now))?;
    Key::Issued(Box::new(key)).write_new(&new.output)?;
    let action = match claims.holder {
        Holder::Server => "key.server",
        Holder::Administrator => "key.admin",
        Holder::User(_) => "key.user",
        Holder::Host { .. } => "key.host",
    };
    let detail = format!("{} for {}, ends {}", claims.id, claims.holder, end(claims.expires_s));
    audit::of_keys(cluster, &file, action, &detail);
    outln!(
        "{}: key {} for {}, ends {}",
        new.output.display(),
        claims.id,
        claims.holder,
        end(claims.expires_s)
    );
    Ok(())
}

fn end(expires_s: u64) -> String {
    if expires_s == 0 { "never".to_owned() } else { date(expires_s) }
}

fn show(file: &Path) -> Result<(), Failure> {
    match read_key(file)? {
        Key::Cluster(key) => {
            let generations: Vec<_> = key.generations().iter().map(u32::to_string).collect();
            let (used, others) = generations.split_first().expect("at least one");
            let others =
                if others.is_empty() { String::new() } else { format!(", {} accepted", others.join(", ")) };
            outln!("{}: a cluster key, generation {used} in use{others}", file.display());
        }
        Key::Issued(key) => {
            let claims = &key.claims;
            let over = if claims.has_expired(Timestamp(i128::from(now_s()) * 1_000_000_000)) {
                " (it has expired)"
            } else {
                ""
            };
            outln!(
                "{}: key {} for {}, ends {}{over}, generation {}",
                file.display(),
                claims.id,
                groups(&claims.holder),
                end(claims.expires_s),
                claims.root
            );
        }
    }
    Ok(())
}

/// Formats a holder with all of its groups.
fn groups(holder: &Holder) -> String {
    match holder {
        Holder::User(identity) => {
            let groups: Vec<_> = identity.groups.iter().map(u32::to_string).collect();
            format!("{holder}, further groups [{}]", groups.join(" "))
        }
        _ => holder.to_string(),
    }
}

/// Returns the keys that the servers refuse, or why that is unknown.
fn revoked_now(cluster: Option<PathBuf>) -> Result<BTreeSet<KeyId>, String> {
    let weft = super::load(cluster).map_err(|failure| failure.text().to_owned())?;
    let weft = Weft::of(weft, |options| {
        options.connect_timeout = Nanos::from_s(2);
        options.request_timeout = Nanos::from_s(5);
        options.retry_for = Nanos(0);
    });
    weft_client::set_log(|_| ());
    let weft = weft.map_err(|failure| failure.text().to_owned())?;
    let revoked = block_on(weft.client.revoked_keys()).map_err(|error| why(&error))?;
    Ok(revoked.into_iter().collect())
}

fn list(cluster: Option<PathBuf>, key: Option<PathBuf>, json: bool) -> Result<u8, Failure> {
    let file = match key {
        Some(key) => key,
        None => super::load(cluster.clone())?.key_file,
    };
    let (entries, unreadable) = Register::beside(&file).read()?;
    let refused = revoked_now(cluster);
    // The last entry of each key applies.
    let mut keys: BTreeMap<KeyId, Entry> = BTreeMap::new();
    let mut revoked_here = BTreeSet::new();
    for entry in entries {
        match entry {
            Entry::Revoked { id, .. } => drop(revoked_here.insert(id)),
            entry @ Entry::Issued { .. } => drop(keys.insert(entry.id(), entry)),
        }
    }
    let now = now_s();
    let state = |id: KeyId, expires_s: u64| match &refused {
        Ok(refused) if refused.contains(&id) => "revoked",
        Ok(_) if revoked_here.contains(&id) => "REVIVED",
        Err(_) if revoked_here.contains(&id) => "revoked",
        _ if expires_s != 0 && expires_s <= now => "expired",
        _ => "valid",
    };
    let others: Vec<_> = match &refused {
        Ok(refused) => refused.iter().filter(|id| !keys.contains_key(id)).copied().collect(),
        Err(_) => Vec::new(),
    };
    let revived = keys.values().any(|entry| state(entry.id(), entry.expires_s()) == "REVIVED");
    if json {
        let key = |entry: &Entry| {
            json!({
                "id": entry.id().to_string(), "state": state(entry.id(), entry.expires_s()).to_lowercase(),
                "holder": entry.holder(), "generation": entry.generation(), "issued_s": entry.at_s(),
                "expires_s": (entry.expires_s() != 0).then(|| entry.expires_s()),
            })
        };
        let mut all: Vec<_> = keys.values().map(key).collect();
        all.extend(others.iter().map(|id| json!({ "id": id.to_string(), "state": "revoked" })));
        outln!("{:#}", json!({ "keys": all, "servers_answer": refused.is_ok() }));
    } else {
        let mut table = Table::new(["KEY", "STATE", "HOLDER", "ISSUED", "ENDS", "GENERATION"]);
        let mut sorted: Vec<_> = keys.values().collect();
        sorted.sort_by_key(|entry| entry.at_s());
        for entry in sorted {
            table.row([
                entry.id().to_string(),
                state(entry.id(), entry.expires_s()).into(),
                entry.holder().to_owned(),
                date(entry.at_s()),
                end(entry.expires_s()),
                entry.generation().to_string(),
            ]);
        }
        for id in &others {
            table.row([id.to_string(), "revoked".into(), "?".into(), "-".into(), "-".into(), "-".into()]);
        }
        out!("{}", table.render());
    }
    if unreadable > 0 {
        errln!("weft: {}: {unreadable} invalid lines are ignored", Register::beside(&file).path().display());
    }
    if let Err(reason) = &refused {
        errln!("weft: the metadata server does not report revoked keys: {reason}");
    }
    if revived {
        errln!(
            "weft: keys in state REVIVED were revoked, and the servers accept them again: an older copy of \
             the metadata was restored; revoke them again"
        );
        return Ok(FAILED);
    }
    Ok(0)
}

fn revoke(cluster: Option<PathBuf>, ids: &[KeyId]) -> Result<u8, Failure> {
    let weft = Weft::open(cluster)?;
    block_on(weft.client.revoke_keys(ids)).map_err(|error| Failure::new("metadata", why(&error)))?;
    let wanted =
        block_on(weft.client.revoked_keys()).map_err(|error| Failure::new("metadata", why(&error)))?;
    let names: Vec<_> = ids.iter().map(ToString::to_string).collect();
    outln!("revoked {}", names.join(", "));
    if matches!(read_key(&weft.cluster.key_file), Ok(Key::Cluster(_))) {
        let register = Register::beside(&weft.cluster.key_file);
        for id in ids {
            register.add(&Entry::Revoked { id: *id, at_s: now_s() })?;
        }
    }
    let missing = unconfirmed(&weft, wanted.len());
    for (server, reason) in &missing {
        errln!("weft: server {server} has not confirmed it: {reason}; it learns of it when it starts");
    }
    Ok(if missing.is_empty() { 0 } else { FAILED })
}

/// Returns the servers that do not refuse `revoked` keys within [`REVOKED_WITHIN`], each with the reason.
fn unconfirmed(weft: &Weft, revoked: usize) -> Vec<(String, String)> {
    let began = std::time::Instant::now();
    loop {
        let missing: Vec<_> = super::status::query_servers(weft)
            .into_iter()
            .filter_map(|answer| {
                let reason = match answer.status {
                    Ok(status) if status.keys.revoked as usize >= revoked => return None,
                    Ok(_) => "it has not received it yet".to_owned(),
                    Err(reason) => reason,
                };
                Some((answer.server.name.clone(), reason))
            })
            .collect();
        if missing.is_empty() || began.elapsed() >= REVOKED_WITHIN.as_duration() {
            return missing;
        }
        std::thread::sleep(ASK_EVERY.as_duration());
    }
}

/// Returns the user's identity: as this host knows the user, or by number.
fn identity(user: &str, groups: Option<Vec<u32>>) -> Result<Identity, Failure> {
    let unknown = || {
        Failure::misuse(format!("user {user:?}"), "it is unknown on this host")
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

/// Returns the number of a user of this host, or the given number.
pub fn user_id(user: &str) -> Result<u32, Failure> {
    user.parse().ok().or_else(|| lookup(user).map(|(uid, _)| uid)).ok_or_else(|| {
        Failure::misuse(format!("user {user:?}"), "it is unknown on this host").remedy("give the number")
    })
}

/// Looks up a user's number and groups, the primary one first.
fn lookup(user: &str) -> Option<(u32, Vec<u32>)> {
    let name = CString::new(OsStr::new(user).as_bytes()).ok()?;
    // SAFETY: getpwnam and getpwuid return null or a record that is valid until the next call. This program has one
    // thread here, and copies the fields that it needs at once. getgrouplist writes at most `count` groups.
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

/// Returns the cluster's root secrets, for a server.
pub fn of_servers(cluster: &Cluster) -> Result<ClusterKey, Failure> {
    match read_key(&cluster.key_file)? {
        Key::Cluster(key) => Ok(key),
        Key::Issued(key) => {
            let why = format!("this is a key for {}", key.claims.holder);
            Err(Failure::misuse(cluster.key_file.display(), why)
                .remedy("servers need the cluster key, which `weft key make` creates"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_and_ranges_of_keys() {
        assert_eq!(life("never"), Ok(Life(None)));
        assert_eq!(life("90d"), Ok(Life(Some(Nanos::from_s(90 * 86_400)))));
        assert_eq!(life("12h"), Ok(Life(Some(Nanos::from_s(12 * 3600)))));
        for text in ["", "d", "-1d", "0d", "99999999d", "500ms", "soon"] {
            assert!(life(text).is_err(), "{text}");
        }
        assert_eq!(range("1000-60000"), Ok((1000, 60_000)));
        for text in ["", "1000", "2-1", "a-b", "1-4294967296", "-1-5"] {
            assert!(range(text).is_err(), "{text}");
        }
    }
}
