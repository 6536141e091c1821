//! The cluster map on record: servers with their addresses, and targets with their servers, classes and settings.
//!
//! | source | says | counts |
//! | --- | --- | --- |
//! | row of the database | everything | always |
//! | cluster file of the metadata server, at its start | servers that the row does not have, and their targets | until they start |
//! | a server, at its start | its addresses, and class and settings of each target that it attaches | from then on |
//! | `weft server add`, `weft server remove` | servers that may start, or not any more | from then on |
//!
//! The number of a server is its place in the row and never changes. Every change raises the version. The replies of the
//! service carry it, so that clients fetch a map that has changed. In worlds with one fixed map
//! ([`Options::keeps_map`](super::Options::keeps_map) is off) the version is 0.

use super::fault::{Fault, Outcome};
use super::op::{Core, Op, seconds};
use super::tables::{put_row, row};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_core::{AttachToken, ServerId, TargetId, TargetSettings, TargetState, TargetUuid, Timestamp};
use weft_env::Address;
use weft_store::metadata::{
    CLUSTER_MAP_KEY, ClusterMapRow, DOMAINS_KEY, DomainsRow, ServerRow, ServerState, Snapshot, Table,
    TargetPlaceRow, TargetRow, Transaction, target_key,
};
use weft_wire::cluster::{
    Domain, DomainChange, MAP_LEN_MAX, SERVERS_MAX, ServerChange, ServerEntry, TargetEntry, TargetPlace,
    is_name,
};
use weft_wire::meta::MetaReply;
use weft_wire::{ClusterMap, Errno, Level, Levels};

/// Settings of targets.
pub(super) type Settings = BTreeMap<TargetId, TargetSettings>;

/// The current map, shared by all parts of the service.
#[derive(Clone, Debug)]
pub struct SharedMap(Arc<RwLock<Arc<ClusterMap>>>);

impl SharedMap {
    pub(super) fn new(map: ClusterMap) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(map))))
    }

    /// The current map.
    pub fn get(&self) -> Arc<ClusterMap> {
        Arc::clone(&self.0.read())
    }

    fn set(&self, map: ClusterMap) {
        *self.0.write() = Arc::new(map);
    }
}

/// Completes the row from the cluster file of the metadata server, and returns the map and the settings. Names that the
/// file has in spite of their removal are returned, too.
///
/// # Errors
/// The map would be too long for a message.
pub(super) fn begin(
    t: &mut dyn Transaction,
    file: &ClusterMap,
    settings: &Settings,
    now: Timestamp,
) -> Outcome<(ClusterMap, Settings, Vec<String>)> {
    let before = map_row(t)?;
    let mut row = before.clone();
    let mut removed = Vec::new();
    // Numbers of the row by those of the file.
    let mut numbers = BTreeMap::new();
    for (number, entry) in file.numbered() {
        let addresses = texts(&entry.addresses);
        let found = row.servers.iter_mut().enumerate().find(|(_, known)| known.name == entry.name);
        let Some((at, known)) = found else {
            numbers.insert(number, ServerId(row.servers.len() as u32));
            row.servers.push(ServerRow { name: entry.name.clone(), addresses, state: ServerState::Named });
            continue;
        };
        match known.state {
            ServerState::Removed => removed.push(entry.name.clone()),
            ServerState::Named => {
                known.addresses = addresses;
                numbers.insert(number, ServerId(at as u32));
            }
            ServerState::Expected | ServerState::Registered => {
                numbers.insert(number, ServerId(at as u32));
            }
        }
    }
    for entry in &file.targets {
        let Some(server) = numbers.get(&entry.server).copied() else { continue };
        let disk: Option<TargetRow> = self::row(t, Table::Targets, &target_key(entry.id))?;
        let found = row.targets.iter().find(|known| known.target == entry.id);
        let is_known = found.is_some_and(|place| {
            let server = row.servers.get(place.server.0 as usize);
            disk.is_some_and(|disk| disk.may_hold_data())
                || server.is_some_and(|server| server.state == ServerState::Registered)
        });
        if is_known || disk.is_some_and(|disk| disk.state == TargetState::Retired) {
            continue;
        }
        let settings = settings.get(&entry.id).copied().unwrap_or_default();
        put_place(
            &mut row,
            TargetPlaceRow { target: entry.id, server, class: entry.class.clone(), settings },
        );
    }
    let metadata = file.server(file.metadata).name.as_str();
    let map = match row == before {
        true => published(t, &row, (&file.name, metadata))?,
        false => put_map(t, &mut row, (&file.name, metadata), now)?,
    };
    Ok((map, settings_of(&row), removed))
}

