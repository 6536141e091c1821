//! A counting allocator, with which targets assert how much memory a decoder allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Constant initializers and no destructors: the allocator may run at any point of a thread's life.
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

// SAFETY: every call is passed to the system allocator unchanged; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller upholds the contract of `GlobalAlloc`, which the system allocator has as well.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: see `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: see `alloc`.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size as isize - layout.size() as isize);
        // SAFETY: see `alloc`.
        unsafe { System.realloc(at, layout, new_size) }
    }
}

/// Runs `body`. Returns its result and the peak of this thread's allocations in bytes, above the level before the call.
pub fn peak<T>(body: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = body();
    (result, (PEAK.get() - before).max(0) as usize)
}

/// Runs a decoder on `len` bytes of input and asserts that it allocates at most `times * len + plus` bytes.
pub fn bounded<T>(len: usize, times: usize, plus: usize, body: impl FnOnce() -> T) -> T {
    let (result, peak) = peak(body);
    let most = len * times + plus;
    assert!(
        peak <= most,
        "{peak} bytes allocated for {len} bytes of input, more than {times} * {len} + {plus}"
    );
    result
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_peak_includes_memory_that_was_freed() {
        let (len, peak) = super::peak(|| {
            let first = std::hint::black_box(vec![1u8; 100_000]).len();
            first + std::hint::black_box(vec![1u8; 50_000]).len()
        });
        assert_eq!(len, 150_000);
        assert!((100_000..110_000).contains(&peak), "{peak}");
    }

    #[test]
    #[should_panic(expected = "bytes allocated for 10 bytes of input")]
    fn exceeding_the_limit_panics() {
        super::bounded(10, 2, 0, || std::hint::black_box(vec![1u8; 21]));
    }
}
