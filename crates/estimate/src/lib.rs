//! What stands between the planner and the simulated world: figures measured on modelled devices, and plans tried on the
//! twin.
//!
//! The planner itself knows neither: it takes figures as a user would measure them, and the twin judges what it makes of
//! them.

mod bench;
mod figures;
pub mod measure;
mod part;
mod search;
mod space;
mod traced;
mod trial;

pub use bench::Turns;
pub use figures::{EstimateError, Site, figures, of_twin, of_twin_by};
pub use part::{Moved, Part, Progress};
pub use search::{Found, Trials};
pub use space::Space;
pub use traced::traced;
pub use trial::{PARTS_MAX, Trial, TrialError, layout_spec, trial};
