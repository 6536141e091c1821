//! Programs as the kernel finds them: scripts with their interpreters, and files of Weft.
//!
//! The kernel would open a script of Weft by another name than the program used, and cannot open an interpreter on Weft.
//! This library therefore reads the line after `#!` like Linux (`fs/binfmt_script.c`), and executes the interpreter with
//! the script's own path as argument. A program file on Weft is copied to a memory file.

use crate::backend::{self, File};
use crate::errno::{self, Res};
use crate::open::Open;
use crate::route::{self, Route, WeftPath};
use crate::{memory, serve, sys};
use libc::{AT_FDCWD, c_char, c_int};
use std::ffi::{CStr, CString};
use std::io::IoSliceMut;
use weft_wire::meta::OpenFlags;

/// Number of bytes in which Linux looks for the interpreter (`BINPRM_BUF_SIZE`).
const HEAD_LEN: usize = 256;
/// Maximum number of scripts on the way to a program; Linux fails with `ELOOP` beyond.
const SCRIPTS_MAX: usize = 5;

/// First bytes of a program, padded with zeros.
type Head = [u8; HEAD_LEN];

/// Program that the kernel can execute.
pub struct Program {
    path: CString,
    /// Words in the place of the first argument; empty if the arguments stay.
    words: Vec<CString>,
    /// Memory file with a copy of the program, closed if the exec fails.
    copy: Option<c_int>,
}

impl Drop for Program {
    fn drop(&mut self) {
        self.copy.into_iter().for_each(sys::close);
    }
}

impl Program {
    /// Returns the path for the kernel.
    pub fn path(&self) -> *const c_char {
        self.path.as_ptr()
    }

    /// Returns the arguments: those given, after the words of interpreters.
    ///
    /// # Safety
    /// `given` is null or a null-ended array of C strings.
    pub unsafe fn arguments(&self, given: *const *const c_char) -> Vec<*const c_char> {
        let mut out: Vec<*const c_char> = self.words.iter().map(|word| word.as_ptr()).collect();
        let mut at = given;
        if !out.is_empty() && !at.is_null() && !(*at).is_null() {
            at = at.add(1);
        }
        while !at.is_null() && !(*at).is_null() {
            out.push(*at);
            at = at.add(1);
        }
        out.push(std::ptr::null());
        out
    }
}

/// Place of a program file.
enum Place {
    /// Path of the kernel.
    Local(CString),
    /// File of Weft that the caller may execute.
    Weft(File),
}

/// Finds what to execute for `path`. An error is that of `execve`.
///
/// # Safety
/// `path` is null or a C string.
pub unsafe fn find(path: *const c_char) -> Result<Program, c_int> {
    if !memory::is_text(path) {
        return Err(libc::EFAULT);
    }
    let given = CStr::from_ptr(path);
    let place = look(given)?;
    walk(given, given.to_owned(), place)
}

/// Finds what to execute for an open file of Weft. `name` is the path by which an interpreter can open it.
pub fn find_open(open: &Open, name: CString) -> Result<Program, c_int> {
    let file = serve::inside(|| open_program(&open.weft_path()?)).map_err(|fail| fail.errno())?;
    walk(&name, name.clone(), Place::Weft(file))
}

/// Whether executing `path` needs this library: a file of Weft, or a script with an interpreter there.
///
/// # Safety
/// `path` is null or a C string.
pub unsafe fn needs_library(path: *const c_char) -> bool {
    if !memory::is_text(path) {
        return false;
    }
    let mut name = CStr::from_ptr(path).to_owned();
    for _ in 0..=SCRIPTS_MAX {
        match look(&name) {
            Ok(Place::Local(local)) if local == name => {}
            _ => return true,
        }
        let Some((interpreter, _)) = local_head(&name).and_then(|head| interpreter(&head).ok().flatten())
        else {
            return false;
        };
        name = interpreter;
    }
    false
}

