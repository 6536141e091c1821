//! The built-in experiments.

use super::Experiment;
use std::sync::OnceLock;

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../experiments/", $name, ".toml")))),*]
    };
}

const FILES: &[(&str, &str)] = built_in![
    "ibridge-fig2a",
    "ibridge-fig2b",
    "ibridge-fig2c",
    "ibridge-fig2d",
    "ibridge-fig2e",
    "ibridge-fig3",
    "ibridge-fig4a",
    "ibridge-fig4b",
    "ibridge-fig5",
    "ibridge-fig6",
    "ibridge-fig7a",
    "ibridge-fig7b",
    "ibridge-fig8a",
    "ibridge-fig8b",
    "ibridge-fig9",
    "ibridge-fig10",
    "ibridge-fig11",
    "ibridge-fig12",
    "ibridge-fig13",
    "ibridge-fig13-ssd",
    "ibridge-tab3",
    "ibridge-aligned",
    "ceda-fig3",
    "ceda-fig9",
    "ceda-fig10",
    "ceda-fig11",
    "ceda-fig12",
    "ceda-fig13",
    "ceda-fig14",
    "ceda-fig15",
    "ceda-fig16",
    "ceda-fig17",
    "ceda-space",
    "thesis-tab4.1",
    "thesis-tab4.2",
    "thesis-tab4.3",
    "thesis-tab4.4",
    "thesis-tab4.5",
    "thesis-tab4.6",
    "thesis-tab4.7",
    "thesis-tab4.8",
    "thesis-fig4.5",
    "thesis-fig4.7",
    "thesis-fig4.8",
    "thesis-fig4.9",
    "thesis-fig4.10",
    "thesis-fig4.11",
    "thesis-fig4.12",
    "thesis-fig4.13",
    "thesis-fig4.14",
    "thesis-fig4.15",
    "thesis-fig4.16",
    "thesis-fig4.17",
    "thesis-fig4.18",
    "thesis-checkpoint",
    "psa-fig7",
    "psa-fig8",
    "psa-fig9",
    "psa-fig10",
    "psa-fig11",
    "psa-fig12",
    "psa-fig13",
    "psa-three",
    "psa-search-ior",
    "psa-search-procs",
    "psa-search-size",
    "psa-search-servers",
    "psa-search-hpio",
    "psa-search-tile",
    "psa-search-btio",
    "iodc-fig7a",
    "iodc-fig7b",
    "iodc-fig7c",
    "iodc-fig7d",
    "iodc-fig7e",
    "iodc-fig7f",
    "iodc-fig8",
    "iodc-fig9",
    "iodc-ablation",
    "iodc-scale",
];

/// Returns all experiments in the order of papers and figures.
pub fn all() -> &'static [Experiment] {
    static ALL: OnceLock<Vec<Experiment>> = OnceLock::new();
    ALL.get_or_init(|| {
        let read = |(name, text): &(&str, &str)| match Experiment::parse(name, text) {
            Ok(experiment) => experiment,
            Err(error) => panic!("{error}"),
        };
        FILES.iter().map(read).collect()
    })
}

/// Returns the experiment with this name.
pub fn by_name(name: &str) -> Option<&'static Experiment> {
    all().iter().find(|experiment| experiment.name == name)
}

/// Returns the names of all experiments.
pub fn names() -> Vec<&'static str> {
    FILES.iter().map(|(name, _)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An unlisted file would never be run, unnoticed.
    #[test]
    fn each_file_is_listed() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments");
        let mut there: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .map(|file| file.strip_suffix(".toml").expect("an experiment is TOML").to_owned())
            .collect();
        let mut listed: Vec<String> = names().into_iter().map(str::to_owned).collect();
        there.sort();
        listed.sort();
        assert_eq!(there, listed);
    }

    #[test]
    fn each_file_parses_and_has_claims() {
        for (experiment, name) in all().iter().zip(names()) {
            assert_eq!(experiment.name, name);
            assert!(!experiment.claims.is_empty(), "{name} has no claims");
        }
    }
}
