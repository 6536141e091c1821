//! A simulated cluster of machines and servers.

use super::{Plan, SERVERS, options, secret};
use std::path::PathBuf;
use weft_client::{Client, ClientOptions, Credentials, Key, Transport};
use weft_env::sim::{Control, Sim, SimEnv};
use weft_env::{Address, Dir, Env};
use weft_server::{Server, ServerHandle};
use weft_wire::hello::JobNumber;

pub struct World {
    pub plan: Plan,
    pub machines: Vec<SimEnv>,
    pub control: Control,
}

impl World {
    /// Creates four servers, each on a machine of its own or all on the clients' machine.
    pub fn new(sim: &Sim, spread: bool) -> Self {
        let (first, control) = (sim.node("n0"), sim.control());
        let machines: Vec<SimEnv> = (0..SERVERS)
            .map(|id| match id {
                0 => first.clone(),
                _ if spread => sim.node(&format!("n{id}")),
                _ => control.process(&first, &format!("p{id}"), 1000, 1000),
            })
            .collect();
        let address = |id: u32| match spread {
            true => Address::Tcp(format!("n{id}"), 4000),
            false => Address::Unix(format!("/s{id}").into()),
        };
        let folders = (0..SERVERS).map(|id| PathBuf::from(format!("/t{id}"))).collect();
        let plan = Plan::new((0..SERVERS).map(address).collect(), folders, "/meta".into(), 1000);
        Self { plan, machines, control }
    }

    /// Creates the folders and starts all servers.
    pub async fn start(&self) -> Vec<ServerHandle<SimEnv>> {
        let mut servers = Vec::new();
        for id in 0..SERVERS {
            let env = &self.machines[id as usize];
            let root = env.dir("/".as_ref()).await.expect("a disk");
            root.make_dir(&format!("t{id}")).await.expect("a folder");
            root.make_dir("meta").await.expect("a folder");
            servers.push(self.start_server(env, id).await);
        }
        servers
    }

    pub async fn start_server(&self, env: &SimEnv, id: u32) -> ServerHandle<SimEnv> {
        Server::start(env.clone(), self.plan.config(id)).await.expect("the server starts")
    }

    /// Disturbs a run at every step that is the last of `every`: kills a server's process and starts another one, or resets
    /// connections, in turn, at one server after the other.
    pub async fn disturb(
        &self,
        step: u64,
        every: u64,
        machines: &mut [SimEnv],
        servers: &mut [ServerHandle<SimEnv>],
    ) {
        if step % every != every - 1 {
            return;
        }
        let id = (step / (2 * every) % u64::from(SERVERS)) as usize;
        if step % (2 * every) == every - 1 {
            self.control.kill(&machines[id]);
            machines[id] = self.control.restart(&machines[id]);
            servers[id] = self.start_server(&machines[id], id as u32).await;
        } else {
            self.control.reset_connections(&machines[0], &machines[3 - id]);
        }
    }

    /// Creates a client in a process of its own on the first machine.
    pub fn client(&self, name: &str, transport: Transport) -> Client<SimEnv> {
        let env = self.control.process(&self.machines[0], name, 1000, 1000);
        let credentials = Credentials::user(1000, 1000, vec![]).with_key(Key::Cluster(Box::new(secret())));
        Client::new(env, self.plan.map.clone(), options(transport), credentials)
    }

    /// A client of a job with I/O delegates, or a delegate.
    pub fn client_of_job(&self, name: &str, job: JobNumber) -> Client<SimEnv> {
        let env = self.control.process(&self.machines[0], name, 1000, 1000);
        let credentials = Credentials::user(1000, 1000, vec![]).with_key(Key::Cluster(Box::new(secret())));
        let options = ClientOptions { job: Some(job), ..options(Transport::Auto) };
        Client::new(env, self.plan.map.clone(), options, credentials)
    }
}
