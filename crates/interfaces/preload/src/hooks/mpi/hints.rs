//! Layout hints of `MPI_File_open`, and the actual values in `MPI_File_get_info`.
//!
//! Keys: `striping_unit` (bytes), `striping_factor` (targets, 0 for all), `weft_class`, `weft_first`, `weft_strips`
//! (`target:bytes,target:bytes,...`, which overrides the others) and `weft_compress` (as `weft setstripe --compress`).
//!
//! Keys of files whose bytes go through delegates: `weft_page_size` (bytes), and in `MPI_File_get_info` also
//! `weft_delegates` and `weft_delegate_memory` (bytes of each delegate).

use super::super::bytes;
use super::abi::{MPI_ERR_OTHER, Routine, info_handle, is_null_info, mpi};
use super::collective::{self, with_hints};
use super::files::routine;
use crate::backend::{File, backend, delegates, has_delegates};
use crate::lock::Lock;
use crate::open::{Open, with_layout, with_page_len};
use crate::over;
use crate::route::{Route, WeftPath, route};
use crate::serve::inside;
use crate::table;
use libc::{AT_FDCWD, c_char, c_int, c_void};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::sync::Arc;
use weft_core::delegates::ownership::FileNumber;
use weft_core::{ByteLen, COMPRESSION_ATTRIBUTE, FileId, Layout, TargetId};
use weft_wire::cluster::TargetEntry;
use weft_wire::meta::LayoutSpec;

type InfoGet = unsafe extern "C" fn(usize, *const c_char, c_int, *mut c_char, *mut c_int) -> c_int;
pub type InfoSet = unsafe extern "C" fn(usize, *const c_char, *const c_char) -> c_int;

/// Page lengths that a program may request, in bytes; multiples of the first.
const PAGE_LENS: std::ops::RangeInclusive<u64> = 4096..=64 << 20;

/// Maximum length of a key's value.
const VALUE_LEN_MAX: usize = 1024;

/// Returns the value of a key; `None` if it is not set.
pub unsafe fn info_value(info: usize, key: &CStr) -> Option<String> {
    let get = mpi(c"PMPI_Info_get")?;
    let get = std::mem::transmute::<*mut c_void, InfoGet>(get);
    let mut value = [0 as c_char; VALUE_LEN_MAX + 1];
    let mut has = 0;
    if get(info, key.as_ptr(), VALUE_LEN_MAX as c_int, value.as_mut_ptr(), &mut has) != 0 || has == 0 {
        return None;
    }
    CStr::from_ptr(value.as_ptr()).to_str().ok().map(|text| text.trim().to_owned())
}

/// Returns the layout that the keys of `info` request. Invalid values are ignored, as MPI requires for hints.
unsafe fn requested_layout(info: usize) -> LayoutSpec {
    let mut spec = LayoutSpec::default();
    if is_null_info(info) {
        return spec;
    }
    let number = |key: &CStr| info_value(info, key).and_then(|text| text.parse::<u64>().ok());
    spec.stripe_size = number(c"striping_unit").filter(|&size| size > 0).map(ByteLen);
    spec.stripe_count =
        number(c"striping_factor").and_then(|count| u32::try_from(count).ok()).filter(|&n| n > 0);
    spec.first = number(c"weft_first").and_then(|first| u32::try_from(first).ok());
    spec.class = info_value(info, c"weft_class").filter(|class| !class.is_empty());
    spec.strips = info_value(info, c"weft_strips").and_then(|text| strips(&text));
    spec.compression = info_value(info, c"weft_compress").and_then(|text| text.parse().ok());
    spec
}

/// Parses `target:bytes,target:bytes,...`.
fn strips(text: &str) -> Option<Vec<(TargetId, ByteLen)>> {
    text.split(',')
        .map(|part| {
            let (target, size) = part.split_once(':')?;
            let size = size.trim().parse().ok().filter(|&size: &u64| size > 0)?;
            Some((TargetId(target.trim().parse().ok()?), ByteLen(size)))
        })
        .collect()
}