/// Follows scripts from `place`, which `name` names, to a program.
fn walk(given: &CStr, mut name: CString, mut place: Place) -> Result<Program, c_int> {
    let mut words: Vec<CString> = Vec::new();
    // Whether a file or a link of Weft is on the way.
    let mut has_weft_files = false;
    for _ in 0..=SCRIPTS_MAX {
        let head = match &place {
            Place::Local(path) => {
                has_weft_files |= *path != name;
                local_head(path)
            }
            Place::Weft(file) => {
                has_weft_files = true;
                Some(head_of(file)?)
            }
        };
        // The kernel reports what is wrong with a local file that cannot be read.
        let script = match head {
            Some(head) => interpreter(&head)?,
            None => None,
        };
        let Some((interpreter, argument)) = script else {
            return match place {
                Place::Weft(file) => {
                    let copy = serve::inside(|| copied(&file)).map_err(|fail| fail.errno())?;
                    let path = sys::c(format!("/proc/self/fd/{copy}").as_bytes());
                    Ok(Program { path, words, copy: Some(copy) })
                }
                // The kernel knows all files of this way, and follows it better.
                Place::Local(_) if !has_weft_files && !words.is_empty() => {
                    Ok(Program { path: given.to_owned(), words: Vec::new(), copy: None })
                }
                Place::Local(path) => Ok(Program { path, words, copy: None }),
            };
        };
        // The interpreter takes the place of the first argument, and gets its own argument and the script's name.
        let rest = words.into_iter().skip(1);
        words = [interpreter.clone()].into_iter().chain(argument).chain([name]).chain(rest).collect();
        name = interpreter;
        place = look(&name)?;
    }
    Err(libc::ELOOP)
}

/// Looks `path` up, and opens it if it leads to Weft.
fn look(path: &CStr) -> Result<Place, c_int> {
    // SAFETY: a C string.
    let mut way = unsafe { route::route(AT_FDCWD, path.as_ptr()) };
    if matches!(way, Route::Foreign) && !sys::exists(AT_FDCWD, path) {
        // A link of the host may lead into the mount. SAFETY: a C string.
        way = unsafe { route::follow_foreign(AT_FDCWD, path.as_ptr()) }.unwrap_or(Route::Foreign);
    }
    let (mut kept, mut opened) = (None, None);
    let done = serve::on_way::<c_int>(way, &mut kept, |weft_path| {
        opened = Some(open_program(weft_path)?);
        Ok(0)
    });
    match (done, opened) {
        (None, _) => Ok(Place::Local(kept.unwrap_or_else(|| path.to_owned()))),
        (Some(0), Some(file)) => Ok(Place::Weft(file)),
        _ => Err(errno::get()),
    }
}

/// Opens a file of Weft that the caller may execute.
fn open_program(weft_path: &WeftPath) -> Res<File> {
    let backend = backend::backend()?;
    backend.access(weft_path, libc::X_OK as u32, true)?;
    let flags = OpenFlags { read: true, ..OpenFlags::default() };
    let file = backend.open(weft_path, &backend::OpenRequest { flags, ..Default::default() })?;
    if file.is_directory() { Err(libc::EACCES.into()) } else { Ok(file) }
}

/// Reads the first bytes of a file of the host; `None` if it is not a regular file that this process may read and
/// execute.
fn local_head(path: &CStr) -> Option<Head> {
    let stat = sys::fstatat(AT_FDCWD, path, 0).ok()?;
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG || !sys::may_execute(path) {
        return None;
    }
    let fd = sys::open(path, libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK, 0).ok()?;
    let mut head = [0; HEAD_LEN];
    let mut at = 0;
    while at < HEAD_LEN {
        match sys::read(fd, &mut head[at..]) {
            Ok(0) | Err(_) => break,
            Ok(len) => at += len,
        }
    }
    sys::close(fd);
    Some(head)
}

fn head_of(file: &File) -> Result<Head, c_int> {
    let mut head = [0; HEAD_LEN];
    let mut at = 0;
    while at < HEAD_LEN {
        let got = serve::inside(|| file.read_at(&mut [IoSliceMut::new(&mut head[at..])], at as u64));
        match got.map_err(|fail| fail.errno())? {
            0 => break,
            len => at += len,
        }
    }
    Ok(head)
}

