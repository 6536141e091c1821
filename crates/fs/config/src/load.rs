//! Conversion of a cluster file's text to a [`Cluster`].

use crate::cache::cache;
use crate::check::{self, ParsedServer};
use crate::error::ConfigError;
use crate::find::variable;
use crate::ibridge::ibridge;
use crate::model::{
    Checksums, Client, Cluster, Emulate, Limits, LogLevel, Metadata, Module, Server, Target, TransportChoice,
    WritableLeases,
};
use crate::scheduled;
use crate::section::{Item, Section, Source};
use std::ffi::OsString;
use std::num::{NonZeroU16, NonZeroU32};
use std::ops::RangeInclusive;
use std::path::Path;
use toml::de::DeTable;
use weft_core::placement::{ClassFilter, Factor, Start};
use weft_core::units::{format_duration, parse_duration};
use weft_core::{ByteLen, Compression, CompressionSetting, Integrity, Nanos, Placement, Reserve, TargetId};
use weft_env::Address;
use weft_wire::RETRY_FOR_MAX;
use weft_wire::cluster::is_name;
use weft_wire::hello::Security;

const MEMORY: RangeInclusive<ByteLen> = ByteLen::from_mib(1)..=ByteLen(1 << 40);
/// Default and maximum size of files whose bytes are in the metadata.
const INLINE_DEFAULT: ByteLen = ByteLen::from_kib(4);
const INLINE_MAX: ByteLen = ByteLen::from_kib(64);
const TIMEOUT: RangeInclusive<Nanos> = Nanos::from_ms(10)..=Nanos::from_s(3600);

impl Cluster {
    /// Reads and checks the cluster file at `file`.
    ///
    /// # Errors
    /// The first problem found, with its position and the remedy.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(file).map_err(|error| {
            scheduled::failure(file).unwrap_or_else(|| {
                let remedy = match error.kind() {
                    std::io::ErrorKind::PermissionDenied => {
                        "it belongs to another user: run the command as that user, or name another cluster file with \
                         WEFT_CLUSTER or another state directory with WEFT_STATE"
                    }
                    _ => "`weft config example` prints one to start from; WEFT_CLUSTER names its location",
                };
                ConfigError::whole(file, format!("the cluster file cannot be read: {error}"), remedy)
            })
        })?;
        let mut cluster = Self::parse(file, &text)?;
        cluster.client.retry_for =
            retry_for_of(file, variable("WEFT_RETRY_FOR"))?.or(cluster.client.retry_for);
        Ok(cluster)
    }

    /// Checks `text` as if it were the contents of `file`, which need not exist.
    ///
    /// # Errors
    /// See [`Cluster::load`].
    pub fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        let source = Source { file, text };
        let table = DeTable::parse(text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            source.refuse(
                span,
                format!("this is not TOML: {}", error.message()),
                "see https://toml.io for the notation",
            )
        })?;
        let root = Section::new(source, "the file", 0..0, table.get_ref());
        let head = root.table("cluster", "[cluster]")?;
        let head =
            head.ok_or_else(|| root.missing("[cluster]", "start with [cluster] and its name and key_file"))?;
        let name =
            required(&head, "name", head.parsed("name", "physics", word)?, "write name = \"physics\"")?;
        let mount = head.path("mount", "/weft")?;
        let key_file = required(
            &head,
            "key_file",
            head.path("key_file", "/etc/weft/cluster.key")?,
            "make one with `weft key make /etc/weft/cluster.key` and write key_file = \"/etc/weft/cluster.key\"",
        )?;
        let idle_exit = head.duration("idle_exit", Nanos::from_ms(100)..=Nanos::from_s(365 * 86_400))?;
        let security = head.choice("security", &[("mac", Security::Mac), ("encrypt", Security::Encrypt)])?;
        head.finish()?;

        let servers = root.tables("server", "[[server]]")?;
        let servers =
            servers.into_iter().map(|section| server(&source, section)).collect::<Result<Vec<_>, _>>()?;
        let LayoutSection { placement, compression, classes, inline_max } =
            root.table("layout", "[layout]")?.map(layout).transpose()?.unwrap_or_default();
        let limits = root.table("limits", "[limits]")?.map(limits).transpose()?.unwrap_or_default();
        let client = root.table("client", "[client]")?.map(client).transpose()?.unwrap_or_default();
        root.finish()?;

        check::all(&source, &servers, &classes, mount.as_ref())?;
        check::fragments(&source, &servers, client.fragment_threshold)?;
        check::key_mode(&source, &key_file)?;
        Ok(Self {
            file: file.to_owned(),
            name: name.value,
            mount: mount.map_or_else(|| "/weft".into(), |mount| mount.value),
            key_file: key_file.value,
            idle_exit,
            security: security.unwrap_or_default(),
            servers: servers.into_iter().map(ParsedServer::into_server).collect(),
            placement,
            compression,
            inline_max: inline_max.unwrap_or(INLINE_DEFAULT),
            limits,
            client,
            embedded: crate::embedded::state_of(file, text),
        })
    }
}

