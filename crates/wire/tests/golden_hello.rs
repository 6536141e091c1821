//! Golden bytes of the greeting.

mod support;

use weft_core::{ClusterId, Nanos, ServerId};
use weft_wire::hello::{Challenge, Hello, HelloReply, Identity, Proof, Role, SessionId, Welcome};
use weft_wire::{Errno, WireError};

#[test]
fn hello() {
    let hello = |role| Hello {
        cluster: "physics".into(),
        session: SessionId(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff),
        slot: 3,
        role,
        client_nonce: [0x5a; 32],
        checksums: true,
        cluster_id: ClusterId(0x0102),
    };
    support::check(
        "hello.txt",
        &[
            hello(Role::Client(Identity { uid: 1000, gid: 100, groups: vec![4, 24, 65_534] })),
            hello(Role::Server(ServerId(2))),
        ],
    );
}

#[test]
fn proof() {
    support::check("proof.txt", &[Proof { proof: [0xa5; 32] }]);
}

#[test]
fn hello_reply() {
    support::check(
        "hello_reply.txt",
        &[
            HelloReply::Challenge(Challenge { server_nonce: [1; 32], proof: [2; 32] }),
            HelloReply::Welcome(Welcome {
                server: ServerId(1),
                incarnation: 1 << 40,
                boot: 0x0102_0304_0506_0708,
                idle_limit: Nanos::from_s(600),
                checksums: false,
                cluster_id: ClusterId(0x0304),
            }),
            HelloReply::Refused(WireError::new(Errno::EACCES, "this is cluster \"physics\"")),
        ],
    );
}
