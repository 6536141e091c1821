//! Connections from this server to other servers of the cluster.

use weft_core::{ClusterId, Nanos, ServerId};
use weft_env::{Conn, Env};
use weft_wire::cluster::ServerEntry;
use weft_wire::greeting::{Caller, GreetingError, greet};
use weft_wire::hello::{Names, Opening, Process, Role, Security, SessionId, Welcome};
use weft_wire::{ClusterSecret, Family, Kind, Levels, Link};

/// Connects to other servers as this server.
#[derive(Clone)]
pub(crate) struct PeerConnector<E: Env> {
    pub env: E,
    /// This server.
    pub server: ServerId,
    /// Name of the cluster.
    pub cluster: String,
    /// Identity of the cluster; [`ClusterId::NONE`] if it is to be learned.
    pub cluster_id: ClusterId,
    pub secret: ClusterSecret,
    /// Feature levels that this server knows.
    pub levels: Levels,
    /// Timeout of each of connecting, sending and receiving.
    pub timeout: Nanos,
}

impl<E: Env> PeerConnector<E> {
    /// Connects to a server at the first of its addresses that answers. The error is a message for the log.
    pub async fn connect(&self, entry: &ServerEntry) -> Result<Link<E::Conn>, String> {
        Ok(self.connect_with_id(entry).await?.0)
    }

    /// Connects as [`connect`](Self::connect) does, and also returns the identity of the server's cluster.
    pub async fn connect_with_id(&self, entry: &ServerEntry) -> Result<(Link<E::Conn>, ClusterId), String> {
        let mut last = format!("{} has no address", entry.name);
        for address in &entry.addresses {
            match self.env.connect(address, self.timeout).await {
                Ok(conn) => match self.greet(entry, conn).await {
                    Ok(link) => return Ok(link),
                    Err(error) => last = format!("{} at {address}: {error}", entry.name),
                },
                Err(error) => last = format!("{} at {address}: {error}", entry.name),
            }
        }
        Err(last)
    }

    async fn greet(
        &self,
        entry: &ServerEntry,
        mut conn: E::Conn,
    ) -> Result<(Link<E::Conn>, ClusterId), String> {
        conn.set_timeout(Some(self.timeout)).map_err(|error| error.to_string())?;
        let mut link = Link::new(conn);
        let (mut random, mut session) = ([0; 32], [0; 16]);
        self.env.random(&mut random);
        self.env.random(&mut session);
        let (claims, key) = self.secret.own_server_key();
        let caller = Caller {
            names: Names {
                levels: self.levels,
                cluster: self.cluster.clone(),
                cluster_id: self.cluster_id,
                server: entry.name.clone(),
                role: Role::Server(self.server),
                key: Some(claims),
            },
            opening: Opening {
                session: SessionId(u128::from_le_bytes(session)),
                slot: 0,
                checksums: false,
                security: Security::None,
                job: None,
                process: Process::default(),
            },
            key: Some(key),
            random,
            lengths_only: self.env.hollow(0).is_some(),
        };
        match greet(&mut link, caller, |_| Ok(())).await {
            Ok(welcome) => self.welcomed(link, &welcome),
            Err(GreetingError::Io(error)) => Err(error.to_string()),
            Err(GreetingError::Refused(error)) => Err(error.to_string()),
            Err(GreetingError::Unproven | GreetingError::NoKey) => {
                Err("it does not hold the key of this cluster".into())
            }
        }
    }
}

impl<E: Env> PeerConnector<E> {
    fn welcomed(&self, link: Link<E::Conn>, welcome: &Welcome) -> Result<(Link<E::Conn>, ClusterId), String> {
        let found = welcome.cluster_id;
        if found.is_other_than(self.cluster_id) {
            return Err(format!(
                "it belongs to cluster {found}, this server to {}: correct the address or the cluster file",
                self.cluster_id
            ));
        }
        Ok((link, found))
    }
}

/// Sends a request and receives its reply.
pub(crate) async fn round_trip<C: Conn, M: serde::Serialize, R: serde::de::DeserializeOwned>(
    link: &mut Link<C>,
    family: Family,
    request: u64,
    message: &M,
) -> Result<R, String> {
    send(link, family, request, message).await?;
    receive(link, family, request).await
}

/// Sends a request.
pub(crate) async fn send<C: Conn, M: serde::Serialize>(
    link: &mut Link<C>,
    family: Family,
    request: u64,
    message: &M,
) -> Result<(), String> {
    link.send(Kind::Request, family, request, message, &[]).await.map_err(|error| error.to_string())
}

/// Receives the reply to a request.
pub(crate) async fn receive<C: Conn, R: serde::de::DeserializeOwned>(
    link: &mut Link<C>,
    family: Family,
    request: u64,
) -> Result<R, String> {
    let incoming = link.recv().await.map_err(|error| error.to_string())?.ok_or("it closed the connection")?;
    if incoming.header.family != family || incoming.header.request != request {
        return Err("it sent a reply to another request".into());
    }
    link.decode(&incoming).map_err(|error| error.to_string())
}
