//! Traces of programs, read and written as streams with bounded memory.
