//! Mutates known inputs so that they stay nearly valid in Weft's formats.

use crate::rng::Rng;

/// Maximum length of a mutated input in bytes. A message body is at most 1 MiB.
const INPUT_BYTES_MAX: usize = (1 << 20) + 64;
/// Integers at boundaries, where decoders tend to fail.
const EDGES: [u64; 20] = [
    0,
    1,
    2,
    63,
    64,
    65,
    127,
    128,
    255,
    256,
    4096,
    65_535,
    65_536,
    1 << 20,
    (1 << 22) + 1,
    u32::MAX as u64,
    1 << 46,
    i64::MAX as u64,
    u64::MAX - 1,
    u64::MAX,
];

/// Floating-point and integer texts at which calculations tend to fail.
const NUMBER_TEXTS: [&str; 12] = [
    "nan",
    "inf",
    "-inf",
    "-1",
    "-0.0",
    "0.0",
    "1e-300",
    "1e-6",
    "0.5",
    "1e12",
    "1e300",
    "9223372036854775807",
];

/// Structure of a target's inputs.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// Binary data with variable-length and little-endian integers, and lengths before lists.
    Binary,
    /// UTF-8 text, with words to insert.
    Text(&'static [&'static str]),
}

/// Returns `input` with one to eight changes. Parts of `other` may be spliced in.
pub fn mutate(rng: &mut Rng, shape: Shape, input: &[u8], other: &[u8]) -> Vec<u8> {
    let mut out = input.to_vec();
    for _ in 0..1 + rng.below(8).min(rng.below(8)) {
        match shape {
            Shape::Binary => change_bytes(rng, &mut out, other),
            Shape::Text(words) => change_text(rng, &mut out, other, words),
        }
    }
    out.truncate(INPUT_BYTES_MAX);
    out
}

fn change_bytes(rng: &mut Rng, out: &mut Vec<u8>, other: &[u8]) {
    let at = rng.below(out.len() + 1);
    match rng.below(10) {
        // Replace the variable-length integer (7 bits per byte) at this place.
        0..=2 => {
            let old = out[at..].iter().take(19).position(|byte| byte & 0x80 == 0).map_or(0, |last| last + 1);
            let new = varint(rng);
            out.splice(at..at + old, new);
        }
        // Overwrite with a fixed-width integer, as in headers.
        3 => {
            let (value, width) = (number(rng), [1, 2, 4, 8][rng.below(4)]);
            let end = (at + width).min(out.len());
            out[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
        }
        4 => {
            if let Some(byte) = out.get_mut(at) {
                *byte ^= 1 << rng.below(8);
            }
        }
        5 => {
            if let Some(byte) = out.get_mut(at) {
                *byte = byte.wrapping_add([1, 255][rng.below(2)]);
            }
        }
        _ => change_any(rng, out, other, at),
    }
}

fn change_text(rng: &mut Rng, out: &mut Vec<u8>, other: &[u8], words: &[&str]) {
    let at = rng.below(out.len() + 1);
    match rng.below(9) {
        0..=2 if !words.is_empty() => {
            let word = words[rng.below(words.len())];
            out.splice(at..at, word.bytes());
        }
        3 => {
            // Replace the digits at this place with another number.
            let digits = out[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            let text = number(rng).to_string();
            out.splice(at..at + digits, text.bytes());
        }
        4 => {
            let odd = ["\u{0}", "\n", "\"", "'", "\\", "é", "\u{1f600}", "\u{202e}", "]", "=", "-", "\r"];
            out.splice(at..at, odd[rng.below(odd.len())].bytes());
        }
        5 => drop_line(rng, out),
        6 => {
            // Replace the next integer or decimal number.
            let is_part = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
            let Some(start) = out[at..].iter().position(u8::is_ascii_digit).map(|skipped| at + skipped)
            else {
                return;
            };
            let len = out[start..].iter().take_while(|byte| is_part(byte)).count();
            let text = match rng.one_in(2) {
                true => NUMBER_TEXTS[rng.below(NUMBER_TEXTS.len())].to_owned(),
                false => number(rng).to_string(),
            };
            out.splice(start..start + len, text.bytes());
        }
        _ => change_any(rng, out, other, at),
    }
}

/// Applies a change that needs no knowledge of the format.
fn change_any(rng: &mut Rng, out: &mut Vec<u8>, other: &[u8], at: usize) {
    let len = rng.below(rng.clone().below(64) + 1);
    let end = (at + len).min(out.len());
    match rng.below(6) {
        0 => out.truncate(at),
        1 => drop(out.drain(at..end)),
        2 => {
            // Repeat a part, which makes lists long.
            let piece = out[at..end].to_vec();
            let most = if rng.one_in(20) { 5_000 } else { 8 };
            let times = 1 + rng.below(most);
            let many = piece.repeat(times.min(INPUT_BYTES_MAX / (piece.len() + 1)));
            out.splice(at..at, many);
        }
        3 => {
            let from = rng.below(other.len() + 1);
            let piece = &other[from..(from + len).min(other.len())];
            out.splice(at..at, piece.iter().copied());
        }
        4 => {
            // Join the head of this input and the tail of the other.
            out.truncate(at);
            out.extend_from_slice(&other[rng.below(other.len() + 1)..]);
        }
        _ => {
            for byte in &mut out[at..end] {
                *byte = rng.next() as u8;
            }
        }
    }
}

fn drop_line(rng: &mut Rng, out: &mut Vec<u8>) {
    let lines: Vec<&[u8]> = out.split_inclusive(|byte| *byte == b'\n').collect();
    let gone = rng.below(lines.len());
    let twice = rng.one_in(2);
    let kept = lines.iter().enumerate().flat_map(|(index, line)| {
        let times = if index != gone { 1 } else { 2 * usize::from(twice) };
        std::iter::repeat_n(*line, times)
    });
    *out = kept.collect::<Vec<_>>().concat();
}

fn number(rng: &mut Rng) -> u64 {
    match rng.below(4) {
        0 => rng.next() >> rng.below(64),
        1 => rng.below(300) as u64,
        _ => EDGES[rng.below(EDGES.len())],
    }
}

/// Encodes a variable-length integer, sometimes overlong or unterminated.
fn varint(rng: &mut Rng) -> Vec<u8> {
    if rng.one_in(16) {
        return vec![0xff; 1 + rng.below(19)];
    }
    let mut value = number(rng);
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    if rng.one_in(16) {
        *out.last_mut().expect("not empty") |= 0x80;
        out.push(0);
    }
    out
}
