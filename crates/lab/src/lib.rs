//! The laboratory: experiments as data, run on the twin and set beside published figures.
//!
//! ```text
//! experiment  one TOML file each     formula   parameters and claims
//! plan        series × policies × x  world     where runs happen; twin: the simulated cluster
//! run         points, several at once   spread   their means, where chance decides
//! measure     values out of a run    rows      beside baseline and paper     claim   the paper's shape
//! folder      results kept           table     for terminals                 report  one HTML page
//! fidelity    the twin beside runs in real time
//! ```

pub mod claim;
pub mod clusters;
pub mod experiment;
pub mod fidelity;
pub mod folder;
pub mod formula;
pub mod judged;
pub mod measure;
pub mod plan;
pub mod planned;
pub mod report;
pub mod rows;
pub mod run;
#[cfg(test)]
mod run_tests;
pub mod spread;
pub mod table;
#[cfg(test)]
mod testing;
pub mod twin;
pub mod world;
