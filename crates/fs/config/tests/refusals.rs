//! Every reason for which a cluster file is rejected, with the position and the remedy of the message.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use weft_config::{Checksums, Cluster, EXAMPLE, Emulate, Module, TakesMeasured, TransportChoice};
use weft_core::cache::{CacheMode, EvictionPolicy};
use weft_core::ibridge::{Policy, Weight};
use weft_core::placement::{ClassFilter, Factor};
use weft_core::{ByteLen, CacheShare, Integrity, Nanos, Reserve, ServerId, TargetId};
use weft_env::Address;

/// Minimal valid file with two servers.
const GOOD: &str = r#"[cluster]
name = "test"
key_file = "/nowhere/cluster.key"

[[server]]
name = "a"
address = "unix:/run/a.sock"

[server.metadata]
path = "/a/metadata"

[[server.target]]
id = 0
class = "hdd"
path = "/a/target"

[[server]]
name = "b"
address = ["tcp:hostb:7411", "unix:/run/b.sock"]

[[server.target]]
id = 1
class = "ssd"
path = "/b/target"
"#;

fn parse(text: &str) -> Result<Cluster, weft_config::ConfigError> {
    Cluster::parse(Path::new("cluster.toml"), text)
}

/// Replaces `from` in the valid file and expects an error at the line that contains `line`, with these texts.
#[track_caller]
fn check_rejected(from: &str, to: &str, line: &str, problem: &str, remedy: &str) {
    assert!(GOOD.contains(from), "the valid file has no {from:?}");
    let text = GOOD.replacen(from, to, 1);
    let error = parse(&text).expect_err("rejected");
    let place = error.place.clone().expect("a place");
    let shown = error.to_string();
    assert!(place.text.contains(line), "wrong line: {shown}");
    assert_eq!(text.lines().nth(place.line - 1).map(str::trim_end), Some(place.text.as_str()), "{shown}");
    assert!(error.problem.contains(problem), "wrong problem: {shown}");
    assert!(error.remedy.contains(remedy), "wrong remedy: {shown}");
    assert!(shown.starts_with(&format!("cluster.toml:{}:{}: ", place.line, place.column)), "{shown}");
}

#[test]
fn the_good_file_loads_with_defaults() {
    let cluster = parse(GOOD).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(cluster.mount, Path::new("/weft"));
    assert_eq!(cluster.idle_exit, None);
    assert_eq!(cluster.client, weft_config::Client::default());
    assert_eq!(cluster.servers[0].targets[0].module, Module::Buffered);
    assert!(cluster.servers[0].targets[0].leases);
    let map = cluster.map();
    assert_eq!(map.metadata, ServerId(0));
    assert_eq!(map.server_of(TargetId(1)), Some(ServerId(1)));
    assert!(matches!(map.servers[1].addresses[0], Address::Unix(_)), "Unix sockets come first");
}

