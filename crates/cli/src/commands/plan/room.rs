//! What room a cluster that runs has for a plan.

use crate::commands::bytes;
use crate::commands::session::Weft;
use crate::commands::status::{Answer, ask};
use crate::failure::Failure;
use crate::table::human;
use std::collections::BTreeMap;
use weft_config::Cluster;
use weft_core::{Nanos, TargetId};
use weft_env::real::block_on;
use weft_wire::meta::Place;
use weft_wire::status::TargetStatus;

/// Most files of a trace that are looked for on the cluster.
const FILES_MAX: usize = 10_000;
/// A server that does not answer for so long is taken for one that does not run.
const PATIENCE: Nanos = Nanos::from_s(2);

/// A target, and what files have of it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Taken {
    /// What layouts may promise on it, and do, if that is limited.
    account: Option<(u64, u64)>,
    free: u64,
    /// What files of the trace have of that: promised, and taken of what would be free.
    own: (u64, u64),
}

impl Taken {
    /// What nobody has, nor was promised to anybody.
    pub fn spare(&self) -> u64 {
        self.account.map_or(self.free, |(room, promised)| room.saturating_sub(promised).min(self.free))
    }

    /// What a plan may use, the files of the trace out of the way; at most `bytes` are of interest.
    fn left(&self, bytes: u64) -> Option<u64> {
        let free = self.free.saturating_add(self.own.1);
        match self.account {
            Some((room, promised)) => {
                Some(room.saturating_sub(promised.saturating_sub(self.own.0)).min(free))
            }
            None => (free < bytes).then_some(free),
        }
    }
}

/// What the targets of a class have for a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// The least of any target, by class; classes that are not limited are not there.
    pub rooms: BTreeMap<String, u64>,
    /// What should be known, by class; that of none is about all.
    pub notes: Vec<(String, String)>,
}

/// What is left on `cluster` for files of the names `traced`, which have `bytes` together. Of a cluster that does not answer
/// nothing is known but a note.
pub fn left(cluster: &Cluster, traced: &[String], bytes: u64) -> Left {
    let limited =
        cluster.servers.iter().flat_map(|server| &server.targets).any(|target| target.room.is_some());
    if cluster.embedded.is_some() && !limited && !crate::embedded::runs(cluster) {
        // Not worth starting servers.
        return Left::default();
    }
    let answers = client(cluster).and_then(|weft| targets(&weft).map(|targets| (weft, targets)));
    let (weft, mut targets) = match answers {
        Ok(answers) => answers,
        Err(failure) => {
            let why = failure.text();
            let note =
                format!("what files of the cluster have of its room is not known, all of it counts: {why}");
            return Left { notes: vec![(String::new(), note)], ..Left::default() };
        }
    };
    let share = |class: &str| {
        let count = weft.client.map().targets.iter().filter(|target| target.class == class).count();
        bytes.div_ceil(count.max(1) as u64)
    };
    let taken = |(_, taken): (&TargetId, &Taken)| taken.account.is_some_and(|(_, promised)| promised > 0);
    let full = weft.client.map().targets.iter().any(|target| {
        let room = |taken: &Taken| taken.account.map_or(share(&target.class), |(room, _)| room);
        targets.get(&target.id).is_some_and(|taken| taken.free < room(taken))
    });
    if targets.iter().any(taken) || full {
        own(&weft, traced, &mut targets);
    }
    let mut left = Left::default();
    let mut classes: BTreeMap<&str, Vec<Taken>> = BTreeMap::new();
    for target in &weft.client.map().targets {
        classes.entry(&target.class).or_default().extend(targets.get(&target.id));
    }
    for (class, targets) in classes {
        let share = share(class);
        let Some(least) = targets.iter().min_by_key(|taken| taken.left(share).unwrap_or(u64::MAX)) else {
            continue;
        };
        let Some(room) = least.left(share) else { continue };
        left.rooms.insert(class.to_owned(), room);
        left.notes.extend(told(class, least, room).map(|note| (class.to_owned(), note)));
    }
    left
}

