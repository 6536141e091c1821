//! Capacity of the running cluster for a plan.

use crate::commands::bytes;
use crate::commands::session::Weft;
use crate::commands::status::{ServerReply, query_servers};
use crate::failure::Failure;
use std::collections::BTreeMap;
use weft_config::Cluster;
use weft_core::units::human_bytes;
use weft_core::{Nanos, TargetId};
use weft_env::real::block_on;
use weft_wire::meta::InodePath;
use weft_wire::status::TargetStatus;

/// Maximum number of files of a trace that are looked up on the cluster.
const FILES_MAX: usize = 10_000;
/// Time without a reply after which a server is assumed to be down.
const DEADLINE: Nanos = Nanos::from_s(2);

/// Space on a target.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct TargetSpace {
    /// Capacity and reserved bytes, if the capacity is limited.
    reservations: Option<(u64, u64)>,
    free: u64,
    /// Bytes that the traced files have: reserved, and used.
    own: (u64, u64),
}

impl TargetSpace {
    /// Returns the free bytes that are not reserved.
    pub fn spare(&self) -> u64 {
        self.reservations
            .map_or(self.free, |(capacity, reserved)| capacity.saturating_sub(reserved).min(self.free))
    }

    /// Returns the free bytes of the file system, reserved ones included.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// Returns the bytes that layouts may still reserve. `None` means that layouts reserve nothing there.
    pub fn unreserved(&self) -> Option<u64> {
        self.reservations.map(|(capacity, reserved)| capacity.saturating_sub(reserved))
    }

    /// Returns the bytes that a plan may use if the traced files are moved away. `None` means at least `bytes`.
    fn left(&self, bytes: u64) -> Option<u64> {
        let free = self.free.saturating_add(self.own.1);
        match self.reservations {
            Some((capacity, reserved)) => {
                Some(capacity.saturating_sub(reserved.saturating_sub(self.own.0)).min(free))
            }
            None => (free < bytes).then_some(free),
        }
    }
}

/// Capacity of each class for a plan.
#[derive(Default)]
pub struct Available {
    /// The least of any target, by class. Unlimited classes are missing.
    pub capacities: BTreeMap<String, u64>,
    /// Notes by class. An empty class means all.
    pub notes: Vec<(String, String)>,
    /// A client of the cluster, if its servers run and answer.
    pub weft: Option<Weft>,
}

/// Returns the capacity of `cluster` for the files `traced`, which have `bytes` in total. If the cluster does not
/// answer, the result only has a note.
pub fn left(cluster: &Cluster, traced: &[String], bytes: u64) -> Available {
    let limited =
        cluster.servers.iter().flat_map(|server| &server.targets).any(|target| target.capacity.is_some());
    if cluster.embedded.is_some() && !limited && !crate::embedded::runs(cluster) {
        // Without limits, the servers need not be started.
        return Available::default();
    }
    let answers = client(cluster).and_then(|weft| targets(&weft).map(|targets| (weft, targets)));
    let (weft, mut targets) = match answers {
        Ok(answers) => answers,
        Err(failure) => {
            let why = failure.text();
            let note =
                format!("the space used on the cluster is unknown, and all of it counts as free: {why}");
            return Available { notes: vec![(String::new(), note)], ..Available::default() };
        }
    };
    let share = |class: &str| {
        let count = weft.client.map().targets.iter().filter(|target| target.class == class).count();
        bytes.div_ceil(count.max(1) as u64)
    };
    let taken =
        |(_, taken): (&TargetId, &TargetSpace)| taken.reservations.is_some_and(|(_, reserved)| reserved > 0);
    let full = weft.client.map().targets.iter().any(|target| {
        let capacity =
            |taken: &TargetSpace| taken.reservations.map_or(share(&target.class), |(capacity, _)| capacity);
        targets.get(&target.id).is_some_and(|taken| taken.free < capacity(taken))
    });
    if targets.iter().any(taken) || full {
        own(&weft, traced, &mut targets);
    }
    let mut left = Available::default();
    let mut classes: BTreeMap<&str, Vec<TargetSpace>> = BTreeMap::new();
    let map = weft.client.map();
    for target in &map.targets {
        classes.entry(&target.class).or_default().extend(targets.get(&target.id));
    }
    for (class, targets) in classes {
        let share = share(class);
        let Some(least) = targets.iter().min_by_key(|taken| taken.left(share).unwrap_or(u64::MAX)) else {
            continue;
        };
        let Some(capacity) = least.left(share) else { continue };
        left.capacities.insert(class.to_owned(), capacity);
        left.notes.extend(describe(class, least, capacity).map(|note| (class.to_owned(), note)));
    }
    left.weft = Some(weft);
    left
}

