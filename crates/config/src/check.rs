//! What must hold between the parts of a cluster file.

use crate::error::ConfigError;
use crate::ibridge;
use crate::load::{Class, Role};
use crate::model::{Module, Server};
use crate::section::{Item, Source};
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use weft_core::ibridge::Policy;
use weft_core::{ByteLen, Integrity};
use weft_env::Address;

/// Where the parts of a target stand.
#[derive(Clone)]
pub(crate) struct TargetPlaces {
    pub id: Range<usize>,
    pub path: Range<usize>,
    pub ibridge: Option<ibridge::Places>,
}

/// A server and where its parts stand.
pub(crate) struct Placed {
    pub server: Server,
    pub span: Range<usize>,
    pub name_span: Range<usize>,
    pub address_spans: Vec<Range<usize>>,
    pub roles: Vec<Item<Role>>,
    pub metadata_path: Option<(PathBuf, Range<usize>)>,
    pub targets: Vec<TargetPlaces>,
}

impl Placed {
    /// The server, its addresses in the order in which a client tries them.
    pub fn into_server(self) -> Server {
        let mut server = self.server;
        server.addresses.sort_by_key(|address| !matches!(address, Address::Unix(_)));
        server
    }

    /// Two servers share directories only when they may run on one host.
    fn host(&self) -> String {
        let tcp = self.server.addresses.iter().find_map(|address| match address {
            Address::Tcp(host, _) => Some(host.clone()),
            Address::Unix(_) => None,
        });
        self.server.host.clone().or(tcp).unwrap_or_default()
    }
}

/// All checks between parts, in the order of the file as far as it goes.
pub(crate) fn all(
    source: &Source<'_>,
    servers: &[Placed],
    classes: &[Item<Class>],
    mount: Option<&Item<PathBuf>>,
) -> Result<(), ConfigError> {
    if servers.is_empty() {
        return Err(source.refuse(0..0, "there is no server", "add at least one [[server]] section"));
    }
    if let Some(mount) = mount.filter(|mount| mount.value.as_os_str() == "/") {
        let remedy = "Weft cannot take over the whole tree: write mount = \"/weft\"";
        return Err(source.refuse(mount.span.clone(), "mount is the root directory", remedy));
    }
    for placed in servers {
        roles(source, placed)?;
    }
    metadata_role(source, servers)?;
    names_and_addresses(source, servers)?;
    targets(source, servers)?;
    for Item { value: Class(class), span } in classes {
        if !servers.iter().flat_map(|placed| &placed.server.targets).any(|target| target.class == *class) {
            let problem = format!("no target has the class {class:?}");
            let remedy = "use a class that a [[server.target]] has, or leave the line out to use all targets";
            return Err(source.refuse(span.clone(), problem, remedy));
        }
    }
    Ok(())
}

fn roles(source: &Source<'_>, placed: &Placed) -> Result<(), ConfigError> {
    let name = &placed.server.name;
    for item in &placed.roles {
        let span = item.span.clone();
        if item.value != Role::Data && placed.metadata_path.is_none() {
            let problem = format!("server {name:?} has the metadata role but no [server.metadata]");
            let remedy = "add [server.metadata] with path = \"/var/lib/weft/metadata\", or remove the role";
            return Err(source.refuse(span, problem, remedy));
        }
        if item.value != Role::Metadata && placed.targets.is_empty() {
            let problem = format!("server {name:?} has the data role but no target");
            let remedy = "add [[server.target]] with id, class and path, or remove the role";
            return Err(source.refuse(span, problem, remedy));
        }
    }
    // Without `roles` the sections say it.
    let has = |role| {
        placed.roles.is_empty() || placed.roles.iter().any(|r| r.value == role || r.value == Role::Both)
    };
    if let Some((_, span)) = placed.metadata_path.as_ref().filter(|_| !has(Role::Metadata)) {
        let problem = format!("server {name:?} has [server.metadata] but not the metadata role");
        return Err(source.refuse(
            span.clone(),
            problem,
            "add \"metadata\" to its roles, or remove the section",
        ));
    }
    if let Some(places) = placed.targets.first().filter(|_| !has(Role::Data)) {
        let problem = format!("server {name:?} has a target but not the data role");
        return Err(source.refuse(
            places.id.clone(),
            problem,
            "add \"data\" to its roles, or remove the target",
        ));
    }
    if placed.metadata_path.is_none() && placed.targets.is_empty() {
        let problem = format!("server {name:?} serves nothing");
        return Err(source.refuse(
            placed.span.clone(),
            problem,
            "give it a [[server.target]] or a [server.metadata]",
        ));
    }
    Ok(())
}

fn metadata_role(source: &Source<'_>, servers: &[Placed]) -> Result<(), ConfigError> {
    let mut with =
        servers.iter().filter_map(|placed| placed.metadata_path.as_ref().map(|(_, span)| (placed, span)));
    let Some((first, _)) = with.next() else {
        let remedy = "give one server a [server.metadata] section with path = \"/var/lib/weft/metadata\"";
        return Err(source.refuse(servers[0].span.clone(), "no server has the metadata role", remedy));
    };
    if let Some((second, span)) = with.next() {
        let problem = format!(
            "servers {:?} and {:?} both have the metadata role, and a cluster has one for now",
            first.server.name, second.server.name
        );
        return Err(source.refuse(span.clone(), problem, "remove [server.metadata] from all but one server"));
    }
    Ok(())
}

