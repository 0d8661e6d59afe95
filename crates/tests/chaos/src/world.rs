//! All processes of a run: gateways, upstream servers, Redis, DNS, key servers, and the configurations that connect them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use brisk_behaviour::program::brisk_program;
use brisk_behaviour::site::NAME;
use brisk_defects::Defect;
use brisk_testkit::brisk::{Brisk, Setup, base};
use brisk_testkit::ca::{Leaf, TestCa};
use brisk_testkit::knot::Knot;
use brisk_testkit::process::{Process, free_port, wait_until};
use brisk_testkit::redis::Redis;
use brisk_testkit::relay::Relay;

use crate::gateway::Gateway;
use crate::processes::children;
use crate::shared::GATEWAYS;

/// Zone of the DNS server, and the record of the first upstream server.
pub(crate) const ZONE: &str = "app.test";
pub(crate) const RECORD: &str = "web A 127.0.0.1";

const SECRET: &[u8] = b"a secret of the fleet that is long enough for it\n";

/// Descriptors of the second gateway.
const OPEN_FILES: u32 = 256;

pub(crate) struct World {
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) upstreams: [UpstreamProcess; 2],
    /// In front of the second upstream server.
    pub(crate) relay: Relay,
    pub(crate) redis: Redis,
    pub(crate) knot: Knot,
    pub(crate) key_servers: KeyServers,
    /// Certificate of the second gateway, which has its key.
    pub(crate) leaf: Leaf,
    pub(crate) ca: TestCa,
    /// Ids of the uploads that upstream servers have received.
    pub(crate) uploads: PathBuf,
    parts: Parts,
}

/// The addresses and files in configurations.
struct Parts {
    root: PathBuf,
    remote: Leaf,
    client: Leaf,
    key_servers: [u16; 2],
    upstream: u16,
    relay: SocketAddr,
    redis: u16,
    dns: SocketAddr,
}

/// An upstream server, which can be killed and started again on its port.
pub(crate) struct UpstreamProcess {
    program: PathBuf,
    port: u16,
    uploads: PathBuf,
    pub(crate) process: Process,
}

impl UpstreamProcess {
    fn start(program: &Path, port: u16, uploads: &Path) -> Self {
        let process = Self::run(program, port, uploads);
        Self { program: program.to_owned(), port, uploads: uploads.to_owned(), process }
    }

    fn run(program: &Path, port: u16, uploads: &Path) -> Process {
        let process = Process::start(Command::new(program).arg(port.to_string()).arg(uploads));
        wait_until("an upstream server", || std::net::TcpStream::connect(address(port)).ok());
        process
    }

    /// Starts the server again.
    pub(crate) fn restart(&mut self) {
        self.process = Self::run(&self.program, self.port, &self.uploads);
    }
}

/// Two key servers with the key of the first gateway's certificate; `None` while one is killed.
pub(crate) struct KeyServers {
    config: [String; 2],
    key: String,
    pub(crate) servers: [Option<Brisk>; 2],
}

impl KeyServers {
    fn start(ca: &TestCa, ports: [u16; 2], key: &Leaf) -> Self {
        let own = ca.server(&["localhost", "127.0.0.1"]).issue();
        let config = ports.map(|port| {
            format!(
                "server.listen = [\"127.0.0.1:{port}\"]\nserver.workers = 1\nserver.key_folder = \"keys\"\n\
                 server.certificate = {}\nserver.client_ca = {}\nadmin.listen = \"127.0.0.1:0\"\n[client.gateway]\n",
                files(&own),
                quoted(&ca.root_file()),
            )
        });
        let mut servers = Self { config, key: key.key_pem.clone(), servers: [None, None] };
        (0..2).for_each(|index| servers.restart(index));
        servers
    }

    /// Starts a server that was killed.
    pub(crate) fn restart(&mut self, index: usize) {
        let setup = Setup::new(brisk_program()).keyserver().config(&self.config[index]);
        self.servers[index] = Some(setup.file("keys/site.key", &self.key).start());
    }
}

impl World {
    /// Starts all processes; `upstream` is the program of the upstream servers.
    pub(crate) fn start(upstream: &Path, defect: Option<Defect>) -> Self {
        let ca = TestCa::new();
        let (leaf, remote) = (ca.server(&[NAME]).issue(), ca.server(&[NAME]).issue());
        let ports = [free_port(), free_port()];
        let key_servers = KeyServers::start(&ca, ports, &remote);
        let uploads = ca.unique_file("uploads");
        let upstreams = [(); 2].map(|()| UpstreamProcess::start(upstream, free_port(), &uploads));
        let relay = Relay::to(&[address(upstreams[1].port)]);
        let (redis, knot) = (Redis::start(), Knot::serving(ZONE, RECORD));
        let parts = Parts {
            root: ca.root_file(),
            remote,
            client: ca.client("gateway").issue(),
            key_servers: ports,
            upstream: upstreams[0].port,
            relay: relay.address(),
            redis: redis.port(),
            dns: knot.address(),
        };
        let gateway = |index| {
            Gateway::start(ca.folder(), index, defect, |setup| {
                let setup = setup.config(&parts.config(index, 0)).file("fleet.secret", SECRET);
                let setup = setup.file("site.pem", &leaf.chain_pem).file("site.key", &leaf.key_pem);
                if index == 1 { setup.open_files(OPEN_FILES) } else { setup }
            })
        };
        let gateways = (0..GATEWAYS).map(gateway).collect();
        Self { gateways, upstreams, relay, redis, knot, key_servers, leaf, ca, uploads, parts }
    }