/// Returns the interpreter of a script and its argument; `None` if the file is no script.
fn interpreter(head: &Head) -> Result<Option<(CString, Option<CString>)>, c_int> {
    let Some(line) = head.strip_prefix(b"#!") else { return Ok(None) };
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let line = match line.iter().position(|&byte| byte == b'\n') {
        Some(end) => &line[..end],
        None => {
            // Without an end of the line, the name must end inside of these bytes.
            let begin = line.iter().position(|byte| !is_blank(byte)).ok_or(libc::ENOEXEC)?;
            let ends = line[begin..].iter().any(|byte| is_blank(byte) || *byte == 0);
            if ends { &line[..line.len() - 1] } else { return Err(libc::ENOEXEC) }
        }
    };
    let blank = line.iter().take_while(|byte| is_blank(byte)).count();
    let line = &line[blank..];
    let trailing = line.iter().rev().take_while(|byte| is_blank(byte)).count();
    let line = &line[..line.len() - trailing];
    // Both words are C strings: a zero ends them.
    let word = |bytes: &[u8]| sys::c(bytes.split(|&byte| byte == 0).next().unwrap_or_default());
    let end = line.iter().position(|byte| is_blank(byte) || *byte == 0).unwrap_or(line.len());
    let name = word(&line[..end]);
    if line.is_empty() {
        return Err(libc::ENOEXEC);
    }
    let argument = match line.get(end) {
        None | Some(0) => None,
        Some(_) => {
            let rest = &line[end..];
            let blank = rest.iter().take_while(|byte| is_blank(byte)).count();
            Some(word(&rest[blank..])).filter(|_| blank < rest.len())
        }
    };
    Ok(Some((name, argument)))
}

/// Copies a program file to a memory file, which the kernel can execute.
fn copied(file: &File) -> Res<c_int> {
    let mut buffer = vec![0u8; 1 << 20];
    let mut at = 0u64;
    let mut copy = None;
    let result = loop {
        let got = match file.read_at(&mut [IoSliceMut::new(&mut buffer)], at) {
            Ok(got) => got,
            Err(fail) => break Err(fail),
        };
        let fd = match copy {
            Some(fd) => fd,
            None => {
                // A handler for other formats opens the file by this number.
                let flags = if buffer[..got].starts_with(b"\x7fELF") { libc::MFD_CLOEXEC } else { 0 };
                *copy.insert(sys::memfd(c"weft program", flags)?)
            }
        };
        if got == 0 {
            return Ok(fd);
        }
        let mut rest = &buffer[..got];
        while !rest.is_empty() {
            match sys::write(fd, rest) {
                Ok(done) => rest = &rest[done..],
                Err(number) => {
                    sys::close(fd);
                    return Err(number.into());
                }
            }
        }
        at += got as u64;
    };
    copy.into_iter().for_each(sys::close);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &[u8]) -> Result<Option<(String, Option<String>)>, c_int> {
        let mut head = [0; HEAD_LEN];
        let len = text.len().min(HEAD_LEN);
        head[..len].copy_from_slice(&text[..len]);
        let text = |word: CString| word.into_string().expect("plain text");
        Ok(interpreter(&head)?.map(|(name, argument)| (text(name), argument.map(text))))
    }

    #[test]
    fn the_first_line_is_read_like_linux_reads_it() {
        let is =
            |name: &str, argument: Option<&str>| Ok(Some((name.to_owned(), argument.map(str::to_owned))));
        assert_eq!(parsed(b"#!/bin/sh\necho"), is("/bin/sh", None));
        assert_eq!(parsed(b"#! \t/bin/sh  -e  -x \t\necho"), is("/bin/sh", Some("-e  -x")));
        assert_eq!(parsed(b"#!/bin/sh"), is("/bin/sh", None));
        assert_eq!(parsed(b"#!/bin/sh -e"), is("/bin/sh", Some("-e")));
        assert_eq!(parsed(b"#!sh\r\n"), is("sh\r", None));
        assert_eq!(parsed(b"#!/bin/sh\0 -e\n"), is("/bin/sh", None));
        assert_eq!(parsed(b"#!/bin/sh -e\0x\n"), is("/bin/sh", Some("-e")));
        assert_eq!(parsed(b"# no\n"), Ok(None));
        assert_eq!(parsed(b""), Ok(None));
        for broken in [&b"#!"[..], b"#!\n/bin/sh", b"#! \t \n", b"#!    "] {
            // Zeros after the end of a file end a name, which is empty then.
            let found = parsed(broken);
            assert!(found == Err(libc::ENOEXEC) || found == is("", None), "{broken:?}: {found:?}");
        }
    }

    #[test]
    fn a_name_that_may_be_cut_is_refused_and_a_cut_argument_is_passed() {
        let long = [b"#!/".to_vec(), vec![b'x'; 300]].concat();
        assert_eq!(parsed(&long), Err(libc::ENOEXEC));
        let argument = [b"#!/bin/sh ".to_vec(), vec![b'y'; 300]].concat();
        let (name, cut) = parsed(&argument).expect("parsed").expect("a script");
        assert_eq!((name.as_str(), cut.expect("an argument").len()), ("/bin/sh", HEAD_LEN - 1 - 10));
    }
}
