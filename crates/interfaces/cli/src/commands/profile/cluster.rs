//! `weft profile` without a directory: measures the classes of a running cluster and the network to its servers.

use super::{ProfileArgs, devices};
use crate::atomic_file::AtomicFile;
use crate::commands::serve::runs_here;
use crate::commands::session::{Weft, of_server, why};
use crate::failure::{Failure, MISUSED};
use crate::progress::Progress;
use crate::table::Table;
use std::path::{Path, PathBuf};
use weft_config::{Cluster, Emulate, Module, Server, Target};
use weft_core::units::human_bytes;
use weft_core::{ByteLen, Nanos, ServerId};
use weft_env::real::block_on;
use weft_estimate::measure::{self, ClassMeasurement, ClassReport, FittedLine, Link, Missing, Plan, Report};
use weft_models::Profile;
use weft_planner::figures::Processor;
use weft_wire::status::TargetStatus;

/// Default space used on a target.
const SIZE: ByteLen = ByteLen::from_mib(1024);
/// Default time for all classes, network and processors together, and with `--quick`. It should not take longer than a
/// user waits without doing something else.
const TIME: Nanos = Nanos::from_s(18);
const TIME_QUICK: Nanos = Nanos::from_s(8);
/// The network gets this fraction of the time: 1/12.
const NETWORK_TIME_DIVISOR: u64 = 12;
/// The processors get this fraction of the time: 1/24.
const PROCESSOR_TIME_DIVISOR: u64 = 24;
/// Maximum distance in bytes between requests on emulated devices, which store no contents.
const REACH_MAX: u64 = 64 << 30;
/// Minimum ratio of free space to used space.
const FREE_TO_USED_MIN: u64 = 2;
/// Number of connections: one for each concurrent request, and some for other queries.
const CONNECTIONS: u32 = 96;
/// Default memory parameters of a system: dirty limit, background limit and page cache, in bytes.
const MEMORY: [u64; 3] = [512 << 20, 128 << 20, 0];

/// Consequence of unreliable lines, and the remedy.
const UNRELIABLE: &str = "Other programs used the machine or its disks. `weft plan` takes the figures with their \
                          error, and keeps present layouts unless a gain exceeds it. Measure again when the machine \
                          is idle, or for longer: `weft profile --time 2min`";

/// A target to measure.
struct MeasuredTarget<'a> {
    server: &'a Server,
    target: &'a Target,
    status: TargetStatus,
}