#[test]
fn the_example_loads_and_shows_every_default_correctly() {
    let example = parse(EXAMPLE).unwrap_or_else(|error| panic!("{error}"));
    // Enabling the lines that show defaults changes nothing.
    let all = EXAMPLE
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '[') => rest,
            _ => line,
        })
        .collect::<Vec<_>>()
        .join("\n");
    let mut enabled = parse(&all).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(enabled.idle_exit, Some(Nanos::from_s(600)), "the lines are enabled");
    enabled.idle_exit = None; // its default is never
    // The defaults are half of the server's limits.
    let half = (enabled.servers[0].connections_max / 2, ByteLen(enabled.servers[0].payload_memory.0 / 2));
    let limits = &mut enabled.limits;
    assert_eq!((limits.user_connections.take(), limits.user_payload.take()), (Some(half.0), Some(half.1)));
    enabled.servers[0].host = None; // as derived
    // By default, nothing is emulated.
    let emulated = ["metadata of node0: hdd-7200", "target 0: hdd-7200", "log beside target 0: sata-ssd"];
    assert_eq!(enabled.emulated(), emulated);
    // By default there is no SSD; a section with only the required lines has the defaults.
    let mut beside = enabled.servers[0].targets[0].ibridge.take().expect("an SSD");
    assert_eq!(beside.profile.take(), Some(enabled.servers[0].targets[0].figures()));
    beside.emulate = None;
    assert_eq!(beside, with_ssd("").expect("loads").servers[0].targets[0].ibridge.clone().expect("an SSD"));
    // By default there is no cache.
    let cache = enabled.servers[0].targets[0].cache.take().expect("a cache");
    assert_eq!(cache.mode, CacheMode::WriteBack);
    let defaults = with_ssd("[server.target.cache]\nmode = \"write-back\"\n").expect("loads");
    assert_eq!(Some(cache), defaults.servers[0].targets[0].cache);
    enabled.servers[0].targets[0].emulate = None;
    // By default the capacity is not limited.
    assert_eq!(enabled.capacities(), [(TargetId(0), ByteLen(100 << 30))].into());
    enabled.servers[0].targets[0].capacity = None;
    // By default, targets have no compression of their own.
    assert_eq!(enabled.settings()[&TargetId(0)].compression, "zstd".parse().ok());
    enabled.servers[0].targets[0].compression = None;
    // On a small device, the default reserve is smaller.
    assert_eq!(enabled.settings()[&TargetId(0)].reserve, Some(Reserve::Bytes(ByteLen(1 << 30))));
    enabled.servers[0].targets[0].reserve = Reserve::Usual;
    enabled.servers[0].metadata.as_mut().expect("metadata").emulate = None;
    // By default there is no audit log, and no address of metrics.
    assert_eq!(enabled.servers[0].audit.take(), Some("/var/log/weft/audit.log".into()));
    assert!(matches!(enabled.servers[0].metrics.take(), Some(Address::Tcp(_, 9411))));
    // By default, programs repeat requests for the time that the example shows, and commands for a shorter one.
    assert_eq!(enabled.client.retry_for.take(), Some(example.client_options().retry_for));
    assert_eq!(example.client_options().retry_for, Nanos::from_s(15 * 60));
    assert_eq!(example.command_options().retry_for, Nanos::from_s(5));
    assert_eq!(enabled, example);
}

/// Loads the valid file with an SSD beside the first target and the lines `more` in its section.
fn with_ssd(more: &str) -> Result<Cluster, weft_config::ConfigError> {
    let target = "path = \"/a/target\"\n";
    let beside = "[server.target.ibridge]\npath = \"/ssd/weft/log0\"\nsize = \"10 GiB\"\n";
    parse(&GOOD.replacen(target, &format!("{target}{beside}{more}"), 1))
}

#[test]
fn every_key_of_an_ssd_is_read() {
    let defaults = with_ssd("").unwrap_or_else(|error| panic!("{error}"));
    let target = &defaults.servers[0].targets[0];
    let beside = target.ibridge.as_ref().expect("an SSD");
    assert_eq!((beside.policy, beside.weight), (Policy::default(), Weight::default()));
    assert_eq!(beside.entry_size, ByteLen::from_kib(4));
    assert_eq!((beside.dirty_high, beside.dirty_low), (ByteLen(15 << 29), ByteLen(5 << 30)));
    assert_eq!(
        (beside.exchange, beside.stale, beside.idle),
        (Nanos::from_s(1), Nanos::from_s(5), Nanos::from_ms(10))
    );
    assert_eq!(target.figures(), Emulate::Named("hdd-7200".into()), "of its class");
    let cluster = with_ssd(
        "policy = \"static(1:2)\"\nfragments_below = \"16 KiB\"\nrandom_below = 0\nweight = \"1/8\"\nexchange = \"100 ms\"\n\
         idle = \"1 s\"\ndirty_high = \"10 %\"\ndirty_low = \"1 MiB\"\npreload = false\nentry_size = \"1 KiB\"\nprofile = \"/etc/weft/disk.toml\"\n\
         emulate = \"ibridge-ssd\"\n",
    );
    let cluster = cluster.unwrap_or_else(|error| panic!("{error}"));
    let target = &cluster.servers[0].targets[0];
    let beside = target.ibridge.as_ref().expect("an SSD");
    assert_eq!(beside.policy, Policy::Static { random: 1, fragments: 2 });
    assert_eq!((beside.fragments_below, beside.random_below), (ByteLen::from_kib(16), ByteLen(0)));
    assert_eq!(beside.weight, Weight::new(1, 8).expect("a weight"));
    assert_eq!(
        (beside.exchange, beside.stale),
        (Nanos::from_ms(100), Nanos::from_ms(500)),
        "five times the interval"
    );
    assert_eq!(
        (beside.dirty_high, beside.dirty_low, beside.preload),
        (ByteLen(1 << 30), ByteLen::from_mib(1), false)
    );
    assert_eq!(beside.entry_size, ByteLen::from_kib(1));
    assert_eq!(target.figures(), Emulate::File("/etc/weft/disk.toml".into()));
    let takes = |more: &str| with_ssd(more).expect("a cluster").servers[0].targets[0].takes_measured();
    assert_eq!(takes(""), TakesMeasured::May);
    assert_eq!(takes("profile = \"measured\"\n"), TakesMeasured::Must);
    assert_eq!(takes("profile = \"hdd-7200\"\n"), TakesMeasured::No);
    assert_eq!(cluster.emulated(), ["log beside target 0: ibridge-ssd"]);
}

