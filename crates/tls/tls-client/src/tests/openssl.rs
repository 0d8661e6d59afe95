//! Cases that nginx does not support: key updates, and servers with limited sessions.

use std::io::Write;
use std::process::{Child, Stdio};

use brisk_testkit::process::{command, free_port};

use super::*;

/// `openssl s_server` with its standard input; killed when dropped.
struct Server {
    process: Child,
    /// File with its output.
    output: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn s_server(ca: &TestCa, arguments: &[&str]) -> (Server, SocketAddr) {
    let leaf = ca.server(&[HOST]).issue();
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let mut command = command("openssl");
    command.args(["s_server", "-accept", &address.to_string(), "-cert"]).arg(&leaf.chain);
    command.arg("-cert_chain").arg(&leaf.chain).arg("-key").arg(&leaf.key).args(arguments);
    let output = ca.folder().join(format!("s_server-{}", address.port()));
    let file = std::fs::File::create(&output).expect("a file");
    command.stdin(Stdio::piped()).stdout(file).stderr(Stdio::null());
    let server = Server { process: command.spawn().expect("openssl"), output };
    wait_until("a server that listens", || std::net::TcpStream::connect(address).ok());
    (server, address)
}

#[tokio::test]
async fn keys_are_updated_when_the_server_asks() {
    let ca = TestCa::new();
    for session_use in [SessionUse::Once, SessionUse::Many] {
        let (mut server, address) = s_server(&ca, &["-num_tickets", "1"]);
        let protocols = Vec::new();
        let client = client(ClientSettings { protocols, session_use, ..settings(&ca, V13) });
        let mut stream = connect(&client, address, None).await.expect("a handshake");
        soon(stream.next_session()).await.expect("a server that stays").expect("a session");
        let stdin = server.process.stdin.as_mut().expect("piped");
        // With and without a request that the client update its keys too.
        for command in ["K\n", "k\n", "K\n"] {
            stdin.write_all(command.as_bytes()).expect("a server that reads");
            soon(stream.tcp().readable()).await.expect("an update");
            stdin.write_all(b"hello\n").expect("a server that reads");
            let mut line = [0; 6];
            soon(stream.read_exact(&mut line)).await.expect("what the server said");
            let said = format!("with new keys after {command}");
            stream.write_all(said.as_bytes()).await.expect("sent");
            let output = || std::fs::read_to_string(&server.output).ok().filter(|text| text.contains(&said));
            wait_until("what the client said", output);
        }
    }
}

#[tokio::test]
async fn sessions_of_a_server_that_counts_them_out() {
    let ca = TestCa::new();
    let (_server, address) = s_server(&ca, &["-num_tickets", "3"]);
    let client = client(ClientSettings { protocols: Vec::new(), ..settings(&ca, V13) });
    let mut stream = connect(&client, address, None).await.expect("a handshake");
    let mut sessions = Vec::new();
    while sessions.len() < 3 {
        sessions.extend(soon(stream.next_session()).await.expect("a server that stays"));
        sessions.extend(stream.take_sessions());
    }
    drop(stream);
    for session in sessions {
        let stream = connect(&client, address, Some(session)).await.expect("a handshake");
        assert_eq!(stream.facts().resumption, Resumption::Psk);
    }
    let (server, address) = s_server(&ca, &["-num_tickets", "0"]);
    let mut stream = connect(&client, address, None).await.expect("a handshake");
    drop(server);
    // A killed server sends no `close_notify`.
    assert!(soon(stream.next_session()).await.is_err());
}
