//! Processors that a thread runs on.

use super::call;
use std::io;

/// Set of processors, up to the capacity of the C library's type.
#[derive(Clone, Copy)]
pub struct ProcessorSet(libc::cpu_set_t);

impl ProcessorSet {
    /// Returns the processors that this thread may run on.
    pub fn of_thread() -> io::Result<Self> {
        // SAFETY: zeros are the empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes at most the size of `set` to it.
        unsafe { call!(SYS_sched_getaffinity, 0, size_of_val(&set), &raw mut set) }?;
        Ok(Self(set))
    }

    /// Returns a set with one processor of this set; `None` if it is not a member.
    pub fn only(&self, processor: usize) -> Option<Self> {
        if processor >= 8 * size_of::<libc::cpu_set_t>() {
            return None;
        }
        // SAFETY: the number lies within the set, and zeros are the empty set.
        unsafe {
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(processor, &mut one);
            libc::CPU_ISSET(processor, &self.0).then_some(Self(one))
        }
    }

    /// Returns the number of processors.
    pub fn len(&self) -> usize {
        // SAFETY: any bytes are a set.
        unsafe { libc::CPU_COUNT(&self.0) as usize }
    }

    /// Binds this thread to the processors of this set.
    pub fn bind_thread(&self) -> io::Result<()> {
        // SAFETY: the kernel reads the size of the set.
        unsafe { call!(SYS_sched_setaffinity, 0, size_of_val(&self.0), &raw const self.0) }.map(drop)
    }
}

/// Returns the processor that this thread runs on.
pub fn current_processor() -> Option<usize> {
    // SAFETY: no memory is involved. The C library answers without a system call if the kernel supports it.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}
