//! Feature level of the cluster: no form of a later level is stored before an administrator raises it
//! ([`weft_wire::level`]).

use super::fault::{Fault, Outcome};
use super::op::Op;
use super::tables::{put_row, row};
use weft_core::ServerId;
use weft_store::metadata::{LEVELS_KEY, LevelsRow, Snapshot, Table, Transaction};
use weft_wire::meta::{ClusterLevels, MetaReply};
use weft_wire::{Errno, Level, Levels};

fn levels_row(s: &dyn Snapshot) -> Outcome<LevelsRow> {
    let first = LevelsRow { cluster: Level::FIRST.0, servers: Vec::new() };
    Ok(row(s, Table::Counters, LEVELS_KEY)?.unwrap_or(first))
}

fn put_levels(t: &mut dyn Transaction, row: &LevelsRow) {
    put_row(t, Table::Counters, LEVELS_KEY, row);
}

/// Checks that this server knows the level of the cluster. A new cluster gets the latest level that the server knows.
pub(super) fn begin(t: &mut dyn Transaction, known: Levels, is_new: bool) -> Outcome<()> {
    if is_new {
        put_levels(t, &LevelsRow { cluster: known.latest.0, servers: Vec::new() });
        return Ok(());
    }
    check("this server", known, Level(levels_row(t)?.cluster))
}

/// Refuses a server that does not know the level of the cluster.
fn check(server: &str, known: Levels, cluster: Level) -> Outcome<()> {
    if known.contain(cluster) {
        return Ok(());
    }
    let remedy = match cluster > known.latest {
        true => "install the version of Weft that raised it, or a later one",
        false => "install the version of Weft before this one, and run `weft upgrade` with it first",
    };
    Err(Fault::new(
        Errno::EPROTO,
        format!("{server} knows {known}, and the cluster has level {cluster}: {remedy}"),
    ))
}

impl Op<'_> {
    /// Levels of the cluster and of its servers.
    pub(super) fn levels(&self, s: &dyn Snapshot) -> Outcome<MetaReply> {
        Ok(MetaReply::Levels(self.cluster_levels(s)?))
    }

    fn cluster_levels(&self, s: &dyn Snapshot) -> Outcome<ClusterLevels> {
        let row = levels_row(s)?;
        let map = self.core.map.get();
        let level = |server: ServerId| Level(row.servers.get(server.0 as usize).map_or(0, |level| *level));
        let servers =
            map.numbered().map(|(server, entry)| (entry.name.clone(), level(server).max(Level::FIRST)));
        Ok(ClusterLevels { cluster: Level(row.cluster), known: self.core.levels, servers: servers.collect() })
    }

    /// Records the levels of a server that starts, and returns that of the cluster.
    pub(super) fn note_levels(
        &self,
        t: &mut dyn Transaction,
        (name, server): (&str, ServerId),
        levels: Levels,
    ) -> Outcome<Level> {
        let mut row = levels_row(t)?;
        check(&format!("server {name}"), levels, Level(row.cluster))?;
        let at = server.0 as usize;
        if row.servers.get(at) != Some(&levels.latest.0) {
            row.servers.resize(row.servers.len().max(at + 1), 0);
            row.servers[at] = levels.latest.0;
            put_levels(t, &row);
        }
        Ok(Level(row.cluster))
    }

    /// Raises the level of the cluster, if all its servers know the new one.
    pub(super) fn raise_level(&self, t: &mut dyn Transaction, to: Level) -> Outcome<MetaReply> {
        let row = levels_row(t)?;
        let now = Level(row.cluster);
        if to < now {
            let detail =
                format!("the cluster has level {now}, which never falls: data of that level may be stored");
            return Err(Fault::new(Errno::EINVAL, detail));
        }
        if to > self.core.levels.latest {
            let detail = format!(
                "the metadata server knows {}, not level {to}: install a later version of Weft there",
                self.core.levels
            );
            return Err(Fault::new(Errno::EINVAL, detail));
        }
        let servers = self.cluster_levels(t)?.servers;
        let behind: Vec<_> = servers.iter().filter(|(_, latest)| *latest < to).collect();
        if !behind.is_empty() {
            let names: Vec<_> =
                behind.iter().map(|(name, latest)| format!("{name} (level {latest})")).collect();
            let detail = format!(
                "servers that do not know level {to}: {}: install this version of Weft on their hosts and start them again; \
                 `weft server remove` takes one out that is gone",
                names.join(", ")
            );
            return Err(Fault::new(Errno::EBUSY, detail));
        }
        if to > now {
            put_levels(t, &LevelsRow { cluster: to.0, ..row });
        }
        self.levels(t)
    }

    /// Refuses to store a form of `level` before the cluster has it.
    pub(super) fn require_level(&self, s: &dyn Snapshot, level: Level, what: &str) -> Outcome<()> {
        let cluster = Level(levels_row(s)?.cluster);
        if cluster >= level {
            return Ok(());
        }
        let detail = format!(
            "{what} need level {level}, and the cluster has level {cluster}: `weft upgrade` raises it"
        );
        Err(Fault::new(Errno::EOPNOTSUPP, detail))
    }
}
