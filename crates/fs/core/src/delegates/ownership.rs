//! The delegate that holds a page in its cache, and the delegate that knows its owner.
//!
//! At most one delegate caches a page (IODC, section III.E): its owner. The [`Policy`] decides which one.
//!
//! | policy | owner | cost |
//! | --- | --- | --- |
//! | `first-touch` | the first delegate that accesses the page, until it evicts it (IODC) | a lookup at the [`home`] |
//! | `hashed` | [`hashed_owner`], a pure function | no lookup, but most accesses go to another delegate |
//!
//! [`home`] and [`hashed_owner`] are stable: every process of a job computes the same result, whatever its version.

use super::assignment::DelegateIndex;
use crate::random::splitmix64;
use crate::units::{ByteLen, Extent, FileId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::iter;
use std::str::FromStr;

/// Number of a page in its file: its offset divided by the page length.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PageIndex(pub u64);

/// Number of a file in the caches of a job (IODC, section III.B): unique in the job and equal in all its processes.
///
/// All 64 bits count, since the underlying file system may use them in its inode numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileNumber(pub u64);

impl FileNumber {
    /// Number of a file of the host: `inode` on the file system of the job's directory number `directory`. Inode numbers
    /// below 2^40 never collide with those of another directory.
    pub fn of_host(directory: u32, inode: u64) -> Self {
        Self((splitmix64(u64::from(directory) + 1) << 40) ^ inode)
    }

    /// Number of a file of Weft.
    pub fn of_weft(file: FileId) -> Self {
        Self((splitmix64(u64::MAX) << 40) ^ file.0)
    }
}

/// A page of a file. Pages are ordered by file, then by index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct PageId {
    /// File of the page.
    pub file: FileNumber,
    /// Position in the file, in pages.
    pub index: PageIndex,
}

impl PageId {
    /// Returns a page of the file.
    pub const fn new(file: FileNumber, index: PageIndex) -> Self {
        Self { file, index }
    }
}

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {} of file {:016x}", self.index.0, self.file.0)
    }
}

/// Rule by which a page gets its owner.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The first delegate that accesses the page, recorded in the [`PageDirectory`] of its [`home`] (IODC).
    FirstTouch,
    /// The delegate that [`hashed_owner`] returns.
    Hashed,
}

/// Error: the text is not a [`Policy`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is not an ownership policy: use first-touch or hashed")]
pub struct PolicyError(pub String);

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        match text {
            "first-touch" => Ok(Self::FirstTouch),
            "hashed" => Ok(Self::Hashed),
            _ => Err(PolicyError(text.to_owned())),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FirstTouch => "first-touch",
            Self::Hashed => "hashed",
        })
    }
}

/// Returns the delegate that keeps the owner and the locks of a page under [`Policy::FirstTouch`]:
/// `(page + splitmix64(file)) mod delegates`.
///
/// IODC (section III.D) uses `page mod delegates`. In a job with one small file per rank, all metadata would then be
/// at delegate 0. The hash of the file number starts each file at another delegate. Consecutive pages still go round
/// robin.
///
/// # Panics
/// If `delegates` is zero.
pub fn home(page: PageId, delegates: u32) -> DelegateIndex {
    rotated(page.index.0, splitmix64(page.file.0), delegates)
}

