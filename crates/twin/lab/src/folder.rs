//! Stored results: one JSON file for each experiment and form.

use crate::run::Outcome;
use std::io;
use std::path::{Path, PathBuf};

/// Returns `$XDG_STATE_HOME/weft/lab`, or its default below the home directory.
pub fn default_folder() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("weft/lab"))
}

/// Error of the results directory.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}")]
pub struct FolderError {
    /// Path of the file or directory.
    pub path: String,
    /// The I/O error.
    pub error: io::Error,
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> FolderError {
    let path = path.display().to_string();
    move |error| FolderError { path, error }
}

fn file_of(folder: &Path, experiment: &str, quick: bool) -> PathBuf {
    folder.join(format!("{experiment}{}.json", if quick { ".quick" } else { "" }))
}

/// Stores a result and replaces the previous one of the same form.
pub fn save(folder: &Path, outcome: &Outcome) -> Result<PathBuf, FolderError> {
    std::fs::create_dir_all(folder).map_err(failed(folder))?;
    let file = file_of(folder, &outcome.experiment, outcome.quick);
    let text = serde_json::to_string_pretty(outcome).expect("a result is numbers and texts");
    // Rename, so that a concurrent reader sees either the old file or the new one.
    let draft = file.with_extension("json.new");
    std::fs::write(&draft, text).map_err(failed(&draft))?;
    std::fs::rename(&draft, &file).map_err(failed(&file))?;
    Ok(file)
}

/// Returns the stored result of an experiment, if any. The full form takes precedence over the quick one.
pub fn load(folder: &Path, experiment: &str) -> Result<Option<Outcome>, FolderError> {
    for quick in [false, true] {
        let file = file_of(folder, experiment, quick);
        match std::fs::read(&file) {
            Ok(text) => {
                let outcome = serde_json::from_slice(&text).map_err(|error| failed(&file)(error.into()))?;
                return Ok(Some(outcome));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(&file)(error)),
        }
    }
    Ok(None)
}

const FIDELITY: &str = "fidelity.txt";

/// Stores the text of a fidelity comparison.
pub fn save_fidelity(folder: &Path, text: &str) -> Result<(), FolderError> {
    std::fs::create_dir_all(folder).map_err(failed(folder))?;
    let file = folder.join(FIDELITY);
    std::fs::write(&file, text).map_err(failed(&file))
}

/// Returns the text of the last fidelity comparison, if any.
pub fn load_fidelity(folder: &Path) -> Result<Option<String>, FolderError> {
    let file = folder.join(FIDELITY);
    match std::fs::read_to_string(&file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(&file)(error)),
    }
}
