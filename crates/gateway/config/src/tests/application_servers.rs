//! Servers of FastCGI, uwsgi and SCGI, and `[upstream.NAME.cgi]`.

use super::*;

fn with(server: &str, lines: &str) -> String {
    format!("{LISTENER}{HOST}[upstream.app]\nservers = [{server:?}]\n{lines}\n")
}

/// The messages about a FastCGI upstream with these keys in a folder that has the folder `www`.
fn message(server: &str, lines: &str) -> String {
    let folder = folder();
    fs::create_dir(folder.path().join("www")).expect("a folder");
    let root = folder.path().join("www").display().to_string();
    checked(folder.path(), &with(server, lines).replace("ROOT", &root)).err().unwrap_or_default()
}

const FASTCGI: &str = "fastcgi://127.0.0.1:9000";

/// Server, further keys, and the message about them.
const REFUSED: &[(&str, &str, &str)] = &[
    (
        "http://127.0.0.1:1",
        "cgi = { root = \"/srv\" }",
        "upstream.app.cgi: has no effect: the servers speak HTTP; those of FastCGI are written as \
             \"fastcgi://127.0.0.1:9000\" or \"fastcgi+unix:/run/php/php-fpm.sock\"",
    ),
    (
        FASTCGI,
        "cgi = { script = \"index.php\" }",
        "upstream.app.cgi.script: has no effect without `root`, the folder of the scripts: without it, one application \
             gets all paths",
    ),
    (
        FASTCGI,
        "cgi = { root = \"www\" }",
        "upstream.app.cgi.root: \"www\" is not a folder of the application server: write its whole path, as \"/srv/www\"",
    ),
    (
        FASTCGI,
        "cgi = { root = \"/missing/www\" }",
        "upstream.app.cgi.root: there is no folder /missing/www on this machine: if only the application server has it, \
             write `files = \"none\"`, or in `files` where it is here",
    ),
    (FASTCGI, "cgi = { root = \"/a\", files = \"gone\" }", "upstream.app.cgi.files: there is no folder "),
    (
        FASTCGI,
        "cgi = { root = \"ROOT\", script = \"../index.php\" }",
        "upstream.app.cgi.script: \"../index.php\" is not a script below the root: write one as \"index.php\"",
    ),
    (
        FASTCGI,
        "cgi = { root = \"ROOT\", suffixes = [\"php\"] }",
        "upstream.app.cgi.suffixes[0]: \"php\" is not the end of a name: write one as \".php\"",
    ),
    (
        "uwsgi://127.0.0.1:3031",
        "cgi = { stream_bodies = true }",
        "upstream.app.cgi.stream_bodies: is for FastCGI: uwsgi and SCGI state the length of a body before it",
    ),
    (
        FASTCGI,
        "cgi = { params = { \"APP-ENV\" = \"live\" } }",
        "\"APP-ENV\" is not the name of a variable: write letters, digits and _, as APP_ENV",
    ),
    (
        FASTCGI,
        "cgi = { params = { HTTP_PROXY = \"http://a\" } }",
        "upstream.app.cgi.params.HTTP_PROXY: brisk alone sets or omits HTTP_PROXY: remove this line",
    ),
    (
        FASTCGI,
        "cgi = { params = { A = \"{request.pth}\" } }",
        "upstream.app.cgi.params.A: {request.pth} is no variable; did you mean {request.path}?",
    ),
    (
        FASTCGI,
        "cgi = { params = { A = \"{ja4}\" } }",
        "upstream.app.cgi.params.A: has a variable that is not known here: set it as a header in `request_headers`, which \
             arrives as HTTP_NAME",
    ),
    (
        FASTCGI,
        "proxy_protocol = \"v2\"",
        "upstream.app.proxy_protocol: has no effect with fastcgi: the variable REMOTE_ADDR names the client",
    ),
    (
        "uwsgi://127.0.0.1:3031",
        "pipeline = 2",
        "upstream.app.pipeline: has no effect: only connections over HTTP/1.1 have pipelines",
    ),
    (
        "fastcgi://127.0.0.1:9000/index.php",
        "",
        "a server of FastCGI, uwsgi or SCGI has no path: `cgi.root` names the folder of its scripts",
    ),
];

