//! The mkstemp family: no hook sees the calls with which the C library creates these names.

use crate::backend::backend;
use crate::errno::{Fail, Res};
use crate::open;
use crate::route::{Route, WeftPath, route};
use crate::serve::{Outcome, answer, on_way};
use crate::trace::posix;
use libc::{AT_FDCWD, c_char, c_int};
use std::ops::Range;

/// Number of letters that stand for `XXXXXX`.
const DRAWN: usize = 6;

/// Text of a template, whose last bytes but `suffix` are drawn.
struct Template<'a> {
    text: &'a mut [u8],
    suffix: usize,
}

impl Template<'_> {
    /// Checks the template of a program.
    unsafe fn new(template: *mut c_char, suffix: c_int) -> Res<Self> {
        let text = std::slice::from_raw_parts_mut(template.cast::<u8>(), libc::strlen(template));
        let suffix = usize::try_from(suffix).map_err(|_| libc::EINVAL)?;
        let template = Self { text, suffix };
        match template.drawn_in(template.text) {
            Some(drawn) if template.text[drawn.clone()] == [b'X'; DRAWN] => Ok(template),
            _ => Err(libc::EINVAL.into()),
        }
    }

    /// Place of the drawn letters in a text that ends like the template.
    fn drawn_in(&self, text: &[u8]) -> Option<Range<usize>> {
        let end = text.len().checked_sub(self.suffix)?;
        Some(end.checked_sub(DRAWN)?..end)
    }

    /// Place of the drawn letters in the path of the template; `None` if the suffix has slashes in it, so that the letters
    /// would name a directory, which is missing.
    fn drawn_in_path(&self, path: &[u8]) -> Option<Range<usize>> {
        let end = &self.text[self.text.len() - self.suffix - DRAWN..];
        self.drawn_in(path).filter(|_| path.ends_with(end))
    }

    fn set_letters(&mut self, letters: [u8; DRAWN]) {
        let drawn = self.drawn_in(self.text).expect("checked when it was made");
        self.text[drawn].copy_from_slice(&letters);
    }

    /// Tries names until `make` finds a free one. `weft_path` is the path of the template, or where a link in it leads.
    fn try_names<T>(&mut self, weft_path: &WeftPath, make: impl Fn(&WeftPath) -> Res<T>) -> Res<T> {
        let Some(drawn) = self.drawn_in_path(&weft_path.text) else { return make(weft_path) };
        let mut weft_path = weft_path.clone();
        for _ in 0..1000 {
            let letters = random_letters();
            self.set_letters(letters);
            weft_path.text[drawn.clone()].copy_from_slice(&letters);
            match make(&weft_path) {
                Err(Fail::Errno(libc::EEXIST)) => {}
                other => return other,
            }
        }
        Err(libc::EEXIST.into())
    }
}

fn random_letters() -> [u8; DRAWN] {
    const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    let mut random = [0u8; DRAWN];
    // SAFETY: the buffer has this length.
    unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0) };
    random.map(|byte| LETTERS[usize::from(byte) % LETTERS.len()])
}

/// Serves a call that makes a name of `template` if that leads into Weft. If a link leads out of it, `real` gets the
/// path there.
unsafe fn name_by<T: Outcome>(
    template: *mut c_char,
    suffix: c_int,
    make: impl Fn(&WeftPath) -> Res<T>,
    real: impl Fn(*mut c_char) -> T,
) -> Option<T> {
    let way = route(AT_FDCWD, template);
    if !matches!(way, Route::Ours(_)) {
        return None;
    }
    let mut names = match Template::new(template, suffix) {
        Ok(names) => names,
        Err(fail) => return Some(answer(|| Err(fail))),
    };
    let mut kept = None;
    let made = on_way(way, &mut kept, |weft_path| names.try_names(weft_path, &make));
    let Some(path) = kept else { return made };
    let mut path = path.into_bytes_with_nul();
    let len = path.len() - 1;
    let Some(drawn) = names.drawn_in_path(&path[..len]) else {
        let is_name = names.text[names.text.len() - names.suffix..].iter().all(|&byte| byte == b'/');
        return Some(answer(|| Err(if is_name { libc::EISDIR } else { libc::ENOENT }.into())));
    };
    path[drawn.clone()].copy_from_slice(&[b'X'; DRAWN]);
    let made = real(path.as_mut_ptr().cast());
    names.set_letters(path[drawn].try_into().expect("of this length"));
    Some(made)
}

