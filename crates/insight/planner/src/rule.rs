//! Groups files whose names differ only in numbers, and names each group by a path rule.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use weft_core::escape::{escape, pieces};
use weft_core::{Pattern, unescaped};

/// Selects the files of a layout: a path as text ([`weft_core::escape`]) in which `*` stands for a number. A literal
/// star is `\x2a`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PathRule(pub String);

impl PathRule {
    /// The rule that matches exactly this path.
    pub fn of(path: &str) -> Self {
        Self(escape_stars(path))
    }

    /// Whether the rule matches a path.
    pub fn matches(&self, path: &str) -> bool {
        let path = normalize(path);
        self.pattern().is_some_and(|pattern| pattern.matches(&unescaped(path.trim_start_matches('/'))))
    }

    /// Replaces every number after `prefix` by `*`. Without that prefix, every number is replaced.
    pub(crate) fn generalize_after(&self, prefix: &str) -> Self {
        let rest = self.0.strip_prefix(prefix);
        let (mut out, rest) = rest.map_or((String::new(), &*self.0), |rest| (prefix.to_owned(), rest));
        let mut parts = split_at_numbers(rest);
        parts.iter_mut().skip(1).step_by(2).for_each(|number| *number = "*".to_owned());
        out.extend(parts);
        Self(out)
    }

    /// The rule as a pattern; `None` if it is not a path.
    pub fn pattern(&self) -> Option<Pattern> {
        Pattern::of_numbers(&normalize(&self.0)).ok()
    }
}

/// Normalizes a path: removes empty components, `.` and `..`. Logs contain names as programs wrote them; rules are
/// normalized.
fn normalize(path: &str) -> String {
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

/// Escapes literal stars.
fn escape_stars(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for character in path.chars() {
        match character {
            '*' => escape(&mut out, b'*'),
            other => out.push(other),
        }
    }
    out
}

/// Assigns file names to groups.
#[derive(Debug)]
pub(crate) struct FileGrouping {
    /// Groups by their names split at numbers, with the numbers removed.
    groups: BTreeMap<Vec<String>, usize>,
    names: Vec<SimilarNames>,
    max: usize,
}

#[derive(Debug)]
struct SimilarNames {
    /// The first name, split into text, number, text, …
    parts: Vec<String>,
    /// Whether each part differs between the names.
    differs: Vec<bool>,
}

impl FileGrouping {
    pub fn new(max: usize) -> Self {
        Self { groups: BTreeMap::new(), names: Vec::new(), max }
    }

    /// The group of a name; creates a group if necessary.
    pub fn group(&mut self, name: &str) -> usize {
        let parts = split_at_numbers(&escape_stars(&normalize(name)));
        let mut key = parts.clone();
        key.iter_mut().skip(1).step_by(2).for_each(String::clear);
        if let Some(&group) = self.groups.get(&key) {
            let similar = &mut self.names[group];
            for (at, differs) in similar.differs.iter_mut().enumerate() {
                *differs |= similar.parts[at] != parts[at];
            }
            return group;
        }
        if self.names.len() + 1 >= self.max {
            // Names beyond the limit share a group without a rule.
            let group = self.names.len().min(self.max - 1);
            if group == self.names.len() {
                self.names.push(SimilarNames { parts: vec![OTHERS.to_owned()], differs: vec![false] });
            }
            return group;
        }
        self.groups.insert(key, self.names.len());
        self.names.push(SimilarNames { differs: vec![false; parts.len()], parts });
        self.names.len() - 1
    }

    /// The rule of each group.
    pub fn rules(&self) -> Vec<PathRule> {
        let rule = |similar: &SimilarNames| {
            let parts = similar.parts.iter().zip(&similar.differs);
            PathRule(parts.map(|(part, differs)| if *differs { "*" } else { part.as_str() }).collect())
        };
        self.names.iter().map(rule).collect()
    }
}

/// Placeholder rule of the files beyond the limit. It matches no path.
pub(crate) const OTHERS: &str = "(other files)";

/// Splits a name into text, number, text, …; digits of an escape sequence are not numbers.
fn split_at_numbers(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for (piece, byte) in pieces(name) {
        let digit = byte.is_none() && piece.as_bytes()[0].is_ascii_digit();
        // Even indices hold text, odd ones numbers.
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
        let mut grouping = FileGrouping::new(max);
        for name in names {
            grouping.group(name);
        }
        grouping.rules().into_iter().map(|rule| rule.0).collect()
    }

    #[test]
    fn only_differing_numbers_become_stars() {
        let names = ["/run7/out.0001.h5", "/run7/out.0002.h5", "/run7/log", "/run8/only.3"];
        assert_eq!(rules(&names, 100), ["/run7/out.*.h5", "/run7/log", "/run8/only.3"]);
        let rule = PathRule("/run7/out.*.h5".into());
        assert!(rule.matches("/run7/out.0017.h5") && !rule.matches("/run7/out.x.h5"));
        assert!(!rule.matches("/run7/out..h5") && !rule.matches("/run7/out.1.h5.bak"));
        assert!(PathRule("/a".into()).matches("/a"));
    }

    #[test]
    fn names_match_the_rule_made_from_them() {
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
    fn literal_stars_and_escapes_are_not_numbers() {
        assert_eq!(rules(&["/a*b1", "/a*b2", "/a7b1"], 9), ["/a\\x2ab*", "/a7b1"]);
        assert!(!PathRule("/a\\x2ab*".into()).matches("/a7b1"));
        assert_eq!(
            rules(&["/caf\\xe8", "/caf\\xe9", "/caf\\xe97"], 9),
            ["/caf\\xe8", "/caf\\xe9", "/caf\\xe97"]
        );
        assert_eq!(PathRule::of("/d/*").0, "/d/\\x2a");
        let open = |rule: &str| PathRule(rule.into()).generalize_after("/7/").0;
        assert_eq!([open("/7/a1b*\\x2a\\xe91"), open("/8/a")], ["/7/a*b*\\x2a\\xe9*", "/*/a"]);
    }

    #[test]
    fn names_beyond_the_limit_share_the_last_group() {
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
