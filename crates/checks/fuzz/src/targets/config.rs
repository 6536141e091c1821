//! Configuration and key files of the administrator.

use crate::Outcome;
use crate::alloc::bounded;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use weft_config::{Cluster, EmbeddedOptions, Key, embedded_toml};

/// Maximum length of an input in bytes: enough for any configuration, and short enough to mutate quickly.
const TEXT_BYTES_MAX: usize = 64 << 10;

pub const WORDS: &[&str] = &[
    "[cluster]\n",
    "[[server]]\n",
    "[server.metadata]\n",
    "[[server.target]]\n",
    "[client]\n",
    "[layout]\n",
    "name = \"a\"\n",
    "id = 0\n",
    "id = -1\n",
    "path = \"/data\"\n",
    "roles = [\"both\"]\n",
    "address = [\"unix:/run/a\", \"tcp:h:1\"]\n",
    "class = []\n",
    "stripe_size = \"64 KiB\"\n",
    "= {}\n",
    "\"\"\"",
    "'''",
    "[[[[[[[[[[[[[[[[",
    "{a={a={a={a={a={",
    "1e400",
    "1979-05-27T07:32:00Z",
    "nan",
];

pub fn cluster_file(data: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(&data[..data.len().min(TEXT_BYTES_MAX)]);
    let file = Path::new("/nowhere/cluster.toml");
    let parsed = bounded(text.len(), 512, 256 << 10, || Cluster::parse(file, &text));
    match &parsed {
        Ok(cluster) => {
            let map = cluster.map();
            assert!(map.servers.len() > map.metadata.0 as usize);
            assert!(map.targets.is_sorted_by(|a, b| a.id < b.id), "target ids are unique");
            for target in &map.targets {
                assert_eq!(map.server_of(target.id), Some(target.server));
            }
            assert_eq!(cluster.servers.iter().filter(|server| server.metadata.is_some()).count(), 1);
        }
        Err(error) => {
            let sentence = error.to_string();
            assert!(!error.problem.is_empty() && !error.remedy.is_empty(), "{sentence}");
            if let Some(place) = &error.place {
                let line = text.split('\n').nth(place.line - 1).expect("the line exists");
                assert_eq!(line.trim_end(), place.text);
            }
        }
    }
    Outcome::of(&parsed)
}

pub fn embedded_file(data: &[u8]) -> Outcome {
    // A state directory may have any name that the operating system allows.
    let name: Vec<u8> = data.iter().copied().filter(|byte| *byte != 0).take(200).collect();
    let state = Path::new("/s").join(OsStr::from_bytes(&name));
    let dots = state.components().any(|part| part == std::path::Component::ParentDir);
    // `write_embedded` rejects such names before it writes anything.
    let Some(utf8) = state.to_str().filter(|_| !dots) else { return Outcome::Refused };
    let options = EmbeddedOptions::new(state.clone());
    let text = embedded_toml(&options);
    let cluster = Cluster::parse(&state.join("cluster.toml"), &text)
        .unwrap_or_else(|error| panic!("under {utf8:?}: {error}\n{text}"));
    for server in &cluster.servers {
        assert!(server.targets.iter().all(|target| target.path.starts_with(&state)), "{text}");
    }
    assert!(cluster.key_file.starts_with(&state), "{text}");
    Outcome::Accepted
}

pub fn key_file(data: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(&data[..data.len().min(TEXT_BYTES_MAX)]);
    let parsed = bounded(text.len(), 64, 4096, || Key::parse(&text));
    let Some(key) = parsed else { return Outcome::Refused };
    assert_eq!(Key::parse(&key.to_text()).map(|key| key.to_text()), Some(key.to_text()));
    Outcome::Accepted
}

pub fn cluster_file_seeds() -> Vec<Vec<u8>> {
    let options = EmbeddedOptions::new("/state".into());
    let small = "[cluster]\nname = \"c\"\nkey_file = \"/nowhere/key\"\n[[server]]\nname = \"s\"\naddress = \"tcp:h:1\"\n\
                 [server.metadata]\npath = \"/m\"\n[[server.target]]\nid = 0\nclass = \"ssd\"\npath = \"/t\"\n";
    vec![small.into(), weft_config::EXAMPLE.into(), embedded_toml(&options).into_bytes()]
}

pub fn embedded_file_seeds() -> Vec<Vec<u8>> {
    let names = [
        "home/user/.local/state/weft/default",
        "with \"quotes\" and \\",
        "tab\tnew\nline",
        "\u{7f}\u{1}é",
        "\u{ff}",
    ];
    let mut seeds: Vec<_> = names.map(|name| name.as_bytes().to_vec()).to_vec();
    seeds.push(b"not utf-8 \xff".to_vec());
    seeds.push(b"a/../b".to_vec());
    seeds
}

pub fn key_file_seeds() -> Vec<Vec<u8>> {
    let secret = "07".repeat(32);
    let issued = |holder: &str, expires: &str| {
        format!(
            "weft-key-2\nid 00000000000000ff\ngeneration 3\nholder {holder}\nexpires {expires}\nsecret {secret}\n"
        )
    };
    let seeds = [
        format!("weft-cluster-key-1 {secret}\n"),
        format!("weft-cluster-key-2\nroot 4 1800000000 {secret}\nroot 3 0 {secret}\n"),
        issued("administrator", "never"),
        issued("user 1000 100 -", "1800000000"),
        issued("user 1000 100 4,24", "never"),
        issued("host node17 1000-60000 squash", "1800000000"),
        issued("host node17 0-60000 no-squash", "never"),
        "junk".to_owned(),
    ];
    seeds.map(String::into_bytes).to_vec()
}
