//! Layouts: requested at creation, and queried.

use crate::args;
use crate::connection::{Weft, connection};
use crate::fail::{Fail, Res, exported};
use libc::{size_t, ssize_t};
use std::ffi::{c_char, c_int};
use weft_core::{ByteLen, COMPRESSION_ATTRIBUTE, CompressionSetting, Layout, TargetId};
use weft_env::real::block_on;

/// `weft_strip_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Strip {
    target: u32,
    reserved: u32,
    stripe_size: u64,
}

/// `weft_layout_spec_t`.
#[repr(C)]
pub struct LayoutSpec {
    stripe_size: u64,
    stripe_count: u32,
    first: i32,
    class_name: *const c_char,
    strips: *const Strip,
    strip_count: size_t,
}

/// `weft_column_t`.
#[repr(C)]
pub struct Column {
    start: u64,
    end: u64,
    stripe_size: u64,
    target: u32,
    component: u16,
    column: u16,
}

/// Converts a spec from C; a null pointer requests nothing.
///
/// # Safety
/// `spec` is null, or a spec whose pointers are null or valid.
pub unsafe fn spec_from(spec: *const LayoutSpec) -> Res<weft_client::LayoutSpec> {
    // SAFETY: the caller's promise.
    let Some(spec) = (unsafe { spec.as_ref() }) else { return Ok(weft_client::LayoutSpec::default()) };
    let class = match spec.class_name.is_null() {
        true => None,
        // SAFETY: as above.
        false => Some(unsafe { args::text(spec.class_name, "the class")? }.to_owned()),
    };
    let strips = match spec.strip_count {
        0 => None,
        _ if spec.strips.is_null() => return Err(Fail::null("the list of strips")),
        count if count > weft_core::layout::COLUMNS_MAX => {
            return Err(Fail::argument(format!("{count} strips exceed the maximum of a layout")));
        }
        count => {
            // SAFETY: as above.
            let strips = unsafe { std::slice::from_raw_parts(spec.strips, count) };
            Some(strips.iter().map(|strip| (TargetId(strip.target), ByteLen(strip.stripe_size))).collect())
        }
    };
    Ok(weft_client::LayoutSpec {
        stripe_size: (spec.stripe_size != 0).then_some(ByteLen(spec.stripe_size)),
        stripe_count: (spec.stripe_count != 0).then_some(spec.stripe_count),
        first: u32::try_from(spec.first).ok(),
        class,
        strips,
        tails: Vec::new(),
        by_class: None,
        compression: None,
    })
}

/// Converts a compression setting from C; a null pointer requests none.
///
/// # Safety
/// `setting` is null or a string.
pub unsafe fn compression_from(setting: *const c_char) -> Res<Option<CompressionSetting>> {
    if setting.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { args::text(setting, "the compression")? };
    text.parse().map(Some).map_err(Fail::argument)
}

fn columns(layout: &Layout) -> Vec<Column> {
    let components = layout.components().iter().enumerate();
    let columns = components.flat_map(|(index, component)| {
        component.strips.iter().enumerate().map(move |(column, strip)| Column {
            start: component.start.0,
            end: component.end.map_or(u64::MAX, |end| end.0),
            stripe_size: strip.stripe_size.0,
            target: strip.target.0,
            component: index as u16,
            column: column as u16,
        })
    });
    columns.collect()
}

exported! {
    fn weft_get_layout(weft: *const Weft, path: *const c_char, out: *mut Column, count: size_t) -> ssize_t | -1; {
        // SAFETY: pointers of the caller.
        let (weft, path) = unsafe { (connection(weft)?, args::string(path, "the path")?) };
        let (layout, _) = weft.at(path, true, |files, place| block_on(files.weft.get_layout(place)))?;
        let columns = layout.as_ref().map(columns).unwrap_or_default();
        let all = columns.len();
        if count > 0 && out.is_null() {
            return Err(Fail::null("the list of columns"));
        }
        for (index, column) in columns.into_iter().take(count).enumerate() {
            // SAFETY: as above, with space for `count` of them.
            unsafe { out.add(index).write(column) };
        }
        Ok(all as ssize_t)
    }

    fn weft_set_layout(weft: *const Weft, path: *const c_char, spec: *const LayoutSpec) -> c_int | -1; {
        // SAFETY: pointers of the caller.
        let (weft, path) = unsafe { (connection(weft)?, args::string(path, "the path")?) };
        // SAFETY: as above.
        let spec = unsafe { spec_from(spec)? };
        weft.at(path, true, |files, place| block_on(files.weft.set_layout(place, &spec)))?;
        Ok(0)
    }

    fn weft_set_compression(weft: *const Weft, path: *const c_char, setting: *const c_char) -> c_int | -1; {
        // SAFETY: pointers of the caller.
        let (weft, path) = unsafe { (connection(weft)?, args::string(path, "the path")?) };
        // SAFETY: as above.
        let setting = unsafe { compression_from(setting)? };
        weft.at(path, true, |files, place| match setting {
            Some(setting) => {
                let text = setting.to_string();
                block_on(files.weft.set_xattr(place, COMPRESSION_ATTRIBUTE, text.as_bytes(), false, false))
            }
            None => block_on(files.weft.remove_xattr(place, COMPRESSION_ATTRIBUTE)),
        })?;
        Ok(0)
    }
}