/// Returns the page length at the delegates that the keys of `info` request.
unsafe fn requested_page_len(info: usize) -> Option<u64> {
    if !has_delegates() || is_null_info(info) {
        return None;
    }
    let len = info_value(info, c"weft_page_size")?.parse().ok()?;
    (PAGE_LENS.contains(&len) && len % PAGE_LENS.start() == 0).then_some(len)
}

/// File opened through MPI.
#[derive(Clone)]
enum Opened {
    /// File of Weft.
    Weft(WeftPath),
    /// File of the host that delegates serve.
    Host(CString),
}

impl Opened {
    /// Returns the file that MPI calls `name`, if it is one of these.
    unsafe fn named(name: *const c_char) -> Option<Self> {
        let plain = plain_name(name)?;
        match route(AT_FDCWD, plain.as_ptr()) {
            Route::Ours(weft_path) => Some(Self::Weft(weft_path)),
            Route::Foreign if has_delegates() && over::is_on() && over::lies_below(&plain) => {
                Some(Self::Host(plain))
            }
            _ => None,
        }
    }

    /// Returns the file's number at the delegates.
    fn number(&self) -> Option<FileNumber> {
        match self {
            Self::Weft(weft_path) => {
                let inode = inside(|| backend()?.stat(weft_path, true)).ok()?.st_ino;
                Some(FileNumber::of_weft(FileId(inode)))
            }
            Self::Host(path) => over::number_at(path),
        }
    }
}

// Such files opened through MPI, by handle.
static FILES: Lock<BTreeMap<usize, Opened>> = Lock::new(BTreeMap::new());

/// Returns the name without ROMIO's file system prefix (`ufs:`).
pub unsafe fn plain_name(name: *const c_char) -> Option<CString> {
    let text = bytes(name).ok()?;
    let plain = match text.iter().position(|&byte| byte == b':') {
        Some(at) if !text[..at].contains(&b'/') => &text[at + 1..],
        _ => text,
    };
    CString::new(plain).ok()
}

/// Opens a file with `open`; a Weft file is created with the layout that `info` requests, and a file of delegates gets
/// pages of the requested length. Registers the file under its handle, which `open` stores in `file`.
pub unsafe fn opened(
    name: *const c_char,
    info: usize,
    file: *const usize,
    open: impl FnOnce(usize) -> c_int,
) -> c_int {
    let Some(opened) = Opened::named(name) else {
        let result = open(info);
        if result == 0 && !file.is_null() {
            // The handle may have been that of a Weft file, closed since.
            closed(*file);
        }
        return result;
    };
    let spec = requested_layout(info);
    let page_len = requested_page_len(info);
    let result = with_layout(&spec, || with_page_len(page_len, || with_hints(info, file, open)));
    if result == 0 && !file.is_null() {
        FILES.lock().insert(*file, opened);
    }
    result
}

/// Unregisters a file that was closed.
pub fn closed(file: usize) {
    collective::closed(file);
    FILES.lock().remove(&file);
}

// The hints of a file; for a Weft file with the values of its actual layout, for a file of delegates with theirs.
routine! { MPI_File_get_info(file: usize, info: *mut c_void) |real| {
    let result = real(file, info);
    if result != 0 {
        return result;
    }
    let opened = FILES.lock().get(&file).cloned();
    if let Some(opened) = opened
        && let Some(set) = mpi(c"PMPI_Info_set")
    {
        let set = std::mem::transmute::<*mut c_void, InfoSet>(set);
        let handle = info_handle(info, set as *const c_void);
        let of_layout = match &opened {
            Opened::Weft(weft_path) => facts_of_layout(weft_path),
            Opened::Host(_) => Vec::new(),
        };
        for (key, value) in of_layout.into_iter().chain(facts_of_delegates(&opened)) {
            let value = CString::new(value).unwrap_or_default();
            set(handle, key.as_ptr(), value.as_ptr());
        }
    }
    result
} }

