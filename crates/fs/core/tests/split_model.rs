//! The splitting function against the byte-by-byte model, on random layouts and ranges.
mod support;

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use support::{deal, layouts};
use weft_core::{Access, ByteLen, Extent, SplitPolicy};

const SIZE: u64 = 400;

fn extents() -> impl Strategy<Value = (u64, u64)> {
    (0..SIZE).prop_flat_map(|offset| {
        (Just(offset), prop_oneof![0..=SIZE - offset, 0..20u64.min(SIZE - offset + 1)])
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn every_byte_is_in_exactly_one_piece(layout in layouts(), (offset, len) in extents()) {
        let model = deal(&layout, SIZE);
        let subs = layout.split(Extent::new(offset, len), Access::Sequential, SplitPolicy::Off);
        // For each byte of the buffer, the location that a sub-request assigns to it.
        let mut claimed = vec![None; len as usize];
        for sub in &subs {
            let mut local = sub.local.offset.0;
            prop_assert!(sub.local.len.0 > 0);
            prop_assert_eq!(sub.pieces().count() as u64, sub.piece_count());
            prop_assert_eq!(sub.pieces().next().unwrap().offset, sub.buffer_offset());
            for piece in sub.pieces() {
                prop_assert!(piece.len.0 > 0);
                for index in piece.range() {
                    prop_assert_eq!(claimed[index].replace((sub.object, sub.target, local)), None);
                    local += 1;
                }
            }
            prop_assert_eq!(Some(local), sub.local.end().map(|end| end.0), "pieces fill the local range");
        }
        let expected = &model.bytes[offset as usize..(offset + len) as usize];
        prop_assert!(claimed.iter().copied().eq(expected.iter().map(|&byte| Some(byte))));
    }

    #[test]
    fn each_object_occurs_once_and_in_file_order(layout in layouts(), (offset, len) in extents()) {
        let model = deal(&layout, SIZE);
        let subs = layout.split(Extent::new(offset, len), Access::Sequential, SplitPolicy::Off);
        // Objects in the order in which their first bytes occur in the file.
        let mut met = Vec::new();
        for &(object, ..) in &model.bytes[offset as usize..(offset + len) as usize] {
            if !met.contains(&object) {
                met.push(object);
            }
        }
        prop_assert_eq!(subs.iter().map(|sub| sub.object).collect::<Vec<_>>(), met);
        prop_assert!(subs.iter().all(|sub| sub.siblings as usize == subs.len()));
    }

    #[test]
    fn flags_follow_their_definition(
        layout in layouts(), (offset, len) in extents(), below in 0u64..40, random: bool,
    ) {
        let access = if random { Access::Random } else { Access::Sequential };
        let model = deal(&layout, SIZE);
        let bytes = &model.bytes[offset as usize..(offset + len) as usize];
        let targets: BTreeSet<_> = bytes.iter().map(|&(_, target, _)| target).collect();
        let mut lens = BTreeMap::new();
        for &(object, ..) in bytes {
            *lens.entry(object).or_insert(0u64) += 1;
        }
        for sub in layout.split(Extent::new(offset, len), access, SplitPolicy::Below(ByteLen(below))) {
            prop_assert_eq!(sub.flags.fragment, targets.len() > 1 && lens[&sub.object] < below);
            prop_assert_eq!(sub.flags.small_random, random && len < below);
        }
        for sub in layout.split(Extent::new(offset, len), access, SplitPolicy::Off) {
            prop_assert!(!sub.flags.fragment && !sub.flags.small_random);
        }
    }

    #[test]
    fn pieces_after_a_short_transfer_are_the_rest(
        layout in layouts(), (offset, len) in extents(), done in 0u64..450,
    ) {
        for sub in layout.split(Extent::new(offset, len), Access::Sequential, SplitPolicy::Off) {
            let bytes = |pieces: weft_core::split::Pieces| pieces.flat_map(|p| p.range()).collect::<Vec<_>>();
            let all = bytes(sub.pieces());
            let skipped = all.len().min(done as usize);
            prop_assert_eq!(&bytes(sub.pieces_after(ByteLen(done))), &all[skipped..]);
        }
    }

    #[test]
    fn a_reused_buffer_holds_only_the_last_split(layout in layouts(), a in extents(), b in extents()) {
        let mut out = Vec::new();
        layout.split_into(Extent::new(a.0, a.1), Access::Random, SplitPolicy::default(), &mut out);
        layout.split_into(Extent::new(b.0, b.1), Access::Random, SplitPolicy::default(), &mut out);
        prop_assert_eq!(out, layout.split(Extent::new(b.0, b.1), Access::Random, SplitPolicy::default()));
    }
}
