//! Reading one table of the file: typed values with their positions, and no key ignored.

use crate::error::{ConfigError, Location};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use weft_core::units::{parse_duration, parse_size};
use weft_core::{ByteLen, Nanos};

/// File that is being read.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub file: &'a Path,
    pub text: &'a str,
}

impl Source<'_> {
    /// Creates the error for the text at `span`.
    pub fn refuse(
        &self,
        span: Range<usize>,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> ConfigError {
        ConfigError {
            file: self.file.to_owned(),
            place: Some(Location::of(self.text, span)),
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }
}

/// Value with its position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Item<T> {
    pub value: T,
    pub span: Range<usize>,
}

type Entry<'a> = (Range<usize>, &'a Spanned<DeValue<'a>>);

/// One table. Each access names a key that the table may contain; [`Section::finish`] rejects all others.
pub(crate) struct Section<'a> {
    source: Source<'a>,
    title: String,
    span: Range<usize>,
    entries: RefCell<BTreeMap<String, Entry<'a>>>,
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Section<'a> {
    /// Creates the section of a table, which messages call `title`, such as `[cluster]`.
    pub fn new(source: Source<'a>, title: &str, span: Range<usize>, table: &'a DeTable<'a>) -> Self {
        let entries =
            table.iter().map(|(key, value)| (key.get_ref().to_string(), (key.span(), value))).collect();
        Self {
            source,
            title: title.to_owned(),
            span,
            entries: RefCell::new(entries),
            known: RefCell::new(Vec::new()),
        }
    }

    /// Returns the position of the table.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    fn take(&self, key: &'static str) -> Option<Entry<'a>> {
        self.known.borrow_mut().push(key);
        self.entries.borrow_mut().remove(key)
    }

    /// Creates an error about a value of the table.
    pub fn refuse(&self, span: Range<usize>, problem: &str, remedy: &str) -> ConfigError {
        self.source.refuse(span, problem, remedy)
    }

    /// Creates the error of a missing key. A key that was not read and is similar is reported instead: it is misspelled.
    pub fn missing(&self, key: &'static str, remedy: &str) -> ConfigError {
        let entries = self.entries.borrow();
        let misspelled = entries.iter().find(|(found, _)| !did_you_mean(found, &[key]).is_empty());
        if let Some((found, (span, _))) = misspelled {
            return unknown(self.source, &self.title, found, span.clone(), format!("did you mean {key}?"));
        }
        self.source.refuse(self.span(), format!("{} has no {key:?}", self.title), remedy)
    }

    fn wrong_type(
        &self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        wanted: &str,
        example: &str,
    ) -> ConfigError {
        let found = value.get_ref().type_str();
        self.source.refuse(
            value.span(),
            format!("{key} must be {wanted}, not {found}"),
            format!("write {key} = {example}"),
        )
    }

    /// Reads a string.
    pub fn text(&self, key: &'static str, example: &str) -> Result<Option<Item<String>>, ConfigError> {
        let Some((_, value)) = self.take(key) else { return Ok(None) };
        match value.get_ref() {
            DeValue::String(text) if !text.is_empty() => {
                Ok(Some(Item { value: text.to_string(), span: value.span() }))
            }
            DeValue::String(_) => Err(self.source.refuse(
                value.span(),
                format!("{key} is empty"),
                format!("write {key} = {example:?}, or remove the line"),
            )),
            _ => Err(self.wrong_type(key, value, "a string in quotes", &format!("{example:?}"))),
        }
    }

    /// Reads a string and parses it with `read`, whose error is the remedy.
    pub fn parsed<T>(
        &self,
        key: &'static str,
        example: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<Item<T>>, ConfigError> {
        let Some(item) = self.text(key, example)? else { return Ok(None) };
        match read(&item.value) {
            Ok(value) => Ok(Some(Item { value, span: item.span })),
            Err(remedy) => {
                let problem = format!("{key} = {:?} cannot be used", item.value);
                Err(self.source.refuse(item.span, problem, remedy))
            }
        }
    }

    /// Reads one of several words.
    pub fn choice<T: Copy>(
        &self,
        key: &'static str,
        choices: &[(&'static str, T)],
    ) -> Result<Option<T>, ConfigError> {
        let words = choices.iter().map(|(word, _)| *word).collect::<Vec<_>>();
        let item = self.parsed(key, words[0], |text| {
            choices.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
                format!("it must be one of: {}{}", words.join(", "), did_you_mean(text, &words))
            })
        })?;
        Ok(item.map(|item| item.value))
    }

    /// Reads a size within bounds: a string with a unit, or a number of bytes.
    pub fn size(
        &self,
        key: &'static str,
        bounds: std::ops::RangeInclusive<ByteLen>,
    ) -> Result<Option<ByteLen>, ConfigError> {
        let Some(item) = self.quantity(key, "64 KiB", parse_size, ByteLen)? else { return Ok(None) };
        if !bounds.contains(&item.value) {
            let problem = format!("{key} is out of bounds");
            let (low, high) = (crate::format_size(*bounds.start()), crate::format_size(*bounds.end()));
            return Err(self.source.refuse(
                item.span,
                problem,
                format!("it must lie between {low} and {high}"),
            ));
        }
        Ok(Some(item.value))
    }

    /// Reads a size within bounds under `key`, or under its former name. Both at once are an error.
    pub fn size_or_former(
        &self,
        key: &'static str,
        former: &'static str,
        bounds: std::ops::RangeInclusive<ByteLen>,
    ) -> Result<Option<ByteLen>, ConfigError> {
        if let Some(size) = self.size(key, bounds.clone())? {
            return Ok(Some(size));
        }
        let size = self.size(former, bounds);
        self.known.borrow_mut().retain(|known| *known != former);
        size
    }

    /// Reads a duration within bounds.
    pub fn duration(
        &self,
        key: &'static str,
        bounds: std::ops::RangeInclusive<Nanos>,
    ) -> Result<Option<Nanos>, ConfigError> {
        let Some(item) = self.parsed(key, "500 ms", parse_duration)? else { return Ok(None) };
        if !bounds.contains(&item.value) {
            let problem = format!("{key} is out of bounds");
            let (low, high) =
                (crate::format_duration(*bounds.start()), crate::format_duration(*bounds.end()));
            return Err(self.source.refuse(
                item.span,
                problem,
                format!("it must lie between {low} and {high}"),
            ));
        }
        Ok(Some(item.value))
    }

    /// Reads a string with a unit by `read`, or a number by `plain`.
    pub fn quantity<T>(
        &self,
        key: &'static str,
        example: &str,
        read: impl Fn(&str) -> Result<T, String>,
        plain: impl Fn(u64) -> T,
    ) -> Result<Option<Item<T>>, ConfigError> {
        let integer = match self.entries.borrow().get(key) {
            Some((_, value)) if value.get_ref().is_integer() => Some(()),
            _ => None,
        };
        match integer {
            Some(()) => {
                Ok(self.number(key, 0..=u64::MAX)?.map(|i| Item { value: plain(i.value), span: i.span }))
            }
            None => self.parsed(key, example, read),
        }
    }

    /// Reads a whole number within bounds.
    pub fn number(
        &self,
        key: &'static str,
        bounds: std::ops::RangeInclusive<u64>,
    ) -> Result<Option<Item<u64>>, ConfigError> {
        let Some((_, value)) = self.take(key) else { return Ok(None) };
        let DeValue::Integer(integer) = value.get_ref() else {
            // A number in quotes is repeated without them.
            let meant = value.get_ref().as_str().and_then(|text| text.trim().parse().ok());
            let example = meant.filter(|number| bounds.contains(number)).unwrap_or(*bounds.start().max(&1));
            return Err(self.wrong_type(key, value, "a whole number", &example.to_string()));
        };
        let digits = integer.as_str().replace('_', "");
        let digits = digits.trim_start_matches("0x").trim_start_matches("0o").trim_start_matches("0b");
        match u64::from_str_radix(digits, integer.radix()) {
            Ok(number) if bounds.contains(&number) => Ok(Some(Item { value: number, span: value.span() })),
            _ => Err(self.source.refuse(
                value.span(),
                format!("{key} is out of bounds"),
                format!("it must lie between {} and {}", bounds.start(), bounds.end()),
            )),
        }
    }

    /// Reads `true` or `false`.
    pub fn flag(&self, key: &'static str) -> Result<Option<bool>, ConfigError> {
        let Some((_, value)) = self.take(key) else { return Ok(None) };
        value.get_ref().as_bool().map(Some).ok_or_else(|| {
            let is_false = value.get_ref().as_str().is_some_and(|text| text.eq_ignore_ascii_case("false"));
            self.wrong_type(key, value, "true or false", if is_false { "false" } else { "true" })
        })
    }

    /// Reads an absolute path without `..`.
    pub fn path(&self, key: &'static str, example: &str) -> Result<Option<Item<PathBuf>>, ConfigError> {
        self.parsed(key, example, |text| {
            let path = PathBuf::from(text);
            if text.starts_with("~") {
                return Err("~ is not expanded here: write the full path".to_owned());
            }
            if !path.is_absolute() {
                return Err("a relative path differs from process to process: write one that starts with /"
                    .to_owned());
            }
            if path.components().any(|part| part.as_os_str() == "..") {
                return Err("write the path without ..".to_owned());
            }
            Ok(path)
        })
    }

    /// Reads a string or an array of strings, each parsed by [`FromStr`].
    pub fn list<T: FromStr>(&self, key: &'static str, example: &str) -> Result<Vec<Item<T>>, ConfigError>
    where
        T::Err: std::fmt::Display,
    {
        let Some((_, value)) = self.take(key) else { return Ok(Vec::new()) };
        let single = [value.clone()];
        let values: &[Spanned<DeValue<'_>>] = match value.get_ref() {
            DeValue::Array(array) => array,
            _ => &single,
        };
        values
            .iter()
            .map(|value| match value.get_ref() {
                DeValue::String(text) => match text.parse() {
                    Ok(parsed) => Ok(Item { value: parsed, span: value.span() }),
                    Err(error) => {
                        let problem = format!("{key} = {text:?} cannot be used");
                        Err(self.source.refuse(value.span(), problem, T::Err::to_string(&error)))
                    }
                },
                _ => Err(self.wrong_type(key, value, "a string or a list of strings", example)),
            })
            .collect()
    }

    /// Reads a table inside this one.
    pub fn table(&self, key: &'static str, title: &str) -> Result<Option<Section<'a>>, ConfigError> {
        let Some((key_span, value)) = self.take(key) else { return Ok(None) };
        match value.get_ref() {
            DeValue::Table(table) => Ok(Some(Section::new(self.source, title, value.span(), table))),
            _ => Err(self.source.refuse(
                key_span,
                format!("{key} must be a section, not {}", value.get_ref().type_str()),
                format!("write the line {title} and its values below it"),
            )),
        }
    }

    /// Reads an array of tables inside this one, such as `[[server]]`.
    pub fn tables(&self, key: &'static str, title: &str) -> Result<Vec<Section<'a>>, ConfigError> {
        let Some((key_span, value)) = self.take(key) else { return Ok(Vec::new()) };
        let wrong = || {
            self.source.refuse(
                key_span.clone(),
                format!("{key} must be written with double brackets, once for each section"),
                format!("write the line {title} and its values below it"),
            )
        };
        let DeValue::Array(array) = value.get_ref() else { return Err(wrong()) };
        array
            .iter()
            .map(|value| match value.get_ref() {
                DeValue::Table(table) => Ok(Section::new(self.source, title, value.span(), table)),
                _ => Err(wrong()),
            })
            .collect()
    }

    /// Rejects keys that were not read.
    pub fn finish(self) -> Result<(), ConfigError> {
        let known = self.known.into_inner();
        // Report the first in the order of the file, not of the alphabet.
        let Some((key, (span, _))) = self.entries.into_inner().into_iter().min_by_key(|(_, e)| e.0.start)
        else {
            return Ok(());
        };
        let hint = did_you_mean(&key, &known);
        let remedy = match hint.as_str() {
            "" => format!("remove it; {} takes: {}", self.title, known.join(", ")),
            hint => hint.trim_start_matches("; ").to_owned(),
        };
        Err(unknown(self.source, &self.title, &key, span, remedy))
    }
}

fn unknown(source: Source<'_>, title: &str, key: &str, span: Range<usize>, remedy: String) -> ConfigError {
    source.refuse(span, format!("{title} does not know {key:?}"), remedy)
}

/// Returns `; did you mean …?` if one of `words` is similar to `text`, else an empty string.
fn did_you_mean(text: &str, words: &[&str]) -> String {
    let near = |word: &&&str| strsim::jaro_winkler(&text.to_lowercase(), word);
    let best = words.iter().max_by(|a, b| near(a).total_cmp(&near(b)));
    match best {
        Some(word) if near(&word) > 0.8 => format!("; did you mean {word}?"),
        _ => String::new(),
    }
}