/// Returns the owner of a page under [`Policy::Hashed`], where `/` rounds down:
///
/// ```text
/// group = page / group_pages
/// round = group / delegates
/// owner = (group + splitmix64(splitmix64(file) ^ round)) mod delegates
/// ```
///
/// - A *group* is the unit of ownership: `group_pages` consecutive pages, aligned in the file. The owner merges the
///   dirty pages of a group into one large write. The best length is one stripe of the file: the write then goes to
///   one server, and no two delegates write to the same stripe. Longer groups concentrate a small active region on
///   few delegates.
/// - A *round* is `delegates` consecutive groups. Each delegate owns exactly one group of a round, so sequential
///   access uses all delegates evenly. A hash of each group alone would be uneven over a few rounds.
/// - The hash of the round rotates the order of its delegates. Ranks that stride by a multiple of a round therefore
///   meet different delegates, whereas plain round robin would send all of them to one.
///
/// # Panics
/// If `delegates` or `group_pages` is zero.
pub fn hashed_owner(page: PageId, delegates: u32, group_pages: u64) -> DelegateIndex {
    assert!(group_pages > 0, "a group has at least one page");
    assert!(delegates > 0, "a job has at least one delegate");
    let group = page.index.0 / group_pages;
    let round = group / u64::from(delegates);
    rotated(group, splitmix64(splitmix64(page.file.0) ^ round), delegates)
}

/// Returns `(position + offset) mod delegates`, without overflow.
fn rotated(position: u64, offset: u64, delegates: u32) -> DelegateIndex {
    assert!(delegates > 0, "a job has at least one delegate");
    let delegates = u64::from(delegates);
    DelegateIndex(((position % delegates + offset % delegates) % delegates) as u32)
}

/// Cuts a range of a file into one piece per run of pages with the same owner, in ascending order. Neighboring pieces
/// have different owners; an empty range has no pieces.
///
/// Calls `owner_of` once for each page that the range touches. `O` is a [`DelegateIndex`], or an `Option` of one
/// where a page may have no owner yet.
///
/// # Panics
/// If `page_len` is zero, or the range ends past byte 2^64 - 1.
pub fn pieces<O: PartialEq>(
    extent: Extent,
    page_len: ByteLen,
    mut owner_of: impl FnMut(PageIndex) -> O,
) -> impl Iterator<Item = (O, Extent)> {
    let mut pages = page_parts(extent, page_len).map(move |(page, part)| (owner_of(page), part)).peekable();
    iter::from_fn(move || {
        let (owner, mut piece) = pages.next()?;
        while let Some((_, part)) = pages.next_if(|(other, _)| *other == owner) {
            piece.len.0 += part.len.0;
        }
        Some((owner, piece))
    })
}

/// Cuts a range of a file at the boundaries of pages.
fn page_parts(extent: Extent, page_len: ByteLen) -> impl Iterator<Item = (PageIndex, Extent)> {
    assert!(page_len > ByteLen::ZERO, "a page has at least one byte");
    let end = extent.end().expect("the range ends at or before byte 2^64 - 1").get();
    let mut offset = extent.offset.get();
    iter::from_fn(move || {
        let left_in_page = page_len.get() - offset % page_len.get();
        let part = Extent::new(offset, left_in_page.min(end - offset));
        let page = PageIndex(offset / page_len.get());
        offset += part.len.get();
        (part.len > ByteLen::ZERO).then_some((page, part))
    })
}

/// Owners of the pages of one home, under [`Policy::FirstTouch`].
///
/// A page has at most one owner: the directory maps a page to one delegate, and only the removal of that owner makes
/// room for another. It has one entry for each cached page, so the caches of the delegates bound its size.
#[derive(Clone, Default, Debug)]
pub struct PageDirectory {
    owners: BTreeMap<PageId, DelegateIndex>,
}

impl PageDirectory {
    /// Returns a directory without pages.
    pub const fn new() -> Self {
        Self { owners: BTreeMap::new() }
    }

    /// Makes `delegate` the owner if the page has none. Returns the owner, which may be another delegate.
    pub fn first_touch(&mut self, page: PageId, delegate: DelegateIndex) -> DelegateIndex {
        *self.owners.entry(page).or_insert(delegate)
    }

    /// Returns the owner of a page; `None` if no delegate caches it.
    pub fn owner(&self, page: PageId) -> Option<DelegateIndex> {
        self.owners.get(&page).copied()
    }

