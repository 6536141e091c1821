//! Rates as sorted and filtered tables of text, for the screen and for `--once`.

use super::rates::{Flow, Measured, Rates};
use crate::commands::bytes;
use crate::commands::names::{Names, printable};
use clap::ValueEnum;
use std::collections::{BTreeMap, BTreeSet};
use weft_core::units::human_bytes;
use weft_core::{FileId, Nanos};
use weft_wire::meta::KnownPath;

/// Table that is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tab {
    /// Client processes.
    Clients,
    /// Users.
    Users,
    /// Files.
    Files,
    /// Targets.
    Targets,
    /// Servers.
    Servers,
}

impl Tab {
    /// All tables.
    pub const ALL: [Self; 5] = [Self::Clients, Self::Users, Self::Files, Self::Targets, Self::Servers];

    /// Title.
    pub fn title(self) -> &'static str {
        match self {
            Self::Clients => "Clients",
            Self::Users => "Users",
            Self::Files => "Files",
            Self::Targets => "Targets",
            Self::Servers => "Servers",
        }
    }
}

/// Value by which rows are sorted, the largest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Sort {
    /// Bytes read and written per second
    Bytes,
    /// Requests per second
    Requests,
    /// Average latency
    Latency,
}

impl Sort {
    /// All values.
    pub const ALL: [Self; 3] = [Self::Bytes, Self::Requests, Self::Latency];

    /// Title.
    pub fn title(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Requests => "requests",
            Self::Latency => "latency",
        }
    }

    fn value(self, flow: &Flow) -> f64 {
        match self {
            Self::Bytes => flow.bytes(),
            Self::Requests => flow.requests(),
            Self::Latency => flow.latency().map_or(0.0, |latency| latency.0 as f64),
        }
    }
}

/// A column. Narrow screens show those of the highest rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    /// Title.
    pub title: &'static str,
    /// Whether its cells stand to the right.
    pub is_number: bool,
    /// Rank; the column with the greatest number is left out first.
    pub rank: u8,
}

/// Rows of text.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Rows {
    /// Columns.
    pub columns: Vec<Column>,
    /// Cells of each row.
    pub cells: Vec<Vec<String>>,
    /// Whether a row stands for something that does not work.
    pub is_down: Vec<bool>,
    /// Number of rows without activity that are not shown.
    pub idle: usize,
}

/// Number of a file and its names, as far as they are known.
#[derive(Default)]
pub struct Labels {
    /// Names of users.
    pub users: Names,
    /// Paths of files.
    pub paths: BTreeMap<FileId, KnownPath>,
    /// Prefix of the paths of Weft.
    pub mount: String,
}

impl Labels {
    /// Path of a file for people, without control characters.
    pub fn file(&self, file: FileId) -> String {
        match self.paths.get(&file) {
            Some(KnownPath::Path(path)) => format!("{}/{}", self.mount, printable(&bytes::text(path))),
            Some(KnownPath::Unnamed) => format!("inode {:#x} (no name)", file.0),
            Some(KnownPath::Hidden) => format!("inode {:#x} (path not permitted)", file.0),
            None => format!("inode {:#x}", file.0),
        }
    }
}

/// Rate of bytes.
pub fn byte_rate(per_s: f64) -> String {
    // Sums of rates leave tiny remainders.
    if per_s < 0.5 { "-".into() } else { format!("{}/s", human_bytes(per_s.round() as u64)) }
}

/// Rate of requests.
pub fn rate(per_s: f64) -> String {
    match per_s {
        _ if per_s <= 0.0 => "-".into(),
        _ if per_s < 9.95 => format!("{per_s:.1}"),
        _ if per_s < 9999.5 => format!("{per_s:.0}"),
        _ if per_s < 999_950.0 => format!("{:.1}k", per_s / 1e3),
        _ => format!("{:.1}M", per_s / 1e6),
    }
}

