//! System calls that libraries and programs make with their own machine instructions, such as Rust programs with `rustix`.
//!
//! With Linux's *syscall user dispatch* (5.11, x86-64) the kernel sends `SIGSYS` for each system call from outside of the
//! C library's code. The handler serves the call like `syscall(2)` (see `syscalls`), or makes it. A byte of each thread
//! switches this off while the thread is inside this library.
//!
//! It is on if an object with such instructions for calls by path is loaded, because it makes every other system call of
//! the process slower (`examples/dispatch.rs`). `WEFT_SYSCALLS=dispatch` and `off` decide instead.

#[cfg(all(target_arch = "x86_64", not(test)))]
pub use on_x86_64::{at_start, before_loading};

/// Looks at the objects of the program: nothing to do on this architecture.
#[cfg(any(not(target_arch = "x86_64"), test))]
pub fn at_start() {}

/// Looks at a library that is about to be loaded: nothing to do on this architecture.
#[cfg(any(not(target_arch = "x86_64"), test))]
pub fn before_loading(_path: &std::ffi::CStr) {}

#[cfg(all(target_arch = "x86_64", not(test)))]
mod on_x86_64 {
    use crate::guard::{self, ALLOW, BLOCK};
    use crate::hooks::inline_calls;
    use crate::lock::Lock;
    use crate::{config, errno, sys};
    use libc::{c_int, c_long, c_void, siginfo_t, sigset_t};
    use std::ffi::CStr;
    use std::sync::atomic::{AtomicBool, Ordering};

    const PR_SET_SYSCALL_USER_DISPATCH: c_int = 59;
    const PR_SYS_DISPATCH_ON: c_int = 1;
    /// `si_code` of a dispatched system call.
    const SYS_USER_DISPATCH: c_int = 2;
    /// Length of the instruction.
    const SYSCALL_LEN: i64 = 2;

    static ON: AtomicBool = AtomicBool::new(false);
    /// The program's own handler of `SIGSYS`.
    static PROGRAMS: Lock<Option<libc::sigaction>> = Lock::new(None);

