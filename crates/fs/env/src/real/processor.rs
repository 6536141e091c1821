//! Placement of threads on processors.

use super::sys::{ProcessorSet, current_processor};
use crate::Processor;
use std::cell::RefCell;

/// Number of consecutive requests for the same processor after which a thread moves. A move costs as much as several
/// wake-ups, and a peer that the system migrates often is not worth following.
const REQUESTS_BEFORE_MOVE: u32 = 2;

thread_local! {
    static PLACEMENT: RefCell<Placement> = const { RefCell::new(Placement::Unknown) };
}

/// Returns the processor of the calling thread.
pub(super) fn current() -> Option<Processor> {
    current_processor().and_then(|number| u16::try_from(number).ok()).map(Processor)
}

pub(super) fn run_on(request: Option<Processor>) {
    PLACEMENT.with_borrow_mut(|place| place.request(request));
}

/// Processors that a thread runs on and may run on.
enum Placement {
    /// The thread has made no request yet.
    Unknown,
    /// Only one processor is available, or the system does not report them.
    Fixed,
    Movable(Movable),
}

struct Movable {
    /// Processors that the thread may run on: the administrator's setting, which limits every request.
    allowed_set: ProcessorSet,
    /// Processor that the thread is bound to; `None` for all of the allowed set.
    bound: Option<Processor>,
    /// Pending request, and how often it was made in a row.
    request: Option<Processor>,
    times: u32,
}

impl Placement {
    fn request(&mut self, request: Option<Processor>) {
        if let Self::Unknown = self {
            if request.is_none() {
                return;
            }
            *self = match ProcessorSet::of_thread() {
                Ok(allowed_set) if allowed_set.len() > 1 => {
                    Self::Movable(Movable { allowed_set, bound: None, request: None, times: 0 })
                }
                _ => Self::Fixed,
            };
        }
        if let Self::Movable(movable) = self {
            movable.request(request);
        }
    }
}

impl Movable {
    fn request(&mut self, request: Option<Processor>) {
        if request == self.bound {
            self.times = 0;
            return;
        }
        self.times = if request == self.request { self.times + 1 } else { 1 };
        self.request = request;
        if self.times < REQUESTS_BEFORE_MOVE {
            return;
        }
        self.times = 0;
        let set = match request {
            None => Some(self.allowed_set),
            Some(processor) => self.allowed_set.only(processor.0.into()),
        };
        // The processor may be unavailable, for example in another cpuset: the thread then stays.
        if set.is_some_and(|set| set.bind_thread().is_ok()) {
            self.bound = request;
        }
    }
}

#[cfg(test)]
#[allow(dead_code)] // A part is used.
#[path = "../../../../interfaces/cli/tests/common/skip.rs"]
mod skip;

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> Vec<u16> {
        let set = ProcessorSet::of_thread().expect("the kernel reports the set");
        (0..1024).filter(|&number| set.only(number.into()).is_some()).collect()
    }

    /// Makes a request once more often than needed.
    fn request_repeatedly(request: Option<Processor>) {
        (0..=REQUESTS_BEFORE_MOVE).for_each(|_| run_on(request));
    }

    #[test]
    fn a_thread_moves_on_request_and_back() {
        let allowed_set = allowed();
        if allowed_set.len() < 2 {
            skip::skip_on_this_machine("only one processor is available");
            return;
        }
        run_on(None);
        for &number in &allowed_set {
            request_repeatedly(Some(Processor(number)));
            assert_eq!((allowed(), current()), (vec![number], Some(Processor(number))));
            // Other threads are not bound.
            assert_eq!(
                std::thread::spawn(move || request_repeatedly(Some(Processor(number)))).join().ok(),
                Some(())
            );
        }
        request_repeatedly(None);
        assert_eq!(allowed(), allowed_set);
    }

    #[test]
    fn single_and_impossible_requests_move_no_thread() {
        let allowed_set = allowed();
        let [first, second, ..] = allowed_set[..] else {
            skip::skip_on_this_machine("only one processor is available");
            return;
        };
        for _ in 0..10 {
            run_on(Some(Processor(first)));
            run_on(Some(Processor(second)));
        }
        assert_eq!(allowed(), allowed_set);
        for number in [allowed_set[allowed_set.len() - 1] + 1, 1023, 1024, u16::MAX] {
            request_repeatedly(Some(Processor(number)));
            assert_eq!(allowed(), allowed_set, "{number}");
        }
    }

    #[test]
    fn the_administrators_setting_holds() {
        let [first, second, third, ..] = allowed()[..] else {
            skip::skip_on_this_machine("three processors are needed");
            return;
        };
        // SAFETY: the set is a plain value initialized with zeros, and the call reads its size.
        unsafe {
            let mut chosen: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(first.into(), &mut chosen);
            libc::CPU_SET(second.into(), &mut chosen);
            assert_eq!(libc::sched_setaffinity(0, size_of_val(&chosen), &chosen), 0);
        }
        request_repeatedly(Some(Processor(third)));
        assert_eq!(allowed(), [first, second]);
        request_repeatedly(Some(Processor(second)));
        assert_eq!(allowed(), [second]);
        request_repeatedly(None);
        assert_eq!(allowed(), [first, second]);
    }
}
