//! Trees of directories in which each has as many below it, numbered level by level: the root is 0, those below d are
//! `d * branch + 1` to `(d + 1) * branch`.

/// A tree of directories.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tree {
    /// Levels below the root.
    pub(crate) depth: u32,
    /// Directories in each that is not on the last level.
    pub(crate) branch: u64,
}

impl Tree {
    /// Number of directories, if it can be counted.
    pub(crate) fn len(self) -> Option<u64> {
        let (mut level, mut all) = (1u64, 1u64);
        for _ in 0..self.depth {
            level = level.checked_mul(self.branch)?;
            all = all.checked_add(level)?;
        }
        Some(all)
    }

    fn parent(self, dir: u64) -> u64 {
        (dir - 1) / self.branch
    }

    fn is_last_child(self, dir: u64) -> bool {
        dir.is_multiple_of(self.branch)
    }

    /// From the root to `dir`.
    pub(crate) fn path(self, dir: u64) -> Vec<u64> {
        let mut path = vec![dir];
        while let Some(&top) = path.last().filter(|&&top| top > 0) {
            path.push(self.parent(top));
        }
        path.reverse();
        path
    }

    /// Each directory before those below it, one branch after the other: the order in which trees are made.
    pub(crate) fn down(self) -> impl Iterator<Item = u64> + Send {
        let next = move |&(mut dir, mut level): &(u64, u32)| {
            if level < self.depth {
                return Some((dir * self.branch + 1, level + 1));
            }
            while dir > 0 && self.is_last_child(dir) {
                (dir, level) = (self.parent(dir), level - 1);
            }
            (dir > 0).then_some((dir + 1, level))
        };
        std::iter::successors(Some((0, 0)), next).map(|(dir, _)| dir)
    }

    /// Each directory after those below it: the order in which trees are removed.
    pub(crate) fn up(self) -> impl Iterator<Item = u64> + Send {
        let leftmost = move |dir: u64, level: u32| {
            (level..self.depth).fold((dir, level), |(dir, level), _| (dir * self.branch + 1, level + 1))
        };
        let next = move |&(dir, level): &(u64, u32)| match dir {
            0 => None,
            dir if self.is_last_child(dir) => Some((self.parent(dir), level - 1)),
            dir => Some(leftmost(dir + 1, level)),
        };
        std::iter::successors(Some(leftmost(0, 0)), next).map(|(dir, _)| dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_mdtest() {
        // The numbers of the directories as mdtest of IOR 4.1.0+dev makes and removes them with -z 2 -b 3 (strace).
        let tree = Tree { depth: 2, branch: 3 };
        assert_eq!(tree.len(), Some(13));
        assert_eq!(tree.down().collect::<Vec<_>>(), [0, 1, 4, 5, 6, 2, 7, 8, 9, 3, 10, 11, 12]);
        assert_eq!(tree.up().collect::<Vec<_>>(), [4, 5, 6, 1, 7, 8, 9, 2, 10, 11, 12, 3, 0]);
        assert_eq!(tree.path(8), [0, 2, 8]);
    }

    #[test]
    fn trees_of_one_branch_and_of_one_directory() {
        let chain = Tree { depth: 3, branch: 1 };
        assert_eq!(chain.down().collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(chain.up().collect::<Vec<_>>(), [3, 2, 1, 0]);
        let alone = Tree { depth: 0, branch: 5 };
        assert_eq!((alone.len(), alone.down().count(), alone.up().count()), (Some(1), 1, 1));
        assert_eq!(Tree { depth: 64, branch: 2 }.len(), None);
    }
}