    /// Removes a page that `delegate` has evicted. Returns false if `delegate` is not its owner, as after
    /// [`Self::forget_file`]; the directory is then unchanged.
    pub fn evict(&mut self, page: PageId, delegate: DelegateIndex) -> bool {
        let is_owner = self.owner(page) == Some(delegate);
        if is_owner {
            self.owners.remove(&page);
        }
        is_owner
    }

    /// Removes the pages of a file after its last close. Returns their number.
    pub fn forget_file(&mut self, file: FileNumber) -> usize {
        let (first, last) = (PageId::new(file, PageIndex(0)), PageId::new(file, PageIndex(u64::MAX)));
        let gone: Vec<PageId> = self.owners.range(first..=last).map(|(&page, _)| page).collect();
        for page in &gone {
            self.owners.remove(page);
        }
        gone.len()
    }

    /// Removes the pages of a dead delegate. Returns them in ascending order: their unwritten bytes are lost.
    pub fn forget_delegate(&mut self, delegate: DelegateIndex) -> Vec<PageId> {
        let mut gone = Vec::new();
        self.owners.retain(|page, owner| {
            let stays = *owner != delegate;
            gone.extend((!stays).then_some(*page));
            stays
        });
        gone
    }

    /// Returns the number of pages with an owner.
    pub fn len(&self) -> usize {
        self.owners.len()
    }

