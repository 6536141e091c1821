//! Constraints between the sections of a cluster file.

use crate::cache::CacheSpans;
use crate::error::ConfigError;
use crate::ibridge;
use crate::load::{Class, Role};
use crate::model::{Module, Server};
use crate::section::{Item, Source};
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use weft_core::ibridge::Policy;
use weft_core::{ByteLen, CompressionSetting, Integrity};
use weft_env::Address;

/// Positions of a target's values in the file.
#[derive(Clone)]
pub(crate) struct TargetSpans {
    pub id: Range<usize>,
    pub path: Range<usize>,
    pub ibridge: Option<ibridge::IbridgeSpans>,
    pub cache: Option<CacheSpans>,
}

/// Server with the positions of its values in the file.
pub(crate) struct ParsedServer {
    pub server: Server,
    pub span: Range<usize>,
    pub name_span: Range<usize>,
    pub address_spans: Vec<Range<usize>>,
    pub roles: Vec<Item<Role>>,
    pub metadata_path: Option<(PathBuf, Range<usize>)>,
    pub targets: Vec<TargetSpans>,
}

impl ParsedServer {
    /// Returns the server, with its addresses in the order in which a client tries them.
    pub fn into_server(self) -> Server {
        let mut server = self.server;
        server.addresses.sort_by_key(|address| !matches!(address, Address::Unix(_)));
        server
    }

    /// Returns a name for the host. Two servers may share directories only if they run on different hosts.
    fn host(&self) -> String {
        let tcp = self.server.addresses.iter().find_map(|address| match address {
            Address::Tcp(host, _) => Some(host.clone()),
            Address::Unix(_) => None,
        });
        self.server.host.clone().or(tcp).unwrap_or_default()
    }
}

/// Runs all checks between sections, roughly in the order of the file.
pub(crate) fn all(
    source: &Source<'_>,
    servers: &[ParsedServer],
    classes: &[Item<Class>],
    mount: Option<&Item<PathBuf>>,
) -> Result<(), ConfigError> {
    if servers.is_empty() {
        return Err(source.refuse(0..0, "the file has no server", "add at least one [[server]] section"));
    }
    if let Some(mount) = mount.filter(|mount| mount.value.as_os_str() == "/") {
        let remedy = "Weft cannot replace the root directory: write mount = \"/weft\"";
        return Err(source.refuse(mount.span.clone(), "mount is the root directory", remedy));
    }
    for parsed in servers {
        roles(source, parsed)?;
    }
    metadata_role(source, servers)?;
    names_and_addresses(source, servers)?;
    targets(source, servers)?;
    for Item { value: Class(class), span } in classes {
        if !servers.iter().flat_map(|parsed| &parsed.server.targets).any(|target| target.class == *class) {
            let problem = format!("no target has the class {class:?}");
            let remedy = "use a class that a [[server.target]] has, or remove the line to use all targets";
            return Err(source.refuse(span.clone(), problem, remedy));
        }
    }
    Ok(())
}

fn roles(source: &Source<'_>, parsed: &ParsedServer) -> Result<(), ConfigError> {
    let name = &parsed.server.name;
    for item in &parsed.roles {
        let span = item.span.clone();
        if item.value != Role::Data && parsed.metadata_path.is_none() {
            let problem = format!("server {name:?} has the metadata role but no [server.metadata]");
            let remedy = "add [server.metadata] with path = \"/var/lib/weft/metadata\", or remove the role";
            return Err(source.refuse(span, problem, remedy));
        }
        if item.value != Role::Metadata && parsed.targets.is_empty() {
            let problem = format!("server {name:?} has the data role but no target");
            let remedy = "add [[server.target]] with id, class and path, or remove the role";
            return Err(source.refuse(span, problem, remedy));
        }
    }
    // Without `roles`, the sections determine the roles.
    let has = |role| {
        parsed.roles.is_empty() || parsed.roles.iter().any(|r| r.value == role || r.value == Role::Both)
    };
    if let Some((_, span)) = parsed.metadata_path.as_ref().filter(|_| !has(Role::Metadata)) {
        let problem = format!("server {name:?} has [server.metadata] but not the metadata role");
        return Err(source.refuse(
            span.clone(),
            problem,
            "add \"metadata\" to its roles, or remove the section",
        ));
    }
    if let Some(places) = parsed.targets.first().filter(|_| !has(Role::Data)) {
        let problem = format!("server {name:?} has a target but not the data role");
        return Err(source.refuse(
            places.id.clone(),
            problem,
            "add \"data\" to its roles, or remove the target",
        ));
    }
    if parsed.metadata_path.is_none() && parsed.targets.is_empty() {
        let problem = format!("server {name:?} has no role");
        return Err(source.refuse(
            parsed.span.clone(),
            problem,
            "give it a [[server.target]] or a [server.metadata]",
        ));
    }
    Ok(())
}

fn metadata_role(source: &Source<'_>, servers: &[ParsedServer]) -> Result<(), ConfigError> {
    let mut with =
        servers.iter().filter_map(|parsed| parsed.metadata_path.as_ref().map(|(_, span)| (parsed, span)));
    let Some((first, _)) = with.next() else {
        let remedy = "give one server a [server.metadata] section with path = \"/var/lib/weft/metadata\"";
        return Err(source.refuse(servers[0].span.clone(), "no server has the metadata role", remedy));
    };
    if let Some((second, span)) = with.next() {
        let problem = format!(
            "servers {:?} and {:?} both have the metadata role, but a cluster has one metadata server",
            first.server.name, second.server.name
        );
        return Err(source.refuse(span.clone(), problem, "remove [server.metadata] from all but one server"));
    }
    Ok(())
}

