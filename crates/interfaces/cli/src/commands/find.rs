//! `weft find`.

use super::bytes;
use super::file_json;
use super::key::user_id;
use super::names::{self, Names};
use super::session::{InexactSizes, Weft};
use crate::failure::Failure;
use clap::{Args, ValueEnum};
use serde_json::Value;
use std::cell::Cell;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};
use weft_client::LastKnown;
use weft_core::{COMPRESSION_ATTRIBUTE, Layout, Pattern};
use weft_env::real::block_on;
use weft_wire::meta::FileType;

const AFTER: &str = "\
Prints the paths of everything that meets all conditions, at and below each PATH. A number N may have a sign: +N is more
than N, -N is less than N. Sizes have the units K, M, G and T, and ages the units s, min and h, or d for days. Conditions on
layouts hold for striped files, even empty ones, and not for files whose bytes are in the metadata. They cost two requests
for each file.

Exit codes:
  0  everything was examined
  1  something could not be examined; standard error says what and why
  2  wrong arguments, cluster file or key

Examples:
  weft find /weft --name '*.h5' --size +1G
  weft find /weft/scratch --type f --mtime +30d --user ada
  weft find /weft --target 3                  files on target 3
  weft find /weft --stripe-count 1 --size +10G -0 | xargs -0 weft migrate -c 4";

/// Finds files by name, size, age, owner and layout.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Find {
    /// The last name matches this pattern, with *, ? and [...]
    #[arg(long, value_name = "PATTERN")]
    name: Option<Pattern>,
    /// Its type
    #[arg(long, value_enum, value_name = "TYPE")]
    r#type: Option<Kind>,
    /// Its length
    #[arg(long, value_name = "[+-]SIZE", value_parser = size, allow_hyphen_values = true)]
    size: Option<Bound>,
    /// Time since its last change of bytes
    #[arg(long, value_name = "[+-]AGE", value_parser = age, allow_hyphen_values = true)]
    mtime: Option<Bound>,
    /// Its owner, by name or number
    #[arg(long)]
    user: Option<String>,
    /// Its group, by name or number
    #[arg(long)]
    group: Option<String>,
    /// It is striped over this target; repeatable, for any of them
    #[arg(long, value_name = "NUMBER")]
    target: Vec<u32>,
    /// It is striped over a target of this class
    #[arg(long)]
    class: Option<String>,
    /// The number of targets of its first component
    #[arg(long, short = 'c', value_name = "[+-]COUNT", value_parser = count, allow_hyphen_values = true)]
    stripe_count: Option<Bound>,
    /// It is compressed
    #[arg(long)]
    compressed: bool,
    /// At most this many levels below each PATH
    #[arg(long, value_name = "LEVELS")]
    max_depth: Option<usize>,
    /// End each path with a zero byte instead of a line feed, for xargs -0
    #[arg(short = '0', long = "print0", conflicts_with = "json")]
    zero: bool,
    /// Print JSON: an array of files with all attributes
    #[arg(long)]
    json: bool,
    /// Where to look [default: the root]
    #[arg(value_parser = bytes::argument())]
    paths: Vec<String>,
}

/// Type of a file, as find(1) names it.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Regular file
    F,
    /// Directory
    D,
    /// Symbolic link
    L,
    /// Fifo
    P,
    /// Socket
    S,
    /// Block device
    B,
    /// Character device
    C,
}

impl Kind {
    fn of(kind: FileType) -> Self {
        match kind {
            FileType::Regular => Self::F,
            FileType::Directory => Self::D,
            FileType::Symlink => Self::L,
            FileType::Fifo => Self::P,
            FileType::Socket => Self::S,
            FileType::BlockDevice => Self::B,
            FileType::CharDevice => Self::C,
        }
    }
}

/// Condition on a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bound {
    More(u64),
    Less(u64),
    Exactly(u64),
}

impl Bound {
    /// Parses a number with a sign. `read` parses the number.
    fn parse(text: &str, read: impl Fn(&str) -> Result<u64, String>) -> Result<Self, String> {
        Ok(match text.split_at_checked(1) {
            Some(("+", rest)) => Self::More(read(rest)?),
            Some(("-", rest)) => Self::Less(read(rest)?),
            _ => Self::Exactly(read(text)?),
        })
    }

    fn holds(self, number: u64) -> bool {
        match self {
            Self::More(bound) => number > bound,
            Self::Less(bound) => number < bound,
            Self::Exactly(bound) => number == bound,
        }
    }
}

fn size(text: &str) -> Result<Bound, String> {
    Bound::parse(text, |text| super::size(text).map(|size| size.0))
}

fn count(text: &str) -> Result<Bound, String> {
    Bound::parse(text, |text| text.parse().map_err(|_| "write a number, such as 4, +4 or -4".to_owned()))
}

/// Parses an age, in seconds.
fn age(text: &str) -> Result<Bound, String> {
    const DAY_S: u64 = 86_400;
    Bound::parse(text, |text| match text.strip_suffix('d') {
        Some(days) => {
            let days = days.trim().parse::<u64>().ok().and_then(|days| days.checked_mul(DAY_S));
            days.ok_or_else(|| "write a number of days, such as +30d".to_owned())
        }
        None => super::duration(text).map(|age| age.0 / 1_000_000_000),
    })
}

/// The conditions, with names resolved.
struct Conditions<'a> {
    find: &'a Find,
    uid: Option<u32>,
    gid: Option<u32>,
    now_s: i128,
}

