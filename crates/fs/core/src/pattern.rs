//! Path patterns of layout rules.
//!
//! | pattern | matches |
//! | --- | --- |
//! | `*` | any characters within a name, also none |
//! | `**` | any characters including `/`, also none; `**/` may match nothing, so `**/log` matches `log` |
//! | `?` | one character within a name |
//! | `[abc]`, `[a-z]`, `[!x]` | one character of the set, of the range, or not of the set |
//! | `{n}` | a number: all digits at this place, at least one |
//! | `\xHH` | a byte, by two hexadecimal digits, for names that are not UTF-8 ([`crate::escape`]) |
//! | `\c` | the character `c` itself |
//!
//! A pattern without `/` and `**` is matched against the last name of a path at any depth. Any other pattern, even
//! with only a leading `/`, is matched against the whole path relative to the directory that has the rule.

use crate::escape;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Maximum length of a pattern in bytes.
pub const PATTERN_LEN_MAX: usize = 2048;

/// A pattern that selects the files of a rule.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern {
    text: String,
    /// True if only the last name is matched.
    last: bool,
    tokens: Vec<Token>,
}

/// Error: the text is not a valid pattern.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("pattern {text:?}: {why}")]
pub struct PatternError {
    /// Text of the pattern.
    pub text: String,
    /// Defect and remedy.
    pub why: &'static str,
}

/// A token of a pattern.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Token {
    Text(Vec<u8>),
    /// `*`
    Name,
    /// `**`
    Path,
    /// `**/`
    Directories,
    /// `?`
    One,
    /// `[…]`: whether the set is negated, and ranges of characters.
    Set(bool, Vec<(char, char)>),
    /// `{n}`
    Number,
}

impl Pattern {
    /// Returns the text of the pattern.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Converts a path of a plan. In it, `*` stands for a number, `\xHH` for a byte (a star in a name is `\x2a`), and
    /// every other character for itself. The pattern matches the whole path relative to the directory that has the
    /// rule.
    ///
    /// # Errors
    /// When the result is longer than a pattern may be.
    pub fn of_numbers(path: &str) -> Result<Self, PatternError> {
        let mut text = String::with_capacity(path.len() + 8);
        if !path.starts_with('/') {
            text.push('/');
        }
        for (piece, byte) in escape::pieces(path) {
            match (piece, byte) {
                (_, Some(byte)) if byte.is_ascii_alphanumeric() => text.push(char::from(byte)),
                (_, Some(byte)) if byte.is_ascii_punctuation() => text.extend(['\\', char::from(byte)]),
                (_, Some(byte)) => escape::escape(&mut text, byte),
                ("*", None) => text.push_str("{n}"),
                ("?" | "[" | "]" | "{" | "}" | "\\", None) => text.extend(["\\", piece]),
                (other, None) => text.push_str(other),
            }
        }
        text.parse()
    }

    /// Returns true if the pattern matches a path relative to the directory that has the rule. The path has no leading
    /// `/`.
    pub fn matches(&self, path: &[u8]) -> bool {
        let path = match path.iter().rposition(|byte| *byte == b'/').filter(|_| self.last) {
            Some(slash) => &path[slash + 1..],
            None => path,
        };
        // Offsets in the path that the tokens so far can reach, in ascending order.
        let (mut offsets, mut next) = (vec![0usize], Vec::new());
        for token in &self.tokens {
            next.clear();
            offsets.iter().for_each(|offset| token.from(path, *offset, &mut next));
            next.sort_unstable();
            next.dedup();
            std::mem::swap(&mut offsets, &mut next);
            if offsets.is_empty() {
                return false;
            }
        }
        offsets.last() == Some(&path.len())
    }

    /// Returns true if the pattern matches every file below its directory.
    pub fn is_all(&self) -> bool {
        matches!(self.tokens.as_slice(), [Token::Path])
            || self.last && matches!(self.tokens.as_slice(), [Token::Name])
    }
}

