//! Leases of names and attributes: a change is answered when no mount uses what it changed.

use crate::meta_support::model::Rng;
use crate::meta_support::*;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use weft_core::{ByteLen, FileId, FileOffset, Nanos};
use weft_env::Env;
use weft_env::sim::{Sim, SimEnv};
use weft_server::metadata::{Config, Service};
use weft_wire::Errno;
use weft_wire::meta::*;

/// Time within which a change that waits for nobody is answered.
const AT_ONCE: Nanos = Nanos::from_ms(100);

fn names_config() -> Config {
    let mut config = config(PathBuf::from("/"));
    config.options.inline_max = ByteLen(64);
    config
}

fn with_service<F, Fut>(seed: u64, body: F)
where
    F: FnOnce(SimEnv, Arc<Service<SimEnv>>) -> Fut + 'static,
    Fut: Future<Output = ()>,
{
    let mut sim = Sim::with_seed(seed);
    let node = sim.node("mds");
    let env = node.clone();
    sim.block_on(&node, async move {
        let service = start(&env, names_config(), &Removed::default()).await;
        body(env, service.clone()).await;
        service.shutdown().await;
    });
}

/// A name that the kernel of a mount uses.
#[derive(Clone, PartialEq, Debug)]
struct Used {
    attr: Attr,
    until: Nanos,
}

/// Names in use, by path.
type InUse = Arc<Mutex<BTreeMap<String, Used>>>;

/// A mount: a session that leases names and answers events after a delay.
struct Mount {
    peer: Peer<SimEnv>,
    in_use: InUse,
}

impl Mount {
    async fn new(
        env: &SimEnv,
        service: &Arc<Service<SimEnv>>,
        session: u128,
        mut delay: impl FnMut() -> Option<Nanos> + Send + 'static,
    ) -> Self {
        let peer = Peer::new(service, session, user(0));
        let in_use = InUse::default();
        let (events, ctx, names, clock) = (service.clone(), peer.ctx.clone(), in_use.clone(), env.clone());
        // The first call makes it a mount; later ones come from its task.
        let ask = move |done| {
            let (events, ctx) = (events.clone(), ctx.clone());
            async move {
                let call = MetaCall { seq: 0, on_behalf: None, request: MetaRequest::WaitEvents { done } };
                events.call(&ctx, call).await
            }
        };
        assert_eq!(ask(0).await, MetaReply::Events(vec![]));
        env.spawn("mount", move || async move {
            let mut done = 0;
            loop {
                let asked = clock.now();
                let MetaReply::Events(events) = ask(done).await else { return };
                if events.is_empty() && clock.now() == asked {
                    return; // the service stops
                }
                for event in events {
                    let Some(delay) = delay() else { return };
                    clock.sleep(delay).await;
                    assert!(matches!(event.outdated, Outdated::Name | Outdated::Attributes));
                    names.lock().retain(|_, used| used.attr.file != event.file);
                    assert!(event.number > done, "numbers rise");
                    done = event.number;
                }
            }
        })
        .expect("a task");
        Self { peer, in_use }
    }

    /// Lists a directory as `readdirplus` does. Returns whether its names are leased.
    async fn list(&self, env: &SimEnv, dir: &str) -> bool {
        let until = env.now().saturating_add(NAME_LEASE);
        let request =
            MetaRequest::List { at: at(dir), after: vec![], limit: 100, with_attr: true, lease: true };
        let MetaReply::Entries { entries, .. } = self.peer.ask(request).await else { panic!("no entries") };
        let leased = entries.iter().any(|entry| entry.leased);
        for entry in entries {
            let path = format!("{dir}/{}", String::from_utf8(entry.name).expect("a name"));
            match entry.attr.filter(|_| entry.leased) {
                Some(attr) => drop(self.in_use.lock().insert(path, Used { attr, until })),
                None => drop(self.in_use.lock().remove(&path)),
            }
        }
        leased
    }

    /// Looks up a name. Returns whether it is leased.
    async fn look_up(&self, env: &SimEnv, dir: &Attr, (dir_name, name): (&str, &str)) -> bool {
        let until = env.now().saturating_add(NAME_LEASE);
        let at = InodePath { path: name.into(), ..InodePath::at_inode(dir.file, dir.proof) };
        let MetaReply::LookedUp { attr, leased } = self.peer.ask(MetaRequest::LookUp { at }).await else {
            return false;
        };
        if leased {
            assert!(attr.can_be_leased());
            self.in_use.lock().insert(format!("{dir_name}/{name}"), Used { attr, until });
        }
        leased
    }