#[test]
fn invalid_settings_of_an_ssd() {
    let check_rejected = |more: &str, problem: &str, remedy: &str| {
        let shown = with_ssd(more).expect_err("rejected").to_string();
        assert!(shown.contains(problem) && shown.contains(remedy), "{shown}");
    };
    check_rejected("policy = \"fast\"\n", "policy = \"fast\" cannot be used", "use off, ibridge, threshold");
    check_rejected("weight = \"8/7\"\n", "weight = \"8/7\"", "such as \"7/8\"");
    check_rejected("dirty_low = \"80 %\"\n", "not in ascending order", "remove both lines");
    check_rejected("dirty_high = \"11 GiB\"\n", "not in ascending order", "remove both lines");
    check_rejected("dirty_high = \"101 %\"\n", "dirty_high", "between \"1 %\" and \"100 %\"");
    check_rejected(
        "policy = \"ibridge\"\nfragments_below = \"40 KiB\"\n",
        "fragment_threshold of clients 20 KiB",
        "fragment_threshold = \"40 KiB\"",
    );
    check_rejected(
        "speed = 5\n",
        "does not know \"speed\"",
        "[server.target.ibridge] takes: path, size, policy",
    );
    assert!(
        with_ssd("policy = \"threshold\"\nfragments_below = \"40 KiB\"\n").is_ok(),
        "it asks for nobody's siblings"
    );
    let beside = |lines: &str| {
        parse(&format!("{GOOD}[server.target.ibridge]\n{lines}")).expect_err("rejected").to_string()
    };
    assert!(beside("size = \"1 GiB\"\n").contains("has no \"path\""));
    assert!(beside("path = \"/ssd/log\"\n").contains("has no \"size\""));
    assert!(beside("path = \"/ssd/log\"\nsize = \"31 MiB\"\n").contains("between 32 MiB and 64 TiB"));
    assert!(beside("path = \"/b/target/log\"\nsize = \"1 GiB\"\n").contains("use the same directory"));
    let null =
        format!("{GOOD}module = \"null\"\n[server.target.ibridge]\npath = \"/ssd/log\"\nsize = \"1 GiB\"\n");
    assert!(parse(&null).expect_err("rejected").to_string().contains("stores nothing"));
}

/// Loads the valid file with the lines `lines` in the cache section of its last target.
fn with_cache(lines: &str) -> Result<Cluster, weft_config::ConfigError> {
    parse(&format!("{GOOD}[server.target.cache]\n{lines}"))
}