impl ProfileArgs {
    /// Measures and returns the exit code.
    pub(super) fn of_cluster(&self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let cluster = crate::commands::load(file)?;
        crate::embedded::revive(&cluster)?;
        let _held = crate::embedded::hold(&cluster)?;
        weft_client::set_log(|_| ());
        let weft = Weft::of(cluster, |options| options.connections_max = CONNECTIONS)?.complete();
        let output = self.output.clone().unwrap_or_else(|| Report::beside(&weft.cluster.file));
        // Fail before minutes are spent on measuring.
        let elsewhere = "name another file with --output; `weft plan --cluster FILE` takes it";
        let out = AtomicFile::new(&output).map_err(|failure| failure.remedy(elsewhere).code(MISUSED))?;
        let wanted = self.targets_to_measure(&weft)?;
        let count = wanted.iter().map(|(_, all)| all.len() as u64).sum();
        let plans: Vec<Plan> =
            wanted.iter().map(|(_, all)| self.plan(all, count)).collect::<Result<_, _>>()?;
        let servers: Vec<_> = weft.cluster.numbered().collect();
        let steps: u64 = wanted
            .iter()
            .zip(&plans)
            .map(|((_, all), plan)| all.len() as u64 * measure::steps(plan))
            .sum::<u64>()
            + servers.len() as u64
            + 1;
        let progress = Progress::new("profile");
        progress.plan(self.total_time().as_duration());
        progress.set(0, steps, "");
        let mut links: Vec<Link> = Vec::new();
        let mut missing: Vec<Missing> = Vec::new();
        let network_time = Nanos(self.total_time().0 / NETWORK_TIME_DIVISOR / servers.len().max(1) as u64);
        for (id, server) in &servers {
            progress.begin(format!("messages to {}", server.name));
            let link = block_on(measure::link(&weft.client, *id, &server.name, network_time));
            match link.map_err(|error| of_server(&server.name, &error))? {
                Some(link) => links.push(link),
                None => missing.push(Missing::of_cluster(
                    format!("network to {}", server.name),
                    "no line fits the times",
                )),
            }
        }
        progress.begin("messages of all processors");
        let processor = self.processor(&weft, &mut missing)?;
        let devices = devices::of_running(&weft);
        let mut sites = Vec::new();
        for ((class, all), plan) in wanted.iter().zip(&plans) {
            let site = site(&weft, class, all, plan, &progress)?;
            sites.push(ClassMeasurement { devices: devices.get(class).cloned(), ..site });
        }
        drop(progress);
        let report = Report::new(&weft.cluster.name, super::now_s(), &sites, links, processor, missing);
        // Measurements of other classes stay valid. A file that is not a report is overwritten, as it always was.
        let earlier = read(&output).ok().flatten();
        let whole = match earlier.filter(|earlier| earlier.cluster == report.cluster) {
            Some(earlier) => report.clone().beside_earlier(earlier, |class| {
                let mut targets = weft.cluster.servers.iter().flat_map(|server| &server.targets);
                targets.any(|target| target.class == class.name && device(target) == class.device)
            }),
            None => report.clone(),
        };
        if let Err(error) = whole.figures.check() {
            report.missing.iter().for_each(|missing| errln!("not measured: {missing}"));
            return Err(Failure::new("profile", format!("nothing is written: {error}"))
                .remedy("run `weft profile` again when the machine is idle, or with more --time"));
        }
        out.write(whole.to_toml().as_bytes()).map_err(|failure| failure.remedy(elsewhere))?;
        if self.json {
            outln!("{}", as_json(&report).map_err(|error| Failure::new("profile", error))?);
        } else {
            out!("{}", as_text(&report, &wanted, self.verbose));
            let stay: Vec<&str> =
                whole.classes[report.classes.len()..].iter().map(|class| class.name.as_str()).collect();
            let stay =
                if stay.is_empty() { String::new() } else { format!("; those of {} stay", stay.join(", ")) };
            outln!("figures written to {}{stay}", output.display());
        }
        Ok(0)
    }

    fn total_time(&self) -> Nanos {
        self.time.unwrap_or(if self.quick { TIME_QUICK } else { TIME })
    }

    /// Measures the processors if all servers run on this host.
    fn processor(&self, weft: &Weft, missing: &mut Vec<Missing>) -> Result<Option<Processor>, Failure> {
        if !weft.cluster.servers.iter().all(runs_here) {
            missing.push(Missing::of_cluster("processor", "servers run on other hosts"));
            return Ok(None);
        }
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u32;
        let servers: Vec<ServerId> = weft.cluster.numbered().map(|(id, _)| id).collect();
        let time = Nanos(self.total_time().0 / PROCESSOR_TIME_DIVISOR);
        let found = block_on(measure::processor(&weft.client, &servers, cores, time));
        let found = found.map_err(|error| Failure::new("profile", why(&error)))?;
        if found.is_none() {
            let why = "the rate of messages was not steady; measure again when the machine is idle";
            missing.push(Missing::of_cluster("processor", why));
        }
        Ok(found)
    }

