//! Advice for configurations with one problem each and for one without.

use super::*;

const DAY: Duration = Duration::from_hours(24);

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + 20_000 * DAY
}

fn certificate(name: &str) -> CertificateFacts {
    CertificateFacts {
        file: PathBuf::from(format!("{name}.crt")),
        algorithm: "ECDSA P-256".to_owned(),
        is_rsa: false,
        fingerprint: name.to_owned(),
        key: format!("key of {name}"),
        not_before: now() - 30 * DAY,
        not_after: now() + 60 * DAY,
        chain_bytes: 2000,
        flight: 3400,
        window: 14600,
        parts: vec![1000, 1000],
    }
}

fn right() -> Facts {
    let host = |name: &str| HostFacts {
        name: format!("{name}.example"),
        certificates: vec![certificate(name)],
        hsts: true,
        ..HostFacts::default()
    };
    Facts {
        file: PathBuf::from("brisk.toml"),
        hosts: vec![host("a"), host("b")],
        keys: vec![KeyFile { file: PathBuf::from("a.key"), mode: 0o100_600 }],
        fast_open: true,
        backlog: 4096,
        machine: Machine {
            fast_open: Some(3),
            somaxconn: Some(4096),
            notsent_lowat: Some(131_072),
            congestion: Some("bbr".to_owned()),
            congestion_available: vec!["bbr".to_owned()],
            slow_start_after_idle: Some(0),
            initcwnd: None,
        },
    }
}

/// IDs that a change adds.
fn found(change: impl FnOnce(&mut Facts)) -> Vec<Advice> {
    let mut facts = right();
    change(&mut facts);
    judge(&facts, now())
}

#[test]
fn what_is_right_is_left_alone() {
    assert_eq!(found(|_| {}), []);
}

type Change = fn(&mut Facts);

#[test]
fn each_fault_is_found_with_what_mends_it() {
    let cases: &[(&str, &str, Change)] = &[
        ("inside-flight", "ECDSA", |facts| facts.hosts[0].certificates[0].flight = 15_000),
        ("inside-no-ecdsa", "certificates of a.example", |facts| {
            facts.hosts[0].certificates[0].is_rsa = true;
        }),
        ("inside-key-reused", "openssl genpkey", |facts| {
            facts.hosts[1].certificates[0].key = facts.hosts[0].certificates[0].key.clone();
        }),
        ("inside-expired", "acme = true", |facts| facts.hosts[0].certificates[0].not_after = now() - DAY),
        ("inside-expires-soon", "brisk cert renew a.example", |facts| {
            facts.hosts[0].has_acme = true;
            facts.hosts[0].certificates[0].not_after = now() + 3 * DAY;
        }),
        ("inside-early-data", "safe", |facts| facts.hosts[0].early_paths.push("/buy/*".to_owned())),
        ("inside-no-hsts", "max_age", |facts| facts.hosts[0].hsts = false),
        ("inside-key-readable", "chmod 600 a.key", |facts| facts.keys[0].mode = 0o100_640),
        ("inside-fast-open", "tcp_fastopen=3", |facts| facts.machine.fast_open = Some(1)),
        ("inside-somaxconn", "somaxconn=4096", |facts| facts.machine.somaxconn = Some(128)),
        ("inside-notsent-lowat", "131072", |facts| facts.machine.notsent_lowat = Some(u64::from(u32::MAX))),
        ("inside-congestion", "tcp_congestion_control=bbr", |facts| {
            facts.machine.congestion = Some("cubic".to_owned());
        }),
        ("inside-initcwnd", "initcwnd 10", |facts| facts.machine.initcwnd = Some(4)),
        ("inside-slow-start", "after_idle=0", |facts| facts.machine.slow_start_after_idle = Some(1)),
    ];
    for (id, remedy, change) in cases {
        let advice = found(change);
        let [only] = &advice[..] else { panic!("{id}: {advice:?}") };
        assert_eq!(only.id, *id);
        assert!(only.remedy.contains(remedy), "{id}: {only:?}");
    }
    let mut ids: Vec<_> = cases.iter().map(|(id, ..)| *id).collect();
    ids.sort_unstable();
    let mut all: Vec<_> = IDS.iter().map(|(id, _)| *id).collect();
    all.sort_unstable();
    assert_eq!(ids, all);
}

#[test]
fn a_certificate_of_two_hosts_is_no_reused_key() {
    let advice = found(|facts| facts.hosts[1].certificates = facts.hosts[0].certificates.clone());
    assert_eq!(advice, []);
}

#[test]
fn every_id_is_in_the_documentation() {
    const DOCUMENT: &str = include_str!("../../../../../docs/audit.md");
    for (id, severity) in IDS {
        assert!(DOCUMENT.contains(&format!("| `{id}` | {severity} |")), "docs/audit.md lacks {id}");
    }
}
