//! Model of compression.

/// Model of compression in a simulated world, where the work of codecs by itself takes no virtual time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Coding {
    /// Stored bytes per byte of a payload without contents (see [`Hollow`](crate::Hollow)), from 0 for zeros to 1 for
    /// incompressible bytes. Codecs compress real bytes.
    pub ratio: f64,
    /// Speed of the processors, in multiples of the one that the codecs were measured on. More than 0.
    pub speed: f64,
}
