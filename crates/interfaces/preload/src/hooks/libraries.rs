//! `dlopen` of libraries on Weft. The dynamic linker opens files by its own system calls, so it gets the path of the
//! library in the private mount. The libraries that this one needs from its own directory (`$ORIGIN`) are found there,
//! too.

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(test)))]
mod by_path {
    use crate::errno::Fail;
    use crate::private;
    use crate::route::{self, Route, WeftPath};
    use crate::{config, errno, guard, sys};
    use libc::{AT_FDCWD, c_char, c_int, c_void};
    use std::ffi::{CStr, CString};
    use std::os::fd::AsRawFd;

    /// Path for the dynamic linker, and its function.
    #[repr(C)]
    pub struct Target {
        path: *const c_char,
        function: *const c_void,
    }

    // The dynamic linker searches the directories that the caller's object names (RUNPATH), and knows the caller by the
    // return address. Therefore the hook jumps to it.

    /// Opens a library.
    #[cfg(target_arch = "x86_64")]
    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    pub unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
        core::arch::naked_asm!(
            "push rsi",
            "call {target}",
            "mov rdi, rax",
            "pop rsi",
            "jmp rdx",
            target = sym target,
        )
    }

    /// Opens a library.
    #[cfg(target_arch = "aarch64")]
    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    pub unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
        core::arch::naked_asm!(
            "stp x29, x30, [sp, #-32]!",
            "mov x29, sp",
            "str x1, [sp, #16]",
            "bl {target}",
            "mov x16, x1",
            "ldr x1, [sp, #16]",
            "ldp x29, x30, [sp], #32",
            "br x16",
            target = sym target,
        )
    }

    unsafe extern "C" fn target(path: *const c_char) -> Target {
        let function = real!(dlopen: fn(*const c_char, c_int) -> *mut c_void) as *const c_void;
        let path = in_mount(path).unwrap_or(path);
        if !path.is_null() && *path != 0 && config::is_ready() && !guard::inside() {
            let before = errno::get();
            crate::hooks::dispatch::before_loading(CStr::from_ptr(path));
            errno::set(before);
        }
        Target { path, function }
    }

    /// Returns the path in the private mount of a library on Weft. It stays valid, because the dynamic linker may keep it.
    unsafe fn in_mount(path: *const c_char) -> Option<*const c_char> {
        // A name without a slash is searched in directories.
        if path.is_null()
            || !config::is_ready()
            || guard::inside()
            || libc::strchr(path, c_int::from(b'/')).is_null()
        {
            return None;
        }
        let before = errno::get();
        let mut way = route::route(AT_FDCWD, path);
        if matches!(way, Route::Foreign) {
            return None;
        }
        let mut found = None;
        // As many links out of the mount and back as the kernel would follow.
        for _ in 0..40 {
            match way {
                // The linker fails by itself.
                Route::Foreign | Route::Failed(_) => break,
                Route::Moved(path) => {
                    found = Some(path);
                    break;
                }
                Route::Ours(weft_path) => match path_of(&weft_path) {
                    Ok(path) => {
                        found = Some(path);
                        break;
                    }
                    // A link to an absolute path.
                    Err(path) => {
                        way = route::route(AT_FDCWD, path.as_ptr());
                        found = Some(path);
                    }
                },
            }
        }
        errno::set(before);
        found.map(|path| path.into_raw().cast_const())
    }

    /// Returns the path of a file in the private mount, or the absolute path to which a link leads from there.
    fn path_of(weft_path: &WeftPath) -> Result<CString, CString> {
        let found = crate::serve::inside(|| Ok(private::root()));
        let Ok(Ok(root)) = found else {
            let why = found.ok().and_then(Result::err).unwrap_or_else(|| "an internal error".to_owned());
            let path = route::full(&weft_path.text);
            private::refusal(&path, "dlopen", &why, "run the program on a mount (`weft mount DIR`)");
            return Ok(sys::c(&path));
        };
        let at =
            |text: &[u8]| sys::c(&[format!("/proc/self/fd/{}", root.as_raw_fd()).as_bytes(), text].concat());
        let direct = at(&weft_path.text);
        if sys::exists(AT_FDCWD, &direct) {
            return Ok(direct);
        }
        match crate::serve::inside(|| crate::hooks::resolved(weft_path)) {
            Ok(text) => Ok(at(&text)),
            Err(Fail::Moved(path)) => Err(sys::c(&path)),
            Err(_) => Ok(direct),
        }
    }
}
