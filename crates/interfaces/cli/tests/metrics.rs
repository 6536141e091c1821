//! Metrics of a server: their format, their values, and the names in the dashboard, the alert rules and the reference.

mod common;

use common::root;
use common::servers::Servers;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Answer to a request: status and body.
fn get(socket: &std::path::Path, method: &str, path: &str) -> (u16, String, String) {
    let mut stream = UnixStream::connect(socket).expect("connects");
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: weft\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    (status, head.to_owned(), body.to_owned())
}

/// Samples by their names with labels.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a sample");
            (name.to_owned(), value.parse().unwrap_or_else(|_| panic!("{line}")))
        })
        .collect()
}

/// A server with metrics at a socket in `dir`.
fn server(dir: &tempfile::TempDir, target: &str, ibridge: &str) -> (Servers, PathBuf) {
    let socket = dir.path().join("metrics");
    let line = format!("metrics = \"unix:{}\"", socket.display());
    (Servers::of_classes(&["hdd"], &line, target, ibridge, ""), socket)
}

#[test]
fn metrics_are_those_of_the_server() {
    let dir = tempfile::tempdir().expect("a directory");
    // Leases would leave the servers out.
    let (servers, socket) = server(&dir, "leases = false", "");
    let (status, head, text) = get(&socket, "GET", "/metrics");
    assert_eq!(status, 200, "{head}");
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(text.ends_with("# EOF\n"), "{text}");
    let before = samples(&text);
    let local = servers.path("bytes");
    std::fs::write(&local, vec![7; 1 << 20]).expect("written");
    let local = local.display().to_string();
    servers.weft(["cp", &local, "/weft/a"]);
    assert!(servers.weft(["cat", "/weft/a"]).len() == 1 << 20);
    let after = samples(&get(&socket, "GET", "/metrics?x=1").2);
    let grown = |name: &str| after[name] - before.get(name).copied().unwrap_or(0.0);
    let target = "{target=\"0\",class=\"hdd\"}";
    assert_eq!(grown(&format!("weft_target_written_bytes_total{target}")), f64::from(1 << 20));
    assert_eq!(grown(&format!("weft_target_read_bytes_total{target}")), f64::from(1 << 20));
    assert_eq!(after[&format!("weft_target_up{target}")], 1.0);
    assert!(grown("weft_metadata_requests_total") > 0.0 && grown("weft_metadata_mutations_total") > 0.0);
    for operation in ["read", "write", "metadata"] {
        let name = |part: &str| format!("weft_request_duration_seconds_{part}{{operation=\"{operation}\"}}");
        let count = after[&name("count")];
        assert!(count > 0.0 && after[&name("sum")] > 0.0, "{operation}");
        let all = format!("weft_request_duration_seconds_bucket{{le=\"+Inf\",operation=\"{operation}\"}}");
        assert_eq!(after[&all], count, "{operation}");
    }
    assert_eq!(after["weft_panics_total"], 0.0);
    // No names of files, and no keys.
    let text = get(&socket, "GET", "/metrics").2;
    let key = std::fs::read_to_string(servers.path("key")).expect("a key");
    assert!(!text.contains("/weft/a") && key.lines().all(|line| line.len() < 16 || !text.contains(line)));
}

