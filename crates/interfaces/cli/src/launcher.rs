//! Launchers of parallel programs: the position of a process, and the number of ranks on a command line.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use weft_config::replicas::RANK_COUNT_VARIABLES;

/// Variables with the index of a process. `PMIX_RANK` comes before those of SLURM, which batch scripts also have.
const INDEX: [&str; 4] = ["PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"];
/// Names of launchers, without suffixes such as `.mpich`.
const LAUNCHERS: [&str; 6] = ["mpiexec", "mpirun", "orterun", "prterun", "prun", "srun"];
/// Options with a number of ranks.
const RANKS: [&str; 4] = ["-n", "-np", "--np", "--ntasks"];

/// Position of this process among the processes that a launcher started. Each number is unknown without its variable.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Position {
    /// Index, from 0.
    pub index: Option<u32>,
    /// Number of processes.
    pub count: Option<u32>,
}

impl Position {
    /// Reads the launcher's variables.
    pub fn from_env() -> Self {
        Self::of(|name| std::env::var(name).ok())
    }

    fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let first = |names: &[&str]| names.iter().find_map(|name| variable(name)?.trim().parse().ok());
        Self { index: first(&INDEX), count: first(&RANK_COUNT_VARIABLES) }
    }
}

/// Returns the variable that makes this process one of several ranks of an MPI launcher. Those of SLURM do not count, because
/// batch scripts have them, too.
pub fn rank_variable() -> Option<&'static str> {
    let is_several = Position::from_env().count.is_some_and(|count| count > 1);
    INDEX[..3].iter().copied().find(|name| is_several && std::env::var_os(name).is_some())
}

/// Returns the number of ranks that a command line starts; `None` if it contains no launcher with such an option.
pub fn ranks(command: &[OsString]) -> Option<u32> {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let launcher = words.iter().position(|word| is_launcher(word))?;
    // The parts of `mpiexec -n 2 ./a : -n 4 ./b` add up.
    let parts = words[launcher + 1..].split(|word| word == ":");
    let total = parts.map(ranks_of_part).try_fold(0u32, |total, ranks| total.checked_add(ranks?))?;
    (total > 0).then_some(total)
}

fn is_launcher(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or_default();
    LAUNCHERS.iter().any(|launcher| {
        name.strip_prefix(launcher).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
    })
}

fn ranks_of_part(words: &[String]) -> Option<u32> {
    for (at, word) in words.iter().enumerate() {
        if let Some(value) = RANKS.iter().find_map(|option| word.strip_prefix(option)?.strip_prefix('=')) {
            return value.parse().ok();
        }
        if RANKS.contains(&word.as_str()) {
            return words.get(at + 1)?.parse().ok();
        }
        // `srun -n4`
        if let Some(number) = word.strip_prefix("-n").and_then(|rest| rest.parse().ok()) {
            return Some(number);
        }
        // The options of the program are not the launcher's.
        let is_value = at > 0 && words[at - 1].starts_with('-');
        if !word.starts_with('-') && (!is_value || is_program(word)) {
            return None;
        }
    }
    None
}

/// Whether a word that may be the value of the option before it is a program.
fn is_program(word: &str) -> bool {
    let meta = std::fs::metadata(Path::new(word));
    word.contains('/') && meta.is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<u32> {
        ranks(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn ranks_of_launchers_are_found() {
        for (line, found) in [
            ("mpiexec -n 4 ./app", Some(4)),
            ("mpiexec.mpich -bind-to core -np 16 ./app -n 5", Some(16)),
            ("/opt/mpi/bin/mpirun --np=12 app", Some(12)),
            ("srun -n64 -c 2 app", Some(64)),
            ("srun --ntasks 8 app", Some(8)),
            ("srun --ntasks=8 app", Some(8)),
            ("env A=1 timeout 5 mpirun.openmpi --oversubscribe -np 3 app", Some(3)),
            ("mpiexec -n 2 a : -n 6 b", Some(8)),
            ("mpiexec -n 2 a : b", None),
            ("mpiexec app -n 100", None),
            ("mpiexec -l /bin/sh -n 100", None),
            ("./app -n 4", None),
            ("mpiexec -n", None),
            ("mpiexec -n 0 app", None),
            ("mpiexecutor -n 4", None),
        ] {
            assert_eq!(of(line), found, "{line}");
        }
    }

    #[test]
    fn positions_of_launchers_are_read() {
        let of = |set: &[(&str, &str)]| {
            Position::of(|name| {
                set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            })
        };
        let both = |index, count| Position { index: Some(index), count: Some(count) };
        assert_eq!(of(&[("PMI_RANK", "3"), ("PMI_SIZE", "8")]), both(3, 8));
        assert_eq!(of(&[("PMIX_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2")]), both(1, 2));
        let slurm =
            [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2"), ("SLURM_NTASKS", "64"), ("PMI_RANK", "x")];
        assert_eq!(of(&slurm), both(1, 2));
        assert_eq!(of(&[]), Position::default());
    }
}
