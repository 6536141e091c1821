//! The C interface to Weft.
