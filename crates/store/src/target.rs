//! One storage path of a server.

/// How datafiles are read and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Module {
    /// Through the page cache.
    Buffered,
    /// Past the page cache (`O_DIRECT`).
    Direct,
    /// Nowhere: keeps lengths, reads zeros. For measuring everything else.
    Null,
}

impl Module {
    /// As in the cluster file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Buffered => "buffered",
            Self::Direct => "direct",
            Self::Null => "null",
        }
    }
}
