//! Description and state of the cluster, as JSON.

use crate::args;
use crate::connection::{Weft, connection};
use crate::fail::{Fail, Res, exported};
use libc::{size_t, ssize_t};
use serde_json::{Value, json};
use std::ffi::c_char;
use weft_client::{Client, ClientOptions};
use weft_config::{Cluster, Server};
use weft_core::Nanos;
use weft_env::real::{RealEnv, block_on};
use weft_wire::status::ServerStatus;

/// Time after which a server without a reply counts as down, as for `weft status`.
const REPLY_DEADLINE: Nanos = Nanos::from_ms(2500);

fn describe_server(server: &Server) -> Value {
    let addresses: Vec<_> = server.addresses.iter().map(ToString::to_string).collect();
    let target = |target: &weft_config::Target| json!({ "id": target.id.0, "class": target.class });
    json!({
        "name": server.name,
        "addresses": addresses,
        "metadata": server.metadata.is_some(),
        "targets": server.targets.iter().map(target).collect::<Vec<_>>(),
    })
}

fn describe(cluster: &Cluster) -> Value {
    json!({
        "cluster": cluster.name,
        "file": cluster.file,
        "mount": cluster.mount,
        "embedded": cluster.embedded.is_some(),
        "emulated": cluster.emulated(),
        "servers": cluster.servers.iter().map(describe_server).collect::<Vec<_>>(),
    })
}

/// Asks a server for its state, by connections of its own: those of files wait longer for a silent server.
fn ask(cluster: &Cluster, name: &str) -> Res<ServerStatus> {
    let Some((id, _)) = cluster.server(name) else {
        let names: Vec<_> = cluster.servers.iter().map(|server| server.name.as_str()).collect();
        let file = cluster.file.display();
        let sentence = format!("server {name}: not in {file}; its servers are {}", names.join(", "));
        return Err(Fail::new(libc::ENOENT, sentence));
    };
    let credentials = cluster.credentials().map_err(|error| Fail::new(libc::EACCES, error.to_string()))?;
    let options = ClientOptions {
        connect_timeout: REPLY_DEADLINE,
        request_timeout: REPLY_DEADLINE,
        retry_for: Nanos(0),
        ..cluster.client_options()
    };
    let client = Client::new(RealEnv::new(), cluster.map(), options, credentials);
    Ok(block_on(client.status(id))?)
}

/// Stores a text like the calls on extended attributes.
///
/// # Safety
/// See [`args::copy_out`].
unsafe fn put(text: &str, place: *mut c_char, size: size_t) -> Res<ssize_t> {
    // SAFETY: the caller's promise.
    unsafe { args::copy_out(text.as_bytes(), place.cast(), size) }
}

exported! {
    fn weft_describe(weft: *const Weft, json: *mut c_char, size: size_t) -> ssize_t | -1; {
        // SAFETY: pointers of the caller.
        let weft = unsafe { connection(weft)? };
        // SAFETY: as above.
        unsafe { put(&describe(&weft.cluster).to_string(), json, size) }
    }

    fn weft_server_status(
        weft: *const Weft,
        server: *const c_char,
        json: *mut c_char,
        size: size_t,
    ) -> ssize_t | -1; {
        // SAFETY: pointers of the caller.
        let (weft, server) = unsafe { (connection(weft)?, args::text(server, "the server")?) };
        let status = ask(&weft.cluster, server)?;
        let text = serde_json::to_string(&status)
            .map_err(|error| Fail::new(libc::EIO, format!("server {server}: status as JSON: {error}")))?;
        // SAFETY: as above.
        unsafe { put(&text, json, size) }
    }
}
