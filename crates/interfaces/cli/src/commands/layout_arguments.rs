//! Layouts on the command line: parsing of arguments, and formatting of layouts.

use super::session::Weft;
use crate::failure::Failure;
use clap::Args;
use weft_core::{ByteLen, ClassLayout, ClassPart, CompressionSetting, FileOffset};
use weft_env::real::block_on;
use weft_wire::meta::{LayoutSpec, Rule};

/// Options that describe a layout.
#[derive(Args)]
pub struct LayoutArgs {
    /// Targets per file; 0 or -1 for all that match
    #[arg(short = 'c', long = "stripe-count", value_name = "COUNT", allow_negative_numbers = true,
        value_parser = count)]
    count: Option<i64>,
    /// Bytes on one target before the next; K, M, G are powers of 1024
    #[arg(short = 'S', long = "stripe-size", value_name = "SIZE", value_parser = stripe_size)]
    size: Option<ByteLen>,
    /// First target, by index among those that match; -1 lets Weft choose
    #[arg(short = 'i', long = "stripe-index", value_name = "INDEX", allow_negative_numbers = true)]
    index: Option<i64>,
    /// Only targets of this class
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// A part of the file: stripe sizes by class, and its end; repeatable
    #[arg(
        long = "part",
        value_name = "CLASS=SIZE,...[@END]",
        value_parser = part,
        conflicts_with_all = ["count", "size", "index", "class"]
    )]
    parts: Vec<ClassPart>,
    /// Compression: off, lz4, zstd, zstd:1 to zstd:19 or auto, and the length of chunks, such as zstd:3/256KiB
    #[arg(long, value_name = "SETTING", value_parser = compression)]
    compress: Option<CompressionSetting>,
}

impl LayoutArgs {
    /// Returns the options as they are written on a command line.
    pub fn options(&self) -> Vec<String> {
        let mut options = Vec::new();
        options.extend(self.count.map(|count| format!("--stripe-count={count}")));
        options.extend(self.size.map(|size| format!("--stripe-size={}", size.0)));
        options.extend(self.index.map(|index| format!("--stripe-index={index}")));
        options.extend(self.class.as_ref().map(|class| format!("--class={class}")));
        options.extend(self.parts.iter().map(|part| {
            let stripes = part.stripes.iter().map(|(class, size)| format!("{class}={}", size.0));
            let end = part.end.map(|end| format!("@{}", end.0)).unwrap_or_default();
            format!("--part={}{end}", stripes.collect::<Vec<_>>().join(","))
        }));
        options.extend(self.compress.map(|setting| format!("--compress={setting}")));
        options
    }

    /// Says how many targets a file gets if more are requested than match.
    pub fn note_fewer_targets(&self, weft: &Weft) {
        let Some(count) = self.count.and_then(|count| usize::try_from(count).ok()) else { return };
        let map = weft.cluster.map();
        let is_of_class = |target: &&weft_wire::cluster::TargetEntry| {
            self.class.as_ref().is_none_or(|class| target.class == *class)
        };
        let matching = map.targets.iter().filter(is_of_class).count();
        if count > matching {
            let class = self.class.as_ref().map(|class| format!(" of class {class}")).unwrap_or_default();
            errln!("note: -c {count}: the cluster has {matching} targets{class}; files use all of them");
        }
    }

    /// Converts the options to a request for the servers.
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
            u32::try_from(value).map_err(|_| Failure::misuse(format!("{what} {value}"), "out of range"))
        };
        let all = u32::from(u16::MAX);
        let by_class = match self.parts.as_slice() {
            [] => None,
            parts => Some(ClassLayout::new(parts.to_vec()).map_err(|why| Failure::misuse("--part", why))?),
        };
        Ok(LayoutSpec {
            stripe_size: self.size,
            stripe_count: match self.count {
                // Set explicitly, so that a directory's default does not apply.
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
            compression: self.compress,
        })
    }
}

/// Parses a number of targets.
fn count(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| "a number of targets such as 4; 0 or -1 means all that match".to_owned())
}

fn stripe_size(text: &str) -> Result<ByteLen, String> {
    let size = super::size(text)?;
    weft_core::layout::check_stripe_size(size)?;
    Ok(size)
}

