//! Validation of options.

use std::time::Duration;

use super::*;

fn options(change: impl FnOnce(&mut Options)) -> Options {
    let mut options = Options::new("https://site.test:8443/a?b");
    change(&mut options);
    options
}

fn refused(change: impl FnOnce(&mut Options)) -> String {
    options(change).settings().expect_err("refused").to_string()
}

#[test]
fn the_defaults_are_a_closed_loop_of_kept_connections_for_ten_seconds() {
    let settings = options(|_| {}).settings().expect("settings");
    assert_eq!(settings.target.to_string(), "site.test:8443");
    assert_eq!(settings.workload.requests, PerConnection::Unlimited);
    assert_eq!(settings.workload.http, HttpVersion::One);
    assert_eq!(settings.schedule.pace(), &Pace::Closed(Steps::constant(16.0)));
    assert_eq!(settings.schedule.end(), Some(Duration::from_secs(11)));
    let client = settings.handshakes.expect("TLS").client;
    assert_eq!(client.protocols, ["http/1.1"]);
    assert_eq!(client.server_name, "site.test");
    assert_eq!(settings.listing, []);
}

#[test]
fn a_url_says_where_to_connect_and_what_to_ask_for() {
    for (url, target, host, path) in [
        ("https://a.test", "a.test:443", "a.test", "/"),
        ("https://127.0.0.1:1/x", "127.0.0.1:1", "127.0.0.1", "/x"),
        ("https://[::1]:1", "[::1]:1", "::1", "/"),
        ("http://a.test/x", "a.test:80", "a.test", "/x"),
        ("http://a.test:8080", "a.test:8080", "a.test", "/"),
    ] {
        let url = UrlParts::of(url).expect(url);
        let found = (url.target.to_string(), url.host, url.path.to_string());
        assert_eq!(found, (target.to_owned(), host.to_owned(), path.to_owned()));
    }
    for url in ["", "a.test", "ftp://a.test", "https://", "https://u@a.test", "https://a b"] {
        assert!(UrlParts::of(url).is_err(), "{url:?}");
    }
    let settings = options(|options| options.connect = Some("127.0.0.1:1".to_owned())).settings();
    assert_eq!(settings.expect("settings").target.to_string(), "127.0.0.1:1");
}

#[test]
fn streams_are_operations_at_once() {
    let settings = options(|options| {
        options.streams = NonZeroU32::new(10);
        options.connections = NonZeroU32::new(4);
        options.threads = NonZeroU32::new(8);
    });
    let settings = settings.settings().expect("settings");
    assert_eq!(settings.schedule.most(), 40);
    assert_eq!(settings.threads, 4, "no more threads than connections");
    assert_eq!(settings.handshakes.expect("TLS").client.protocols, ["h2"]);
}

#[test]
fn more_operations_at_once_than_10_million_are_refused() {
    const MANY: &str = "connections times streams must be at most 10 million";
    for rate in [None, Some(1.0)] {
        let error = refused(|options| {
            options.streams = NonZeroU32::new(65_536);
            options.connections = NonZeroU32::new(65_536);
            options.rate = rate;
        });
        assert_eq!(error, MANY);
    }
    // Floats have no overflow, so a ramp of this size began.
    let ramp = |streams| {
        refused(move |options| {
            options.streams = NonZeroU32::new(streams);
            options.ramp_connections = "1:65536:1/1s".parse().ok();
        })
    };
    assert_eq!(ramp(65_536), MANY);
    assert_eq!(ramp(153), MANY, "65,536 times 153 is above 10 million");
}

#[test]
fn http_3_is_over_quic_and_tls_1_3_with_sessions_for_one_use() {
    let settings = options(|options| {
        options.http3 = NonZeroU32::new(10);
        options.connections = NonZeroU32::new(4);
        options.mix = "full=50,0-rtt=50".parse().ok();
    });
    let settings = settings.settings().expect("settings");
    assert_eq!((settings.schedule.most(), settings.listing[0].0), (40, "--h3"));
    let handshakes = settings.handshakes.expect("TLS");
    assert_eq!(handshakes.client.protocols, ["h3"]);
    assert_eq!(handshakes.client.versions, [ProtocolVersion::TLS1_3]);
    assert_eq!(handshakes.session_use, Some(SessionUse::Once));
}