    fn uses(&self, path: &str, now: Nanos) -> bool {
        self.in_use.lock().get(path).is_some_and(|used| used.until > now)
    }
}

fn chmod(path: &str, mode: u32) -> MetaRequest {
    MetaRequest::SetAttr { at: link_at(path), set: SetAttr { mode: Some(mode), ..SetAttr::default() } }
}

/// Time that a change takes.
async fn time_of(env: &SimEnv, peer: &mut Peer<SimEnv>, request: MetaRequest) -> Nanos {
    let before = env.now();
    let reply = peer.change(request).await;
    assert!(!matches!(reply, MetaReply::Failed(_)), "{reply:?}");
    env.now().saturating_sub(before)
}

#[test]
fn a_change_waits_until_mounts_have_dropped_the_name_or_the_lease_ends() {
    with_service(1, |env, service| async move {
        let mut other = Peer::new(&service, 1, user(0));
        other.mkdir("d").await.expect("makes");
        for name in ["a", "b", "c", "e"] {
            other.touch(&format!("d/{name}")).await.expect("creates");
        }
        // The mount answers two events after 200 ms each, then none.
        let mut delays = vec![None, Some(Nanos::from_ms(200)), Some(Nanos::from_ms(200))];
        let mut mount = Mount::new(&env, &service, 2, move || delays.pop().flatten()).await;
        let plain = MetaRequest::List { at: at("d"), after: vec![], limit: 9, with_attr: true, lease: true };
        let MetaReply::Entries { entries, .. } = other.ask(plain).await else { panic!("no entries") };
        let leased = entries.iter().any(|entry| entry.leased);
        assert!(!leased, "a session without events gets no lease");
        assert!(mount.list(&env, "d").await);

        let took = time_of(&env, &mut mount.peer, chmod("d/a", 0o600)).await;
        assert!(took < AT_ONCE, "{took}: the mount's kernel knows its own changes");
        let took = time_of(&env, &mut other, chmod("d/a", 0o640)).await;
        assert!((Nanos::from_ms(200)..Nanos::from_ms(300)).contains(&took), "{took}");
        assert!(!mount.uses("d/a", env.now()) && mount.uses("d/b", env.now()));
        let took = time_of(&env, &mut other, chmod("d/a", 0o644)).await;
        assert!(took < AT_ONCE, "{took}: no lease is left");
        let took = time_of(&env, &mut other, MetaRequest::Unlink { at: link_at("d/b") }).await;
        assert!((Nanos::from_ms(200)..Nanos::from_ms(300)).contains(&took), "{took}");
        // The mount does not answer: the lease ends.
        let before = env.now();
        let took = time_of(&env, &mut other, rename_request("d/c", "d/c2")).await;
        assert!(took > Nanos::from_ms(300), "{took}");
        assert!(!mount.uses("d/c", env.now()), "{before} {took}");
        let took = time_of(&env, &mut other, chmod("d/e", 0o600)).await;
        assert!(took < AT_ONCE, "{took}: all leases have ended");
    });
}

#[test]
fn directories_with_removals_are_not_leased_for_a_while() {
    with_service(2, |env, service| async move {
        let mut other = Peer::new(&service, 1, user(0));
        for name in ["d/a", "d/b", "d/c", "e/a"] {
            let _ = other.mkdir(&name[..1]).await;
            other.touch(name).await.expect("creates");
        }
        let mount = Mount::new(&env, &service, 2, || Some(Nanos(0))).await;
        other.unlink("d/a").await.expect("removes");
        assert!(mount.list(&env, "d").await, "nobody waited for a lease");
        time_of(&env, &mut other, chmod("d/b", 0o600)).await;
        assert!(mount.list(&env, "d").await, "attributes do not count");
        other.unlink("d/b").await.expect("removes");
        assert!(!mount.list(&env, "d").await);
        assert!(mount.list(&env, "e").await);
        env.sleep(Nanos::from_s(3)).await;
        assert!(mount.list(&env, "d").await);
    });
}