#[test]
fn every_key_of_a_cache_is_read() {
    let cache_of = |cluster: Cluster| {
        let mut targets = cluster.servers.into_iter().flat_map(|server| server.targets);
        targets.find_map(|target| target.cache).expect("a cache")
    };
    let alone = "mode = \"write-through\"\npath = \"/ssd/cache\"\nsize = \"1 GiB\"\n";
    let cache = cache_of(with_cache(alone).unwrap_or_else(|error| panic!("{error}")));
    assert_eq!((cache.mode, cache.eviction), (CacheMode::WriteThrough, EvictionPolicy::S3Fifo));
    assert_eq!((cache.share, cache.prefetch), (CacheShare::Fixed(100), ByteLen(0)));
    let log = cache.log.expect("a log");
    assert_eq!((log.path, log.size), ("/ssd/cache".into(), ByteLen(1 << 30)));
    assert_eq!((log.dirty_high, log.dirty_low), (ByteLen(3 << 28), ByteLen(1 << 29)));
    assert_eq!((log.idle, log.entry_size, log.emulate), (Nanos::from_ms(10), ByteLen::from_kib(4), None));
    let all = "mode = \"read\"\npolicy = \"lru\"\nprefetch = \"1 MiB\"\npath = \"/ssd/cache\"\nsize = \"1 GiB\"\n\
               idle = \"1 s\"\ndirty_high = \"10 %\"\ndirty_low = \"1 MiB\"\nentry_size = \"1 KiB\"\n\
               emulate = \"sata-ssd\"\n";
    let cluster = with_cache(all).unwrap_or_else(|error| panic!("{error}"));
    assert!(cluster.emulated()[0].ends_with("sata-ssd"), "{:?}", cluster.emulated());
    let cache = cache_of(cluster);
    assert_eq!((cache.mode, cache.eviction), (CacheMode::Read, EvictionPolicy::Lru));
    assert_eq!(cache.prefetch, ByteLen::from_mib(1));
    let log = cache.log.expect("a log");
    assert_eq!((log.idle, log.entry_size), (Nanos::from_s(1), ByteLen::from_kib(1)));
    assert_eq!((log.dirty_high.0, log.dirty_low), ((1 << 30) / 10, ByteLen::from_mib(1)));
    let shared = |lines: &str| {
        cache_of(with_ssd(&format!("[server.target.cache]\nmode = \"read\"\n{lines}")).expect("loads"))
    };
    assert_eq!((shared("").share, shared("").log), (CacheShare::Fixed(50), None));
    assert_eq!(shared("share = \"adaptive\"\n").share, CacheShare::Adaptive);
}

#[test]
fn invalid_settings_of_a_cache() {
    let shows = |loaded: Result<Cluster, weft_config::ConfigError>, problem: &str, remedy: &str| {
        let shown = loaded.expect_err("rejected").to_string();
        assert!(shown.contains(problem) && shown.contains(remedy), "{shown}");
    };
    let log = "path = \"/ssd/cache\"\nsize = \"1 GiB\"\n";
    shows(with_cache(log), "has no \"mode\"", "write mode = \"read\"");
    shows(with_cache(&format!("mode = \"writeback\"\n{log}")), "mode", "write-back");
    shows(with_cache(&format!("mode = \"read\"\npolicy = \"fifo\"\n{log}")), "policy", "s3-fifo");
    shows(with_cache("mode = \"read\"\nsize = \"1 GiB\"\n"), "has no \"path\"", "a directory on the SSD");
    shows(with_cache("mode = \"read\"\npath = \"/ssd/cache\"\n"), "has no \"size\"", "size = \"10 GiB\"");
    shows(
        with_cache(&format!("mode = \"read\"\nshare = \"50 %\"\n{log}")),
        "nothing shares the SSD",
        "add [server.target.ibridge]",
    );
    shows(
        with_cache(&format!("mode = \"read\"\ndirty_low = \"80 %\"\n{log}")),
        "not in ascending order",
        "remove both lines",
    );
    shows(
        with_cache("mode = \"read\"\npath = \"/b/target/c\"\nsize = \"1 GiB\"\n"),
        "use the same",
        "separate",
    );
    shows(
        with_cache(&format!("speed = 5\nmode = \"read\"\n{log}")),
        "does not know \"speed\"",
        "takes: mode",
    );
    let null = format!("{GOOD}module = \"null\"\n[server.target.cache]\nmode = \"read\"\n{log}");
    shows(parse(&null), "stores nothing", "remove [server.target.cache]");
    for line in [
        "path = \"/other\"",
        "size = \"1 GiB\"",
        "idle = \"1 s\"",
        "dirty_high = \"10 %\"",
        "entry_size = \"4 KiB\"",
    ] {
        let both = with_ssd(&format!("[server.target.cache]\nmode = \"read\"\n{line}\n"));
        shows(both, "uses the log of iBridge", "in [server.target.ibridge]");
    }
    shows(with_ssd("[server.target.cache]\nmode = \"read\"\nshare = \"0 %\"\n"), "share", "or adaptive");
}

