//! `weft status`.

use super::agent::AgentStatus;
use super::delegate::status::JobLine;
use super::df::nearly_full;
use super::mount::{self, FailedRequests};
use super::serve::runs_here;
use super::session::{Weft, why};
use crate::failure::{FAILED, Failure, without_numbers};
use crate::table::Table;
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use weft_config::{Cluster, Server};
use weft_core::units::human_bytes;
use weft_core::{Nanos, ServerId, TargetId, TargetState};
use weft_env::Address;
use weft_env::real::block_on;
use weft_wire::status::{AuditStatus, ServerStatus};

/// Time after which a server without a reply is shown as down.
const REPLY_DEADLINE: Nanos = Nanos::from_ms(2500);

const AFTER: &str = "\
All servers are queried concurrently. One that has not answered within 2.5 seconds is shown as down, with the reason.
Bytes and requests are those of messages since the server's start, without transfers of programs on the same host
through leased descriptors. LOAD is the number of requests running or waiting now. Mounts on this host report why
requests failed with EIO, or that a server refuses their key. Jobs of this user on this host that have I/O delegates
have a line each; `weft delegate status` shows more. A line about the agent follows if its queue is not empty; `weft
agent status` shows more.

Exit codes:
  0  all servers answered and use all of their targets
  1  a server is down, a target is refused, or an audit log cannot be written
  2  wrong arguments, cluster file or key

Examples:
  weft status
  weft status -v                    SSDs beside disks by class, and resources of users on each server
  weft status --json | jq '.servers[] | select(.up == false) | .name'";

/// Shows servers, targets, space and load.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Status {
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// Show more about SSDs beside disks, and the resources of each user
    #[arg(short = 'v', long)]
    verbose: bool,
}

/// Reply of a server, or why there is none.
pub struct ServerReply<'a> {
    /// The server.
    pub server: &'a Server,
    /// The server's status.
    pub status: Result<ServerStatus, String>,
    /// Whether the server runs and has refused the request, for example because of a wrong key.
    pub is_refused: bool,
}

impl Status {
    /// Runs the command.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let is_named = file.is_some();
        let jobs = JobLine::all();
        let agent = AgentStatus::unless_empty();
        let cluster = match super::load(file) {
            // Jobs with delegates and replicas on other file systems need no cluster.
            Err(_) if !is_named && (!jobs.is_empty() || agent.is_some()) && Cluster::find().is_err() => {
                self.print_jobs(&jobs, agent.as_ref());
                return Ok(0);
            }
            found => found?,
        };
        let weft = Weft::of(cluster, |options| {
            options.connect_timeout = REPLY_DEADLINE;
            options.request_timeout = REPLY_DEADLINE;
            options.retry_for = Nanos(0);
        })?;
        // The table shows unreachable servers, so the client's messages are not needed.
        weft_client::set_log(|_| ());
        let weft = weft.complete();
        let answers = query_servers(&weft);
        let is_unwell = |answer: &ServerReply<'_>| match &answer.status {
            Ok(status) => {
                let audit_failed = status.audit.as_ref().is_some_and(|audit| audit.failed.is_some());
                audit_failed || status.targets.iter().any(|target| target.refused.is_some())
            }
            Err(_) => true,
        };
        let down = answers.iter().any(is_unwell);
        let mounts: Vec<_> = mount::of(&weft.cluster)
            .into_iter()
            .map(|at| (mount::failed_requests(&at, REPLY_DEADLINE.as_duration()), at))
            .collect();
        if self.json {
            let mut status = as_json(&weft, &answers);
            status["jobs"] = jobs.iter().map(JobLine::json).collect();
            status["agent"] = agent.as_ref().map(AgentStatus::json).unwrap_or_default();
            status["mounts"] = mounts.iter().map(|(failed, at)| mount_as_json(at, failed)).collect();
            outln!("{status:#}");
        } else {
            out!("{}", as_text(&weft, &answers, self.verbose));
            for (failed, at) in &mounts {
                print_mount_errors(at, failed);
            }
            if !jobs.is_empty() || agent.is_some() {
                outln!();
                self.print_jobs(&jobs, agent.as_ref());
            }
        }
        Ok(if down { FAILED } else { 0 })
    }
}

