//! What a routine of MPI-IO becomes in a trace: one record for each call of a rank.
//!
//! * The offset is that of the first byte in the file, whatever the view: MPI is asked for the pointer and where that
//!   lies. The length is what was moved; with a view that has gaps these bytes lie further apart, and the POSIX
//!   operations say where.
//! * A blocking call ends when it returns. Of a split collective the begin begins it and the end ends it. A nonblocking
//!   one ends, as far as the trace knows, when the call that began it returns: waiting is done by routines that messages
//!   use, too, which are left alone.
//! * Of files that are opened for sequential access MPI does not tell pointers: they have no records of accesses.
//! * The shared pointer is asked for before the call; ranks that run at the same time may have moved it meanwhile.

use super::abi::{self, Mode, Routine};
use super::hints::plain_name;
use crate::lock::Lock;
use crate::route::{Route, route};
use crate::trace::{self, FileRef, Level, Operation, Start};
use crate::{guard, pathname, sys};
use libc::{AT_FDCWD, c_char, c_int, c_void};
use std::cell::Cell;
use std::collections::BTreeMap;

/// An access that a program asks for.
#[derive(Clone, Copy)]
pub struct Access {
    /// The handle of the file.
    pub file: usize,
    /// [`Operation::Read`] or [`Operation::Write`].
    pub op: Operation,
    /// Whether all ranks of the file make it together.
    pub collective: bool,
    /// Where.
    pub place: Place,
    /// How many of `datatype`.
    pub count: i64,
    /// The handle of the type.
    pub datatype: usize,
}

/// Where an access begins.
#[derive(Clone, Copy)]
pub enum Place {
    /// At an offset in the view, in its elementary type.
    At(i64),
    /// At the rank's own pointer.
    Own,
    /// At the pointer that all ranks share.
    Shared,
}

/// An access that has begun.
#[derive(Clone, Copy)]
pub struct Begun {
    start: Start,
    file: FileRef,
    access: Access,
    offset: u64,
    /// Bytes of the type.
    unit: u64,
}

#[derive(Clone, Copy)]
struct Traced {
    file: FileRef,
    /// Whether MPI tells where its pointers are: not of a file that is opened for sequential access.
    has_places: bool,
    /// A split collective that has begun.
    split: Option<Begun>,
}

// The traced files that are open by MPI, by handle.
static TRACED: Lock<BTreeMap<usize, Traced>> = Lock::new(BTreeMap::new());

thread_local! {
    /// Calls that an MPI makes of itself are part of the program's.
    static WITHIN: Cell<bool> = const { Cell::new(false) };
}

/// Within a call of the program until dropped.
pub struct Within(());

impl Within {
    pub fn enter() -> Option<Self> {
        (!WITHIN.replace(true)).then_some(Self(()))
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        WITHIN.set(false);
    }
}

type OfFile = unsafe extern "C" fn(usize, *mut i64) -> c_int;
type ByteOffset = unsafe extern "C" fn(usize, i64, *mut i64) -> c_int;
type TypeSize = unsafe extern "C" fn(usize, *mut i64) -> c_int;
type TypeSizeInt = unsafe extern "C" fn(usize, *mut c_int) -> c_int;
type GetCount = unsafe extern "C" fn(*const c_void, usize, *mut c_int) -> c_int;

/// A number that MPI tells, when it is one.
unsafe fn number(ask: impl FnOnce(*mut i64) -> c_int) -> Option<i64> {
    let mut answer = -1;
    (ask(&mut answer) == 0 && answer >= 0).then_some(answer)
}

impl Access {
    /// Where it begins in the file, in bytes.
    unsafe fn offset(&self) -> Option<u64> {
        static OWN: Routine = Routine::new(c"PMPI_File_get_position");
        static SHARED: Routine = Routine::new(c"PMPI_File_get_position_shared");
        static BYTES: Routine = Routine::new(c"PMPI_File_get_byte_offset");
        let asked = |routine: &Routine| {
            let ask = std::mem::transmute::<*mut c_void, OfFile>(routine.find()?);
            number(|answer| ask(self.file, answer))
        };
        let place = match self.place {
            Place::At(offset) => offset,
            Place::Own => asked(&OWN)?,
            Place::Shared => asked(&SHARED)?,
        };
        let ask = std::mem::transmute::<*mut c_void, ByteOffset>(BYTES.find()?);
        number(|answer| ask(self.file, place, answer)).map(|offset| offset as u64)
    }