/// Creates a client that does not wait long for servers that are down.
fn client(cluster: &Cluster) -> Result<Weft, Failure> {
    crate::embedded::revive(cluster)?;
    weft_client::set_log(|_| ());
    let weft = Weft::of(cluster.clone(), |options| {
        options.connect_timeout = DEADLINE.min(options.connect_timeout);
        options.request_timeout = DEADLINE.min(options.request_timeout);
        options.retry_for = Nanos(0);
    })?;
    Ok(weft.complete())
}

/// Describes the fullest target of a class.
fn describe(class: &str, of: &TargetSpace, left: u64) -> Option<String> {
    let whole = of.reservations.map_or(of.free, |(capacity, _)| capacity);
    let others = of.reservations.map_or(0, |(_, reserved)| reserved.saturating_sub(of.own.0));
    let mut text = match of.reservations {
        Some(_) if others == 0 && left == whole => String::new(),
        Some(_) if left == whole.saturating_sub(others) => {
            format!("{} of it are reserved for other files", human_bytes(others))
        }
        _ => format!("only {} are free", human_bytes(left)),
    };
    if of.own.0 > 0 {
        let own = format!(
            "space of the traced files ({}) counts as free, because it is free once they are moved or removed",
            human_bytes(of.own.0)
        );
        text = if text.is_empty() { own } else { format!("{text}; {own}") };
    }
    let capacity = of.reservations.map(|_| format!(" of {}", human_bytes(whole))).unwrap_or_default();
    (!text.is_empty()).then(|| {
        format!("class {class} has {} available{capacity} on its fullest target: {text}", human_bytes(left))
    })
}

/// Returns the space on all targets.
///
/// # Errors
/// Fails if a server does not answer.
pub fn targets(weft: &Weft) -> Result<BTreeMap<TargetId, TargetSpace>, Failure> {
    let mut targets: BTreeMap<TargetId, TargetSpace> = BTreeMap::new();
    let mut reservations = Vec::new();
    for ServerReply { server, status, .. } in query_servers(weft) {
        let status = status.map_err(|why| Failure::new(format!("server {}", server.name), why))?;
        let free = |target: TargetStatus| {
            (target.target, TargetSpace { free: target.free.0, ..TargetSpace::default() })
        };
        targets.extend(status.targets.into_iter().map(free));
        reservations.extend(status.metadata.into_iter().flat_map(|metadata| metadata.space_reservations));
    }
    for reservation in reservations {
        if let Some(found) = targets.get_mut(&reservation.target) {
            found.reservations = Some((reservation.capacity.0, reservation.reserved.0));
        }
    }
    Ok(targets)
}

/// Returns the path from the root of the file system for a traced path, below the cluster's mount or one of its kernel
/// `mounts`.
pub fn inside(weft: &Weft, mounts: &[String], path: &str) -> Option<String> {
    let rest = |at: &String| path.strip_prefix(at.as_str()).filter(|rest| rest.starts_with('/'));
    let inside = weft.strip(path).or_else(|| mounts.iter().find_map(rest))?;
    Some(inside.trim_start_matches('/').to_owned())
}

/// Adds the space of the traced files that exist and are accessible.
fn own(weft: &Weft, traced: &[String], targets: &mut BTreeMap<TargetId, TargetSpace>) {
    let mounts = crate::commands::mount::of(&weft.cluster);
    let mut seen = std::collections::BTreeSet::new();
    for inside in traced.iter().filter_map(|path| inside(weft, &mounts, path)).take(FILES_MAX) {
        let place = InodePath::from_root(bytes::bytes(&inside), true);
        let Ok(attr) = block_on(weft.client.stat(&place)) else { continue };
        let Ok((Some(layout), _)) = block_on(weft.client.get_layout(&place)) else { continue };
        if !seen.insert(attr.file) {
            continue;
        }
        let mut reservations = layout.space_reservations();
        for (object, target) in layout.objects() {
            let Some(found) = targets.get_mut(&target) else { continue };
            found.own.0 += reservations.remove(&target).map_or(0, |bytes| bytes.0);
            found.own.1 += layout.local_len(object, weft_core::FileOffset(attr.size.0)).0;
        }
    }
}