/// Latency.
pub fn time(latency: Option<Nanos>) -> String {
    let Some(Nanos(ns)) = latency else { return "-".into() };
    match ns as f64 {
        ns if ns < 999_500.0 => format!("{:.0} us", ns / 1e3),
        ns if ns < 9_995_000.0 => format!("{:.2} ms", ns / 1e6),
        ns if ns < 999_500_000.0 => format!("{:.0} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

fn leases(count: u32) -> String {
    if count == 0 { "-".into() } else { count.to_string() }
}

const fn word(title: &'static str, rank: u8) -> Column {
    Column { title, is_number: false, rank }
}

const fn number(title: &'static str, rank: u8) -> Column {
    Column { title, is_number: true, rank }
}

/// A row before it is sorted and filtered.
struct Draft {
    cells: Vec<String>,
    flow: Flow,
    /// Whether it is shown although nothing happens.
    is_kept: bool,
    is_down: bool,
}

fn draft(cells: Vec<String>, measured: &Measured) -> Draft {
    Draft { cells, flow: measured.flow, is_kept: measured.leases > 0, is_down: false }
}

/// Files with the users of each, from the rows by file and user.
pub fn by_file(rates: &Rates) -> BTreeMap<FileId, (Measured, BTreeSet<u32>)> {
    let mut files: BTreeMap<FileId, (Measured, BTreeSet<u32>)> = BTreeMap::new();
    for ((file, uid), row) in &rates.files {
        let (sum, users) = files.entry(*file).or_default();
        sum.add(row);
        users.insert(*uid);
    }
    files
}

/// Files with activity or leases, those with the largest values first.
pub fn busiest_files(rates: &Rates, sort: Sort, limit: usize) -> Vec<FileId> {
    let mut files: Vec<_> = by_file(rates)
        .into_iter()
        .filter(|(_, (row, _))| row.flow.requests() > 0.0 || row.leases > 0)
        .map(|(file, (row, _))| (sort.value(&row.flow), file))
        .collect();
    files.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    files.into_iter().take(limit).map(|(_, file)| file).collect()
}

/// Returns a table, with the rows that contain `filter`, those with the largest values first.
pub fn rows(rates: &Rates, tab: Tab, sort: Sort, filter: &str, labels: &mut Labels) -> Rows {
    let (columns, drafts) = match tab {
        Tab::Clients => clients(rates, labels),
        Tab::Users => users(rates, labels),
        Tab::Files => files(rates, labels),
        Tab::Targets => targets(rates),
        Tab::Servers => servers(rates),
    };
    let is_sorted = matches!(tab, Tab::Clients | Tab::Users | Tab::Files);
    let filter = filter.to_lowercase();
    let matches = |draft: &Draft| {
        filter.is_empty() || draft.cells.iter().any(|cell| cell.to_lowercase().contains(&filter))
    };
    let (mut shown, idle): (Vec<_>, Vec<_>) = drafts
        .into_iter()
        .filter(matches)
        .partition(|draft| !is_sorted || draft.is_kept || draft.flow.requests() > 0.0);
    if is_sorted {
        shown.sort_by(|a, b| sort.value(&b.flow).total_cmp(&sort.value(&a.flow)));
    }
    let other = match tab {
        Tab::Clients | Tab::Users => rates.other_clients,
        Tab::Files => rates.other_files,
        Tab::Targets | Tab::Servers => Flow::default(),
    };
    // Small differences are requests that were under way when the server replied.
    if is_sorted && filter.is_empty() && other.requests() >= 0.5 {
        shown.push(others(tab, &columns, &other));
    }
    Rows {
        is_down: shown.iter().map(|draft| draft.is_down).collect(),
        cells: shown.into_iter().map(|draft| draft.cells).collect(),
        columns,
        idle: idle.len(),
    }
}

/// Row for all that no other row has.
fn others(tab: Tab, columns: &[Column], flow: &Flow) -> Draft {
    let io = flow.reads + flow.writes + flow.others;
    let cell = |column: &Column| match column.title {
        "USER" if tab == Tab::Users => "(others)".into(),
        "PROGRAM" | "PATH" => "(others)".into(),
        "READ" => byte_rate(flow.read_bytes),
        "WRITE" => byte_rate(flow.written_bytes),
        "IO/s" => rate(io),
        "META/s" => rate(flow.metadata),
        "LATENCY" if tab != Tab::Files => time(flow.latency()),
        _ => String::new(),
    };
    Draft { cells: columns.iter().map(cell).collect(), flow: *flow, is_kept: true, is_down: false }
}

const READ: Column = number("READ", 1);
const WRITE: Column = number("WRITE", 1);
const IO: Column = number("IO/s", 2);
const META: Column = number("META/s", 4);
const LATENCY: Column = number("LATENCY", 3);
const LEASES: Column = number("LEASES", 6);
/// Columns of [`flow_cells`].
const FLOW: [Column; 6] = [READ, WRITE, IO, META, LATENCY, LEASES];

fn flow_cells(measured: &Measured) -> [String; 6] {
    let flow = &measured.flow;
    [
        byte_rate(flow.read_bytes),
        byte_rate(flow.written_bytes),
        rate(flow.reads + flow.writes + flow.others),
        rate(flow.metadata),
        time(flow.latency()),
        leases(measured.leases),
    ]
}

fn clients(rates: &Rates, labels: &mut Labels) -> (Vec<Column>, Vec<Draft>) {
    let mut columns = vec![word("PROGRAM", 0), number("PID", 5), word("USER", 2)];
    columns.extend(FLOW);
    columns.push(word("HOST", 7));
    let draft_of = |((client, uid), row): (&(u64, u32), &super::rates::Client)| {
        let process = &row.process;
        let program = match process.program.is_empty() {
            true => format!("client {:08x}", client >> 32),
            false => printable(&process.program),
        };
        let host = [&process.host, &row.address].into_iter().find(|name| !name.is_empty());
        let pid = if process.pid == 0 { "-".into() } else { process.pid.to_string() };
        let mut cells = vec![program, pid, labels.users.user(*uid).to_owned()];
        cells.extend(flow_cells(&row.measured));
        cells.push(host.map_or_else(|| "-".into(), |host| printable(host)));
        draft(cells, &row.measured)
    };
    (columns, rates.clients.iter().map(draft_of).collect())
}

fn users(rates: &Rates, labels: &mut Labels) -> (Vec<Column>, Vec<Draft>) {
    let mut columns = vec![word("USER", 0), number("CLIENTS", 5), number("FILES", 5)];
    columns.extend(FLOW);
    let draft_of = |(uid, row): (&u32, &Measured)| {
        let clients = rates.clients.iter().filter(|((_, of), client)| of == uid && client.connections > 0);
        let is_busy = |measured: &Measured| measured.flow.requests() > 0.0 || measured.leases > 0;
        let files = rates.files.iter().filter(|((_, of), file)| of == uid && is_busy(file));
        let mut cells =
            vec![labels.users.user(*uid).to_owned(), clients.count().to_string(), files.count().to_string()];
        cells.extend(flow_cells(row));
        draft(cells, row)
    };
    (columns, rates.users.iter().map(draft_of).collect())
}

fn files(rates: &Rates, labels: &mut Labels) -> (Vec<Column>, Vec<Draft>) {
    let mut columns = FLOW.to_vec();
    columns.extend([word("USER", 2), word("PATH", 0)]);
    let draft_of = |(file, (row, users)): (FileId, (Measured, BTreeSet<u32>))| {
        let user = match users.len() {
            1 => users.first().map(|uid| labels.users.user(*uid).to_owned()).unwrap_or_default(),
            count => format!("{count} users"),
        };
        let mut cells = flow_cells(&row).to_vec();
        cells.extend([user, labels.file(file)]);
        draft(cells, &row)
    };
    (columns, by_file(rates).into_iter().map(draft_of).collect())
}

fn targets(rates: &Rates) -> (Vec<Column>, Vec<Draft>) {
    let columns = vec![
        number("TARGET", 0),
        word("CLASS", 5),
        word("SERVER", 3),
        READ,
        WRITE,
        number("IO/s", 2),
        number("P99 READ", 6),
        number("P99 WRITE", 6),
        number("QUEUE", 4),
        number("LEASES", 4),
        number("DISK READ", 3),
        number("DISK WRITE", 3),
        number("USED", 7),
    ];
    let draft_of = |(id, target): (&weft_core::TargetId, &super::rates::Target)| {
        let status = &target.status;
        let used = status.total.0.saturating_sub(status.free.0);
        let percent = (100 * used).checked_div(status.total.0);
        let disk =
            |which: fn((f64, f64)) -> f64| target.disk.map_or_else(|| "?".into(), |d| byte_rate(which(d)));
        let cells = vec![
            id.0.to_string(),
            status.class.clone(),
            target.server.clone(),
            byte_rate(target.flow.read_bytes),
            byte_rate(target.flow.written_bytes),
            rate(target.flow.reads + target.flow.writes),
            time(target.read.p99),
            time(target.write.p99),
            status.queue.to_string(),
            leases(status.leases),
            disk(|(read, _)| read),
            disk(|(_, written)| written),
            match &status.refused {
                Some(refused) => refused.state.to_uppercase(),
                None => percent.map_or_else(|| "-".into(), |percent| format!("{percent}%")),
            },
        ];
        Draft { cells, flow: target.flow, is_kept: true, is_down: status.refused.is_some() }
    };
    (columns, rates.targets.iter().map(draft_of).collect())
}

fn servers(rates: &Rates) -> (Vec<Column>, Vec<Draft>) {
    let columns = vec![
        word("SERVER", 0),
        word("STATE", 0),
        READ,
        WRITE,
        IO,
        META,
        LATENCY,
        number("CLIENTS", 5),
        number("MEMORY", 6),
        word("REASON", 1),
    ];
    let draft_of = |server: &super::rates::Server| {
        let mut cells = vec![server.name.clone()];
        let flow = match &server.state {
            Ok(state) => {
                let flow = state.flow.unwrap_or_default();
                let [read, write, io, meta, latency, _] =
                    flow_cells(&Measured { flow, ..Measured::default() });
                cells.extend(["up".into(), read, write, io, meta, latency]);
                let connections = state.connections.to_string();
                cells.extend([connections, human_bytes(state.memory.0), String::new()]);
                flow
            }
            Err(why) => {
                cells.push("DOWN".into());
                cells.extend(std::iter::repeat_n("-".to_owned(), 7));
                cells.push(printable(why));
                Flow::default()
            }
        };
        Draft { cells, flow, is_kept: true, is_down: server.state.is_err() }
    };
    (columns, rates.servers.iter().map(draft_of).collect())
}

/// One-line summary: bytes, requests, latencies, space.
pub fn summary(rates: &Rates) -> Vec<(&'static str, String)> {
    let total = &rates.total;
    let [read, write, _, metadata] = rates.latencies;
    let pair = |latency: super::rates::Latency| format!("{} / {}", time(latency.p50), time(latency.p99));
    let per_s = |value: f64| if value > 0.0 { format!("{}/s", rate(value)) } else { "-".into() };
    let (size, free) = rates.space();
    let mut all = vec![
        ("read", byte_rate(total.read_bytes)),
        ("write", byte_rate(total.written_bytes)),
        ("I/O requests", per_s(total.reads + total.writes + total.others)),
        ("metadata requests", per_s(total.metadata)),
        ("read p50 / p99", pair(read)),
        ("write p50 / p99", pair(write)),
        ("metadata p50 / p99", pair(metadata)),
        ("space", format!("{} of {} free", human_bytes(free.0), human_bytes(size.0))),
    ];
    if let Some((capacity, dirty)) = rates.ssds() {
        all.push(("SSDs", format!("{}, {} dirty", human_bytes(capacity.0), human_bytes(dirty.0))));
    }
    all.push(("leases", rates.leases().to_string()));
    all
}

/// Note about requests that servers do not see; `None` without leases.
pub fn lease_note(rates: &Rates) -> Option<String> {
    let leases = rates.leases();
    (leases > 0).then(|| {
        format!("{leases} leased descriptors: their bytes bypass the servers and show as disk traffic of targets only")
    })
}
