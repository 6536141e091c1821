//! The inverse of the splitting function, against that function and the byte-by-byte model.
mod support;

use proptest::prelude::*;
use support::{deal, layouts};
use weft_core::{Access, Extent, FileOffset, LocalExtent, ObjectId, SplitPolicy};

const SIZE: u64 = 400;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Splitting and mapping back yields the original range, with each byte once.
    #[test]
    fn mapping_back_yields_the_split_range(layout in layouts(), offset in 0..SIZE, len in 0..SIZE) {
        let subs = layout.split(Extent::new(offset, len), Access::Sequential, SplitPolicy::Off);
        let mut held = vec![0; len as usize];
        for sub in &subs {
            let pieces: Vec<Extent> = layout.file_pieces(sub.object, sub.local).collect();
            prop_assert!(pieces.windows(2).all(|pair| pair[0].end().unwrap() < pair[1].offset));
            let sum: u64 = pieces.iter().map(|piece| piece.len.0).sum();
            prop_assert_eq!(sum, sub.local.len.0);
            // The caller's buffer starts at `offset` of the file.
            let in_buffer = sub.pieces().flat_map(|piece| piece.range()).map(|index| offset + index as u64);
            let in_file = pieces.iter().flat_map(|piece| piece.offset.0..piece.end().unwrap().0);
            prop_assert!(in_buffer.eq(in_file.clone()));
            in_file.for_each(|at| held[(at - offset) as usize] += 1);
        }
        prop_assert!(held.iter().all(|&times| times == 1));
    }

    /// Any range of any object, against counting.
    #[test]
    fn pieces_match_the_model(
        layout in layouts(), component in 0u16..4, column in 0u16..7, from in 0u64..150, len in 0u64..150,
    ) {
        // Large enough that every object has more bytes than requested, or all that it can have.
        let model = deal(&layout, 8 * SIZE);
        let object = ObjectId { component, column };
        let pieces: Vec<Extent> = layout.file_pieces(object, LocalExtent::new(from, len)).collect();
        prop_assert!(pieces.iter().all(|piece| piece.len.0 > 0));
        let found = pieces.iter().flat_map(|piece| piece.offset.0..piece.end().unwrap().0);
        let of_model = model.bytes.iter().enumerate().filter(|(_, (of, ..))| *of == object);
        let held = of_model.filter(|(_, (.., local))| (from..from + len).contains(local));
        let held: Vec<u64> = held.map(|(offset, _)| offset as u64).collect();
        let end = 8 * SIZE;
        prop_assert!(found.filter(|offset| *offset < end).eq(held.iter().copied()), "{:?} {:?}", pieces, held);
        for &offset in held.iter().take(3) {
            prop_assert_eq!(layout.locate(FileOffset(offset)).object, object);
        }
    }
}
