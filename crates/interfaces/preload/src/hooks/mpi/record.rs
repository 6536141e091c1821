//! Trace records of MPI-IO: one for each call of a rank.
//!
//! * The offset is that of the first byte in the file, whatever the view: MPI is queried for the pointer and its
//!   position in the file. The length is the number of bytes moved. With a view that has gaps, these bytes lie further
//!   apart; the POSIX operations show their positions.
//! * A blocking call ends when it returns. A split collective extends from its begin call to its end call. A
//!   nonblocking call ends in the trace when the starting call returns: the routines that wait are also used for
//!   messages and are not hooked.
//! * For files opened for sequential access, MPI does not report pointers: their accesses are not recorded.
//! * The shared pointer is queried before the call; concurrent ranks may have moved it in between.

use super::abi::{self, Mode, Routine};
use super::hints::plain_name;
use crate::lock::Lock;
use crate::route::{Route, route};
use crate::trace::{self, FileRef, Level, Operation, Start};
use crate::{guard, pathname, sys};
use libc::{AT_FDCWD, c_char, c_int, c_void};
use std::cell::Cell;
use std::collections::BTreeMap;

/// Access that a program requests.
#[derive(Clone, Copy)]
pub struct Access {
    /// Handle of the file.
    pub file: usize,
    /// [`Operation::Read`] or [`Operation::Write`].
    pub op: Operation,
    /// Whether the access is collective.
    pub collective: bool,
    /// Start position.
    pub place: AccessPosition,
    /// Number of elements of `datatype`.
    pub count: i64,
    /// Handle of the type.
    pub datatype: usize,
    /// Address of the program's buffer.
    pub memory: usize,
}

impl Access {
    /// Whether the ranks access the file one after the other, at the shared pointer.
    pub fn is_ordered(&self) -> bool {
        self.collective && matches!(self.place, AccessPosition::Shared)
    }
}

/// Start position of an access.
#[derive(Clone, Copy)]
pub enum AccessPosition {
    /// An offset in the view, in units of its elementary type.
    At(i64),
    /// The rank's individual pointer.
    Own,
    /// The shared pointer.
    Shared,
}

/// Access in progress.
#[derive(Clone, Copy)]
pub struct PendingAccess {
    start: Start,
    file: FileRef,
    access: Access,
    offset: u64,
    /// Size of the type in bytes.
    unit: u64,
}

#[derive(Clone, Copy)]
struct Traced {
    file: FileRef,
    /// Whether MPI reports pointers: not for a file opened for sequential access.
    has_places: bool,
    /// Split collective in progress.
    split: Option<PendingAccess>,
}

// Traced files opened through MPI, by handle.
static TRACED: Lock<BTreeMap<usize, Traced>> = Lock::new(BTreeMap::new());

thread_local! {
    /// Whether the thread is in a hooked call: nested calls that an MPI makes are part of it.
    static IN_HOOKED_CALL: Cell<bool> = const { Cell::new(false) };
}

/// Marks the thread as in a hooked call until dropped.
pub struct HookedCall(());

impl HookedCall {
    pub fn enter() -> Option<Self> {
        (!IN_HOOKED_CALL.replace(true)).then_some(Self(()))
    }
}

impl Drop for HookedCall {
    fn drop(&mut self) {
        IN_HOOKED_CALL.set(false);
    }
}

type OfFile = unsafe extern "C" fn(usize, *mut i64) -> c_int;
type ByteOffset = unsafe extern "C" fn(usize, i64, *mut i64) -> c_int;
type TypeSize = unsafe extern "C" fn(usize, *mut i64) -> c_int;
type TypeSizeInt = unsafe extern "C" fn(usize, *mut c_int) -> c_int;
type GetCount = unsafe extern "C" fn(*const c_void, usize, *mut c_int) -> c_int;

/// Queries a number from MPI; `None` on an error.
unsafe fn number(ask: impl FnOnce(*mut i64) -> c_int) -> Option<i64> {
    let mut answer = -1;
    (ask(&mut answer) == 0 && answer >= 0).then_some(answer)
}

impl Access {
    /// Returns the start of the access in the file, in bytes.
    unsafe fn offset(&self) -> Option<u64> {
        static OWN: Routine = Routine::new(c"PMPI_File_get_position");
        static SHARED: Routine = Routine::new(c"PMPI_File_get_position_shared");
        static BYTES: Routine = Routine::new(c"PMPI_File_get_byte_offset");
        let requested = |routine: &Routine| {
            let ask = std::mem::transmute::<*mut c_void, OfFile>(routine.find()?);
            number(|answer| ask(self.file, answer))
        };
        let place = match self.place {
            AccessPosition::At(offset) => offset,
            AccessPosition::Own => requested(&OWN)?,
            AccessPosition::Shared => requested(&SHARED)?,
        };
        let ask = std::mem::transmute::<*mut c_void, ByteOffset>(BYTES.find()?);
        number(|answer| ask(self.file, place, answer)).map(|offset| offset as u64)
    }

    /// Returns the size of its type in bytes.
    pub unsafe fn unit(&self) -> Option<u64> {
        static LARGE: Routine = Routine::new(c"PMPI_Type_size_x");
        static SMALL: Routine = Routine::new(c"PMPI_Type_size");
        if let Some(ask) = LARGE.find() {
            let ask = std::mem::transmute::<*mut c_void, TypeSize>(ask);
            return number(|answer| ask(self.datatype, answer)).map(|size| size as u64);
        }
        let ask = std::mem::transmute::<*mut c_void, TypeSizeInt>(SMALL.find()?);
        let mut size = -1;
        (ask(self.datatype, &mut size) == 0 && size >= 0).then_some(size as u64)
    }

