//! A replay on the twin.

use super::Replay;
use super::rows::Rows;
use crate::commands::twin::cluster;
use crate::failure::Failure;
use std::path::Path;
use weft_trace::prepared::{Prepared, TraceWorkload};

impl Replay {
    pub(super) fn on_twin(&self, prepared: &Prepared, file: &Path) -> Result<u8, Failure> {
        let spec = cluster::read(file)?;
        prepared.unlink();
        let workload = TraceWorkload::new(prepared, self.timing());
        let began = std::time::Instant::now();
        let outcome = weft_twin::run(&spec, &workload).map_err(|error| Failure::new("twin", error))?;
        workload.finish()?;
        let rows = Rows::of_twin(prepared, &outcome, file, began.elapsed().as_secs_f64());
        if self.json {
            rows.json()?
        } else {
            rows.text(self.files)
        }
        Ok(0)
    }
}
