//! Formulas cut into words.

/// A word of a formula.
#[derive(Clone, PartialEq, Debug)]
pub enum Word {
    /// A number with its unit worked in.
    Number(f64),
    /// A name or key word.
    Name(String),
    /// What stood in quotes.
    Quoted(String),
    /// A sign.
    Sign(&'static str),
}

/// Longer signs first: `<=` is not `<` and `=`.
const SIGNS: [&str; 14] = ["<=", ">=", "==", "<", ">", "+", "-", "*", "/", "(", ")", "[", "]", ","];
const UNITS: [(&str, f64); 4] = [
    ("KiB", 1024.0),
    ("MiB", 1024.0 * 1024.0),
    ("GiB", 1024.0 * 1024.0 * 1024.0),
    ("TiB", 1024.0 * 1024.0 * 1024.0 * 1024.0),
];

/// Cuts a formula; the error says what is wrong.
pub fn words(formula: &str) -> Result<Vec<Word>, String> {
    let mut words = Vec::new();
    let mut rest = formula.trim_start();
    while let Some(first) = rest.chars().next() {
        rest = if first == '"' {
            let (quoted, after) = rest[1..].split_once('"').ok_or("a quote that does not end")?;
            words.push(Word::Quoted(quoted.to_owned()));
            after
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            words.push(Word::Sign(sign));
            &rest[sign.len()..]
        } else if first.is_ascii_digit() {
            let (number, after) = number(rest)?;
            words.push(Word::Number(number));
            after
        } else if first.is_ascii_alphabetic() {
            let (name, after) =
                split(rest, |c| c.is_ascii_alphanumeric() || c == '_' || c == '-' || c == '.');
            // A sign that no blank follows belongs to the name: parameters may be called `per-node`.
            words.push(Word::Name(name.to_owned()));
            after
        } else {
            return Err(format!("`{first}` means nothing here"));
        }
        .trim_start();
    }
    Ok(words)
}

fn number(text: &str) -> Result<(f64, &str), String> {
    let (digits, mut after) = split(text, |c| c.is_ascii_digit() || c == '.' || c == '_');
    let mut number: f64 =
        digits.replace('_', "").parse().map_err(|_| format!("`{digits}` is not a number"))?;
    if let Some((unit, factor)) = UNITS.iter().find(|(unit, _)| after.starts_with(unit)) {
        number *= factor;
        after = &after[unit.len()..];
    }
    if after.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        let (unit, _) = split(after, |c| c.is_ascii_alphanumeric());
        return Err(format!("`{unit}` is no unit: KiB, MiB, GiB, TiB"));
    }
    Ok((number, after))
}

fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}
