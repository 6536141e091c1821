//! A metadata service without a server around it, in either world, and helpers for its requests.

pub mod cuts;
pub mod model;

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use weft_core::{ByteLen, FileId, ServerId, TargetId};
use weft_env::Env;
use weft_env::sim::{Sim, SimEnv};
use weft_server::Hooks;
use weft_server::metadata::{Config, ConnectionContext, HostName, Removal, Service};
use weft_store::metadata::JournalOptions;
use weft_wire::cluster::{ServerEntry, TargetEntry};
use weft_wire::data::DatafileId;
use weft_wire::hello::{Identity, JobNumber, SessionId};
use weft_wire::keys::Principal;
use weft_wire::meta::*;
use weft_wire::{ClusterMap, ClusterSecret, Errno};

/// Runs `body` with a service in the simulated world, where waiting takes no real time.
pub fn with_simulated_service<F, Fut>(seed: u64, body: F)
where
    F: FnOnce(SimEnv, Arc<Service<SimEnv>>, Removed) -> Fut + 'static,
    Fut: std::future::Future<Output = ()>,
{
    let mut sim = Sim::with_seed(seed);
    let node = sim.node("mds");
    let env = node.clone();
    sim.block_on(&node, async move {
        let removed = Removed::default();
        let service = start(&env, config(PathBuf::from("/")), &removed).await;
        body(env, service.clone(), removed).await;
        service.shutdown().await;
    });
}

pub fn secret() -> ClusterSecret {
    ClusterSecret::new(&[5; 32])
}

/// Returns four servers with one target each, two hdd and two ssd.
pub fn cluster() -> ClusterMap {
    let server = |n: u32| ServerEntry { name: format!("s{n}"), addresses: vec![] };
    let target =
        |n: u32, class: &str| TargetEntry { id: TargetId(n), server: ServerId(n), class: class.into() };
    ClusterMap {
        domains: Vec::new(),
        name: "test".into(),
        version: 0,
        servers: (0..4).map(server).collect(),
        targets: vec![target(0, "hdd"), target(1, "hdd"), target(2, "ssd"), target(3, "ssd")],
        metadata: ServerId(0),
    }
}

/// Data servers that only record removals.
#[derive(Clone, Default)]
pub struct Removed(pub Arc<Mutex<RemovedState>>);

#[derive(Default)]
pub struct RemovedState {
    pub datafiles: BTreeSet<DatafileId>,
    pub down: BTreeSet<ServerId>,
    pub calls: u64,
}

impl Removal for Removed {
    async fn remove(&mut self, removals: BTreeMap<ServerId, Vec<DatafileId>>) -> BTreeMap<ServerId, String> {
        let mut state = self.0.lock();
        let mut failed = BTreeMap::new();
        for (server, datafiles) in removals {
            state.calls += 1;
            if state.down.contains(&server) {
                failed.insert(server, format!("{server} is down"));
            } else {
                state.datafiles.extend(datafiles);
            }
        }
        failed
    }
}

pub fn config(path: PathBuf) -> Config {
    let mut config = Config::new(path, cluster());
    config.format = true;
    config.options.without_registry = true;
    config.options.journal = JournalOptions {
        log_len: ByteLen::from_kib(256),
        cache_len: ByteLen::from_mib(4),
        ..JournalOptions::default()
    };
    config.options.root.uid = Some(0);
    config
}

pub async fn start<E: Env>(env: &E, config: Config, removed: &Removed) -> Arc<Service<E>> {
    let started = Service::start_with(env.clone(), config, secret(), Hooks::none(), removed.clone()).await;
    if started.is_err() {
        env.sleep(weft_core::Nanos(1)).await; // a process without power ends here
    }
    started.unwrap_or_else(|error| panic!("{error}"))
}

pub fn user(uid: u32) -> Identity {
    Identity { uid, gid: uid, groups: vec![] }
}

/// One connection of one client.
pub struct Peer<E: Env> {
    pub service: Arc<Service<E>>,
    pub ctx: ConnectionContext,
    pub seq: u64,
    pub next_handle: u64,
}

pub fn at(path: &str) -> InodePath {
    InodePath::from_root(path.as_bytes().to_vec(), true)
}