fn names_and_addresses(source: &Source<'_>, servers: &[Placed]) -> Result<(), ConfigError> {
    let mut names = BTreeMap::new();
    let mut addresses = BTreeMap::new();
    for placed in servers {
        let name = placed.server.name.as_str();
        if names.insert(name, ()).is_some() {
            let problem = format!("two servers are named {name:?}");
            return Err(source.refuse(
                placed.name_span.clone(),
                problem,
                "give each server a name of its own",
            ));
        }
        for (address, span) in placed.server.addresses.iter().zip(&placed.address_spans) {
            // A socket's path means the same on another host only if it runs there.
            let host = if matches!(address, Address::Unix(_)) { placed.host() } else { String::new() };
            if let Some(other) = addresses.insert((host, address), name) {
                let problem = format!("servers {other:?} and {name:?} have the same address {address}");
                return Err(source.refuse(span.clone(), problem, "give each server an address of its own"));
            }
        }
    }
    Ok(())
}

fn targets(source: &Source<'_>, servers: &[Placed]) -> Result<(), ConfigError> {
    let mut ids = BTreeMap::new();
    let mut paths: Vec<(String, PathBuf, String)> = Vec::new();
    let mut place = |host: &str, path: &PathBuf, what: String, span: &Range<usize>| {
        for (other_host, other, other_what) in &paths {
            if other_host == host && (path.starts_with(other) || other.starts_with(path)) {
                let problem =
                    format!("{what} and {other_what} use the same directory or one inside the other");
                return Err(source.refuse(span.clone(), problem, "give each a directory of its own"));
            }
        }
        paths.push((host.to_owned(), path.clone(), what));
        Ok(())
    };
    for placed in servers {
        let host = placed.host();
        if let Some((path, span)) = &placed.metadata_path {
            place(&host, path, format!("the metadata of server {:?}", placed.server.name), span)?;
        }
        for (target, places) in placed.server.targets.iter().zip(&placed.targets) {
            if let Some(other) = ids.insert(target.id, &placed.server.name) {
                let problem = format!("target id {} is taken by a target of server {other:?}", target.id.0);
                let remedy = "layouts name targets by id: give this one a number that no other target has";
                return Err(source.refuse(places.id.clone(), problem, remedy));
            }
            place(&host, &target.path, format!("target {}", target.id.0), &places.path)?;
            if target.module == Module::Null && target.integrity != Integrity::Off {
                let problem =
                    format!("target {} keeps no bytes, and is to keep checksums of them", target.id.0);
                let remedy = "leave integrity out, or use another module than null";
                return Err(source.refuse(places.id.clone(), problem, remedy));
            }
            let (Some(beside), Some(at)) = (&target.ibridge, &places.ibridge) else { continue };
            place(&host, &beside.path, format!("the log beside target {}", target.id.0), &at.path)?;
            if target.module == Module::Null {
                let problem = format!("target {} keeps nothing, and has a log beside it", target.id.0);
                let remedy = "remove [server.target.ibridge], or use another module than null";
                return Err(source.refuse(at.section.clone(), problem, remedy));
            }
        }
    }
    Ok(())
}

/// Clients name the siblings of what they take for a fragment, and a server that takes more for fragments would judge
/// these without knowing whom they hold up.
pub(crate) fn fragments(
    source: &Source<'_>,
    servers: &[Placed],
    threshold: ByteLen,
) -> Result<(), ConfigError> {
    for (target, places) in
        servers.iter().flat_map(|placed| placed.server.targets.iter().zip(&placed.targets))
    {
        let (Some(beside), Some(at)) = (&target.ibridge, &places.ibridge) else { continue };
        let asks = matches!(beside.policy, Policy::Ibridge | Policy::Static { .. });
        if asks && beside.fragments_below > threshold {
            let (below, threshold) = (beside.fragments_below, crate::format_size(threshold));
            let below = crate::format_size(below);
            let problem =
                format!("fragments_below is {below} here, and fragment_threshold of clients {threshold}");
            let remedy = format!("write fragment_threshold = \"{below}\" under [client]");
            return Err(source.refuse(at.section.clone(), problem, remedy));
        }
    }
    Ok(())
}

/// A key that others can read is no key. A file that is not there, or not for this user, is the business of whoever
/// needs the key.
pub(crate) fn key_mode(source: &Source<'_>, key_file: &Item<PathBuf>) -> Result<(), ConfigError> {
    let Ok(meta) = std::fs::metadata(&key_file.value) else { return Ok(()) };
    if !meta.is_file() {
        let problem = format!("{} is no file", key_file.value.display());
        return Err(source.refuse(key_file.span.clone(), problem, "make a key with `weft key make FILE`"));
    }
    if meta.mode() & 0o077 != 0 {
        let problem =
            format!("others than its owner may use the key file (mode {:04o})", meta.mode() & 0o7777);
        let remedy = format!("run: chmod 600 {}", key_file.value.display());
        return Err(source.refuse(key_file.span.clone(), problem, remedy));
    }
    Ok(())
}