    /// Returns true if no page has an owner.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page(file: u64, index: u64) -> PageId {
        PageId::new(FileNumber(file), PageIndex(index))
    }

    #[test]
    fn policies_round_trip() {
        for (text, policy) in [("first-touch", Policy::FirstTouch), ("hashed", Policy::Hashed)] {
            assert_eq!(text.parse(), Ok(policy));
            assert_eq!(policy.to_string(), text);
            assert_eq!(serde_json::to_string(&policy).unwrap(), format!("{text:?}"));
        }
        let error = "random".parse::<Policy>().unwrap_err();
        assert_eq!(error.to_string(), "\"random\" is not an ownership policy: use first-touch or hashed");
    }

    #[test]
    fn placement_matches_the_test_vectors() {
        // Computed by a separate implementation in Python. Processes of two versions meet in one job: never change
        // them.
        for (file, index, delegates, group_pages, home_of, owner) in [
            (0, 0, 1, 1, 0, 0),
            (1, 0, 8, 1, 1, 6),
            (1, 7, 8, 1, 0, 5),
            (1, 8, 8, 1, 1, 6),
            (2, 0, 8, 4, 6, 4),
            (2, 3, 8, 4, 1, 4),
            (2, 4, 8, 4, 2, 5),
            ((1 << 48) - 1, (1 << 63) - 1, 7, 16, 6, 6),
            ((1 << 48) + 1, 0, 8, 1, 1, 7),
            (u64::MAX, (1 << 63) - 1, 7, 16, 0, 3),
            (0x1234_5678_9abc, 1_000_000_000_000, 1000, 64, 397, 584),
            (5, u64::MAX, u32::MAX, 1, 109_903_463, 978_118_990),
        ] {
            let page = page(file, index);
            assert_eq!(home(page, delegates), DelegateIndex(home_of), "home of {page}");
            assert_eq!(hashed_owner(page, delegates, group_pages), DelegateIndex(owner), "owner of {page}");
        }
    }

    /// Number of pages per delegate.
    fn loads(owners: impl Iterator<Item = DelegateIndex>, delegates: u32) -> Vec<u64> {
        let mut loads = vec![0; delegates as usize];
        owners.for_each(|owner| loads[owner.0 as usize] += 1);
        loads
    }

    #[test]
    fn small_files_spread_over_the_delegates() {
        let files = 1..=8000;
        for loads in [
            loads(files.clone().map(|file| home(page(file, 0), 8)), 8),
            loads(files.map(|file| hashed_owner(page(file, 0), 8, 16)), 8),
        ] {
            assert!(loads.iter().all(|load| (850..1150).contains(load)), "{loads:?}");
        }
    }

    #[test]
    fn strides_of_whole_rounds_spread_over_the_delegates() {
        for stride in [8, 16, 64, 4096] {
            let owners = (0..8000).map(|i| hashed_owner(page(7, i * stride * 4), 8, 4));
            let loads = loads(owners, 8);
            assert!(loads.iter().all(|load| (850..1150).contains(load)), "stride {stride}: {loads:?}");
        }
    }

    #[test]
    fn pieces_end_where_the_owner_changes() {
        let extent = Extent::new(5, 38);
        let owner_of = |page: PageIndex| [0, 0, 1, 2, 2][page.0 as usize];
        let found: Vec<_> = pieces(extent, ByteLen(10), owner_of).collect();
        assert_eq!(found, [(0, Extent::new(5, 15)), (1, Extent::new(20, 10)), (2, Extent::new(30, 13))]);
    }

    #[test]
    fn the_largest_offsets_have_pieces() {
        const END: u64 = 1 << 63;
        let parity = |page: PageIndex| page.0 % 2;
        let last = pieces(Extent::new(END - 5000, 5000), ByteLen(4096), parity).collect::<Vec<_>>();
        assert_eq!(last, [(0, Extent::new(END - 5000, 904)), (1, Extent::new(END - 4096, 4096))]);
        let whole = Extent::new(0, END);
        assert_eq!(
            pieces(whole, ByteLen(u64::MAX), |page| page).collect::<Vec<_>>(),
            [(PageIndex(0), whole)]
        );
        for offset in [0, 4095, 4096, u64::MAX] {
            assert_eq!(pieces(Extent::new(offset, 0), ByteLen(4096), |page| page).count(), 0);
        }
    }

    #[test]
    fn the_owner_alone_evicts_a_page() {
        let (mut directory, one, two) = (PageDirectory::new(), DelegateIndex(1), DelegateIndex(2));
        assert_eq!(directory.first_touch(page(1, 0), one), one);
        assert_eq!(directory.first_touch(page(1, 0), two), one);
        assert!(!directory.evict(page(1, 0), two));
        assert!(directory.evict(page(1, 0), one));
        assert!(!directory.evict(page(1, 0), one));
        assert_eq!(directory.first_touch(page(1, 0), two), two);
    }

    #[derive(Clone, Debug)]
    enum Op {
        Touch(PageId, DelegateIndex),
        Evict(PageId, DelegateIndex),
        ForgetFile(FileNumber),
        ForgetDelegate(DelegateIndex),
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let pages = || (0u64..4, 0u64..6).prop_map(|(file, index)| page(file, index));
        let delegates = || (0u32..4).prop_map(DelegateIndex);
        let op = prop_oneof![
            8 => (pages(), delegates()).prop_map(|(page, delegate)| Op::Touch(page, delegate)),
            4 => (pages(), delegates()).prop_map(|(page, delegate)| Op::Evict(page, delegate)),
            1 => (0u64..4).prop_map(|file| Op::ForgetFile(FileNumber(file))),
            1 => delegates().prop_map(Op::ForgetDelegate),
        ];
        prop::collection::vec(op, 1..60)
    }

    /// Removes the entries that `goes` selects from the model and returns their pages in ascending order.
    fn remove(
        model: &mut Vec<(PageId, DelegateIndex)>,
        goes: impl Fn(PageId, DelegateIndex) -> bool,
    ) -> Vec<PageId> {
        let mut gone: Vec<PageId> =
            model.iter().filter(|(page, owner)| goes(*page, *owner)).map(|(page, _)| *page).collect();
        model.retain(|(page, owner)| !goes(*page, *owner));
        gone.sort();
        gone
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn consecutive_groups_are_balanced(
            (file, first, groups) in (any::<u64>(), 0u64..1 << 40, 0u64..200),
            delegates in 1u32..20,
            group_pages in 1u64..9,
        ) {
            let pages = first * group_pages..(first + groups) * group_pages;
            let owners = pages.map(|index| hashed_owner(page(file, index), delegates, group_pages));
            let rounds = groups / u64::from(delegates);
            // Both ends of the range may lie within a round.
            let (least, most) = (rounds.saturating_sub(1) * group_pages, (rounds + 2) * group_pages);
            let loads = loads(owners, delegates);
            prop_assert!(loads.iter().all(|load| (least..=most).contains(load)), "{:?}", loads);
        }

        #[test]
        fn a_group_has_one_owner(
            file: u64, index: u64, delegates in 1..=u32::MAX, group_pages in 1u64..1000,
        ) {
            let first = index - index % group_pages;
            let owner = |index| hashed_owner(page(file, index), delegates, group_pages);
            prop_assert_eq!(owner(index), owner(first));
            prop_assert!(owner(index).0 < delegates);
        }

        #[test]
        fn consecutive_pages_go_round_robin_over_the_homes(file: u64, index in 0..u64::MAX, delegates in 1u32..99) {
            let (this, next) = (home(page(file, index), delegates), home(page(file, index + 1), delegates));
            prop_assert_eq!(next.0, (this.0 + 1) % delegates);
        }

        #[test]
        fn pieces_cover_the_extent_in_order(
            (page_len, start, len) in (1u64..50, prop_oneof![0u64..100, (1u64 << 63) - 1000..1 << 63], 0u64..800),
            owners in prop::collection::vec(0u32..3, 1..40),
        ) {
            let extent = Extent::new(start, len);
            let owner_of = |page: u64| owners[(page % owners.len() as u64) as usize];
            let mut asked = Vec::new();
            let found: Vec<_> = pieces(extent, ByteLen(page_len), |page| {
                asked.push(page.0);
                owner_of(page.0)
            }).collect();
            let mut next = start;
            for (owner, piece) in &found {
                prop_assert_eq!(piece.offset.get(), next);
                prop_assert!(piece.len > ByteLen::ZERO);
                next += piece.len.get();
                prop_assert!((piece.offset.get()..next).all(|byte| owner_of(byte / page_len) == *owner));
            }
            prop_assert_eq!(next, start + len);
            prop_assert!(found.windows(2).all(|two| two[0].0 != two[1].0), "neighbors with the same owner");
            let touched = if len == 0 { 0..0 } else { start / page_len..(start + len - 1) / page_len + 1 };
            prop_assert!(asked.into_iter().eq(touched), "owners are asked for once per page");
        }

        #[test]
        fn the_directory_matches_a_list_of_owned_pages(ops in ops()) {
            let (mut directory, mut model) = (PageDirectory::new(), Vec::<(PageId, DelegateIndex)>::new());
            for op in ops {
                match op {
                    Op::Touch(page, delegate) => {
                        let known = model.iter().find(|(other, _)| *other == page).map(|(_, owner)| *owner);
                        prop_assert_eq!(directory.first_touch(page, delegate), known.unwrap_or(delegate));
                        model.extend(known.is_none().then_some((page, delegate)));
                    }
                    Op::Evict(page, delegate) => {
                        let gone = remove(&mut model, |other, owner| (other, owner) == (page, delegate));
                        prop_assert_eq!(directory.evict(page, delegate), gone == [page]);
                    }
                    Op::ForgetFile(file) => {
                        let gone = remove(&mut model, |page, _| page.file == file);
                        prop_assert_eq!(directory.forget_file(file), gone.len());
                    }
                    Op::ForgetDelegate(delegate) => {
                        let gone = remove(&mut model, |_, owner| owner == delegate);
                        prop_assert_eq!(directory.forget_delegate(delegate), gone);
                    }
                }
                prop_assert_eq!((directory.len(), directory.is_empty()), (model.len(), model.is_empty()));
                prop_assert!(model.iter().all(|(page, owner)| directory.owner(*page) == Some(*owner)));
            }
        }
    }
}