fn names_and_addresses(source: &Source<'_>, servers: &[ParsedServer]) -> Result<(), ConfigError> {
    let mut names = BTreeMap::new();
    let mut addresses = BTreeMap::new();
    for parsed in servers {
        let name = parsed.server.name.as_str();
        if names.insert(name, ()).is_some() {
            let problem = format!("two servers are named {name:?}");
            return Err(source.refuse(parsed.name_span.clone(), problem, "give each server a unique name"));
        }
        for (address, span) in parsed.server.addresses.iter().zip(&parsed.address_spans) {
            // The path of a socket identifies the same socket only on the same host.
            let host = if matches!(address, Address::Unix(_)) { parsed.host() } else { String::new() };
            if let Some(other) = addresses.insert((host, address), name) {
                let problem = format!("servers {other:?} and {name:?} have the same address {address}");
                return Err(source.refuse(span.clone(), problem, "give each server a unique address"));
            }
        }
    }
    Ok(())
}

fn targets(source: &Source<'_>, servers: &[ParsedServer]) -> Result<(), ConfigError> {
    let mut ids = BTreeMap::new();
    let mut paths: Vec<(String, PathBuf, String)> = Vec::new();
    let mut place = |host: &str, path: &Path, what: String, span: &Range<usize>| {
        for (other_host, other, other_what) in &paths {
            if other_host == host && (path.starts_with(other) || other.starts_with(path)) {
                let problem =
                    format!("{what} and {other_what} use the same directory, or one inside the other");
                return Err(source.refuse(span.clone(), problem, "give each a separate directory"));
            }
        }
        paths.push((host.to_owned(), path.to_owned(), what));
        Ok(())
    };
    for parsed in servers {
        let host = parsed.host();
        if let Some((path, span)) = &parsed.metadata_path {
            place(&host, path, format!("the metadata of server {:?}", parsed.server.name), span)?;
        }
        for (target, places) in parsed.server.targets.iter().zip(&parsed.targets) {
            if let Some(other) = ids.insert(target.id, &parsed.server.name) {
                let problem =
                    format!("target id {} is already used by a target of server {other:?}", target.id.0);
                let remedy = "layouts refer to targets by id: choose a number that no other target has";
                return Err(source.refuse(places.id.clone(), problem, remedy));
            }
            place(&host, &target.path, format!("target {}", target.id.0), &places.path)?;
            if target.module == Module::Null && target.integrity != Integrity::Off {
                let problem = format!("target {} stores no bytes but has checksums enabled", target.id.0);
                let remedy = "remove the line integrity, or use a module other than null";
                return Err(source.refuse(places.id.clone(), problem, remedy));
            }
            let compresses = target.compression.and_then(CompressionSetting::compression).is_some();
            if target.module == Module::Null && compresses {
                let problem = format!("target {} stores no bytes but has compression enabled", target.id.0);
                let remedy = "remove the line compress, or use a module other than null";
                return Err(source.refuse(places.id.clone(), problem, remedy));
            }
            let of_cache = || places.cache.as_ref().and_then(|places| places.log.as_ref());
            if let (Some((path, _)), Some(at)) = (target.log(), places.ibridge.as_ref().or_else(of_cache)) {
                place(&host, path, format!("the log beside target {}", target.id.0), &at.path)?;
            }
            let of_ibridge = places.ibridge.as_ref().map(|at| ("ibridge", &at.section));
            let of_cache = || places.cache.as_ref().map(|at| ("cache", &at.section));
            let beside = of_ibridge.or_else(of_cache).filter(|_| target.module == Module::Null);
            if let Some((name, at)) = beside {
                let problem = format!("target {} stores nothing but has a log beside it", target.id.0);
                let remedy = format!("remove [server.target.{name}], or use a module other than null");
                return Err(source.refuse(at.clone(), problem, remedy));
            }
        }
    }
    Ok(())
}

/// Checks the fragment limits. Clients name the siblings of requests that they consider fragments. A server with a
/// higher limit would have to judge fragments whose siblings it does not know.
pub(crate) fn fragments(
    source: &Source<'_>,
    servers: &[ParsedServer],
    threshold: ByteLen,
) -> Result<(), ConfigError> {
    for (target, places) in
        servers.iter().flat_map(|parsed| parsed.server.targets.iter().zip(&parsed.targets))
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

/// Checks the mode of the key file: a key that other users can read is not secret. A missing or inaccessible file is an
/// error only where the key is needed.
pub(crate) fn key_mode(source: &Source<'_>, key_file: &Item<PathBuf>) -> Result<(), ConfigError> {
    let Ok(meta) = std::fs::metadata(&key_file.value) else { return Ok(()) };
    if !meta.is_file() {
        let problem = format!("{} is not a file", key_file.value.display());
        return Err(source.refuse(key_file.span.clone(), problem, "make a key with `weft key make FILE`"));
    }
    if meta.mode() & 0o077 != 0 {
        let problem =
            format!("users other than its owner may use the key file (mode {:04o})", meta.mode() & 0o7777);
        let remedy = format!("run: chmod 600 {}", key_file.value.display());
        return Err(source.refuse(key_file.span.clone(), problem, remedy));
    }
    Ok(())
}
