//! Numbers in as few bytes as they need: LEB128, and zigzag for differences.

/// Appends `value`.
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the difference that leads from `from` to `to`, modulo 2^64.
pub fn put_delta(out: &mut Vec<u8>, from: u64, to: u64) {
    let delta = to.wrapping_sub(from) as i64;
    put(out, ((delta << 1) ^ (delta >> 63)) as u64);
}

/// Bytes that are read from the front.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Over `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether nothing is left.
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    /// The next `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    /// The next number; `None` when it is cut off or above 2^64 - 1.
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

    /// What the next difference leads to from `from`.
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
    fn every_size_comes_back() {
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
    fn too_long_and_cut_off_are_refused() {
        assert_eq!(Cursor::new(&[0xff; 9]).number(), None);
        assert_eq!(Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).number(), None);
        assert_eq!(
            Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]).number(),
            Some(u64::MAX)
        );
    }
}