impl Token {
    /// Adds the offsets that the token reaches from `offset`. They ascend, so a range that one star has covered is not
    /// covered again.
    fn from(&self, path: &[u8], offset: usize, reached: &mut Vec<usize>) {
        let rest = &path[offset..];
        match self {
            Self::Text(text) if rest.starts_with(text) => reached.push(offset + text.len()),
            Self::Text(_) => {}
            Self::Name => {
                let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
                fill(reached, offset, offset + end);
            }
            Self::Path => fill(reached, offset, path.len()),
            Self::Directories => {
                if offset == 0 || path[offset - 1] == b'/' {
                    reached.push(offset);
                }
                let slashes = rest.iter().enumerate().filter(|(_, byte)| **byte == b'/');
                reached.extend(slashes.map(|(at, _)| offset + at + 1));
            }
            Self::One | Self::Set(..) => {
                let Some((character, len)) = first(rest) else { return };
                let fits = match self {
                    Self::Set(negated, ranges) => {
                        let inside =
                            |character| ranges.iter().any(|(low, high)| (*low..=*high).contains(&character));
                        character.is_some_and(inside) != *negated
                    }
                    _ => true,
                };
                if fits && rest[0] != b'/' {
                    reached.push(offset + len);
                }
            }
            Self::Number => {
                let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
                // A number ends where no digit follows, so there is only one way to match it.
                if digits > 0 {
                    reached.push(offset + digits);
                }
            }
        }
    }
}

/// Adds `from..=to` except offsets already present; offsets arrive in ascending order.
fn fill(reached: &mut Vec<usize>, from: usize, to: usize) {
    let from = reached.last().map_or(from, |last| from.max(last + 1));
    reached.extend(from..=to);
}

/// Returns the first character and its length. An invalid byte counts as one character that is in no set.
fn first(bytes: &[u8]) -> Option<(Option<char>, usize)> {
    let end = bytes.len().min(4);
    let valid = match std::str::from_utf8(&bytes[..end]) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    };
    match valid.chars().next() {
        Some(character) => Some((Some(character), character.len_utf8())),
        None => bytes.first().map(|_| (None, 1)),
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let wrong = |why| PatternError { text: text.to_owned(), why };
        if text.len() > PATTERN_LEN_MAX {
            return Err(PatternError {
                text: text.chars().take(40).chain(['…']).collect(),
                why: "it is longer than 2048 bytes",
            });
        }
        let bare = text.strip_prefix('/').unwrap_or(text);
        if bare.is_empty() {
            return Err(wrong("it is empty: ** stands for all files"));
        }
        if bare.ends_with('/') {
            return Err(wrong("rules apply to files: write NAME/** for all files below a directory"));
        }
        if bare.contains('\0') {
            return Err(wrong(ZERO));
        }
        if bare.split('/').any(|name| matches!(name, "" | "." | "..")) {
            return Err(wrong("write the path below the directory, without // and . and .."));
        }
        let mut tokens: Vec<Token> = Vec::new();
        let mut rest = bare.chars().peekable();
        while let Some(character) = rest.next() {
            let token = match character {
                '*' if rest.next_if_eq(&'*').is_some() => {
                    while rest.next_if_eq(&'*').is_some() {}
                    let after_slash = match tokens.last() {
                        None => true,
                        Some(Token::Text(text)) => text.ends_with(b"/"),
                        Some(other) => *other == Token::Directories,
                    };
                    if after_slash && rest.next_if_eq(&'/').is_some() {
                        Token::Directories
                    } else {
                        Token::Path
                    }
                }
                '*' => Token::Name,
                '?' => Token::One,
                '[' => set(&mut rest).map_err(wrong)?,
                '{' => match (rest.next(), rest.next()) {
                    (Some('n'), Some('}')) => Token::Number,
                    _ => return Err(wrong("write {n} for a number, or \\{ for a brace")),
                },
                '\\' => match rest.next() {
                    Some(plain) => {
                        match escaped(&rest).filter(|_| plain == 'x') {
                            Some(0) => return Err(wrong(ZERO)),
                            Some(byte) => {
                                rest.nth(1);
                                push_bytes(&mut tokens, &[byte]);
                            }
                            None => push(&mut tokens, plain),
                        }
                        continue;
                    }
                    None => return Err(wrong("a character has to follow \\")),
                },
                plain => {
                    push(&mut tokens, plain);
                    continue;
                }
            };
            tokens.push(token);
        }
        let last = !text.contains('/')
            && !tokens.iter().any(|token| matches!(token, Token::Path | Token::Directories));
        tokens.shrink_to_fit(); // Patterns come in lists, from untrusted users.
        Ok(Self { text: text.to_owned(), last, tokens })
    }
}

