//! `[[tcp]]` with Redis, nginx, curl and OpenSSL, and beside nginx and HAProxy.

use std::net::SocketAddr;

use brisk_behaviour::site::{LIMIT, setup};
use brisk_behaviour::tcp::{ALONE, certificate};
use brisk_testkit::brisk::{Brisk, base};
use brisk_testkit::ca::{Leaf, TestCa};
use brisk_testkit::haproxy::Haproxy;
use brisk_testkit::nginx::Nginx;
use brisk_testkit::process::{command, run};
use brisk_testkit::redis::Redis;

fn serve(tables: &str) -> Brisk {
    setup().config(&format!("{}{tables}", base(ALONE))).start()
}

/// `redis-cli` with these words, at `address`.
fn redis(address: SocketAddr, words: &[&str]) -> String {
    let mut cli = command("redis-cli");
    cli.args(["-h", "127.0.0.1", "-p", &address.port().to_string()]).args(words);
    run(&mut cli, b"", LIMIT).success().trim_end().to_owned()
}

#[test]
fn redis_is_reached_with_and_without_tls() {
    let (server, ca) = (Redis::start(), TestCa::new());
    let leaf = ca.server(&["redis.test"]).issue();
    let upstream = format!("listen = [\"127.0.0.1:0\"]\nupstream = \"tcp://{}\"\n", server.address());
    let certificates = certificate(&leaf);
    let brisk = serve(&format!(
        "\n[[tcp]]\nname = \"plain\"\n{upstream}\n[[tcp]]\nname = \"tls\"\n{upstream}{certificates}"
    ));
    let large = "x".repeat(100_000);
    assert_eq!(redis(brisk.tcp(0), &["SET", "key", &large]), "OK");
    let root = ca.root_file().display().to_string();
    let tls = ["--tls", "--cacert", &root, "--sni", "redis.test"];
    assert_eq!(redis(brisk.tcp(1), &[&tls[..], &["GET", "key"]].concat()), large);
    assert_eq!(redis(brisk.tcp(1), &[&tls[..], &["DEL", "key"]].concat()), "1");
    let line = brisk.logged("\"tcp\":\"tls\"");
    assert!(line.contains("\"tls\":\"TLS 1.3\""), "{line}");
    assert!(brisk.logged("\"tcp\":\"plain\"").contains("\"outcome\":\"client-closed\""));
}

/// The response of `https://NAME/` at `address`, or the code of curl's failure.
fn curl(address: SocketAddr, ca: &TestCa, name: &str) -> Result<String, i32> {
    let mut curl = command("curl");
    curl.args(["--silent", "--max-time", "170", "--noproxy", "*", "--cacert"]).arg(ca.root_file());
    curl.arg("--connect-to").arg(format!("::{address}")).arg(format!("https://{name}/who"));
    let finished = run(&mut curl, b"", LIMIT);
    if finished.status.success() { Ok(finished.stdout) } else { Err(finished.status.code().unwrap_or(-1)) }
}

fn origin(leaf: &Leaf, name: &str) -> Nginx {
    Nginx::https_with(leaf, &format!("location = /who {{ return 200 '{name}'; }}"))
}

#[test]
fn names_reach_the_servers_that_nginx_and_haproxy_would_choose() {
    let ca = TestCa::new();
    let leafs = [ca.server(&["a.test"]).issue(), ca.server(&["*.wild.test", "other.test"]).issue()];
    let (first, second) = (origin(&leafs[0], "first"), origin(&leafs[1], "second"));
    let (one, two) = (first.address(), second.address());
    let port = brisk_testkit::process::free_port();
    let own = format!("\n[[tcp]]\nlisten = [\"127.0.0.1:{port}\"]\ntls = \"passthrough\"\n");
    let brisk = serve(&format!(
        "{own}names = [\"a.test\"]\nupstream = \"tcp://{one}\"\n\
         {own}names = [\"*.wild.test\", \"*\"]\nupstream = \"tcp://{two}\"\n"
    ));
    let nginx = Nginx::stream(&format!(
        "map $ssl_preread_server_name $server {{ a.test {one}; default {two}; }}\n\
         server {{ listen 127.0.0.1:PORT; ssl_preread on; proxy_pass $server; }}"
    ));
    let haproxy = Haproxy::start(&format!(
        "defaults\n mode tcp\n timeout connect 1m\n timeout client 1m\n timeout server 1m\n\
         frontend all\n bind 127.0.0.1:PORT\n tcp-request inspect-delay 1m\n\
         tcp-request content accept if {{ req_ssl_hello_type 1 }}\n\
         use_backend one if {{ req.ssl_sni -i a.test }}\n default_backend two\n\
         backend one\n server one {one}\nbackend two\n server two {two}\n"
    ));
    for name in ["a.test", "A.test", "x.wild.test", "other.test"] {
        let expected = curl(brisk.tcp(0), &ca, name);
        assert_eq!(
            expected,
            Ok(if name.starts_with('x') || name.starts_with('o') { "second" } else { "first" }.to_owned())
        );
        assert_eq!(curl(nginx.address(), &ca, name), expected, "{name} through nginx");
        assert_eq!(curl(haproxy.address(), &ca, name), expected, "{name} through HAProxy");
    }
    // The certificate is that of the server, and OpenSSL without a name reaches the default.
    let mut openssl = command("openssl");
    openssl.args([
        "s_client",
        "-noservername",
        "-connect",
        &brisk.tcp(0).to_string(),
        "-verify_hostname",
        "other.test",
    ]);
    openssl.args(["-verify_return_error", "-brief", "-CAfile"]).arg(ca.root_file());
    let finished = run(&mut openssl, b"", LIMIT);
    assert!(finished.text().contains("Verification: OK"), "{}", finished.text());
}

#[test]
fn nginx_reads_the_proxy_header_of_a_connection_that_is_passed_on() {
    let ca = TestCa::new();
    let leaf = ca.server(&["a.test"]).issue();
    let pair =
        format!("ssl_certificate {};\nssl_certificate_key {};", leaf.chain.display(), leaf.key.display());
    for version in ["v1", "v2"] {
        let server = Nginx::proxied(
            "https",
            &format!("{pair}\nlocation = /who {{ return 200 $proxy_protocol_addr; }}"),
        );
        let brisk = serve(&format!(
            "\n[[tcp]]\nlisten = [\"127.0.0.1:0\"]\nnames = [\"a.test\"]\nupstream = \"web\"\n\
             [upstream.web]\nservers = [\"tcp://{}\"]\nproxy_protocol = {version:?}\n",
            server.address()
        ));
        assert_eq!(curl(brisk.tcp(0), &ca, "a.test"), Ok("127.0.0.1".to_owned()));
    }
}
