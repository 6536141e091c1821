//! Connections.

use super::*;
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use weft_core::{ByteLen, LocalOffset};
use weft_env::{Attachment, Conn, Dir, File, Listener, OpenMode, Peer, Shared};

/// Returns both ends of a fresh connection.
async fn pair<E: Env>(env: &E, address: &Address) -> (E::Conn, E::Conn, E::Listener) {
    let listener = env.listen(address).await.expect("listen");
    let at = listener.address();
    let task = {
        let mut listener = listener;
        start(env, move || async move {
            let server = listener.accept().await.expect("accept");
            (server, listener)
        })
    };
    let mut client = env.connect(&at, LONG).await.expect("connect");
    // The first bytes prove that this end is connected to the accepted one.
    client.send(&[IoSlice::new(b"hello")]).await.expect("send");
    let (mut server, listener) = task.join().await;
    server.set_timeout(Some(LONG)).expect("time-out");
    let mut hello = [0; 5];
    server.recv_exact(&mut [IoSliceMut::new(&mut hello)]).await.expect("receive");
    assert_eq!(&hello, b"hello");
    (client, server, listener)
}

async fn receive<C: Conn>(conn: &mut C, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; len];
    conn.recv_exact(&mut [IoSliceMut::new(&mut bytes)]).await.expect("receive");
    bytes
}

pub async fn bytes_arrive_in_order<E: Env>(stage: Stage<E>) {
    for address in &stage.addresses {
        let (mut client, mut server, _listener) = pair(&stage.env, address).await;
        let echo = start(&stage.env, move || async move {
            let mut buffer = vec![0; 70_000];
            let mut total = 0;
            loop {
                let count = server.recv(&mut buffer).await.expect("receive");
                if count == 0 {
                    return total;
                }
                total += count;
                server.send(&[IoSlice::new(&buffer[..count])]).await.expect("send");
            }
        });
        let mut total = 0;
        for len in [1, 2, 4096, 47_008, 100_000] {
            let sent = pattern(len, len as u64);
            client.send(&[IoSlice::new(&sent)]).await.expect("send");
            assert_eq!(receive(&mut client, len).await, sent);
            total += len;
        }
        assert_eq!(client.recv(&mut []).await.expect("nothing"), 0);
        drop(client);
        assert_eq!(echo.join().await, total);
    }
}

pub async fn many_parts_arrive_whole<E: Env>(stage: Stage<E>) {
    for address in &stage.addresses {
        let (mut client, mut server, _listener) = pair(&stage.env, address).await;
        let sender = start(&stage.env, move || async move {
            // More parts than the kernel accepts at once, including empty ones, and more bytes than it buffers.
            let bytes = pattern(3_000_000, 5);
            let parts: Vec<_> = (0..3000).map(|i| IoSlice::new(&bytes[i * 1000..][..i % 7 * 100])).collect();
            client.send(&parts).await.expect("send");
            client
        });
        let mut out = vec![vec![0; 0]; 3000];
        for (i, part) in out.iter_mut().enumerate() {
            part.resize(i % 7 * 100, 0);
        }
        let mut bufs: Vec<_> = out.iter_mut().map(|part| IoSliceMut::new(part)).collect();
        server.recv_exact(&mut bufs).await.expect("receive");
        let bytes = pattern(3_000_000, 5);
        for (i, part) in out.iter().enumerate() {
            assert_eq!(part[..], bytes[i * 1000..][..part.len()], "part {i}");
        }
        drop(sender.join().await);
        let end = server.recv_exact(&mut [IoSliceMut::new(&mut [0; 3])]).await;
        assert_eq!(end.expect_err("closed").kind(), ErrorKind::UnexpectedEof);
    }
}

async fn file_with<E: Env>(stage: &Stage<E>, bytes: &[u8]) -> E::File {
    let dir = stage.env.dir(&stage.folder).await.expect("folder");
    let file = dir.open("file", OpenMode::CREATE).await.expect("file");
    file.set_len(ByteLen(0)).await.expect("cut");
    file.write_at(&[IoSlice::new(bytes)], LocalOffset(0)).await.expect("write");
    file
}