    /// Configuration of a gateway; each `variation` differs from the one before.
    pub(crate) fn config(&self, gateway: usize, variation: usize) -> String {
        self.parts.config(gateway, variation)
    }

    /// Addresses of the gateways.
    pub(crate) fn addresses(&self) -> [SocketAddr; GATEWAYS] {
        [self.gateways[0].brisk.https(), self.gateways[1].brisk.https()]
    }

    /// `Err` with the reason while a part of a gateway does not work.
    pub(crate) fn is_recovered(&self) -> Result<(), String> {
        for (index, gateway) in self.gateways.iter().enumerate() {
            let check = |is_right: bool, reason: &str| {
                if is_right { Ok(()) } else { Err(format!("gateway {index}: {reason}")) }
            };
            let generations = children(gateway.supervisor()).len();
            check(generations == 1, &format!("{generations} generations run"))?;
            let ready = gateway.ask_admin("/readyz");
            check(ready.is_some_and(|page| page.status() == 200), "not ready")?;
            let metrics = gateway.metrics().ok_or("no metrics")?;
            let least = |name: &str, number: f64| metrics.sum(name, &[]) > number - 0.5;
            check(least("brisk_upstream_healthy", 2.0), "an upstream server is excluded")?;
            check(!least("brisk_session_store_breaker_open", 1.0), "Redis is considered down")?;
            let has_keys = match index {
                0 => least("brisk_keyserver_connections", 2.0),
                _ => least("brisk_key_process_up", 1.0),
            };
            check(has_keys, "keys are missing")?;
        }
        Ok(())
    }
}

impl Parts {
    fn config(&self, gateway: usize, variation: usize) -> String {
        // The first gateway has its key on key servers, the second one in a process of its own.
        let (keys, certificate) = match gateway {
            0 => ("", format!("{{ chain = {}, key = \"keyserver:main\" }}", quoted(&self.remote.chain))),
            _ => ("keys.isolate = true\n", "{ chain = \"site.pem\", key = \"site.key\" }".to_owned()),
        };
        let top = format!(
            "server.timeouts.hello = \"8s\"\nserver.timeouts.idle = \"{}s\"\nserver.drain_timeout = \"20s\"\n\
             access_log.sample = 0.02\nsessions.secret = \"fleet.secret\"\n\
             sessions.redis.servers = [\"redis://127.0.0.1:{}\"]\nsessions.redis.deadline = \"1s\"\n{keys}",
            50 + variation % 10,
            self.redis,
        );
        let key_servers = match gateway {
            0 => self.key_server_table(),
            _ => String::new(),
        };
        format!(
            "{}\n[[host]]\nnames = [\"{NAME}\"]\ncertificates = [{certificate}]\n\n\
             [[host.route]]\npath = \"/own\"\nrespond = {{ body = \"{{request.path}}\" }}\n\n\
             [[host.route]]\npath = \"/\"\nupstream = \"app\"\n\n{}{key_servers}",
            base(&top),
            self.upstream_table(),
        )
    }

    fn upstream_table(&self) -> String {
        format!(
            "[upstream.app]\nservers = [{{ url = \"http://web.{ZONE}:{}\", resolve = true }}, \"http://{}\"]\n\
             timeouts = {{ connect = \"2s\", attempt = \"1s\", head = \"5s\", body = \"5s\" }}\n\
             pool = {{ max_connections = 16, queue = {{ size = 16, timeout = \"2s\" }} }}\n\
             health = {{ path = \"/health\", interval = \"500ms\", timeout = \"500ms\", healthy_after = 1, \
             unhealthy_after = 2, failure_pause = \"1s\" }}\n\
             [upstream.app.dns]\nservers = [\"{}\"]\nmin_ttl = \"100ms\"\nmax_ttl = \"500ms\"\n\n",
            self.upstream, self.relay, self.dns,
        )
    }

    fn key_server_table(&self) -> String {
        let servers: Vec<_> = self.key_servers.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!(
            "[keyserver.main]\nservers = {servers:?}\nca = {}\ncertificate = {}\ndeadline = \"4s\"\n",
            quoted(&self.root),
            files(&self.client),
        )
    }
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn quoted(path: &Path) -> String {
    format!("{:?}", path.display().to_string())
}

/// `{ chain = ..., key = ... }`
fn files(leaf: &Leaf) -> String {
    format!("{{ chain = {}, key = {} }}", quoted(&leaf.chain), quoted(&leaf.key))
}