/// Reads the time for which this process repeats requests, as the environment sets it.
fn retry_for_of(file: &Path, value: Option<OsString>) -> Result<Option<Nanos>, ConfigError> {
    let Some(value) = value else { return Ok(None) };
    let text = value.to_string_lossy();
    let found = parse_duration(&text).ok().filter(|found| *found <= RETRY_FOR_MAX);
    found.map(Some).ok_or_else(|| {
        let most = format_duration(RETRY_FOR_MAX);
        ConfigError::whole(
            file,
            format!("WEFT_RETRY_FOR={text} is not a time for which requests are repeated"),
            format!("write a whole number and a unit, at most {most}, such as WEFT_RETRY_FOR=5s"),
        )
    })
}

pub(crate) fn required<T>(
    section: &Section<'_>,
    key: &'static str,
    found: Option<T>,
    remedy: &str,
) -> Result<T, ConfigError> {
    found.ok_or_else(|| section.missing(key, remedy))
}

/// Checks a name for use in messages, file names and commands.
fn word(text: &str) -> Result<String, String> {
    if is_name(text) {
        return Ok(text.to_owned());
    }
    Err("use up to 64 letters, digits, dots, dashes and underscores, and start with a letter, digit or underscore"
        .to_owned())
}

/// Parses the sampling interval of requests.
fn sample(text: &str) -> Result<Option<NonZeroU32>, String> {
    let part = match text {
        "off" => return Ok(None),
        "all" => NonZeroU32::new(1),
        part => part.strip_prefix("1/").and_then(|part| part.parse().ok()),
    };
    match part {
        Some(part) if part.get() <= 65_536 => Ok(Some(part)),
        _ => Err("it must be off, all, or a fraction such as 1/64, down to 1/65536".to_owned()),
    }
}