/// Parses a compression setting. The length of its chunks may have any unit that other sizes may have.
fn compression(text: &str) -> Result<CompressionSetting, String> {
    let len = text.split_once('/').and_then(|(policy, chunk)| Some((policy, super::size(chunk).ok()?.0)));
    match len {
        Some((policy, len)) if len.is_multiple_of(1 << 10) => format!("{policy}/{}KiB", len >> 10).parse(),
        _ => text.parse(),
    }
}

/// Keeps the compression of a directory's rules when new rules without a setting replace them.
pub fn keep_compression(weft: &Weft, dir: &str, new: &mut [Rule]) -> Result<(), Failure> {
    let own = weft.stat(dir, true)?.file;
    let ruled = weft.at(dir, true, |place| block_on(weft.client.rules(place)))?;
    let old = ruled.iter().filter(|ruled| ruled.directory == own).flat_map(|ruled| &ruled.rules);
    let old: Vec<&Rule> = old.collect();
    for rule in new.iter_mut().filter(|rule| rule.layout.compression.is_none()) {
        let replaced = old.iter().find(|old| old.pattern == rule.pattern);
        rule.layout.compression = replaced.and_then(|replaced| replaced.layout.compression);
    }
    Ok(())
}

/// Whether a request leaves the striping open, so that it concerns at most the compression.
pub fn leaves_striping_open(spec: &LayoutSpec) -> bool {
    LayoutSpec { compression: spec.compression, ..LayoutSpec::default() } == *spec
}

/// Parses an argument of the form `CLASS=STRIPE[,CLASS=STRIPE…][@END]`.
pub fn part(text: &str) -> Result<ClassPart, String> {
    let (stripes, end) = match text.split_once('@') {
        Some((stripes, end)) => (stripes, Some(FileOffset(super::size(end)?.0))),
        None => (text, None),
    };
    let stripe = |one: &str| {
        let (class, size) = one.split_once('=').filter(|(class, _)| !class.is_empty()).ok_or_else(|| {
            "write CLASS=STRIPE for each class, and @END if the part has one, such as ssd=256K@1G".to_owned()
        })?;
        Ok((class.trim().to_owned(), super::size(size)?))
    };
    Ok(ClassPart { end, stripes: stripes.split(',').map(stripe).collect::<Result<_, String>>()? })
}

/// Formats parts by class in one line.
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

/// Formats a layout request in one line.
pub fn describe(spec: &LayoutSpec) -> String {
    match spec.compression {
        None => describe_striping(spec),
        Some(setting) if leaves_striping_open(spec) => format!("compress {setting}"),
        Some(setting) => format!("{}, compress {setting}", describe_striping(spec)),
    }
}

fn describe_striping(spec: &LayoutSpec) -> String {
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
    if out.is_empty() { "the default".to_owned() } else { out.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_have_the_units_of_sizes() {
        for text in ["zstd:3/256KiB", "zstd:3/256K", "zstd:3/256 KiB", "zstd:3/262144"] {
            assert_eq!(compression(text), "zstd:3/256KiB".parse(), "{text}");
        }
        assert_eq!(compression("lz4/1M"), "lz4/1024KiB".parse());
        assert_eq!(compression("off"), Ok(CompressionSetting::Off));
        for wrong in ["lz4/", "lz4/x", "lz4/48K", "lz4/65537", "lz4/2M", "off/64K", "gzip/64K"] {
            assert!(compression(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn parts_are_parsed_and_formatted() {
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
    fn layout_requests_are_described() {
        let all = u32::from(u16::MAX);
        let spec = LayoutSpec { stripe_count: Some(all), class: Some("ssd".into()), ..LayoutSpec::default() };
        assert_eq!(describe(&spec), "all targets, class ssd");
        assert_eq!(describe(&LayoutSpec::default()), "the default");
        let compressed = |spec| LayoutSpec { compression: "zstd:3".parse().ok(), ..spec };
        assert_eq!(describe(&compressed(spec)), "all targets, class ssd, compress zstd:3/64KiB");
        assert_eq!(describe(&compressed(LayoutSpec::default())), "compress zstd:3/64KiB");
    }
}
