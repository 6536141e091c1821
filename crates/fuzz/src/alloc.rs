//! An allocator that counts, so that a target can assert how much memory a decoder reserves.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Constants without destructors: the allocator may use them at any time of a thread's life.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn count(bytes: isize) {
    let live = LIVE.get() + bytes;
    LIVE.set(live);
    if live > PEAK.get() {
        PEAK.set(live);
    }
}

// SAFETY: every call goes to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size as isize - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, new_size) }
    }
}

/// Runs `body`; its result, and the most bytes that this thread had reserved at a time beyond what it had before.
pub fn peak<T>(body: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = body();
    (result, (PEAK.get() - before).max(0) as usize)
}

/// Runs a decoder over `len` bytes of input and asserts that it reserves at most `times` bytes for each of them and
/// `plus` besides.
pub fn bounded<T>(len: usize, times: usize, plus: usize, body: impl FnOnce() -> T) -> T {
    let (result, peak) = peak(body);
    let most = len * times + plus;
    assert!(
        peak <= most,
        "{peak} bytes reserved for {len} bytes of input, more than {times} * {len} + {plus}"
    );
    result
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_peak_is_seen_though_the_memory_is_gone() {
        let (len, peak) = super::peak(|| {
            let first = std::hint::black_box(vec![1u8; 100_000]).len();
            first + std::hint::black_box(vec![1u8; 50_000]).len()
        });
        assert_eq!(len, 150_000);
        assert!((100_000..110_000).contains(&peak), "{peak}");
    }

    #[test]
    #[should_panic(expected = "bytes reserved for 10 bytes of input")]
    fn too_much_memory_is_a_finding() {
        super::bounded(10, 2, 0, || std::hint::black_box(vec![1u8; 21]));
    }
}