/// Who asks the servers, and does not wait long for those that do not run.
fn client(cluster: &Cluster) -> Result<Weft, Failure> {
    crate::embedded::revive(cluster)?;
    weft_client::set_log(|_| ());
    Weft::of(cluster.clone(), |options| {
        options.connect_timeout = PATIENCE.min(options.connect_timeout);
        options.request_timeout = PATIENCE.min(options.request_timeout);
        options.retry_for = Nanos(0);
    })
}

/// What is to be said of the fullest target of a class.
fn told(class: &str, of: &Taken, left: u64) -> Option<String> {
    let whole = of.account.map_or(of.free, |(room, _)| room);
    let others = of.account.map_or(0, |(_, promised)| promised.saturating_sub(of.own.0));
    let mut told = match of.account {
        Some(_) if others == 0 && left == whole => String::new(),
        Some(_) if left == whole.saturating_sub(others) => {
            format!("{} of it are promised to other files", human(others))
        }
        _ => format!("no more than {} are free", human(left)),
    };
    if of.own.0 > 0 {
        let own = format!(
            "what files of the trace have of it ({}) counts as free, as it is once they are moved or removed",
            human(of.own.0)
        );
        told = if told.is_empty() { own } else { format!("{told}; {own}") };
    }
    let room = of.account.map(|_| format!(" of {}", human(whole))).unwrap_or_default();
    (!told.is_empty())
        .then(|| format!("class {class} has room for {}{room} on its fullest target: {told}", human(left)))
}

/// All targets.
///
/// # Errors
/// When a server does not answer.
pub fn targets(weft: &Weft) -> Result<BTreeMap<TargetId, Taken>, Failure> {
    let mut targets: BTreeMap<TargetId, Taken> = BTreeMap::new();
    let mut accounts = Vec::new();
    for Answer { server, status } in ask(weft) {
        let status = status.map_err(|why| Failure::new(format!("server {}", server.name), why))?;
        let free = |target: TargetStatus| (target.target, Taken { free: target.free.0, ..Taken::default() });
        targets.extend(status.targets.into_iter().map(free));
        accounts.extend(status.metadata.into_iter().flat_map(|metadata| metadata.rooms));
    }
    for room in accounts {
        if let Some(found) = targets.get_mut(&room.target) {
            found.account = Some((room.room.0, room.promised.0));
        }
    }
    Ok(targets)
}

/// Adds what the files of a trace have, as far as they are there and may be looked at.
fn own(weft: &Weft, traced: &[String], targets: &mut BTreeMap<TargetId, Taken>) {
    let mounts = crate::commands::mount::of(&weft.cluster);
    let below = |path: &str| {
        let rest = |at: &String| path.strip_prefix(at.as_str()).filter(|rest| rest.starts_with('/'));
        let inside = weft.strip(path).or_else(|| mounts.iter().find_map(rest))?;
        Some(inside.trim_start_matches('/').to_owned())
    };
    let mut seen = std::collections::BTreeSet::new();
    for inside in traced.iter().filter_map(|path| below(path)).take(FILES_MAX) {
        let place = Place::from_root(bytes::bytes(&inside), true);
        let Ok(attr) = block_on(weft.client.stat(&place)) else { continue };
        let Ok((Some(layout), _)) = block_on(weft.client.get_layout(&place)) else { continue };
        if !seen.insert(attr.file) {
            continue;
        }
        let mut promises = layout.promises();
        for (object, target) in layout.objects() {
            let Some(found) = targets.get_mut(&target) else { continue };
            found.own.0 += promises.remove(&target).map_or(0, |bytes| bytes.0);
            found.own.1 += layout.local_len(object, weft_core::FileOffset(attr.size.0)).0;
        }
    }
}
