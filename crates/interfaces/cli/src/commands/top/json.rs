//! One JSON object for each interval.

use super::rates::{Flow, Latency, Measured, Rates};
use super::view::Labels;
use serde_json::{Value, json};
use weft_core::{FileId, Nanos};
use weft_wire::activity::Work;
use weft_wire::meta::KnownPath;

fn flow(flow: &Flow) -> Value {
    json!({
        "read_bytes_per_s": rounded(flow.read_bytes),
        "written_bytes_per_s": rounded(flow.written_bytes),
        "reads_per_s": rounded(flow.reads),
        "writes_per_s": rounded(flow.writes),
        "other_requests_per_s": rounded(flow.others),
        "metadata_requests_per_s": rounded(flow.metadata),
        "mean_latency_us": flow.latency().map(micros),
    })
}

fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn micros(time: Nanos) -> f64 {
    rounded(time.0 as f64 / 1e3)
}

fn work(work: &Work) -> Value {
    json!({
        "read_bytes": work.bytes_read.0,
        "written_bytes": work.bytes_written.0,
        "reads": work.reads,
        "writes": work.writes,
        "other_requests": work.others,
        "metadata_requests": work.metadata,
        "time_us": work.time.0 / 1000,
    })
}

fn latency(latency: Latency) -> Value {
    json!({ "p50_us": latency.p50.map(micros), "p99_us": latency.p99.map(micros) })
}

fn measured(row: &Measured, names: Value) -> Value {
    let mut all = names;
    all["rate"] = flow(&row.flow);
    all["total"] = work(&row.total);
    all["leases"] = row.leases.into();
    all
}

fn path(labels: &Labels, file: FileId) -> Value {
    match labels.paths.get(&file) {
        Some(KnownPath::Path(_)) => labels.file(file).into(),
        _ => Value::Null,
    }
}

/// Returns the object of one interval that ended at `now`.
pub fn object(rates: &Rates, cluster: &str, now: &str, labels: &mut Labels) -> Value {
    let clients = rates.clients.iter().map(|((client, uid), row)| {
        let names = json!({
            "client": format!("{client:016x}"),
            "uid": uid,
            "user": labels.users.user(*uid),
            "host": row.process.host,
            "pid": row.process.pid,
            "program": row.process.program,
            "address": row.address,
            "connections": row.connections,
        });
        measured(&row.measured, names)
    });
    let clients: Vec<_> = clients.collect();
    let user = |(uid, row): (&u32, &Measured), user: &str| measured(row, json!({ "uid": uid, "user": user }));
    let users: Vec<_> = rates.users.iter().map(|row| user(row, labels.users.user(*row.0))).collect();
    let mut files = Vec::new();
    for ((file, uid), row) in &rates.files {
        let user = labels.users.user(*uid).to_owned();
        let path = path(labels, *file);
        files.push(measured(row, json!({ "inode": file.0, "path": path, "uid": uid, "user": user })));
    }
    let targets = rates.targets.iter().map(|(id, target)| {
        json!({
            "target": id.0,
            "class": target.status.class,
            "server": target.server,
            "refused": target.status.refused.as_ref().map(|refused| &refused.reason),
            "rate": flow(&target.flow),
            "read_latency": latency(target.read),
            "write_latency": latency(target.write),
            "queue": target.status.queue,
            "leases": target.status.leases,
            "disk_read_bytes_per_s": target.disk.map(|(read, _)| rounded(read)),
            "disk_written_bytes_per_s": target.disk.map(|(_, written)| rounded(written)),
            "size_bytes": target.status.total.0,
            "free_bytes": target.status.free.0,
        })
    });
    let servers = rates.servers.iter().map(|server| match &server.state {
        Ok(state) => json!({
            "name": server.name,
            "up": true,
            "rate": state.flow.as_ref().map(flow),
            "connections": state.connections,
            "memory_bytes": state.memory.0,
            "uptime_s": rounded(state.uptime.0 as f64 / 1e9),
        }),
        Err(why) => json!({ "name": server.name, "up": false, "reason": why }),
    });
    let [read, write, other, metadata] = rates.latencies;
    let (size, free) = rates.space();
    json!({
        "time": now,
        "cluster": cluster,
        "interval_s": rates.interval.0 as f64 / 1e9,
        "all_users": rates.is_complete,
        "total": {
            "rate": flow(&rates.total),
            "read_latency": latency(read),
            "write_latency": latency(write),
            "other_latency": latency(other),
            "metadata_latency": latency(metadata),
            "leases": rates.leases(),
            "size_bytes": size.0,
            "free_bytes": free.0,
            "ssd_capacity_bytes": rates.ssds().map(|(capacity, _)| capacity.0),
            "ssd_dirty_bytes": rates.ssds().map(|(_, dirty)| dirty.0),
        },
        "servers": servers.collect::<Vec<_>>(),
        "targets": targets.collect::<Vec<_>>(),
        "clients": clients,
        "users": users,
        "files": files,
        "other_clients": flow(&rates.other_clients),
        "other_files": flow(&rates.other_files),
    })
}
