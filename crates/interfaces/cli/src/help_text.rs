//! The texts after the options in help and manual pages. Paragraphs are written with line breaks in the source, and wrap to
//! the terminal or page. Indented lines, such as examples, keep theirs.

use clap::Command;

/// Text that clap would replace by a line break, and the same text with an escape sequence in it. Terminals ignore the
/// sequence, and clap removes it elsewhere.
const BREAK: (&str, &str) = ("{n}", "{\u{1b}[0mn}");

/// Part of a text.
#[derive(PartialEq, Debug)]
enum Part<'a> {
    /// Lines that are wrapped together.
    Paragraph(Vec<&'a str>),
    /// A line that is kept.
    Line(&'a str),
}

fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    for line in text.lines() {
        let is_kept = line.is_empty() || line.starts_with(' ');
        match parts.last_mut() {
            _ if is_kept => parts.push(Part::Line(line)),
            Some(Part::Paragraph(lines)) => lines.push(line),
            _ => parts.push(Part::Paragraph(vec![line])),
        }
    }
    parts
}

/// Joins the lines of each paragraph.
fn joined(text: &str) -> String {
    let line = |part: Part<'_>| match part {
        Part::Paragraph(lines) => lines.join(" "),
        Part::Line(line) => line.to_owned(),
    };
    parts(text).into_iter().map(line).collect::<Vec<_>>().join("\n").replace(BREAK.0, BREAK.1)
}

/// Prepares the texts of a command and its subcommands for a terminal of any width.
pub fn wrapped(command: Command) -> Command {
    let text = command.get_after_long_help().map(|text| joined(&text.to_string()));
    let command = match text {
        Some(text) => command.after_long_help(text),
        None => command,
    };
    command.mut_subcommands(wrapped)
}

/// Commands of `weft --help` by topic; the topics are those of docs/reference/commands.md.
pub const TOPICS: [(&str, &[&str]); 6] = [
    ("Running", &["run", "stop", "serve", "mount", "umount", "status", "top", "delegate"]),
    (
        "Files",
        &[
            "ls", "find", "cp", "cat", "mv", "rm", "mkdir", "touch", "ln", "stat", "chmod", "chown", "df",
            "du", "quota",
        ],
    ),
    ("Layouts", &["setstripe", "getstripe", "migrate", "apply"]),
    ("Traces and plans", &["trace", "plan", "replicate", "agent", "replay", "profile"]),
    ("Care", &["fsck", "meta", "target", "server", "upgrade", "rebalance", "flush", "key", "config"]),
    ("Measuring and simulating", &["bench", "workload", "twin", "lab", "cache", "completions", "man"]),
];

/// Lists the subcommands by topic.
pub fn by_topic(command: Command) -> Command {
    let mut list = String::new();
    for (topic, names) in TOPICS {
        list += &format!("{topic}:\n");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            list += &format!("  {name:<12}{}\n", about.map(ToString::to_string).unwrap_or_default());
        }
        list.push('\n');
    }
    let template = "{about-with-newline}\n{usage-heading} {usage}\n\nLIST\
                    Options:\n{options}{after-help}";
    command.help_template(template.replace("LIST", &list))
}

/// Formats a text for a manual page.
pub fn manual(text: &str) -> String {
    let (mut page, mut is_filled) = (String::new(), true);
    for part in parts(text) {
        let (lines, fills) = match part {
            Part::Paragraph(lines) => (lines, true),
            Part::Line(line) => (vec![line], line.is_empty()),
        };
        if fills != is_filled {
            page += if fills { ".fi\n" } else { ".nf\n" };
            is_filled = fills;
        }
        for line in lines {
            page += &match line {
                "" => ".PP\n".to_owned(),
                line => escaped(line) + "\n",
            };
        }
    }
    if is_filled { page } else { page + ".fi\n" }
}

fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    // Such lines would be requests.
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "A rule\nholds {n} names.\n\nExamples:\n  weft a    first\n  weft b\n";

    #[test]
    fn paragraphs_are_joined_and_examples_are_kept() {
        let text = joined(TEXT);
        assert_eq!(text, "A rule holds {\u{1b}[0mn} names.\n\nExamples:\n  weft a    first\n  weft b");
        let command = wrapped(Command::new("x").subcommand(Command::new("y").after_long_help(TEXT)));
        let shown = command.find_subcommand("y").expect("y").clone().render_long_help().to_string();
        assert!(shown.contains("A rule holds {n} names.\n\nExamples:\n  weft a    first\n"), "{shown}");
    }

    #[test]
    fn manual_pages_keep_the_alignment_of_examples() {
        let page = manual(TEXT);
        assert_eq!(page, "A rule\nholds {n} names.\n.PP\nExamples:\n.nf\n  weft a    first\n  weft b\n.fi\n");
        assert_eq!(manual(".a\n'b\n-c \\d"), "\\&.a\n\\&'b\n\\-c \\ed\n");
    }
}
