//! Network namespaces as hosts.

use super::{WEFT, isolated, needs, skip, succeeded};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Hosts on one network; removed with the test.
pub struct Hosts {
    pub names: Vec<String>,
}

/// Runs `ip ARGS`. Returns whether it succeeded.
pub fn ip(args: &str) -> bool {
    let mut command = Command::new("ip");
    command.env("PATH", std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin");
    command.args(args.split(' ')).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

impl Hosts {
    /// Creates the hosts. Skips the test and returns `None` if namespaces cannot be created. Host 0 has the network
    /// switch of all hosts.
    pub fn new(count: usize) -> Option<Self> {
        needs("ip");
        if !skip::unless_root("network namespaces") {
            return None;
        }
        let id = std::process::id();
        let hosts = Self { names: (0..count).map(|host| format!("weft-{id}-{count}-{host}")).collect() };
        let first = &hosts.names[0];
        if !ip(&format!("netns add {first}")) {
            skip::skip("this system gives root no network namespaces: `ip netns add` failed");
            return None;
        }
        let made = ip(&format!("-n {first} link add br0 type bridge"))
            && ip(&format!("-n {first} addr add 10.77.0.1/24 dev br0"))
            && ip(&format!("-n {first} link set br0 up"))
            && ip(&format!("-n {first} link set lo up"))
            && hosts.names.iter().enumerate().skip(1).all(|(host, name)| {
                ip(&format!("netns add {name}"))
                    && ip(&format!(
                        "link add veth0 netns {name} type veth peer name port{host} netns {first}"
                    ))
                    && ip(&format!("-n {first} link set port{host} master br0"))
                    && ip(&format!("-n {first} link set port{host} up"))
                    && ip(&format!("-n {name} addr add 10.77.0.{}/24 dev veth0", host + 1))
                    && ip(&format!("-n {name} link set veth0 up"))
                    && ip(&format!("-n {name} link set lo up"))
            });
        assert!(made, "the network between the namespaces could not be created");
        Some(hosts)
    }

    /// Builds a command to which a program and its arguments are to be added, which then runs on a host.
    pub fn on(&self, host: usize) -> Command {
        let mut command = isolated("ip");
        command.env("PATH", std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin");
        command.args(["netns", "exec", &self.names[host]]).stdin(Stdio::null());
        command
    }

    /// Builds `weft ARGS` on a host.
    pub fn command(&self, host: usize, cluster: &Path, args: &[&str]) -> Command {
        let mut command = self.on(host);
        command.arg(WEFT).arg("--cluster").arg(cluster).args(args);
        command
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            ip(&format!("netns del {name}"));
        }
    }
}

/// A server or mount that ends with the test.
pub struct Server(pub Child);

impl Server {
    /// Starts it, with a command that prints "ready".
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("weft starts");
        let mut line = [0; 6];
        let out = child.stdout.as_mut().expect("a pipe");
        out.read_exact(&mut line).expect("the server reports that it is ready");
        assert_eq!(&line, b"ready\n");
        Self(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Stops a server in order.
pub fn stop(hosts: &Hosts, host: usize, file: &Path, mut server: Server) {
    succeeded(&mut hosts.command(host, file, &["stop"]));
    assert!(server.0.wait().expect("waited for").success());
}
