//! Maps paths of a trace to paths on Weft. `*` in a path stands for a number.

/// Mapping from paths of a trace to paths below the mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// Prefixes of whole names, longest first.
    pairs: Vec<(String, String)>,
}

impl Mapping {
    /// Builds a mapping from pairs of a prefix in the trace and a directory below the mount.
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        let bare = |path: String| path.trim_end_matches('/').to_owned();
        let mut pairs: Vec<_> = pairs.into_iter().map(|(from, to)| (bare(from), bare(to))).collect();
        pairs.sort_by_key(|(from, _)| std::cmp::Reverse(from.len()));
        Self { pairs }
    }

    /// Returns the path below the mount, without leading slashes.
    pub fn map(&self, path: &str) -> Option<String> {
        let below = |(from, to): &(String, String)| {
            let rest = path.strip_prefix(from.as_str())?;
            (rest.is_empty() || rest.starts_with('/') || from.is_empty())
                .then(|| format!("{to}/{}", rest.trim_start_matches('/')))
        };
        let mapped = self.pairs.iter().find_map(below)?;
        Some(mapped.trim_matches('/').to_owned())
    }
}

/// Returns the common directory of all paths, without names in which numbers differ.
pub fn common<'a>(paths: impl IntoIterator<Item = &'a str>) -> String {
    let mut common: Option<Vec<&str>> = None;
    for path in paths {
        let names: Vec<&str> = path.split('/').collect();
        let dirs = names[..names.len() - 1].iter().copied().take_while(|name| !name.contains('*'));
        common = Some(match common {
            None => dirs.collect(),
            Some(known) => {
                known.into_iter().zip(dirs).take_while(|(a, b)| a == b).map(|(name, _)| name).collect()
            }
        });
    }
    common.unwrap_or_default().join("/")
}

/// Returns the directories above a path, from the root of Weft (`""`) down, up to the first name that contains `*`.
pub fn directories(path: &str) -> Vec<String> {
    let mut dirs = vec![String::new()];
    let names: Vec<&str> = path.split('/').collect();
    for name in names[..names.len() - 1].iter().take_while(|name| !name.contains('*')) {
        let above = dirs.last().expect("the root");
        dirs.push(super::super::session::join(above, name));
    }
    dirs
}

/// Returns the part of `path` below `dir`.
pub fn below<'a>(path: &'a str, dir: &str) -> &'a str {
    path.strip_prefix(dir).unwrap_or(path).trim_start_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_of_whole_names_decides() {
        let pairs = [("/scratch", "all"), ("/scratch/u/", "/mine/"), ("/old", "")];
        let mapping = Mapping::new(pairs.map(|(from, to)| (from.to_owned(), to.to_owned())));
        assert_eq!(mapping.map("/scratch/u/run*/out.*").as_deref(), Some("mine/run*/out.*"));
        assert_eq!(mapping.map("/scratch/v").as_deref(), Some("all/v"));
        assert_eq!(mapping.map("/old/a/b").as_deref(), Some("a/b"));
        assert_eq!(mapping.map("/scratchy/v"), None);
        assert_eq!(Mapping::new([(String::new(), "d".to_owned())]).map("a/b").as_deref(), Some("d/a/b"));
    }

    #[test]
    fn what_paths_have_in_common_are_whole_names_without_numbers() {
        assert_eq!(common(["/run/a/out.*", "/run/a/log", "/run/a/b/c"]), "/run/a");
        assert_eq!(common(["/run*/a/out", "/run*/a/log"]), "");
        assert_eq!(common(["/run/ab/x", "/run/a/y"]), "/run");
        assert_eq!(common(["/one/file"]), "/one");
        assert_eq!(common(["file"]), "");
        assert_eq!(directories("a/b/c*/d/e"), ["", "a", "a/b"]);
        assert_eq!(below("a/b/c", "a/b"), "c");
        assert_eq!(below("a/b", ""), "a/b");
    }
}
