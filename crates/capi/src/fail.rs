//! Failure as C sees it: a return value, `errno` and a sentence.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a call failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fail {
    errno: i32,
    sentence: String,
}

/// The result of a call before C sees it.
pub type Res<T> = Result<T, Fail>;

impl Fail {
    /// With a number and a sentence.
    pub fn new(errno: i32, sentence: impl Into<String>) -> Self {
        Self { errno, sentence: sentence.into() }
    }

    /// An argument that cannot be used.
    pub fn argument(sentence: impl Into<String>) -> Self {
        Self::new(libc::EINVAL, sentence)
    }

    /// A pointer that must not be null is.
    pub fn null(what: &str) -> Self {
        Self::new(libc::EFAULT, format!("{what} is a null pointer"))
    }
}

impl From<weft_client::Error> for Fail {
    fn from(error: weft_client::Error) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

thread_local! {
    static SENTENCE: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Runs the body of an exported function; on failure remembers why and returns `failed`.
pub fn guard<T>(failed: T, body: impl FnOnce() -> Res<T>) -> T {
    let fail = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(fail)) => fail,
        Err(panic) => {
            Fail::new(libc::EIO, format!("a fault of Weft itself, please report it: {}", text(&*panic)))
        }
    };
    remember(fail);
    failed
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text")
}

fn remember(fail: Fail) {
    let mut bytes = fail.sentence.into_bytes();
    bytes.retain(|byte| *byte != 0);
    let sentence = CString::new(bytes).expect("zeros were taken out");
    // At the end of a thread the place may be gone; then nobody can ask for the sentence either.
    let _ = SENTENCE.try_with(|place| *place.borrow_mut() = Some(sentence));
    // What came over the wire need not be a number that C knows.
    set_errno(if (1..4096).contains(&fail.errno) { fail.errno } else { libc::EIO });
}

/// Sets `errno`.
pub fn set_errno(errno: i32) {
    // SAFETY: the C library gives each thread its place.
    unsafe { *libc::__errno_location() = errno }
}

/// Declares functions for C: each body gives a [`Res`], and the value after `|` is returned when it failed.
macro_rules! exported {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $ret:ty | $failed:expr; $body:block)*) => {
        $($(#[$doc])*
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $type),*) -> $ret {
            $crate::fail::guard($failed, || $body)
        })*
    };
}
pub(crate) use exported;

/// The sentence of the last failure in this thread.
#[unsafe(no_mangle)]
extern "C" fn weft_error() -> *const c_char {
    const NONE: &CStr = c"";
    let last = SENTENCE.try_with(|place| place.borrow().as_ref().map(|sentence| sentence.as_ptr()));
    last.ok().flatten().unwrap_or(NONE.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> (i32, String) {
        // SAFETY: the sentence lives until the next failure in this thread; errno is this thread's.
        let (errno, sentence) = unsafe { (*libc::__errno_location(), CStr::from_ptr(weft_error())) };
        (errno, sentence.to_str().expect("UTF-8").to_owned())
    }

    #[test]
    fn a_panic_becomes_an_error() {
        assert_eq!(guard(-1, || panic!("oh {}", 7)), -1);
        let (errno, sentence) = last();
        assert_eq!(errno, libc::EIO);
        assert!(sentence.contains("oh 7"), "{sentence}");
    }

    #[test]
    fn odd_numbers_and_zeros_in_sentences_reach_nobody() {
        assert_eq!(guard(-1, || Err(Fail::new(-5, "a\0b"))), -1);
        assert_eq!(last(), (libc::EIO, "ab".to_owned()));
        assert_eq!(guard(-1, || Ok(3)), 3);
        assert_eq!(last().1, "ab", "success leaves the sentence");
    }
}