fn map_row(s: &dyn Snapshot) -> Outcome<ClusterMapRow> {
    Ok(row(s, Table::Counters, CLUSTER_MAP_KEY)?.unwrap_or_default())
}

fn domains_row(s: &dyn Snapshot) -> Outcome<DomainsRow> {
    Ok(row(s, Table::Counters, DOMAINS_KEY)?.unwrap_or_default())
}

/// Writes a row that has changed, with a higher version, and returns its map.
fn put_map(
    t: &mut dyn Transaction,
    row: &mut ClusterMapRow,
    names: (&str, &str),
    now: Timestamp,
) -> Outcome<ClusterMap> {
    // After an older copy of the database was restored, clients may know versions that this copy does not. The time keeps
    // versions from coming back with another meaning.
    let clock = u32::try_from(seconds(now)).unwrap_or(0);
    row.version = row.version.saturating_add(1).max(clock);
    let map = published(t, row, names)?;
    if map.servers.len() > SERVERS_MAX || map.encoded_len() > MAP_LEN_MAX {
        const WHY: &str = "the cluster has too many servers, targets and addresses for one map";
        return Err(Fault::new(Errno::EFBIG, WHY));
    }
    put_row(t, Table::Counters, CLUSTER_MAP_KEY, row);
    Ok(map)
}

fn put_place(row: &mut ClusterMapRow, place: TargetPlaceRow) {
    match row.targets.binary_search_by_key(&place.target, |known| known.target) {
        Ok(at) => row.targets[at] = place,
        Err(at) => row.targets.insert(at, place),
    }
}

fn texts(addresses: &[Address]) -> Vec<String> {
    addresses.iter().map(ToString::to_string).collect()
}

/// The map that clients see. `names` are those of the cluster and of the metadata server.
fn published(
    s: &dyn Snapshot,
    row: &ClusterMapRow,
    (cluster, metadata): (&str, &str),
) -> Outcome<ClusterMap> {
    let entry = |server: &ServerRow| {
        if server.state == ServerState::Removed || server.addresses.is_empty() {
            return Ok(ServerEntry::default());
        }
        let addresses = server.addresses.iter().map(|text| {
            text.parse::<Address>()
                .map_err(|error| Fault::new(Errno::EIO, format!("metadata database: {error}")))
        });
        Ok(ServerEntry { name: server.name.clone(), addresses: addresses.collect::<Outcome<_>>()? })
    };
    let place = |place: &TargetPlaceRow| TargetEntry {
        id: place.target,
        server: place.server,
        class: place.class.clone(),
    };
    let number = row.servers.iter().position(|server| server.name == metadata).unwrap_or(0);
    let domain = |(host, rack)| Domain { host, rack };
    Ok(ClusterMap {
        name: cluster.to_owned(),
        version: row.version,
        servers: row.servers.iter().map(entry).collect::<Outcome<_>>()?,
        targets: row.targets.iter().map(place).collect(),
        metadata: ServerId(number as u32),
        domains: domains_row(s)?.servers.into_iter().map(domain).collect(),
    })
}

fn settings_of(row: &ClusterMapRow) -> Settings {
    row.targets.iter().map(|place| (place.target, place.settings)).collect()
}

/// Whether the disk of a target may hold data of files.
fn may_hold_data(s: &dyn Snapshot, target: TargetId) -> Outcome<bool> {
    let row: Option<TargetRow> = row(s, Table::Targets, &target_key(target))?;
    Ok(row.is_some_and(|row| row.may_hold_data()))
}

impl Core {
    /// Makes a new map the current one, everywhere in the service.
    fn take_map(&self, map: ClusterMap, settings: &Settings) {
        let before = self.map.get();
        self.registry.set_named(&map);
        self.server_health.set_map(&map, settings);
        self.reservations.set_limits(settings, |target| before.server_of(target).is_none());
        self.compression.write().set_targets(settings);
        self.map.set(map);
    }
}

