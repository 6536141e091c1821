//! Names of files that differ only in numbers, and the rule that they have in common.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use weft_core::escape::{escape, pieces};
use weft_core::{Pattern, unescaped};

/// Which files a layout is for: a path, as text ([`weft_core::escape`]), in which `*` stands for a number. A star of a name
/// is `\x2a`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PathRule(pub String);

impl PathRule {
    /// The rule of one path.
    pub fn of(path: &str) -> Self {
        Self(starless(path))
    }

    /// Whether a path is one of those.
    pub fn matches(&self, path: &str) -> bool {
        let path = by_words(path);
        self.pattern().is_some_and(|pattern| pattern.matches(&unescaped(path.trim_start_matches('/'))))
    }

    /// The same with every number left open behind `prefix`, if it begins with that.
    pub(crate) fn open_behind(&self, prefix: &str) -> Self {
        let rest = self.0.strip_prefix(prefix);
        let (mut out, rest) = rest.map_or((String::new(), &*self.0), |rest| (prefix.to_owned(), rest));
        let mut parts = cut(rest);
        parts.iter_mut().skip(1).step_by(2).for_each(|number| *number = "*".to_owned());
        out.extend(parts);
        Self(out)
    }

    /// The same as a pattern; `None` for what is no path.
    pub fn pattern(&self) -> Option<Pattern> {
        Pattern::of_numbers(&by_words(&self.0)).ok()
    }
}

/// A path without empty names, `.` and `..`: logs have names as programs wrote them, rules have none of these.
fn by_words(path: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    let root = if path.starts_with('/') { "/" } else { "" };
    root.to_owned() + &names.join("/")
}

impl fmt::Display for PathRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A path as a rule has it.
fn starless(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for character in path.chars() {
        match character {
            '*' => escape(&mut out, b'*'),
            other => out.push(other),
        }
    }
    out
}

/// Deals names to units.
#[derive(Debug)]
pub(crate) struct Naming {
    /// Units by their names cut at their numbers, and these empty.
    units: BTreeMap<Vec<String>, usize>,
    names: Vec<Alike>,
    max: usize,
}

#[derive(Debug)]
struct Alike {
    /// The first name, cut at its numbers: text, number, text, …
    parts: Vec<String>,
    /// Which numbers differ.
    differs: Vec<bool>,
}

impl Naming {
    pub fn new(max: usize) -> Self {
        Self { units: BTreeMap::new(), names: Vec::new(), max }
    }

    /// The unit of a name, a new one perhaps.
    pub fn unit(&mut self, name: &str) -> usize {
        let parts = cut(&starless(&by_words(name)));
        let mut key = parts.clone();
        key.iter_mut().skip(1).step_by(2).for_each(String::clear);
        if let Some(&unit) = self.units.get(&key) {
            let alike = &mut self.names[unit];
            for (at, differs) in alike.differs.iter_mut().enumerate() {
                *differs |= alike.parts[at] != parts[at];
            }
            return unit;
        }
        if self.names.len() + 1 >= self.max {
            // What does not fit is one unit of its own, by no name.
            let unit = self.names.len().min(self.max - 1);
            if unit == self.names.len() {
                self.names.push(Alike { parts: vec![OTHERS.to_owned()], differs: vec![false] });
            }
            return unit;
        }
        self.units.insert(key, self.names.len());
        self.names.push(Alike { differs: vec![false; parts.len()], parts });
        self.names.len() - 1
    }

    /// The rule of each unit.
    pub fn rules(&self) -> Vec<PathRule> {
        let rule = |alike: &Alike| {
            let parts = alike.parts.iter().zip(&alike.differs);
            PathRule(parts.map(|(part, differs)| if *differs { "*" } else { part.as_str() }).collect())
        };
        self.names.iter().map(rule).collect()
    }
}

/// The rule of what has no rule of its own. It matches no path.
pub(crate) const OTHERS: &str = "(other files)";

/// A name cut at its numbers: text, number, text, …; digits of an escape are none.
fn cut(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for (piece, byte) in pieces(name) {
        let digit = byte.is_none() && piece.as_bytes()[0].is_ascii_digit();
        // Even places hold text, odd ones numbers.
        if digit == parts.len().is_multiple_of(2) {
            parts.last_mut().expect("never empty").push_str(piece);
        } else {
            parts.push(piece.to_owned());
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(names: &[&str], max: usize) -> Vec<String> {
        let mut naming = Naming::new(max);
        for name in names {
            naming.unit(name);
        }
        naming.rules().into_iter().map(|rule| rule.0).collect()
    }

    #[test]
    fn only_numbers_that_differ_are_left_open() {
        let names = ["/run7/out.0001.h5", "/run7/out.0002.h5", "/run7/log", "/run8/only.3"];
        assert_eq!(rules(&names, 100), ["/run7/out.*.h5", "/run7/log", "/run8/only.3"]);
        let rule = PathRule("/run7/out.*.h5".into());
        assert!(rule.matches("/run7/out.0017.h5") && !rule.matches("/run7/out.x.h5"));
        assert!(!rule.matches("/run7/out..h5") && !rule.matches("/run7/out.1.h5.bak"));
        assert!(PathRule("/a".into()).matches("/a"));
    }

    #[test]
    fn names_match_the_rule_that_was_made_of_them() {
        for names in [
            &["/run7/a.1", "/run7/a.2"][..],
            &["//123", "//77"],
            &["a//b1", "a//b2"],
            &["/x"],
            &["/run/./a1", "/run/c/../a2", "/run/a3/"],
            &["/run/*a1", "/run/*a2"],
            &["/run/*"],
            &["/caf\\xe91", "/caf\\xe92"],
            &["/caf\\x5cxe9.1", "/caf\\x5cxe9.22"],
        ] {
            let rule = PathRule(rules(names, 9).remove(0));
            assert!(names.iter().all(|name| rule.matches(name)), "{rule}: {names:?}");
        }
        assert!(!PathRule("//*".into()).matches("/name"));
    }

    #[test]
    fn a_star_of_a_name_is_no_number_and_digits_of_an_escape_are_none() {
        assert_eq!(rules(&["/a*b1", "/a*b2", "/a7b1"], 9), ["/a\\x2ab*", "/a7b1"]);
        assert!(!PathRule("/a\\x2ab*".into()).matches("/a7b1"));
        assert_eq!(
            rules(&["/caf\\xe8", "/caf\\xe9", "/caf\\xe97"], 9),
            ["/caf\\xe8", "/caf\\xe9", "/caf\\xe97"]
        );
        assert_eq!(PathRule::of("/d/*").0, "/d/\\x2a");
        let open = |rule: &str| PathRule(rule.into()).open_behind("/7/").0;
        assert_eq!([open("/7/a1b*\\x2a\\xe91"), open("/8/a")], ["/7/a*b*\\x2a\\xe9*", "/*/a"]);
    }

    #[test]
    fn too_many_names_share_the_last_unit() {
        let names = ["/a", "/b", "/c", "/d", "/b"];
        assert_eq!(rules(&names, 3), ["/a", "/b", OTHERS]);
    }

    #[test]
    fn digits_at_both_ends_are_numbers() {
        assert_eq!(rules(&["1a2", "1a3"], 9), ["1a*"]);
        assert_eq!(rules(&["/run/./a1", "//run/c/../a2", "/a", "/../a"], 9), ["/run/a*", "/a"]);
        assert_eq!(rules(&["", "5"], 9), ["", "5"]);
    }
}
