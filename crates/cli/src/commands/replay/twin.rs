//! A replay on the twin.

use super::Replay;
use super::rows::Rows;
use crate::failure::Failure;
use std::path::Path;
use weft_trace::prepared::{Prepared, TraceWorkload};
use weft_twin::ClusterSpec;

impl Replay {
    pub(super) fn on_twin(&self, prepared: &Prepared, file: &Path) -> Result<u8, Failure> {
        let text = std::fs::read_to_string(file).map_err(|error| Failure::new(file.display(), error))?;
        let spec: ClusterSpec = toml::from_str(&text)
            .map_err(|error| Failure::misuse(file.display(), error.to_string().trim()))?;
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
