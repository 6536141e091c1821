//! `weft chmod` and `weft chown`.

use super::bytes;
use super::key::user_id;
use super::names;
use super::session::Weft;
use super::tree::umask;
use crate::failure::Failure;
use clap::Args;
use std::path::PathBuf;
use weft_client::LastKnown;
use weft_env::real::block_on;
use weft_wire::meta::{FileType, SetAttr};

/// Changes permissions.
#[derive(Args)]
#[command(after_long_help = "\
Symbolic links below a directory are left alone; a path that is one leads to its target.

Examples:
  weft chmod 755 /weft/bin
  weft chmod -R u+rwX,go-w results")]
pub struct Chmod {
    /// Change directories with all that they contain
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Octal, or as for chmod(1), such as u+rwX,go-w
    #[arg(allow_hyphen_values = true)]
    mode: String,
    /// Paths to change
    #[arg(required = true, value_parser = bytes::argument())]
    paths: Vec<String>,
}

impl Chmod {
    /// Runs the command.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let mask = umask();
        let changed = |mode, is_dir| changed_mode(&self.mode, mode, is_dir, mask);
        if changed(0, false).is_none() {
            return Err(Failure::misuse(&self.mode, "this is no mode")
                .remedy("write an octal number such as 755, or clauses such as u+rwX,go-w"));
        }
        let weft = Weft::open(file)?;
        each(&weft, &self.paths, self.recursive, true, |inside, known, is_named| {
            if known.attr.kind == FileType::Symlink && !is_named {
                return Ok(());
            }
            let mode = changed(known.attr.mode & 0o7777, known.attr.kind == FileType::Directory);
            let set = SetAttr { mode, ..SetAttr::default() };
            weft.at(inside, true, |place| block_on(weft.client.set_attr(place, set))).map(drop)
        })
    }
}

/// Changes owner and group.
#[derive(Args)]
#[command(disable_help_flag = true)]
#[command(after_long_help = "\
Only root and administrators change owners. Symbolic links below a directory are changed themselves.

Examples:
  weft chown ada /weft/ada
  weft chown -R ada:users /weft/ada
  weft chown :users shared")]
pub struct Chown {
    /// Change directories with all that they contain
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Change symbolic links instead of their targets
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// USER, USER:GROUP or :GROUP, by name or number
    owner: String,
    /// Paths to change
    #[arg(required = true, value_parser = bytes::argument())]
    paths: Vec<String>,
}

impl Chown {
    /// Runs the command.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let (user, group) = self.owner.split_once(':').unwrap_or((&self.owner, ""));
        if user.is_empty() && group.is_empty() {
            return Err(Failure::misuse(&self.owner, "it names neither a user nor a group")
                .remedy("write USER, USER:GROUP or :GROUP"));
        }
        let uid = (!user.is_empty()).then(|| user_id(user)).transpose()?;
        let gid = (!group.is_empty()).then(|| names::group_id(group)).transpose()?;
        let weft = Weft::open(file)?;
        let set = SetAttr { uid, gid, ..SetAttr::default() };
        each(&weft, &self.paths, self.recursive, !self.no_dereference, |inside, _, is_named| {
            let follow = is_named && !self.no_dereference;
            weft.at(inside, follow, |place| block_on(weft.client.set_attr(place, set))).map(drop)
        })
    }
}

/// Calls `change` for each path, and with `recursive` for everything below it, too. Its last parameter tells whether the user
/// named the path. Goes on after a failure, and returns the exit code.
fn each(
    weft: &Weft,
    paths: &[String],
    recursive: bool,
    follow: bool,
    mut change: impl FnMut(&str, &LastKnown, bool) -> Result<(), Failure>,
) -> Result<u8, Failure> {
    let mut failed = false;
    for path in paths {
        let inside = weft.inside(path)?.trim_end_matches('/');
        let known = weft.known(inside, follow);
        let failures = std::cell::RefCell::new(Vec::new());
        let done = known.and_then(|known| {
            if !recursive || known.attr.kind != FileType::Directory {
                return change(inside, &known, true);
            }
            let keep = |failure: Failure| failures.borrow_mut().push(failure);
            weft.walk_past(
                inside,
                false,
                &mut |path, known| {
                    change(path, known, path == inside).unwrap_or_else(keep);
                    Ok(())
                },
                &mut |_, _, failure| {
                    keep(failure);
                    Ok(())
                },
            )
        });
        for failure in failures.into_inner().into_iter().chain(done.err()) {
            errln!("{failure}");
            failed = true;
        }
    }
    Ok(u8::from(failed))
}

/// Returns the mode that chmod(1) makes of `mode`; `None` if `change` is no mode.
fn changed_mode(change: &str, mut mode: u32, is_dir: bool, umask: u32) -> Option<u32> {
    if change.starts_with(|first: char| first.is_ascii_digit()) {
        return u32::from_str_radix(change, 8).ok().filter(|mode| *mode <= 0o7777);
    }
    for clause in change.split(',') {
        let (who, mut rest) = clause.split_at(clause.find(['+', '-', '='])?);
        let bits_of = |who| match who {
            'u' => Some(0o4700),
            'g' => Some(0o2070),
            'o' => Some(0o1007),
            'a' => Some(0o7777),
            _ => None,
        };
        let named = who.chars().try_fold(0, |mask, who| Some(mask | bits_of(who)?))?;
        let mask = if who.is_empty() { 0o7777 & !umask } else { named };
        while let Some(operator) = rest.chars().next() {
            let end = rest[1..].find(['+', '-', '=']).map_or(rest.len(), |at| at + 1);
            let has_x = is_dir || mode & 0o111 != 0;
            let bit = |letter| match letter {
                'r' => Some(0o444),
                'w' => Some(0o222),
                'x' => Some(0o111),
                'X' => Some(if has_x { 0o111 } else { 0 }),
                's' => Some(0o6000),
                't' => Some(0o1000),
                _ => None,
            };
            let bits = rest[1..end].chars().try_fold(0, |bits, letter| Some(bits | bit(letter)?))? & mask;
            mode = match operator {
                '+' => mode | bits,
                '-' => mode & !bits,
                _ => mode & !mask | bits,
            };
            rest = &rest[end..];
        }
    }
    Some(mode)
}

#[cfg(test)]
mod tests {
    use super::changed_mode;

    #[test]
    fn modes_are_those_of_chmod() {
        let of = |change: &str, mode| changed_mode(change, mode, false, 0o022);
        for (change, before, after) in [
            ("755", 0, 0o755),
            ("4711", 0o7777, 0o4711),
            ("u+x", 0o644, 0o744),
            ("u+rwX,go-w", 0o466, 0o644),
            ("a+X", 0o744, 0o755),
            ("+w", 0o444, 0o644),
            ("go=", 0o777, 0o700),
            ("u=rw,g=r,o=", 0o777, 0o640),
            ("ug+s", 0o755, 0o6755),
            ("o+t", 0o777, 0o1777),
            ("u+x-w", 0o644, 0o544),
        ] {
            assert_eq!(of(change, before), Some(after), "{change}");
        }
        assert_eq!(changed_mode("a+X", 0o600, true, 0), Some(0o711));
        for wrong in ["", "888", "77777", "rw", "z+x", "u+z", "+x,", "u"] {
            assert_eq!(of(wrong, 0o644), None, "{wrong}");
        }
    }
}