#[test]
fn values_are_read() {
    let text = format!(
        "{GOOD}module = \"direct\"\nqueue_depth = 7\nleases = false\nintegrity = \"crc32c\"\n\
         compress = \"zstd:3\"\n\
         capacity = \"64 MiB\"\nreserve = \"7 %\"\n[layout]\nstripe_size = 45056\nstripe_count = 2\n\
         compress = \"lz4/128KiB\"\nclass = \"ssd\"\n[client]\ntransport = \"socket\"\nchecksums = \"on\"\nrequest_timeout = \"1500 ms\"\n\
         fragment_threshold = \"0\"\n"
    );
    let cluster = parse(&text).unwrap_or_else(|error| panic!("{error}"));
    let target = &cluster.servers[1].targets[0];
    assert_eq!((target.module, target.queue_depth, target.leases), (Module::Direct, 7, false));
    assert_eq!(target.integrity, Integrity::Crc32c);
    assert_eq!(cluster.servers[0].targets[0].integrity, Integrity::Off);
    assert_eq!(cluster.compression.map(|found| found.to_string()).as_deref(), Some("lz4/128KiB"));
    let of_targets: Vec<_> = cluster
        .settings()
        .into_iter()
        .filter_map(|(id, settings)| Some((id, settings.compression?.to_string())))
        .collect();
    assert_eq!(of_targets, [(target.id, "zstd:3/64KiB".to_owned())]);
    assert_eq!(target.capacity, Some(ByteLen(64 << 20)));
    let old_name = parse(&format!("{GOOD}room = \"64 MiB\"\n")).expect("the former name of the key");
    assert_eq!(old_name.servers[1].targets[0].capacity, Some(ByteLen(64 << 20)));
    assert_eq!(cluster.settings()[&target.id].reserve, Some(Reserve::Percent(7)));
    let least = format!("{GOOD}reserve = \"2 GiB\"\n");
    let least = parse(&least).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(least.servers[1].targets[0].reserve, Reserve::Bytes(ByteLen(2 << 30)));
    for wrong in ["101 %", "-1 %", "much"] {
        let error = parse(&format!("{GOOD}reserve = \"{wrong}\"\n")).expect_err("rejected");
        assert!(error.to_string().contains("reserve"), "{error}");
    }
    assert_eq!(cluster.placement.stripe_size, ByteLen(45_056));
    let two = std::num::NonZeroU16::new(2).expect("not zero");
    assert_eq!(cluster.placement.factor, Factor::AtMost(two));
    assert_eq!(cluster.placement.class, ClassFilter::Only(vec!["ssd".into()]));
    assert_eq!(cluster.client.transport, TransportChoice::Socket);
    assert_eq!(cluster.client.checksums, Checksums::On);
    assert_eq!(cluster.client.request_timeout, Nanos::from_ms(1500));
    assert_eq!(cluster.client.fragment_threshold, ByteLen(0));
}

#[test]
fn malformed_toml() {
    check_rejected("name = \"test\"", "name = \"test", "name = \"test", "not TOML", "toml.io");
    check_rejected("id = 0", "id = 0\nid = 2", "id = 2", "not TOML", "toml.io");
}

#[test]
fn unknown_keys_with_a_hint() {
    // The misspelled key is named before the one that it misses.
    check_rejected("key_file", "keyfile", "keyfile", "does not know \"keyfile\"", "did you mean key_file?");
    check_rejected("key_file", "security_file", "[cluster]", "has no \"key_file\"", "weft key make");
    check_rejected(
        "id = 0",
        "id = 0\nmodul = \"direct\"",
        "modul",
        "does not know \"modul\"",
        "did you mean module?",
    );
    check_rejected("[cluster]", "[clutser]\n[cluster]", "clutser", "does not know", "did you mean cluster?");
    check_rejected(
        "name = \"a\"",
        "name = \"a\"\nzzz = 1",
        "zzz",
        "does not know \"zzz\"",
        "[[server]] takes: name, address",
    );
    check_rejected(
        "path = \"/a/metadata\"",
        "path = \"/a/metadata\"\ncash = 1",
        "cash",
        "[server.metadata]",
        "cache?",
    );
}

