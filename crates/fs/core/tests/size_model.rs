//! The inverse maps against the byte-by-byte model: lengths to sizes, sizes to lengths, truncation.
mod support;

use proptest::prelude::*;
use std::collections::BTreeMap;
use support::{deal, layouts};
use weft_core::{Access, ByteLen, Extent, FileOffset, SplitPolicy};

const SIZE: u64 = 400;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn locate_matches_the_model(layout in layouts()) {
        for (offset, &(object, target, local)) in deal(&layout, SIZE).bytes.iter().enumerate() {
            let found = layout.locate(FileOffset(offset as u64));
            prop_assert_eq!((found.object, found.target, found.local.0), (object, target, local));
            prop_assert_eq!(layout.target(object), Some(target));
        }
    }

    #[test]
    fn logical_end_is_one_past_the_last_byte_held(layout in layouts()) {
        let model = deal(&layout, SIZE);
        for (object, _) in layout.objects() {
            prop_assert_eq!(layout.logical_end(object, ByteLen::ZERO), FileOffset::ZERO);
        }
        for (offset, &(object, _, local)) in model.bytes.iter().enumerate() {
            let end = layout.logical_end(object, ByteLen(local + 1));
            prop_assert_eq!(end.0, offset as u64 + 1);
            // The minimum size that makes the datafile this long; one byte less does not.
            prop_assert_eq!(layout.local_len(object, end).0, local + 1);
            prop_assert_eq!(layout.local_len(object, FileOffset(end.0 - 1)).0, local);
        }
    }

    #[test]
    fn local_len_counts_and_conserves_bytes(layout in layouts(), size in 0..=SIZE) {
        let model = deal(&layout, SIZE);
        let mut sum = 0;
        for (object, _) in layout.objects() {
            let len = layout.local_len(object, FileOffset(size));
            prop_assert_eq!(len.0, model.local_len(object, size));
            sum += len.0;
        }
        prop_assert_eq!(sum, size);
        let lens = layout.objects().map(|(object, _)| (object, layout.local_len(object, FileOffset(size))));
        prop_assert_eq!(layout.file_size(lens), FileOffset(size));
    }

    #[test]
    fn the_last_object_holds_the_last_byte(layout in layouts(), size in 1..=SIZE) {
        let model = deal(&layout, SIZE);
        let (object, target, local) = model.bytes[size as usize - 1];
        prop_assert_eq!(layout.last_object(FileOffset(size)), Some((object, target)));
        prop_assert_eq!(layout.local_len(object, FileOffset(size)).0, local + 1);
        prop_assert_eq!(layout.last_object(FileOffset::ZERO), None);
    }

    /// Sparse writes and truncations by a client yield the size of a plain file.
    #[test]
    fn sizes_survive_sparse_writes_and_truncation(
        layout in layouts(),
        ops in prop::collection::vec((any::<bool>(), 0..SIZE, 0u64..40), 1..20),
    ) {
        let mut size = 0;
        let mut lens = BTreeMap::new();
        for (truncate, offset, len) in ops {
            if truncate {
                size = offset;
                for (object, len) in &mut lens {
                    *len = layout.local_len(*object, FileOffset(size)).min(*len);
                }
                if let Some((object, _)) = layout.last_object(FileOffset(size)) {
                    lens.insert(object, layout.local_len(object, FileOffset(size)));
                }
            } else {
                if len > 0 {
                    size = size.max(offset + len);
                }
                for sub in layout.split(Extent::new(offset, len), Access::Random, SplitPolicy::Off) {
                    let held = lens.entry(sub.object).or_insert(ByteLen::ZERO);
                    *held = ByteLen(sub.local.end().unwrap().0).max(*held);
                }
            }
            let found = layout.file_size(lens.iter().map(|(&object, &len)| (object, len)));
            prop_assert_eq!(found, FileOffset(size));
        }
    }
}
