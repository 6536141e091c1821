//! Layouts as people write and read them: parts by class, and what a rule or a default wants.

use super::session::Weft;
use crate::failure::Failure;
use clap::Args;
use weft_core::{ByteLen, ClassLayout, ClassPart, FileOffset};
use weft_wire::meta::LayoutSpec;

/// The layout of a file, on the command line.
#[derive(Args)]
pub struct LayoutArgs {
    /// Targets per file; 0 or -1 all that fit
    #[arg(short = 'c', long = "stripe-count", value_name = "COUNT", allow_negative_numbers = true)]
    count: Option<i64>,
    /// Bytes that go to one target before the next; K, M, G are powers of 1024
    #[arg(short = 'S', long = "stripe-size", value_name = "SIZE", value_parser = super::size)]
    size: Option<ByteLen>,
    /// First target, by index among those that fit; -1 lets Weft choose
    #[arg(short = 'i', long = "stripe-index", value_name = "INDEX", allow_negative_numbers = true)]
    index: Option<i64>,
    /// Only targets of this class
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// A part of the file: stripe sizes by class, and where it ends; several times
    #[arg(
        long = "part",
        value_name = "CLASS=SIZE,...[@END]",
        value_parser = part,
        conflicts_with_all = ["count", "size", "index", "class"]
    )]
    parts: Vec<ClassPart>,
}

impl LayoutArgs {
    /// As the servers take it.
    pub fn spec(&self, weft: &Weft) -> Result<LayoutSpec, Failure> {
        let map = weft.cluster.map();
        let stripes = self.parts.iter().flat_map(|part| &part.stripes);
        for class in self.class.iter().chain(stripes.map(|(class, _)| class)) {
            if !map.targets.iter().any(|target| target.class == *class) {
                let mut classes: Vec<_> = map.targets.iter().map(|target| target.class.as_str()).collect();
                classes.sort_unstable();
                classes.dedup();
                return Err(Failure::misuse(format!("class {class:?}"), "no target has it")
                    .remedy(format!("classes here: {}", classes.join(", "))));
            }
        }
        let small = |what: &str, value: i64| {
            u32::try_from(value)
                .map_err(|_| Failure::misuse(format!("{what} {value}"), "it is out of bounds"))
        };
        if self.size == Some(ByteLen(0)) {
            return Err(Failure::misuse("stripe size 0", "a stripe holds at least one byte"));
        }
        let all = u32::from(u16::MAX);
        let by_class = match self.parts.as_slice() {
            [] => None,
            parts => Some(ClassLayout::new(parts.to_vec()).map_err(|why| Failure::misuse("--part", why))?),
        };
        Ok(LayoutSpec {
            stripe_size: self.size,
            stripe_count: match self.count {
                // Said, so that a directory's default does not decide.
                Some(0 | -1) => Some(all),
                Some(count) => Some(small("stripe count", count)?),
                None => None,
            },
            first: match self.index {
                Some(-1) | None => None,
                Some(index) => Some(small("stripe index", index)?),
            },
            class: self.class.clone(),
            strips: None,
            tails: Vec::new(),
            by_class,
        })
    }
}

/// For arguments: `CLASS=STRIPE[,CLASS=STRIPE…][@END]`.
pub fn part(text: &str) -> Result<ClassPart, String> {
    let (stripes, end) = match text.split_once('@') {
        Some((stripes, end)) => (stripes, Some(FileOffset(super::size(end)?.0))),
        None => (text, None),
    };
    let stripe = |one: &str| {
        let (class, size) = one.split_once('=').filter(|(class, _)| !class.is_empty()).ok_or_else(|| {
            "write CLASS=STRIPE for each class, and @END where the part has one, such as ssd=256K@1G"
                .to_owned()
        })?;
        Ok((class.trim().to_owned(), super::size(size)?))
    };
    Ok(ClassPart { end, stripes: stripes.split(',').map(stripe).collect::<Result<_, String>>()? })
}

/// Parts by class in one line.
pub fn by_class(layout: &ClassLayout) -> String {
    let mut out = Vec::new();
    let mut start = FileOffset::ZERO;
    for part in layout.parts() {
        let stripes: Vec<String> = part
            .stripes
            .iter()
            .map(|(class, size)| format!("{class} {}", weft_config::format_size(*size)))
            .collect();
        let stripes = stripes.join(", ");
        let offset = |offset: FileOffset| weft_config::format_size(ByteLen(offset.0));
        match part.end {
            _ if layout.parts().len() == 1 => out.push(stripes),
            Some(end) if start == FileOffset::ZERO => out.push(format!("to {}: {stripes}", offset(end))),
            Some(end) => out.push(format!("{} to {}: {stripes}", offset(start), offset(end))),
            None => out.push(format!("from {}: {stripes}", offset(start))),
        }
        start = part.end.unwrap_or(start);
    }
    out.join("; ")
}

/// What somebody wants of a layout, in one line.
pub fn told(spec: &LayoutSpec) -> String {
    if let Some(layout) = &spec.by_class {
        return by_class(layout);
    }
    if let Some(strips) = &spec.strips {
        let tails = spec.tails.iter().map(|(from, strips)| (from.0, strips));
        let parts = std::iter::once((0, strips)).chain(tails).map(|(from, strips)| {
            let strips = strips
                .iter()
                .map(|(target, size)| format!("target {} {}", target.0, weft_config::format_size(*size)));
            format!(
                "from {}: {}",
                weft_config::format_size(ByteLen(from)),
                strips.collect::<Vec<_>>().join(", ")
            )
        });
        return parts.collect::<Vec<_>>().join("; ");
    }
    let mut out = Vec::new();
    match spec.stripe_count {
        Some(all) if all == 0 || all >= u32::from(u16::MAX) => out.push("all targets".to_owned()),
        Some(1) => out.push("1 target".to_owned()),
        Some(count) => out.push(format!("{count} targets")),
        None => {}
    }
    if let Some(class) = &spec.class {
        out.push(format!("class {class}"));
    }
    if let Some(size) = spec.stripe_size {
        out.push(format!("stripe size {}", weft_config::format_size(size)));
    }
    if let Some(first) = spec.first {
        out.push(format!("stripe index {first}"));
    }
    if out.is_empty() { "as if there were no rule".to_owned() } else { out.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_and_told() {
        let parts = ["hdd=64K,ssd=256K@1G", "ssd=1M@1536M", "hdd=128K"];
        let parts = parts.iter().map(|text| part(text).expect("a part")).collect();
        let layout = ClassLayout::new(parts).expect("a layout");
        assert_eq!(
            by_class(&layout),
            "to 1 GiB: hdd 64 KiB, ssd 256 KiB; 1 GiB to 1536 MiB: ssd 1 MiB; from 1536 MiB: hdd 128 KiB"
        );
        for wrong in ["", "hdd", "=64K", "hdd=x", "hdd=1K@x"] {
            assert!(part(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn wishes_are_told_by_what_they_say() {
        let all = u32::from(u16::MAX);
        let spec = LayoutSpec { stripe_count: Some(all), class: Some("ssd".into()), ..LayoutSpec::default() };
        assert_eq!(told(&spec), "all targets, class ssd");
        assert_eq!(told(&LayoutSpec::default()), "as if there were no rule");
    }
}
