//! Complete trees of directories, numbered level by level.
//!
//! The root is 0, and the children of d are `d * branch + 1` to `(d + 1) * branch`.

/// A complete tree of directories.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tree {
    /// Number of levels below the root.
    pub(crate) depth: u32,
    /// Number of children of each directory that is not on the last level.
    pub(crate) branch: u64,
}

impl Tree {
    /// Number of directories; `None` on overflow.
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

    /// Path from the root to `dir`.
    pub(crate) fn path(self, dir: u64) -> Vec<u64> {
        let mut path = vec![dir];
        while let Some(&top) = path.last().filter(|&&top| top > 0) {
            path.push(self.parent(top));
        }
        path.reverse();
        path
    }

    /// Iterates in pre-order, each directory before its children: the order of creation.
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

    /// Iterates in post-order, each directory after its children: the order of removal.
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
    fn orders_match_those_of_mdtest() {
        // Directory numbers as mdtest of IOR 4.1.0+dev creates and removes them with -z 2 -b 3 (strace).
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
