//! Connects the planner with devices: measures figures of modelled devices and of running clusters, and tries plans on
//! the twin.
//!
//! | module | purpose |
//! | --- | --- |
//! | `bench`, `figures` | figures of device models, for a twin or a cluster file |
//! | [`measure`] | figures of a running cluster, measured through its servers |
//! | `traced`, `workload_slice` | a workload as a trace summary, and a part of a workload |
//! | `redirected` | a workload on a replica of its file |
//! | `ssd` | a workload on the twin without and with an SSD beside each disk |
//! | `trial`, `space`, `search` | a layout on the twin, a space of layouts, and the search for the best one |
//!
//! The planner itself depends on neither devices nor the twin. It takes figures as a user would measure them, and the
//! twin judges the plans.

mod bench;
mod figures;
pub mod measure;
mod redirected;
mod search;
mod space;
mod ssd;
mod trial;
mod workload_slice;
mod workload_summary;

pub use bench::StreamSchedule;
pub use figures::{ClassDevice, EstimateError, figures, of_twin, of_twin_by};
pub use redirected::RedirectedWorkload;
pub use search::{SearchResult, Trials};
pub use space::SearchSpace;
pub use ssd::{RunSeconds, SSD_MODULES, SSD_POLICIES, run_seconds, with_ssds};
pub use trial::{PARTS_MAX, Trial, TrialError, layout_spec, trial};
pub use workload_slice::{IoTotals, Progress, WorkloadSlice};
pub use workload_summary::{summarize_workload, summarize_workload_within};
