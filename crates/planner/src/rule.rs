//! Names of files that differ only in numbers, and the rule that they have in common.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use weft_core::Pattern;

/// Which files a layout is for: a path in which `*` stands for a number.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PathRule(pub String);

impl PathRule {
    /// Whether a path is one of those.
    pub fn matches(&self, path: &str) -> bool {
        let path = by_words(path);
        self.pattern().is_some_and(|pattern| pattern.matches(path.trim_start_matches('/').as_bytes()))
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

/// Deals names to units.
#[derive(Debug)]
pub(crate) struct Naming {
    /// Units by their names without numbers.
    units: BTreeMap<String, usize>,
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
        let parts = cut(&by_words(name));
        // No other digit is left in a key, so that it cannot be mistaken.
        let key: Vec<&str> = parts
            .iter()
            .enumerate()
            .map(|(at, part)| if at % 2 == 1 { "0" } else { part.as_str() })
            .collect();
        let key = key.concat();
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

fn cut(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for character in name.chars() {
        // Even places hold text, odd ones numbers.
        if character.is_ascii_digit() == parts.len().is_multiple_of(2) {
            parts.last_mut().expect("never empty").push(character);
        } else {
            parts.push(character.into());
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
        ] {
            let rule = PathRule(rules(names, 9).remove(0));
            assert!(names.iter().all(|name| rule.matches(name)), "{rule}: {names:?}");
        }
        assert!(!PathRule("//*".into()).matches("/name"));
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
