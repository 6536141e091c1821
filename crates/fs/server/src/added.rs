//! A service that another crate adds to a server, which provides connections, authentication and limits.

use crate::connections::Entry;
use crate::greeting::Greeted;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use weft_env::Env;
use weft_wire::hello::SessionId;
use weft_wire::{Incoming, Link};

/// Future of a service, which stays on the task of its connection.
pub type Served<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Service for the messages of [`Family::Delegate`](weft_wire::Family::Delegate).
pub trait AddedService<E: Env>: Send + Sync + 'static {
    /// Registers a connection after its greeting.
    fn connected(&self, caller: &Caller<E>);

    /// Serves one message, payload included.
    ///
    /// # Errors
    /// Errors of the connection, which ends then.
    fn serve<'a>(
        &'a self,
        caller: &'a mut Caller<E>,
        link: &'a mut Link<E::Conn>,
        incoming: &'a Incoming,
    ) -> Served<'a, io::Result<()>>;

    /// Releases what a connection held, after its end.
    fn disconnected<'a>(&'a self, caller: &'a mut Caller<E>) -> Served<'a, ()>;

    /// Ends the service: called when no connection is left, before the server reports its end.
    fn stop(&self) -> Served<'_, ()>;
}

/// The peer of a connection.
pub struct Caller<E: Env> {
    /// Session that the connection belongs to.
    pub session: SessionId,
    /// Number of the connection at this server.
    pub connection: u64,
    /// Number of the connection within the session. A connection that replaces a lost one has the same.
    pub slot: u32,
    /// User.
    pub uid: u32,
    /// Whether the peer may do everything that the server's own user may.
    pub is_administrator: bool,
    /// Whether the peer is on this host, so that memory and descriptors can be shared.
    pub is_local: bool,
    /// Shared payload area, once attached.
    pub area: Option<E::Shared>,
    entry: Arc<Entry>,
}

impl<E: Env> Caller<E> {
    pub(crate) fn new(entry: &Arc<Entry>, greeted: &Greeted) -> Self {
        Self {
            session: greeted.session,
            connection: entry.id,
            slot: greeted.slot,
            uid: greeted.principal.identity.uid,
            is_administrator: greeted.principal.is_administrator,
            is_local: greeted.local,
            area: None,
            entry: Arc::clone(entry),
        }
    }

    /// Limits the time in which the peer must send or receive the next bytes.
    pub fn expect_peer(&self) {
        self.entry.expect_peer();
    }

    /// Ends that limit, while the server itself is busy.
    pub fn stop_expecting(&self) {
        self.entry.stop_expecting();
    }
}