impl Status {
    /// Prints the jobs of this user on this host that have I/O delegates, and the queue of the agent unless it is empty.
    fn print_jobs(&self, jobs: &[JobLine], agent: Option<&AgentStatus>) {
        if self.json {
            let jobs: Vec<_> = jobs.iter().map(JobLine::json).collect();
            outln!("{:#}", json!({ "jobs": jobs, "agent": agent.map(AgentStatus::json) }));
        } else {
            jobs.iter().for_each(|job| outln!("{}", job.text()));
            agent.into_iter().for_each(|agent| outln!("{}", agent.line()));
        }
    }
}

fn mount_as_json(at: &str, failed: &[FailedRequests]) -> Value {
    let one = |failed: &FailedRequests| {
        json!({
            "count": failed.count, "seconds_ago": failed.ago_s, "path": failed.path, "reason": failed.reason,
        })
    };
    json!({ "at": at, "errors": failed.iter().map(one).collect::<Vec<_>>() })
}

/// Prints why requests of a mount on this host failed (EIO).
fn print_mount_errors(at: &str, failed: &[FailedRequests]) {
    if failed.is_empty() {
        return;
    }
    outln!("\nerrors (EIO) of the mount {at}:");
    for FailedRequests { count, ago_s, path, reason } in failed {
        let path = if path.is_empty() { String::new() } else { format!(" on {path}") };
        let ago = uptime(Nanos::from_s(*ago_s));
        outln!("  {count} requests, the last {ago} ago{path}: {}", without_numbers(reason));
    }
}

/// Asks all servers concurrently.
pub fn query_servers(weft: &Weft) -> Vec<ServerReply<'_>> {
    std::thread::scope(|scope| {
        let asked: Vec<_> = weft
            .cluster
            .numbered()
            .map(|(id, server)| (server, scope.spawn(move || one(weft, id))))
            .collect();
        let answer = |(server, thread): (_, std::thread::ScopedJoinHandle<'_, _>)| {
            let failed = || Err((false, "asking it failed: see above".to_owned()));
            let status = thread.join().unwrap_or_else(|_| failed());
            let is_refused = status.as_ref().is_err_and(|(is_refused, _)| *is_refused);
            ServerReply { server, status: status.map_err(|(_, why)| why), is_refused }
        };
        asked.into_iter().map(answer).collect()
    })
}

/// Asks a server. An error says whether the server has refused the request, and why.
fn one(weft: &Weft, id: ServerId) -> Result<ServerStatus, (bool, String)> {
    block_on(weft.client.status(id)).map_err(|error| match &error {
        weft_client::Error::Unreachable(unreachable) => (false, without_numbers(&unreachable.cause)),
        _ => (matches!(error, weft_client::Error::Refused(_)), why(&error)),
    })
}

/// Returns the address that this host uses: a socket is one of the server's own host only.
fn reachable(server: &Server) -> String {
    let is_usable = |address: &&Address| matches!(address, Address::Tcp(..)) || runs_here(server);
    let address = server.addresses.iter().find(is_usable).or(server.addresses.first());
    address.map(ToString::to_string).unwrap_or_default()
}

