//! One end of a simulated connection.

use super::link::{Link, Message, Progress, SimAttachment};
use super::listener::ListenerKey;
use crate::sim::world::MachineId;
use crate::sim::{SimEnv, SimFile, SimShared};
use crate::{Address, Attachment, Closer, Conn, File, Hollow, Peer, Shared};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::task::Poll;
use weft_core::{ByteLen, LocalOffset, Nanos};

/// Maximum number of attachments of one message.
const ATTACHMENTS_MAX: usize = 8;

/// Connection of the simulated world.
pub struct SimConn {
    env: SimEnv,
    link: Arc<Link>,
    end: usize,
    peer: Peer,
    timeout: Option<Nanos>,
    attached: VecDeque<SimAttachment>,
}

/// Connects a process to an address within a timeout.
pub async fn connect(env: &SimEnv, address: &Address, timeout: Nanos) -> io::Result<SimConn> {
    env.alive().await;
    let world = env.world();
    let start = world.now();
    let (machine, key) = find(env, address)?;
    let here = env.machine();
    let is_reachable = {
        let mut state = world.state();
        state.machine(machine).is_up && !state.are_parted(here, machine)
    };
    let trip = world.network.lock().model.arrival(Nanos(start), here.0, machine.0, ByteLen(0)).0 - start;
    if !is_reachable || 2 * trip > timeout.0 {
        world.sleep_until(start.saturating_add(timeout.0)).await;
        return Err(io::ErrorKind::TimedOut.into());
    }
    world.sleep_until(start + trip).await;
    let port = world.state().ports.get(&(machine, key)).cloned();
    let Some(port) = port else {
        world.sleep_until(start + 2 * trip).await;
        return Err(io::ErrorKind::ConnectionRefused.into());
    };
    let link = Link::new(Arc::clone(world), [here, machine], [env.process(), port.process()]);
    let (ours, theirs) = match address {
        Address::Unix(_) => (world.peer(port.process()), world.peer(env.process())),
        Address::Tcp(..) => {
            let from = format!("{}:{}", world.state().machine(here).name, 32_768 + env.process().0);
            (Peer::Remote { address: address.to_string() }, Peer::Remote { address: from })
        }
    };
    let conn = SimConn::new(env.clone(), Arc::clone(&link), 0, ours, Some(timeout));
    port.offer(world, link, theirs);
    world.sleep_until(start + 2 * trip).await;
    Ok(conn)
}

/// Returns the machine that an address names from this process, and the listener on it.
fn find(env: &SimEnv, address: &Address) -> io::Result<(MachineId, ListenerKey)> {
    let here = env.machine();
    match address {
        Address::Unix(path) => {
            if !env.world().state().machine(here).socket_names.contains(path) {
                return Err(io::ErrorKind::NotFound.into());
            }
            Ok((here, ListenerKey::Unix(path.clone())))
        }
        Address::Tcp(host, port) => {
            let machine = env.world().find_machine(here, host).ok_or_else(|| {
                io::Error::new(io::ErrorKind::NotFound, format!("{host} is not a machine of this world"))
            })?;
            Ok((machine, ListenerKey::Tcp(*port)))
        }
    }
}

impl SimConn {
    pub(super) fn new(env: SimEnv, link: Arc<Link>, end: usize, peer: Peer, timeout: Option<Nanos>) -> Self {
        Self { env, link, end, peer, timeout, attached: VecDeque::new() }
    }

    fn deadline(&self) -> Option<u64> {
        self.timeout.map(|timeout| self.env.world().now().saturating_add(timeout.0))
    }

    /// Turns one attempt into a poll result; the poll ends at `deadline`.
    fn poll_result(&self, deadline: Option<u64>, progress: io::Result<Progress>) -> Poll<io::Result<usize>> {
        let world = self.env.world();
        match progress {
            Err(error) => Poll::Ready(Err(error)),
            Ok(Progress::Moved(count)) => Poll::Ready(Ok(count)),
            Ok(Progress::Wait) => match deadline {
                Some(at) if world.now() >= at => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                Some(at) => {
                    world.wake_at(world.current(), at);
                    Poll::Pending
                }
                None => Poll::Pending,
            },
        }
    }

    async fn send_all(&mut self, mut message: Message) -> io::Result<()> {
        self.env.alive().await;
        while message.left() > 0 {
            let deadline = self.deadline();
            std::future::poll_fn(|_| {
                let sent = self.link.send(self.end, &mut message);
                self.poll_result(deadline, sent)
            })
            .await?;
        }
        Ok(())
    }

