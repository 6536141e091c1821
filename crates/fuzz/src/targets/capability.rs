//! Capabilities.

use crate::Outcome;
use crate::alloc::bounded;
use crate::seeds::encoded;
use weft_core::{FileId, Timestamp};
use weft_wire::{Capability, ClusterSecret, Rights};

const FILE: FileId = FileId(0x1234_5678);
const EXPIRES_S: u64 = 1_800_000_000;

fn secret() -> ClusterSecret {
    ClusterSecret::new(&[7; 32])
}

pub fn capability(data: &[u8]) -> Outcome {
    let (secret, now) = (secret(), Timestamp::from_parts(1_700_000_000, 0));
    let granted = secret.grant(FILE, Rights::READ, EXPIRES_S);
    assert!(secret.verify(&granted, FILE, Rights::READ, now));
    // The input as changes to a capability that was really granted.
    let mut bytes = encoded(&granted);
    for (byte, change) in bytes.iter_mut().zip(data) {
        *byte ^= change;
    }
    if let Ok(forged) = postcard::from_bytes::<Capability>(&bytes) {
        check(&secret, &forged, &granted, now);
    }
    // And as a capability.
    let decoded = bounded(data.len(), 0, 0, || postcard::from_bytes::<Capability>(data));
    if let Ok(cap) = &decoded {
        check(&secret, cap, &granted, now);
        assert_eq!(postcard::from_bytes::<Capability>(&encoded(cap)).as_ref(), Ok(cap));
    }
    Outcome::of(&decoded)
}

/// Only what was granted passes.
fn check(secret: &ClusterSecret, cap: &Capability, granted: &Capability, now: Timestamp) {
    for rights in [Rights::READ, Rights::WRITE, Rights::LENGTH, Rights(0), Rights(255)] {
        let passes = secret.verify(cap, cap.file, rights, now);
        let wanted = cap == granted && granted.rights.allow(rights);
        assert_eq!(passes, wanted, "{cap:?} for {rights:?}");
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let granted = secret().grant(FILE, Rights::READ, EXPIRES_S);
    let other = ClusterSecret::new(&[8; 32]).grant(FILE, Rights(255), u64::MAX);
    vec![
        encoded(&granted),
        encoded(&other),
        encoded(&Capability { rights: Rights::WRITE, ..granted }),
        vec![0; 20],
    ]
}