pub fn link_at(path: &str) -> InodePath {
    InodePath { follow: false, ..at(path) }
}

pub const READ: OpenFlags = OpenFlags {
    read: true,
    write: false,
    create: false,
    exclusive: false,
    truncate: false,
    directory: false,
    execute: false,
};
pub const WRITE: OpenFlags = OpenFlags { write: true, ..READ };
pub const CREATE: OpenFlags = OpenFlags { create: true, ..WRITE };

impl<E: Env> Peer<E> {
    pub fn new(service: &Arc<Service<E>>, session: u128, identity: Identity) -> Self {
        Self::on_slot(service, session, 0, identity)
    }

    pub fn on_slot(service: &Arc<Service<E>>, session: u128, slot: u32, identity: Identity) -> Self {
        let ctx = service.connected(SessionId(session), slot, identity, 100 + session as u32, false);
        Self { service: service.clone(), ctx, seq: 0, next_handle: u64::from(slot) << 32 }
    }

    /// A process of a job whose I/O delegates transfer all bytes.
    pub fn of_job(service: &Arc<Service<E>>, session: u128, identity: Identity, job: JobNumber) -> Self {
        let principal = Principal::local(identity, false);
        let ctx = service.connected_as(
            SessionId(session),
            0,
            principal,
            (100 + session as u32, Some(job), HostName::default()),
            false,
        );
        Self { service: service.clone(), ctx, seq: 0, next_handle: 0 }
    }

    /// A process that ends with the host of the service.
    pub fn on_host(service: &Arc<Service<E>>, session: u128, identity: Identity) -> Self {
        let principal = Principal::local(identity, false);
        let ctx = service.connected_as(
            SessionId(session),
            0,
            principal,
            (100 + session as u32, None, HostName::default()),
            true,
        );
        Self { service: service.clone(), ctx, seq: 0, next_handle: 0 }
    }

    pub async fn ask(&self, request: MetaRequest) -> MetaReply {
        self.service.call(&self.ctx, MetaCall { seq: 0, on_behalf: None, request }).await
    }

    pub async fn repeat(&self, seq: u64, request: MetaRequest) -> MetaReply {
        self.service.call(&self.ctx, MetaCall { seq, on_behalf: None, request }).await
    }

    pub async fn change(&mut self, request: MetaRequest) -> MetaReply {
        self.seq += 1;
        self.repeat(self.seq, request).await
    }

    pub async fn gone(self) {
        self.service.disconnected(self.ctx).await;
    }

    pub async fn stat(&self, path: &str) -> Result<Attr, Errno> {
        attr(self.ask(MetaRequest::Stat { at: link_at(path) }).await)
    }

    pub async fn mkdir(&mut self, path: &str) -> Result<Attr, Errno> {
        attr(self.change(MetaRequest::Mkdir { at: at(path), mode: 0o755 }).await)
    }

    pub async fn unlink(&mut self, path: &str) -> Result<(), Errno> {
        done(self.change(MetaRequest::Unlink { at: at(path) }).await)
    }

    pub async fn rmdir(&mut self, path: &str) -> Result<(), Errno> {
        done(self.change(MetaRequest::Rmdir { at: at(path) }).await)
    }

    pub async fn rename(&mut self, from: &str, to: &str) -> Result<(), Errno> {
        done(self.change(rename_request(from, to)).await)
    }

    pub async fn open(&mut self, path: &str, flags: OpenFlags) -> Result<(HandleId, Opened), Errno> {
        self.open_mode(path, flags, 0o644).await
    }

    pub async fn open_mode(
        &mut self,
        path: &str,
        flags: OpenFlags,
        mode: u32,
    ) -> Result<(HandleId, Opened), Errno> {
        self.next_handle += 1;
        let handle = HandleId(self.next_handle);
        let reply = self.change(open_request(path, flags, mode, handle)).await;
        opened(reply).map(|opened| (handle, opened))
    }

    pub async fn close(&mut self, handle: HandleId, summary: WriteSummary) -> Result<(), Errno> {
        done(self.ask(MetaRequest::Close { handle, summary }).await)
    }