#[test]
fn attributes_that_change_without_the_service_are_not_leased() {
    with_service(3, |env, service| async move {
        let mut other = Peer::new(&service, 1, user(0));
        other.mkdir("d").await.expect("makes");
        for name in ["d/linked", "d/written", "d/plain"] {
            other.touch(name).await.expect("creates");
        }
        other.mkdir("d/sub").await.expect("makes");
        let link = MetaRequest::Link { from: at("d/linked"), to: link_at("second") };
        attr(other.change(link).await).expect("links");
        // A growth gives the file datafiles, which its writer changes.
        let (handle, _) = other.open("d/written", WRITE).await.expect("opens");
        let grown = other.ask(MetaRequest::Grow { handle }).await;
        assert!(matches!(grown, MetaReply::Relocated { .. }), "{grown:?}");
        let mount = Mount::new(&env, &service, 2, || Some(Nanos(0))).await;
        assert!(mount.list(&env, "d").await);
        let in_use: Vec<String> = mount.in_use.lock().keys().cloned().collect();
        assert_eq!(in_use, ["d/plain", "d/sub"]);
        let took = time_of(&env, &mut other, chmod("d/linked", 0o600)).await;
        assert!(took < AT_ONCE, "{took}");
        other.close(handle, WriteSummary::default()).await.expect("closes");
        // An open for writing ends the lease of attributes, and the file is not leased again at once. Its growth ends the
        // next lease before the first change of its datafiles.
        let (handle, _) = other.open("d/plain", WRITE).await.expect("opens");
        assert!(!mount.uses("d/plain", env.now()));
        mount.list(&env, "d").await;
        assert!(!mount.uses("d/plain", env.now()));
        env.sleep(Nanos::from_s(2)).await;
        mount.list(&env, "d").await;
        assert!(mount.uses("d/plain", env.now()));
        let grown = other.ask(MetaRequest::Grow { handle }).await;
        assert!(matches!(grown, MetaReply::Relocated { .. }), "{grown:?}");
        assert!(!mount.uses("d/plain", env.now()));
    });
}

#[test]
fn a_repeated_change_waits_like_the_first() {
    with_service(4, |env, service| async move {
        let mut other = Peer::new(&service, 1, user(0));
        other.mkdir("d").await.expect("makes");
        other.touch("d/a").await.expect("creates");
        let mount = Mount::new(&env, &service, 2, || None).await;
        assert!(mount.list(&env, "d").await);
        let begun = env.now();
        let seq = other.seq + 1;
        let (calls, ctx) = (service.clone(), other.ctx.clone());
        env.spawn("first attempt", move || async move {
            let call = MetaCall { seq, on_behalf: None, request: chmod("d/a", 0o600) };
            calls.call(&ctx, call).await;
        })
        .expect("a task");
        env.sleep(Nanos::from_ms(50)).await;
        assert!(matches!(other.repeat(seq, chmod("d/a", 0o600)).await, MetaReply::Attr(_)));
        let took = env.now().saturating_sub(begun);
        assert!(took > Nanos::from_ms(900), "{took}");
        assert!(!mount.uses("d/a", env.now()));
    });
}

#[test]
fn after_a_crash_changes_wait_for_leases_of_the_previous_start() {
    for (leases, cut) in [(true, true), (true, false), (false, true)] {
        let mut sim = Sim::with_seed(5);
        let node = sim.node("mds");
        let env = node.clone();
        sim.block_on(&node, async move {
            let service = start(&env, names_config(), &Removed::default()).await;
            let mut other = Peer::new(&service, 1, user(0));
            other.mkdir("d").await.expect("makes");
            other.touch("d/a").await.expect("creates");
            let mount = Mount::new(&env, &service, 2, || None).await;
            assert!(!leases || mount.list(&env, "d").await);
            if !cut {
                service.shutdown().await;
            }
        });
        if cut {
            sim.power_cut(&node);
        } else {
            sim.kill(&node);
        }
        let node = sim.restart(&node);
        let env = node.clone();
        sim.block_on(&node, async move {
            let begun = env.now();
            let service = start(&env, names_config(), &Removed::default()).await;
            let mut other = Peer::new(&service, 1, user(0));
            other.stat("d/a").await.expect("queries do not wait");
            assert!(env.now().saturating_sub(begun) < AT_ONCE);
            other.seq = 100;
            let took = time_of(&env, &mut other, chmod("d/a", 0o600)).await;
            assert_eq!(took > Nanos::from_ms(800), leases, "{took}");
            let took = time_of(&env, &mut other, chmod("d/a", 0o640)).await;
            assert!(took < AT_ONCE, "{took}");
            service.shutdown().await;
        });
    }
}

