//! Where threads run.

use super::sys::{ProcessorSet, current_processor};
use crate::Processor;
use std::cell::RefCell;

/// A wish for another processor is fulfilled when it has been made so many times in a row. Moving a thread costs as
/// much as several wake-ups, and a waiter that the system moves about is not worth following.
const PATIENCE: u32 = 2;

thread_local! {
    static PLACE: RefCell<Place> = const { RefCell::new(Place::Unknown) };
}

/// The calling thread's.
pub(super) fn current() -> Option<Processor> {
    current_processor().and_then(|number| u16::try_from(number).ok()).map(Processor)
}

pub(super) fn run_on(wish: Option<Processor>) {
    PLACE.with_borrow_mut(|place| place.wish(wish));
}

/// Where a thread is and wants to be.
enum Place {
    /// Nobody has wished anything yet.
    Unknown,
    /// There is no choice, or the system does not say.
    Fixed,
    Movable(Movable),
}

struct Movable {
    /// What the thread may run on: the administrator's choice, within which every wish has to be.
    home: ProcessorSet,
    /// What it is bound to; `None` is all of `home`.
    bound: Option<Processor>,
    /// The wish that is not fulfilled, and how many times in a row it was made.
    wish: Option<Processor>,
    times: u32,
}

impl Place {
    fn wish(&mut self, wish: Option<Processor>) {
        if let Self::Unknown = self {
            if wish.is_none() {
                return;
            }
            *self = match ProcessorSet::of_thread() {
                Ok(home) if home.len() > 1 => {
                    Self::Movable(Movable { home, bound: None, wish: None, times: 0 })
                }
                _ => Self::Fixed,
            };
        }
        if let Self::Movable(movable) = self {
            movable.wish(wish);
        }
    }
}

impl Movable {
    fn wish(&mut self, wish: Option<Processor>) {
        if wish == self.bound {
            self.times = 0;
            return;
        }
        self.times = if wish == self.wish { self.times + 1 } else { 1 };
        self.wish = wish;
        if self.times < PATIENCE {
            return;
        }
        self.times = 0;
        let set = match wish {
            None => Some(self.home),
            Some(processor) => self.home.only(processor.0.into()),
        };
        // The processor may be out of bounds, of another cpuset or gone: then the thread stays where it is.
        if set.is_some_and(|set| set.bind_thread().is_ok()) {
            self.bound = wish;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> Vec<u16> {
        let set = ProcessorSet::of_thread().expect("the kernel tells");
        (0..1024).filter(|&number| set.only(number.into()).is_some()).collect()
    }

    /// Wishes once more often than it takes.
    fn insist(wish: Option<Processor>) {
        (0..=PATIENCE).for_each(|_| run_on(wish));
    }

    #[test]
    fn a_thread_goes_where_it_is_wished_and_back() {
        let home = allowed();
        if home.len() < 2 {
            eprintln!("skipped: there is no choice of processors here");
            return;
        }
        run_on(None);
        for &number in &home {
            insist(Some(Processor(number)));
            assert_eq!((allowed(), current()), (vec![number], Some(Processor(number))));
            // Other threads go where they like.
            assert_eq!(std::thread::spawn(move || insist(Some(Processor(number)))).join().ok(), Some(()));
        }
        insist(None);
        assert_eq!(allowed(), home);
    }

    #[test]
    fn what_is_not_wished_for_often_or_cannot_be_moves_nobody() {
        let home = allowed();
        let [first, second, ..] = home[..] else {
            eprintln!("skipped: there is no choice of processors here");
            return;
        };
        for _ in 0..10 {
            run_on(Some(Processor(first)));
            run_on(Some(Processor(second)));
        }
        assert_eq!(allowed(), home);
        for number in [home[home.len() - 1] + 1, 1023, 1024, u16::MAX] {
            insist(Some(Processor(number)));
            assert_eq!(allowed(), home, "{number}");
        }
    }

    #[test]
    fn the_administrators_choice_holds() {
        let [first, second, third, ..] = allowed()[..] else {
            eprintln!("skipped: three processors are needed");
            return;
        };
        // SAFETY: the set is a plain value that is built from zeros, and the call reads its size.
        unsafe {
            let mut chosen: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(first.into(), &mut chosen);
            libc::CPU_SET(second.into(), &mut chosen);
            assert_eq!(libc::sched_setaffinity(0, size_of_val(&chosen), &chosen), 0);
        }
        insist(Some(Processor(third)));
        assert_eq!(allowed(), [first, second]);
        insist(Some(Processor(second)));
        assert_eq!(allowed(), [second]);
        insist(None);
        assert_eq!(allowed(), [first, second]);
    }
}
