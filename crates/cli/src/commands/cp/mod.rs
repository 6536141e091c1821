//! `weft cp`: between the local file system and Weft, or within Weft.

use super::bytes;
use super::session::{Weft, base_name, join, why};
use crate::failure::Failure;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::fs::{File, OpenOptions};
use std::io::{IoSlice, IoSliceMut, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};
use weft_client::OpenFile;
use weft_core::{FileOffset, Timestamp};
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{FileType, LayoutSpec, OpenFlags, Place, ROOT, SetAttr, SetTime};

/// Bytes moved at a time.
const CHUNK: usize = 8 << 20;
/// Threads that move one large file.
const THREADS: u64 = 4;
/// A copy that takes longer gets a progress bar.
const PROGRESS_AFTER: Duration = Duration::from_millis(500);

const AFTER: &str = "\
Paths with the /weft prefix are on Weft, all others local; at least one must be on Weft. Permission bits are copied,
-p copies times and owners too. Symbolic links are copied as links with -r and followed without.

Examples:
  weft cp data.bin /weft/
  weft cp -r results /weft/archive
  weft cp -r /weft/archive/run7 .
  weft cp /weft/a /weft/b";

/// Copies files between the local file system and Weft, or within Weft.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Cp {
    /// Directories with all that they hold
    #[arg(short = 'r', short_alias = 'R', long)]
    recursive: bool,
    /// Times and owners too
    #[arg(short = 'p', long)]
    preserve: bool,
    /// Never replace what is there
    #[arg(short = 'n', long)]
    no_clobber: bool,
    /// No progress bar
    #[arg(short = 'q', long)]
    quiet: bool,
    /// What to copy, and last where to
    #[arg(required = true, num_args = 2.., value_parser = bytes::argument())]
    paths: Vec<String>,
}

/// A path on one side or the other.
#[derive(Clone)]
enum Side {
    Weft(String),
    Local(PathBuf),
}

/// What is there.
struct Found {
    kind: FileType,
    size: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    mtime: Timestamp,
    atime: Timestamp,
}

/// One side of a copy, open.
enum Open {
    Weft(OpenFile<RealEnv>),
    Local(File),
}

impl Cp {
    /// Copies them.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let weft = Weft::open(file)?;
        let side = |path: &String| match weft.strip(path) {
            Some(inside) => Side::Weft(inside.trim_end_matches('/').to_owned()),
            None => Side::Local(bytes::local(path)),
        };
        let sides: Vec<_> = self.paths.iter().map(side).collect();
        if !sides.iter().any(|side| matches!(side, Side::Weft(_))) {
            return Err(Failure::misuse(
                "cp",
                format!("none of the paths is under {}", weft.cluster.mount.display()),
            )
            .remedy("write the prefix before paths on Weft, or use the system's cp"));
        }
        let Some((to, from)) = sides.split_last() else { unreachable!("at least two") };
        let copy = Copy { weft: &weft, options: &self, bar: bar(self.quiet), failed: AtomicBool::new(false) };
        let into = copy.look(to)?.is_some_and(|found| found.kind == FileType::Directory);
        if from.len() > 1 && !into {
            return Err(Failure::misuse(
                copy.shown(to),
                "several files go into a directory, and this is none",
            ));
        }
        for from in from {
            let to = if into { below(to, &name(from)) } else { to.clone() };
            copy.tell(copy.any(from, &to, !self.recursive));
        }
        copy.bar.finish_and_clear();
        Ok(u8::from(copy.failed.load(Ordering::Relaxed)))
    }
}

/// Hidden until a copy has taken a while, and where nobody looks.
fn bar(quiet: bool) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{wide_msg} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}");
    let bar = ProgressBar::new(0);
    bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let late = bar.clone();
    std::thread::spawn(move || {
        std::thread::sleep(PROGRESS_AFTER);
        if !late.is_finished() {
            late.set_draw_target(indicatif::ProgressDrawTarget::stderr());
        }
    });
    bar
}

