//! The fragment log against a naive model of bytes, with reopening, kills and loss of power.

mod fragments_support;

use fragments_support::*;
use weft_core::ByteLen;
use weft_core::ibridge::Class;
use weft_env::sim::Sim;
use weft_store::fragments::FragmentLog;

#[test]
fn what_was_put_is_read_again_and_after_a_restart() {
    let mut sim = Sim::with_seed(1);
    let node = node(&sim);
    let env = node.clone();
    sim.block_on(&node, async move {
        let (log, recovered) = FragmentLog::open(&env, &spec()).await.expect("made");
        assert!(recovered.is_new);
        log.put(key(1), at(100), b"hello", dirty(1)).await.expect("room");
        log.put(key(1), at(102), b"LL", dirty(2)).await.expect("room");
        assert_eq!(
            bytes_of(&log, key(1), 98..107).await,
            [None, None, Some(b'h'), Some(b'e'), Some(b'L'), Some(b'L'), Some(b'o'), None, None]
        );
        let cached = log.cached(key(1)).expect("some");
        assert_eq!((cached.end, cached.dirty), (ByteLen(105), ByteLen(5)));
        assert_eq!(log.stats().classes[Class::Fragment.index()].dirty, ByteLen(5));
        log.close().await.expect("orderly");
        let (log, recovered) = FragmentLog::open(&env, &spec()).await.expect("there");
        assert_eq!((recovered.dirty, recovered.torn), (ByteLen(5), 0));
        assert_eq!(bytes_of(&log, key(1), 100..105).await, b"heLLo".map(Some));
        log.close().await.expect("orderly");
    });
}