    async fn recv_some(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let deadline = self.deadline();
        std::future::poll_fn(|_| {
            let received = self.link.receive(self.end, buf, &mut self.attached);
            self.poll_result(deadline, received)
        })
        .await
    }
}

/// Returns the first of `parts` that fit into one message: bytes, then hollow ones.
fn gather(parts: &[IoSlice<'_>]) -> (Message, usize) {
    let first_hollow = parts.iter().position(|part| Hollow::holds(part)).unwrap_or(parts.len());
    let (real, rest) = parts.split_at(first_hollow);
    let hollow = rest.iter().take_while(|part| Hollow::holds(part));
    let (count, hollow) = hollow.fold((0, 0), |(count, len), part| (count + 1, len + part.len()));
    let mut bytes = Vec::with_capacity(real.iter().map(|part| part.len()).sum());
    real.iter().for_each(|part| bytes.extend_from_slice(part));
    (Message { bytes, hollow, sent: 0, attached: Vec::new() }, first_hollow + count)
}

impl Drop for SimConn {
    fn drop(&mut self) {
        // For a dead process the system has closed the link already; a machine without power sends nothing.
        if self.env.is_alive() {
            self.link.close(self.end, true);
        }
    }
}

impl Conn for SimConn {
    type File = SimFile;
    type Shared = SimShared;

    /// Small: simulated reads need no system calls, and a world may hold a million connections.
    const READ_LEN: usize = 256;

    async fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let mut rest = parts;
        while !rest.is_empty() {
            let (message, count) = gather(rest);
            rest = &rest[count..];
            self.send_all(message).await?;
        }
        Ok(())
    }

    async fn send_file(
        &mut self,
        parts: &[IoSlice<'_>],
        file: &SimFile,
        offset: LocalOffset,
        len: ByteLen,
    ) -> io::Result<()> {
        let mut message = Message { bytes: Vec::new(), hollow: 0, sent: 0, attached: Vec::new() };
        parts.iter().for_each(|part| message.bytes.extend_from_slice(part));
        let len = len.0 as usize;
        if file.keeps_length() {
            message.hollow = file.read_length(offset, len).await.map(|_| len)?;
        } else if len > 0 {
            let head = message.bytes.len();
            message.bytes.resize(head + len, 0);
            file.read_at(&mut [IoSliceMut::new(&mut message.bytes[head..])], offset).await?;
        }
        self.send_all(message).await
    }

    async fn send_attached(
        &mut self,
        bytes: &[u8],
        attachments: &[Attachment<SimFile, SimShared>],
    ) -> io::Result<()> {
        if !matches!(self.peer, Peer::Local { .. }) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        assert!(
            !bytes.is_empty() && attachments.len() <= ATTACHMENTS_MAX,
            "1 byte and at most 8 attachments"
        );
        let attached = attachments
            .iter()
            .map(|attachment| match attachment {
                Attachment::File(file) => Attachment::File(file.clone()),
                Attachment::Shared(shared) => Attachment::Shared(shared.clone()),
            })
            .collect();
        self.send_all(Message { bytes: bytes.to_vec(), hollow: 0, sent: 0, attached }).await
    }

    async fn recv(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.env.alive().await;
        if buf.is_empty() {
            return Ok(0);
        }
        self.recv_some(buf).await
    }

    async fn recv_exact(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.env.alive().await;
        for buf in bufs {
            let mut done = 0;
            while done < buf.len() {
                match self.recv_some(&mut buf[done..]).await? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    count => done += count,
                }
            }
        }
        Ok(())
    }

    fn take_file(&mut self) -> Option<SimFile> {
        match self.attached.pop_front()? {
            Attachment::File(file) => Some(file.handed_to(&self.env)),
            Attachment::Shared(_) => None,
        }
    }

    fn take_shared(&mut self, len_min: usize) -> io::Result<SimShared> {
        match self.attached.pop_front() {
            Some(Attachment::Shared(shared)) if shared.len() >= len_min => Ok(shared),
            None => Err(io::ErrorKind::NotFound.into()),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the peer sent no shared memory of the required length",
            )),
        }
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }

    fn set_timeout(&mut self, timeout: Option<Nanos>) -> io::Result<()> {
        self.timeout = timeout;
        Ok(())
    }

    fn closer(&self) -> Box<dyn Closer> {
        Box::new(LinkCloser { link: Arc::clone(&self.link), end: self.end })
    }
}

struct LinkCloser {
    link: Arc<Link>,
    end: usize,
}

impl Closer for LinkCloser {
    fn close(&self) {
        self.link.close(self.end, false);
    }
}