pub async fn a_file_is_sent_behind_its_head<E: Env>(stage: Stage<E>) {
    let bytes = pattern(2_000_000, 9);
    let file = file_with(&stage, &bytes).await;
    for address in &stage.addresses {
        let (mut client, mut server, _listener) = pair(&stage.env, address).await;
        let wanted = [(0, 0), (0, 2_000_000), (4096, 65_536), (47_008, 47_008), (1_999_999, 1)];
        let file = file.clone();
        let sender = start(&stage.env, move || async move {
            for (offset, len) in wanted {
                let head = [IoSlice::new(b"he"), IoSlice::new(b"ad")];
                server.send_file(&head, &file, LocalOffset(offset), ByteLen(len)).await.expect("send");
            }
            server
        });
        for (offset, len) in wanted {
            assert_eq!(receive(&mut client, 4).await, b"head");
            let got = receive(&mut client, len as usize).await;
            assert!(got[..] == bytes[offset as usize..][..len as usize], "{len} bytes at {offset}");
        }
        drop(sender.join().await);
    }
}

pub async fn a_file_that_became_shorter_is_filled_with_zeros<E: Env>(stage: Stage<E>) {
    let bytes = pattern(10_000, 3);
    let file = file_with(&stage, &bytes).await;
    for address in &stage.addresses {
        let (mut client, mut server, _listener) = pair(&stage.env, address).await;
        server.send_file(&[], &file, LocalOffset(6000), ByteLen(9000)).await.expect("send");
        server.send(&[IoSlice::new(b"next")]).await.expect("send");
        let got = receive(&mut client, 9000).await;
        assert_eq!(got[..4000], bytes[6000..]);
        assert!(got[4000..].iter().all(|&byte| byte == 0));
        assert_eq!(receive(&mut client, 4).await, b"next");
    }
}

pub async fn a_silent_peer_times_out<E: Env>(stage: Stage<E>) {
    for address in &stage.addresses {
        let (mut client, mut server, _listener) = pair(&stage.env, address).await;
        client.set_timeout(Some(SOON)).expect("time-out");
        let before = stage.env.now();
        let error = client.recv(&mut [0; 8]).await.expect_err("silence");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        let waited = stage.env.now().saturating_sub(before);
        assert!(waited.0 * 2 >= SOON.0, "{waited}");
        server.send(&[IoSlice::new(b"abc")]).await.expect("send");
        let error = client.recv_exact(&mut [IoSliceMut::new(&mut [0; 8])]).await.expect_err("too little");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    }
}

pub async fn a_peer_that_does_not_read_times_out<E: Env>(stage: Stage<E>) {
    for address in &stage.addresses {
        let (mut client, _server, _listener) = pair(&stage.env, address).await;
        client.set_timeout(Some(SOON)).expect("time-out");
        let bytes = vec![1; 1 << 26];
        let error = client.send(&[IoSlice::new(&bytes)]).await.expect_err("nobody reads");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    }
}

pub async fn end_of_stream_is_seen<E: Env>(stage: Stage<E>) {
    for address in &stage.addresses {
        let (client, mut server, _listener) = pair(&stage.env, address).await;
        drop(client);
        assert_eq!(server.recv(&mut [0; 8]).await.expect("end"), 0);
        // The system may still accept the first send; a later one must fail.
        for attempt in 0.. {
            if server.send(&[IoSlice::new(b"x")]).await.is_err() {
                break;
            }
            assert!(attempt < 1000, "sending to a closed peer succeeds");
            stage.env.sleep(Nanos::from_ms(1)).await;
        }
    }
}

pub async fn connecting_without_a_listener_fails<E: Env>(stage: Stage<E>) {
    let mut unix = stage.addresses[0].clone();
    let Address::Unix(path) = &mut unix else { panic!("the first address is a path") };
    path.set_extension("none");
    assert_eq!(stage.env.connect(&unix, LONG).await.err().expect("nobody").kind(), ErrorKind::NotFound);
    let tcp = Address::Tcp("127.0.0.1".into(), 1);
    assert_eq!(
        stage.env.connect(&tcp, LONG).await.err().expect("nobody").kind(),
        ErrorKind::ConnectionRefused
    );
}

