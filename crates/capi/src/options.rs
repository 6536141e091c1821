//! From the cluster file to a client of the cluster.

use crate::fail::{Fail, Res};
use weft_client::{ClientOptions, Credentials};
use weft_config::{Cluster, Key};
use weft_core::SplitPolicy;
use weft_wire::ClusterSecret;
use weft_wire::hello::Role;

/// How a client of this cluster is to behave.
pub fn client_options(cluster: &Cluster) -> ClientOptions {
    let own = &cluster.client;
    ClientOptions {
        transport: match own.transport {
            weft_config::TransportChoice::Auto => weft_client::Transport::Auto,
            weft_config::TransportChoice::Descriptor => weft_client::Transport::Descriptor,
            weft_config::TransportChoice::Socket => weft_client::Transport::Socket,
        },
        connect_timeout: own.connect_timeout,
        request_timeout: own.request_timeout,
        connections_max: own.connections_max,
        metadata_connections_max: own.connections_max,
        split: match own.fragment_threshold {
            weft_core::ByteLen(0) => SplitPolicy::Off,
            threshold => SplitPolicy::Below(threshold),
        },
        checksums: match own.checksums {
            weft_config::Checksums::Auto => weft_client::Checksums::Auto,
            weft_config::Checksums::On => weft_client::Checksums::On,
            weft_config::Checksums::Off => weft_client::Checksums::Off,
        },
        pid: std::process::id(),
        ..ClientOptions::default()
    }
}

/// Who this process is, and by which key it proves that on the network.
pub fn credentials(cluster: &Cluster) -> Res<Credentials> {
    // SAFETY: these calls have no preconditions and cannot fail.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    let own = Credentials::user(uid, gid, groups());
    let key = cluster.client_key().map_err(|error| Fail::new(libc::EACCES, error.to_string()))?;
    Ok(match key {
        None => own,
        Some(Key::Cluster(key)) => {
            own.with_key(weft_client::Key::Cluster(Box::new(ClusterSecret::new(&key))))
        }
        // The key proves the identity that it was made for, and no other.
        Some(Key::User(identity, key)) => {
            Credentials { role: Role::Client(identity), key: weft_client::Key::Identity(key) }
        }
    })
}

/// The supplementary groups of this process.
fn groups() -> Vec<u32> {
    let mut groups = vec![0; 65_536];
    // SAFETY: at most as many groups are written as the buffer has room for.
    let count = unsafe { libc::getgroups(groups.len() as i32, groups.as_mut_ptr()) };
    groups.truncate(count.max(0) as usize);
    groups
}
