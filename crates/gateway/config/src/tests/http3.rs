//! `http3` and `alt_svc`.

use std::time::Duration;

use brisk_answer::settings::{AltSvc, Announcement};

use super::{HOST, LISTENER, accepted, refused};

#[test]
fn each_host_announces_or_withdraws_http3() {
    let settings = accepted(&format!(
        "{LISTENER}http3 = true\nalt_svc = {{ port = 443, max_age = \"1h\" }}\n{HOST}\
         [[host]]\nnames = [\"127.0.0.1\"]\nhttp3 = false\n"
    ));
    let [first, second] = &settings.settings.service.hosts[..] else { panic!("two hosts") };
    let announcement = Announcement { port: Some(443), max_age: Duration::from_hours(1) };
    assert_eq!(first.alt_svc, Some(AltSvc::Announce(announcement)));
    assert_eq!(second.alt_svc, Some(AltSvc::Clear));
    assert!(first.tls.quic && !second.tls.quic);
}

#[test]
fn a_host_has_http3_only_with_the_sockets_of_the_server() {
    for server in ["", "http3 = false\n"] {
        let line = if server.is_empty() { 5 } else { 6 };
        refused(
            &format!("{LISTENER}{server}{HOST}http3 = true\n"),
            &format!(
                "brisk.toml:{line}:9: host[0].http3: HTTP/3 needs datagram sockets: write http3 = true in [server] too"
            ),
        );
    }
    let settings = accepted(&format!("{LISTENER}http3 = false\n{HOST}")).settings;
    assert_eq!(settings.service.hosts[0].alt_svc, Some(AltSvc::Clear));
    refused(
        &format!("{LISTENER}http3 = true\nalt_svc.max_age = \"2000d\"\n{HOST}"),
        "brisk.toml:4:19: server.alt_svc.max_age: 2000d is out of range: write 0ms to 365d",
    );
}
