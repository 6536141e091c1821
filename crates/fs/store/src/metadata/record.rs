//! Stored values: a postcard encoding, and a checksum over table, key and value.
//!
//! ```text
//! offset size | field
//!      0    n | value   postcard
//!      n    4 | check   CRC-32, little-endian, over: table number (1 byte), key, value
//! ```
//!
//! The checksum covers the key, so a value that was moved to another key is detected too.

use super::engine::Table;
use serde::{Serialize, de::DeserializeOwned};

/// A stored value that has not been verified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Untrusted(Vec<u8>);

/// Error: a stored value is damaged.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "metadata database: the value of key {key} in table {} is damaged; restore the metadata from a dump \
     (`weft meta restore`), or run `weft fsck --repair`, which removes the entry",
    table.name()
)]
pub struct Damaged {
    /// Table of the value.
    pub table: Table,
    /// Key of the value, in hexadecimal digits.
    pub key: String,
}

impl Damaged {
    fn new(table: Table, key: &[u8]) -> Self {
        Self { table, key: key.iter().map(|byte| format!("{byte:02x}")).collect() }
    }
}

fn check(table: Table, key: &[u8], value: &[u8]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[table as u8]);
    hasher.update(key);
    hasher.update(value);
    hasher.finalize().to_le_bytes()
}

/// Encodes a value for `key` of `table`, with its checksum.
///
/// # Panics
/// Never for the rows of this crate, which all encode.
pub fn seal<T: Serialize>(table: Table, key: &[u8], value: &T) -> Vec<u8> {
    let mut out = postcard::to_allocvec(value).expect("rows always encode");
    let check = check(table, key, &out);
    out.extend_from_slice(&check);
    out
}

impl Untrusted {
    /// Wraps bytes as they were read.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Verifies the value of `key` in `table` without decoding it.
    ///
    /// # Errors
    /// When its checksum is wrong.
    pub fn verify(&self, table: Table, key: &[u8]) -> Result<(), Damaged> {
        let sound = self.0.split_last_chunk::<4>();
        match sound.is_some_and(|(value, found)| check(table, key, value) == *found) {
            true => Ok(()),
            false => Err(Damaged::new(table, key)),
        }
    }

    /// Returns the bytes as they were read.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Verifies and decodes the value of `key` in `table`.
    ///
    /// # Errors
    /// When its checksum or encoding is wrong.
    pub fn open<T: DeserializeOwned>(self, table: Table, key: &[u8]) -> Result<T, Damaged> {
        let damaged = || Damaged::new(table, key);
        let (value, found) = self.0.split_last_chunk::<4>().ok_or_else(damaged)?;
        if check(table, key, value) != *found {
            return Err(damaged());
        }
        match postcard::take_from_bytes(value) {
            Ok((row, [])) => Ok(row),
            _ => Err(damaged()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let sealed = seal(Table::Counters, b"k", &(1u32, 300u32));
        let crc = crc32fast::hash(&[0, b'k', 1, 0xac, 0x02]);
        assert_eq!(sealed[..3], [1, 0xac, 0x02]);
        assert_eq!(sealed[3..], crc.to_le_bytes());
    }

    #[test]
    fn flipped_bits_other_keys_and_other_tables_are_detected() {
        let sealed = seal(Table::Inodes, b"key", &(7u64, b"abc".to_vec()));
        let open = |bytes: &[u8], table, key: &[u8]| {
            Untrusted::new(bytes.to_vec()).open::<(u64, Vec<u8>)>(table, key)
        };
        assert_eq!(open(&sealed, Table::Inodes, b"key"), Ok((7, b"abc".to_vec())));
        for bit in 0..sealed.len() * 8 {
            let mut bad = sealed.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&bad, Table::Inodes, b"key").is_err(), "bit {bit}");
        }
        assert!(open(&sealed, Table::Inodes, b"kez").is_err());
        let error = open(&sealed, Table::Reap, b"key").expect_err("another table");
        assert!(error.to_string().contains("reap") && error.to_string().contains("6b6579"), "{error}");
        assert!(open(&[], Table::Reap, b"key").is_err());
        let found = Untrusted::new(sealed.clone());
        assert_eq!((found.bytes(), found.verify(Table::Inodes, b"key")), (&sealed[..], Ok(())));
        assert!(found.verify(Table::Reap, b"key").is_err() && found.verify(Table::Inodes, b"kez").is_err());
        assert!(Untrusted::new(Vec::new()).verify(Table::Inodes, b"key").is_err());
    }
}
