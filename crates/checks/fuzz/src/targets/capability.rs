//! Capabilities and walk proofs.

use crate::Outcome;
use crate::alloc::bounded;
use crate::seeds::encoded;
use weft_core::{FileId, Timestamp};
use weft_wire::meta::InodePath;
use weft_wire::{BoundSession, Capability, ClusterSecret, Rights, WalkProof};

const FILE: FileId = FileId(0x1234_5678);
const SESSION: BoundSession = BoundSession(0xabcd << 64);
const EXPIRES_S: u64 = 1_800_000_000;

fn secret() -> ClusterSecret {
    ClusterSecret::new(&[7; 32])
}

pub fn capability(data: &[u8]) -> Outcome {
    let (secret, now) = (secret(), Timestamp::from_parts(1_700_000_000, 0));
    let granted = secret.grant(SESSION, FILE, Rights::READ, EXPIRES_S);
    assert!(secret.verify(SESSION, &granted, FILE, Rights::READ, now));
    // Use the input as changes to a granted capability,
    let mut bytes = encoded(&granted);
    for (byte, change) in bytes.iter_mut().zip(data) {
        *byte ^= change;
    }
    if let Ok(forged) = postcard::from_bytes::<Capability>(&bytes) {
        check(&secret, &forged, &granted, now);
    }
    // and as an encoded capability.
    let decoded = bounded(data.len(), 0, 0, || postcard::from_bytes::<Capability>(data));
    if let Ok(cap) = &decoded {
        check(&secret, cap, &granted, now);
        assert_eq!(postcard::from_bytes::<Capability>(&encoded(cap)).as_ref(), Ok(cap));
    }
    Outcome::of(&decoded)
}

/// Asserts that a capability passes only if it equals the granted one.
fn check(secret: &ClusterSecret, cap: &Capability, granted: &Capability, now: Timestamp) {
    for rights in [Rights::READ, Rights::WRITE, Rights::LENGTH, Rights(0), Rights(255)] {
        let passes = secret.verify(SESSION, cap, cap.file, rights, now);
        let expected = cap == granted && granted.rights.allow(rights);
        assert_eq!(passes, expected, "{cap:?} for {rights:?}");
    }
}

/// Applies the input as changes to a valid proof, to its inode and to its session.
pub fn walk_proof(data: &[u8]) -> Outcome {
    let secret = secret();
    let given = secret.prove_walk(FILE, SESSION);
    assert!(secret.walk_holds(&given, FILE, SESSION));
    let mut bytes = encoded(&(given, FILE, SESSION));
    for (byte, change) in bytes.iter_mut().zip(data) {
        *byte ^= change;
    }
    if let Ok((proof, file, session)) = postcard::from_bytes::<(WalkProof, FileId, BoundSession)>(&bytes) {
        let same = proof == given && file.inode() == FILE.inode() && session == SESSION;
        assert_eq!(secret.walk_holds(&proof, file, session), same, "{proof:?} {file} {session:?}");
    }
    let decoded = bounded(data.len(), 1, 0, || postcard::from_bytes::<InodePath>(data));
    if let Ok(place) = &decoded {
        assert_eq!(postcard::from_bytes::<InodePath>(&encoded(place)).as_ref(), Ok(place));
        let proof = place.proof.unwrap_or(WalkProof([0; 16]));
        assert_eq!(
            secret.walk_holds(&proof, place.base, SESSION),
            proof == secret.prove_walk(place.base, SESSION)
        );
    }
    Outcome::of(&decoded)
}

pub fn walk_proof_seeds() -> Vec<Vec<u8>> {
    let proof = secret().prove_walk(FILE, SESSION);
    let below = InodePath { path: b"a/b".to_vec(), ..InodePath::at_inode(FILE, proof) };
    vec![encoded(&InodePath::from_root("a/b", true)), encoded(&below), encoded(&proof), vec![0; 20]]
}

pub fn seeds() -> Vec<Vec<u8>> {
    let granted = secret().grant(SESSION, FILE, Rights::READ, EXPIRES_S);
    let other = ClusterSecret::new(&[8; 32]).grant(SESSION, FILE, Rights(255), u64::MAX);
    vec![
        encoded(&granted),
        encoded(&other),
        encoded(&Capability { rights: Rights::WRITE, ..granted }),
        vec![0; 20],
    ]
}