    /// Bytes of its type.
    unsafe fn unit(&self) -> Option<u64> {
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

    /// The access as it begins; `None` for files that are not traced.
    pub unsafe fn begin(self) -> Option<Begun> {
        if guard::inside() {
            return None;
        }
        let Traced { file, has_places, .. } = TRACED.lock().get(&self.file).copied()?;
        // Nothing may be asked that would be an error: the program's handler might end it.
        if !has_places {
            return None;
        }
        let unit = if self.count > 0 { self.unit()? } else { 0 };
        let offset = self.offset()?;
        Some(Begun { start: trace::begin()?, file, access: self, offset, unit })
    }
}

impl Begun {
    /// It moved all that it was to move.
    pub fn ended(&self) {
        self.moved(self.access.count.max(0) as u64);
    }

    /// It ended with `status`, which is MPI's own: a read at the end of the file moves less than was asked for.
    pub unsafe fn ended_with(&self, status: *const c_void) {
        static COUNT: Routine = Routine::new(c"PMPI_Get_count");
        let asked = self.access.count.max(0) as u64;
        if asked == 0 {
            return self.moved(0);
        }
        let count = COUNT.find().and_then(|ask| {
            let ask = std::mem::transmute::<*mut c_void, GetCount>(ask);
            let mut count = -1;
            // What is no whole number of the type, or too large for an int, MPI tells by a negative number.
            (ask(status, self.access.datatype, &mut count) == 0 && count >= 0).then_some(count as u64)
        });
        // Some routines say of a type without length that nothing is known.
        self.moved(count.unwrap_or(asked).min(asked));
    }

    fn moved(&self, count: u64) {
        let range = (self.offset, count.saturating_mul(self.unit));
        let Access { op, collective, .. } = self.access;
        trace::record(self.start, self.file, Level::MpiIo, op, collective, range);
    }

    /// It is the first half of a split collective.
    pub fn split(self) {
        if let Some(traced) = TRACED.lock().get_mut(&self.access.file) {
            traced.split = Some(self);
        }
    }
}

/// The split collective that is under way on a file, which ends now.
pub fn split_ended(file: usize) -> Option<Begun> {
    TRACED.lock().get_mut(&file)?.split.take()
}

/// A status for a call whose caller wants none, large and aligned enough for any MPI.
pub type OwnStatus = [u64; 16];

/// Whether the caller wants no status, in any of the ABIs.
pub fn is_ignored(status: *const c_void) -> bool {
    status.addr() <= 1
}

/// A file was opened.
pub unsafe fn opened(start: Start, name: *const c_char, mode: Mode, handle: usize) {
    tell_rank();
    let Some(file) = file_at(name) else {
        TRACED.lock().remove(&handle);
        return;
    };
    TRACED.lock().insert(handle, Traced { file, has_places: !mode.sequential, split: None });
    let op = if mode.creates { Operation::Create } else { Operation::Open };
    trace::record(start, file, Level::MpiIo, op, true, (0, 0));
}

/// A file is closed: what it was.
pub fn closing(handle: usize) -> Option<FileRef> {
    TRACED.lock().remove(&handle).map(|traced| traced.file)
}

/// A call about a file as a whole; a new length stands in `offset`.
pub fn whole(start: Start, file: FileRef, op: Operation, collective: bool, offset: i64) {
    trace::record(start, file, Level::MpiIo, op, collective, (offset.max(0) as u64, 0));
}

/// The traced file of a handle.
pub fn of(handle: usize) -> Option<FileRef> {
    TRACED.lock().get(&handle).map(|traced| traced.file)
}

/// The file of a name as POSIX operations name it: its real path.
pub unsafe fn file_at(name: *const c_char) -> Option<FileRef> {
    let plain = plain_name(name)?;
    let path = match route(AT_FDCWD, plain.as_ptr()) {
        Route::Ours(spot) => crate::route::full(&spot.text),
        _ => {
            let _inside = guard::enter();
            // Descriptors are told by the path that they were opened by, links resolved.
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

/// Tells the tracer the rank of this process, once MPI knows it.
pub unsafe fn tell_rank() {
    static INITIALIZED: Routine = Routine::new(c"PMPI_Initialized");
    static RANK: Routine = Routine::new(c"PMPI_Comm_rank");
    type Initialized = unsafe extern "C" fn(*mut c_int) -> c_int;
    type CommRank = unsafe extern "C" fn(usize, *mut c_int) -> c_int;
    let (Some(initialized), Some(rank)) = (INITIALIZED.find(), RANK.find()) else { return };
    let mut is = 0;
    // With sessions alone there is no world, and asking for it would end the program.
    if std::mem::transmute::<*mut c_void, Initialized>(initialized)(&mut is) != 0 || is == 0 {
        return;
    }
    let mut number = -1;
    let ask = std::mem::transmute::<*mut c_void, CommRank>(rank);
    if ask(abi::world(rank), &mut number) == 0 && number >= 0 {
        trace::set_rank(number as u32);
    }
}
