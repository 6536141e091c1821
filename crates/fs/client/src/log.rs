//! Messages for a person: outages and their consequences. They are rare.

use parking_lot::RwLock;

fn to_stderr(line: &str) {
    use std::io::Write;
    // The host program may have closed its standard error, which is not a failure.
    let _ = writeln!(std::io::stderr(), "weft: {line}");
}

static HOOK: RwLock<fn(&str)> = RwLock::new(to_stderr);

/// End of the line about an outage that is over.
pub(crate) const OVER: &str = "answers again";
/// Part of the line about an outage during which requests wait.
pub(crate) const WAITING: &str = "; requests wait for it";

/// Whether a line says that an outage is over.
pub fn is_end_of_outage(line: &str) -> bool {
    line.ends_with(OVER)
}

/// Whether a line says that requests wait for a server. Other lines about outages name an error that a request returns, too.
pub fn is_about_waiting(line: &str) -> bool {
    line.contains(WAITING)
}

/// Redirects messages, which otherwise go to standard error. A line has no newline at its end.
pub fn set_log(hook: fn(&str)) {
    *HOOK.write() = hook;
}

pub(crate) fn note(line: &str) {
    let hook = *HOOK.read();
    hook(line);
}
