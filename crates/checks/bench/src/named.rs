//! Finds a workload by name: a kind or a file, with parameters from the command line.

use weft_workload::WorkloadSpec;

/// Remedy for a file that is not a workload.
const TRACE: &str = "; if it is a trace, replay it with `weft replay`, or on a simulated cluster with --twin";

/// Returns the workload `name`: a kind with default parameters, or the file with this path.
///
/// `set` overrides parameters, such as `size="65 KiB"` or `two_phase.cb_nodes=4`.
///
/// # Errors
/// Returns the reason as text for users.
pub fn workload(name: &str, set: &[String]) -> Result<WorkloadSpec, String> {
    let kinds = || WorkloadSpec::all().iter().map(WorkloadSpec::kind).collect::<Vec<_>>().join(", ");
    let text = match WorkloadSpec::of_kind(name) {
        Some(_) if name == "mix" => {
            return Err("a mix is described by a file; see docs/reference/workloads.md".to_owned());
        }
        Some(spec) => format!("kind = {:?}", spec.kind()),
        None => std::fs::read_to_string(name).map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidData => format!("{name}: not a description of a workload{TRACE}"),
            _ => {
                format!(
                    "{name}: no such kind of workload, and no readable file of that name ({error}); kinds are {}",
                    kinds()
                )
            }
        })?,
    };
    let is_file = WorkloadSpec::of_kind(name).is_none();
    let remedy = if is_file { TRACE } else { "" };
    let describe = |error: toml::de::Error| format!("{name}: {}{remedy}", error.to_string().trim_end());
    if set.is_empty() {
        return toml::from_str(&text).map_err(describe);
    }
    let mut table: toml::Table = toml::from_str(&text).map_err(describe)?;
    for one in set {
        let Some((path, value)) = one.split_once('=') else {
            return Err(format!("--set {one}: write NAME=VALUE"));
        };
        insert(&mut table, path.trim(), parsed(value.trim()))
            .map_err(|error| format!("--set {one}: {error}"))?;
    }
    table.try_into().map_err(describe)
}

/// Parses a TOML value. Text that is not valid TOML becomes a string.
fn parsed(text: &str) -> toml::Value {
    let read = toml::from_str::<toml::Table>(&format!("value = {text}")).ok();
    read.and_then(|mut table| table.remove("value")).unwrap_or_else(|| toml::Value::String(text.to_owned()))
}

fn insert(table: &mut toml::Table, path: &str, value: toml::Value) -> Result<(), String> {
    let Some((first, rest)) = path.split_once('.') else {
        table.insert(path.to_owned(), value);
        return Ok(());
    };
    match table.entry(first).or_insert_with(|| toml::Value::Table(toml::Table::new())) {
        toml::Value::Table(inner) => insert(inner, rest, value),
        _ => Err(format!("{first} has no parameters of its own")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_override_defaults() {
        let set = |list: &[&str]| list.iter().map(|&one| one.to_owned()).collect::<Vec<_>>();
        let spec = workload(
            "mpi-io-test",
            &set(&["size=65 KiB", "ranks=8", "access=\"read\"", "collective=true", "two_phase.cb_nodes=2"]),
        )
        .unwrap();
        let WorkloadSpec::MpiIoTest(spec) = spec else { panic!("{spec:?}") };
        assert_eq!((spec.size.0, spec.ranks), (66_560, 8));
        assert_eq!(spec.two_phase.unwrap().cb_nodes, Some(2));
        for (bad, expected) in [
            ("size", "write NAME=VALUE"),
            ("size.x.y=1", "invalid type"),
            ("sise=1", "unknown field `sise`"),
            ("size=64 KB", "is not a size"),
        ] {
            let error = workload("mpi-io-test", &set(&[bad])).unwrap_err();
            assert!(error.contains(expected), "{bad}: {error}");
        }
        let error = workload("no-such-thing", &[]).unwrap_err();
        assert!(error.contains("kinds are mpi-io-test, ior, hpio"), "{error}");
    }
}