impl Op<'_> {
    fn change_map(
        &self,
        t: &mut dyn Transaction,
        before: &ClusterMapRow,
        mut row: ClusterMapRow,
    ) -> Outcome<()> {
        if row == *before {
            return Ok(());
        }
        let now = self.core.map.get();
        let map = put_map(t, &mut row, (&now.name, &now.server(now.metadata).name), self.now)?;
        self.core.take_map(map, &settings_of(&row));
        Ok(())
    }

    fn require_kept_map(&self) -> Outcome<()> {
        match self.core.keeps_map {
            true => Ok(()),
            false => Err(Fault::new(Errno::EINVAL, "the servers of this cluster do not change")),
        }
    }

    pub(super) fn cluster_map(&self) -> MetaReply {
        MetaReply::of_map(&self.core.map.get(), self.level)
    }

    /// Records the addresses of a server that starts.
    pub(super) fn register_server(
        &self,
        t: &mut dyn Transaction,
        (name, levels): (&str, Levels),
        addresses: &[Address],
        targets: &[TargetId],
        format: bool,
    ) -> Outcome<MetaReply> {
        self.require_kept_map()?;
        check_name(name)?;
        let before = map_row(t)?;
        let mut row = before.clone();
        let found = row.servers.iter().position(|server| server.name == name);
        let refused = |why: &str| {
            let detail = format!("server {name} {why}: `weft server add {name}`, then start it again");
            Err(Fault::new(Errno::EPERM, detail))
        };
        let at = match found {
            Some(at) if row.servers[at].state == ServerState::Removed => {
                return refused("was removed from the cluster");
            }
            Some(at) => at,
            None if format => {
                let state = ServerState::Expected;
                row.servers.push(ServerRow { name: name.to_owned(), addresses: Vec::new(), state });
                row.servers.len() - 1
            }
            None => return refused("is not part of the cluster"),
        };
        let server = ServerId(at as u32);
        let level = self.note_levels(t, (name, server), levels)?;
        let mut omitted = Vec::new();
        for place in row.targets.iter().filter(|place| place.server == server) {
            if !targets.contains(&place.target) && may_hold_data(t, place.target)? {
                omitted.push(place.target.0.to_string());
            }
        }
        if !omitted.is_empty() {
            let detail = format!(
                "the cluster file omits target {}, which server {name} had and which may hold data: name it again; to \
                 take a target out, `weft target drain` and `weft target remove` come first; if another server has its \
                 disk now, start that server first",
                omitted.join(", ")
            );
            return Err(Fault::new(Errno::EINVAL, detail));
        }
        row.targets.retain(|place| place.server != server || targets.contains(&place.target));
        let state = std::mem::replace(&mut row.servers[at].state, ServerState::Registered);
        row.servers[at].addresses = texts(addresses);
        if state == ServerState::Expected {
            for target in targets {
                self.let_join(t, *target)?;
            }
        }
        self.change_map(t, &before, row)?;
        Ok(MetaReply::Registered { server, level })
    }

    /// Lets a blank disk become a target that is not on record.
    fn let_join(&self, t: &mut dyn Transaction, target: TargetId) -> Outcome<()> {
        if row::<TargetRow>(t, Table::Targets, &target_key(target))?.is_none() {
            let (uuid, token) = (TargetUuid::NONE, AttachToken::NONE);
            let joining = TargetRow { uuid, state: TargetState::Joining, token, accepts: false };
            self.core.registry.put(t, target, joining);
        }
        Ok(())
    }

    /// Records where a target has attached.
    pub(super) fn place_target(
        &self,
        t: &mut dyn Transaction,
        target: TargetId,
        place: Option<TargetPlace>,
    ) -> Outcome<()> {
        let Some(TargetPlace { server, class, settings }) = place.filter(|_| self.core.keeps_map) else {
            return Ok(());
        };
        let before = map_row(t)?;
        if before.servers.get(server.0 as usize).is_none_or(|row| row.state != ServerState::Registered) {
            let detail = format!("{target} attached at {server}, which has not registered: start it again");
            return Err(Fault::new(Errno::EAGAIN, detail));
        }
        let mut row = before.clone();
        put_place(&mut row, TargetPlaceRow { target, server, class, settings });
        self.change_map(t, &before, row)
    }

    /// Forgets where a target was, which was removed from the cluster.
    pub(super) fn forget_place(&self, t: &mut dyn Transaction, target: TargetId) -> Outcome<()> {
        if !self.core.keeps_map {
            return Ok(());
        }
        let before = map_row(t)?;
        let mut row = before.clone();
        row.targets.retain(|place| place.target != target);
        self.change_map(t, &before, row)
    }

    pub(super) fn change_server(
        &self,
        t: &mut dyn Transaction,
        name: &str,
        change: ServerChange,
    ) -> Outcome<MetaReply> {
        self.require_kept_map()?;
        let refused = |errno, why: &str| Err(Fault::new(errno, format!("server {name}: {why}")));
        let before = map_row(t)?;
        let mut row = before.clone();
        let found = row.servers.iter().position(|server| server.name == name);
        match (change, found) {
            (ServerChange::Add, found) => {
                check_name(name)?;
                let (name, state) = (name.to_owned(), ServerState::Expected);
                match found {
                    // It may be running, and keeps its addresses.
                    Some(at) => row.servers[at].state = state,
                    None => row.servers.push(ServerRow { name, addresses: Vec::new(), state }),
                }
                let targets = row.targets.iter().filter(|place| Some(place.server.0 as usize) == found);
                for target in targets.map(|place| place.target).collect::<Vec<_>>() {
                    self.let_join(t, target)?;
                }
            }
            (ServerChange::Remove, None) => {
                let known = row.servers.iter().filter(|server| server.state != ServerState::Removed);
                let known: Vec<_> = known.map(|server| server.name.as_str()).collect();
                return refused(Errno::EINVAL, &format!("not on record; there are {}", known.join(", ")));
            }
            (ServerChange::Remove, Some(at)) => {
                let server = ServerId(at as u32);
                if server == self.core.map.get().metadata {
                    return refused(Errno::EINVAL, "it has the metadata of the cluster");
                }
                for place in row.targets.iter().filter(|place| place.server == server) {
                    if may_hold_data(t, place.target)? {
                        let why = format!(
                            "target {0} may hold data of files: `weft target drain {0}`, then remove the server",
                            place.target.0
                        );
                        return refused(Errno::EBUSY, &why);
                    }
                }
                row.targets.retain(|place| place.server != server);
                row.servers[at].state = ServerState::Removed;
                row.servers[at].addresses.clear();
                put_domain(t, server, &Domain::default())?;
            }
        }
        self.change_map(t, &before, row)?;
        Ok(self.cluster_map())
    }
}

