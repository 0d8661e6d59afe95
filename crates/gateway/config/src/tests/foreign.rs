//! Terms and files of other programs.

use super::*;
use crate::foreign::{Entry, syntax};

#[test]
fn a_term_of_another_program_brings_its_counterpart() {
    let route = format!("{LISTENER}{HOST}[[host.route]]\npath = \"/\"\nrespond = {{}}\n");
    refused(
        &format!("{route}proxy_pass = \"http://127.0.0.1:1\"\n"),
        "brisk.toml:8:1: host[0].route[0].proxy_pass: unknown key; `proxy_pass` is a term of nginx: write upstream = \"app\" in \
         [[host.route]], and servers = [\"http://127.0.0.1:8080\"] in [upstream.app]",
    );
    refused(
        &format!("{route}return = 403\n"),
        "brisk.toml:8:1: host[0].route[0].return: unknown key; `return` is a term of nginx: write redirect = \
         \"https://{host}{path}\" in [[host.route]] (or respond = { status = 403 })",
    );
    refused(
        &format!("{LISTENER}[frontend]\n{HOST}"),
        "brisk.toml:3:2: frontend: unknown key; `frontend` is a term of HAProxy: write https = [\"0.0.0.0:443\"] in [server], and \
         names = [\"example.com\"] in [[host]]",
    );
    refused(
        &format!("{LISTENER}ssl_ciphers = \"HIGH\"\n{HOST}"),
        "brisk.toml:3:1: server.ssl_ciphers: unknown key; `ssl_ciphers` is a term of nginx: remove it: all suites and groups \
         of brisk are strong",
    );
}

#[test]
fn the_examples_of_counterparts_are_keys_of_brisk() {
    let table = |section: &str, example: &str| match section {
        "[[host]]" if !example.starts_with("names") => HOST.to_owned(),
        "[[host.route]]" => format!(
            "{HOST}[[host.route]]\n{}",
            if example.starts_with("path") { "" } else { "path = \"/\"\n" }
        ),
        "[upstream.app]" if !example.starts_with("servers") => "[upstream.app]\nservers = []\n".to_owned(),
        section if section.starts_with("[upstream.app.") => {
            format!("[upstream.app]\nservers = []\n{section}\n")
        }
        section => format!("{section}\n"),
    };
    let mut count = 0;
    for entry in Entry::all() {
        for (section, example) in &entry.examples {
            let example = example.trim_start();
            let text = format!("{}{example}\n", table(section, example));
            let document = Document::parse(&text).unwrap_or_else(|_| panic!("{text}"));
            let (_, problems) = document.read::<raw::Config>();
            assert!(problems.is_empty(), "{problems:?} in:\n{text}");
            count += 1;
        }
        assert!(!entry.examples.is_empty() || entry.remark.is_some(), "{entry:?}");
    }
    assert!(count > 60, "{count}");
}

#[test]
fn a_file_of_another_program_is_named_as_a_whole() {
    let nginx = "# main\nuser www;\nevents {\n}\nhttp {\n  server {\n    listen 443 ssl;\n  }\n}\n";
    refused(
        nginx,
        "brisk.toml:2:1: this is the syntax of nginx, but brisk reads TOML: docs/configuration.md has an example and all keys; \
         brisk names the counterpart of a key of nginx in its messages",
    );
    for (text, program) in [
        ("server {\n", "nginx"),
        ("location /api {\n", "nginx"),
        ("[server]\nproxy_pass http://127.0.0.1:1;\n", "nginx"),
        ("global\n    maxconn 100\n", "HAProxy"),
        ("frontend www\n    bind :443\n", "HAProxy"),
        ("example.com {\n    reverse_proxy 127.0.0.1:1\n}\n", "Caddy"),
        (":80\nfile_server\n", "Caddy"),
    ] {
        let (_, message) = syntax(text).expect(text);
        assert!(message.starts_with(&format!("this is the syntax of {program},")), "{text}: {message}");
    }
    for (text, format) in [
        ("server:\n  https: 0.0.0.0:443\n", "YAML"),
        ("version: '3'\nservices:\n", "YAML"),
        ("{\n  \"apps\": {}\n}\n", "JSON"),
        ("# site\n\nserver: {}\n", "YAML"),
    ] {
        let (_, message) = syntax(text).expect(text);
        assert!(
            message.starts_with(&format!("this is {format}, but brisk reads TOML: ")),
            "{text}: {message}"
        );
    }
    for text in [
        "[server\n",
        "https = { a: 1 }\n",
        "servers = [\n  { url = \"http://127.0.0.1:1\" },\n]\na = \"\n",
        "body = \"\"\"\nUser-agent: x\n\"\"\"\na = \"\n",
        "[server]\nhttps = [127.0.0.1:443]\n",
        "# server {\nx\n",
    ] {
        assert_eq!(syntax(text), None, "{text}");
    }
}
