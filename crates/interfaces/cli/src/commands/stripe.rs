//! `weft setstripe` and `weft getstripe`, in the style of `lfs`.

use super::bytes;
use super::file_json;
use super::layout_arguments::{self, LayoutArgs};
use super::session::{Weft, why};
use super::tree::umask;
use crate::failure::Failure;
use crate::table::Table;
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;
use weft_core::units::human_bytes;
use weft_core::{
    ByteLen, COMPRESSION_ATTRIBUTE, CodecPolicy, Compression, CompressionSetting, Integrity, Layout,
    ObjectId, Pattern, TargetId,
};
use weft_env::real::block_on;
use weft_wire::data::DatafileMeta;
use weft_wire::meta::{FileType, LayoutSpec, OpenFlags, Rule, RuleRemoval, RuledDirectory};

/// Extended attribute with the checksum setting.
const INTEGRITY: &str = "user.weft.integrity";

/// Extended attribute of a file whose bytes are in the metadata.
pub const INLINE: &str = "user.weft.inline";

const SET_AFTER: &str = "\
A missing file is created, empty, with the layout. An empty file gets the layout, and so does an inline one, for its
later datafiles. A directory gets it as the default of files and directories created in it from now on. A file with
datafiles keeps its layout: `weft migrate` moves it to another one.

Properties that are not given come from the first rule that matches, then the directory's default, then [layout] in
the cluster file. MPI programs use the info keys striping_unit and striping_factor, which take precedence over rules.

--rule gives a directory a rule: new files below it, at any depth and also in existing directories, get the layout if
their path matches the pattern. * matches any characters of a name, ** also /, ? one character, [a-z] one of these,
{n} a number. A pattern without / matches names at any depth. One with /, even only a leading one, matches the path
below the directory. The nearest directory with a matching rule applies, and in it the first such rule. A new rule
goes before the others. `weft apply` sets the rules of a plan, and `weft getstripe DIR` shows all rules.

--integrity crc32c gives a file checksums at rest, or all files and directories created in a directory from now on,
whatever the targets' setting is. off gives them none. A written file keeps its setting. -d also removes the setting
of a directory.

--compress zstd compresses a file, or all files and directories created in a directory from now on. SETTING is off,
lz4, zstd, zstd:LEVEL or auto, with the length of chunks if it is not 64KiB: zstd:3/256KiB. A written file keeps its
setting; `weft migrate --compress` converts it. -d also removes the setting of a directory.

--part gives the layout of a range by class, with the stripe size of each target. All targets of a class are used.
Several parts follow each other, and only the last one has no @END. On targets with limited capacity (`capacity` in
the cluster file), a part with an end is cut where the capacity ends, and the next part begins there.

Examples:
  weft setstripe -c 2 -S 1M /weft/results          two targets for each new file in results
  weft setstripe --class ssd /weft/hot.dat         a new file on ssd targets only
  weft setstripe --rule '*.log' -c 1 /weft/results  one target for every log below results
  weft setstripe --rule '*.h5' --part ssd=1M@4G --part hdd=4M /weft/results
                                                   first 4 GiB on SSDs
  weft setstripe --integrity crc32c /weft/archive  checksums for each new file in archive
  weft setstripe --compress zstd /weft/runs        compress each new file in runs
  weft setstripe --rule '*.txt' --compress zstd:9 /weft
  weft setstripe -d --rule '*.log' /weft/results   remove that rule
  weft setstripe -d /weft/results                  remove default and rules";

/// Sets how a new file, or all new files of a directory, are striped.
#[derive(Args)]
#[command(after_long_help = SET_AFTER)]
pub struct Setstripe {
    #[command(flatten)]
    layout: LayoutArgs,
    /// A rule of the directory for files below it whose path matches this pattern
    #[arg(long, value_name = "PATTERN")]
    rule: Option<Pattern>,
    /// Checksums at rest of the file, or of new files of a directory: off or crc32c
    #[arg(long, value_name = "SETTING", conflicts_with_all = ["rule", "no_rules", "delete"])]
    integrity: Option<Integrity>,
    /// Remove the default and all rules of a directory, or with --rule only that rule
    #[arg(short = 'd', long = "delete", conflicts_with_all = ["count", "size", "index", "class", "parts", "compress"])]
    delete: bool,
    /// Remove all rules of a directory
    #[arg(long, conflicts_with_all = ["count", "size", "index", "class", "parts", "compress", "rule", "delete"])]
    no_rules: bool,
    /// Files and directories
    #[arg(required = true, value_parser = bytes::argument())]
    paths: Vec<String>,
}

