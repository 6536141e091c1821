//! Five kinds of data that stand for those of the thesis's table 3.2. The same bytes in every run.

use weft_core::random::SplitMix64;

/// Kind of data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Words in the frequencies of a language, in sentences.
    Text,
    /// Machine code, symbol tables, names and padding.
    Libraries,
    /// Smooth fields of doubles with noise in their last digits.
    Doubles,
    /// Letters of proteins in their natural frequencies, in lines of 60.
    Protein,
    /// Random bytes.
    Random,
}

/// Number of different words in text.
const WORDS: u64 = 8192;
/// Number of different instructions in code, and of sequences of them that compilers emit often.
const INSTRUCTIONS: u64 = 256;
const SEQUENCES: u64 = 4096;
/// Frequencies of the twenty amino acids in per mille, as in UniProtKB/Swiss-Prot.
const AMINO_ACIDS: [(u8, u64); 20] = [
    (b'A', 83),
    (b'C', 14),
    (b'D', 55),
    (b'E', 67),
    (b'F', 39),
    (b'G', 71),
    (b'H', 23),
    (b'I', 59),
    (b'K', 58),
    (b'L', 97),
    (b'M', 24),
    (b'N', 41),
    (b'P', 47),
    (b'Q', 39),
    (b'R', 55),
    (b'S', 66),
    (b'T', 54),
    (b'V', 69),
    (b'W', 11),
    (b'Y', 28),
];

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Text, Self::Libraries, Self::Doubles, Self::Protein, Self::Random];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Libraries => "libraries",
            Self::Doubles => "doubles",
            Self::Protein => "protein",
            Self::Random => "random",
        }
    }

    /// Returns `len` bytes of this kind.
    pub fn bytes(self, len: usize) -> Vec<u8> {
        let mut random = SplitMix64::new(self as u64);
        let mut out = Vec::with_capacity(len + (64 << 10));
        match self {
            Self::Text => text(&mut random, len, &mut out),
            Self::Libraries => libraries(&mut random, len, &mut out),
            Self::Doubles => doubles(&mut random, len, &mut out),
            Self::Protein => protein(&mut random, len, &mut out),
            Self::Random => {
                while out.len() < len {
                    out.extend_from_slice(&random.next_u64().to_le_bytes());
                }
            }
        }
        out.truncate(len);
        out
    }
}

/// Returns a number below `bound`. Number *n* has a probability about in proportion to 1/(n+1): Zipf's law.
fn zipf(random: &mut SplitMix64, bound: u64) -> u64 {
    let rank = ((bound as f64).ln() * random.next_f64()).exp() as u64;
    rank.saturating_sub(1).min(bound - 1)
}

/// Returns `count` words; the first ones, which are the most frequent, are the shortest.
fn vocabulary(random: &mut SplitMix64, count: u64) -> Vec<String> {
    const CONSONANTS: &[u8] = b"tnshrdlcmwfgypbvkjxqz";
    const VOWELS: &[u8] = b"eaoiu";
    let word = |rank: u64| {
        let len = 2 + (rank + 1).ilog2() as u64 / 3 + random.below(4);
        let mut letters = |from: &[u8]| char::from(from[zipf(random, from.len() as u64) as usize]);
        (0..len).map(|at| letters(if (rank + at).is_multiple_of(2) { CONSONANTS } else { VOWELS })).collect()
    };
    (0..count).map(word).collect()
}

fn text(random: &mut SplitMix64, len: usize, out: &mut Vec<u8>) {
    let words = vocabulary(random, WORDS);
    let mut column = 0;
    while out.len() < len {
        let count = 4 + random.below(18);
        for number in 0..count {
            let word = &words[zipf(random, WORDS) as usize];
            let start = out.len();
            out.extend_from_slice(word.as_bytes());
            if number == 0 {
                out[start].make_ascii_uppercase();
            }
            if number + 1 == count {
                out.push(b'.');
            } else if random.below(12) == 0 {
                out.push(b',');
            }
            column += out.len() - start + 1;
            out.push(if column > 75 { b'\n' } else { b' ' });
            column = if column > 75 { 0 } else { column };
        }
    }
}

/// An instruction: fixed bytes, and how many bytes of an operand follow.
struct Instruction {
    fixed: Vec<u8>,
    operand: usize,
}

