//! Every command in the documentation and in help texts parses.

use super::Weft;
use clap::{CommandFactory, Parser};
use std::path::Path;

/// Splits a shell command into words, up to a pipe, a redirection, another command or a comment.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match quote {
            Some(mark) if c == mark => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None => match c {
                '\'' | '"' => {
                    quote = Some(c);
                    word.get_or_insert_default();
                }
                '\\' => word.get_or_insert_default().extend(chars.next()),
                '|' | '>' | '<' | ';' | '&' => break,
                '#' if word.is_none() => break,
                // In plain text, a description follows the command after two spaces.
                c if c.is_whitespace() => {
                    words.extend(word.take());
                    if chars.peek().is_some_and(|next| next.is_whitespace()) {
                        break;
                    }
                }
                c => word.get_or_insert_default().push(c),
            },
        }
    }
    words.extend(word);
    words
}

/// Returns the weft command in a line of an example, if there is one. Variables and `sudo` may precede it.
fn command(line: &str) -> Option<Vec<String>> {
    let line = line.trim_start();
    let line = line.strip_prefix("$ ").unwrap_or(line);
    let mut all = line.split(" && ").map(|part| {
        let words = words(part);
        let before = words.iter().take_while(|word| *word == "sudo" || word.contains('=')).count();
        words[before..].to_vec()
    });
    // `[-f]` marks a synopsis.
    all.find(|words| {
        words.first().is_some_and(|word| word == "weft") && !words.iter().any(|word| word.starts_with('['))
    })
}

/// Returns the commands in the code blocks of a page.
fn of_page(path: &Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut inside = false;
    let lines = text.lines().filter(|line| {
        let fence = line.starts_with("```");
        inside ^= fence;
        inside && !fence
    });
    lines.filter_map(command).collect()
}

/// Returns the commands in the examples of a command's help and of its subcommands.
fn of_help(of: &clap::Command) -> Vec<Vec<String>> {
    let text = of.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let examples = text.lines().skip_while(|line| *line != "Examples:").skip(1);
    let own = examples.take_while(|line| line.starts_with("  ")).filter_map(command);
    own.chain(of.get_subcommands().flat_map(of_help)).collect()
}

/// Returns the parser's error, if any.
fn refused(words: &[String]) -> Option<String> {
    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
    let error = Weft::try_parse_from(words).err()?;
    (![DisplayHelp, DisplayVersion].contains(&error.kind())).then(|| format!("{}: {error}", words.join(" ")))
}

#[test]
fn commands_on_pages_are_taken() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let folders = std::fs::read_dir(root.join("docs")).expect("docs").flatten().map(|entry| entry.path());
    let files =
        folders.filter(|path| path.is_dir()).flat_map(|folder| std::fs::read_dir(folder).expect("a folder"));
    let pages = files
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .chain(["README.md", "CONTRIBUTING.md"].map(|name| root.join(name)));
    let all: Vec<_> = pages.flat_map(|page| of_page(&page)).collect();
    assert!(all.len() > 80, "{} commands on all pages", all.len());
    assert_eq!(all.iter().filter_map(|words| refused(words)).collect::<Vec<_>>().join("\n"), "");
}

#[test]
fn commands_in_help_texts_are_taken() {
    let all = of_help(&Weft::command());
    assert!(all.len() > 60, "{} examples in all", all.len());
    assert_eq!(all.iter().filter_map(|words| refused(words)).collect::<Vec<_>>().join("\n"), "");
}

#[test]
fn examples_are_read_as_a_shell_does() {
    let read = |line: &str| command(line).map(|words| words.join("|"));
    assert_eq!(read("$ weft ls -l /weft   # shown").as_deref(), Some("weft|ls|-l|/weft"));
    assert_eq!(read("$ WEFT_X=1 sudo weft run -- sh -c 'a; b'").as_deref(), Some("weft|run|--|sh|-c|a; b"));
    assert_eq!(read("$ git clone x && weft df > y").as_deref(), Some("weft|df"));
    assert_eq!(read("weft df       what is free"), Some("weft|df".to_owned()));
    assert_eq!(read("weft: /a: no such file"), None);
}

#[test]
fn each_command_has_one_topic() {
    let command = Weft::command();
    let mut shown: Vec<_> = command
        .get_subcommands()
        .filter(|one| !one.is_hide_set())
        .map(|one| one.get_name().to_owned())
        .collect();
    let mut listed: Vec<_> = crate::help_text::TOPICS
        .iter()
        .flat_map(|(_, names)| *names)
        .map(|name| (*name).to_owned())
        .collect();
    for one in command.get_subcommands() {
        let about = one.get_about().map(ToString::to_string).unwrap_or_default();
        assert!(!about.contains(['{', '}']), "the help's template would change {about}");
    }
    shown.sort_unstable();
    listed.sort_unstable();
    assert_eq!(shown, listed);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference/commands.md");
    let page = std::fs::read_to_string(page).expect("the page of commands");
    for (topic, names) in crate::help_text::TOPICS {
        let rest = page.split_once(&format!("## {topic}\n")).unwrap_or_else(|| panic!("{topic}")).1;
        let section = rest.split("\n## ").next().unwrap_or_default();
        for name in names {
            assert!(section.contains(&format!("`weft {name}")), "{topic} does not mention {name}");
        }
    }
}
