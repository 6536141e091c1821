//! Golden bytes of the greeting.

mod support;

use weft_core::{ClusterId, Nanos, ServerId};
use weft_wire::hello::{
    AuthMethod, Exchange, Hello, HelloReply, Identity, JobNumber, Names, Opening, Process, Role, Security,
    SessionId, Welcome,
};
use weft_wire::keys::{Holder, KeyClaims, KeyId};
use weft_wire::{Errno, Level, Levels, WireError};

const EXCHANGE: Exchange = Exchange { ephemeral: [0x5a; 32], tag: [0xa5; 16] };

fn opening(security: Security) -> Opening {
    let session = SessionId(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
    let job = (security == Security::Encrypt).then_some(JobNumber(0x0123_4567));
    let process = Process { host: "node7".into(), pid: 4242, program: "ior".into() };
    Opening { session, slot: 3, checksums: true, security, job, process }
}

#[test]
fn hello() {
    let claims = |holder| KeyClaims { id: KeyId(0x0123), root: 300, holder, expires_s: 1_800_000_000 };
    let names = |role, key| Names {
        cluster: "physics".into(),
        cluster_id: ClusterId(0x0102),
        server: "node7".into(),
        role,
        levels: Levels { earliest: Level(1), latest: Level(2) },
        key,
    };
    let user = Identity { uid: 1000, gid: 100, groups: vec![4, 24, 65_534] };
    let (as_user, as_server) = (Role::Client(user.clone()), Role::Server(ServerId(2)));
    support::check(
        "hello.txt",
        &[
            Hello {
                names: names(as_user.clone(), None),
                method: AuthMethod::Credentials(opening(Security::None)),
            },
            Hello {
                names: names(as_user, Some(claims(Holder::User(user)))),
                method: AuthMethod::Key(EXCHANGE),
            },
            Hello {
                names: names(as_server, Some(claims(Holder::Server))),
                method: AuthMethod::Key(EXCHANGE),
            },
        ],
    );
}

#[test]
fn opening_of_a_session() {
    support::check("opening.txt", &[opening(Security::Mac), opening(Security::Encrypt)]);
}

#[test]
fn hello_reply() {
    support::check(
        "hello_reply.txt",
        &[
            HelloReply::Challenge(EXCHANGE),
            HelloReply::Welcome(Welcome {
                server: ServerId(1),
                incarnation: 1 << 40,
                boot: 0x0102_0304_0506_0708,
                idle_limit: Nanos::from_s(600),
                checksums: false,
                cluster_id: ClusterId(0x0304),
                level: Level(2),
                security: Security::Encrypt,
            }),
            HelloReply::Refused(WireError::new(Errno::EACCES, "this is cluster \"physics\"")),
        ],
    );
}