impl Setstripe {
    /// Runs the command.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let weft = Weft::open(file)?;
        let spec = self.layout.spec(&weft)?;
        self.layout.note_fewer_targets(&weft);
        for path in &self.paths {
            let inside = weft.inside(path)?;
            if self.rule.is_some() || self.no_rules {
                let (forget, add) = match &self.rule {
                    None => (RuleRemoval::All, Vec::new()),
                    Some(pattern) if self.delete => (RuleRemoval::These(vec![pattern.clone()]), Vec::new()),
                    Some(pattern) => {
                        let rule = Rule { pattern: pattern.clone(), layout: spec.clone() };
                        (RuleRemoval::Replaced, vec![rule])
                    }
                };
                weft.at(inside, true, |place| {
                    block_on(weft.client.change_rules(place, forget.clone(), add.clone()))
                })?;
                continue;
            }
            match weft.kind(inside, true)? {
                Some(kind) if self.delete && kind != FileType::Directory => {
                    return Err(Failure::misuse(
                        weft.shown(inside),
                        "only directories have a default to remove",
                    ));
                }
                Some(_) => {
                    // Without any option, the default layout is removed.
                    let has_setting = self.integrity.is_some() || spec.compression.is_some();
                    if !has_setting || !layout_arguments::leaves_striping_open(&spec) {
                        let striping = LayoutSpec { compression: None, ..spec.clone() };
                        weft.at(inside, true, |place| block_on(weft.client.set_layout(place, &striping)))?;
                    }
                    self.set_integrity(&weft, inside)?;
                    if let Some(setting) = spec.compression {
                        let text = setting.to_string();
                        weft.at(inside, true, |place| {
                            block_on(weft.client.set_xattr(
                                place,
                                COMPRESSION_ATTRIBUTE,
                                text.as_bytes(),
                                false,
                                false,
                            ))
                        })?;
                    }
                    if self.delete {
                        for setting in [INTEGRITY, COMPRESSION_ATTRIBUTE] {
                            weft.at(inside, true, |place| {
                                block_on(weft.client.remove_xattr(place, setting))
                            })?;
                        }
                        weft.at(inside, true, |place| {
                            block_on(weft.client.change_rules(place, RuleRemoval::All, Vec::new()))
                        })?;
                    }
                }
                None if self.delete => {
                    return Err(Failure::new(weft.shown(inside), super::posix(libc::ENOENT)));
                }
                None => {
                    // A file that is open for writing may already have datafiles with or without checksums.
                    let write = self.integrity.is_none();
                    let flags = OpenFlags {
                        write,
                        read: !write,
                        create: true,
                        exclusive: true,
                        ..OpenFlags::default()
                    };
                    let mode = 0o666 & !umask();
                    weft.at(inside, true, |place| block_on(weft.client.open(place, flags, mode, &spec)))?;
                    self.set_integrity(&weft, inside)?;
                }
            }
        }
        Ok(0)
    }

    fn set_integrity(&self, weft: &Weft, inside: &str) -> Result<(), Failure> {
        let Some(integrity) = self.integrity else { return Ok(()) };
        let word = integrity.word().as_bytes();
        weft.at(inside, true, |place| block_on(weft.client.set_xattr(place, INTEGRITY, word, false, false)))
    }
}

/// Returns a file's or directory's own setting, the value of `attribute`; `None` if it has none.
pub fn setting(weft: &Weft, inside: &str, attribute: &str) -> Result<Option<String>, Failure> {
    let value = weft.at(inside, true, |place| match block_on(weft.client.get_xattr(place, attribute)) {
        Err(error) if error.errno() == libc::ENODATA => Ok(None),
        found => found.map(Some),
    })?;
    Ok(value.map(|value| bytes::text(&value)))
}

