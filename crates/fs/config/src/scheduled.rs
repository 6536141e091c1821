//! The cluster of a batch job. The prolog of the scheduler starts it on the nodes of the job (`contrib/slurm`).

use crate::error::ConfigError;
use crate::find::variable;
use std::path::{Path, PathBuf};

/// Directory in which root keeps a directory for each job, named after its id. The prolog uses the same path.
const JOBS: &str = "/run/weft-jobs";
/// Name of the file with the reason why the prolog has not started the cluster.
const FAILED: &str = "failed";

/// Returns the cluster file of the Slurm job that this process belongs to; `None` outside of a job with a cluster. The
/// file is missing if the prolog has failed: the job must not use another cluster instead.
pub(crate) fn cluster_file() -> Option<PathBuf> {
    file_of(Path::new(JOBS), variable("SLURM_JOB_ID")?.to_str()?)
}

/// Whether `file` is the cluster file of a job.
pub(crate) fn is_of_job(file: &Path) -> bool {
    file.parent().and_then(Path::parent) == Some(Path::new(JOBS))
}

/// Returns the error of the prolog if it has not started the cluster that `file` describes.
pub(crate) fn failure(file: &Path) -> Option<ConfigError> {
    is_of_job(file).then(|| failure_beside(file)).flatten()
}

fn file_of(jobs: &Path, job: &str) -> Option<PathBuf> {
    let is_id = !job.is_empty() && job.bytes().all(|byte| byte.is_ascii_digit());
    let dir = jobs.join(job);
    (is_id && dir.is_dir()).then(|| dir.join("cluster.toml"))
}

fn failure_beside(file: &Path) -> Option<ConfigError> {
    let why = std::fs::read_to_string(file.with_file_name(FAILED)).ok()?;
    let problem = format!("the prolog of the scheduler did not start the job's cluster: {}", why.trim());
    let remedy = "the administrator finds more in /var/log/weft/slurm.log of this node";
    Some(ConfigError::whole(file, problem, remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_a_cluster_if_its_directory_exists() {
        let jobs = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(jobs.path().join("17")).expect("created");
        std::fs::write(jobs.path().join("18"), "").expect("written");
        assert_eq!(file_of(jobs.path(), "17"), Some(jobs.path().join("17/cluster.toml")));
        for job in ["", "1", "18", "..", ".", "17/", "../17", "/run", "17 "] {
            assert_eq!(file_of(jobs.path(), job), None, "{job:?}");
        }
    }

    #[test]
    fn the_reason_of_a_failed_prolog_is_reported() {
        let job = tempfile::tempdir().expect("a directory");
        let file = job.path().join("cluster.toml");
        assert_eq!(failure_beside(&file), None);
        std::fs::write(job.path().join("failed"), "/scratch is not a directory; mount it\n")
            .expect("written");
        let text = failure_beside(&file).expect("failed").to_string();
        assert!(text.contains("/scratch is not a directory; mount it;"), "{text}");
    }

    #[test]
    fn only_files_of_jobs_are_looked_at() {
        assert!(is_of_job(Path::new("/run/weft-jobs/17/cluster.toml")));
        for other in ["/run/weft-jobs/cluster.toml", "/etc/weft/cluster.toml", "cluster.toml", "/"] {
            assert!(!is_of_job(Path::new(other)), "{other}");
        }
    }
}
