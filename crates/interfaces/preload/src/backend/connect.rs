//! Creates the client from the cluster file and the environment.

use crate::errno::{Fail, Res};
use crate::{placeholder, sys};
use weft_client::{Client, ClientOptions, Transport};
use weft_config::Cluster;
use weft_env::real::{RealEnv, User};
use weft_wire::hello::Identity;

/// Creates a client of `user` that connects at its first use.
pub fn client(cluster: &Cluster, user: &Identity) -> Res<Client<RealEnv>> {
    let credentials = cluster.credentials_of(user).map_err(|error| {
        sys::complain(&error.to_string());
        Fail::Errno(libc::EACCES)
    })?;
    let user = User { uid: user.uid, gid: user.gid, groups: user.groups.clone() };
    // Never freed, like the sessions of this process.
    let env = RealEnv::with_fd_floor(placeholder::floor()).as_user(Box::leak(Box::new(user)));
    let job = super::delegates::job_number()?;
    Ok(Client::new(env, cluster.map(), ClientOptions { job, ..options(cluster) }, credentials))
}

/// Returns the options of the cluster file, with the transport from the environment if it names one.
fn options(cluster: &Cluster) -> ClientOptions {
    let own = cluster.client_options();
    let transport = match crate::config::variable("WEFT_TRANSPORT") {
        Some(b"socket") => Transport::Socket,
        Some(b"descriptor") => Transport::Descriptor,
        Some(b"auto") => Transport::Auto,
        _ => own.transport,
    };
    ClientOptions { transport, ranks: crate::over::replicas::ranks(), ..own }
}
