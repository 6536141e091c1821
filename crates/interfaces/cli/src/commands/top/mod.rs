//! `weft top`.

mod json;
mod poll;
mod rates;
mod screen;
mod terminal;
mod view;

use super::session::Weft;
use crate::failure::{FAILED, Failure};
use crate::table::Table;
use clap::Args;
use poll::{Observed, REPLY_DEADLINE};
use rates::Rates;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};
use view::{Labels, Sort, Tab};
use weft_core::{FileId, Nanos, Timestamp};

/// Shortest interval; the replies of servers would be a load of their own.
const INTERVAL_MIN: Nanos = Nanos::from_ms(100);
/// Longest interval.
const INTERVAL_MAX: Nanos = Nanos::from_s(3600);
/// Rows of each table that `--once` prints by default.
const ROWS: usize = 20;

const AFTER: &str = "\
Rates are those between two replies of the servers. Servers count the requests of messages. Programs on a server's host
may use leased descriptors of datafiles, whose requests no server sees: LEASES counts them, and DISK READ and DISK WRITE of
a target show the traffic of its disk, from all its users. `leases = false` of a target in the cluster file makes all
requests visible.

Administrators see all users. Others see their own clients and files, and totals. A mount counts as the user who runs it.
A server keeps 1,024 clients and 2,048 files, half of them for one user at most; `(others)` is the rest.

Keys:
  Tab, 1-5     clients, users, files, targets, servers    s, b, r, l  sort: next, bytes, requests, latency
  /            filter rows by a text; Esc ends it         Up, Down    scroll
  + -          longer and shorter interval                Space       pause
  ? or h       help                                       q           quit

Exit codes:
  0  all servers answered
  1  a server did not answer (--once, --json), or none did
  2  wrong arguments, cluster file or key

Examples:
  weft top                                  on the terminal
  weft top --once                           tables of one interval, for logs
  weft top --json --count 3 --interval 10   three objects, one a line
  weft top --once --json | jq '.users[] | {user, rate: .rate.written_bytes_per_s}'";

/// Shows current activity by client, user, file and target.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Top {
    /// Print tables of one interval instead of using the terminal
    #[arg(long)]
    once: bool,
    /// Print one JSON object a line for each interval
    #[arg(long)]
    json: bool,
    /// End after COUNT intervals; prints tables unless --json is given
    #[arg(long, value_name = "COUNT", conflicts_with = "once", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Time between two observations, in seconds or with a unit such as 500ms
    #[arg(long, value_name = "TIME", default_value = "2", value_parser = interval)]
    interval: Nanos,
    /// Sort clients, users and files by this value
    #[arg(long, value_enum, default_value = "bytes")]
    sort: Sort,
    /// Show rows that contain this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Rows of each table with --once or --count
    #[arg(long, value_name = "COUNT", default_value_t = ROWS)]
    rows: usize,
}

fn interval(text: &str) -> Result<Nanos, String> {
    let seconds: Option<f64> = text.parse().ok();
    let interval = match seconds {
        Some(seconds) if seconds.is_finite() && seconds >= 0.0 => Nanos((seconds * 1e9) as u64),
        Some(_) => return Err("write a number of seconds".into()),
        None => super::duration(text)?,
    };
    match interval {
        interval if interval < INTERVAL_MIN => Err("write at least 0.1".into()),
        interval if interval > INTERVAL_MAX => Err("write at most 3600".into()),
        interval => Ok(interval),
    }
}