const ZERO: &str = "no name has a zero byte";

/// Returns the byte denoted by the next two digits.
fn escaped(rest: &std::iter::Peekable<std::str::Chars<'_>>) -> Option<u8> {
    let digits = rest.clone().take(2).collect::<String>();
    escape::unescape(&format!("\\x{digits}"))
}

fn push(tokens: &mut Vec<Token>, character: char) {
    push_bytes(tokens, character.encode_utf8(&mut [0; 4]).as_bytes());
}

fn push_bytes(tokens: &mut Vec<Token>, bytes: &[u8]) {
    match tokens.last_mut() {
        Some(Token::Text(text)) => text.extend_from_slice(bytes),
        _ => tokens.push(Token::Text(bytes.to_vec())),
    }
}

/// Parses a set after its `[`.
fn set(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<Token, &'static str> {
    const OPEN: &str = "] is missing: write \\[ for a bracket";
    let negated = rest.next_if(|character| matches!(character, '!' | '^')).is_some();
    let mut ranges = Vec::new();
    loop {
        let low = match rest.next().ok_or(OPEN)? {
            // As in the shell, a `]` in first position is a character.
            ']' if !ranges.is_empty() => return Ok(Token::Set(negated, ranges)),
            '/' => return Err("/ cannot be in a set: it separates names"),
            '\\' => rest.next().ok_or(OPEN)?,
            plain => plain,
        };
        let mut ahead = rest.clone();
        let high = match (ahead.next(), ahead.next()) {
            (Some('-'), Some(high)) if high != ']' => {
                rest.nth(1);
                if high == '\\' { rest.next().ok_or(OPEN)? } else { high }
            }
            _ => low,
        };
        if low > high {
            return Err("a range in a set must begin with the lower character");
        }
        ranges.push((low, high));
    }
}

impl TryFrom<String> for Pattern {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        text.parse()
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.text
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(pattern: &str, path: &str) -> bool {
        pattern.parse::<Pattern>().unwrap_or_else(|error| panic!("{error}")).matches(path.as_bytes())
    }

    #[test]
    fn patterns_match_names_at_any_depth_and_paths_from_the_directory() {
        for (pattern, path, expected) in [
            ("*.h5", "a.h5", true),
            ("*.h5", "deep/down/a.h5", true),
            ("*.h5", "a.h5/b", false),
            ("/*.h5", "a.h5", true),
            ("/*.h5", "deep/a.h5", false),
            ("run{n}/out.{n}.h5", "run7/out.0012.h5", true),
            ("run{n}/out.{n}.h5", "x/run7/out.0012.h5", false),
            ("run{n}/out.{n}.h5", "run7/out.12x.h5", false),
            ("out.{n}", "out.12", true),
            ("out.{n}2", "out.12", false),
            ("**/log", "log", true),
            ("**/log", "a/b/log", true),
            ("**/log", "a/blog", false),
            ("a/**", "a/b/c", true),
            ("a/**", "a", false),
            ("a/**/c", "a/c", true),
            ("a/**/c", "a/b/b/c", true),
            ("**", "any/thing", true),
            ("*", "any/thing", true),
            ("a**b", "a/x/b", true),
            ("a**b", "x/ab", false),
            ("?at", "cat", true),
            ("?at", "\u{e9}at", true),
            ("x?at", "x/at", false),
            ("[a-c]1", "b1", true),
            ("[!a-c]1", "b1", false),
            ("[]x]", "]", true),
            ("[a-]", "-", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("\\{n}", "{n}", true),
            ("\\x41\\x2A\\xg", "A*xg", true),
            ("caf\\xc3\\xa9", "caf\u{e9}", true),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} on {path}");
        }
        assert!(
            "caf?".parse::<Pattern>().unwrap().matches(b"caf\xff"),
            "an invalid byte counts as a character"
        );
        let of_bytes: Pattern = "caf\\xe9*".parse().unwrap();
        assert!(of_bytes.matches(b"caf\xe91") && !of_bytes.matches("caf\u{e9}1".as_bytes()));
    }