#[test]
fn a_mount_that_does_not_answer_gets_no_leases_for_a_while() {
    with_service(7, |env, service| async move {
        let mut other = Peer::new(&service, 1, user(0));
        other.mkdir("d").await.expect("makes");
        other.touch("d/a").await.expect("creates");
        other.touch("d/b").await.expect("creates");
        let silent = Mount::new(&env, &service, 2, || None).await;
        let answering = Mount::new(&env, &service, 3, || Some(Nanos(0))).await;
        assert!(silent.list(&env, "d").await);
        let took = time_of(&env, &mut other, chmod("d/a", 0o600)).await;
        assert!(took > Nanos::from_ms(900), "{took}");
        assert!(!silent.list(&env, "d").await);
        assert!(answering.list(&env, "d").await);
        let took = time_of(&env, &mut other, chmod("d/b", 0o600)).await;
        assert!(took < AT_ONCE, "{took}");
        env.sleep(Nanos::from_s(61)).await;
        assert!(silent.list(&env, "d").await);
    });
}

#[test]
fn a_name_created_where_a_removal_waits_for_a_mount_waits_too() {
    with_service(8, |env, service| async move {
        let mut other = Peer::new(&service, 1, user(0));
        other.mkdir("d").await.expect("makes");
        other.touch("d/a").await.expect("creates");
        let mount = Mount::new(&env, &service, 2, || None).await;
        assert!(mount.list(&env, "d").await);
        let (calls, ctx, seq) = (service.clone(), other.ctx.clone(), other.seq + 1);
        env.spawn("remover", move || async move {
            let request = MetaRequest::Unlink { at: link_at("d/a") };
            calls.call(&ctx, MetaCall { seq, on_behalf: None, request }).await;
        })
        .expect("a task");
        env.sleep(Nanos::from_ms(50)).await;
        let mut third = Peer::new(&service, 3, user(0));
        third.touch("d/a").await.expect("creates another file");
        assert!(!mount.uses("d/a", env.now()));
    });
}

/// A random change in the directories `d0` and `d1`. Errors such as ENOENT are expected.
async fn change_something(rng: &mut Rng, peer: &mut Peer<SimEnv>) {
    let mut path = || format!("d{}/{}", rng.below(2), ["a", "b", "c", "s"][rng.below(4) as usize]);
    let (one, two) = (path(), path());
    match rng.below(11) {
        0 | 1 => drop(peer.touch(&one).await),
        2 => drop(peer.unlink(&one).await),
        3 => drop(peer.change(chmod(&one, 0o600 + rng.below(64) as u32)).await),
        4 => drop(peer.rename(&one, &two).await),
        5 => {
            let (from, to) = (link_at(&one), link_at(&two));
            let request = MetaRequest::Rename { from, to, no_replace: false, exchange: true };
            drop(peer.change(request).await);
        }
        6 => drop(peer.change(MetaRequest::Link { from: link_at(&one), to: link_at(&two) }).await),
        7 => drop(peer.mkdir(&one).await),
        8 => drop(peer.rmdir(&one).await),
        9 => {
            let Ok((handle, _)) = peer.open(&one, WRITE).await else { return };
            let offset = Some(FileOffset(rng.below(40)));
            let bytes = vec![1; rng.below(24) as usize];
            drop(peer.change(MetaRequest::WriteInline { handle, offset, bytes }).await);
            let _ = peer.close(handle, WriteSummary::default()).await;
        }
        _ => {
            let size = ByteLen(rng.below(64));
            drop(peer.change(MetaRequest::Truncate { at: at(&one), handle: None, size }).await);
        }
    }
}

