//! The cluster map: servers with their addresses, and the servers of targets.
//!
//! The metadata service keeps the map. A client begins with version 0, which its cluster file describes; it need not name
//! more than the metadata server. The client fetches the map as soon as a reply carries another version
//! ([`Header::map_version`](crate::Header::map_version)).

use crate::bounded;
use crate::meta::AVERAGES_MAX;
use serde::{Deserialize, Serialize};
use weft_core::{Candidate, ServerId, TargetId, TargetSettings};
use weft_env::Address;

/// Maximum number of servers in a map.
pub const SERVERS_MAX: usize = 4096;
/// Maximum number of addresses of a server.
pub const ADDRESSES_MAX: usize = 16;
/// Maximum length of an encoded map in bytes.
pub const MAP_LEN_MAX: usize = 1 << 19;

/// Maximum length of the name of a cluster, server or class.
const NAME_LEN_MAX: usize = 64;

/// Whether this can be the name of a cluster, server or class, which appears in messages, file names and commands.
pub fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=NAME_LEN_MAX).contains(&text.len()) && text.chars().all(plain) && !text.starts_with(['-', '.'])
}

/// Servers and targets of one cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClusterMap {
    /// Name, sent in every greeting so that a client cannot use another cluster by mistake.
    pub name: String,
    /// Version, which each change raises; 0 for a map that does not come from the metadata service.
    pub version: u32,
    /// All servers; a [`ServerId`] is an index into this list. Entries of servers that were removed, or that have never
    /// started, are blank, so that numbers never change.
    #[serde(deserialize_with = "bounded::vec::<_, _, SERVERS_MAX>")]
    pub servers: Vec<ServerEntry>,
    /// All targets, in ascending order of their ids.
    #[serde(deserialize_with = "bounded::vec::<_, _, AVERAGES_MAX>")]
    pub targets: Vec<TargetEntry>,
    /// Server with the metadata role.
    pub metadata: ServerId,
    /// Failure domains by the number of the server; shorter than `servers` if the last ones have none. Sent apart,
    /// because level 1 does not have them.
    #[serde(skip)]
    pub domains: Vec<Domain>,
}

/// Failure domain of a server, as an administrator has named it. Servers with the same names are expected to fail together.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug, Serialize, Deserialize)]
pub struct Domain {
    /// Host; empty if not named.
    pub host: String,
    /// Rack; empty if not named.
    pub rack: String,
}

/// Change of a server's failure domain; `None` leaves a name as it is, an empty one removes it.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct DomainChange {
    /// Host.
    pub host: Option<String>,
    /// Rack.
    pub rack: Option<String>,
}

/// One server.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ServerEntry {
    /// Name in the cluster file; empty in a blank entry.
    pub name: String,
    /// Addresses in the order in which a client tries them. Unix sockets, which work only on the server's own node,
    /// come first.
    #[serde(with = "addresses")]
    pub addresses: Vec<Address>,
}

impl ServerEntry {
    /// Host of the first network address; `localhost` if there is none.
    pub fn host(&self) -> String {
        let host = self.addresses.iter().find_map(|address| match address {
            Address::Tcp(host, _) => Some(host.clone()),
            Address::Unix(_) => None,
        });
        host.unwrap_or_else(|| "localhost".to_owned())
    }

    /// Whether this is the place of a server that was removed, or has never started.
    pub fn is_blank(&self) -> bool {
        self.name.is_empty()
    }
}

/// One target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TargetEntry {
    /// Number of the target.
    pub id: TargetId,
    /// Server that has the target.
    pub server: ServerId,
    /// Class: `hdd`, `ssd`, `nvme` or any other name.
    pub class: String,
}

/// Where a target is, and its settings, as the server reports them that attaches it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TargetPlace {
    /// Server that has the target.
    pub server: ServerId,
    /// Class.
    pub class: String,
    /// Settings.
    pub settings: TargetSettings,
}

/// Change of a server on record by an administrator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ServerChange {
    /// Lets a server of this name start, and its targets join.
    Add,
    /// Removes the server, whose targets are all removed.
    Remove,
}

