//! One HTML page that needs nothing beside itself: plots and tables beside the published figures.

mod escape;
mod page;
mod plot;
mod section;

pub use page::{Entry, page};

#[cfg(test)]
mod tests;
