//! Reads samples of all data servers and groups them by file.

use crate::commands::bytes;
use crate::commands::session::{Weft, of_server, why};
use crate::failure::Failure;
use std::collections::BTreeMap;
use weft_client::Error;
use weft_core::{ClassLayout, FileId, LocalExtent, Nanos, ServerId};
use weft_env::real::block_on;
use weft_planner::watch::{FileSamples, SampledMessage};
use weft_wire::data::{SAMPLES_MAX, Sample};
use weft_wire::meta::{Attr, InodePath, ROOT, RuledDirectory, ScannedInode};

/// Maximum number of samples per interval.
const MESSAGES_MAX: usize = 1 << 20;
/// Maximum number of rows of a scan in which a file is searched. Other rows of the previous file may precede it.
const NEAR_MAX: u32 = 16;
/// Maximum number of files per interval that are looked up. The ones with the most samples are kept.
const FILES_MAX: usize = 4096;

/// A data server and the position up to which its samples were read.
struct Source {
    server: ServerId,
    name: String,
    run: u64,
    next: u64,
    one_in: u32,
    /// Whether its absence was reported.
    missing: bool,
    /// Number of samples that were overwritten before they were read.
    lost: u64,
}

/// Reads the samples of all data servers, interval by interval.
pub struct SampleReader<'a> {
    weft: &'a Weft,
    /// The directory's path from the root, followed by a slash unless it is the root.
    pub below: String,
    sources: Vec<Source>,
    /// Samples that were read and not evaluated yet.
    pending: Vec<Sample>,
    /// Notes about servers that were not reported yet.
    notes: Vec<String>,
}