pub async fn an_address_in_use_is_rejected<E: Env>(stage: Stage<E>) {
    for address in &stage.addresses {
        let listener = stage.env.listen(address).await.expect("listen");
        let again = stage.env.listen(&listener.address()).await;
        assert_eq!(again.err().expect("in use").kind(), ErrorKind::AddrInUse);
        let at = listener.address();
        drop(listener);
        let again = stage.env.listen(&at).await.expect("free again");
        assert_eq!(again.address(), at);
    }
}

pub async fn attachments_arrive<E: Env>(stage: Stage<E>) {
    let (mut client, mut server, _listener) = pair(&stage.env, &stage.addresses[0]).await;
    let file = file_with(&stage, b"contents").await;
    let shared = stage.env.shared(10_000).expect("shared memory");
    assert!(shared.len() >= 10_000 && shared.len().is_multiple_of(4096));
    assert!(shared.words().iter().all(|word| word.load(std::sync::atomic::Ordering::Relaxed) == 0));
    let both = [Attachment::File(file), Attachment::Shared(shared.clone())];
    server.send_attached(b"two attachments", &both).await.expect("send");
    server.send(&[IoSlice::new(b" and more")]).await.expect("send");
    assert!(client.take_file().is_none(), "nothing was received yet");
    assert_eq!(receive(&mut client, 24).await, b"two attachments and more");
    let file = client.take_file().expect("a file");
    let theirs = client.take_shared(10_000).expect("shared memory");
    assert!(client.take_file().is_none());
    assert!(client.take_shared(1).is_err());
    let mut out = [0; 8];
    file.read_at(&mut [IoSliceMut::new(&mut out)], LocalOffset(0)).await.expect("read");
    assert_eq!(&out, b"contents");
    theirs.copy_in(9_000, b"seen");
    let mut out = [0; 4];
    shared.copy_out(9_000, &mut out);
    assert_eq!(&out, b"seen");
    shared.words()[3].store(77, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(theirs.words()[3].load(std::sync::atomic::Ordering::SeqCst), 77);

    let small = stage.env.shared(4096).expect("shared memory");
    server.send_attached(b"s", &[Attachment::Shared(small)]).await.expect("send");
    receive(&mut client, 1).await;
    assert!(client.take_shared(4097).is_err(), "shorter than requested");
}

pub async fn attachments_stay_on_the_node<E: Env>(stage: Stage<E>) {
    let (mut client, _server, _listener) = pair(&stage.env, &stage.addresses[1]).await;
    let shared = stage.env.shared(1).expect("shared memory");
    let error = client.send_attached(b"x", &[Attachment::Shared(shared)]).await.expect_err("network");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

pub async fn a_closer_wakes_the_receiver<E: Env>(stage: Stage<E>) {
    for address in &stage.addresses {
        let (mut client, _server, _listener) = pair(&stage.env, address).await;
        let closer = client.closer();
        client.set_timeout(None).expect("time-out");
        let waiter =
            start(&stage.env, move || async move { client.recv(&mut [0; 8]).await.map_or(0, |n| n) });
        stage.env.sleep(SOON).await;
        closer.close();
        assert_eq!(waiter.join().await, 0);
    }
}

pub async fn a_closer_wakes_the_acceptor<E: Env>(stage: Stage<E>) {
    for address in &stage.addresses {
        let mut listener = stage.env.listen(address).await.expect("listen");
        let closer = listener.closer();
        let waiter = start(&stage.env, move || async move { listener.accept().await.is_err() });
        stage.env.sleep(SOON).await;
        closer.close();
        assert!(waiter.join().await, "accept ends with an error");
    }
}

pub async fn the_peer_is_known<E: Env>(stage: Stage<E>) {
    let (client, server, _listener) = pair(&stage.env, &stage.addresses[0]).await;
    for end in [client.peer(), server.peer()] {
        assert!(matches!(end, Peer::Local { .. }), "{end:?}");
    }
    let (_, server, _listener) = pair(&stage.env, &stage.addresses[1]).await;
    assert!(matches!(server.peer(), Peer::Remote { .. }), "{:?}", server.peer());
}