impl Top {
    /// Runs the command.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let is_screen = !self.once && !self.json && self.count.is_none();
        if is_screen && !(std::io::stdout().is_terminal() && std::io::stdin().is_terminal()) {
            let why = "standard input and output are not a terminal";
            return Err(Failure::misuse("top", why).remedy("use --once, --count or --json"));
        }
        let weft = Weft::of(super::load(file)?, |options| {
            options.connect_timeout = REPLY_DEADLINE;
            options.request_timeout = REPLY_DEADLINE;
            options.retry_for = Nanos(0);
            options.dead_for = Nanos(0);
        })?;
        // The tables show unreachable servers, so the client's messages are not needed.
        weft_client::set_log(|_| ());
        let weft = weft.complete();
        if is_screen { terminal::run(weft, self.interval, self.sort, self.filter) } else { self.print(&weft) }
    }

    /// Prints intervals.
    fn print(&self, weft: &Weft) -> Result<u8, Failure> {
        let mut observed = Observed::new(weft);
        let mut labels = labels(weft);
        let count = if self.once { Some(1) } else { self.count };
        let mut due = Instant::now();
        observe(weft, &mut observed);
        require_an_answer(weft, &observed)?;
        let mut printed = 0;
        loop {
            due += self.interval.as_duration();
            // A late reply delays this interval, not all later ones.
            due = due.max(Instant::now() + Duration::from_millis(1));
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            observe(weft, &mut observed);
            let rates = observed.rates();
            if self.json {
                let files: Vec<FileId> = view::by_file(&rates).into_keys().collect();
                labels.paths = poll::paths(weft, &files);
                outln!("{}", json::object(&rates, &weft.cluster.name, &now(), &mut labels));
            } else {
                if printed > 0 {
                    outln!();
                }
                labels.paths = poll::paths(weft, &view::busiest_files(&rates, self.sort, self.rows));
                self.print_tables(weft, &rates, &mut labels);
            }
            crate::output::flush();
            printed += 1;
            if count.is_some_and(|count| printed >= count) {
                require_an_answer(weft, &observed)?;
                return Ok(if rates.is_missing_a_server() { FAILED } else { 0 });
            }
        }
    }

    fn print_tables(&self, weft: &Weft, rates: &Rates, labels: &mut Labels) {
        let seconds = rates.interval.0 as f64 / 1e9;
        let users = if rates.is_complete { "all users" } else { "only your own clients and files" };
        outln!("cluster {}, {}, {seconds:.1} s, {users}", weft.cluster.name, now());
        let parts: Vec<_> =
            view::summary(rates).into_iter().map(|(name, value)| format!("{name} {value}")).collect();
        outln!("{}", parts.join(", "));
        if let Some(note) = view::lease_note(rates) {
            outln!("{note}");
        }
        for tab in Tab::ALL {
            let rows = view::rows(rates, tab, self.sort, &self.filter, labels);
            outln!("\n{}", tab.title());
            if rows.cells.is_empty() {
                outln!("  none active");
                continue;
            }
            let mut table =
                Table::with_head(rows.columns.iter().map(|column| column.title.to_owned()).collect());
            let left = rows.cells.len().saturating_sub(self.rows);
            rows.cells.into_iter().take(self.rows).for_each(|cells| table.add(cells));
            out!("{}", table.render());
            if left > 0 {
                outln!("and {left} more (--rows)");
            }
        }
    }
}

/// Names for the rows of a cluster.
fn labels(weft: &Weft) -> Labels {
    Labels { mount: weft.cluster.mount.display().to_string(), ..Labels::default() }
}

/// Asks all servers.
fn observe(weft: &Weft, observed: &mut Observed) {
    for (index, reply) in poll::ask_all(weft).into_iter().enumerate() {
        observed.add(index, reply);
    }
}

/// Fails if no server has answered.
fn require_an_answer(weft: &Weft, observed: &Observed) -> Result<(), Failure> {
    if observed.has_answer() {
        return Ok(());
    }
    let rates = observed.rates();
    let why =
        rates.servers.iter().find_map(|server| server.state.as_ref().err().map(|why| (&server.name, why)));
    let (server, why) = why.map_or(("", "there is none"), |(name, why)| (name.as_str(), why.as_str()));
    let remedy = match weft.cluster.embedded {
        Some(_) => "`weft run -- PROGRAM` starts the servers of an embedded cluster",
        None => "start the servers with `weft serve` on their hosts",
    };
    let what = format!("cluster {}: no server answers", weft.cluster.name);
    Err(Failure::new(what, format!("server {server}: {why}")).remedy(remedy))
}

/// Present time, in UTC.
fn now() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_parts(since.as_secs() as i64, since.subsec_nanos()).utc()
}
