//! Where a client says what a person should know: outages and what was lost in them. Rare by construction.

use parking_lot::RwLock;

fn to_stderr(line: &str) {
    use std::io::Write;
    // A host program may have closed its standard error; that is no reason to fail.
    let _ = writeln!(std::io::stderr(), "weft: {line}");
}

static HOOK: RwLock<fn(&str)> = RwLock::new(to_stderr);

/// Sends the lines somewhere else than to standard error. Lines have no newline at their end.
pub fn set_log(hook: fn(&str)) {
    *HOOK.write() = hook;
}

pub(crate) fn note(line: &str) {
    let hook = *HOOK.read();
    hook(line);
}