#[test]
fn wrong_types_and_words() {
    check_rejected(
        "id = 0",
        "id = \"zero\"",
        "id = \"zero\"",
        "must be a whole number, not string",
        "write id = 1",
    );
    check_rejected("id = 0", "id = -1", "id = -1", "out of bounds", "between 0 and");
    check_rejected(
        "class = \"hdd\"",
        "class = 5",
        "class = 5",
        "must be a string in quotes",
        "write class = \"hdd\"",
    );
    check_rejected("class = \"hdd\"", "class = \"\"", "class = \"\"", "is empty", "remove the line");
    check_rejected(
        "id = 0",
        "id = 0\nmodule = \"buffred\"",
        "buffred",
        "cannot be used",
        "did you mean buffered?",
    );
    check_rejected("id = 0", "id = 0\nleases = \"yes\"", "leases", "true or false", "write leases = true");
    check_rejected("id = 0", "id = 0\nleases = \"False\"", "leases", "true or false", "write leases = false");
    check_rejected("id = 0", "id = \"7\"", "id = \"7\"", "must be a whole number", "write id = 7");
    check_rejected("id = 0", "id = \"-7\"", "id = \"-7\"", "must be a whole number", "write id = 1");
    check_rejected(
        "id = 0",
        "id = 0\nintegrity = \"crc32\"",
        "crc32",
        "cannot be used",
        "did you mean crc32c?",
    );
    check_rejected(
        "id = 0",
        "id = 0\nmodule = \"null\"\nintegrity = \"crc32c\"",
        "id = 0",
        "stores no bytes",
        "remove the line integrity",
    );
    check_rejected("id = 0", "id = 0\ncompress = \"gzip\"", "gzip", "cannot be used", "use off, lz4, zstd");
    check_rejected(
        "id = 0",
        "id = 0\ncompress = \"lz4/48KiB\"",
        "lz4/48KiB",
        "cannot be used",
        "powers of two",
    );
    check_rejected(
        "id = 0",
        "id = 0\nmodule = \"null\"\ncompress = \"lz4\"",
        "id = 0",
        "stores no bytes",
        "remove the line compress",
    );
    check_rejected("name = \"test\"", "name = \"a b\"", "a b", "cannot be used", "letters, digits");
}

#[test]
fn sizes_and_times() {
    let cache = |value: &str| format!("path = \"/a/metadata\"\ncache = {value}");
    check_rejected("path = \"/a/metadata\"", &cache("\"64 KB\""), "cache", "cannot be used", "write 64 KiB");
    check_rejected(
        "path = \"/a/metadata\"",
        &cache("\"64 knots\""),
        "cache",
        "cannot be used",
        "not a unit of size",
    );
    check_rejected(
        "path = \"/a/metadata\"",
        &cache("1"),
        "cache",
        "out of bounds",
        "between 1 MiB and 1 TiB",
    );
    let idle = "name = \"test\"\nidle_exit = ";
    check_rejected(
        "name = \"test\"",
        &format!("{idle}\"5\""),
        "idle_exit",
        "cannot be used",
        "such as \"500 ms\"",
    );
    check_rejected(
        "name = \"test\"",
        &format!("{idle}\"1 ms\""),
        "idle_exit",
        "out of bounds",
        "between 100 ms",
    );
}

#[test]
fn paths_and_addresses() {
    check_rejected("/a/target", "a/target", "a/target", "cannot be used", "relative path");
    check_rejected("/a/target", "~/target", "~/target", "cannot be used", "not expanded");
    check_rejected("/a/target", "/a/../target", "..", "cannot be used", "without ..");
    check_rejected("/nowhere/cluster.key", "cluster.key", "key_file", "cannot be used", "relative path");
    check_rejected(
        "unix:/run/a.sock",
        "/run/a.sock",
        "address",
        "cannot be used",
        "unix:/path/to/socket or tcp:host:port",
    );
    check_rejected("tcp:hostb:7411", "tcp:hostb:0", "hostb", "port 0", "7411");
    check_rejected(
        "address = \"unix:/run/a.sock\"\n",
        "",
        "[[server]]",
        "has no \"address\"",
        "write address",
    );
    check_rejected("name = \"test\"", "name = \"test\"\nmount = \"/\"", "mount", "root directory", "/weft");
}