    /// Problems that a check of the namespace finds.
    pub async fn problems(&self) -> Vec<String> {
        match self.ask(MetaRequest::CheckNamespace { repair: false }).await {
            MetaReply::Checked(report) => report.problems,
            other => panic!("{other:?}"),
        }
    }

    /// Creates a file and closes it.
    pub async fn touch(&mut self, path: &str) -> Result<FileId, Errno> {
        let (handle, opened) = self.open(path, CREATE).await?;
        self.close(handle, WriteSummary::default()).await?;
        Ok(opened.attr.file)
    }

    pub async fn list(&self, path: &str) -> Result<Vec<String>, Errno> {
        let (mut names, mut after) = (Vec::new(), Vec::new());
        loop {
            let request =
                MetaRequest::List { at: at(path), after, limit: 100, with_attr: false, lease: false };
            let (entries, more) = match self.ask(request).await {
                MetaReply::Entries { entries, more } => (entries, more),
                other => return Err(errno(other)),
            };
            names.extend(entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()));
            match entries.last() {
                Some(last) if more => after = last.name.clone(),
                _ => return Ok(names),
            }
        }
    }
}

pub fn open_request(path: &str, flags: OpenFlags, mode: u32, handle: HandleId) -> MetaRequest {
    MetaRequest::Open {
        at: at(path),
        flags,
        mode,
        handle,
        layout: LayoutSpec::default(),
        cache: false,
        ranks: None,
    }
}

pub fn rename_request(from: &str, to: &str) -> MetaRequest {
    MetaRequest::Rename { from: link_at(from), to: link_at(to), no_replace: false, exchange: false }
}

pub fn errno(reply: MetaReply) -> Errno {
    match reply {
        MetaReply::Failed(error) => error.errno,
        other => panic!("unexpected reply: {other:?}"),
    }
}

pub fn attr(reply: MetaReply) -> Result<Attr, Errno> {
    match reply {
        MetaReply::Attr(attr) => Ok(attr),
        other => Err(errno(other)),
    }
}

/// Opens a file for reading, as a mount does whose kernel is to cache pages.
pub fn open_to_cache(path: &str, handle: HandleId) -> MetaRequest {
    MetaRequest::Open {
        at: at(path),
        flags: READ,
        mode: 0,
        handle,
        layout: LayoutSpec::default(),
        cache: true,
        ranks: None,
    }
}

pub fn done(reply: MetaReply) -> Result<(), Errno> {
    match reply {
        MetaReply::Done => Ok(()),
        other => Err(errno(other)),
    }
}

pub fn opened(reply: MetaReply) -> Result<Opened, Errno> {
    match reply {
        MetaReply::Opened(opened) => Ok(*opened),
        other => Err(errno(other)),
    }
}

impl<E: Env> Peer<E> {
    /// Returns everything below `top`, in the format of [`model::Model::lines`].
    pub async fn lines(&self, top: &str) -> Vec<String> {
        let mut all = Vec::new();
        self.visit(top, "", &mut all).await;
        let mut lines = Vec::new();
        for (path, attr) in &all {
            let first = &all.iter().find(|(_, other)| other.file == attr.file).expect("itself").0;
            let kind = match attr.kind {
                FileType::Directory => 'd',
                FileType::Symlink => 'l',
                _ => 'f',
            };
            let name = "user.x".to_owned();
            let xattr =
                match self.ask(MetaRequest::GetXattr { at: link_at(&format!("{top}/{path}")), name }).await {
                    MetaReply::Value(value) => Some(value[0]),
                    other => {
                        assert_eq!(errno(other), Errno::ENODATA);
                        None
                    }
                };
            lines.push(format!("{path} {kind} {:o} {} {xattr:?} {first}", attr.mode, attr.nlink));
        }
        lines
    }

    async fn visit(&self, top: &str, prefix: &str, out: &mut Vec<(String, Attr)>) {
        for name in self.list(&format!("{top}/{prefix}")).await.expect("a directory") {
            let path = format!("{prefix}{name}");
            let attr = self.stat(&format!("{top}/{path}")).await.expect("listed");
            let is_dir = attr.kind == FileType::Directory;
            out.push((path.clone(), attr));
            if is_dir {
                Box::pin(self.visit(top, &format!("{path}/"), out)).await;
            }
        }
    }
}
