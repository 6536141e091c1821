//! Client options and credentials of a cluster.

use crate::key::{Key, KeyError};
use crate::model::{self, Cluster};
use std::sync::Arc;
use weft_client::{ClientOptions, Credentials, KeyRenewal, MetadataSearch};
use weft_core::{Nanos, SplitPolicy};
use weft_wire::hello::{Identity, Role};
use weft_wire::keys::Holder;

/// Default time for which requests of programs and mounts are repeated to a server of a cluster that does not answer: an
/// outage is a pause.
const RETRY_FOR: Nanos = Nanos::from_s(15 * 60);
/// Default of that time for commands, and for programs with an embedded cluster, whose servers nobody else starts again.
const RETRY_FOR_BRIEFLY: Nanos = Nanos::from_s(5);

impl Cluster {
    /// Returns the options of a command: someone waits for its answer, which may be that a server does not answer.
    pub fn command_options(&self) -> ClientOptions {
        let retry_for = self.client.retry_for.unwrap_or(RETRY_FOR_BRIEFLY);
        ClientOptions { retry_for, ..self.client_options() }
    }

    /// Returns the options of a program or mount that uses this cluster.
    pub fn client_options(&self) -> ClientOptions {
        let own = &self.client;
        let usual = if self.embedded.is_some() { RETRY_FOR_BRIEFLY } else { RETRY_FOR };
        ClientOptions {
            transport: match own.transport {
                model::TransportChoice::Auto => weft_client::Transport::Auto,
                model::TransportChoice::Descriptor => weft_client::Transport::Descriptor,
                model::TransportChoice::Socket => weft_client::Transport::Socket,
            },
            connect_timeout: own.connect_timeout,
            request_timeout: own.request_timeout,
            retry_for: own.retry_for.unwrap_or(usual),
            connections_max: own.connections_max,
            metadata_connections_max: own.connections_max,
            same_processor: own.same_processor,
            leases_max: own.leases_max as usize,
            split: match own.fragment_threshold {
                weft_core::ByteLen(0) => SplitPolicy::Off,
                threshold => SplitPolicy::Below(threshold),
            },
            checksums: match own.checksums {
                model::Checksums::Auto => weft_client::Checksums::Auto,
                model::Checksums::On => weft_client::Checksums::On,
                model::Checksums::Off => weft_client::Checksums::Off,
            },
            security: self.security,
            ranks: crate::replicas::rank_count(|name| std::env::var(name).ok()),
            metadata_search: Some(self.metadata_search()),
            levels: crate::process::levels(),
            pid: std::process::id(),
            host: crate::process::host_name(),
            program: crate::process::program_name(),
            ..ClientOptions::default()
        }
    }

    /// Returns what reads this file again, and the addresses of the same metadata server if they are others than now.
    fn metadata_search(&self) -> MetadataSearch {
        let of_metadata = |cluster: &Self| {
            let found = cluster.servers.iter().find(|server| server.metadata.is_some());
            found.map(|server| (cluster.name.clone(), server.name.clone(), server.addresses.clone()))
        };
        // The program may change its directory.
        let file = std::path::absolute(&self.file).unwrap_or_else(|_| self.file.clone());
        let before = of_metadata(self);
        MetadataSearch(Arc::new(move || {
            let (cluster, server, addresses) = of_metadata(&Self::load(&file).ok()?)?;
            let (cluster_before, server_before, addresses_before) = before.as_ref()?;
            let is_same = cluster == *cluster_before && server == *server_before;
            (is_same && addresses != *addresses_before).then_some(addresses)
        }))
    }

    /// Returns the identity of this process and the key that proves it on the network.
    ///
    /// # Errors
    /// If a server is reachable only over the network and there is no key.
    pub fn credentials(&self) -> Result<Credentials, KeyError> {
        self.credentials_with(own_identity())
    }

    /// Returns the credentials of this process for a user that it is, or acts for.
    ///
    /// # Errors
    /// As for [`Cluster::credentials`].
    pub fn credentials_of(&self, user: &Identity) -> Result<Credentials, KeyError> {
        self.credentials_with(Credentials::user(user.uid, user.gid, user.groups.clone()))
    }

    fn credentials_with(&self, own: Credentials) -> Result<Credentials, KeyError> {
        Ok(match self.client_key()? {
            Err(why) => own.without_key(&why.to_string()),
            Ok(Key::Cluster(key)) => own.with_key(weft_client::Key::Cluster(Box::new(key.secret()))),
            Ok(Key::Issued(key)) => {
                let role = match &key.claims.holder {
                    // The key proves exactly the identity for which it was issued.
                    Holder::User(identity) => Role::Client(identity.clone()),
                    Holder::Administrator | Holder::Host { .. } | Holder::Server => own.role,
                };
                let cluster = self.clone();
                let renewal = KeyRenewal(Arc::new(move || match cluster.client_key() {
                    Ok(Ok(Key::Issued(key))) => Some(weft_client::Key::Issued(key)),
                    _ => None,
                }));
                Credentials { role, key: weft_client::Key::Issued(key), no_key: None, renewal: Some(renewal) }
            }
        })
    }
}

/// Returns the identity of this process, without a key.
pub(crate) fn own_identity() -> Credentials {
    // SAFETY: these calls have no preconditions and cannot fail.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    Credentials::user(uid, gid, groups())
}

/// Returns the supplementary groups of this process.
fn groups() -> Vec<u32> {
    let mut groups = vec![0; 65_536];
    // SAFETY: the kernel writes at most as many groups as the buffer holds.
    let count = unsafe { libc::getgroups(groups.len() as i32, groups.as_mut_ptr()) };
    groups.truncate(count.max(0) as usize);
    groups
}
