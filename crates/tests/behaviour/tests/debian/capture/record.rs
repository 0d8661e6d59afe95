//! Recording from a network interface.

use super::*;

#[test]
fn a_recording_of_brisk_has_the_packets_of_tcpdump_and_fills_a_ring() {
    let Some(link) = link("delay=5ms") else { return };
    let (recordings, pages) = (tempfile::tempdir().expect("a folder"), pages());
    let site = Site::custom(
        &format!("server.https = [\"{SERVER}:0\"]"),
        &format!("\n[[host.route]]\npath = \"/\"\nstatic = {:?}\n", pages.path()),
        |setup| setup.behind(&words_before(&link.server(""))),
    );
    let port = site.brisk.https().port();
    let ring = recordings.path().join("ring.pcap");
    let mut brisk = link.client(brisk_program());
    brisk.args(["capture", "-i", "client", "--json", "--packets", "--ring", "3x200kB", "--write"]).arg(&ring);
    brisk.args(["--filter", &format!("tcp and port {port}")]);
    let mut brisk = Process::start(&mut brisk);
    wait_until("brisk capture", || brisk.stderr().contains("recording from client").then_some(()));
    let recorder = Recorder::start(&link, &recordings);
    run(&mut curl(&link, &site.ca, port, &[]), b"", LIMIT).success();
    let file = recorder.end(1);
    // Files of the ring have at most 200 kB, and the response more.
    let second = recordings.path().join("ring.1.pcap");
    wait_until("a second file", || second.exists().then_some(()));
    brisk.signal(Signal::INT);
    assert!(brisk.wait().success(), "{}", brisk.stderr());
    let lines: Vec<Value> =
        brisk.stdout().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let all = |lines: &[Value]| lines.iter().filter(|line| line["event"] == "packet").count();
    // Two sockets see packets of both directions in different orders, and one of the programs may see an acknowledgement after
    // the end of the connection.
    let data = |lines: &[Value]| {
        let packets = lines.iter().filter(|line| line["event"] == "packet" && line["len"].as_u64() > Some(0));
        let mut packets: Vec<_> =
            packets.map(|line| (line["from"].to_string(), line["len"].as_u64())).collect();
        packets.sort();
        packets
    };
    let theirs = json(&file, &["--packets"]);
    assert_eq!(data(&lines), data(&theirs));
    let connection = |lines: &[Value]| {
        let line = lines.iter().find(|line| line["event"] == "connection").expect("a connection");
        ["end", "server_name", "client_port", "tls"].map(|name| line[name].clone())
    };
    assert_eq!(connection(&lines), connection(&theirs));
    // Each file is a capture.
    let packets = |file: &Path| of_brisk(file).len();
    let first = recordings.path().join("ring.0.pcap");
    assert!(fs::metadata(&first).expect("a file").len() <= 200_000);
    assert_eq!(packets(&first) + packets(&second), all(&lines));
}

#[test]
fn without_the_right_to_record_a_message_names_it() {
    let mut brisk = if rustix::process::getuid().is_root() {
        let mut setpriv = command("setpriv");
        setpriv.args(["--inh-caps=-all", "--bounding-set=-net_raw"]).arg(brisk_program());
        setpriv
    } else {
        Command::new(brisk_program())
    };
    brisk.args(["capture", "-i", "lo"]);
    let output = run(&mut brisk, b"", LIMIT);
    assert_eq!(output.status.code(), Some(1), "{}", output.stderr);
    assert!(
        output.stderr.starts_with("recording needs the right CAP_NET_RAW: run it as root"),
        "{}",
        output.stderr
    );
    let mut brisk = Command::new(brisk_program());
    let output = run(brisk.args(["capture", "-i", "no-such"]), b"", LIMIT);
    assert!(output.stderr.starts_with("no interface no-such: there are "), "{}", output.stderr);
}