    #[test]
    fn invalid_patterns_are_rejected() {
        for wrong in
            ["", "/", "a/", "a//b", "../a", "./a", "{m}", "{", "[a", "[b-a]", "a\\", "[a/b]", "a\0", "a\\x00"]
        {
            assert!(wrong.parse::<Pattern>().is_err(), "{wrong}");
        }
        assert!("x".repeat(PATTERN_LEN_MAX + 1).parse::<Pattern>().is_err());
        assert!("[a-z".parse::<Pattern>().unwrap_err().to_string().contains("\\["));
    }

    #[test]
    fn paths_of_plans_match_literally_except_numbers() {
        let pattern = Pattern::of_numbers("run7/a[1]{n}.*.h5").unwrap();
        assert_eq!(pattern.as_str(), "/run7/a\\[1\\]\\{n\\}.{n}.h5");
        assert!(pattern.matches(b"run7/a[1]{n}.17.h5") && !pattern.matches(b"run7/a[1]{n}..h5"));
        assert!(!Pattern::of_numbers("out").unwrap().matches(b"deep/out"));
        // A star in a name, bytes that are not UTF-8, and a backslash before text that looks like an escape.
        let pattern = Pattern::of_numbers("a\\x2a\\xe9.*\\x5cx2a").unwrap();
        assert_eq!(pattern.as_str(), "/a\\*\\xe9.{n}\\\\x2a");
        assert!(pattern.matches(b"a*\xe9.17\\x2a") && !pattern.matches(b"a7\xe9.17\\x2a"));
        assert!(Pattern::of_numbers("a\\x00").is_err());
    }

    #[test]
    fn many_stars_match_quickly() {
        let pattern: Pattern = "*a".repeat(300).parse().unwrap();
        assert!(!pattern.matches("a".repeat(250).as_bytes()));
        let pattern: Pattern = "**a".repeat(300).parse().unwrap();
        assert!(pattern.matches(&b"a/".repeat(2000)[..3999]) && !pattern.matches(&b"a/".repeat(299)));
    }

    /// Reference implementation: tries every split, as the table says.
    fn naive(tokens: &[Token], path: &[u8], at: usize) -> bool {
        let Some((token, after)) = tokens.split_first() else { return at == path.len() };
        let ends: Vec<usize> = (at..=path.len())
            .filter(|end| {
                let taken = &path[at..*end];
                match token {
                    Token::Text(text) => taken == text,
                    Token::Name => !taken.contains(&b'/'),
                    Token::Path => true,
                    Token::Directories => {
                        (taken.is_empty() && (at == 0 || path[at - 1] == b'/')) || taken.ends_with(b"/")
                    }
                    Token::One => taken.len() == 1 && taken != b"/",
                    Token::Set(negated, ranges) => {
                        let inside = |c: char| ranges.iter().any(|(low, high)| *low <= c && c <= *high);
                        taken.len() == 1 && taken != b"/" && inside(char::from(taken[0])) != *negated
                    }
                    Token::Number => {
                        !taken.is_empty()
                            && taken.iter().all(u8::is_ascii_digit)
                            && !path.get(*end).is_some_and(u8::is_ascii_digit)
                    }
                }
            })
            .collect();
        ends.into_iter().any(|end| naive(after, path, end))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn matches_like_the_reference_implementation(
            pieces in prop::collection::vec(
                prop::sample::select(vec!["a", "b", "1", "/", "*", "**", "**/", "?", "[a1]", "[!a]", "{n}", "."]),
                1..8,
            ),
            path in prop::collection::vec(prop::sample::select(vec!["a", "b", "1", "2", "/", "."]), 1..9),
        ) {
            let (text, path) = (pieces.concat(), path.concat());
            if let Ok(pattern) = text.parse::<Pattern>() {
                let seen = match path.rsplit_once('/') {
                    Some((_, last)) if pattern.last => last,
                    _ => path.as_str(),
                };
                let expected = naive(&pattern.tokens, seen.as_bytes(), 0);
                prop_assert_eq!(pattern.matches(path.as_bytes()), expected, "{} on {}", text, path);
                prop_assert_eq!(pattern.as_str(), text);
            }
        }
    }
}
