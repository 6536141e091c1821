//! Short texts from users and configuration files.

use crate::Outcome;
use crate::alloc::bounded;
use weft_config::{format_duration, format_size, parse_duration, parse_size};
use weft_core::{Pattern, escape};
use weft_env::Address;

pub fn quantity(data: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(data);
    let size = bounded(data.len(), 64, 4096, || parse_size(&text));
    let duration = bounded(data.len(), 64, 4096, || parse_duration(&text));
    match &size {
        Ok(size) => assert_eq!(parse_size(&format_size(*size)), Ok(*size)),
        Err(sentence) => assert!(!sentence.is_empty()),
    }
    match &duration {
        Ok(duration) => assert_eq!(parse_duration(&format_duration(*duration)), Ok(*duration)),
        Err(sentence) => assert!(!sentence.is_empty()),
    }
    if size.is_ok() || duration.is_ok() { Outcome::Accepted } else { Outcome::Refused }
}

pub fn address(data: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(data);
    let parsed = bounded(data.len(), 8, 256, || text.parse::<Address>());
    match &parsed {
        Ok(address) => {
            let again = address.to_string();
            assert_eq!(again.parse::<Address>().as_ref(), Ok(address), "{again}");
            if let Address::Unix(path) = address {
                assert!(path.is_absolute() && path.as_os_str().len() <= 107);
                assert!(
                    !path.as_os_str().as_encoded_bytes().contains(&0),
                    "a path cannot contain a zero byte"
                );
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    Outcome::of(&parsed)
}

/// Matches a pattern with a path, separated by the first line feed.
pub fn pattern(data: &[u8]) -> Outcome {
    let mut halves = data.splitn(2, |byte| *byte == b'\n');
    let text = String::from_utf8_lossy(halves.next().unwrap_or_default());
    let path = halves.next().unwrap_or_default();
    // At most one token of 32 bytes per byte, in a list that doubles when it grows.
    let parsed = bounded(data.len(), 72, 4096, || text.parse::<Pattern>());
    // A file name in which numbers became stars must match that pattern.
    if let Ok(plain) = Pattern::of_numbers(&text) {
        // Replace each star with a number, and escapes with the bytes that they denote.
        let stars = text.contains("**") || digits_around_a_star(&text);
        let bytes = |(piece, byte): (&str, Option<u8>)| match byte {
            Some(byte) => vec![byte],
            None => piece.replace('*', "7").into_bytes(),
        };
        let name: Vec<u8> = escape::pieces(&text).flat_map(bytes).collect();
        let above = name.iter().take_while(|byte| **byte == b'/').count();
        assert!(plain.matches(&name[above..]) || stars, "{text}");
    }
    match &parsed {
        Ok(pattern) => {
            assert_eq!(pattern.as_str(), text);
            assert_eq!(pattern.to_string().parse::<Pattern>().as_ref(), Ok(pattern));
            let matches = pattern.matches(path);
            // A pattern for the last component matches in any directory.
            if !text.contains('/') && !text.contains("**") && !path.contains(&b'/') {
                let deep = [b"some/where/", path].concat();
                assert_eq!(pattern.matches(&deep), matches, "{text}");
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    Outcome::of(&parsed)
}

/// Whether a star is next to a digit, so that a number in its place would merge with that digit.
fn digits_around_a_star(text: &str) -> bool {
    let bytes: Vec<(bool, u8)> = escape::pieces(text)
        .map(|(piece, byte)| (piece == "*", byte.unwrap_or(piece.as_bytes()[0])))
        .collect();
    bytes.windows(2).any(
        |pair| matches!(pair, [(true, _), (_, digit)] | [(_, digit), (true, _)] if digit.is_ascii_digit()),
    )
}

pub fn pattern_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "*.h5\na/b.h5",
        "/run{n}/out.{n}\nrun7/out.012",
        "**/log\nlog",
        "[!a-c]?\nxy",
        "\\*\n*",
        "a/**/b\na/b",
        "caf\\xe9\\x2a*\ncaf",
    ];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}

pub fn quantity_seeds() -> Vec<Vec<u8>> {
    let texts = ["64 KiB", "47008", "1 TiB", "2g", "500 ms", "2 min", "0", "64 KB", "18446744073709551615"];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}

pub fn address_seeds() -> Vec<Vec<u8>> {
    let texts =
        ["unix:/run/weft/s0.sock", "tcp:127.0.0.1:4000", "tcp:[::1]:4000", "tcp:node7:0", "tcp::1", "unix:x"];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}
