//! Reads the description of a simulated cluster.

use crate::failure::Failure;
use std::collections::BTreeSet;
use std::path::Path;
use weft_models::Profile;
use weft_twin::ClusterSpec;

/// Reads a description, and the profiles that it refers to by path.
pub fn read(file: &Path) -> Result<ClusterSpec, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::misuse(file.display(), error).remedy("`weft twin example` prints a cluster to start from")
    })?;
    let mut spec: ClusterSpec =
        toml::from_str(&text).map_err(|error| Failure::misuse(file.display(), error.to_string().trim()))?;
    let targets = spec.servers.iter().flat_map(|group| &group.targets).map(|target| &target.profile);
    let paths: BTreeSet<String> =
        targets.chain(&spec.metadata.profile).filter(|name| name.contains('/')).cloned().collect();
    for path in paths {
        let text = std::fs::read_to_string(&path).map_err(|error| {
            Failure::new(&path, error).remedy("write one with `weft profile --output FILE PATH`")
        })?;
        let profile = Profile::from_toml(&text).map_err(|error| Failure::misuse(&path, error))?;
        spec.profiles.push(Profile { name: path, ..profile });
    }
    Ok(spec)
}
