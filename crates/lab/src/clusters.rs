//! The clusters of the papers, as experiments name them by `use`.

use toml::Table;

macro_rules! carried {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../clusters/", $name, ".toml")))),*]
    };
}

const FILES: &[(&str, &str)] =
    carried!["ibridge", "ibridge-ssd", "ceda", "thesis-gbe", "thesis-ipoib", "psa"];

/// The names.
pub fn names() -> Vec<&'static str> {
    FILES.iter().map(|(name, _)| *name).collect()
}

/// The one of this name.
pub fn by_name(name: &str) -> Option<Table> {
    let (_, text) = FILES.iter().find(|(known, _)| *known == name)?;
    Some(toml::from_str(text).expect("a carried cluster is TOML, which a test proves"))
}

/// What an experiment says of its cluster, over what the cluster that it uses says.
pub fn over(own: &Table) -> Result<Table, String> {
    let mut own = own.clone();
    let Some(name) = own.remove("use") else { return Ok(own) };
    let name = name.as_str().ok_or("`use` takes the name of a cluster")?;
    let mut cluster = by_name(name)
        .ok_or_else(|| format!("there is no cluster `{name}`; there are {}", names().join(", ")))?;
    cluster.extend(own);
    Ok(cluster)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cluster_can_be_read() {
        for name in names() {
            by_name(name).unwrap_or_else(|| panic!("{name}"));
        }
    }

    #[test]
    fn what_is_said_goes_over_what_is_used() {
        let over = |text: &str| over(&toml::from_str(text).unwrap());
        assert_eq!(over("nodes = 3").unwrap(), toml::from_str("nodes = 3").unwrap());
        let cluster = over("use = \"ibridge\"\nnodes = 3").unwrap();
        assert_eq!(cluster["nodes"].as_integer(), Some(3));
        assert!(!cluster.contains_key("use"));
        assert!(over("use = \"none\"").unwrap_err().contains("ibridge, ibridge-ssd, ceda"));
    }
}
