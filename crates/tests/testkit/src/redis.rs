//! Redis servers: single, as replicas watched by Sentinels, or as a cluster. Each in a temporary folder.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::ca::Leaf;
use crate::process::{Process, TIMEOUT, command, free_port, run, serve_on_free_port, wait_until};

/// Options of a [`Redis`]. By default it needs no password and saves to disk only on request.
#[derive(Debug, Clone, Default)]
pub struct RedisOptions {
    arguments: Vec<String>,
    password: Option<String>,
    authority: Option<PathBuf>,
}

impl RedisOptions {
    /// Requires this password from clients.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.argument(&["--requirepass", password])
    }

    /// Adds a user with the rules of `ACL SETUSER`: `brisk on >secret ~brisk:* +get +set`.
    #[must_use]
    pub fn user(self, rules: &str) -> Self {
        let words: Vec<&str> = ["--user"].into_iter().chain(rules.split_whitespace()).collect();
        self.argument(&words)
    }

    /// Accepts TLS only, with this certificate; `authority` is the file with its root.
    #[must_use]
    pub fn tls(mut self, leaf: &Leaf, authority: PathBuf) -> Self {
        let [chain, key] = [&leaf.chain, &leaf.key].map(|path| path.display().to_string());
        let root = authority.display().to_string();
        self.authority = Some(authority);
        self.argument(&["--tls-cert-file", &chain, "--tls-key-file", &key]).argument(&[
            "--tls-ca-cert-file",
            &root,
            "--tls-auth-clients",
            "no",
            "--port",
            "0",
        ])
    }

    /// Makes it a replica of `primary`.
    #[must_use]
    pub fn replica_of(self, primary: &Redis) -> Self {
        let port = primary.port().to_string();
        // By default, a primary waits five seconds for further replicas.
        self.argument(&["--replicaof", "127.0.0.1", &port, "--repl-diskless-sync-delay", "0"])
    }

    /// Adds command-line arguments.
    #[must_use]
    pub fn argument(mut self, words: &[&str]) -> Self {
        self.arguments.extend(words.iter().map(|&word| word.to_owned()));
        self
    }
}

/// A running `redis-server`. Saved data survives a restart.
#[derive(Debug)]
pub struct Redis {
    process: Process,
    address: SocketAddr,
    options: RedisOptions,
    folder: TempDir,
}

impl Redis {
    /// Starts a server without a password.
    pub fn start() -> Self {
        Self::with(RedisOptions::default())
    }

