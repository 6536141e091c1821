//! The protocol: one header, one file per message family, authentication and capabilities.
