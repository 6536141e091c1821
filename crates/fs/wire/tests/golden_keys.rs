//! Golden bytes of key claims and of the secrets derived from them.

mod support;

use weft_wire::ClusterSecret;
use weft_wire::hello::Identity;
use weft_wire::keys::{Holder, KeyClaims, KeyId, Revoked};

fn samples() -> Vec<Holder> {
    vec![
        Holder::Server,
        Holder::Administrator,
        Holder::User(Identity { uid: 1000, gid: 100, groups: vec![4, 24, 65_534] }),
        Holder::Host { name: "node17.cluster".into(), first_uid: 1000, last_uid: 60_000, squash_root: true },
    ]
}

fn claims(holder: Holder) -> KeyClaims {
    KeyClaims { id: KeyId(0x0011_2233_4455_6677), root: 300, holder, expires_s: 1_800_000_000 }
}

#[test]
fn holders() {
    support::check("key_holder.txt", &samples());
}

#[test]
fn key_claims() {
    let all: Vec<_> = samples().into_iter().map(claims).collect();
    support::check("key_claims.txt", &all);
}

#[test]
fn revoked_keys() {
    support::check("revoked.txt", &[Revoked { keys: vec![KeyId(1), KeyId(u64::MAX)] }]);
}

/// A changed derivation would invalidate every issued key.
#[test]
fn derived_secrets() {
    let secret = ClusterSecret::new(&[7; 32]);
    let derived: Vec<_> = samples()
        .into_iter()
        .map(|holder| secret.key_of(&KeyClaims { root: 0, ..claims(holder) }).expect("generation 0"))
        .collect();
    support::check("key_secrets.txt", &derived);
}
