//! Place of RSA operations, their log lines and metrics, and no remains of abandoned handshakes.

use std::io::Write;
use std::net::TcpStream;
use std::thread;

use brisk_behaviour::site::{NAME, NAMES, Site, setup};
use brisk_testkit::brisk::{base, host};
use brisk_testkit::ca::{LeafKey, TestCa};
use brisk_testkit::process::wait_until;

use crate::bench;

/// With an RSA certificate alone, and these keys before the host.
fn rsa_site(keys: &str) -> Site {
    let ca = TestCa::new();
    let leaf = ca.server(&NAMES).key(LeafKey::Rsa2048).issue();
    let config = format!("{}{}", base(keys), host(&NAMES, &[&leaf]));
    Site { brisk: setup().config(&config).start(), ca }
}

/// What the log says of RSA.
fn logged(site: &Site) -> String {
    let log = wait_until("a line about RSA", || {
        let log = site.brisk.process().stderr();
        (log.contains("RSA on ") || log.contains("RSA by ")).then_some(log)
    });
    let line =
        |line: &str| (line.find("RSA on ").or(line.find("RSA by "))).map(|start| line[start..].to_owned());
    let mut lines = log.lines().filter_map(line);
    let logged = lines.next().unwrap_or_else(|| panic!("nothing about RSA in {log}"));
    assert_eq!(lines.next(), None, "{log}");
    logged
}

/// The kinds of batches: in metrics and in the log.
const KINDS: [(&str, &str); 3] = [
    ("engine=\"ifma\"", "batches of four with AVX-512 IFMA"),
    ("engine=\"fma512\"", "batches of four with AVX-512 and FMA"),
    ("engine=\"fma\"", "batches of two with AVX2 and FMA"),
];

/// Whether this processor has instructions for batches.
fn has_lanes() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let ifma = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512ifma");
        ifma || (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"))
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// The label of the batches that this build is faster with on this machine.
fn chosen(site: &Site) -> Option<&'static str> {
    let logged = logged(site);
    KINDS
        .into_iter()
        .find(|(_, kind)| logged.contains(&format!("2048 bits in {kind}")))
        .map(|(label, _)| label)
}

/// A full handshake of each version.
fn handshakes(site: &Site) {
    for client in [site.client(), site.client().tls12()] {
        let mut connection = client.connect(site.brisk.https()).expect("a handshake");
        assert_eq!(connection.get(NAME, "/").status(), 200);
    }
}

fn count(site: &Site, name: &str, label: &str) -> u64 {
    site.brisk.metrics().sum(name, &[label]) as u64
}

#[test]
fn rsa_works_with_and_without_batches_and_the_log_says_which() {
    let site = rsa_site("keys.threads = 1\n");
    handshakes(&site);
    let logged_line = logged(&site);
    if has_lanes() {
        // Which way is faster depends on machine and build; what was measured is said either way.
        assert!(logged_line.starts_with("RSA on 1 thread: 2048 bits "), "{logged_line}");
        let (label, kind) = KINDS.into_iter().find(|(_, kind)| logged_line.contains(kind)).expect("a kind");
        let gain = site.brisk.metrics().sum("brisk_key_batch_gain", &[label, "bits=\"2048\""]);
        assert!(gain > 0.0, "{logged_line}");
        let in_batches = logged_line.contains(&format!("in {kind}, {gain:.1} times as fast as one by one"));
        assert_eq!(in_batches, gain >= 1.05, "{gain}: {logged_line}");
    } else {
        let expected = "RSA on 1 thread: one by one with AWS-LC, since this processor has no AVX2 and FMA";
        assert_eq!(logged_line, expected);
    }

    let masked = rsa_site("keys.threads = 2\nkeys.simd = false\n");
    handshakes(&masked);
    assert_eq!(logged(&masked), "RSA on 2 threads: one by one with AWS-LC, since simd = false");
    assert_eq!(count(&masked, "brisk_key_operations_total", "engine=\"aws-lc\""), 2);
    assert_eq!(count(&masked, "brisk_key_batch_operations_total", "size=\"1\""), 2);

    let in_line = rsa_site("keys.offload = []\n");
    handshakes(&in_line);
    assert_eq!(
        logged(&in_line),
        "RSA by the workers themselves: one by one with AWS-LC, since offload does not name it"
    );
    assert_eq!(count(&in_line, "brisk_key_operations_total", "engine=\"aws-lc\""), 2);
    assert_eq!(count(&in_line, "brisk_key_batch_operations_total", ""), 0);
}

#[cfg(feature = "cuda")]
#[test]
fn a_gpu_that_is_not_there_is_missed_in_a_line_and_the_processor_serves() {
    let site = rsa_site("keys.threads = 1\nkeys.cuda = true\n");
    handshakes(&site);
    let log = wait_until("a line about the GPU", || {
        let log = site.brisk.process().stderr();
        (log.contains("RSA on ") || log.contains("keys.cuda")).then_some(log)
    });
    if log.contains("RSA on ") {
        eprintln!("not tested, since there is a GPU");
        return;
    }
    let lines: Vec<_> = log.lines().filter(|line| line.contains("keys.cuda: no N")).collect();
    assert!(matches!(lines[..], [line] if line.contains("WARN")), "{log}");
    assert_eq!(count(&site, "brisk_key_operations_total", "engine=\"cuda\""), 0);
}

#[test]
fn ecdsa_can_leave_the_workers_too() {
    let site = Site::custom("keys.offload = [\"rsa\", \"ecdsa\"]\n", "", |setup| setup);
    handshakes(&site);
    assert_eq!(count(&site, "brisk_key_batch_operations_total", "size=\"1\""), 2);
    assert_eq!(count(&site, "brisk_key_operation_compute_seconds_count", "algorithm=\"ecdsa-p256\""), 2);
}

