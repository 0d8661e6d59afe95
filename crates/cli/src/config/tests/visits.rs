//! `server_timing`: what is said of it.

use super::*;

fn host(lines: &str) -> String {
    format!("{LISTENER}{HOST}{lines}\n")
}

#[test]
fn server_timing_is_a_switch_or_a_table_of_origins() {
    for (lines, message) in [
        (
            "server_timing = \"on\"",
            "5:17: host[0].server_timing: expected `true`, `false` or a table as { allow_origins = \
             [\"https://www.example.com\"] }, found the text \"on\"",
        ),
        (
            "server_timing = { allow_origins = [\"example.com\"] }",
            "5:36: host[0].server_timing.allow_origins[0]: \"example.com\" is no origin: it begins with https:// or \
             http://, as \"https://static.example\"; \"*\" is all of them",
        ),
        (
            "server_timing = { allow_origins = [\"*\", \"https://a.example\"] }",
            "5:35: host[0].server_timing.allow_origins: \"*\" is all of them: leave the others out",
        ),
    ] {
        refused(&host(lines), &format!("brisk.toml:{message}"));
    }
    let resolved = |lines: &str| accepted(&host(lines)).settings.service.hosts[0].server_timing.clone();
    assert!(resolved("").is_none() && resolved("server_timing = false").is_none());
    assert_eq!(resolved("server_timing = true").expect("on").allowed, None);
    let some = resolved(
        "server_timing = { allow_origins = [\"https://A.example:443\", \"http://b.example:8080\"] }",
    );
    assert_eq!(some.expect("on").allowed.expect("origins"), "https://a.example, http://b.example:8080");
}
