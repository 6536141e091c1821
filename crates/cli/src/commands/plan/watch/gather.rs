//! Samples of all data servers, by file.

use crate::commands::bytes;
use crate::commands::session::{Weft, of_server, why};
use crate::failure::Failure;
use std::collections::BTreeMap;
use weft_client::Error;
use weft_core::{ClassLayout, FileId, LocalExtent, Nanos, ServerId};
use weft_env::real::block_on;
use weft_planner::watch::{FileSeen, Seen};
use weft_wire::data::{SAMPLES_MAX, Sample};
use weft_wire::meta::{Attr, Place, ROOT, RuledDirectory, ScannedInode};

/// Most samples of an interval that are used.
const MESSAGES_MAX: usize = 1 << 20;
/// Most rows of a scan in which a file is looked for: others may lie before it that have to do with the one before.
const NEAR_MAX: u32 = 16;
/// Most files of an interval that are looked up, those with the most samples.
const FILES_MAX: usize = 4096;

/// A data server, and where its samples were read to.
struct Source {
    server: ServerId,
    name: String,
    run: u64,
    next: u64,
    one_in: u32,
    /// Whether its absence was told.
    missing: bool,
    /// Samples that had given way to newer ones before they were read.
    lost: u64,
}

/// Reads the samples of all data servers from interval to interval.
pub struct Gathering<'a> {
    weft: &'a Weft,
    /// The directory's path from the root, with a slash behind unless it is the root.
    pub below: String,
    sources: Vec<Source>,
    /// Read and not looked at yet.
    pending: Vec<Sample>,
    /// What should be known of servers, and was not told yet.
    notes: Vec<String>,
}

/// Of one interval.
pub struct Gathered {
    /// The files below the directory, with what was seen of them.
    pub files: Vec<FileSeen>,
    /// What should be known.
    pub notes: Vec<String>,
}

impl<'a> Gathering<'a> {
    /// Of the files below `inside`, whose attributes are `attr`.
    pub fn new(weft: &'a Weft, inside: &str, attr: &Attr) -> Result<Self, Failure> {
        // By the names that lead there without links, as those of files are told.
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

    /// Which directory is there now, if one is; nothing if nobody tells.
    pub fn directory(&self) -> Option<Option<FileId>> {
        let path = bytes::bytes(self.below.trim_end_matches('/'));
        let place = Place::from_root(path, false);
        match block_on(self.weft.client.stat(&place)) {
            Ok(attr) => Some(Some(attr.file)),
            Err(error) => (error.errno() == libc::ENOENT).then_some(None),
        }
    }

    /// Passes over what servers have.
    pub fn skip(&mut self) -> Result<(), Failure> {
        self.messages()?;
        self.pending.clear();
        self.sources.iter_mut().for_each(|source| source.lost = 0);
        Ok(())
    }

    /// That there will be something to see.
    pub fn check_sampling(&mut self) -> Result<(), Failure> {
        if self.sources.iter().all(|source| source.run == 0 && !source.missing) {
            self.messages()?;
        }
        if self.sources.iter().all(|source| source.missing) {
            return Err(Failure::new("--watch", "no data server answers"));
        }
        if self.sources.iter().all(|source| source.one_in == 0) {
            return Err(Failure::misuse("--watch", "no data server keeps samples of requests").remedy(
                "write sample = \"1/64\" in each [[server]] of the cluster file and start them again",
            ));
        }
        Ok(())
    }

    /// What came since the last time.
    pub fn gather(&mut self) -> Result<Gathered, Failure> {
        self.messages()?;
        let mut notes = std::mem::take(&mut self.notes);
        for source in &mut self.sources {
            let lost = std::mem::take(&mut source.lost);
            if lost > 0 {
                notes.push(format!("{lost} samples of {} had given way to newer ones", source.name));
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
            // What was removed meanwhile is of no interest any more.
            let inode = match look_up(self.weft, file) {
                Ok(Some(inode)) => inode,
                Ok(None) => continue,
                Err(error @ Error::Unreachable(_)) => {
                    notes.push(format!("nothing of this interval counts: {}", why(&error)));
                    return Ok(Gathered { files: Vec::new(), notes });
                }
                Err(error) => return Err(Failure::new("metadata service", why(&error))),
            };
            let path = bytes::text(&inode.path);
            let (Some(layout), false) = (inode.layout, path.is_empty() || inode.doomed) else { continue };
            if !path.starts_with(&self.below) {
                continue;
            }
            let size = match inode.settled {
                true => inode.size.0,
                false => {
                    let place = Place::from_root(inode.path.clone(), false);
                    match block_on(self.weft.client.stat(&place)) {
                        Ok(attr) if attr.file == file.inode() => attr.size.0,
                        _ => continue,
                    }
                }
            };
            let ruled = match rules.of(&inode.path) {
                Ok(ruled) => ruled,
                // It was moved a moment ago, or nobody answers: the layout that it has is known.
                Err(Error::Unreachable(_)) => None,
                Err(error) if error.errno() == libc::ENOENT => None,
                Err(error) => return Err(Failure::new(self.weft.shown(&path), why(&error))),
            };
            let seen = samples.iter().map(seen).collect();
            files.push(FileSeen { file, path: self.weft.shown(&path), layout, ruled, size, seen });
        }
        Ok(Gathered { files, notes })
    }

    /// Takes the samples of all servers that answer, and what should be known of them.
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
                let room = MESSAGES_MAX.saturating_sub(pending.len());
                pending.extend(got.samples.into_iter().take(room));
                if !more {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// The rules of directories, each asked for once.
struct Rules<'a> {
    weft: &'a Weft,
    known: BTreeMap<Vec<u8>, Vec<RuledDirectory>>,
}

impl Rules<'_> {
    /// The layout by class that a rule gives a file of this path, if one does.
    fn of(&mut self, path: &[u8]) -> weft_client::Result<Option<ClassLayout>> {
        let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let directory = &path[..end];
        if !self.known.contains_key(directory) {
            let place = Place::from_root(directory.to_vec(), false);
            let found = block_on(self.weft.client.rules(&place))?;
            self.known.insert(directory.to_vec(), found);
        }
        let fits = self.known[directory].iter().find_map(|ruled| {
            let below = path.strip_prefix(ruled.path.as_slice())?;
            let below = below.strip_prefix(b"/").unwrap_or(below);
            ruled.rules.iter().find(|rule| rule.pattern.matches(below))
        });
        Ok(fits.and_then(|rule| rule.layout.by_class.clone()))
    }
}

fn look_up(weft: &Weft, file: FileId) -> weft_client::Result<Option<ScannedInode>> {
    let before = FileId(file.0.saturating_sub(1));
    let found = block_on(weft.client.scan_inodes(before, NEAR_MAX))?;
    Ok(found.into_iter().find(|inode| inode.file == file))
}

fn seen(sample: &Sample) -> Seen {
    let start = Nanos(u64::try_from(sample.start.0).unwrap_or(0));
    Seen {
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