fn libraries(random: &mut SplitMix64, len: usize, out: &mut Vec<u8>) {
    let words = vocabulary(random, 1024);
    let instructions: Vec<Instruction> = (0..INSTRUCTIONS)
        .map(|_| Instruction {
            fixed: (0..1 + random.below(3)).map(|_| random.next_u64() as u8).collect(),
            operand: [0, 0, 1, 1, 1, 4][random.below(6) as usize],
        })
        .collect();
    let sequences: Vec<Vec<u8>> = (0..SEQUENCES)
        .map(|_| {
            let mut sequence = Vec::new();
            for _ in 0..1 + random.below(4) {
                let instruction = &instructions[zipf(random, INSTRUCTIONS) as usize];
                sequence.extend_from_slice(&instruction.fixed);
                let operand = 8 * zipf(random, 32) as u32;
                sequence.extend_from_slice(&operand.to_le_bytes()[..instruction.operand]);
            }
            sequence
        })
        .collect();
    let mut address = 0x40_0000u64;
    while out.len() < len {
        let end = out.len() + (4 << 10) + random.below(28 << 10) as usize;
        match random.below(20) {
            0..=11 => code(random, &sequences, end, out),
            12..=14 => {
                while out.len() < end {
                    let parts = 1 + random.below(3);
                    out.extend_from_slice(b"_ZN");
                    for _ in 0..parts {
                        let word = &words[zipf(random, 1024) as usize];
                        out.extend_from_slice(word.len().to_string().as_bytes());
                        out.extend_from_slice(word.as_bytes());
                    }
                    out.extend_from_slice(b"Ev\0");
                }
            }
            15..=17 => {
                let mut name = 0u32;
                while out.len() < end {
                    // A symbol of an ELF file.
                    let size = 16 * (1 + zipf(random, 256));
                    name += 8 + random.below(24) as u32;
                    address += size;
                    out.extend_from_slice(&name.to_le_bytes());
                    out.extend_from_slice(&[0x12, 0, 12, 0]);
                    out.extend_from_slice(&address.to_le_bytes());
                    out.extend_from_slice(&size.to_le_bytes());
                }
            }
            18 => out.resize(end, 0),
            _ => {
                while out.len() < end {
                    // Constants without a pattern.
                    out.extend_from_slice(&random.next_u64().to_le_bytes());
                }
            }
        }
    }
}

fn code(random: &mut SplitMix64, sequences: &[Vec<u8>], end: usize, out: &mut Vec<u8>) {
    while out.len() < end {
        // A function.
        out.extend_from_slice(&[0x55, 0x48, 0x89, 0xe5]);
        for _ in 0..4 + zipf(random, 100) {
            out.extend_from_slice(&sequences[zipf(random, SEQUENCES) as usize]);
            if random.below(6) == 0 {
                // A call: the distance from here to one of the functions that are often called.
                let callee = zipf(random, 4096) as u32 * 0x1a0;
                out.push(0xe8);
                out.extend_from_slice(&callee.wrapping_sub(out.len() as u32).to_le_bytes());
            }
        }
        out.extend_from_slice(&[0x5d, 0xc3]);
        out.resize(out.len().next_multiple_of(16), 0xcc);
    }
}

fn doubles(random: &mut SplitMix64, len: usize, out: &mut Vec<u8>) {
    let mut at = 0f64;
    while out.len() < len {
        let smooth = 300.0 + 20.0 * (at / 900.0).sin() + 5.0 * (at / 70.0).sin();
        let noise = 1e-3 * (random.next_f64() - 0.5);
        // Rounded, as by a solver that stops at a tolerance.
        let rounded = ((smooth + noise) * (1u64 << 32) as f64).round() / (1u64 << 32) as f64;
        out.extend_from_slice(&rounded.to_le_bytes());
        at += 1.0;
    }
}

fn protein(random: &mut SplitMix64, len: usize, out: &mut Vec<u8>) {
    let mut number = 0u32;
    while out.len() < len {
        number += 1;
        out.extend_from_slice(format!(">sp|P{number:05}|\n").as_bytes());
        let letters = 100 + random.below(500);
        for at in 1..=letters {
            let mut left = random.below(1000);
            let found = AMINO_ACIDS.iter().find(|(_, share)| {
                let is_here = left < *share;
                left = left.saturating_sub(*share);
                is_here
            });
            out.push(found.map_or(b'X', |(letter, _)| *letter));
            if at % 60 == 0 || at == letters {
                out.push(b'\n');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_length_and_the_same_bytes_again() {
        for kind in Kind::ALL {
            let bytes = kind.bytes(100_001);
            assert_eq!(bytes.len(), 100_001, "{kind:?}");
            assert!(bytes == kind.bytes(100_001), "{kind:?}");
            assert!(
                bytes[..1000] == kind.bytes(1000),
                "{kind:?}: the beginning does not depend on the length"
            );
        }
    }

    #[test]
    fn shares_of_letters_are_complete() {
        assert_eq!(AMINO_ACIDS.iter().map(|(_, share)| share).sum::<u64>(), 1000);
    }
}