    /// Returns the targets to measure, by class in the order of the cluster file.
    fn targets_to_measure<'a>(
        &self,
        weft: &'a Weft,
    ) -> Result<Vec<(String, Vec<MeasuredTarget<'a>>)>, Failure> {
        let mut classes: Vec<(String, Vec<(usize, &Target)>)> = Vec::new();
        for (number, server) in weft.cluster.servers.iter().enumerate() {
            for target in &server.targets {
                match classes.iter_mut().find(|(class, _)| *class == target.class) {
                    Some((_, all)) => all.push((number, target)),
                    None => classes.push((target.class.clone(), vec![(number, target)])),
                }
            }
        }
        if let Some(unknown) =
            self.class.iter().find(|class| !classes.iter().any(|(known, _)| known == *class))
        {
            let known: Vec<&str> = classes.iter().map(|(class, _)| class.as_str()).collect();
            return Err(Failure::misuse(format!("--class {unknown}"), "no target has it")
                .remedy(format!("classes here: {}", known.join(", "))));
        }
        let mut wanted = Vec::new();
        for (class, all) in classes {
            if !self.class.is_empty() && !self.class.contains(&class) {
                continue;
            }
            let first = all[0].1;
            if let Some((_, other)) = all.iter().find(|(_, other)| device(other) != device(first)) {
                let (first, other) = (device(first), device(other));
                return Err(Failure::misuse(
                    format!("class {class:?}"),
                    format!("has targets that are {first} and others that are {other}"),
                )
                .remedy("give them different classes"));
            }
            let count = if self.targets == 0 { all.len() } else { all.len().min(self.targets) };
            let mut some = Vec::new();
            // Spread over the class, including its first and last target.
            for place in 0..count {
                let (number, target) = all[place * (all.len() - 1) / count.saturating_sub(1).max(1)];
                let server = &weft.cluster.servers[number];
                let id = weft_core::ServerId(number as u32);
                let asked = block_on(weft.client.status(id));
                let status = asked.map_err(|error| of_server(&server.name, &error))?;
                let status = status.targets.into_iter().find(|status| status.target == target.id);
                let status = status.ok_or_else(|| {
                    let why = format!("server {} does not have it", server.name);
                    Failure::new(format!("target {}", target.id.0), why)
                        .remedy("restart the server, which then reads the cluster file again")
                })?;
                some.push(MeasuredTarget { server, target, status });
            }
            wanted.push((class, some));
        }
        Ok(wanted)
    }

    /// Returns the measurement plan for a class. `count` targets of all classes share the time.
    fn plan(&self, all: &[MeasuredTarget<'_>], count: u64) -> Result<Plan, Failure> {
        let span = self.size.unwrap_or(if self.quick { ByteLen(SIZE.0 / 4) } else { SIZE });
        if span < super::SIZE_MIN {
            return Err(Failure::misuse("--size", "less than 16 MiB does not characterize a device"));
        }
        let span = span.0 / super::SIZE_MIN.0 * super::SIZE_MIN.0;
        for MeasuredTarget { target, status, server } in all {
            if status.free.0 / FREE_TO_USED_MIN < span {
                let why = format!(
                    "{} are free, and {} would be used",
                    human_bytes(status.free.0),
                    human_bytes(span)
                );
                return Err(Failure::misuse(format!("target {} of {}", target.id.0, server.name), why)
                    .remedy("use less with --size"));
            }
        }
        let first = all[0].target;
        // An emulated device has no contents: reads need no earlier write, and its size is that of the model.
        let model = emulated(first)?;
        let reach =
            model.as_ref().map_or(span, |model| (capacity(model) / 4).clamp(span, REACH_MAX.max(span)));
        let time = self.total_time().0;
        let time = time - time / NETWORK_TIME_DIVISOR - time / PROCESSOR_TIME_DIVISOR;
        Ok(Plan {
            span,
            reach,
            time: Nanos(time / count.max(1)),
            quick: self.quick,
            direct: first.module == Module::Direct,
            sparse: model.is_some(),
        })
    }
}

/// Measures the targets of a class.
fn site(
    weft: &Weft,
    class: &str,
    all: &[MeasuredTarget<'_>],
    plan: &Plan,
    progress: &Progress,
) -> Result<ClassMeasurement, Failure> {
    let first = &all[0];
    let model = emulated(first.target)?;
    let memory = match &model {
        Some(model) => {
            let files = &model.files;
            [files.dirty_limit_mib, files.dirty_background_mib, files.page_cache_mib].map(|mib| mib << 20)
        }
        // Targets of a host share its memory.
        None if runs_here(first.server) => {
            let here = weft.cluster.servers.iter().filter(|server| runs_here(server));
            let targets = here.map(|server| server.targets.len() as u64).sum::<u64>().max(1);
            system_memory().unwrap_or(MEMORY).map(|bytes| bytes / targets)
        }
        None => MEMORY,
    };
    let mut measured = Vec::new();
    for MeasuredTarget { target, .. } in all {
        let tell = |step: &str| progress.begin(format!("target {} ({class}): {step}", target.id.0));
        let found = block_on(measure::target(&weft.client, target.id, plan, &tell));
        let found = found.map_err(|error| Failure::new(format!("target {}", target.id.0), why(&error)))?;
        measured.push((target.id.0, found));
    }
    let of_class = |target: &&Target| target.class == class;
    let targets = weft.cluster.servers.iter().flat_map(|server| &server.targets).filter(of_class).count();
    Ok(ClassMeasurement {
        class: class.to_owned(),
        device: device(first.target),
        devices: None,
        targets: targets as u32,
        write_buffer: memory[0],
        write_back_threshold: memory[1],
        page_cache: memory[2],
        capacity: model.as_ref().map_or(first.status.total.0, capacity),
        measured,
    })
}

/// Describes a target's device by the cluster file. Measurements of another device do not apply to it.
pub fn device(target: &Target) -> String {
    let module = target.module.name();
    match &target.emulate {
        Some(device) => format!("{module}, emulates {device}"),
        None => module.to_owned(),
    }
}

/// Returns the measurements of a cluster, if there are any.
pub fn figures(cluster: &Cluster) -> Result<Option<Report>, Failure> {
    let report = read(&Report::beside(&cluster.file))?;
    Ok(report.filter(|report| report.cluster == cluster.name))
}

/// Reads the report in a file, if there is one.
fn read(path: &Path) -> Result<Option<Report>, Failure> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::new(path.display(), error)),
    };
    Report::from_toml(&text).map(Some).map_err(|error| {
        Failure::misuse(path.display(), error).remedy("measure again with `weft profile`, or remove the file")
    })
}