#[test]
fn duplicate_ids_names_paths_and_addresses_are_rejected() {
    check_rejected(
        "id = 1",
        "id = 0",
        "id = 0",
        "already used by a target of server \"a\"",
        "no other target has",
    );
    check_rejected(
        "name = \"b\"",
        "name = \"a\"",
        "name = \"a\"",
        "two servers are named \"a\"",
        "unique name",
    );
    check_rejected("/a/target", "/a/metadata", "/a/metadata", "same directory", "separate directory");
    check_rejected("/a/target", "/a/metadata/in", "/a/metadata/in", "inside the other", "separate directory");
    let unix = "[\"tcp:hostb:7411\", \"unix:/run/b.sock\"]";
    check_rejected(
        unix,
        "\"unix:/run/a.sock\"",
        "/run/a.sock",
        "same address unix:/run/a.sock",
        "unique address",
    );
    check_rejected(
        "\"unix:/run/a.sock\"",
        "\"tcp:hostb:7411\"",
        "hostb",
        "same address tcp:hostb:7411",
        "unique address",
    );
    check_rejected(
        "path = \"/b/target\"",
        "path = \"/b/target\"\n[[server.target]]\nid = 2\nclass = \"x\"\npath = \"/b/target\"",
        "/b/target",
        "same directory",
        "separate directory",
    );
}

#[test]
fn the_same_path_on_two_hosts_is_accepted() {
    let text = GOOD.replacen("/b/target", "/a/target", 1);
    parse(&text).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn roles() {
    let meta = "[server.metadata]\npath = \"/a/metadata\"\n";
    check_rejected(meta, "", "[[server]]", "no server has the metadata role", "[server.metadata]");
    let second = "id = 1\nclass = \"ssd\"\npath = \"/b/target\"\n[server.metadata]\npath = \"/b/metadata\"";
    check_rejected(
        "id = 1\nclass = \"ssd\"\npath = \"/b/target\"",
        second,
        "/b/metadata",
        "\"a\" and \"b\" both have",
        "all but one",
    );
    let roles = |server: &str, roles: &str| {
        (format!("name = \"{server}\""), format!("name = \"{server}\"\nroles = {roles}"))
    };
    let (from, to) = roles("b", "\"both\"");
    check_rejected(&from, &to, "roles", "no [server.metadata]", "add [server.metadata]");
    let (from, to) = roles("a", "[\"metadata\"]");
    check_rejected(&from, &to, "id = 0", "not the data role", "add \"data\"");
    let (from, to) = roles("a", "[\"data\"]");
    check_rejected(&from, &to, "/a/metadata", "not the metadata role", "add \"metadata\"");
    let (from, to) = roles("a", "\"dat\"");
    check_rejected(&from, &to, "roles", "cannot be used", "data, metadata or both");
    let target = "[[server.target]]\nid = 1\nclass = \"ssd\"\npath = \"/b/target\"\n";
    check_rejected(target, "", "[[server]]", "has no role", "[[server.target]]");
    let text = format!("{GOOD}[layout]\nclass = \"nvme\"\n");
    let error = parse(&text).expect_err("rejected");
    assert!(error.problem.contains("no target has the class \"nvme\""), "{error}");
    let error = parse("[cluster]\nname = \"x\"\nkey_file = \"/k\"\n").expect_err("rejected");
    assert!(error.problem.contains("the file has no server"), "{error}");
}

#[test]
fn a_key_that_others_can_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let key = dir.path().join("key");
    let made = weft_config::ClusterKey::make(0).expect("random bytes");
    weft_config::Key::Cluster(made).write_new(&key).expect("a key");
    let text = GOOD.replacen("/nowhere/cluster.key", &key.display().to_string(), 1);
    parse(&text).unwrap_or_else(|error| panic!("{error}"));
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).expect("chmod");
    let error = parse(&text).expect_err("rejected");
    assert_eq!(error.place.as_ref().map(|place| place.line), Some(3), "{error}");
    assert!(error.problem.contains("mode 0644"), "{error}");
    assert!(error.remedy.contains("chmod 600"), "{error}");
}

#[test]
fn the_message_shows_the_line_and_marks_the_place() {
    let error = parse(&GOOD.replacen("id = 0", "id = \"x\"", 1)).expect_err("rejected");
    assert_eq!(
        error.to_string(),
        "cluster.toml:13:6: id must be a whole number, not string\n \
         13 | id = \"x\"\n    |      ^^^\n    = write id = 1"
    );
}

#[test]
fn a_missing_file_leads_to_the_example() {
    let error = Cluster::load(Path::new("/nowhere/cluster.toml")).expect_err("rejected");
    assert!(
        error.to_string().starts_with("/nowhere/cluster.toml: the cluster file cannot be read"),
        "{error}"
    );
    assert!(error.remedy.contains("weft config example"), "{error}");
}

