//! Exchange of average service times of disks between servers.
//!
//! Every period, this server reports its averages to the metadata service and gets those of all other servers. If the
//! metadata service does not answer, the known averages only get older. There are no exchanges without pieces of larger
//! requests, because only these have siblings on other servers.

#[cfg(test)]
mod tests;

use crate::config::ServerConfig;
use crate::peer::{PeerConnector, round_trip};
use crate::server::Shared;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_core::ibridge::{Decider, Policy, Report};
use weft_core::{Nanos, TargetId};
use weft_env::Env;
use weft_wire::cluster::ServerEntry;
use weft_wire::meta::{MetaCall, MetaReply, MetaRequest};
use weft_wire::{Family, Link};

/// Timeout of the metadata service's reply.
const TIMEOUT: Nanos = Nanos::from_s(2);

/// The placement decisions of all targets that have an SSD tier.
pub(crate) struct Averages {
    deciders: BTreeMap<TargetId, Arc<Mutex<Decider>>>,
    period: Option<Nanos>,
    stale: Nanos,
}

impl Averages {
    /// Creates the decisions for disks that have served nothing yet.
    pub fn new(config: &ServerConfig) -> Self {
        let mut all = Self { deciders: BTreeMap::new(), period: None, stale: Nanos::ZERO };
        for target in &config.targets {
            let Some(ibridge) = target.ibridge.as_ref().filter(|found| found.policy != Policy::Off) else {
                continue;
            };
            all.deciders.insert(target.id, Arc::new(Mutex::new(ibridge.decider(target))));
            all.stale = all.stale.max(ibridge.stale);
            all.period = Some(all.period.map_or(ibridge.exchange, |period| period.min(ibridge.exchange)));
        }
        all
    }

    /// The decisions of a target; `None` if it has no SSD tier.
    pub fn of(&self, target: TargetId) -> Option<&Arc<Mutex<Decider>>> {
        self.deciders.get(&target)
    }

    /// Interval of exchanges; `None` if there is nothing to report.
    pub fn period(&self) -> Option<Nanos> {
        self.period
    }

    /// Whether a piece of a larger request has come since the last call.
    fn take_pieces(&self) -> bool {
        self.deciders.values().fold(false, |any, decider| decider.lock().take_pieces() | any)
    }

    fn reports(&self) -> Vec<Report> {
        let report = |(&target, decider): (&TargetId, &Arc<Mutex<Decider>>)| Report {
            target,
            average: decider.lock().average(),
            age: Nanos::ZERO,
        };
        self.deciders.iter().map(report).collect()
    }

    fn take(&self, reports: &[Report], now: Nanos) {
        self.deciders.values().for_each(|decider| decider.lock().peer_averages_mut().take(reports, now));
    }
}

/// Exchanges averages until the server stops.
pub(crate) async fn exchange<E: Env>(shared: Arc<Shared<E>>, period: Nanos) {
    let config = &shared.config;
    let connector = PeerConnector {
        env: shared.env.clone(),
        server: config.server,
        cluster: config.cluster.clone(),
        cluster_id: shared.cluster_id,
        secret: config.secret.clone(),
        levels: config.levels,
        timeout: TIMEOUT,
    };
    let (mut link, mut requests, mut is_logged) = (None, 0, false);
    let mut last_piece = None;
    while shared.is_serving_for(period).await {
        let Some(data) = &shared.data else { return };
        let now = shared.env.now();
        if data.averages().take_pieces() {
            last_piece = Some(now);
        }
        // Reports stay useful for a while without pieces, because the next pieces may have siblings elsewhere.
        if last_piece.is_none_or(|at| now.saturating_sub(at) > data.averages().stale) {
            continue;
        }
        requests += 1;
        let Some(metadata) = shared.metadata_server() else { return };
        match exchange_once(&connector, &metadata, &mut link, requests, data.averages().reports()).await {
            Ok(reports) => {
                data.averages().take(&reports, shared.env.now());
                is_logged = false;
            }
            Err(error) => {
                link = None;
                if !std::mem::replace(&mut is_logged, true) {
                    shared.log(&format!(
                        "warn: service times of other servers are unknown: {error}; fragments are placed without them"
                    ));
                }
            }
        }
    }
}

async fn exchange_once<E: Env>(
    connector: &PeerConnector<E>,
    metadata: &ServerEntry,
    open_link: &mut Option<Link<E::Conn>>,
    request: u64,
    reports: Vec<Report>,
) -> Result<Vec<Report>, String> {
    let link = match open_link {
        Some(link) => link,
        None => open_link.insert(connector.connect(metadata).await?),
    };
    let call = MetaCall { seq: 0, on_behalf: None, request: MetaRequest::Averages { reports } };
    match round_trip(link, Family::Meta, request, &call).await? {
        MetaReply::Averages(reports) => Ok(reports),
        MetaReply::Failed(error) => Err(error.to_string()),
        other => Err(format!("unexpected reply: {other:?}")),
    }
}