/// Returns the measurement of a target's class if the device is unchanged.
pub fn of_target<'a>(report: &'a Report, target: &Target) -> Option<&'a ClassReport> {
    report.class(&target.class).filter(|class| class.device == device(target))
}

fn emulated(target: &Target) -> Result<Option<Profile>, Failure> {
    let profile = match &target.emulate {
        None => return Ok(None),
        Some(Emulate::Named(name)) => Profile::by_name(name),
        // The file is on the server's host. This host may have another file of that name.
        Some(Emulate::File(path)) => match std::fs::read_to_string(path) {
            Ok(text) => Profile::from_toml(&text),
            Err(error) => return Err(Failure::new(path.display(), error)),
        },
    };
    profile.map(Some).map_err(|error| Failure::misuse(format!("target {}", target.id.0), error))
}

fn capacity(model: &Profile) -> u64 {
    let gb = model.hdd.as_ref().map(|hdd| hdd.capacity_gb).or(model.ssd.as_ref().map(|ssd| ssd.capacity_gb));
    (gb.unwrap_or(0.0) * 1e9) as u64
}

/// Returns this system's dirty limit, background limit and total memory in bytes.
fn system_memory() -> Option<[u64; 3]> {
    let number = |name: &str| -> Option<u64> {
        std::fs::read_to_string(format!("/proc/sys/vm/{name}")).ok()?.trim().parse().ok()
    };
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    let available = line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10;
    let of = |bytes: &str, ratio: &str| match number(bytes) {
        Some(bytes) if bytes > 0 => Some(bytes),
        _ => number(ratio).map(|percent| available / 100 * percent),
    };
    let (behind, gathers) =
        (of("dirty_bytes", "dirty_ratio")?, of("dirty_background_bytes", "dirty_background_ratio")?);
    Some([behind, gathers, available])
}

fn points(points: &[measure::Point]) -> String {
    let us = |ns: f64| format!("{:.1}", ns / 1e3);
    let mut table =
        Table::new(["  ", "REQUESTS", "COUNT", "ASIDE", "10% US", "50%", "90%", "US EACH", "ERROR"]);
    for point in points {
        table.row([
            String::new(),
            point.requests.clone(),
            point.count.to_string(),
            point.aside.to_string(),
            us(point.ns_p10 as f64),
            us(point.ns_p50 as f64),
            us(point.ns_p90 as f64),
            us(point.ns_each),
            us(point.ns_error),
        ]);
    }
    table.render()
}

/// Returns the report as JSON, with the number of unreliable lines of each class.
fn as_json(report: &Report) -> Result<String, serde_json::Error> {
    let mut json = serde_json::to_value(report)?;
    if let Some(classes) = json["classes"].as_array_mut() {
        for (class, json) in report.classes.iter().zip(classes) {
            let (unreliable, all) = class.unreliable();
            json["unreliable"] = serde_json::json!({ "lines": unreliable, "of": all });
        }
    }
    serde_json::to_string(&json)
}