/// Random changes by two mounts and a client. After each, no other session uses a name that is not as in the namespace.
fn random_changes(seeds: std::ops::Range<u64>) {
    let (count, total) = (seeds.clone().count(), Arc::new(Mutex::new((0, 0, 0))));
    for seed in seeds {
        let total = total.clone();
        with_service(seed, move |env, service| async move {
            let mut rng = Rng::new(seed);
            let mut other = Peer::new(&service, 1, user(0));
            other.mkdir("d0").await.expect("makes");
            other.mkdir("d1").await.expect("makes");
            let mut mounts = Vec::new();
            for session in [2, 3] {
                let mut delays = Rng::new(seed * 10 + session as u64);
                let delay = move || Some(Nanos::from_ms(delays.below(10).pow(3)));
                mounts.push(Mount::new(&env, &service, session, delay).await);
            }
            let (mut leases, mut looked_up, mut used) = (0, 0, 0);
            for _ in 0..200 {
                if rng.below(6) == 0 {
                    let (mount, dir) = (&mounts[rng.below(2) as usize], format!("d{}", rng.below(2)));
                    let found = mount.peer.stat(&dir).await.expect("a directory");
                    let name = ["a", "b", "c", "s"][rng.below(4) as usize];
                    looked_up += usize::from(mount.look_up(&env, &found, (&dir, name)).await);
                    continue;
                }
                if rng.below(3) == 0 {
                    let (mount, dir) = (&mounts[rng.below(2) as usize], format!("d{}", rng.below(2)));
                    leases += usize::from(mount.list(&env, &dir).await);
                    continue;
                }
                if rng.below(8) == 0 {
                    env.sleep(Nanos::from_ms(rng.below(3000))).await;
                }
                let by = rng.below(3) as usize;
                match mounts.get_mut(by) {
                    Some(mount) => {
                        // Its kernel knows what it changes.
                        mount.in_use.lock().clear();
                        change_something(&mut rng, &mut mount.peer).await;
                    }
                    None => change_something(&mut rng, &mut other).await,
                }
                let now = env.now();
                for mount in &mounts {
                    let in_use = mount.in_use.lock().clone();
                    for (path, Used { attr, until }) in
                        in_use.into_iter().filter(|(_, used)| used.until > now)
                    {
                        let found = other.stat(&path).await;
                        let known = |attr: &Attr| {
                            let Attr { file, kind, mode, size, nlink, mtime, ctime, .. } = attr.clone();
                            (file, kind, mode, size, nlink, mtime, ctime)
                        };
                        assert_eq!(
                            found.as_ref().map(known),
                            Ok(known(&attr)),
                            "seed {seed}: {path} until {until}"
                        );
                        used += 1;
                    }
                }
            }
            let mut total = total.lock();
            *total = (total.0 + leases, total.1 + looked_up, total.2 + used);
        });
    }
    let (leases, looked_up, used) = *total.lock();
    let what = format!("{leases} listings, {looked_up} lookups, {used} names in use");
    assert!(leases > 10 * count && looked_up > count && used > 30 * count, "{what}");
}

#[test]
fn no_mount_uses_an_outdated_name_after_a_change_is_answered() {
    random_changes(1..60);
}

/// The seeded bug makes a run fail.
#[cfg(feature = "mutants")]
#[test]
fn seeded_bugs_of_name_leases_are_found() {
    use weft_env::mutants::{self, Mutant};
    mutants::seed(Some(Mutant::KeptName));
    let found = std::panic::catch_unwind(|| random_changes(1..60)).is_err();
    mutants::seed(None);
    assert!(found, "no seed finds it");
}

#[test]
fn sizes_in_a_listing_survive_a_loss_of_power() {
    // A client on another host sees a size only when it is durable, in a listing as by `stat`.
    let mut sim = Sim::with_seed(6);
    let node = sim.node("mds");
    let env = node.clone();
    let seen = sim.block_on(&node, async move {
        let service = start(&env, names_config(), &Removed::default()).await;
        let mut writer = Peer::on_host(&service, 1, user(0));
        let (handle, opened) = writer.open("f", CREATE).await.expect("creates");
        let write = MetaRequest::WriteInline { handle, offset: None, bytes: b"bytes".to_vec() };
        assert!(matches!(writer.change(write).await, MetaReply::InlineWritten { .. }));
        let reader = Peer::new(&service, 2, user(0));
        let request =
            MetaRequest::List { at: at(""), after: vec![], limit: 9, with_attr: true, lease: false };
        let MetaReply::Entries { entries, .. } = reader.ask(request).await else { panic!("no entries") };
        let seen = entries[0].attr.as_ref().expect("attributes").size;
        assert_eq!((entries[0].file, seen), (opened.attr.file, ByteLen(5)));
        seen
    });
    sim.power_cut(&node);
    let node = sim.restart(&node);
    let env = node.clone();
    sim.block_on(&node, async move {
        let service = start(&env, names_config(), &Removed::default()).await;
        let found: Result<(FileId, ByteLen), Errno> =
            Peer::new(&service, 2, user(0)).stat("f").await.map(|attr| (attr.file, attr.size));
        assert_eq!(found.map(|(_, size)| size), Ok(seen));
        service.shutdown().await;
    });
}