    /// Starts a server with these options.
    pub fn with(options: RedisOptions) -> Self {
        let folder = TempDir::with_prefix("brisk-test-redis-").expect("a temporary folder");
        let (process, address) = serve_on_free_port(|port| server(port, &options, &folder));
        let redis = Self { process, address, options, folder };
        redis.wait();
        redis
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Output of `redis-cli` for this command, without the last line end.
    pub fn cli(&self, words: &[&str]) -> String {
        self.try_cli(words).expect("redis-cli gets an answer")
    }

    fn try_cli(&self, words: &[&str]) -> Option<String> {
        let mut cli = command("redis-cli");
        cli.args(["-h", "127.0.0.1", "-p", &self.port().to_string()]);
        if let Some(authority) = &self.options.authority {
            cli.arg("--tls").arg("--cacert").arg(authority);
        }
        if let Some(password) = &self.options.password {
            cli.args(["--no-auth-warning", "-a", password]);
        }
        let finished = run(cli.args(words), b"", TIMEOUT);
        finished.status.success().then(|| finished.stdout.trim_end().to_owned())
    }

    /// One field of `INFO`.
    pub fn info(&self, field: &str) -> String {
        self.try_info(field).expect("redis-cli gets an answer")
    }

    fn try_info(&self, field: &str) -> Option<String> {
        let info = self.try_cli(&["INFO"])?;
        let value = info.lines().find_map(|line| line.trim_end().strip_prefix(field)?.strip_prefix(':'));
        Some(value.unwrap_or_else(|| panic!("no {field} in {info}")).to_owned())
    }

    /// Suspends it: it listens and does not respond.
    pub fn pause(&self) {
        self.process.pause();
    }

    /// Resumes it after [`pause`](Self::pause).
    pub fn resume(&self) {
        self.process.signal(Signal::CONT);
    }

    /// Kills it. Only saved data survives.
    pub fn kill(&mut self) {
        self.process.signal(Signal::KILL);
        self.process.wait();
    }

    /// Starts it again on the same port after [`kill`](Self::kill).
    pub fn restart(&mut self) {
        self.process = Process::start(&mut server(self.port(), &self.options, &self.folder));
        wait_until("a Redis that listens", || TcpStream::connect(self.address).ok());
        self.wait();
    }

    /// Waits until it has loaded its saved data.
    fn wait(&self) {
        wait_until("a Redis that answers", || {
            // A refusal by an ACL shows a loaded server too.
            self.try_cli(&["PING"]).filter(|answer| answer == "PONG" || answer.contains("NOPERM"))
        });
    }
}

fn server(port: u16, options: &RedisOptions, folder: &TempDir) -> Command {
    let mut server = command("redis-server");
    let folder = folder.path().display().to_string();
    let port = port.to_string();
    server.args([if options.authority.is_some() { "--tls-port" } else { "--port" }, &port]);
    server.args(["--bind", "127.0.0.1", "--dir", &folder, "--save", "", "--appendonly", "no"]);
    server.args(&options.arguments);
    server
}

/// A primary, its replica, and a Sentinel that promotes the replica when the test [waits](Sentinel::wait_for_failover) for that: a
/// pause of the primary on a busy machine is no failure.
#[derive(Debug)]
pub struct Sentinel {
    /// The first primary.
    pub primary: Redis,
    /// Its replica.
    pub replica: Redis,
    process: Process,
    address: SocketAddr,
    _folder: TempDir,
}

impl Sentinel {
    /// Name of the monitored service.
    pub const SERVICE: &str = "sessions";

    /// Starts all three. Returns when the Sentinel knows both, and the replica is synchronised.
    pub fn start() -> Self {
        let primary = Redis::start();
        let replica = Redis::with(RedisOptions::default().replica_of(&primary));
        wait_until("a replica in step", || {
            (replica.info("master_link_status") == "up" && replica.info("master_sync_in_progress") == "0")
                .then_some(())
        });
        let folder = TempDir::with_prefix("brisk-test-sentinel-").expect("a temporary folder");
        let (process, address) = serve_on_free_port(|port| {
            let file = folder.path().join("sentinel.conf");
            let text = SENTINEL
                .replace("SERVICE", Self::SERVICE)
                .replace("FOLDER", &folder.path().display().to_string())
                .replace("PRIMARY", &primary.port().to_string())
                .replace("PORT", &port.to_string());
            std::fs::write(&file, text).expect("a temporary file");
            let mut server = command("redis-server");
            server.arg(&file).arg("--sentinel");
            server
        });
        let sentinel = Self { primary, replica, process, address, _folder: folder };
        let replica = sentinel.replica.port().to_string();
        wait_until("a Sentinel that knows the replica", || {
            sentinel.cli(&["SENTINEL", "replicas", Self::SERVICE]).contains(&replica).then_some(())
        });
        sentinel
    }

    /// The address of the Sentinel.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Output of `redis-cli` for a command to the Sentinel.
    pub fn cli(&self, words: &[&str]) -> String {
        let mut cli = command("redis-cli");
        cli.args(["-h", "127.0.0.1", "-p", &self.address.port().to_string()]).args(words);
        run(&mut cli, b"", TIMEOUT).success()
    }

