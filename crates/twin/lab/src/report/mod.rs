//! A self-contained HTML page with plots and tables beside the published results.

mod escape;
mod page;
mod plot;
mod section;

pub use page::{Entry, page};

#[cfg(test)]
mod tests;