    unsafe fn real_sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
        real!(sigaction: fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int)(signal, new, old)
    }

    /// Decides at the start of the program.
    pub fn at_start() {
        match config::variable("WEFT_SYSCALLS") {
            Some(b"off") => {}
            Some(b"dispatch") => begin(),
            _ if inline_calls::in_program() => begin(),
            _ => {}
        }
    }

    /// Decides again before a library is loaded.
    pub fn before_loading(path: &CStr) {
        if !ON.load(Ordering::Relaxed)
            && config::variable("WEFT_SYSCALLS") != Some(b"off")
            && inline_calls::in_file(path)
        {
            begin();
        }
    }

    /// Switches dispatch on in this thread, and in threads that it starts.
    fn begin() {
        if ON.swap(true, Ordering::SeqCst) {
            return;
        }
        // SAFETY: the handler is a function of this library, which is never unloaded.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = trapped as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_RESTART;
            let mut before: libc::sigaction = std::mem::zeroed();
            real_sigaction(libc::SIGSYS, &raw const action, &raw mut before);
            *PROGRAMS.lock() = Some(before);
            libc::pthread_atfork(None, None, Some(arm_child));
        }
        arm();
    }

    unsafe extern "C" fn arm_child() {
        // The holder does not exist in this process.
        PROGRAMS.reset();
        arm();
    }

    /// Switches dispatch on in this thread.
    fn arm() {
        let Some((start, len)) = inline_calls::code_of_libc() else { return };
        let selector = guard::selector();
        // SAFETY: the selector is a variable of this thread, and lives as long as it.
        let done = unsafe {
            sys::syscall(
                libc::SYS_prctl,
                [
                    PR_SET_SYSCALL_USER_DISPATCH as usize,
                    PR_SYS_DISPATCH_ON as usize,
                    start,
                    len,
                    selector as usize,
                    0,
                ],
            )
        };
        if done == 0 {
            guard::arm(BLOCK);
        }
    }

    /// Whether a call must be made by its own instruction: it uses the stack pointer, or the signal state of its place.
    fn needs_its_place(number: c_long) -> bool {
        matches!(
            number,
            libc::SYS_rt_sigreturn
                | libc::SYS_clone
                | libc::SYS_clone3
                | libc::SYS_fork
                | libc::SYS_vfork
                | libc::SYS_rt_sigprocmask
                | libc::SYS_sigaltstack
        )
    }

    unsafe extern "C" fn trapped(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
        if (*info).si_code != SYS_USER_DISPATCH {
            return programs_handler(signal, info, context);
        }
        let armed = guard::arm(ALLOW);
        let before = errno::get();
        let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let number = registers[libc::REG_RAX as usize];
        if needs_its_place(number) {
            // The thread makes the call again, and is dispatched again when it next leaves this library.
            registers[libc::REG_RIP as usize] -= SYSCALL_LEN;
            guard::rearm_later(armed);
            errno::set(before);
            return;
        }
        let names = [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9];
        let arguments = names.map(|name| registers[name as usize] as usize);
        let result = match crate::hooks::syscalls::serve(number, arguments) {
            Some(-1) => -c_long::from(errno::get()),
            Some(result) => result,
            None => sys::syscall(number, arguments) as c_long,
        };
        registers[libc::REG_RAX as usize] = result;
        errno::set(before);
        guard::arm(armed);
    }

    /// Passes on a signal that is not ours.
    unsafe fn programs_handler(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
        let handler = *PROGRAMS.lock();
        match handler {
            Some(action) if action.sa_sigaction == libc::SIG_IGN => {}
            Some(action) if action.sa_sigaction != libc::SIG_DFL => {
                type Handler = unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
                std::mem::transmute::<usize, Handler>(action.sa_sigaction)(signal, info, context);
            }
            _ => {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = libc::SIG_DFL;
                real_sigaction(signal, &raw const action, std::ptr::null_mut());
                sys::raise(signal);
            }
        }
    }

    /// Returns `set` without `SIGSYS`: the kernel ends a process that blocks the signal of a dispatched call.
    unsafe fn without_ours(set: *const sigset_t, room: &mut sigset_t) -> *const sigset_t {
        if set.is_null() || !ON.load(Ordering::Relaxed) || libc::sigismember(set, libc::SIGSYS) != 1 {
            return set;
        }
        *room = *set;
        libc::sigdelset(room, libc::SIGSYS);
        room
    }

    macro_rules! mask_hook {
        ($name:ident) => {
            /// Changes the thread's signal mask.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
                let mut room = std::mem::zeroed();
                let set = if how == libc::SIG_UNBLOCK { set } else { without_ours(set, &mut room) };
                real!($name: fn(c_int, *const sigset_t, *mut sigset_t) -> c_int)(how, set, old)
            }
        };
    }
    mask_hook!(sigprocmask);
    mask_hook!(pthread_sigmask);

    /// Changes a signal's action. That of `SIGSYS` is kept for signals that are not ours.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn sigaction(
        signal: c_int,
        new: *const libc::sigaction,
        old: *mut libc::sigaction,
    ) -> c_int {
        let real = |new, old| real_sigaction(signal, new, old);
        if !ON.load(Ordering::Relaxed) {
            return real(new, old);
        }
        if signal == libc::SIGSYS {
            let mut programs = PROGRAMS.lock();
            if !old.is_null() {
                *old = (*programs).unwrap_or(std::mem::zeroed());
            }
            if !new.is_null() {
                *programs = Some(*new);
            }
            return 0;
        }
        if new.is_null() {
            return real(new, old);
        }
        let mut changed = *new;
        libc::sigdelset(&mut changed.sa_mask, libc::SIGSYS);
        real(&raw const changed, old)
    }

    type Routine = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

    /// Start of a thread.
    struct Start {
        routine: Routine,
        argument: *mut c_void,
    }

    unsafe extern "C" fn armed_thread(start: *mut c_void) -> *mut c_void {
        let start = *Box::from_raw(start.cast::<Start>());
        arm();
        (start.routine)(start.argument)
    }

    /// Starts a thread; dispatch is on there, too, as the kernel does not pass it on.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn pthread_create(
        thread: *mut libc::pthread_t,
        attributes: *const libc::pthread_attr_t,
        routine: Routine,
        argument: *mut c_void,
    ) -> c_int {
        let real = real!(pthread_create: fn(
            *mut libc::pthread_t, *const libc::pthread_attr_t, Routine, *mut c_void
        ) -> c_int);
        if !ON.load(Ordering::Relaxed) {
            return real(thread, attributes, routine, argument);
        }
        let start = Box::into_raw(Box::new(Start { routine, argument }));
        let done = real(thread, attributes, armed_thread, start.cast());
        if done != 0 {
            drop(Box::from_raw(start));
        }
        done
    }
}
