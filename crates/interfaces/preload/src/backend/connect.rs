//! Creates the client from the cluster file and the environment.

use crate::errno::{Fail, Res};
use crate::{placeholder, sys};
use weft_client::{Client, ClientOptions, Transport};
use weft_config::Cluster;
use weft_env::real::RealEnv;

/// Creates a client that connects at its first use.
pub fn client(cluster: &Cluster) -> Res<Client<RealEnv>> {
    let credentials = cluster.credentials().map_err(|error| {
        sys::complain(&error.to_string());
        Fail::Errno(libc::EACCES)
    })?;
    let env = RealEnv::with_fd_floor(placeholder::floor());
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