    /// Has the replica of a killed primary promoted. Returns when the replica is the primary.
    #[track_caller]
    pub fn wait_for_failover(&self) {
        // The Sentinel closes the replica's connections when it promotes it.
        let is_primary = || self.replica.try_info("role").is_some_and(|role| role == "master");
        wait_until("a failover", || {
            if is_primary() {
                return Some(());
            }
            // An error while a failover is in progress, or while the Sentinel has not heard of the replica for some seconds.
            self.cli(&["SENTINEL", "FAILOVER", Self::SERVICE]);
            None
        });
        let replica = self.replica.port().to_string();
        wait_until("a Sentinel that says so", || {
            let primary = self.cli(&["SENTINEL", "get-master-addr-by-name", Self::SERVICE]);
            primary.lines().any(|line| line == replica).then_some(())
        });
    }

    /// The Sentinel's log.
    pub fn log(&self) -> String {
        self.process.stdout()
    }
}

const SENTINEL: &str = "port PORT
bind 127.0.0.1
dir FOLDER
sentinel monitor SERVICE 127.0.0.1 PRIMARY 1
sentinel down-after-milliseconds SERVICE 600000
sentinel failover-timeout SERVICE 60000
";

/// The nodes of a cluster without replicas, each with a third of the slots.
#[derive(Debug)]
pub struct Cluster {
    /// The nodes, in the order of their slots.
    pub nodes: Vec<Redis>,
}

impl Cluster {
    /// Starts three nodes. Returns when all of them consider the cluster complete.
    pub fn start() -> Self {
        let mut buses = Vec::new();
        let node = |_| {
            // By default the bus has the port plus 10,000, which another test may use.
            let bus = free_port();
            buses.push(bus);
            Redis::with(RedisOptions::default().argument(&[
                "--cluster-enabled",
                "yes",
                // A node that is paused on a busy machine has not failed.
                "--cluster-node-timeout",
                "60000",
                "--cluster-port",
                &bus.to_string(),
            ]))
        };
        let nodes: Vec<Redis> = (0..3).map(node).collect();
        let bounds = [0, 5461, 10_923, 16_384];
        for (index, node) in nodes.iter().enumerate() {
            let [first, last] = [bounds[index], bounds[index + 1] - 1].map(|slot: u16| slot.to_string());
            node.cli(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            // Different epochs, as `redis-cli --cluster create` sets them: nodes with equal ones would first
            // have to resolve the conflict.
            node.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
        }
        let host = Ipv4Addr::LOCALHOST.to_string();
        for (node, bus) in nodes.iter().zip(&buses).skip(1) {
            nodes[0].cli(&["CLUSTER", "MEET", &host, &node.port().to_string(), &bus.to_string()]);
        }
        for node in &nodes {
            wait_until("a complete cluster", || {
                let info = node.cli(&["CLUSTER", "INFO"]);
                let complete = ["cluster_state:ok", "cluster_known_nodes:3", "cluster_slots_ok:16384"];
                complete.iter().all(|line| info.contains(line)).then_some(())
            });
        }
        Self { nodes }
    }

    /// The node that has this slot.
    pub fn node_of(&self, slot: u16) -> &Redis {
        &self.nodes[usize::from(slot >= 5461) + usize::from(slot >= 10_923)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_survives_a_kill_and_nothing_else() {
        let mut redis = Redis::start();
        redis.cli(&["SET", "saved", "1"]);
        redis.cli(&["SAVE"]);
        redis.cli(&["SET", "lost", "1"]);
        let first = redis.info("run_id");
        redis.kill();
        redis.restart();
        assert_eq!(redis.cli(&["KEYS", "*"]), "saved");
        assert_ne!(redis.info("run_id"), first);
    }

    #[test]
    fn a_replica_is_promoted_when_its_primary_is_killed() {
        let mut sentinel = Sentinel::start();
        sentinel.primary.kill();
        sentinel.wait_for_failover();
    }

    #[test]
    fn a_cluster_has_all_slots() {
        let cluster = Cluster::start();
        let slot: u16 = cluster.nodes[0].cli(&["CLUSTER", "KEYSLOT", "foo"]).parse().unwrap();
        assert_eq!(cluster.node_of(slot).cli(&["SET", "foo", "bar"]), "OK");
    }
}
