//! The client by the cluster file and the environment.

use crate::errno::{Fail, Res};
use crate::{placeholder, sys};
use weft_client::{Client, ClientOptions, Credentials, Key, Transport};
use weft_config::{Checksums, Cluster, TransportChoice};
use weft_env::real::RealEnv;

/// A client that connects when first needed.
pub fn client(cluster: &Cluster) -> Res<Client<RealEnv>> {
    let key = cluster.client_key().map_err(|error| {
        sys::complain(&error.to_string());
        Fail::Errno(libc::EACCES)
    })?;
    let key = match key {
        None => Key::None,
        Some(weft_config::Key::User(_, key)) => Key::Identity(key),
        Some(weft_config::Key::Cluster(key)) => Key::Cluster(Box::new(weft_wire::ClusterSecret::new(&key))),
    };
    // SAFETY: plain questions; the list of groups is as long as the kernel says.
    let credentials = unsafe {
        let count = libc::getgroups(0, std::ptr::null_mut()).max(0);
        let mut groups = vec![0; count as usize];
        let count = libc::getgroups(count, groups.as_mut_ptr()).max(0);
        groups.truncate(count as usize);
        Credentials::user(libc::geteuid(), libc::getegid(), groups)
    };
    let env = RealEnv::with_fd_floor(placeholder::floor());
    Ok(Client::new(env, cluster.map(), options(cluster), credentials.with_key(key)))
}

fn options(cluster: &Cluster) -> ClientOptions {
    let from = &cluster.client;
    ClientOptions {
        transport: match (crate::config::variable("WEFT_TRANSPORT"), from.transport) {
            (Some(b"socket"), _) => Transport::Socket,
            (Some(b"descriptor"), _) => Transport::Descriptor,
            (Some(b"auto"), _) | (_, TransportChoice::Auto) => Transport::Auto,
            (_, TransportChoice::Socket) => Transport::Socket,
            (_, TransportChoice::Descriptor) => Transport::Descriptor,
        },
        connect_timeout: from.connect_timeout,
        request_timeout: from.request_timeout,
        checksums: match from.checksums {
            Checksums::Auto => weft_client::Checksums::Auto,
            Checksums::On => weft_client::Checksums::On,
            Checksums::Off => weft_client::Checksums::Off,
        },
        connections_max: from.connections_max,
        // SAFETY: a plain question.
        pid: unsafe { libc::getpid() } as u32,
        ..ClientOptions::default()
    }
}
