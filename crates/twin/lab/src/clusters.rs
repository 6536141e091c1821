//! Clusters of the papers, which experiments refer to with `use`.

use toml::Table;

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../clusters/", $name, ".toml")))),*]
    };
}

const FILES: &[(&str, &str)] =
    built_in!["ibridge", "ibridge-ssd", "ceda", "thesis-gbe", "thesis-ipoib", "psa", "iodc"];

/// Returns the names of the clusters.
pub fn names() -> Vec<&'static str> {
    FILES.iter().map(|(name, _)| *name).collect()
}

/// Returns the cluster with this name.
pub fn by_name(name: &str) -> Option<Table> {
    let (_, text) = FILES.iter().find(|(known, _)| *known == name)?;
    Some(toml::from_str(text).expect("a test parses every built-in cluster"))
}

/// Returns an experiment's cluster: its own values over those of the cluster that it uses.
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
    fn each_cluster_parses() {
        for name in names() {
            by_name(name).unwrap_or_else(|| panic!("{name}"));
        }
    }

    #[test]
    fn own_values_override_the_used_cluster() {
        let over = |text: &str| over(&toml::from_str(text).unwrap());
        assert_eq!(over("nodes = 3").unwrap(), toml::from_str("nodes = 3").unwrap());
        let cluster = over("use = \"ibridge\"\nnodes = 3").unwrap();
        assert_eq!(cluster["nodes"].as_integer(), Some(3));
        assert!(!cluster.contains_key("use"));
        assert!(over("use = \"none\"").unwrap_err().contains("ibridge, ibridge-ssd, ceda"));
    }
}
