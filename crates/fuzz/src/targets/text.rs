//! Short texts from people and configuration.

use crate::Outcome;
use crate::alloc::bounded;
use weft_config::{format_duration, format_size, parse_duration, parse_size};
use weft_env::Address;

pub fn quantity(data: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(data);
    let size = bounded(data.len(), 64, 4096, || parse_size(&text));
    let duration = bounded(data.len(), 64, 4096, || parse_duration(&text));
    match &size {
        Ok(size) => assert_eq!(parse_size(&format_size(*size)), Ok(*size)),
        Err(sentence) => assert!(!sentence.is_empty()),
    }
    match &duration {
        Ok(duration) => assert_eq!(parse_duration(&format_duration(*duration)), Ok(*duration)),
        Err(sentence) => assert!(!sentence.is_empty()),
    }
    if size.is_ok() || duration.is_ok() { Outcome::Accepted } else { Outcome::Refused }
}

pub fn address(data: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(data);
    let parsed = bounded(data.len(), 8, 256, || text.parse::<Address>());
    match &parsed {
        Ok(address) => {
            let again = address.to_string();
            assert_eq!(again.parse::<Address>().as_ref(), Ok(address), "{again}");
            if let Address::Unix(path) = address {
                assert!(path.is_absolute() && path.as_os_str().len() <= 107);
                assert!(
                    !path.as_os_str().as_encoded_bytes().contains(&0),
                    "no system call takes a zero in a path"
                );
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    Outcome::of(&parsed)
}

pub fn quantity_seeds() -> Vec<Vec<u8>> {
    let texts = ["64 KiB", "47008", "1 TiB", "2g", "500 ms", "2 min", "0", "64 KB", "18446744073709551615"];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}

pub fn address_seeds() -> Vec<Vec<u8>> {
    let texts =
        ["unix:/run/weft/s0.sock", "tcp:127.0.0.1:4000", "tcp:[::1]:4000", "tcp:node7:0", "tcp::1", "unix:x"];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}