fn as_text(weft: &Weft, answers: &[ServerReply<'_>], verbose: bool) -> String {
    let mut servers = Table::new(["SERVER", "STATE", "UP", "PID", "CLIENTS", "MEMORY", "ADDRESS"]);
    let mut targets = Table::new([
        "TARGET", "CLASS", "SERVER", "STATE", "MODULE", "SIZE", "FREE", "READ", "WRITTEN", "REQUESTS",
        "LOAD", "LEASES",
    ]);
    let records = answers.iter().filter_map(|answer| answer.status.as_ref().ok()?.metadata.as_ref());
    let states: BTreeMap<TargetId, TargetState> =
        records.flat_map(|found| &found.targets).map(|record| (record.target, record.state)).collect();
    let mut metadata = String::new();
    let mut is_down = false;
    let mut troubles = String::new();
    for ServerReply { server, status, is_refused } in answers {
        let address = reachable(server);
        match status {
            Ok(status) => {
                servers.row([
                    server.name.clone(),
                    "up".into(),
                    uptime(status.uptime),
                    status.pid.to_string(),
                    status.connections.to_string(),
                    human_bytes(status.memory.0),
                    address,
                ]);
                if let Some(audit) = &status.audit {
                    troubles += &audit_troubles(&server.name, audit);
                }
                for target in &status.targets {
                    if let Some(refused) = &target.refused {
                        let [size, free, read, written, requests, load, leases] =
                            std::array::from_fn(|_| "-".into());
                        targets.row([
                            target.target.0.to_string(),
                            target.class.clone(),
                            server.name.clone(),
                            refused.state.to_uppercase(),
                            target.module.clone(),
                            size,
                            free,
                            read,
                            written,
                            requests,
                            load,
                            leases,
                        ]);
                        troubles += &format!(
                            "target {} on {} is refused: {}\n",
                            target.target.0, server.name, refused.reason
                        );
                        continue;
                    }
                    targets.row([
                        target.target.0.to_string(),
                        target.class.clone(),
                        server.name.clone(),
                        states.get(&target.target).map_or("-", |state| state.word()).into(),
                        target.module.clone(),
                        human_bytes(target.total.0),
                        human_bytes(target.free.0),
                        human_bytes(target.bytes_read),
                        human_bytes(target.bytes_written),
                        target.requests.to_string(),
                        target.queue.to_string(),
                        target.leases.to_string(),
                    ]);
                }
                if let Some(found) = &status.metadata {
                    metadata = format!(
                        "\nmetadata on {}: {} inodes, {} sessions, {} opens, {} locks; {} changes in {} \
                        commits; {} of {} free\n",
                        server.name,
                        found.inodes,
                        found.sessions,
                        found.opens,
                        found.locks,
                        found.mutations,
                        found.commits,
                        human_bytes(found.free.0),
                        human_bytes(found.total.0),
                    );
                    if found.damaged_blocks > 0 {
                        metadata += &format!(
                            "the metadata database is damaged in {} places: run `weft fsck`\n",
                            found.damaged_blocks
                        );
                    }
                }
            }
            Err(reason) => {
                let dash = || "-".to_owned();
                let (state, trouble) = match is_refused {
                    true => ("REFUSES", "refuses this command"),
                    false => ("DOWN", "is down"),
                };
                servers.row([server.name.clone(), state.into(), dash(), dash(), dash(), dash(), address]);
                for target in &server.targets {
                    let [size, free, read, written, requests, load, leases] = std::array::from_fn(|_| dash());
                    targets.row([
                        target.id.0.to_string(),
                        target.class.clone(),
                        server.name.clone(),
                        state.into(),
                        "-".into(),
                        size,
                        free,
                        read,
                        written,
                        requests,
                        load,
                        leases,
                    ]);
                }
                is_down |= !is_refused;
                troubles += &format!("server {} {trouble}: {reason}\n", server.name);
            }
        }
    }
    if !troubles.is_empty() {
        troubles.insert(0, '\n');
        troubles += match weft.cluster.embedded {
            _ if !is_down => "",
            Some(_) => {
                "servers of an embedded cluster end when they are not used; `weft run -- PROGRAM` starts them\n"
            }
            None => "start a server with `weft serve NAME` on its host\n",
        };
    }
    let devices = weft.cluster.emulated();
    let emulated =
        if devices.is_empty() { String::new() } else { format!("\nemulated: {}\n", devices.join(", ")) };
    let ids = answers.iter().filter_map(|answer| Some(answer.status.as_ref().ok()?.cluster_id));
    let id = ids.max().map_or_else(|| "id not known".into(), |id| id.to_string());
    let head = format!("cluster {} {id} ({})\n\n", weft.cluster.name, weft.cluster.file.display());
    let (ssds, reservations) = (ssds(answers, verbose), space_reservations(answers));
    let users = if verbose { users(answers) } else { String::new() };
    let mut notes = String::new();
    for note in [nearly_full, damaged, compressed] {
        let replies = answers.iter().filter_map(|answer| Some((answer.server, answer.status.as_ref().ok()?)));
        notes.extend(replies.map(|(server, status)| note(server, &status.targets)));
    }
    if !notes.is_empty() {
        notes.insert(0, '\n');
    }
    format!(
        "{head}{}\n{}{notes}{ssds}{reservations}{users}{metadata}{emulated}{troubles}",
        servers.render(),
        targets.render()
    )
}

/// Returns why the audit log is incomplete, if it is.
fn audit_troubles(server: &str, audit: &AuditStatus) -> String {
    let AuditStatus { path, lost, failed, .. } = audit;
    let lost = if *lost > 0 { format!("; {lost} events were lost since the start") } else { String::new() };
    match failed {
        Some(why) => {
            let why = without_numbers(why);
            format!("audit log {path} of server {server} cannot be written: {why}{lost}\n")
        }
        None if lost.is_empty() => String::new(),
        None => format!("audit log {path} of server {server} is not complete{lost}\n"),
    }
}

/// Returns a line about each target that has compressed bytes since its server's start.
pub fn compressed(server: &Server, targets: &[weft_wire::status::TargetStatus]) -> String {
    let line = |target: &weft_wire::status::TargetStatus| {
        let sizes = super::stripe::both_sizes(target.bytes_compressed, target.bytes_stored);
        format!("target {} of {} compressed since the start: {sizes}\n", target.target.0, server.name)
    };
    targets.iter().filter(|target| target.bytes_compressed > 0).map(line).collect()
}

/// Returns lines about blocks that did not match their checksums.
fn damaged(server: &Server, targets: &[weft_wire::status::TargetStatus]) -> String {
    let mut out = String::new();
    for target in targets {
        let id = target.target.0;
        if target.damaged > 0 {
            out += &format!(
                "target {id} of {}: {} damaged blocks were found since the start: `weft fsck --scrub` names \
                the files\n",
                server.name, target.damaged
            );
        }
        if target.unverified > 0 {
            out += &format!(
                "target {id} of {}: {} blocks were accepted without checksums, which a loss of power destroyed\n",
                server.name, target.unverified
            );
        }
    }
    out
}

/// Returns the table of space reservations, if any target is limited.
fn space_reservations(answers: &[ServerReply<'_>]) -> String {
    let found = answers.iter().filter_map(|answer| answer.status.as_ref().ok()?.metadata.as_ref());
    let mut found = found.flat_map(|metadata| &metadata.space_reservations).peekable();
    if found.peek().is_none() {
        return String::new();
    }
    let mut table = Table::new(["TARGET", "CAPACITY", "RESERVED", "LEFT"]);
    for reservation in found {
        let left = human_bytes(reservation.capacity.0.saturating_sub(reservation.reserved.0));
        table.row([
            reservation.target.0.to_string(),
            human_bytes(reservation.capacity.0),
            human_bytes(reservation.reserved.0),
            left,
        ]);
    }
    format!("\n{}", table.render())
}

/// Returns the table of resources by user on each server, and the limits of one user.
fn users(answers: &[ServerReply<'_>]) -> String {
    let mut table = Table::new(["USER", "SERVER", "CONNECTIONS", "MEMORY", "OPENS", "LOCKS", "INODES"]);
    let mut is_any = false;
    for ServerReply { server, status, .. } in answers {
        let Ok(status) = status else { continue };
        let with_metadata = |count: String| if status.metadata.is_some() { count } else { "-".into() };
        let most = (!status.users.is_empty()).then_some(&status.bounds);
        for (is_bound, user) in
            status.users.iter().map(|user| (false, user)).chain(most.map(|bounds| (true, bounds)))
        {
            is_any = true;
            table.row([
                if is_bound { "at most".into() } else { user.uid.to_string() },
                server.name.clone(),
                user.connections.to_string(),
                human_bytes(user.payload.0),
                with_metadata(user.opens.to_string()),
                with_metadata(user.locks.to_string()),
                with_metadata(user.inodes.to_string()),
            ]);
        }
    }
    if is_any { format!("\n{}", table.render()) } else { String::new() }
}

/// Returns the table of SSDs beside disks, if there are any.
fn ssds(answers: &[ServerReply<'_>], verbose: bool) -> String {
    let targets = answers.iter().filter_map(|answer| answer.status.as_ref().ok()).flat_map(|s| &s.targets);
    let found: Vec<_> =
        targets.filter_map(|target| Some((target.target.0.to_string(), target.ssd.as_ref()?))).collect();
    if found.is_empty() {
        return String::new();
    }
    let mut table = Table::new(["TARGET", "SSD", "POLICY", "ROOM", "USED", "DIRTY", "BACK", "HITS", "TIME"]);
    let mut classes = Table::new(["TARGET", "CLASS", "ADMITTED", "BYTES", "DIRTY", "QUOTA", "RETURN"]);
    let mut caches =
        Table::new(["TARGET", "CACHE", "EVICTION", "PARTITION", "HIT BYTES", "REJECTED", "EVICTED", "AHEAD"]);
    let mut troubles = String::new();
    for (target, ssd) in &found {
        let reads = ssd.read_hits + ssd.read_partial_hits + ssd.read_misses;
        table.row([
            target.clone(),
            ssd.path.clone(),
            ssd.policy.clone(),
            human_bytes(ssd.capacity.0),
            human_bytes(ssd.bytes().0),
            human_bytes(ssd.dirty.0),
            format!("{}/s", human_bytes(ssd.written_back_per_s.0)),
            (100 * ssd.read_hits).checked_div(reads).map_or("-".into(), |part| format!("{part} %")),
            milliseconds(ssd.service_time.0 as i64),
        ]);
        for class in &ssd.classes {
            classes.row([
                target.clone(),
                class.name.clone(),
                class.admitted.to_string(),
                human_bytes(class.bytes.0),
                human_bytes(class.dirty.0),
                human_bytes(class.quota.0),
                milliseconds(class.gain),
            ]);
        }
        if let Some(cache) = &ssd.cache {
            let bytes = cache.bytes_hit.0 + cache.bytes_missed.0;
            caches.row([
                target.clone(),
                cache.mode.clone(),
                cache.eviction.clone(),
                ssd.partition.clone(),
                (100 * cache.bytes_hit.0).checked_div(bytes).map_or("-".into(), |part| format!("{part} %")),
                cache.rejected.to_string(),
                human_bytes(cache.bytes_evicted.0),
                human_bytes(cache.bytes_prefetched.0),
            ]);
        }
        if ssd.lost.0 > 0 {
            troubles += &format!(
                "SSD of target {target}: {} are lost; the server's log names the ranges\n",
                human_bytes(ssd.lost.0)
            );
        }
        if let Some(why) = &ssd.failed {
            troubles += &format!("SSD of target {target}: {why}\n");
        }
    }
    let has_cache = found.iter().any(|(_, ssd)| ssd.cache.is_some());
    let caches = if has_cache { format!("\n{}", caches.render()) } else { String::new() };
    let classes = if verbose { format!("\n{}", classes.render()) } else { String::new() };
    let gap = if troubles.is_empty() { "" } else { "\n" };
    format!("\n{}{caches}{classes}{gap}{troubles}", table.render())
}

fn milliseconds(nanos: i64) -> String {
    format!("{:.2} ms", nanos as f64 / 1e6)
}

fn uptime(up: Nanos) -> String {
    let seconds = up.0 / 1_000_000_000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

fn as_json(weft: &Weft, answers: &[ServerReply<'_>]) -> Value {
    let servers: Vec<_> = answers
        .iter()
        .map(|ServerReply { server, status, .. }| {
            let addresses: Vec<_> = server.addresses.iter().map(ToString::to_string).collect();
            match status {
                Ok(status) => json!({
                    "name": server.name, "up": true, "addresses": addresses, "status": status,
                }),
                Err(reason) => json!({
                    "name": server.name, "up": false, "addresses": addresses, "reason": reason,
                }),
            }
        })
        .collect();
    json!({
        "cluster": weft.cluster.name,
        "file": weft.cluster.file,
        "emulated": weft.cluster.emulated(),
        "servers": servers,
    })
}
