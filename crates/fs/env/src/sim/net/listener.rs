//! Listeners of simulated processes.

use super::SimConn;
use super::link::Link;
use crate::sim::SimEnv;
use crate::sim::world::{MachineId, ProcessId, TaskId, World};
use crate::{Address, Closer, Listener, Peer};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;

/// Key by which a connection finds a listener on its machine.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ListenerKey {
    Unix(PathBuf),
    Tcp(u16),
}

/// Queue of a listener.
pub struct Port {
    process: ProcessId,
    state: Mutex<PortState>,
}

#[derive(Default)]
struct PortState {
    queue: VecDeque<(Arc<Link>, Peer)>,
    waiter: Option<TaskId>,
    is_closed: bool,
}

impl Port {
    pub fn process(&self) -> ProcessId {
        self.process
    }

    /// Adds a connection to the queue.
    pub fn offer(&self, world: &World, link: Arc<Link>, peer: Peer) {
        let waiter = {
            let mut state = self.state.lock();
            if state.is_closed {
                drop(state);
                return link.close(1, true);
            }
            state.queue.push_back((link, peer));
            state.waiter.take()
        };
        waiter.into_iter().for_each(|waiter| world.wake(waiter));
    }

    /// Refuses queued and future connections, and wakes the acceptor.
    pub fn close(&self, world: &World) {
        let (queue, waiter) = {
            let mut state = self.state.lock();
            state.is_closed = true;
            (std::mem::take(&mut state.queue), state.waiter.take())
        };
        queue.iter().for_each(|(link, _)| link.close(1, true));
        waiter.into_iter().for_each(|waiter| world.wake(waiter));
    }
}

/// Listener of the simulated world.
pub struct SimListener {
    env: SimEnv,
    address: Address,
    place: (MachineId, ListenerKey),
    port: Arc<Port>,
}

/// Listens on an address of the process's own machine.
pub fn listen(env: &SimEnv, address: &Address) -> io::Result<SimListener> {
    let machine = env.machine();
    let mut state = env.world().state();
    let (key, address) = match address {
        Address::Unix(path) => {
            state.machine(machine).socket_names.insert(path.clone());
            (ListenerKey::Unix(path.clone()), address.clone())
        }
        Address::Tcp(host, 0) => {
            let next = &mut state.machine(machine).next_port;
            *next += 1;
            (ListenerKey::Tcp(*next), Address::Tcp(host.clone(), *next))
        }
        Address::Tcp(_, port) => (ListenerKey::Tcp(*port), address.clone()),
    };
    let place = (machine, key);
    if state.ports.contains_key(&place) {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    let port = Arc::new(Port { process: env.process(), state: Mutex::default() });
    state.ports.insert(place.clone(), Arc::clone(&port));
    drop(state);
    Ok(SimListener { env: env.clone(), address, place, port })
}

impl SimListener {
    fn unregister(&self) {
        unregister(self.env.world(), &self.place, &self.port);
    }
}

/// Removes a listener from its machine and closes it.
fn unregister(world: &World, place: &(MachineId, ListenerKey), port: &Arc<Port>) {
    let mut state = world.state();
    if state.ports.get(place).is_some_and(|listed| Arc::ptr_eq(listed, port)) {
        state.ports.remove(place);
    }
    drop(state);
    port.close(world);
}

impl Drop for SimListener {
    fn drop(&mut self) {
        self.unregister();
        // The socket file of a process that died stays.
        if let ListenerKey::Unix(path) = &self.place.1
            && self.env.is_alive()
        {
            let mut state = self.env.world().state();
            if !state.ports.contains_key(&self.place) {
                state.machine(self.place.0).socket_names.remove(path);
            }
        }
    }
}

impl Listener for SimListener {
    type Conn = SimConn;

    async fn accept(&mut self) -> io::Result<SimConn> {
        self.env.alive().await;
        let (link, peer) = std::future::poll_fn(|_| {
            let mut state = self.port.state.lock();
            if state.is_closed {
                return Poll::Ready(Err(io::Error::from(io::ErrorKind::InvalidInput)));
            }
            match state.queue.pop_front() {
                Some(next) => Poll::Ready(Ok(next)),
                None => {
                    state.waiter = Some(self.env.world().current());
                    Poll::Pending
                }
            }
        })
        .await?;
        Ok(SimConn::new(self.env.clone(), link, 1, peer, None))
    }

    fn address(&self) -> Address {
        self.address.clone()
    }

    fn closer(&self) -> Box<dyn Closer> {
        Box::new(PortCloser {
            world: Arc::clone(self.env.world()),
            place: self.place.clone(),
            port: Arc::clone(&self.port),
        })
    }
}

struct PortCloser {
    world: Arc<World>,
    place: (MachineId, ListenerKey),
    port: Arc<Port>,
}

impl Closer for PortCloser {
    fn close(&self) {
        unregister(&self.world, &self.place, &self.port);
    }
}

impl World {
    /// Closes the listeners of a process that died.
    pub fn close_ports_of(&self, process: ProcessId) {
        let ports: Vec<_> = {
            let state = self.state();
            let of_it = state.ports.iter().filter(|(_, port)| port.process == process);
            of_it.map(|(place, port)| (place.clone(), Arc::clone(port))).collect()
        };
        ports.iter().for_each(|(place, port)| unregister(self, place, port));
    }
}
