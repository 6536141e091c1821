use super::*;
use proptest::prelude::*;

/// Series "a" with a(x) = 10 x at 1, 2 and 4, and "b" with a value at 2 only. The published value of "a" at 2 is 5.
struct Fixed;

impl Scope for Fixed {
    fn parameter(&self, name: &str) -> Result<f64, EvalError> {
        match name {
            "servers" => Ok(8.0),
            "per-node" => Ok(3.0),
            _ => Err(EvalError::Unknown(format!("parameter `{name}`"))),
        }
    }

    fn series(&self, name: &str, x: &X, source: Source) -> Result<f64, EvalError> {
        match (name, x, source) {
            ("a", X::Number(2.0), Source::Published) => Ok(5.0),
            ("a", X::Number(2.0), Source::PublishedRatio) => Ok(0.5),
            ("a", X::Number(x), Source::Measured) if [1.0, 2.0, 4.0].contains(x) => Ok(10.0 * x),
            ("b", X::Number(2.0), Source::Measured) => Ok(7.0),
            ("a" | "b", ..) => Err(EvalError::Missing(format!("\"{name}\" at {x}"))),
            _ => Err(EvalError::Unknown(format!("series \"{name}\""))),
        }
    }

    fn xs(&self) -> Vec<X> {
        [1.0, 2.0, 4.0].map(X::Number).to_vec()
    }
}

fn evaluated(formula: &str) -> Result<f64, String> {
    let tree = parse_number(formula).map_err(|error| error.to_string())?;
    number(&tree, &Fixed, None).map_err(|error| error.to_string())
}

fn holds(formula: &str, x: f64) -> Result<(bool, String), String> {
    let claim = parse_claim(formula).map_err(|error| error.to_string())?;
    truth(&claim.tree, &Fixed, Some(&X::Number(x))).map_err(|error| error.to_string())
}

#[test]
fn arithmetic_binds_as_usual() {
    for (formula, expected) in [
        ("1 + 2 * 3", 7.0),
        ("(1 + 2) * 3", 9.0),
        ("10 - 4 - 3", 3.0),
        ("24 / 4 / 3", 2.0),
        ("-2 * -3", 6.0),
        ("64KiB / 2", 32_768.0),
        ("10GiB / servers", 1_342_177_280.0),
        ("1_000 * per-node", 3000.0),
        ("floor(7 / 2) + ceil(7 / 2)", 7.0),
        ("min(3, servers) + max(3, servers)", 11.0),
        ("abs(3 - servers)", 5.0),
        ("\"a\"[4] / \"a\"[1]", 4.0),
        ("mean(\"a\") * 3", 70.0),
        ("most(\"a\") - least(\"a\")", 30.0),
        ("mean(\"a\" / \"b\")", 20.0 / 7.0),
        ("published(\"a\"[2])", 5.0),
        ("published_ratio(\"a\"[2])", 0.5),
        ("below(\"a\", 4)", 30.0),
    ] {
        assert_eq!(evaluated(formula), Ok(expected), "{formula}");
    }
}

#[test]
fn claims_show_the_comparison() {
    assert_eq!(holds("\"a\" / \"b\" >= 1.5 at 2", 2.0), Ok((true, "2.86 >= 1.5".into())));
    assert_eq!(holds("\"a\" < 10", 1.0), Ok((false, "10 < 10".into())));
    assert_eq!(holds("not \"a\" < 10 and \"a\" == 10", 1.0), Ok((true, "not (10 < 10) and 10 == 10".into())));
    assert_eq!(holds("\"a\" > 100 or \"a\" <= 10", 1.0), Ok((true, "10 > 100 or 10 <= 10".into())));
    assert_eq!(holds("(1 < 2 and 2 < 3)", 1.0), Ok((true, "1 < 2 and 2 < 3".into())));
    assert_eq!(parse_claim("1 < 2 at each").unwrap().at, At::Each);
    assert_eq!(parse_claim("1 < 2").unwrap().at, At::Once);
    let at = At::These(vec![X::Number(65_536.0), X::Name("x".into())]);
    assert_eq!(parse_claim("1 < 2 at 64KiB, \"x\"").unwrap().at, at);
}

#[test]
fn errors_are_described() {
    for (formula, why) in [
        ("1 +", "unexpected end"),
        ("1 2", "after the end"),
        ("(1", "`)` is missing"),
        ("12 KB", "after the end"),
        ("12KB", "unknown unit"),
        ("\"a", "unterminated"),
        ("1 ? 2", "unexpected `?`"),
        ("sin(1)", "no function `sin`"),
        ("min(1)", "takes 2 argument(s), not 1"),
        ("published(1)", "takes a series"),
        ("published_ratio(1)", "takes a series"),
        ("published_ratio(\"a\"[1])", "no value of \"a\" at 1"),
        ("1 / 0", "division by zero"),
        ("other", "no parameter `other`"),
        ("\"a\"", "give an x"),
        ("\"a\"[3]", "no value of \"a\" at 3"),
        ("\"c\"[3]", "no series \"c\""),
        ("(1 < 2)", "is not a number"),
    ] {
        let error = evaluated(formula).expect_err(formula);
        assert!(error.contains(why), "{formula}: {error}");
    }
    assert!(holds("1 + 1", 1.0).unwrap_err().contains("neither true nor false"));
    assert!(holds("\"b\" < 1", 1.0).unwrap_err().contains("no value"));
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "[ -~]{0,40}") {
        let _ = parse_claim(&text);
        let _ = parse_number(&text);
    }

    #[test]
    fn arithmetic_agrees_with_f64(a in 0u32..1000, b in 0u32..1000, c in 1u32..1000) {
        let expected = f64::from(a) + f64::from(b) / f64::from(c) - f64::from(a) * f64::from(b);
        prop_assert_eq!(evaluated(&format!("{a} + {b} / {c} - {a} * {b}")), Ok(expected));
    }
}
