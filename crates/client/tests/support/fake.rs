//! A stand-in for the metadata service: files in a flat map, enough for tests of the data path alone.

use super::{SERVERS, secret};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use weft_client::ClusterMap;
use weft_core::{ByteLen, FileId, Layout, TargetId, Timestamp};
use weft_env::{Env, Listener, Peer};
use weft_wire::hello::{Challenge, Hello, HelloReply, Proof, Role, Side, Welcome, proof_holds, prove};
use weft_wire::meta::{
    Attr, FileType, LockOwner, MetaCall, MetaReply, MetaRequest, Opened, Place, Unsettled,
};
use weft_wire::{Capability, Errno, Family, Kind, Link, Rights};

#[derive(Default)]
struct State {
    names: BTreeMap<Vec<u8>, FileId>,
    layouts: BTreeMap<FileId, Layout>,
    appending: BTreeMap<FileId, (u128, LockOwner)>,
    handles: BTreeMap<(u128, u64), FileId>,
}

pub async fn start<E: Env>(env: &E, map: &ClusterMap) {
    let address = &map.servers[map.metadata.0 as usize].addresses[0];
    let mut listener = env.listen(address).await.expect("listens");
    let state: Arc<Mutex<State>> = Arc::default();
    let (accepting, id) = (env.clone(), map.metadata);
    let accept = move || async move {
        while let Ok(conn) = listener.accept().await {
            let (env, state) = (accepting.clone(), Arc::clone(&state));
            let serve = move || async move { serve(env, id, conn, state).await.unwrap_or(()) };
            accepting.spawn("fake conn", serve).expect("a task");
        }
    };
    env.spawn("fake accept", accept).expect("a task");
}

async fn serve<E: Env>(
    env: E,
    id: weft_core::ServerId,
    conn: E::Conn,
    state: Arc<Mutex<State>>,
) -> Option<()> {
    let local = matches!(weft_env::Conn::peer(&conn), Peer::Local { .. });
    let mut link = Link::new(conn);
    let incoming = link.recv().await.ok()??;
    let hello: Hello = link.decode(&incoming).ok()?;
    if !local {
        let Role::Client(who) = &hello.role else { return None };
        let key = secret().identity_key(who);
        let server_nonce = [3; 32];
        let proof = prove(&key, Side::Server, &hello, &server_nonce);
        let challenge = HelloReply::Challenge(Challenge { server_nonce, proof });
        link.send(Kind::Reply, Family::Hello, 1, &challenge, &[]).await.ok()?;
        let incoming = link.recv().await.ok()??;
        let proof: Proof = link.decode(&incoming).ok()?;
        assert!(proof_holds(&key, Side::Client, &hello, &server_nonce, &proof.proof));
    }
    let welcome = Welcome { server: id, incarnation: 1, idle_limit: Default::default(), checksums: false };
    link.send(Kind::Reply, Family::Hello, 1, &HelloReply::Welcome(welcome), &[]).await.ok()?;
    loop {
        let incoming = link.recv().await.ok()??;
        let call: MetaCall = link.decode(&incoming).ok()?;
        let reply = answer(&env, &state, hello.session.0, call.request);
        if matches!(reply, MetaReply::LockWait(_)) {
            env.sleep(weft_core::Nanos::from_ms(1)).await;
        }
        if incoming.header.kind == Kind::Request {
            link.send(Kind::Reply, Family::Meta, incoming.header.request, &reply, &[]).await.ok()?;
        }
    }
}

fn grant<E: Env>(env: &E, file: FileId) -> Capability {
    let expires_s = env.wall().parts().0 as u64 + 3600;
    secret().grant(file, Rights::READ.and(Rights::WRITE).and(Rights::LENGTH), expires_s)
}

fn attr<E: Env>(env: &E, file: FileId, layout: &Layout) -> Attr {
    Attr {
        file,
        kind: FileType::Regular,
        mode: 0o644,
        uid: 0,
        gid: 0,
        nlink: 1,
        size: ByteLen(0),
        blocks_512: 0,
        atime: Timestamp(0),
        mtime: Timestamp(0),
        ctime: Timestamp(0),
        rdev: 0,
        unsettled: Some(Box::new(Unsettled {
            layout: layout.clone(),
            cap: grant(env, file),
            epoch: 1,
            may_settle: false,
            mtime_set_at: Timestamp(0),
        })),
    }
}

fn answer<E: Env>(env: &E, state: &Mutex<State>, session: u128, request: MetaRequest) -> MetaReply {
    let mut state = state.lock().expect("state");
    let find = |state: &State, at: &Place| match at.path.is_empty() {
        true => Some(at.base),
        false => state.names.get(&at.path).copied(),
    };
    let missing = MetaReply::Failed(Errno::ENOENT.into());
    match request {
        MetaRequest::Open { at, flags, handle, layout: spec, .. } => {
            let found = find(&state, &at);
            let Some(file) = found.or_else(|| flags.create.then(|| FileId(100 + state.layouts.len() as u64)))
            else {
                return missing;
            };
            if found.is_none() {
                let stripe = spec.stripe_size.unwrap_or(ByteLen::from_kib(64));
                let targets: Vec<_> = (0..SERVERS).map(TargetId).collect();
                state.layouts.insert(file, Layout::striped(&targets, stripe).expect("a layout"));
                state.names.insert(at.path, file);
            }
            state.handles.insert((session, handle.0), file);
            let layout = state.layouts[&file].clone();
            MetaReply::Opened(Box::new(Opened {
                attr: attr(env, file, &layout),
                layout: Some(layout),
                cap: Some(grant(env, file)),
                created: found.is_none(),
                must_truncate: flags.truncate && found.is_some(),
                cached_elsewhere: false,
                may_cache: false,
                epoch: 1,
            }))
        }
        MetaRequest::Stat { at } => match find(&state, &at) {
            Some(file) => MetaReply::Attr(attr(env, file, &state.layouts[&file])),
            None => missing,
        },
        MetaRequest::Truncate { at, .. } => match find(&state, &at) {
            Some(file) => MetaReply::Truncate {
                file,
                layout: state.layouts[&file].clone(),
                cap: grant(env, file),
                epoch: 1,
            },
            None => missing,
        },
        MetaRequest::Unlink { at } => match state.names.remove(&at.path) {
            Some(_) => MetaReply::Done,
            None => missing,
        },
        MetaRequest::Lock { handle, owner, .. } => {
            let file = state.handles[&(session, handle.0)];
            match *state.appending.entry(file).or_insert((session, owner)) == (session, owner) {
                true => MetaReply::Locked,
                false => MetaReply::LockWait(1),
            }
        }
        MetaRequest::Unlock { handle, .. } => {
            let file = state.handles[&(session, handle.0)];
            state.appending.remove(&file);
            MetaReply::Done
        }
        MetaRequest::Renew { handle } => {
            MetaReply::Capability(grant(env, state.handles[&(session, handle.0)]))
        }
        MetaRequest::Reclaim { .. } => {
            MetaReply::Reclaimed { lost_opens: Vec::new(), lost_locks: Vec::new() }
        }
        MetaRequest::Close { .. } | MetaRequest::Settle { .. } | MetaRequest::Flush => MetaReply::Done,
        _ => MetaReply::Failed(Errno::ENOSYS.into()),
    }
}
