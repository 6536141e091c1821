//! Errors as C sees them: a return value, `errno` and a message.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Error of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fail {
    errno: i32,
    sentence: String,
}

/// Result of a call before C sees it.
pub type Res<T> = Result<T, Fail>;

impl Fail {
    /// Creates an error with a number and a message.
    pub fn new(errno: i32, sentence: impl Into<String>) -> Self {
        Self { errno, sentence: sentence.into() }
    }

    /// Creates the error of an invalid argument.
    pub fn argument(sentence: impl Into<String>) -> Self {
        Self::new(libc::EINVAL, sentence)
    }

    /// Creates the error of a null pointer.
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

/// Runs the body of an exported function. On failure, stores the error and returns `failed`.
pub fn guard<T>(failed: T, body: impl FnOnce() -> Res<T>) -> T {
    let fail = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(fail)) => fail,
        Err(panic) => {
            Fail::new(libc::EIO, format!("internal error of Weft, please report it: {}", text(&*panic)))
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
    let sentence = CString::new(bytes).expect("zero bytes were removed");
    // At the end of a thread its storage may be gone; then no code can ask for the message either.
    let _ = SENTENCE.try_with(|place| *place.borrow_mut() = Some(sentence));
    // An error number from the network may be invalid in C.
    set_errno(if (1..4096).contains(&fail.errno) { fail.errno } else { libc::EIO });
}

/// Sets `errno`.
pub fn set_errno(errno: i32) {
    // SAFETY: the C library gives each thread a valid location.
    unsafe { *libc::__errno_location() = errno }
}

/// Declares functions for C: each body returns a [`Res`]; if it fails, the function returns the value after `|`.
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

/// Returns the message of the last failure in this thread.
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
        // SAFETY: the message lives until the next failure in this thread; errno belongs to this thread.
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
    fn invalid_error_numbers_and_zero_bytes_are_replaced() {
        assert_eq!(guard(-1, || Err(Fail::new(-5, "a\0b"))), -1);
        assert_eq!(last(), (libc::EIO, "ab".to_owned()));
        assert_eq!(guard(-1, || Ok(3)), 3);
        assert_eq!(last().1, "ab", "success keeps the message");
    }
}
