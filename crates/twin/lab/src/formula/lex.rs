//! Tokenizer for formulas.

/// A token.
#[derive(Clone, PartialEq, Debug)]
pub enum Token {
    /// A number, with its unit applied.
    Number(f64),
    /// A name or keyword.
    Name(String),
    /// A quoted text.
    Quoted(String),
    /// An operator or bracket.
    Operator(&'static str),
}

/// Longer operators first, so that `<=` is not read as `<` and `=`.
const OPERATORS: [&str; 14] = ["<=", ">=", "==", "<", ">", "+", "-", "*", "/", "(", ")", "[", "]", ","];
const UNITS: [(&str, f64); 4] = [
    ("KiB", 1024.0),
    ("MiB", 1024.0 * 1024.0),
    ("GiB", 1024.0 * 1024.0 * 1024.0),
    ("TiB", 1024.0 * 1024.0 * 1024.0 * 1024.0),
];

/// Splits a formula into tokens. The error describes what is wrong.
pub fn tokens(formula: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = formula.trim_start();
    while let Some(first) = rest.chars().next() {
        rest = if first == '"' {
            let (quoted, after) = rest[1..].split_once('"').ok_or("unterminated quote")?;
            tokens.push(Token::Quoted(quoted.to_owned()));
            after
        } else if let Some(operator) = OPERATORS.iter().find(|operator| rest.starts_with(**operator)) {
            tokens.push(Token::Operator(operator));
            &rest[operator.len()..]
        } else if first.is_ascii_digit() {
            let (number, after) = number(rest)?;
            tokens.push(Token::Number(number));
            after
        } else if first.is_ascii_alphabetic() {
            let (name, after) =
                split(rest, |c| c.is_ascii_alphanumeric() || c == '_' || c == '-' || c == '.');
            // A hyphen without spaces belongs to the name: parameters may be called `per-node`.
            tokens.push(Token::Name(name.to_owned()));
            after
        } else {
            return Err(format!("unexpected `{first}`"));
        }
        .trim_start();
    }
    Ok(tokens)
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
        return Err(format!("unknown unit `{unit}`: use KiB, MiB, GiB or TiB"));
    }
    Ok((number, after))
}

fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}