fn below(side: &Side, name: &str) -> Side {
    match side {
        Side::Weft(path) => Side::Weft(join(path, name)),
        Side::Local(path) => Side::Local(path.join(bytes::local(name))),
    }
}

/// The last name, also of `.` and `dir/..`.
fn name(side: &Side) -> String {
    match side {
        Side::Weft(path) => base_name(path).to_owned(),
        Side::Local(path) => {
            let real = path.file_name().map(ToOwned::to_owned);
            let real = real.or_else(|| path.canonicalize().ok()?.file_name().map(ToOwned::to_owned));
            bytes::text(real.unwrap_or_default().as_bytes())
        }
    }
}

fn place(inside: &str, follow: bool) -> Place {
    Place { base: ROOT, path: bytes::bytes(inside), follow }
}

struct Copy<'a> {
    weft: &'a Weft,
    options: &'a Cp,
    bar: ProgressBar,
    failed: AtomicBool,
}

impl Copy<'_> {
    fn shown(&self, side: &Side) -> String {
        match side {
            Side::Weft(path) => self.weft.shown(path),
            Side::Local(path) => path.display().to_string(),
        }
    }

    /// Prints what went wrong and goes on with the next file.
    fn tell(&self, result: Result<(), Failure>) {
        if let Err(failure) = result {
            self.failed.store(true, Ordering::Relaxed);
            self.bar.suspend(|| eprintln!("{failure}"));
        }
    }

    fn local(&self, path: &Path, error: &std::io::Error) -> Failure {
        let why = error.raw_os_error().map_or_else(|| error.to_string(), super::posix);
        Failure::new(path.display(), why)
    }

    fn any(&self, from: &Side, to: &Side, follow: bool) -> Result<(), Failure> {
        let found = self.find(from, follow)?;
        match found.kind {
            FileType::Directory if self.options.recursive => self.directory(from, to, &found),
            FileType::Directory => Err(Failure::new(self.shown(from), "this is a directory")
                .remedy("-r copies it with all that it holds")),
            FileType::Regular => self.file(from, to, &found),
            FileType::Symlink => self.link(from, to),
            _ => Err(Failure::new(self.shown(from), "devices, pipes and sockets are not copied")),
        }
    }

    fn find(&self, side: &Side, follow: bool) -> Result<Found, Failure> {
        match self.look_at(side, follow)? {
            Some(found) => Ok(found),
            None => Err(Failure::new(self.shown(side), super::posix(libc::ENOENT))),
        }
    }

    fn look(&self, side: &Side) -> Result<Option<Found>, Failure> {
        self.look_at(side, true)
    }

    fn look_at(&self, side: &Side, follow: bool) -> Result<Option<Found>, Failure> {
        match side {
            Side::Weft(path) => Ok(self.weft.look(path, follow)?.map(|attr| Found {
                kind: attr.kind,
                size: attr.size.0,
                mode: attr.mode,
                uid: attr.uid,
                gid: attr.gid,
                mtime: attr.mtime,
                atime: attr.atime,
            })),
            Side::Local(path) => {
                let meta = if follow { std::fs::metadata(path) } else { std::fs::symlink_metadata(path) };
                let meta = match meta {
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                    meta => meta.map_err(|error| self.local(path, &error))?,
                };
                let kind = match meta.file_type() {
                    kind if kind.is_dir() => FileType::Directory,
                    kind if kind.is_symlink() => FileType::Symlink,
                    kind if kind.is_file() => FileType::Regular,
                    _ => FileType::Fifo,
                };
                let time = |seconds, nanos: i64| Timestamp::from_parts(seconds, nanos as u32);
                Ok(Some(Found {
                    kind,
                    size: meta.len(),
                    mode: meta.mode() & 0o7777,
                    uid: meta.uid(),
                    gid: meta.gid(),
                    mtime: time(meta.mtime(), meta.mtime_nsec()),
                    atime: time(meta.atime(), meta.atime_nsec()),
                }))
            }
        }
    }

    fn directory(&self, from: &Side, to: &Side, found: &Found) -> Result<(), Failure> {
        match to {
            Side::Weft(path) => {
                match block_on(self.weft.client.mkdir(&place(path, false), found.mode | 0o700)) {
                    Err(error) if error.errno() != libc::EEXIST => {
                        return Err(Failure::new(self.shown(to), why(&error)));
                    }
                    _ => {}
                }
            }
            Side::Local(path) => match std::fs::create_dir(path) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(self.local(path, &error));
                }
                _ => {}
            },
        }
        let mut names = Vec::new();
        match from {
            Side::Weft(path) => self.weft.list(path, false, |entry| {
                names.push(bytes::text(&entry.name));
                Ok(())
            })?,
            Side::Local(path) => {
                for entry in std::fs::read_dir(path).map_err(|error| self.local(path, &error))? {
                    let entry = entry.map_err(|error| self.local(path, &error))?;
                    names.push(bytes::text(entry.file_name().as_bytes()));
                }
            }
        }
        for name in names {
            self.tell(self.any(&below(from, &name), &below(to, &name), false));
        }
        self.attributes(to, found)
    }

    fn link(&self, from: &Side, to: &Side) -> Result<(), Failure> {
        let target = match from {
            Side::Weft(path) => block_on(self.weft.client.readlink(&place(path, false)))
                .map_err(|error| Failure::new(self.shown(from), why(&error)))?,
            Side::Local(path) => {
                use std::os::unix::ffi::OsStringExt;
                std::fs::read_link(path)
                    .map_err(|error| self.local(path, &error))?
                    .into_os_string()
                    .into_vec()
            }
        };
        match to {
            Side::Weft(path) => block_on(self.weft.client.symlink(&place(path, false), &target))
                .map(drop)
                .map_err(|error| Failure::new(self.shown(to), why(&error))),
            Side::Local(path) => {
                use std::os::unix::ffi::OsStringExt;
                let target = std::ffi::OsString::from_vec(target);
                std::os::unix::fs::symlink(target, path).map_err(|error| self.local(path, &error))
            }
        }
    }

    fn file(&self, from: &Side, to: &Side, found: &Found) -> Result<(), Failure> {
        if self.same(from, to) {
            return Err(Failure::new(self.shown(from), "source and target are the same file"));
        }
        if self.options.no_clobber && self.look(to)?.is_some() {
            return Ok(());
        }
        self.bar.set_message(self.shown(to));
        self.bar.inc_length(found.size);
        let source = self.open(from, None)?;
        let target = self.open(to, Some(found.mode))?;
        self.bytes(from, to, &source, &target, found.size)?;
        drop((source, target));
        if self.options.preserve { self.attributes(to, found) } else { Ok(()) }
    }

    fn same(&self, from: &Side, to: &Side) -> bool {
        match (from, to) {
            (Side::Weft(from), Side::Weft(to)) => from == to,
            (Side::Local(from), Side::Local(to)) => {
                from.canonicalize().ok().is_some_and(|f| to.canonicalize().ok() == Some(f))
            }
            _ => false,
        }
    }

    /// For reading, or with a mode for writing from nothing.
    fn open(&self, side: &Side, mode: Option<u32>) -> Result<Open, Failure> {
        match side {
            Side::Weft(path) => {
                let write = mode.is_some();
                let flags =
                    OpenFlags { read: !write, write, create: write, truncate: write, ..OpenFlags::default() };
                let (spec, mode) = (LayoutSpec::default(), mode.unwrap_or(0) & !super::tree::umask());
                let open = self
                    .weft
                    .at(path, true, |place| block_on(self.weft.client.open(place, flags, mode, &spec)))?;
                Ok(Open::Weft(open))
            }
            Side::Local(path) => {
                let mut options = OpenOptions::new();
                match mode {
                    Some(mode) => options.write(true).create(true).truncate(true).mode(mode),
                    None => options.read(true),
                };
                options.open(path).map(Open::Local).map_err(|error| self.local(path, &error))
            }
        }
    }

    /// Moves all bytes, large files by several threads that take the next piece each.
    fn bytes(&self, from: &Side, to: &Side, source: &Open, target: &Open, size: u64) -> Result<(), Failure> {
        let next = AtomicU64::new(0);
        let work = || -> Result<(), Failure> {
            let mut buffer = vec![0; CHUNK.min(size.max(1) as usize)];
            loop {
                let at = next.fetch_add(CHUNK as u64, Ordering::Relaxed);
                if at > size {
                    return Ok(());
                }
                // One piece past the size is asked for, so that a file that grew meanwhile is copied on.
                let mut at = at;
                let end = if at + CHUNK as u64 > size { u64::MAX } else { at + CHUNK as u64 };
                while at < end {
                    let wanted = buffer.len().min((end - at) as usize);
                    let got = source
                        .read(&mut buffer[..wanted], at)
                        .map_err(|why| Failure::new(self.shown(from), why))?;
                    if got == 0 {
                        break;
                    }
                    target.write(&buffer[..got], at).map_err(|why| Failure::new(self.shown(to), why))?;
                    self.bar.inc(got as u64);
                    at += got as u64;
                }
            }
        };
        let threads = THREADS.min(size / (4 * CHUNK as u64));
        if threads < 2 {
            return work();
        }
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| {
                worker
                    .join()
                    .unwrap_or_else(|_| Err(Failure::new(self.shown(from), "copying failed: see above")))
            })
        })
    }

    /// Mode always, times and owners when asked to.
    fn attributes(&self, side: &Side, found: &Found) -> Result<(), Failure> {
        // SAFETY: geteuid has no preconditions and cannot fail.
        let root = unsafe { libc::geteuid() } == 0;
        let keep = self.options.preserve;
        match side {
            Side::Weft(path) => {
                let set = SetAttr {
                    mode: Some(found.mode),
                    uid: (keep && root).then_some(found.uid),
                    gid: (keep && root).then_some(found.gid),
                    atime: keep.then_some(SetTime::At(found.atime)),
                    mtime: keep.then_some(SetTime::At(found.mtime)),
                };
                block_on(self.weft.client.set_attr(&place(path, true), set))
                    .map(drop)
                    .map_err(|error| Failure::new(self.shown(side), why(&error)))
            }
            Side::Local(path) => {
                let io = |error: std::io::Error| self.local(path, &error);
                if keep && root {
                    std::os::unix::fs::chown(path, Some(found.uid), Some(found.gid)).map_err(io)?;
                }
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(found.mode)).map_err(io)?;
                if keep {
                    let time = |at: Timestamp| {
                        let (seconds, nanos) = at.parts();
                        UNIX_EPOCH + Duration::new(seconds.max(0) as u64, nanos)
                    };
                    let times = std::fs::FileTimes::new()
                        .set_accessed(time(found.atime))
                        .set_modified(time(found.mtime));
                    File::open(path).and_then(|file| file.set_times(times)).map_err(io)?;
                }
                Ok(())
            }
        }
    }
}

impl Open {
    fn read(&self, buffer: &mut [u8], at: u64) -> Result<usize, String> {
        match self {
            Self::Weft(open) => block_on(open.read_at(&mut [IoSliceMut::new(buffer)], FileOffset(at)))
                .map_err(|error| why(&error)),
            Self::Local(file) => file.read_at(buffer, at).map_err(|error| error.to_string()),
        }
    }

    fn write(&self, bytes: &[u8], at: u64) -> Result<(), String> {
        match self {
            Self::Weft(open) => {
                let wrote = block_on(open.write_at(&[IoSlice::new(bytes)], FileOffset(at)))
                    .map_err(|error| why(&error))?;
                if wrote < bytes.len() { Err(super::posix(libc::ENOSPC)) } else { Ok(()) }
            }
            Self::Local(file) => file.write_all_at(bytes, at).map_err(|error| error.to_string()),
        }
    }
}
