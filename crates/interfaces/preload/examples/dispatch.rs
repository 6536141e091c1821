//! Measures what syscall user dispatch costs: `cargo run --release -p weft-preload --example dispatch`.
//!
//! Prints nanoseconds of a short system call by the C library before and after dispatch is on, and of one by a machine
//! instruction, which a handler of `SIGSYS` makes.

#[cfg(not(target_arch = "x86_64"))]
fn main() {
    println!("syscall user dispatch exists on x86-64 only");
}

#[cfg(target_arch = "x86_64")]
fn main() {
    measured::main();
}

#[cfg(target_arch = "x86_64")]
mod measured {
    use std::ffi::{c_int, c_void};
    use std::time::Instant;

    const CALLS: u32 = 1_000_000;
    const PR_SET_SYSCALL_USER_DISPATCH: c_int = 59;

    /// Byte that the kernel reads: 0 makes calls, 1 dispatches them.
    static mut SELECTOR: u8 = 0;

    /// Makes a system call without arguments by its instruction.
    fn by_instruction(number: i64) -> i64 {
        let result;
        // SAFETY: a call that changes nothing.
        unsafe {
            std::arch::asm!("syscall", inlateout("rax") number => result, lateout("rcx") _, lateout("r11") _);
        }
        result
    }

    unsafe extern "C" fn trapped(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
        // SAFETY: the kernel passes the thread's context; the selector is this thread's.
        unsafe {
            SELECTOR = 0;
            let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
            registers[libc::REG_RAX as usize] = by_instruction(registers[libc::REG_RAX as usize]);
            SELECTOR = 1;
        }
    }

    fn each_ns(call: impl Fn()) -> f64 {
        let begin = Instant::now();
        (0..CALLS).for_each(|_| call());
        begin.elapsed().as_nanos() as f64 / f64::from(CALLS)
    }

    /// Returns begin and length of the code that contains `address`.
    fn code_around(address: usize) -> (usize, usize) {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("the own mappings");
        let ranges = maps.lines().filter_map(|line| {
            let (start, end) = line.split_whitespace().next()?.split_once('-')?;
            Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
        });
        let mut ranges = ranges.filter(|(start, end)| (*start..*end).contains(&address));
        let (start, end) = ranges.next().expect("code of the C library");
        (start, end - start)
    }

    pub fn main() {
        // SAFETY: calls without pointers to anything that ends.
        unsafe {
            let by_library = || {
                libc::getppid();
            };
            println!("by the C library, dispatch off: {:.0} ns", each_ns(by_library));
            println!(
                "by instruction, dispatch off: {:.0} ns",
                each_ns(|| {
                    by_instruction(libc::SYS_getppid);
                })
            );
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = trapped as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
            libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut());
            let (start, len) = code_around(libc::getppid as *const () as usize);
            let selector = &raw mut SELECTOR;
            if libc::prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, start, len, selector) != 0 {
                println!("this kernel has no syscall user dispatch");
                return;
            }
            SELECTOR = 1;
            let library = each_ns(by_library);
            let instruction = each_ns(|| {
                by_instruction(libc::SYS_getppid);
            });
            SELECTOR = 0;
            println!("by the C library, dispatch on: {library:.0} ns");
            println!("by instruction, dispatch on: {instruction:.0} ns");
        }
    }
}