type Facts = Vec<(&'static CStr, String)>;

/// Returns the delegates and the page length of a file as keys, if its bytes go through them.
fn facts_of_delegates(opened: &Opened) -> Facts {
    if !has_delegates() {
        return Vec::new();
    }
    let facts = inside(|| {
        let settings = delegates()?.settings();
        let mut facts = vec![
            (c"weft_delegates", settings.delegates.to_string()),
            (c"weft_delegate_memory", settings.memory.0.to_string()),
        ];
        let is_same = |open: &Arc<Open>| {
            let number = open.file().ok().and_then(File::number);
            number.is_some() && number == opened.number()
        };
        let mut opens =
            table::all(0, u32::MAX).into_iter().filter_map(|fd| Some(Arc::clone(&*table::get(fd)?)));
        let page_len = opens.find(is_same).and_then(|open| open.file().ok()?.page_len());
        facts.extend(page_len.map(|len| (c"weft_page_size", len.to_string())));
        Ok(facts)
    });
    facts.unwrap_or_default()
}

/// Returns layout and compression of a Weft file as keys.
fn facts_of_layout(weft_path: &WeftPath) -> Facts {
    let Ok(Some(layout)) = inside(|| backend()?.layout(weft_path)) else { return Vec::new() };
    let targets = backend().map_or_else(|_| Vec::new(), |backend| backend.targets());
    let compression = inside(|| backend()?.get_xattr(weft_path, true, COMPRESSION_ATTRIBUTE)).ok();
    let compression = compression.and_then(|value| String::from_utf8(value).ok());
    let mut facts = facts(&layout, &targets);
    facts.extend(compression.map(|setting| (c"weft_compress", setting)));
    facts
}

/// Returns a layout as keys, based on its first component. The class is included if all targets share it. The first
/// target is an index among the targets of that class, or of all.
fn facts(layout: &Layout, targets: &[TargetEntry]) -> Facts {
    let Some(first) = layout.components().first() else { return Vec::new() };
    let strips = &first.strips;
    let class_of = |target| targets.iter().find(|entry| entry.id == target).map(|entry| entry.class.as_str());
    let class = strips.first().and_then(|strip| class_of(strip.target));
    let class = class.filter(|&class| strips.iter().all(|strip| class_of(strip.target) == Some(class)));
    let mut fitting = targets.iter().filter(|entry| class.is_none_or(|class| entry.class == class));
    let index = strips.first().and_then(|strip| fitting.position(|entry| entry.id == strip.target));
    let mut facts = vec![(c"striping_factor", strips.len().to_string())];
    if let Some(strip) = strips.first() {
        facts.push((c"striping_unit", strip.stripe_size.0.to_string()));
    }
    facts.extend(class.map(|class| (c"weft_class", class.to_owned())));
    facts.extend(index.map(|index| (c"weft_first", index.to_string())));
    let list: Vec<_> =
        strips.iter().map(|strip| format!("{}:{}", strip.target.0, strip.stripe_size.0)).collect();
    let list = list.join(",");
    // Portable limit of an info value.
    if list.len() < 256 {
        facts.push((c"weft_strips", list));
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_hints_include_class_and_first_target() {
        let entry = |id, class: &str| TargetEntry {
            id: TargetId(id),
            server: weft_core::ServerId(0),
            class: class.to_owned(),
        };
        let targets = [entry(0, "hdd"), entry(1, "hdd"), entry(2, "ssd"), entry(3, "ssd")];
        let hints_of = |ids: &[u32]| {
            let ids: Vec<_> = ids.iter().map(|&id| TargetId(id)).collect();
            let layout = Layout::striped(&ids, ByteLen(4096)).expect("a layout");
            let facts = facts(&layout, &targets);
            let value = |key| facts.iter().find(|(name, _)| *name == key).map(|(_, value)| value.clone());
            (value(c"weft_class"), value(c"weft_first"))
        };
        assert_eq!(hints_of(&[3, 2]), (Some("ssd".into()), Some("1".into())));
        assert_eq!(hints_of(&[3, 0]), (None, Some("3".into())));
    }

    #[test]
    fn strips_are_pairs_of_target_and_size() {
        assert_eq!(
            strips("3:4096, 1:65536"),
            Some(vec![(TargetId(3), ByteLen(4096)), (TargetId(1), ByteLen(65536))])
        );
        for wrong in ["", "3", "3:0", "a:1", "3:4096,"] {
            assert_eq!(strips(wrong), None, "{wrong}");
        }
    }
}