impl Find {
    /// Runs the command.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let weft = Weft::open(file)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let conditions = Conditions {
            find: &self,
            uid: self.user.as_deref().map(user_id).transpose()?,
            gid: self.group.as_deref().map(names::group_id).transpose()?,
            now_s: i128::from(now.as_secs()),
        };
        let root = [String::new()];
        let paths = if self.paths.is_empty() { &root[..] } else { &self.paths[..] };
        let (mut inexact, mut names) = (InexactSizes::default(), Names::default());
        let mut documents = Vec::new();
        let failed = Cell::new(false);
        let report = |failure: Failure| {
            errln!("{failure}");
            failed.set(true);
        };
        for path in paths {
            let inside = weft.inside(path)?.trim_end_matches('/');
            let mut examine = |path: &str, known: &LastKnown| -> Result<(), Failure> {
                if !self.is_within(inside, path) || !conditions.hold(&weft, path, known)? {
                    return Ok(());
                }
                let shown = weft.shown(path);
                if self.size.is_some() || self.json {
                    inexact.note(&shown, known);
                }
                match self.json {
                    true => documents.push(file_json::attributes(&shown, known, &mut names)),
                    false => self.print(&shown),
                }
                Ok(())
            };
            let mut each = |path: &str, known: &LastKnown| {
                examine(path, known).unwrap_or_else(report);
                Ok(())
            };
            let mut past = |_: &str, _, failure| {
                report(failure);
                Ok(())
            };
            weft.walk_past(inside, false, &mut each, &mut past).unwrap_or_else(report);
        }
        if self.json {
            outln!("{:#}", Value::from(documents));
        }
        Ok(u8::from(inexact.print() || failed.get()))
    }

    /// Whether `path` is not too far below `top`.
    fn is_within(&self, top: &str, path: &str) -> bool {
        let below = path[top.len()..].trim_start_matches('/');
        let depth = if below.is_empty() { 0 } else { below.split('/').count() };
        self.max_depth.is_none_or(|most| depth <= most)
    }

    /// Prints a path as the bytes that it is.
    fn print(&self, shown: &str) {
        let mut line = bytes::bytes(shown);
        line.push(if self.zero { 0 } else { b'\n' });
        crate::output::bytes(&line);
    }

    fn depends_on_layout(&self) -> bool {
        !self.target.is_empty() || self.class.is_some() || self.stripe_count.is_some()
    }
}

impl Conditions<'_> {
    fn hold(&self, weft: &Weft, path: &str, known: &LastKnown) -> Result<bool, Failure> {
        let (find, attr) = (self.find, &known.attr);
        let name = path.rsplit('/').next().unwrap_or_default();
        let age_s = u64::try_from(self.now_s - i128::from(attr.mtime.parts().0)).unwrap_or(0);
        let by_attributes = find.name.as_ref().is_none_or(|pattern| pattern.matches(&bytes::bytes(name)))
            && find.r#type.is_none_or(|kind| kind == Kind::of(attr.kind))
            && find.size.is_none_or(|bound| bound.holds(attr.size.0))
            && find.mtime.is_none_or(|bound| bound.holds(age_s))
            && self.uid.is_none_or(|uid| uid == attr.uid)
            && self.gid.is_none_or(|gid| gid == attr.gid);
        if !by_attributes {
            return Ok(false);
        }
        if !find.depends_on_layout() && !find.compressed {
            return Ok(true);
        }
        if attr.kind != FileType::Regular {
            return Ok(false);
        }
        if find.compressed {
            let setting = super::stripe::setting(weft, path, COMPRESSION_ATTRIBUTE)?;
            if setting.is_none_or(|setting| setting == "off") {
                return Ok(false);
            }
        }
        if !find.depends_on_layout() {
            return Ok(true);
        }
        if super::stripe::setting(weft, path, super::stripe::INLINE)?.is_some() {
            return Ok(false);
        }
        let (layout, _) = weft.at(path, true, |place| block_on(weft.client.get_layout(place)))?;
        Ok(layout.is_some_and(|layout| self.layout_holds(weft, &layout)))
    }

    fn layout_holds(&self, weft: &Weft, layout: &Layout) -> bool {
        let find = self.find;
        let map = weft.client.map();
        let is_of =
            |target, class: &str| map.targets.iter().any(|entry| entry.id == target && entry.class == class);
        let by_target =
            find.target.is_empty() || layout.objects().any(|(_, target)| find.target.contains(&target.0));
        let by_class =
            find.class.as_ref().is_none_or(|class| layout.objects().any(|(_, target)| is_of(target, class)));
        let first = layout.components()[0].strips.len() as u64;
        by_target && by_class && find.stripe_count.is_none_or(|bound| bound.holds(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_signs_and_units() {
        assert_eq!(size("+1G"), Ok(Bound::More(1 << 30)));
        assert_eq!(size("-4K"), Ok(Bound::Less(4096)));
        assert_eq!(size("0"), Ok(Bound::Exactly(0)));
        assert_eq!(age("+30d"), Ok(Bound::More(30 * 86_400)));
        assert_eq!(age("-10min"), Ok(Bound::Less(600)));
        assert_eq!(count("+3"), Ok(Bound::More(3)));
        for bad in ["", "+", "-", "x", "1X", "+-1"] {
            assert!(size(bad).is_err() && age(bad).is_err() && count(bad).is_err(), "{bad}");
        }
        assert!(Bound::More(4).holds(5) && !Bound::More(4).holds(4) && Bound::Less(4).holds(3));
        assert!(Bound::Exactly(4).holds(4) && !Bound::Less(4).holds(4));
    }
}
