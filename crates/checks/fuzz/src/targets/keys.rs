//! Claims of keys that a peer sends before it has proven anything.

use crate::Outcome;
use crate::alloc::bounded;
use crate::seeds::encoded;
use weft_core::{ServerId, Timestamp};
use weft_wire::ClusterSecret;
use weft_wire::hello::{BODY_LEN_MAX, Identity, Role};
use weft_wire::keys::{Delegation, Holder, KeyClaims, KeyId, NOBODY};

const NOW: Timestamp = Timestamp::from_parts(1_800_000_000, 0);

pub fn key_claims(data: &[u8]) -> Outcome {
    let data = &data[..data.len().min(BODY_LEN_MAX as usize)];
    let decoded = bounded(data.len(), 16, 4096, || postcard::from_bytes::<KeyClaims>(data));
    let Ok(claims) = decoded else { return Outcome::Refused };
    let again = encoded(&claims);
    assert!(again.len() <= data.len(), "the encoder writes the shortest form");
    assert_eq!(postcard::from_bytes::<KeyClaims>(&again).as_ref(), Ok(&claims));

    let secret = ClusterSecret::new(&[7; 32]);
    secret.revoke([KeyId(1)]);
    let identity_of = |uid, gid| Identity { uid, gid, groups: vec![0, gid] };
    let own = match &claims.holder {
        Holder::User(identity) => identity.clone(),
        Holder::Host { first_uid, .. } => identity_of(*first_uid, 0),
        Holder::Server | Holder::Administrator => identity_of(1000, 100),
    };
    let server = Role::Server(ServerId(1));
    for role in
        [server, Role::Client(own), Role::Client(identity_of(0, 0)), Role::Client(identity_of(65_533, 0))]
    {
        let Ok((key, principal)) = secret.admit(&claims, &role, NOW) else { continue };
        assert_eq!(claims.check(), Ok(()));
        assert_eq!(secret.key_of(&claims), Some(key));
        assert!(claims.root == 0 && claims.id != KeyId(1) && !claims.has_expired(NOW));
        assert_eq!(principal.is_server, claims.holder == Holder::Server);
        assert_eq!(principal.is_administrator, claims.holder == Holder::Administrator);
        assert_eq!(principal.is_server, matches!(role, Role::Server(_)));
        let Holder::Host { first_uid, last_uid, squash_root, .. } = claims.holder else { continue };
        assert!(matches!(principal.delegation, Delegation::Users(_)));
        for uid in [0, 1, first_uid, last_uid, NOBODY, u32::MAX] {
            let Ok(identity) = principal.acting_for(Some(identity_of(uid, 0))) else {
                assert!(uid != 0 && !(first_uid..=last_uid).contains(&uid));
                continue;
            };
            let root = if squash_root { NOBODY } else { 0 };
            assert!(identity.uid == if uid == 0 { root } else { uid });
            assert!(uid == 0 || (first_uid..=last_uid).contains(&uid));
            assert!(
                !squash_root || (identity.gid != 0 && !identity.groups.contains(&0)),
                "group 0 belongs to root"
            );
        }
    }
    Outcome::Accepted
}

pub fn key_claims_seeds() -> Vec<Vec<u8>> {
    let host = |first_uid, squash_root| Holder::Host {
        name: "node17".into(),
        first_uid,
        last_uid: 60_000,
        squash_root,
    };
    let user = Identity { uid: 1000, gid: 100, groups: vec![4, 24] };
    let holders =
        [Holder::Server, Holder::Administrator, Holder::User(user), host(1000, true), host(0, false)];
    let claims = |holder| encoded(&KeyClaims { id: KeyId(300), root: 0, holder, expires_s: 1_900_000_000 });
    holders.map(claims).to_vec()
}