    /// Starts the access; `None` for files that are not traced.
    pub unsafe fn begin(self) -> Option<PendingAccess> {
        if guard::inside() {
            return None;
        }
        let Traced { file, has_places, .. } = TRACED.lock().get(&self.file).copied()?;
        // No erroneous query is allowed: the program's error handler might abort it.
        if !has_places {
            return None;
        }
        let unit = if self.count > 0 { self.unit()? } else { 0 };
        let offset = self.offset()?;
        Some(PendingAccess { start: trace::begin()?, file, access: self, offset, unit })
    }
}

impl PendingAccess {
    /// Records that the access moved all its bytes.
    pub fn ended(&self) {
        self.moved(self.access.count.max(0) as u64);
    }

    /// Records the end of the access with MPI's `status`: a read at the end of the file moves less than requested.
    pub unsafe fn ended_with(&self, status: *const c_void) {
        static COUNT: Routine = Routine::new(c"PMPI_Get_count");
        let requested = self.access.count.max(0) as u64;
        if requested == 0 {
            return self.moved(0);
        }
        let count = COUNT.find().and_then(|ask| {
            let ask = std::mem::transmute::<*mut c_void, GetCount>(ask);
            let mut count = -1;
            // MPI reports a negative number if the count is not a whole number of elements or too large for an int.
            (ask(status, self.access.datatype, &mut count) == 0 && count >= 0).then_some(count as u64)
        });
        // Some routines report an unknown count for a type without length.
        self.moved(count.unwrap_or(requested).min(requested));
    }

    fn moved(&self, count: u64) {
        let range = (self.offset, count.saturating_mul(self.unit));
        let Access { op, collective, .. } = self.access;
        trace::record(self.start, self.file, Level::MpiIo, op, collective, range);
    }

    /// Stores the first half of a split collective.
    pub fn split(self) {
        if let Some(traced) = TRACED.lock().get_mut(&self.access.file) {
            traced.split = Some(self);
        }
    }
}

/// Returns the split collective of a file, which ends now.
pub fn split_ended(file: usize) -> Option<PendingAccess> {
    TRACED.lock().get_mut(&file)?.split.take()
}

/// Status for a call whose caller ignores it, large and aligned enough for any MPI.
pub type OwnStatus = [u64; 16];

/// Whether the caller ignores the status, in any of the ABIs.
pub fn is_ignored(status: *const c_void) -> bool {
    status.addr() <= 1
}

/// Records that a file was opened.
pub unsafe fn opened(start: Start, name: *const c_char, mode: Mode, handle: usize) {
    record_rank();
    let Some(file) = file_at(name) else {
        TRACED.lock().remove(&handle);
        return;
    };
    TRACED.lock().insert(handle, Traced { file, has_places: !mode.sequential, split: None });
    let op = if mode.creates { Operation::Create } else { Operation::Open };
    trace::record(start, file, Level::MpiIo, op, true, (0, 0));
}

/// Returns the file of a handle that is being closed.
pub fn closing(handle: usize) -> Option<FileRef> {
    TRACED.lock().remove(&handle).map(|traced| traced.file)
}

/// Records a call on a whole file; `offset` contains a new length.
pub fn whole(start: Start, file: FileRef, op: Operation, collective: bool, offset: i64) {
    trace::record(start, file, Level::MpiIo, op, collective, (offset.max(0) as u64, 0));
}

/// Returns the traced file of a handle.
pub fn of(handle: usize) -> Option<FileRef> {
    TRACED.lock().get(&handle).map(|traced| traced.file)
}

/// Returns the file of a name as POSIX operations name it: by its real path.
pub unsafe fn file_at(name: *const c_char) -> Option<FileRef> {
    let plain = plain_name(name)?;
    let path = match route(AT_FDCWD, plain.as_ptr()) {
        Route::Ours(weft_path) => crate::route::full(&weft_path.text),
        _ => {
            let _inside = guard::enter();
            // The trace names descriptors by the path of their open, with links resolved.
            let real = sys::open(&plain, libc::O_PATH | libc::O_CLOEXEC, 0).and_then(|fd| {
                let link = sys::c(format!("/proc/self/fd/{fd}").as_bytes());
                let real = sys::readlinkat(AT_FDCWD, &link);
                sys::close(fd);
                real
            });
            real.unwrap_or_else(|_| pathname::join(&sys::getcwd(), plain.as_bytes()))
        }
    };
    trace::file(&path)
}

/// Sets the rank of this process in the tracer, once MPI knows it.
pub unsafe fn record_rank() {
    static INITIALIZED: Routine = Routine::new(c"PMPI_Initialized");
    static RANK: Routine = Routine::new(c"PMPI_Comm_rank");
    type Initialized = unsafe extern "C" fn(*mut c_int) -> c_int;
    type CommRank = unsafe extern "C" fn(usize, *mut c_int) -> c_int;
    let (Some(initialized), Some(rank)) = (INITIALIZED.find(), RANK.find()) else { return };
    let mut is = 0;
    // A process that uses only sessions has no world communicator, and querying it would abort the program.
    if std::mem::transmute::<*mut c_void, Initialized>(initialized)(&mut is) != 0 || is == 0 {
        return;
    }
    let mut number = -1;
    let ask = std::mem::transmute::<*mut c_void, CommRank>(rank);
    if ask(abi::world(rank), &mut number) == 0 && number >= 0 {
        trace::set_rank(number as u32);
    }
}