fn server(source: &Source<'_>, section: Section<'_>) -> Result<ParsedServer, ConfigError> {
    let name = required(&section, "name", section.parsed("name", "node0", word)?, "write name = \"node0\"")?;
    let addresses: Vec<Item<Address>> = section.list("address", "\"tcp:node0:7411\"")?;
    if addresses.is_empty() {
        return Err(
            section.missing("address", "write address = \"tcp:node0:7411\" or \"unix:/run/weft/node0.sock\"")
        );
    }
    for item in &addresses {
        if matches!(item.value, Address::Tcp(_, 0)) {
            let remedy = "clients could not know a port that the system chooses: write one, such as 7411";
            return Err(source.refuse(item.span.clone(), "port 0 in a cluster file", remedy));
        }
    }
    let host = section.parsed("host", "node0", word)?;
    let roles: Vec<Item<Role>> = section.list("roles", "[\"data\"]")?;
    let log = section.path("log", "/var/log/weft/node0.log")?;
    let level = section.choice(
        "log_level",
        &[
            ("info", LogLevel::Info),
            ("error", LogLevel::Error),
            ("warn", LogLevel::Warn),
            ("debug", LogLevel::Debug),
        ],
    )?;
    let audit = section.path("audit", "/var/log/weft/audit.log")?;
    let metrics = section.parsed("metrics", "tcp:127.0.0.1:9411", |text| {
        text.parse::<Address>().map_err(|error| error.to_string())
    })?;
    let connections = section.number("connections_max", 16..=1_000_000)?;
    let greetings = section.number("greetings_max", 4..=65_536)?;
    let memory = section.size("payload_memory", ByteLen::from_mib(8)..=ByteLen(1 << 40))?;
    let sample = section.parsed("sample", "1/64", sample)?;
    let metadata = section.table("metadata", "[server.metadata]")?.map(metadata).transpose()?;
    let targets = section.tables("target", "[[server.target]]")?;
    let targets = targets.into_iter().map(target).collect::<Result<Vec<_>, _>>()?;
    let span = section.span();
    section.finish()?;
    Ok(ParsedServer {
        span,
        roles,
        metadata_path: metadata.as_ref().map(|(_, path, span)| (path.clone(), span.clone())),
        targets: targets.iter().map(|(_, places)| places.clone()).collect(),
        server: Server {
            name: name.value,
            addresses: addresses.iter().map(|item| item.value.clone()).collect(),
            host: host.map(|item| item.value),
            metadata: metadata.map(|(metadata, _, _)| metadata),
            targets: targets.into_iter().map(|(target, _)| target).collect(),
            log: log.map(|item| item.value),
            log_level: level.unwrap_or(LogLevel::Info),
            audit: audit.map(|item| item.value),
            metrics: metrics.map(|item| item.value),
            connections_max: connections.map_or(8192, |item| item.value as u32),
            greetings_max: greetings.map_or(64, |item| item.value as u32),
            payload_memory: memory.unwrap_or(ByteLen::from_mib(256)),
            sample: sample.and_then(|item| item.value),
        },
        name_span: name.span,
        address_spans: addresses.into_iter().map(|item| item.span).collect(),
    })
}

/// Value of `roles`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Data,
    Metadata,
    Both,
}

impl std::str::FromStr for Role {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "data" => Ok(Self::Data),
            "metadata" => Ok(Self::Metadata),
            "both" => Ok(Self::Both),
            _ => Err("roles are data, metadata or both"),
        }
    }
}

fn metadata(
    section: Section<'_>,
) -> Result<(Metadata, std::path::PathBuf, std::ops::Range<usize>), ConfigError> {
    let path = section.path("path", "/var/lib/weft/metadata")?;
    let path = required(&section, "path", path, "write path = \"/var/lib/weft/metadata\", best on an SSD")?;
    let cache = section.size("cache", MEMORY)?;
    let delay = section.duration("commit_delay", Nanos(0)..=Nanos::from_s(1))?;
    let most = section.number("commit_max", 1..=65_536)?;
    let sync_names = section.choice("sync_names", &[("remote", false), ("all", true)])?;
    let grace = section.duration("grace", Nanos::from_s(2)..=Nanos::from_s(600))?;
    let emulate = section.parsed("emulate", "hdd-7200", emulated)?;
    section.finish()?;
    let metadata = Metadata {
        path: path.value.clone(),
        cache: cache.unwrap_or(ByteLen::from_mib(64)),
        commit_delay: delay.unwrap_or(Nanos(0)),
        commit_max: most.map_or(1024, |item| item.value as u32),
        syncs_all_names: sync_names.unwrap_or(false),
        grace: grace.unwrap_or(Nanos::from_s(3)),
        emulate: emulate.map(|item| item.value),
    };
    Ok((metadata, path.value, path.span))
}