impl Op<'_> {
    /// Names the failure domain of a server.
    pub(super) fn set_domain(
        &self,
        t: &mut dyn Transaction,
        name: &str,
        change: &DomainChange,
    ) -> Outcome<MetaReply> {
        self.require_kept_map()?;
        self.require_level(t, Level::DOMAINS, "failure domains")?;
        for label in [&change.host, &change.rack].into_iter().flatten().filter(|label| !label.is_empty()) {
            if !is_name(label) {
                let why =
                    "names of hosts and racks have up to 64 letters, digits, dots, dashes and underscores";
                return Err(Fault::new(Errno::EINVAL, format!("{label:?}: {why}")));
            }
        }
        let now = self.core.map.get();
        let Some(server) = now.number_of(name) else {
            let known: Vec<_> = now.numbered().map(|(_, entry)| entry.name.as_str()).collect();
            let detail = format!("server {name}: it has not started; there are {}", known.join(", "));
            return Err(Fault::new(Errno::EINVAL, detail));
        };
        let before = now.domains.get(server.0 as usize).cloned().unwrap_or_default();
        let domain = Domain {
            host: change.host.clone().unwrap_or(before.host),
            rack: change.rack.clone().unwrap_or(before.rack),
        };
        put_domain(t, server, &domain)?;
        let mut row = map_row(t)?;
        let map = put_map(t, &mut row, (&now.name, &now.server(now.metadata).name), self.now)?;
        self.core.take_map(map, &settings_of(&row));
        Ok(self.cluster_map())
    }
}

/// Writes the failure domain of a server, unless nothing changes.
fn put_domain(t: &mut dyn Transaction, server: ServerId, domain: &Domain) -> Outcome<()> {
    let mut row = domains_row(t)?;
    let (at, names) = (server.0 as usize, (domain.host.clone(), domain.rack.clone()));
    if row.servers.get(at).map_or(*domain == Domain::default(), |known| *known == names) {
        return Ok(());
    }
    row.servers.resize(row.servers.len().max(at + 1), Default::default());
    row.servers[at] = names;
    put_row(t, Table::Counters, DOMAINS_KEY, &row);
    Ok(())
}

/// Refuses a name that no cluster file can have.
fn check_name(name: &str) -> Outcome<()> {
    if is_name(name) {
        return Ok(());
    }
    let why = "a server's name has up to 64 letters, digits, dots, dashes and underscores";
    Err(Fault::new(Errno::EINVAL, why))
}