#[test]
fn quotas_have_samples_with_use_and_limits() {
    let dir = tempfile::tempdir().expect("a directory");
    let (servers, socket) = server(&dir, "", "");
    let metrics = || get(&socket, "GET", "/metrics").2;
    assert_eq!(samples(&metrics())["weft_quotas"], 0.0);
    servers.weft(["mkdir", "/weft/a\\b \"c"]);
    servers.weft(["quota", "set", "-q", "--tree", "/weft/a\\b \"c", "--bytes", "1M"]);
    servers.weft(["quota", "set", "-q", "--user", "4001", "--bytes", "1G", "--inodes", "100"]);
    let local = servers.path("bytes");
    std::fs::write(&local, vec![7; 300_000]).expect("written");
    servers.weft(["cp", local.to_str().expect("text"), "/weft/a\\b \"c/file"]);
    let tree = r#"{tree="/weft/a\\b \"c"}"#;
    // The last close is sent without waiting for its reply.
    let found = common::until(Duration::from_secs(10), "the bytes count", || {
        let found = samples(&metrics());
        (found[&format!("weft_quota_used_bytes{tree}")] == 300_000.0).then_some(found)
    });
    let of = |name: &str, labels: &str| found.get(&format!("weft_quota_{name}{labels}")).copied();
    assert_eq!(found["weft_quotas"], 2.0);
    assert_eq!(of("limit_bytes", tree), Some(f64::from(1 << 20)));
    assert_eq!((of("used_files", tree), of("limit_files", tree)), (Some(2.0), None), "no limit, no sample");
    let user = "{user=\"4001\"}";
    assert_eq!((of("used_bytes", user), of("limit_bytes", user)), (Some(0.0), Some(f64::from(1 << 30))));
    assert_eq!((of("used_files", user), of("limit_files", user)), (Some(0.0), Some(100.0)));
}

#[test]
fn other_requests_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_servers, socket) = server(&dir, "", "");
    for (method, path, expected) in
        [("GET", "/", 200), ("GET", "/etc/passwd", 404), ("POST", "/metrics", 405), ("GET", "/metrics", 200)]
    {
        assert_eq!(get(&socket, method, path).0, expected, "{method} {path}");
    }
    // Garbage ends its connection only.
    let mut stream = UnixStream::connect(&socket).expect("connects");
    stream.write_all(&[0xff; 4096]).expect("sent");
    drop(stream);
    assert_eq!(get(&socket, "GET", "/metrics").0, 200);
}

/// Names that begin with `weft_` in a text.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("weft_")).map(str::to_owned).collect()
}

/// A name without the suffix of a histogram's samples.
fn family(name: &str) -> &str {
    ["_bucket", "_count", "_sum"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

#[test]
fn dashboard_alerts_and_reference_name_metrics_that_exist() {
    let ssd =
        "size = \"32 MiB\"\npolicy = \"threshold\"\nfragments_below = \"64 KiB\"\nrandom_below = \"64 KiB\"";
    let dir = tempfile::tempdir().expect("a directory");
    let (_servers, socket) = server(&dir, "", ssd);
    let text = get(&socket, "GET", "/metrics").2;
    // Families, with the suffix that their samples have.
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let found: BTreeSet<String> = types
        .map(|(name, kind)| if kind == "counter" { format!("{name}_total") } else { name.to_owned() })
        .collect();
    assert!(found.len() > 40, "{found:?}");
    let page = |name: &str| std::fs::read_to_string(root().join(name)).expect(name);
    for used in ["contrib/monitoring/grafana-dashboard.json", "contrib/monitoring/prometheus-alerts.yml"] {
        let used_names = names(&page(used));
        assert!(used_names.len() > 5, "{used}");
        for name in used_names {
            assert!(found.contains(family(&name)), "{used}: there is no metric {name}");
        }
    }
    let reference = page("docs/reference/metrics.md");
    let told = names(reference.split_once("## OpenMetrics").expect("the section").1);
    // Only with an audit log.
    let told: BTreeSet<String> = told.into_iter().filter(|name| !name.starts_with("weft_audit")).collect();
    assert_eq!(told.difference(&found).collect::<Vec<_>>(), Vec::<&String>::new(), "told, but absent");
    let optional = ["weft_cache_hit_bytes_total", "weft_cache_missed_bytes_total"];
    let untold: Vec<_> = found.difference(&told).filter(|name| !optional.contains(&name.as_str())).collect();
    assert_eq!(untold, Vec::<&String>::new(), "present, but not told");
    serde_json::from_str::<serde_json::Value>(&page("contrib/monitoring/grafana-dashboard.json"))
        .expect("the dashboard is JSON");
}
