//! IOR- and mdtest-like measurements against the plain local directory.
