//! The hooks, grouped by purpose. Each libc function has one definition here; the modules that it calls implement it.

pub mod aio;
mod attrs;
mod cwd;
mod data;
mod descriptors;
mod directories;
pub mod dispatch;
pub mod fts;
mod ftw;
mod identity;
#[cfg(target_arch = "x86_64")]
mod inline_calls;
mod libaio;
mod libraries;
mod locks;
mod maps;
#[allow(non_snake_case)] // The names are MPI's.
pub mod mpi;
pub mod names;
mod openat2;
mod pairs;
pub mod process;
mod program;
mod spawn;
mod splices;
pub mod stdio;
mod streams;
mod syscalls;
mod temporary;
mod transfer;
mod unloadable;
mod walks;
mod xattrs;

pub use attrs::{fstat, resolved};
pub use data::{lseek, read, write};
pub use descriptors::close;
pub use locks::waiting;
pub use pairs::has_directory_of;

/// Whether `text` is an empty C string.
unsafe fn is_empty(text: *const libc::c_char) -> bool {
    crate::memory::is_text(text) && *text == 0
}

/// Returns a C string as bytes.
///
/// # Safety
/// `text` is a C string or null.
unsafe fn bytes<'a>(text: *const libc::c_char) -> crate::errno::Res<&'a [u8]> {
    if !crate::memory::is_text(text) {
        return Err(libc::EFAULT.into());
    }
    Ok(std::ffi::CStr::from_ptr(text).to_bytes())
}