fn target(section: Section<'_>) -> Result<(Target, check::TargetSpans), ConfigError> {
    let id = section.number("id", 0..=u64::from(u16::MAX))?;
    let id = required(
        &section,
        "id",
        id,
        "write id = 0, a number that no other target has and that never changes",
    )?;
    let class = section.parsed("class", "hdd", word)?;
    let class =
        required(&section, "class", class, "write class = \"hdd\", \"ssd\", \"nvme\" or any other word")?;
    let path = section.path("path", "/data/weft")?;
    let path = required(&section, "path", path, "write path = \"/data/weft\", a separate directory")?;
    let module = section.choice("module", &Module::ALL.map(|module| (module.name(), module)))?;
    let depth = section.number("queue_depth", 1..=65_536)?;
    let leases = section.flag("leases")?;
    let integrity = section.choice("integrity", &Integrity::ALL.map(|setting| (setting.word(), setting)))?;
    let compression = section.parsed("compress", "zstd", str::parse::<CompressionSetting>)?;
    let emulate = section.parsed("emulate", "hdd-7200", emulated)?;
    let capacity = section.size_or_former("capacity", "room", ByteLen(1)..=ByteLen(1 << 60))?;
    let reserve = section.parsed("reserve", "1 GiB", reserve)?;
    let beside = section.table("ibridge", "[server.target.ibridge]")?.map(ibridge).transpose()?;
    let (ibridge, ibridge_places) = beside.unzip();
    let cached = section.table("cache", "[server.target.cache]")?;
    let cached = cached.map(|section| cache(section, ibridge.as_ref())).transpose()?;
    let (cache, cache_places) = cached.unzip();
    section.finish()?;
    let target = Target {
        id: TargetId(id.value as _),
        class: class.value,
        path: path.value,
        module: module.unwrap_or(Module::Buffered),
        queue_depth: depth.map_or(64, |item| item.value as u32),
        leases: leases.unwrap_or(true),
        integrity: integrity.unwrap_or_default(),
        compression: compression.map(|item| item.value),
        emulate: emulate.map(|item| item.value),
        capacity,
        reserve: reserve.map_or(Reserve::Usual, |item| item.value),
        ibridge,
        cache,
    };
    let spans =
        check::TargetSpans { id: id.span, path: path.span, ibridge: ibridge_places, cache: cache_places };
    Ok((target, spans))
}

/// Parses a share of the target, or a size.
fn reserve(text: &str) -> Result<Reserve, String> {
    match text.strip_suffix('%').map(|number| number.trim().parse::<u8>()) {
        None => crate::parse_size(text).map(Reserve::Bytes),
        Some(Ok(percent @ 0..=100)) => Ok(Reserve::Percent(percent)),
        Some(_) => Err("write a percentage of the target between \"0 %\" and \"100 %\", or a size".into()),
    }
}

/// Parses the name or path of a device profile.
pub(crate) fn emulated(text: &str) -> Result<Emulate, String> {
    if !text.contains('/') {
        return weft_models::Profile::by_name(text)
            .map(|_| Emulate::Named(text.to_owned()))
            .map_err(|error| error.to_string());
    }
    let path = std::path::PathBuf::from(text);
    if !path.is_absolute() {
        return Err("a relative path differs from process to process: write one that starts with /".into());
    }
    Ok(Emulate::File(path))
}

/// Reads the limits of one user.
fn limits(section: Section<'_>) -> Result<Limits, ConfigError> {
    let default = Limits::default();
    let leases =
        section.choice("writable_leases", &[("own", WritableLeases::Own), ("all", WritableLeases::All)])?;
    let connections = section.number("user_connections", 1..=1_000_000)?;
    let payload = section.size("user_payload", ByteLen::from_mib(4)..=ByteLen(1 << 40))?;
    let opens = section.number("user_opens", 16..=u64::from(u32::MAX))?;
    let locks = section.number("user_locks", 1..=u64::from(u32::MAX))?;
    let inodes = section.number("user_inodes", 1..=u64::MAX)?;
    section.finish()?;
    Ok(Limits {
        writable_leases: leases.unwrap_or(default.writable_leases),
        user_connections: connections.map(|item| item.value as u32),
        user_payload: payload,
        user_opens: opens.map_or(default.user_opens, |item| item.value as u32),
        user_locks: locks.map_or(default.user_locks, |item| item.value as u32),
        user_inodes: inodes.map_or(default.user_inodes, |item| item.value),
    })
}