#[test]
fn keys_of_application_servers_have_an_effect() {
    for (server, lines, expected) in REFUSED {
        let found = message(server, lines);
        assert!(found.contains(expected), "{lines}: {found:?}");
    }
    for fine in [
        "",
        "cgi = { root = \"ROOT\", script = \"app/index.php\", path_info = true }",
        "cgi = { root = \"/var/www\", files = \"www\" }",
        "cgi = { root = \"/missing\", files = \"none\", params = { A = \"{client.address}\" } }",
    ] {
        assert_eq!(message(FASTCGI, fine), "", "{fine}");
    }
    let mixed = "servers = [\"fastcgi://127.0.0.1:9000\", \"http://127.0.0.1:1\"]";
    let mixed = with("x", "").replace("servers = [\"x\"]", mixed);
    let found = checked(folder().path(), &mixed).expect_err("two protocols");
    let expected = "upstream.app.servers[1]: has another protocol than fastcgi://127.0.0.1:9000: a server of FastCGI, uwsgi or \
                    SCGI has none of another protocol beside it; write a second upstream";
    assert!(found.contains(expected), "{found}");
}

#[test]
fn a_folder_with_scripts_that_are_not_executed_is_a_warning() {
    let folder = folder();
    for inner in ["www/sub", "other"] {
        fs::create_dir_all(folder.path().join(inner)).expect("a folder");
    }
    let root = folder.path().join("www").display().to_string();
    let warnings = |route: &str| {
        let text = format!(
            "{LISTENER}{HOST}[[host.route]]\npath = \"/\"\n{route}\n[[host.route]]\npath = \"/php\"\nupstream = \"app\"\n\
             [upstream.app]\nservers = [\"fastcgi://127.0.0.1:9000\"]\ncgi = {{ root = {root:?} }}\n"
        );
        checked(folder.path(), &text).expect("valid").warnings
    };
    for served in ["www", ".", "www/sub"] {
        let found = warnings(&format!("static = \"{served}\""));
        let is_warned = found.iter().any(|warning| {
            warning.starts_with("host[0].route[0].static: clients could read the source text of scripts in ")
                && warning.ends_with(
                    "which [upstream.app] executes: add fallback = { upstream = \"app\" }, with which scripts are never sent, \
                     or serve a folder without scripts",
                )
        });
        assert!(is_warned, "{served}: {found:?}");
    }
    for fine in ["static = \"www\"\nfallback = { upstream = \"app\" }", "static = \"other\""] {
        let found = warnings(fine);
        assert!(!found.iter().any(|warning| warning.contains("source text")), "{fine}: {found:?}");
    }
}

#[test]
fn application_servers_get_no_requests_of_the_gateway_itself() {
    let route = "[[host.route]]\npath = \"/\"\nrespond = {}\n";
    let advice = "the servers of \"app\" are application servers, which get only the requests of routes: write an upstream with \
                  HTTP, as \"http://127.0.0.1:8080\"";
    let asking =
        |keys: &str| format!("{LISTENER}{HOST}{route}{keys}[upstream.app]\nservers = [{FASTCGI:?}]\n");
    for (keys, key) in [
        ("forward_auth = { upstream = \"app\" }\n", "forward_auth.upstream"),
        ("mirror = { upstream = \"app\" }\n", "mirror.upstream"),
    ] {
        let text = asking(keys).replace("respond = {}", "upstream = \"other\"");
        let text = format!("{text}[upstream.other]\nservers = [\"http://127.0.0.1:1\"]\n");
        let message = checked(folder().path(), &text).expect_err(keys);
        assert!(message.contains(&format!("host[0].route[0].{key}: {advice}")), "{message}");
    }
}
