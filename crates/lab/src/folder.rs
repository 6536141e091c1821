//! Where results are kept: one file of JSON for each experiment, quick and full apart.

use crate::run::Outcome;
use std::io;
use std::path::{Path, PathBuf};

/// `$XDG_STATE_HOME/weft/lab`, or what stands for it.
pub fn default_folder() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("weft/lab"))
}

/// A results folder that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}")]
pub struct FolderError {
    /// Which file or folder.
    pub path: String,
    /// Why not.
    pub error: io::Error,
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> FolderError {
    let path = path.display().to_string();
    move |error| FolderError { path, error }
}

fn file_of(folder: &Path, experiment: &str, quick: bool) -> PathBuf {
    folder.join(format!("{experiment}{}.json", if quick { ".quick" } else { "" }))
}

/// Keeps a result in place of an earlier one of the same form.
pub fn save(folder: &Path, outcome: &Outcome) -> Result<PathBuf, FolderError> {
    std::fs::create_dir_all(folder).map_err(failed(folder))?;
    let file = file_of(folder, &outcome.experiment, outcome.quick);
    let text = serde_json::to_string_pretty(outcome).expect("a result is numbers and texts");
    // Whoever reads at the same time sees the old one or the new one.
    let draft = file.with_extension("json.new");
    std::fs::write(&draft, text).map_err(failed(&draft))?;
    std::fs::rename(&draft, &file).map_err(failed(&file))?;
    Ok(file)
}

/// The result of an experiment, if there is one: the full form before the quick one.
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

/// Keeps the text of a comparison of the twin with real runs.
pub fn save_fidelity(folder: &Path, text: &str) -> Result<(), FolderError> {
    std::fs::create_dir_all(folder).map_err(failed(folder))?;
    let file = folder.join(FIDELITY);
    std::fs::write(&file, text).map_err(failed(&file))
}

/// The text of the last such comparison, if there was one.
pub fn load_fidelity(folder: &Path) -> Result<Option<String>, FolderError> {
    let file = folder.join(FIDELITY);
    match std::fs::read_to_string(&file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(&file)(error)),
    }
}
