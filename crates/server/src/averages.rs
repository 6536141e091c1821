//! The average service times of this server's disks: known here, told to the metadata service, and those of all others
//! received in return, in one exchange every so often. A metadata service that does not answer only makes what is known
//! of others old. Nothing is said as long as no piece of a larger request comes: only those have siblings.

#[cfg(test)]
mod tests;

use crate::config::ServerConfig;
use crate::peer::{Asker, ask};
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

/// How long the metadata service may take to answer.
const TIMEOUT: Nanos = Nanos::from_s(2);

/// The decisions of all targets that have an SSD beside them.
pub(crate) struct Averages {
    deciders: BTreeMap<TargetId, Arc<Mutex<Decider>>>,
    period: Option<Nanos>,
    stale: Nanos,
}

impl Averages {
    /// Of disks that have served nothing yet.
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

    /// The decisions of a target; `None` when it has no SSD beside it.
    pub fn of(&self, target: TargetId) -> Option<&Arc<Mutex<Decider>>> {
        self.deciders.get(&target)
    }

    /// How often to exchange; `None` when there is nothing to tell.
    pub fn period(&self) -> Option<Nanos> {
        self.period
    }

    /// Whether a piece of a larger request has come since this was asked last.
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
        self.deciders.values().for_each(|decider| decider.lock().board_mut().take(reports, now));
    }
}

/// Exchanges until the server ends.
pub(crate) async fn exchange<E: Env>(shared: Arc<Shared<E>>, metadata: ServerEntry, period: Nanos) {
    let config = &shared.config;
    let asker = Asker {
        env: shared.env.clone(),
        server: config.server,
        cluster: config.cluster.clone(),
        cluster_id: shared.cluster_id,
        secret: config.secret.clone(),
        timeout: TIMEOUT,
    };
    let (mut link, mut requests, mut is_told) = (None, 0, false);
    let mut last_piece = None;
    while shared.is_serving_for(period).await {
        let Some(data) = &shared.data else { return };
        let now = shared.env.now();
        if data.averages().take_pieces() {
            last_piece = Some(now);
        }
        // What was told holds for a while without pieces, too: siblings of the next ones may be elsewhere.
        if last_piece.is_none_or(|at| now.saturating_sub(at) > data.averages().stale) {
            continue;
        }
        requests += 1;
        match once(&asker, &metadata, &mut link, requests, data.averages().reports()).await {
            Ok(reports) => {
                data.averages().take(&reports, shared.env.now());
                is_told = false;
            }
            Err(error) => {
                link = None;
                if !std::mem::replace(&mut is_told, true) {
                    shared.log(&format!(
                        "service times of other servers are not known for now: {error}; fragments are judged without them"
                    ));
                }
            }
        }
    }
}

async fn once<E: Env>(
    asker: &Asker<E>,
    metadata: &ServerEntry,
    kept: &mut Option<Link<E::Conn>>,
    request: u64,
    reports: Vec<Report>,
) -> Result<Vec<Report>, String> {
    let link = match kept {
        Some(link) => link,
        None => kept.insert(asker.connect(metadata).await?),
    };
    let call = MetaCall { seq: 0, on_behalf: None, request: MetaRequest::Averages { reports } };
    match ask(link, Family::Meta, request, &call).await? {
        MetaReply::Averages(reports) => Ok(reports),
        MetaReply::Failed(error) => Err(error.to_string()),
        other => Err(format!("an answer to another question: {other:?}")),
    }
}