/// Data of one interval.
pub struct IntervalSamples {
    /// Samples of the files below the directory.
    pub files: Vec<FileSamples>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl<'a> SampleReader<'a> {
    /// Creates a reader for the files below `inside`, whose attributes are `attr`.
    pub fn new(weft: &'a Weft, inside: &str, attr: &Attr) -> Result<Self, Failure> {
        // Use the path without symbolic links, because the paths of files have none.
        let path = match attr.file {
            ROOT => String::new(),
            file => {
                let found = look_up(weft, file);
                let found = found.map_err(|error| Failure::new(weft.shown(inside), why(&error)))?;
                found.map_or_else(|| inside.to_owned(), |inode| bytes::text(&inode.path))
            }
        };
        let path = path.trim_matches('/');
        let below = if path.is_empty() { String::new() } else { format!("{path}/") };
        let servers = weft.cluster.numbered().filter(|(_, server)| !server.targets.is_empty());
        let source = |(server, of): (ServerId, &weft_config::Server)| Source {
            server,
            name: of.name.clone(),
            run: 0,
            next: 0,
            one_in: 0,
            missing: false,
            lost: 0,
        };
        let (pending, notes) = (Vec::new(), Vec::new());
        Ok(Self { weft, below, sources: servers.map(source).collect(), pending, notes })
    }

    /// Returns the present id of the directory: `Some(None)` if it is missing, `None` if the metadata server does not
    /// answer.
    pub fn directory(&self) -> Option<Option<FileId>> {
        let path = bytes::bytes(self.below.trim_end_matches('/'));
        let place = InodePath::from_root(path, false);
        match block_on(self.weft.client.stat(&place)) {
            Ok(attr) => Some(Some(attr.file)),
            Err(error) => (error.errno() == libc::ENOENT).then_some(None),
        }
    }

    /// Skips the present samples of all servers.
    pub fn skip(&mut self) -> Result<(), Failure> {
        self.messages()?;
        self.pending.clear();
        self.sources.iter_mut().for_each(|source| source.lost = 0);
        Ok(())
    }

    /// Fails if no server keeps samples, or with `all`, if a server that answers does not keep all requests.
    pub fn check_sampling(&mut self, all: bool) -> Result<(), Failure> {
        if self.sources.iter().all(|source| source.run == 0 && !source.missing) {
            self.messages()?;
        }
        if self.sources.iter().all(|source| source.missing) {
            return Err(Failure::new("--watch", "no data server answers"));
        }
        let is_partial = |source: &&Source| !source.missing && source.one_in != 1;
        if let Some(source) = self.sources.iter().filter(|_| all).find(is_partial) {
            let kept = match source.one_in {
                0 => "no samples".to_owned(),
                one_in => format!("samples of 1/{one_in} of the time"),
            };
            let why = format!("server {} keeps {kept}, and a replica needs all requests", source.name);
            return Err(Failure::misuse("--replicas", why).remedy(
                "write sample = \"all\" in each [[server]] of the cluster file and start them again",
            ));
        }
        if self.sources.iter().all(|source| source.one_in == 0) {
            return Err(Failure::misuse("--watch", "no data server keeps samples of requests").remedy(
                "write sample = \"1/64\" in each [[server]] of the cluster file and start them again",
            ));
        }
        Ok(())
    }

    /// Returns the samples since the last call.
    pub fn gather(&mut self) -> Result<IntervalSamples, Failure> {
        self.messages()?;
        let mut notes = std::mem::take(&mut self.notes);
        for source in &mut self.sources {
            let lost = std::mem::take(&mut source.lost);
            if lost > 0 {
                notes.push(format!("{lost} samples of {} were overwritten by newer ones", source.name));
            }
        }
        let mut by_file: BTreeMap<FileId, Vec<Sample>> = BTreeMap::new();
        for sample in std::mem::take(&mut self.pending) {
            by_file.entry(sample.datafile.file).or_default().push(sample);
        }
        let mut by_file: Vec<(FileId, Vec<Sample>)> = by_file.into_iter().collect();
        by_file.sort_by_key(|(_, samples)| std::cmp::Reverse(samples.len()));
        if by_file.len() > FILES_MAX {
            notes
                .push(format!("of {} files only the {FILES_MAX} with the most samples count", by_file.len()));
            by_file.truncate(FILES_MAX);
        }
        let mut files = Vec::new();
        let mut rules = Rules { weft: self.weft, known: BTreeMap::new() };
        for (file, samples) in by_file {
            // A file that has been removed since is ignored.
            let inode = match look_up(self.weft, file) {
                Ok(Some(inode)) => inode,
                Ok(None) => continue,
                Err(error @ Error::Unreachable(_)) => {
                    notes.push(format!("this interval is ignored: {}", why(&error)));
                    return Ok(IntervalSamples { files: Vec::new(), notes });
                }
                Err(error) => return Err(Failure::new("metadata service", why(&error))),
            };
            let path = bytes::text(&inode.path);
            let (Some(layout), false) = (inode.layout, path.is_empty() || inode.doomed) else { continue };
            if !path.starts_with(&self.below) {
                continue;
            }
            let size = match inode.is_size_valid {
                true => inode.size.0,
                false => {
                    let place = InodePath::from_root(inode.path.clone(), false);
                    match block_on(self.weft.client.stat(&place)) {
                        Ok(attr) if attr.file == file.inode() => attr.size.0,
                        _ => continue,
                    }
                }
            };
            let ruled = match rules.of(&inode.path) {
                Ok(ruled) => ruled,
                // The file was just moved, or the metadata server does not answer. Its last known layout is used.
                Err(Error::Unreachable(_)) => None,
                Err(error) if error.errno() == libc::ENOENT => None,
                Err(error) => return Err(Failure::new(self.weft.shown(&path), why(&error))),
            };
            let messages = samples.iter().map(seen).collect();
            files.push(FileSamples { file, path: self.weft.shown(&path), layout, ruled, size, messages });
        }
        Ok(IntervalSamples { files, notes })
    }

    /// Reads the samples of all servers that answer, and notes about the others.
    fn messages(&mut self) -> Result<(), Failure> {
        let Self { pending, notes, .. } = self;
        for source in &mut self.sources {
            loop {
                let asked =
                    self.weft.client.samples(source.server, source.run, source.next, SAMPLES_MAX as u32);
                let got = match block_on(asked) {
                    Ok(got) => got,
                    Err(error @ Error::Unreachable(_)) => {
                        if !std::mem::replace(&mut source.missing, true) {
                            notes.push(why(&error));
                        }
                        break;
                    }
                    Err(error) => return Err(of_server(&source.name, &error)),
                };
                if std::mem::replace(&mut source.missing, false) {
                    notes.push(format!("server {} is back", source.name));
                }
                source.lost += got.lost;
                if source.one_in != got.one_in && got.one_in == 0 {
                    notes.push(format!("server {} keeps no samples", source.name));
                }
                (source.run, source.next, source.one_in) = (got.run, got.next, got.one_in);
                let more = got.samples.len() == SAMPLES_MAX;
                let free = MESSAGES_MAX.saturating_sub(pending.len());
                pending.extend(got.samples.into_iter().take(free));
                if !more {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Cache of the rules of directories.
struct Rules<'a> {
    weft: &'a Weft,
    known: BTreeMap<Vec<u8>, Vec<RuledDirectory>>,
}

impl Rules<'_> {
    /// Returns the layout by class that a rule gives a file with this path.
    fn of(&mut self, path: &[u8]) -> weft_client::Result<Option<ClassLayout>> {
        let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let directory = &path[..end];
        if !self.known.contains_key(directory) {
            let place = InodePath::from_root(directory.to_vec(), false);
            let found = block_on(self.weft.client.rules(&place))?;
            self.known.insert(directory.to_vec(), found);
        }
        let rule = RuledDirectory::rule_for(&self.known[directory], path);
        Ok(rule.and_then(|rule| rule.layout.by_class.clone()))
    }
}

fn look_up(weft: &Weft, file: FileId) -> weft_client::Result<Option<ScannedInode>> {
    let before = FileId(file.0.saturating_sub(1));
    let found = block_on(weft.client.scan_inodes(before, NEAR_MAX))?;
    Ok(found.into_iter().find(|inode| inode.file == file))
}

fn seen(sample: &Sample) -> SampledMessage {
    let start = Nanos(u64::try_from(sample.start.0).unwrap_or(0));
    SampledMessage {
        client: sample.client,
        object: sample.datafile.object,
        local: LocalExtent::new(sample.offset.0, sample.len.into()),
        write: sample.write,
        siblings: sample.siblings,
        call: sample.call,
        start,
        end: start.saturating_add(sample.took),
    }
}
