//! File names as text.
//!
//! A name is a sequence of nonzero bytes, nearly always UTF-8. Each byte that is not valid UTF-8 is written as `\xHH`,
//! with two hexadecimal digits. A backslash that would otherwise be read as the start of such an escape is itself
//! written as `\x5c`. Every name therefore has exactly one text, and every text denotes one name.

use std::borrow::Cow;

/// Length of an escape in bytes.
pub const ESCAPE_LEN: usize = 4;

/// Returns the text of a name.
pub fn escaped(name: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(name)
        && !text.contains("\\x")
    {
        return text.into();
    }
    let mut out = String::with_capacity(name.len() + ESCAPE_LEN);
    for chunk in name.utf8_chunks() {
        let mut rest = chunk.valid();
        while let Some(at) = rest.find('\\') {
            out.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            match unescape(&["\\", rest.get(..ESCAPE_LEN - 1).unwrap_or_default()].concat()) {
                Some(_) => escape(&mut out, b'\\'),
                None => out.push('\\'),
            }
        }
        out.push_str(rest);
        chunk.invalid().iter().for_each(|byte| escape(&mut out, *byte));
    }
    out.into()
}

/// Returns the name that a text denotes.
pub fn unescaped(text: &str) -> Cow<'_, [u8]> {
    if !text.contains("\\x") {
        return text.as_bytes().into();
    }
    let mut out = Vec::with_capacity(text.len());
    for (piece, byte) in pieces(text) {
        match byte {
            Some(byte) => out.push(byte),
            None => out.extend_from_slice(piece.as_bytes()),
        }
    }
    out.into()
}

/// Appends a byte as `\xHH`.
pub fn escape(out: &mut String, byte: u8) {
    out.push_str("\\x");
    out.extend([byte >> 4, byte & 15].map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])));
}

/// Returns the byte of the escape `\xHH` at the beginning of `text`, if there is one.
pub fn unescape(text: &str) -> Option<u8> {
    let [b'\\', b'x', high, low, ..] = text.as_bytes() else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    Some((digit(*high)? << 4 | digit(*low)?) as u8)
}

/// Iterates over the characters of a text. Each escape is one piece, with the byte that it denotes.
pub fn pieces(text: &str) -> impl Iterator<Item = (&str, Option<u8>)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let byte = unescape(rest);
        let len = if byte.is_some() { ESCAPE_LEN } else { rest.chars().next()?.len_utf8() };
        let (piece, after) = rest.split_at(len);
        rest = after;
        Some((piece, byte))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_have_unique_texts() {
        for (name, text) in [
            (&b"plain"[..], "plain"),
            (b"caf\xe9.dat", "caf\\xe9.dat"),
            ("caf\u{e9}\u{10ffe9}".as_bytes(), "caf\u{e9}\u{10ffe9}"),
            (b"a\\b\\xyz\\x", "a\\b\\xyz\\x"),
            (b"a\\xe9", "a\\x5cxe9"),
            (b"\\\\x41", "\\\\x5cx41"),
            (b"\\\xff", "\\\\xff"),
            (b"\\x\xff4", "\\x\\xff4"),
            (b"\\x4\xc3\xa9", "\\x4\u{e9}"),
            (b"", ""),
        ] {
            assert_eq!(escaped(name), text);
            assert_eq!(*unescaped(text), *name);
        }
        assert_eq!(*unescaped("\\x41\\xE9\\x2a"), *b"A\xe9*", "other spellings");
    }

    proptest! {
        #[test]
        fn every_name_round_trips(
            name in prop::collection::vec(prop::sample::select(b"\\\\xx4aA\xc3\xa9\xff*".to_vec()), 0..12),
            other in prop::collection::vec(any::<u8>(), 0..12),
        ) {
            for name in [name, other] {
                let text = escaped(&name);
                prop_assert_eq!(&*unescaped(&text), &*name);
                let again = unescaped(&text);
                prop_assert_eq!(&escaped(&again), &text);
            }
        }
    }
}