#[test]
fn an_embedded_cluster_is_created_once_and_loads() {
    let dir = tempfile::tempdir().expect("a directory");
    for state in [dir.path().join("state"), dir.path().join("long".repeat(40))] {
        let options = weft_config::EmbeddedOptions::new(state);
        let first = weft_config::write_embedded(&options).unwrap_or_else(|error| panic!("{error}"));
        let key = std::fs::read(&first.key_file).expect("a key");
        let again = weft_config::write_embedded(&options).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(first, again);
        assert_eq!(std::fs::read(&first.key_file).expect("a key"), key, "the key is unchanged");
        assert_eq!(first.embedded.as_deref(), Some(options.state.as_path()));
        assert_eq!(first.servers.len(), 4);
        let classes: Vec<_> = first.map().targets.into_iter().map(|target| target.class).collect();
        assert_eq!(classes, ["hdd", "hdd", "ssd", "ssd"]);
        let mut socket_dir = std::path::PathBuf::new();
        for server in &first.servers {
            let Address::Unix(socket) = &server.addresses[0] else { panic!("a Unix socket") };
            let run = socket.parent().expect("a directory");
            let mode = std::fs::metadata(run).expect("created").permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{}", run.display());
            socket_dir = run.to_owned();
        }
        let _ = std::fs::remove_dir(socket_dir); // a long path's sockets lie under /tmp
    }
}

#[test]
fn sections_written_with_the_wrong_brackets() {
    let error =
        parse("[cluster]\nname = \"x\"\nkey_file = \"/k\"\n[server]\nname = \"a\"\n").expect_err("rejected");
    assert!(error.problem.contains("double brackets"), "{error}");
    assert!(error.remedy.contains("[[server]]"), "{error}");
    let error = parse("cluster = 5\n").expect_err("rejected");
    assert!(error.problem.contains("must be a section"), "{error}");
}

#[test]
fn an_embedded_cluster_rejects_paths_that_its_file_cannot_contain() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().expect("a directory");
    for name in [&b"a/../b"[..], b"\xff"] {
        let state = dir.path().join(std::ffi::OsStr::from_bytes(name));
        let error =
            weft_config::write_embedded(&weft_config::EmbeddedOptions::new(state)).expect_err("rejected");
        assert!(error.remedy.contains("--state"), "{error}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 0, "nothing was created");
}

#[test]
fn emulated_devices_are_profiles_by_name_or_absolute_paths() {
    let with =
        |place: &str, emulate: &str| GOOD.replacen(place, &format!("{place}\nemulate = {emulate:?}"), 1);
    let target = "path = \"/a/target\"";
    let cluster = parse(&with(target, "hdd-7200")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(cluster.servers[0].targets[0].emulate, Some(Emulate::Named("hdd-7200".into())));
    assert_eq!(cluster.emulated(), ["target 0: hdd-7200"]);
    let cluster = parse(&with("path = \"/a/metadata\"", "/etc/weft/disk.toml"));
    let cluster = cluster.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(cluster.emulated(), ["metadata of a: /etc/weft/disk.toml"]);
    let to = format!("{target}\nemulate = \"hdd\"");
    check_rejected(target, &to, "emulate = \"hdd\"", "cannot be used", "hdd-7200, hdd-nearline, ibridge-hdd");
    let to = format!("{target}\nemulate = \"./disk.toml\"");
    check_rejected(target, &to, "emulate = \"./", "cannot be used", "starts with /");
}

#[test]
fn samples_are_off_all_or_a_fraction() {
    let name = "name = \"a\"";
    for (sample, expected) in
        [("off", None), ("all", Some(1)), ("1/1", Some(1)), ("1/64", Some(64)), ("1/65536", Some(65_536))]
    {
        let text = GOOD.replacen(name, &format!("{name}\nsample = \"{sample}\""), 1);
        let cluster = parse(&text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(cluster.servers[0].sample.map(std::num::NonZeroU32::get), expected);
        assert_eq!(cluster.servers[1].sample, None);
    }
    for sample in ["on", "1/0", "1/65537", "2/3", "64", "1/-1"] {
        let line = format!("sample = \"{sample}\"");
        check_rejected(name, &format!("{name}\n{line}"), &line, "cannot be used", "1/65536");
    }
}
