//! Delegates over a locking file system: real delegates and real clients on the model.

use super::handle::{LockedFile, LockingMount};
use super::outcome::DelegatesOutcome;
use super::spec::DelegatesSpec;
use super::state::LockingFs;
use crate::outcome::RunError;
use std::sync::Arc;
use weft_client::{
    ClientOptions, Credentials, DelegatedFile, DelegatedSpec, Delegates, JobMap, Key, RankOf, Source,
};
use weft_core::delegates::assignment::DelegateIndex;
use weft_core::delegates::ownership::FileNumber;
use weft_core::{ByteLen, Nanos};
use weft_delegate::DelegateConfig;
use weft_env::Address;
use weft_env::sim::{Control, SimEnv};
use weft_server::{Hooks, ServerHandle};
use weft_wire::ClusterSecret;
use weft_wire::cluster::ServerEntry;
use weft_wire::delegate::JobSettings;

const PORT: u16 = 4100;
const NAME: &str = "job";
/// Time without a request after which a delegate writes dirty bytes, as of `weft delegate`.
const IDLE: Nanos = Nanos::from_ms(50);

/// The delegates of a job, each on a machine of its own.
pub(super) struct Job {
    spec: DelegatesSpec,
    map: JobMap,
    secret: ClusterSecret,
    user: u32,
    machines: Vec<SimEnv>,
    request_timeout: Nanos,
}

impl Job {
    pub(super) fn new(control: &Control, spec: &DelegatesSpec, user: u32, request_timeout: Nanos) -> Self {
        let host = |index: u32| format!("d{index}");
        let entry = |index| ServerEntry {
            name: format!("delegate {index}"),
            addresses: vec![Address::Tcp(host(index), PORT)],
        };
        Self {
            spec: spec.clone(),
            map: JobMap { name: NAME.to_owned(), delegates: (0..spec.count).map(entry).collect() },
            secret: ClusterSecret::new(&[9; 32]),
            user,
            machines: (0..spec.count).map(|index| control.add_machine(&host(index))).collect(),
            request_timeout,
        }
    }

    /// Starts the delegates.
    pub(super) async fn start(&self, fs: &Arc<LockingFs>) -> Result<Vec<ServerHandle<SimEnv>>, RunError> {
        let mut handles = Vec::new();
        for (index, env) in (0..).zip(&self.machines) {
            let config = DelegateConfig {
                job: self.map.name.clone(),
                delegates: self.map.delegates.clone(),
                settings: JobSettings {
                    delegates: self.spec.count,
                    index,
                    policy: self.spec.policy,
                    group_pages: self.spec.group_pages,
                    page_len: Some(self.spec.page.0),
                    memory: ByteLen(self.spec.memory.0),
                    write_behind: self.spec.write_behind,
                    direct_min: None,
                },
                addresses: self.map.delegates[index as usize].addresses.clone(),
                secret: self.secret.clone(),
                dirty_high: self.spec.memory.0 / 2,
                idle: IDLE,
                idle_exit: None,
                host: format!("d{index}"),
                hooks: Hooks { uid: self.user, ..Hooks::none() },
            };
            let write_max = self.spec.write_max.map_or(u64::MAX, |max| max.0);
            let mount = LockingMount::new(fs, env).with_write_max(write_max);
            let started = weft_delegate::start(env.clone(), config, mount).await;
            handles
                .push(started.map_err(|error| RunError::Server { server: index, why: error.to_string() })?);
        }
        Ok(handles)
    }

    /// Connects a process to the delegates: a rank, or an observer.
    pub(super) async fn join(&self, env: &SimEnv, rank: Option<RankOf>) -> Result<Delegates<SimEnv>, String> {
        let key = Key::Issued(Box::new(self.secret.own_administrator_key().into()));
        let credentials = Credentials::user(self.user, self.user, vec![]).with_key(key);
        let options = ClientOptions { request_timeout: self.request_timeout, ..ClientOptions::default() };
        let joined = Delegates::join(env.clone(), self.map.clone(), options, credentials, rank).await;
        joined.map_err(|error| error.to_string())
    }

    /// Wraps a file that a rank has open.
    pub(super) fn wrap(
        &self,
        delegates: &Delegates<SimEnv>,
        file: LockedFile,
        name: &str,
    ) -> DelegatedFile<SimEnv, LockedFile> {
        let spec = DelegatedSpec {
            number: FileNumber::of_host(0, u64::from(file.number()) + 1),
            source: Source::Weft(name.as_bytes().to_vec()),
            page_len: self.spec.page.0,
            read: true,
            write: true,
            path: name.as_bytes().to_vec(),
        };
        DelegatedFile::new(delegates, file, spec)
    }

    /// Returns the sums of the delegates' counters, and the memory of the fullest delegate now.
    pub(super) async fn outcome(&self, observer: &Delegates<SimEnv>) -> Result<DelegatesOutcome, RunError> {
        let mut sum = DelegatesOutcome::default();
        for index in 0..self.spec.count {
            let status = observer.status(DelegateIndex(index)).await;
            let status =
                status.map_err(|error| RunError::Server { server: index, why: error.to_string() })?;
            sum.memory_max = sum.memory_max.max(status.memory.0);
            sum.file_writes += status.file_writes;
            sum.file_bytes += status.file_bytes_written.0;
            sum.forwarded += status.forwarded;
            sum.requests += status.requests;
        }
        Ok(sum)
    }
}