unsafe fn make_file(template: *mut c_char, suffix: c_int, flags: c_int) -> Option<c_int> {
    let real = real!(mkostemps: fn(*mut c_char, c_int, c_int) -> c_int);
    let make = |weft_path: &WeftPath| {
        let flags = flags & !libc::O_ACCMODE | libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        open::open(weft_path, flags, 0o600)
    };
    name_by(template, suffix, make, |path| real(path, suffix, flags))
        .or_else(|| crate::over::is_on().then(|| crate::over::adopt(real(template, suffix, flags))))
}

hook! { [mkstemp, mkstemp64] (template: *mut c_char) -> c_int { make_file(template, 0, 0) }
trace |start, fd| { posix::opened(start, fd, libc::O_CREAT) } }
hook! { [mkostemp, mkostemp64] (template: *mut c_char, flags: c_int) -> c_int { make_file(template, 0, flags) }
trace |start, fd| { posix::opened(start, fd, libc::O_CREAT) } }
hook! { [mkstemps, mkstemps64] (template: *mut c_char, suffix: c_int) -> c_int { make_file(template, suffix, 0) }
trace |start, fd| { posix::opened(start, fd, libc::O_CREAT) } }
hook! { [mkostemps, mkostemps64] (template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
    make_file(template, suffix, flags)
} trace |start, fd| { posix::opened(start, fd, libc::O_CREAT) } }

hook! { [mkdtemp] (template: *mut c_char) -> *mut c_char {
    let real = real!(mkdtemp: fn(*mut c_char) -> *mut c_char);
    let made = name_by(template, 0, |weft_path| backend()?.mkdir(weft_path, 0o700).map(|()| 0), |path| {
        if real(path).is_null() { -1 } else { 0 }
    });
    made.map(|made| if made < 0 { std::ptr::null_mut() } else { template })
} }
hook! { [mktemp, __mktemp] (template: *mut c_char) -> *mut c_char {
    let real = real!(mktemp: fn(*mut c_char) -> *mut c_char);
    let make = |weft_path: &WeftPath| match backend()?.stat(weft_path, false) {
        Ok(_) => Err(libc::EEXIST.into()),
        Err(Fail::Moved(path)) => Err(Fail::Moved(path)),
        Err(_) => Ok(0),
    };
    let made = name_by(template, 0, make, |path| if *real(path) == 0 { -1 } else { 0 });
    // As the C library does: the text of a template without a free name is empty.
    made.map(|made| {
        if made < 0 {
            *template = 0;
        }
        template
    })
} }

hook! { [tempnam] (dir: *const c_char, prefix: *const c_char) -> *mut c_char {
    // The C library tries TMPDIR, the argument and /tmp, by calls that no hook sees.
    let tmpdir = libc::getenv(c"TMPDIR".as_ptr());
    let usable = |dir: &&*const c_char| {
        let mut st: libc::stat = std::mem::zeroed();
        crate::memory::is_text(**dir)
            && super::attrs::stat(**dir, &mut st) == 0
            && st.st_mode & libc::S_IFMT == libc::S_IFDIR
    };
    let before = crate::errno::get();
    let first = [tmpdir.cast_const(), dir].iter().find(usable).copied();
    crate::errno::set(before);
    match first {
        Some(first) if matches!(route(AT_FDCWD, first), Route::Ours(_)) => {
            let prefix = if crate::memory::is_text(prefix) && *prefix != 0 { prefix } else { c"file".as_ptr() };
            let mut name = crate::pathname::join(
                std::ffi::CStr::from_ptr(first).to_bytes(),
                &std::ffi::CStr::from_ptr(prefix).to_bytes()[..libc::strnlen(prefix, 5)],
            );
            name.extend_from_slice(b"XXXXXX\0");
            let template = libc::strdup(name.as_ptr().cast());
            if !template.is_null() && *mktemp(template) == 0 {
                libc::free(template.cast());
                return std::ptr::null_mut();
            }
            Some(template)
        }
        _ => None,
    }
} }
