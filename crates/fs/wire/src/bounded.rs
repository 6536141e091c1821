//! Decoding of lists whose elements are far larger in memory than on the wire.

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// Decodes a list of at most `MAX` elements, for `#[serde(deserialize_with)]`.
///
/// Without this limit, a body of 1 MiB could hold 250,000 directory entries of four bytes, which occupy about 60 MiB in
/// memory.
pub fn vec<'de, D, T, const MAX: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(Bounded::<T, MAX>(PhantomData))
}

struct Bounded<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Bounded<T, MAX> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MAX} elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
        // The sender controls the hint: a hint above the limit is an error, and the initial allocation is at most one
        // page.
        let hint = seq.size_hint().unwrap_or(0);
        if hint > MAX {
            return Err(A::Error::invalid_length(hint, &self));
        }
        let first = 4096 / size_of::<T>().max(1);
        let mut out = Vec::with_capacity(hint.min(first));
        while let Some(element) = seq.next_element()? {
            if out.len() == MAX {
                return Err(A::Error::invalid_length(MAX + 1, &self));
            }
            out.push(element);
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    #[derive(Serialize)]
    struct Any(Vec<u16>);

    #[derive(Deserialize, PartialEq, Debug)]
    struct Three(#[serde(deserialize_with = "super::vec::<_, _, 3>")] Vec<u16>);

    #[test]
    fn lists_longer_than_the_limit_are_rejected() {
        for len in 0..6 {
            let sent: Vec<u16> = (0..len).map(|n| n * 300).collect();
            let bytes = postcard::to_allocvec(&Any(sent.clone())).expect("encodes");
            let got = postcard::from_bytes::<Three>(&bytes).ok();
            assert_eq!(got, (len <= 3).then_some(Three(sent)));
        }
    }
}
