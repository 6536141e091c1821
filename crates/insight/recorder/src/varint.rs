//! Variable-length integers: LEB128, with zigzag encoding for differences.

/// Appends `value` as LEB128.
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the signed difference `to - from` modulo 2^64, zigzag-encoded.
pub fn put_delta(out: &mut Vec<u8>, from: u64, to: u64) {
    let delta = to.wrapping_sub(from) as i64;
    put(out, ((delta << 1) ^ (delta >> 63)) as u64);
}

/// Reads values from the front of a byte slice.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Creates a cursor at the start of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether all bytes have been read.
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads one byte.
    pub fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    /// Reads `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    /// Reads a LEB128 number; `None` if it is truncated or exceeds 2^64 - 1.
    pub fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// Reads a difference and returns `from` plus that difference, modulo 2^64.
    pub fn delta(&mut self, from: u64) -> Option<u64> {
        let raw = self.number()?;
        let delta = (raw >> 1) ^ (raw & 1).wrapping_neg();
        Some(from.wrapping_add(delta))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_bit_length_round_trip() {
        let mut out = Vec::new();
        let values: Vec<u64> =
            (0..64).flat_map(|bit| [1u64 << bit, (1u64 << bit) - 1, !(1u64 << bit)]).collect();
        for pair in values.windows(2) {
            put(&mut out, pair[0]);
            put_delta(&mut out, pair[0], pair[1]);
        }
        let mut cursor = Cursor::new(&out);
        for pair in values.windows(2) {
            assert_eq!(cursor.number(), Some(pair[0]));
            assert_eq!(cursor.delta(pair[0]), Some(pair[1]));
        }
        assert!(cursor.is_empty());
    }

    #[test]
    fn overlong_and_truncated_numbers_are_rejected() {
        assert_eq!(Cursor::new(&[0xff; 9]).number(), None);
        assert_eq!(Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).number(), None);
        assert_eq!(
            Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]).number(),
            Some(u64::MAX)
        );
    }
}