fn as_text(report: &Report, wanted: &[(String, Vec<MeasuredTarget<'_>>)], verbose: bool) -> String {
    let mut out = String::new();
    let with_error = |value: f64, error: f64| format!("{value} ± {error}");
    let mut table = Table::new(["SERVER", "MESSAGE US", "TO MB/S", "FROM MB/S", "MESSAGES"]);
    for link in &report.network {
        table.row([
            link.server.clone(),
            with_error(link.message_us, link.message_error_us),
            with_error(link.send.mb_s, link.send.mb_s_error),
            with_error(link.receive.mb_s, link.receive.mb_s_error),
            link.samples().to_string(),
        ]);
    }
    out += &table.render();
    if verbose {
        report.network.iter().for_each(|link| out += &format!("\n{}\n{}", link.server, points(&link.points)));
    }
    for class in &report.classes {
        let targets: Vec<String> = class.targets.iter().map(u32::to_string).collect();
        out += &format!(
            "\nclass {} ({}), measured on target{} {} over {}: {} requests, {} of them in batches set aside\n",
            class.name,
            class.device,
            if targets.len() == 1 { "" } else { "s" },
            targets.join(", "),
            human_bytes(class.span.0),
            class.samples,
            class.aside
        );
        let mut table = Table::new(["  ", "REQUESTS", "STARTUP US", "MB/S", "LINE OFF BY", ""]);
        let mut row = |what: String, line: &FittedLine, is_reliable: bool| {
            table.row([
                String::new(),
                what,
                with_error(line.startup_us, line.startup_error_us),
                // A line without a slope has no rate.
                if line.mb_s_error < line.mb_s {
                    with_error(line.mb_s, line.mb_s_error)
                } else {
                    "unknown".into()
                },
                format!("{:.0} %", 100.0 * line.off),
                if is_reliable { String::new() } else { "unreliable".to_owned() },
            ]);
        };
        for (verb, lines) in [("read", &class.read), ("write", &class.write)] {
            row(format!("{verb} in order"), &lines.sequential, lines.sequential.is_reliable());
            if let Some(streams) = &lines.streams {
                row(format!("{verb} 16 streams in turn"), streams, streams.is_reliable());
            }
            if let Some(near) = &lines.near {
                row(format!("{verb} neighbors out of order"), near, near.is_certain());
            }
            for depth in &lines.random {
                let at =
                    if depth.depth == 1 { String::new() } else { format!(", {} at a time", depth.depth) };
                row(format!("{verb} at random{at}"), &depth.line, depth.line.is_reliable());
            }
            for depth in &lines.past {
                let what = format!("{verb} with direct I/O, {} at a time", depth.depth);
                row(what, &depth.line, depth.line.is_reliable());
            }
        }
        out += &table.render();
        if let (Some(us), Some(error)) = (class.write.sync_us, class.write.sync_error_us) {
            out += &format!("  4 KiB behind the end and a sync: {us} ± {error} us\n");
        }
        if let Some(held) = &class.page_cache {
            let (bytes, error) = (human_bytes(held.bytes.0), human_bytes(held.error.0));
            out += &match held.is_lower_bound {
                true => format!("  memory answers reads of at least the last {bytes}\n"),
                false if held.bytes.0 == 0 => {
                    format!("  memory answers no reads, or of less than the last {error}\n")
                }
                false => format!("  memory answers reads of the last {bytes} ± {error}\n"),
            };
        }
        if verbose {
            out += &points(&class.points);
        }
        if let Some(deviation) = class.deviation() {
            out += &format!("  repetitions differ by {:.0} % in the mean\n", 100.0 * deviation);
        }
        if class.targets.len() > 1 {
            out += &format!("  targets differ from their mean by {:.0} % at most\n", 100.0 * class.apart);
        }
        let bridged = wanted.iter().filter(|(name, _)| *name == class.name).flat_map(|(_, all)| all);
        if bridged.into_iter().any(|one| one.target.log().is_some()) {
            out += "  these are figures of the disks, without the SSDs beside them\n";
        }
    }
    if let Some(processor) = report.figures.processor {
        let (rate, cores) = (processor.messages_per_s, processor.cores);
        out += &format!("\n{cores} processors serve {rate:.0} requests per second, with their clients\n");
    }
    if report.figures.shares_devices() {
        out += "\nsome targets share a device\n";
    }
    for class in &report.classes {
        if let (count @ 1.., all) = class.unreliable() {
            out += &format!("\nclass {}: {count} of {all} lines are unreliable. {UNRELIABLE}\n", class.name);
        }
    }
    for missing in &report.missing {
        out += &format!("\nnot measured: {missing}");
    }
    if !report.missing.is_empty() {
        out += "\nthe planner uses its defaults for these\n";
    }
    out +=
        "\n± is a standard error over batches of requests; batches far from the others count for nothing\n";
    out
}