/// Contents of `[layout]`.
#[derive(Default)]
struct LayoutSection {
    placement: Placement,
    compression: Option<Compression>,
    /// Classes of the placement, with their positions.
    classes: Vec<Item<Class>>,
    inline_max: Option<ByteLen>,
}

/// Reads `[layout]`.
fn layout(section: Section<'_>) -> Result<LayoutSection, ConfigError> {
    let mut placement = Placement::default();
    if let Some(size) = section.quantity("stripe_size", "64 KiB", crate::parse_size, ByteLen)? {
        weft_core::layout::check_stripe_size(size.value)
            .map_err(|remedy| section.refuse(size.span, "stripe_size cannot be used", &remedy))?;
        placement.stripe_size = size.value;
    }
    let count = section.number("stripe_count", 0..=u64::from(u16::MAX))?;
    if let Some(count) = count.and_then(|item| NonZeroU16::new(item.value as u16)) {
        placement.factor = Factor::AtMost(count);
    }
    let start = section.choice("start", &[("rotate", Start::Rotate), ("first", Start::First)])?;
    placement.start = start.unwrap_or(placement.start);
    let compression = section.parsed("compress", "zstd", weft_core::parse_compression)?;
    let classes: Vec<Item<Class>> = section.list("class", "\"hdd\"")?;
    let inline_max = section.size("inline", ByteLen(0)..=INLINE_MAX)?;
    section.finish()?;
    if !classes.is_empty() {
        placement.class = ClassFilter::Only(classes.iter().map(|item| item.value.0.clone()).collect());
    }
    Ok(LayoutSection { placement, compression: compression.and_then(|item| item.value), classes, inline_max })
}

/// Class of targets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Class(pub String);

impl std::str::FromStr for Class {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        word(text).map(Self)
    }
}

fn client(section: Section<'_>) -> Result<Client, ConfigError> {
    let default = Client::default();
    let transport = section.choice(
        "transport",
        &[
            ("auto", TransportChoice::Auto),
            ("descriptor", TransportChoice::Descriptor),
            ("socket", TransportChoice::Socket),
        ],
    )?;
    let connect = section.duration("connect_timeout", TIMEOUT)?;
    let request = section.duration("request_timeout", TIMEOUT)?;
    let retry = section.duration("retry_for", Nanos(0)..=RETRY_FOR_MAX)?;
    let fragment = section.size("fragment_threshold", ByteLen(0)..=ByteLen::from_mib(1024))?;
    let checksums = section
        .choice("checksums", &[("auto", Checksums::Auto), ("on", Checksums::On), ("off", Checksums::Off)])?;
    let same_processor = section.flag("same_processor")?;
    let connections = section.number("connections_max", 1..=4096)?;
    let leases = section.number("leases_max", 0..=1_000_000)?;
    section.finish()?;
    Ok(Client {
        transport: transport.unwrap_or(default.transport),
        connect_timeout: connect.unwrap_or(default.connect_timeout),
        request_timeout: request.unwrap_or(default.request_timeout),
        retry_for: retry,
        fragment_threshold: fragment.unwrap_or(default.fragment_threshold),
        checksums: checksums.unwrap_or(default.checksums),
        same_processor: same_processor.unwrap_or(default.same_processor),
        connections_max: connections.map_or(default.connections_max, |item| item.value as u32),
        leases_max: leases.map_or(default.leases_max, |item| item.value as u32),
    })
}
