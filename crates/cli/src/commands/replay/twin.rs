//! A replay on the twin.

use super::Replay;
use super::rows::Rows;
use crate::failure::Failure;
use std::collections::BTreeSet;
use std::path::Path;
use weft_models::Profile;
use weft_trace::prepared::{Prepared, TraceWorkload};
use weft_twin::ClusterSpec;

/// Reads the profiles that are named by a path.
fn read_profiles(spec: &mut ClusterSpec) -> Result<(), Failure> {
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
    Ok(())
}

impl Replay {
    pub(super) fn on_twin(&self, prepared: &Prepared, file: &Path) -> Result<u8, Failure> {
        let text = std::fs::read_to_string(file).map_err(|error| Failure::new(file.display(), error))?;
        let mut spec: ClusterSpec = toml::from_str(&text)
            .map_err(|error| Failure::misuse(file.display(), error.to_string().trim()))?;
        read_profiles(&mut spec)?;
        prepared.forget();
        let workload = TraceWorkload::new(prepared, self.timing());
        let began = std::time::Instant::now();
        let outcome = weft_twin::run(&spec, &workload).map_err(|error| Failure::new("twin", error))?;
        workload.whole()?;
        let rows = Rows::of_twin(prepared, &outcome, file, began.elapsed().as_secs_f64());
        if self.json {
            rows.json()?
        } else {
            rows.text(self.files)
        }
        Ok(0)
    }
}
