//! Removal of the datafiles of removed files: in batches, after the removal of the inode is durable, and repeated until
//! every data server has confirmed.

use super::cluster_map::SharedMap;
use super::fault::Outcome;
use crate::peer::{PeerConnector, receive, send};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use weft_core::{ClusterId, FileId, Nanos, ServerId};
use weft_env::Env;
use weft_store::metadata::{ReapRow, Scan, Snapshot, Table, file_key};
use weft_wire::data::{DataReply, DataRequest, DatafileId};
use weft_wire::{ClusterMap, ClusterSecret, Family, Levels, Link};

/// Maximum number of files in one batch.
const FILES_MAX: usize = 512;
/// Approximate maximum number of datafiles in one batch, over all servers.
const DATAFILES_MAX: usize = 8192;
/// Timeout of each of connecting, sending and receiving.
const TIMEOUT: Nanos = Nanos::from_s(10);

/// Delay between attempts while a data server does not answer.
pub(super) const BACKOFF_MIN: Nanos = Nanos::from_ms(500);
pub(super) const BACKOFF_MAX: Nanos = Nanos::from_s(30);

/// Access to the data servers.
pub trait Removal: Send + 'static {
    /// Removes datafiles on all these servers at the same time; missing ones count as removed. Returns the servers that
    /// failed, each with a message for the log.
    async fn remove(&mut self, by_server: BTreeMap<ServerId, Vec<DatafileId>>) -> BTreeMap<ServerId, String>;

    /// Sets the identity and the map of the cluster, before the first removal.
    fn set_cluster(&mut self, _cluster: ClusterId, _map: SharedMap) {}
}

/// A batch of files to remove.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Files, each with the servers that have a part of it.
    pub files: Vec<(FileId, BTreeSet<ServerId>)>,
    pub by_server: BTreeMap<ServerId, Vec<DatafileId>>,
}

/// The next files to remove after `after`.
pub(super) fn next_batch(s: &dyn Snapshot, cluster: &ClusterMap, after: FileId) -> Outcome<Batch> {
    let (mut batch, mut datafiles) = (Batch::default(), 0);
    s.scan(Table::Reap, Bound::Excluded(&file_key(after)), &mut |key, value| {
        let row: ReapRow = value.open(Table::Reap, key)?;
        let file = FileId(u64::from_be_bytes(key.try_into().unwrap_or_default()));
        let mut servers = BTreeSet::new();
        for (object, target) in row.layout.objects() {
            // A target that was removed from the cluster cannot be reached, and its datafiles are gone with it.
            if let Some(server) = cluster.server_of(target) {
                servers.insert(server);
                batch.by_server.entry(server).or_default().push(DatafileId { target, file, object });
                datafiles += 1;
            }
        }
        batch.files.push((file, servers));
        let full = batch.files.len() >= FILES_MAX || datafiles >= DATAFILES_MAX;
        Ok(if full { Scan::Stop } else { Scan::Next })
    })?;
    Ok(batch)
}

/// Access over the network, as a server of the cluster.
pub struct LinkRemoval<E: Env> {
    connector: PeerConnector<E>,
    map: SharedMap,
    links: BTreeMap<ServerId, Link<E::Conn>>,
    requests: u64,
}

impl<E: Env> LinkRemoval<E> {
    /// Creates the access to the servers of `cluster`.
    pub fn new(env: E, cluster: &ClusterMap, secret: ClusterSecret, levels: Levels) -> Self {
        let map = SharedMap::new(cluster.clone());
        let (server, name) = (cluster.metadata, cluster.name.clone());
        let cluster_id = ClusterId::NONE;
        let connector =
            PeerConnector { env, server, cluster: name, cluster_id, secret, levels, timeout: TIMEOUT };
        Self { connector, map, links: BTreeMap::new(), requests: 0 }
    }
}

impl<E: Env> LinkRemoval<E> {
    /// Sends `request` over the open connection, or over a new one if that fails.
    async fn begin(&mut self, server: ServerId, request: &DataRequest) -> Result<Link<E::Conn>, String> {
        if let Some(mut link) = self.links.remove(&server)
            && send(&mut link, Family::Data, self.requests, request).await.is_ok()
        {
            return Ok(link);
        }
        let mut link = self.connector.connect(self.map.get().server(server)).await?;
        send(&mut link, Family::Data, self.requests, request).await?;
        Ok(link)
    }

    /// Receives the reply. If an open connection has ended meanwhile, the request is repeated over a new one.
    async fn finish(
        &mut self,
        server: ServerId,
        mut link: Link<E::Conn>,
        request: &DataRequest,
    ) -> Result<(), String> {
        let mut reply = receive(&mut link, Family::Data, self.requests).await;
        if reply.is_err() {
            link = self.begin(server, request).await?;
            reply = receive(&mut link, Family::Data, self.requests).await;
        }
        let reply = reply?;
        self.links.insert(server, link);
        removed(reply)
    }
}

impl<E: Env> Removal for LinkRemoval<E> {
    fn set_cluster(&mut self, cluster: ClusterId, map: SharedMap) {
        self.connector.cluster_id = cluster;
        self.connector.server = map.get().metadata;
        self.map = map;
    }

    async fn remove(&mut self, by_server: BTreeMap<ServerId, Vec<DatafileId>>) -> BTreeMap<ServerId, String> {
        self.requests += 1;
        let mut requested = Vec::with_capacity(by_server.len());
        for (server, datafiles) in by_server {
            let request = DataRequest::Remove { datafiles };
            requested.push((server, self.begin(server, &request).await, request));
        }
        let mut failed = BTreeMap::new();
        for (server, link, request) in requested {
            let result = match link {
                Ok(link) => self.finish(server, link, &request).await,
                Err(error) => Err(error),
            };
            if let Err(error) = result {
                failed.insert(server, error);
            }
        }
        failed
    }
}

fn removed(reply: DataReply) -> Result<(), String> {
    match reply {
        DataReply::Done => Ok(()),
        DataReply::Failed(error) => Err(error.to_string()),
        other => Err(format!("unexpected reply: {other:?}")),
    }
}
