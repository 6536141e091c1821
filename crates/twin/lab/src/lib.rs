//! The lab: experiments of papers as data, run on the twin and compared with published results.
//!
//! ```text
//! experiment  one TOML file each          formula   parameters and claims
//! plan        series × policies × x       world     interface of what runs them; twin: the simulated cluster
//! run         points, several at once     spread    means over several seeds
//! measure     values of a run             rows      values beside baseline and paper
//! claim       the paper's shape           planned   layouts by planners; judge: planners compared on the twin
//!                                                   judge_replicas: the same for replicas
//! lookup      requests looked up in an empty mapping
//! folder      stored results              table     for terminals      report    one HTML page
//! fidelity    the twin beside runs in real time
//! ```

pub mod claim;
pub mod clusters;
pub mod experiment;
pub mod fidelity;
pub mod folder;
pub mod formula;
pub mod judge;
pub mod judge_replicas;
pub mod lookup;
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