const GET_AFTER: &str = "\
For a file: its components, and the targets of each in the order of stripes. -v adds the datafiles, their lengths and
the space they take, as the targets report now, and for targets with an SSD beside the disk the bytes on the SSD: only
there (DIRTY) or as a copy (COPIED). For a compressed file, -v shows the codec, the length of chunks, and the bytes of
the file beside those stored. For a directory: the default of new files, its rules and those of its parent
directories in order of precedence, and the layouts of the files in it (-r: also below it; -d: only default and
rules).

Examples:
  weft getstripe /weft/out.h5
  weft getstripe -v /weft/out.h5     where its bytes are
  weft getstripe -c -S results/*     only counts and sizes";

/// Shows how files are striped.
#[derive(Args)]
#[command(after_long_help = GET_AFTER)]
pub struct Getstripe {
    /// Show datafiles with their lengths and space, too
    #[arg(short = 'v', long)]
    verbose: bool,
    /// For directories: show only the default of new files
    #[arg(short = 'd', long)]
    directory: bool,
    /// For directories: show everything below
    #[arg(short = 'r', long)]
    recursive: bool,
    /// Show only the number of targets
    #[arg(short = 'c', long = "stripe-count")]
    count: bool,
    /// Show only the stripe size
    #[arg(short = 'S', long = "stripe-size")]
    size: bool,
    /// Show only the first target
    #[arg(short = 'i', long = "stripe-index")]
    index: bool,
    /// Print JSON: an array of files and directories
    #[arg(long, conflicts_with_all = ["count", "size", "index"])]
    json: bool,
    /// Files and directories
    #[arg(required = true, value_parser = bytes::argument())]
    paths: Vec<String>,
}

impl Getstripe {
    /// Runs the command.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let weft = Weft::open(file)?;
        let (mut failed, mut documents) = (false, Vec::new());
        for path in &self.paths {
            let inside = weft.inside(path)?.trim_end_matches('/');
            if let Err(failure) = self.one(&weft, inside, true, &mut documents) {
                errln!("{failure}");
                failed = true;
            }
        }
        if self.json {
            outln!("{:#}", Value::from(documents));
        }
        Ok(u8::from(failed))
    }

    fn one(&self, weft: &Weft, inside: &str, top: bool, documents: &mut Vec<Value>) -> Result<(), Failure> {
        let attr = weft.stat(inside, top)?;
        match attr.kind {
            FileType::Directory => {
                match self.json {
                    true => documents.push(default_json(weft, inside)?),
                    false => self.default(weft, inside)?,
                }
                if self.directory {
                    return Ok(());
                }
                let mut below = Vec::new();
                weft.list(inside, false, |entry| {
                    let name = bytes::text(&entry.name);
                    if entry.kind == FileType::Regular
                        || (self.recursive && entry.kind == FileType::Directory)
                    {
                        below.push(super::session::join(inside, &name));
                    }
                    Ok(())
                })?;
                below.iter().try_for_each(|path| self.one(weft, path, false, documents))
            }
            FileType::Regular if self.json => {
                documents.extend(file_layout_json(weft, inside, self.verbose)?);
                Ok(())
            }
            FileType::Regular => self.file(weft, inside),
            _ => Ok(()),
        }
    }

    fn default(&self, weft: &Weft, inside: &str) -> Result<(), Failure> {
        let (_, default) = weft.at(inside, true, |place| block_on(weft.client.get_layout(place)))?;
        let spec = default.unwrap_or_default();
        let cluster = &weft.cluster.placement;
        let or = |own: Option<String>, cluster: String| own.unwrap_or(format!("{cluster} (the cluster's)"));
        let count = match cluster.factor {
            weft_core::Factor::All => "all".to_owned(),
            weft_core::Factor::AtMost(count) => count.to_string(),
        };
        let class = match &cluster.class {
            weft_core::ClassFilter::Any => "any".to_owned(),
            weft_core::ClassFilter::Only(classes) => classes.join(", "),
        };
        let own_count =
            spec.stripe_count.map(|c| if c >= u32::from(u16::MAX) { "all".into() } else { c.to_string() });
        outln!("{}", weft.shown(inside));
        outln!("  default of new files:");
        outln!("  stripe count:  {}", or(own_count, count));
        let size = weft_config::format_size(cluster.stripe_size);
        outln!("  stripe size:   {}", or(spec.stripe_size.map(weft_config::format_size), size));
        outln!("  class:         {}", or(spec.class, class));
        if let Some(first) = spec.first {
            outln!("  stripe index:  {first}");
        }
        if let Some(integrity) = setting(weft, inside, INTEGRITY)? {
            outln!("  integrity:     {integrity}");
        }
        let of_cluster = weft.cluster.compression.map(CompressionSetting::On).map(|found| found.to_string());
        match (setting(weft, inside, COMPRESSION_ATTRIBUTE)?, of_cluster) {
            (Some(own), _) => outln!("  compress:      {own}"),
            (None, Some(of_cluster)) => outln!("  compress:      {}", or(None, of_cluster)),
            (None, None) => {}
        }
        self.rules(weft, inside)?;
        outln!();
        Ok(())
    }

    fn rules(&self, weft: &Weft, inside: &str) -> Result<(), Failure> {
        let ruled = weft.at(inside, true, |place| block_on(weft.client.rules(place)))?;
        let own = weft.stat(inside, true)?.file;
        for RuledDirectory { directory, path, rules } in ruled {
            match directory == own {
                true => outln!("  rules:"),
                false => outln!("  rules of {}:", weft.shown(&bytes::text(&path))),
            }
            let mut table = Table::new(["  ", "PATTERN", "LAYOUT"]);
            for rule in rules {
                let pattern = rule.pattern.to_string();
                table.row(["  ".to_owned(), pattern, layout_arguments::describe(&rule.layout)]);
            }
            out!("{}", table.render());
        }
        Ok(())
    }

    fn file(&self, weft: &Weft, inside: &str) -> Result<(), Failure> {
        let (layout, _) = weft.at(inside, true, |place| block_on(weft.client.get_layout(place)))?;
        let Some(layout) = layout else { return Ok(()) };
        let first = &layout.components()[0];
        if self.count || self.size || self.index {
            let mut parts = Vec::new();
            if self.count {
                parts.push(first.strips.len().to_string());
            }
            if self.size {
                parts.push(first.strips[0].stripe_size.0.to_string());
            }
            if self.index {
                parts.push(first.strips[0].target.0.to_string());
            }
            outln!("{} {}", parts.join(" "), weft.shown(inside));
            return Ok(());
        }
        outln!("{}", weft.shown(inside));
        let is_inline = setting(weft, inside, INLINE)?.is_some();
        if is_inline {
            outln!(
                "  inline: its bytes are in the metadata; if it grows, it gets datafiles with this layout"
            );
        }
        let datafiles = if self.verbose && !is_inline { Some(datafiles(weft, inside)?) } else { None };
        out!("{}", describe(weft, &layout, datafiles.as_deref()));
        if let Some(integrity) = setting(weft, inside, INTEGRITY)? {
            outln!("  integrity: {integrity}");
        }
        if let Some(compression) = setting(weft, inside, COMPRESSION_ATTRIBUTE)? {
            outln!("  compress: {compression}");
            if let (Some(datafiles), Ok(compression)) = (&datafiles, compression.parse::<Compression>()) {
                outln!("{}", compressed(compression, datafiles));
            }
        }
        outln!();
        Ok(())
    }
}

/// Returns the layout of a file as JSON, with datafiles if `verbose` is set; `None` for a file without one.
fn file_layout_json(weft: &Weft, inside: &str, verbose: bool) -> Result<Option<Value>, Failure> {
    let (layout, _) = weft.at(inside, true, |place| block_on(weft.client.get_layout(place)))?;
    let Some(layout) = layout else { return Ok(None) };
    let map = weft.cluster.map();
    let strip = |strip: &weft_core::Strip| {
        let entry = map.targets.iter().find(|entry| entry.id == strip.target);
        json!({
            "target": strip.target.0,
            "class": entry.map(|entry| &entry.class),
            "server": entry.map(|entry| &map.server(entry.server).name),
            "stripe_size": strip.stripe_size.0,
        })
    };
    let component = |part: &weft_core::Component| {
        json!({
            "start": part.start.0,
            "end": part.end.map(|end| end.0),
            "stripes": part.strips.iter().map(strip).collect::<Vec<_>>(),
        })
    };
    let is_inline = setting(weft, inside, INLINE)?.is_some();
    let mut document = json!({
        "path": file_json::text(&weft.shown(inside)),
        "type": "file",
        "inline": is_inline,
        "components": layout.components().iter().map(component).collect::<Vec<_>>(),
        "integrity": setting(weft, inside, INTEGRITY)?,
        "compress": setting(weft, inside, COMPRESSION_ATTRIBUTE)?,
    });
    if verbose && !is_inline {
        let datafile = |((_, target), found): ((ObjectId, TargetId), DatafileMeta)| {
            json!({
                "target": target.0,
                "length": found.len.0,
                "stored": found.blocks_512 * 512,
                "ssd_dirty": found.ssd_dirty.0,
                "ssd_copied": found.ssd_clean.0,
            })
        };
        let all = layout.objects().zip(datafiles(weft, inside)?).map(datafile);
        document["datafiles"] = all.collect::<Vec<_>>().into();
    }
    Ok(Some(document))
}

/// Returns the settings of a directory for new files, and the rules that apply in it, as JSON.
fn default_json(weft: &Weft, inside: &str) -> Result<Value, Failure> {
    let (_, default) = weft.at(inside, true, |place| block_on(weft.client.get_layout(place)))?;
    let spec = default.unwrap_or_default();
    let ruled = weft.at(inside, true, |place| block_on(weft.client.rules(place)))?;
    let rules = ruled.iter().flat_map(|directory| {
        let path = file_json::text(&weft.shown(&bytes::text(&directory.path)));
        directory.rules.iter().map(move |rule| {
            let layout = layout_arguments::describe(&rule.layout);
            json!({ "directory": path, "pattern": rule.pattern.to_string(), "layout": layout })
        })
    });
    Ok(json!({
        "path": file_json::text(&weft.shown(inside)),
        "type": "directory",
        "stripe_count": spec.stripe_count,
        "stripe_size": spec.stripe_size.map(|size| size.0),
        "class": spec.class,
        "stripe_index": spec.first,
        "integrity": setting(weft, inside, INTEGRITY)?,
        "compress": setting(weft, inside, COMPRESSION_ATTRIBUTE)?,
        "rules": rules.collect::<Vec<_>>(),
    }))
}

/// Describes how a compressed file is stored.
fn compressed(compression: Compression, datafiles: &[DatafileMeta]) -> String {
    let codec = match compression.policy {
        CodecPolicy::Lz4 => "LZ4".to_owned(),
        CodecPolicy::Zstd { level } => format!("Zstandard, level {level}"),
        CodecPolicy::Auto => "LZ4 or Zstandard".to_owned(),
    };
    let chunk = weft_config::format_size(ByteLen(compression.chunk_len()));
    let len: u64 = datafiles.iter().map(|datafile| datafile.len.0).sum();
    let stored: u64 = datafiles.iter().map(|datafile| datafile.blocks_512 * 512).sum();
    format!("  codec: {codec}; chunks: {chunk}\n  {}", both_sizes(len, stored))
}

/// Formats the length of compressed bytes beside the bytes that store them.
pub fn both_sizes(len: u64, stored: u64) -> String {
    format!("{len} bytes ({}) stored in {}", human_bytes(len), stored_size(len, stored))
}

/// Formats the bytes that store `len` bytes, with their share of these.
pub fn stored_size(len: u64, stored: u64) -> String {
    let share =
        if len == 0 { String::new() } else { format!(", {:.1}%", 100.0 * stored as f64 / len as f64) };
    format!("{stored} ({}){share}", human_bytes(stored))
}

/// Returns the attributes of each datafile in the order of `Layout::objects`.
fn datafiles(weft: &Weft, inside: &str) -> Result<Vec<DatafileMeta>, Failure> {
    let flags = OpenFlags { read: true, ..OpenFlags::default() };
    let spec = LayoutSpec::default();
    let open = weft.at(inside, true, |place| block_on(weft.client.open(place, flags, 0, &spec)))?;
    block_on(open.datafiles()).map_err(|error| Failure::new(weft.shown(inside), why(&error)))
}

/// Returns a note about targets that emulate another device.
fn emulated(weft: &Weft, objects: &[(ObjectId, TargetId)]) -> String {
    let targets = weft.cluster.servers.iter().flat_map(|server| &server.targets);
    let here = targets.filter(|target| objects.iter().any(|(_, id)| *id == target.id));
    let devices: Vec<_> = here
        .filter_map(|target| target.emulate.as_ref().map(|device| format!("{} {device}", target.id.0)))
        .collect();
    if devices.is_empty() { String::new() } else { format!("  emulated: {}\n", devices.join(", ")) }
}

fn describe(weft: &Weft, layout: &Layout, datafiles: Option<&[DatafileMeta]>) -> String {
    let map = weft.cluster.map();
    let mut out = String::new();
    let objects: Vec<(ObjectId, TargetId)> = layout.objects().collect();
    let total: u64 = datafiles.unwrap_or_default().iter().map(|datafile| datafile.len.0).sum();
    let bridged = weft
        .cluster
        .servers
        .iter()
        .flat_map(|server| &server.targets)
        .any(|target| target.log().is_some() && objects.iter().any(|(_, id)| *id == target.id));
    let mut next = 0;
    for component in layout.components() {
        let sizes: Vec<_> = component.strips.iter().map(|strip| strip.stripe_size).collect();
        let even = sizes.windows(2).all(|pair| pair[0] == pair[1]);
        let size = if even { weft_config::format_size(sizes[0]) } else { "varies".to_owned() };
        let end = component.end.map_or("the end".to_owned(), |end| end.0.to_string());
        if layout.components().len() > 1 {
            out += &format!("  bytes {} to {end}:\n", component.start.0);
        }
        out += &format!("  stripe count: {}, stripe size: {size}\n", component.strips.len());
        let mut table = match datafiles {
            Some(_) if bridged => Table::new([
                "  ", "TARGET", "CLASS", "SERVER", "STRIPE", "BYTES", "SHARE", "ROOM", "DIRTY", "COPIED",
            ]),
            Some(_) => Table::new(["  ", "TARGET", "CLASS", "SERVER", "STRIPE", "BYTES", "SHARE", "ROOM"]),
            None => Table::new(["  ", "TARGET", "CLASS", "SERVER", "STRIPE"]),
        };
        for strip in &component.strips {
            let entry = map.targets.iter().find(|entry| entry.id == strip.target);
            let class = entry.map_or("?".to_owned(), |entry| entry.class.clone());
            let server = entry.map_or("?".to_owned(), |entry| map.server(entry.server).name.clone());
            let stripe = weft_config::format_size(strip.stripe_size);
            let (target, margin) = (strip.target.0.to_string(), "  ".to_owned());
            match datafiles {
                Some(datafiles) => {
                    let datafile = datafiles.get(next).copied().unwrap_or_default();
                    let share = if total == 0 { 0.0 } else { 100.0 * datafile.len.0 as f64 / total as f64 };
                    let (bytes, room) = (datafile.len.0.to_string(), human_bytes(datafile.blocks_512 * 512));
                    let (share, ssd) = (format!("{share:.1}%"), [datafile.ssd_dirty, datafile.ssd_clean]);
                    let [dirty, copied] = ssd.map(|bytes| bytes.0.to_string());
                    match bridged {
                        true => table
                            .row([margin, target, class, server, stripe, bytes, share, room, dirty, copied]),
                        false => table.row([margin, target, class, server, stripe, bytes, share, room]),
                    }
                }
                None => table.row([margin, target, class, server, stripe]),
            }
            next += 1;
        }
        out += &table.render();
    }
    out += &emulated(weft, &objects);
    debug_assert_eq!(next, objects.len());
    if datafiles.is_some() {
        out += &format!("  {total} bytes ({}) on {} targets\n", human_bytes(total), objects.len());
    }
    out
}