#[test]
fn options_that_http_3_cannot_have_are_refused() {
    let found = |change: fn(&mut Options)| {
        refused(|options| {
            options.http3 = NonZeroU32::new(2);
            change(options);
        })
    };
    for (error, hint) in [
        (found(|options| options.streams = NonZeroU32::new(1)), "--h3 does not go with --h2"),
        (found(|options| options.fast_open = true), "--h3 does not go with --fast-open"),
        (found(|options| options.session_use = Some(SessionUse::Many)), "--sessions many"),
        (found(|options| options.handshake_only = true), "--h3 1"),
        (found(|options| options.versions = vec![ProtocolVersion::TLS1_2]), "--tls 1.3"),
        (found(|options| options.mix = "session-id".parse().ok()), "session-id needs TLS 1.2"),
        (found(|options| options.url = "http://a.test/".to_owned()), "https://"),
    ] {
        assert!(error.contains(hint), "{error}, not {hint}");
    }
}

#[test]
fn a_count_alone_has_no_end_in_time_and_no_warm_up() {
    let schedule = options(|options| options.count = Some(100)).settings().expect("settings").schedule;
    assert_eq!((schedule.end(), schedule.warmup()), (None, Duration::ZERO));
}

#[test]
fn each_kind_of_handshake_offers_what_it_needs() {
    let settings = options(|options| {
        options.mix = "full=20,session-id=20,ticket=20,psk=20,0-rtt=20".parse().ok();
    });
    let handshakes = settings.settings().expect("settings").handshakes.expect("TLS");
    let versions = |kind| handshakes.client(kind, SessionUse::Once).expect("settings").versions;
    assert_eq!(versions(Resumption::Full), []);
    assert_eq!(versions(Resumption::Ticket), []);
    assert_eq!(versions(Resumption::SessionId), [ProtocolVersion::TLS1_2]);
    assert_eq!(versions(Resumption::Psk), [ProtocolVersion::TLS1_3]);
    assert_eq!(versions(Resumption::EarlyData), [ProtocolVersion::TLS1_3]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mix = |text: &str| Some(text.parse::<Mix>().expect(text));
    let found = [
        refused(|options| {
            options.mix = mix("session-id");
            options.versions = vec![ProtocolVersion::TLS1_3];
        }),
        refused(|options| {
            options.mix = mix("full=50,0-rtt=50");
            options.versions = vec![ProtocolVersion::TLS1_2];
        }),
        refused(|options| {
            options.mix = mix("0-rtt");
            options.handshake_only = true;
        }),
        refused(|options| {
            options.fresh_keys = true;
            options.unit_keys = true;
        }),
        refused(|options| options.rate = Some(0.0)),
        refused(|options| {
            options.rate = Some(1.0);
            options.ramp = "1:2:1/1s".parse().ok();
        }),
        refused(|options| options.ramp_connections = "1:2:0.5/1s".parse().ok()),
        refused(|options| options.body = Some("/nonexistent".into())),
        refused(|options| options.connect = Some("nowhere".to_owned())),
    ];
    let hints = [
        "session-id needs TLS 1.2",
        "0-rtt needs TLS 1.3",
        "--handshake-only",
        "--fresh-keys does not go with --unit-keys",
        "above 0",
        "--rate does not go with --ramp",
        "whole numbers",
        "/nonexistent",
        "--connect",
    ];
    for (error, hint) in found.iter().zip(hints) {
        assert!(error.contains(hint), "{error}");
    }
}

#[test]
fn without_tls_there_are_no_handshakes_and_options_for_them_are_refused() {
    let mut options = Options::new("http://site.test/a");
    options.streams = NonZeroU32::new(2);
    options.fast_open = true;
    let settings = options.settings().expect("settings");
    assert!(settings.handshakes.is_none());
    let request = settings.workload.choice.pick(0, crate::choice::Axis::Request);
    assert_eq!(request.http2().uri(), "http://site.test/a");
    options.handshake_only = true;
    options.streams = None;
    options.versions = vec![ProtocolVersion::TLS1_2, ProtocolVersion::TLS1_3];
    options.mix = Some(Mix::default());
    options.insecure = true;
    let error = options.settings().expect_err("refused").to_string();
    assert!(error.ends_with("https://: --handshake-only, --mix, --tls, --insecure"), "{error}");
}

#[test]
fn the_listing_says_what_is_not_usual() {
    let options = options(|options| {
        options.mix = "ticket".parse().ok();
        options.versions = vec![ProtocolVersion::TLS1_2];
        options.rate = Some(50.0);
        options.insecure = true;
        options.alpn = Some(Vec::new());
    });
    let words: Vec<_> = options.listing().iter().map(|(option, value)| format!("{option} {value}")).collect();
    assert_eq!(words, ["--mix ticket", "--tls 1.2", "--alpn none", "--insecure ", "--rate 50"]);
}
