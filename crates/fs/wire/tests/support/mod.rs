//! Compares encoded messages with the bytes in `tests/golden/`.
//!
//! Each line of a golden file is `name hex-of-the-body`. A difference means that programs built before and after the
//! change cannot communicate. From the first release on, lines are only added, at the end and with a new feature level
//! (`weft_wire::level`): `WEFT_BLESS=1 cargo test -p weft-wire` rewrites the files.

use serde::de::{self, DeserializeOwned, Visitor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::{Debug, Write as _};
use std::path::PathBuf;

/// Checks that `samples` encode to the contents of `tests/golden/<file>` and decode from it, and that every variant of
/// the enum `M` has a sample.
pub fn check<M>(file: &str, samples: &[M])
where
    M: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let names: Vec<String> = samples.iter().map(variant_of).collect();
    let mut now = String::new();
    for (name, sample) in names.iter().zip(samples) {
        let hex = postcard::to_allocvec(sample).expect("messages encode").iter().fold(
            String::new(),
            |mut hex, byte| {
                write!(hex, "{byte:02x}").expect("writing to a String succeeds");
                hex
            },
        );
        writeln!(now, "{name} {hex}").expect("writing to a String succeeds");
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
    if std::env::var_os("WEFT_BLESS").is_some() {
        std::fs::write(&path, &now).expect("golden file written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    for (number, (now, kept)) in now.lines().zip(kept.lines()).enumerate() {
        assert_eq!(now, kept, "{file}, line {}: the protocol changed", number + 1);
    }
    assert_eq!(now.lines().count(), kept.lines().count(), "{file}: messages added or removed");
    for (line, sample) in kept.lines().zip(samples) {
        let hex = line.split(' ').nth(1).expect("name and bytes");
        let bytes: Vec<u8> = (0..hex.len() / 2)
            .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("hex digits"))
            .collect();
        let (back, rest) = postcard::take_from_bytes::<M>(&bytes).expect("golden bytes decode");
        assert_eq!((&back, rest.len()), (sample, 0), "{file}: {line}");
    }
    let covered: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    for variant in variants::<M>() {
        assert!(covered.contains(variant), "{file}: no sample of variant {variant}");
    }
}

/// Returns the name of the variant, with which `Debug` output starts.
fn variant_of(sample: &impl Debug) -> String {
    let text = format!("{sample:?}");
    let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    text[..end].to_owned()
}

/// Returns the names of an enum's variants in order; empty for a struct.
fn variants<M: DeserializeOwned>() -> &'static [&'static str] {
    let mut found: &'static [&'static str] = &[];
    let _ = M::deserialize(VariantRecorder(&mut found)); // always an error: only the names matter
    found
}

struct VariantRecorder<'a>(&'a mut &'static [&'static str]);

impl<'de> de::Deserializer<'de> for VariantRecorder<'_> {
    type Error = de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(de::Error::custom("no enum"))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = variants;
        Err(de::Error::custom("names found"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

#[test]
fn a_missing_variant_is_detected() {
    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    enum Two {
        One,
        Other(u8),
    }
    assert_eq!(variants::<Two>(), ["One", "Other"]);
    assert_eq!(variant_of(&Two::Other(3)), "Other");
    assert_eq!(variant_of(&Two::One), "One");
}
