//! Requests for leases, and the channel that they are made on.

use crate::attempts::Attempts;
use crate::connect::connect;
use crate::connection::{describe, unexpected_reply};
use crate::core::Core;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::lease::{Lease, LeaseAnswer, LeasePage, OpenChannel, attach_shared, send_released};
use crate::options::Transport;
use crate::server::{LEASE_CONNECTION_NUMBER, Server};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weft_core::Nanos;
use weft_env::{Conn, Env};
use weft_wire::data::{DataReply, DataRequest, DatafileId, lease};
use weft_wire::{Capability, Errno, Family, WireError};

/// Time after which a server that grants no leases at all is asked again.
const NO_LEASES_RETRY_AFTER: Nanos = Nanos::from_s(30);

/// Requests a lease on a datafile from `server`, for writing too if that is set.
///
/// # Errors
/// `Unreachable`, and errors of the server.
pub(crate) async fn request_lease<E: Env>(
    core: &Core<E>,
    server: &Server<E>,
    (datafile, cap, write): (DatafileId, Capability, bool),
    deadline: Deadline,
) -> Result<LeaseAnswer<E>, Error> {
    if !server.may_be_local() {
        return Ok(LeaseAnswer::Unavailable);
    }
    let channel = &server.channel;
    let guard = if core.options.transport == Transport::Descriptor {
        channel.mutex.lock().await
    } else {
        match channel.mutex.try_lock() {
            Some(guard) => guard,
            None => return Ok(LeaseAnswer::Busy),
        }
    };
    let pause_requests = || {
        let until = core.env.now().saturating_add(NO_LEASES_RETRY_AFTER);
        channel.no_requests_until_ns.store(until.0, Ordering::Relaxed);
        Ok(LeaseAnswer::Unavailable)
    };
    // A channel made before a restart of the server fails once; the second round uses a fresh one.
    for fresh in [false, true] {
        let taken = channel.open.lock().take();
        let mut open = match taken {
            Some(open) => open,
            None if core.is_kept() => return pause_requests(),
            None => match attach(core, server, deadline).await {
                Ok(Some(open)) => open,
                Ok(None) => return pause_requests(),
                // Messages need no further descriptor.
                Err(Error::LocalFailure(_)) if core.options.transport != Transport::Descriptor => {
                    return pause_requests();
                }
                Err(error) => return Err(error),
            },
        };
        match request_lease_on(core, &mut open, datafile, cap, write).await {
            Ok(Ok(answer)) => {
                *channel.open.lock() = Some(open);
                drop(guard);
                return if matches!(answer, LeaseAnswer::Unavailable) {
                    pause_requests()
                } else {
                    Ok(answer)
                };
            }
            Ok(Err(error)) => {
                *channel.open.lock() = Some(open);
                return Err(server.refused(error));
            }
            Err(error) => {
                open.page.retire(&core.env, deadline.remaining(&core.env)).await;
                drop(open);
                let mut attempts = match fresh {
                    true => Attempts::only_one(core, deadline),
                    false => Attempts::until(core, deadline),
                };
                attempts.after(core, server, &error)?;
            }
        }
    }
    unreachable!("the second round returned")
}

async fn request_lease_on<E: Env>(
    core: &Core<E>,
    open: &mut OpenChannel<E>,
    datafile: DatafileId,
    cap: Capability,
    write: bool,
) -> io::Result<Result<LeaseAnswer<E>, WireError>> {
    send_released(open).await?;
    core.counters.data_messages.one();
    let reply = open.connection.exchange(Family::Data, &DataRequest::Lease { datafile, cap, write }).await?;
    match reply {
        DataReply::Leased { slot } if (slot as usize) < lease::SLOTS => {
            let Some(file) = open.connection.link.conn().take_file() else {
                // The descriptor did not arrive: this process has reached its limit.
                open.page.released.lock().push(slot);
                return Ok(Ok(LeaseAnswer::Unavailable));
            };
            core.counters.leases.one();
            let page = Arc::clone(&open.page);
            let lease = Lease::new(file, write, (page, slot), Arc::clone(&core.counters));
            Ok(Ok(LeaseAnswer::Leased(Arc::new(lease))))
        }
        DataReply::NotLeased => Ok(Ok(LeaseAnswer::Declined)),
        DataReply::WriteLeasesSuspended => Ok(Ok(LeaseAnswer::WritersBlocked)),
        DataReply::Failed(error) => Ok(Err(error)),
        _ => Err(unexpected_reply()),
    }
}

/// Makes a new channel; `None` if this server grants no leases to this process.
async fn attach<E: Env>(
    core: &Core<E>,
    server: &Server<E>,
    deadline: Deadline,
) -> Result<Option<Box<OpenChannel<E>>>, Error> {
    let mut connection = connect(core, server, LEASE_CONNECTION_NUMBER, deadline).await?;
    if !connection.local {
        return Ok(None);
    }
    match attach_shared(&mut connection, 0).await {
        Ok(Some(shared)) => {
            let page = Arc::new(LeasePage::new(shared));
            Ok(Some(Box::new(OpenChannel { connection, page })))
        }
        Ok(None) => Ok(None),
        Err(error) => Err(server.unreachable(describe(&error))),
    }
}

/// Error where the transport is limited to descriptors and there is no descriptor.
pub(crate) fn no_descriptor() -> Error {
    Error::misuse(
        Errno::EIO,
        "transport = \"descriptor\" is set, but the server grants no lease on this datafile (another machine, direct \
         or null module, leases off, lease revoked, or writing by a user who does not run the server: see \
         writable_leases); use transport = \"auto\"",
    )
}
