//! Messages for a person: outages and their consequences. They are rare.

use parking_lot::RwLock;

fn to_stderr(line: &str) {
    use std::io::Write;
    // The host program may have closed its standard error, which is not a failure.
    let _ = writeln!(std::io::stderr(), "weft: {line}");
}

static HOOK: RwLock<fn(&str)> = RwLock::new(to_stderr);

/// Redirects messages, which otherwise go to standard error. A line has no newline at its end.
pub fn set_log(hook: fn(&str)) {
    *HOOK.write() = hook;
}

pub(crate) fn note(line: &str) {
    let hook = *HOOK.read();
    hook(line);
}