#[test]
fn handshakes_that_meet_go_together_and_the_metrics_say_so() {
    let site = rsa_site("keys.threads = 1\n");
    let crowd = || {
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| site.client().connect(site.brisk.https()).expect("a handshake"));
            }
        });
    };
    crowd();
    let operations = |engine| count(&site, "brisk_key_operations_total", engine);
    let mut together = 0;
    if let Some(engine) = chosen(&site) {
        wait_until("operations that go together", || {
            crowd();
            (operations(engine) > 0).then_some(())
        });
        assert!(count(&site, "brisk_key_operation_compute_seconds_count", engine) > 0);
        together = operations(engine);
    }
    let alone = operations("engine=\"aws-lc\"");
    assert_eq!(together, count(&site, "brisk_key_batch_operations_total", "") - alone);
    assert_eq!(count(&site, "brisk_key_faults_total", ""), 0);
}

/// What the log says of X25519 and ECDSA.
fn lanes(site: &Site) -> String {
    let start = "X25519 and ECDSA with P-256: ";
    wait_until("a line about X25519", || {
        let log = site.brisk.process().stderr();
        log.lines().find_map(|line| line.split_once(start).map(|(_, said)| said.to_owned()))
    })
}

#[test]
fn exchanges_and_signatures_of_one_turn_go_together_and_the_metrics_say_so() {
    let gathered = "brisk_key_gathered_operations_total";
    let load = |site: &Site, options: &str| {
        let options = format!("-t 1 -c 24 -n 600 --handshake-only --cert ecdsa {options}");
        let result = bench::result(&mut bench::bench(&site.ca, site.brisk.https().port(), "/", &options));
        assert_eq!(bench::handshakes(&result, "full", "full"), 600, "{result}");
    };
    let options =
        ["--tls 1.3 --group x25519", "--tls 1.3 --group x25519mlkem768", "--tls 1.2 --group x25519,p-256"];
    let site = Site::custom("server.workers = 1\n", "", |setup| setup);
    for options in options {
        load(&site, options);
    }
    if lanes(&site).contains("batches of eight with AVX-512 IFMA, from ") {
        for operation in ["operation=\"exchange\"", "operation=\"signature\""] {
            let in_lanes = site.brisk.metrics().sum(gathered, &[operation, "engine=\"lanes\""]);
            let batches = site.brisk.metrics().sum("brisk_key_gathered_batches_total", &[operation]);
            assert!(batches >= 1.0 && in_lanes > batches, "{operation}: {in_lanes} in {batches}");
        }
        assert!(site.brisk.metrics().sum("brisk_key_gathered_wait_seconds_total", &[]) > 0.0);
    } else {
        eprintln!("the counters are not tested: {}", lanes(&site));
        assert_eq!(count(&site, gathered, ""), 0);
    }
    assert_eq!(count(&site, "brisk_key_faults_total", ""), 0);

    let masked = Site::custom("server.workers = 1\nkeys.simd = false\n", "", |setup| setup);
    load(&masked, options[0]);
    assert_eq!(lanes(&masked), "one by one with AWS-LC, since simd = false");
    assert_eq!(count(&masked, gathered, ""), 0);
}

#[test]
fn thousands_of_handshakes_given_up_in_the_middle_leave_nothing_behind() {
    let site = rsa_site("keys.threads = 1\n");
    let hello = site.client().hello();
    for _ in 0..20 {
        let connections: Vec<_> = (0..150)
            .map(|_| {
                let mut tcp = TcpStream::connect(site.brisk.https()).expect("a listener");
                tcp.write_all(&hello).expect("a server that reads");
                tcp
            })
            .collect();
        drop(connections);
    }
    wait_until("all connections closed and nothing waiting", || {
        let metrics = site.brisk.metrics();
        let left = ["brisk_connections_open", "brisk_key_queue_length"].map(|name| metrics.sum(name, &[]));
        let all = metrics.sum("brisk_connections_accepted_total", &[]) >= 3000.0;
        (all && left.iter().sum::<f64>() < 0.5).then_some(())
    });
    assert!(count(&site, "brisk_key_operations_total", "") > 0, "{}", site.brisk.metrics().0);
    handshakes(&site);
}

#[test]
fn wrong_settings_of_keys_are_told_before_anything_is_served() {
    for (line, parts) in [
        ("keys.threads = 0", ["keys.threads", "write 1 to 1024"]),
        ("keys.cores = [0, 0]", ["keys.cores[1]", "keys.cores[0] is 0 already"]),
        ("keys.offload = [\"dsa512\"]", ["keys.offload[0]", "known here: `rsa`, `ecdsa`, `ed25519`"]),
        ("keys.simd = 1", ["keys.simd", "`true` or `false`"]),
        #[cfg(not(feature = "cuda"))]
        ("keys.cuda = true", ["keys.cuda", "--features cuda"]),
    ] {
        let config = format!("{}{}", base(&format!("{line}\n")), "\n[[host]]\nnames = [\"localhost\"]\n");
        let output = setup().config(&config).check("brisk.toml");
        assert_eq!(
            (output.status.code(), output.stderr.trim().lines().count()),
            (Some(2), 1),
            "{}",
            output.text()
        );
        for part in parts {
            assert!(output.stderr.contains(part), "{part} is missing: {}", output.stderr);
        }
    }
    // Which cores there are is known where they are used.
    let config = base("keys.cores = [1023]\n") + "\n[[host]]\nnames = [\"localhost\"]\n";
    let output = setup().config(&config).fail();
    assert_eq!(output.status.code(), Some(1), "{}", output.text());
    assert!(output.stderr.contains("this process may not use core 1023"), "{}", output.stderr);
}