impl ClusterMap {
    /// Returns the server that has `target`.
    pub fn server_of(&self, target: TargetId) -> Option<ServerId> {
        let at = self.targets.binary_search_by_key(&target, |entry| entry.id).ok()?;
        Some(self.targets[at].server)
    }

    /// Returns all targets as candidates for layouts.
    pub fn candidates(&self) -> Vec<Candidate<'_>> {
        let all = self.targets.iter();
        all.map(|entry| Candidate { target: entry.id, server: entry.server, class: &entry.class }).collect()
    }

    /// Returns the entry of `server`.
    ///
    /// # Panics
    /// If there is no such server: ids come from this map.
    pub fn server(&self, server: ServerId) -> &ServerEntry {
        &self.servers[server.0 as usize]
    }

    /// Returns the servers with their numbers, without blank entries.
    pub fn numbered(&self) -> impl Iterator<Item = (ServerId, &ServerEntry)> {
        let all = self.servers.iter().enumerate().map(|(number, entry)| (ServerId(number as u32), entry));
        all.filter(|(_, entry)| !entry.is_blank())
    }

    /// Returns the number of the server with this name.
    pub fn number_of(&self, name: &str) -> Option<ServerId> {
        self.numbered().find(|(_, entry)| entry.name == name).map(|(number, _)| number)
    }

    /// Returns the failure domain of `server`. A host that is not named follows from the first network address; servers
    /// without one are all on this host.
    pub fn domain_of(&self, server: ServerId) -> Domain {
        let named = self.domains.get(server.0 as usize).cloned().unwrap_or_default();
        let host = if named.host.is_empty() { self.server(server).host() } else { named.host };
        Domain { host, ..named }
    }

    /// Length of the encoded map with its failure domains in bytes, which must not exceed [`MAP_LEN_MAX`].
    pub fn encoded_len(&self) -> usize {
        postcard::to_allocvec(&(self, &self.domains)).map_or(usize::MAX, |bytes| bytes.len())
    }
}

/// Addresses as lists of their text.
pub(crate) mod addresses {
    use super::ADDRESSES_MAX;
    use crate::bounded;
    use serde::de::Error;
    use serde::{Deserializer, Serializer};
    use weft_env::Address;

    pub(crate) fn serialize<S: Serializer>(addresses: &[Address], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(addresses.iter().map(ToString::to_string))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Address>, D::Error> {
        let texts = bounded::vec::<_, String, ADDRESSES_MAX>(from)?;
        texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_entries_keep_the_numbers_of_the_others() {
        let entry = |name: &str| ServerEntry {
            name: name.into(),
            addresses: vec![Address::Unix("/run/s".into()), Address::Tcp("host".into(), 7411)],
        };
        let map = ClusterMap {
            name: "c".into(),
            version: 300,
            servers: vec![entry("a"), ServerEntry::default(), entry("b")],
            targets: vec![TargetEntry { id: TargetId(7), server: ServerId(2), class: "hdd".into() }],
            metadata: ServerId(0),
            domains: Vec::new(),
        };
        let numbers: Vec<_> = map.numbered().map(|(number, entry)| (number.0, entry.name.as_str())).collect();
        assert_eq!(numbers, [(0, "a"), (2, "b")]);
        assert_eq!((map.number_of("b"), map.number_of("")), (Some(ServerId(2)), None));
        let bytes = postcard::to_allocvec(&map).expect("encodes");
        assert_eq!(postcard::from_bytes::<ClusterMap>(&bytes), Ok(map.clone()));
        assert_eq!(map.encoded_len(), bytes.len() + 1, "with an empty list of domains");
        assert_eq!(map.domain_of(ServerId(2)), Domain { host: "host".into(), rack: String::new() });
        let domain = Domain { host: "h7".into(), rack: "r1".into() };
        let named = ClusterMap { domains: vec![domain.clone()], ..map };
        assert_eq!(named.domain_of(ServerId(0)), domain);
        assert_eq!(postcard::to_allocvec(&named).expect("encodes"), bytes, "level 1 does not have domains");
        let bad = bytes.windows(4).position(|four| four == b"unix").expect("an address");
        let mut bad_bytes = bytes;
        bad_bytes[bad] = b'x';
        assert!(postcard::from_bytes::<ClusterMap>(&bad_bytes).is_err());
    }
}
