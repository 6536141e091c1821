//! Names as text. A name is any bytes but zero, and nearly always UTF-8: every byte that is not stands as `\xHH`, two
//! digits to the base sixteen. A backslash in a name that would be read as the begin of that is `\x5c` itself, so that
//! every name has one text, and every text is one name.

use std::borrow::Cow;

/// Length of an escape in bytes.
pub const ESCAPE_LEN: usize = 4;

/// Bytes as text.
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

/// The bytes that a text stands for.
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

/// The byte that stands where `text` begins, when it begins with `\xHH`.
pub fn unescape(text: &str) -> Option<u8> {
    let [b'\\', b'x', high, low, ..] = text.as_bytes() else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    Some((digit(*high)? << 4 | digit(*low)?) as u8)
}

/// A text by its characters, each `\xHH` as one piece with the byte that it stands for.
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
    fn names_are_told_by_their_bytes() {
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
        assert_eq!(*unescaped("\\x41\\xE9\\x2a"), *b"A\xe9*", "what people write");
    }

    proptest! {
        #[test]
        fn every_name_comes_out_as_it_was(
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
