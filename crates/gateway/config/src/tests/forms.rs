//! Values in another form than the one that is read: what is said of them.

use brisk_answer::settings::{Action, RuleValue, Trace};
use brisk_logs::{AccessLogFormat, Sample};

use super::*;

#[test]
fn texts_of_the_environment_and_of_files_are_values() {
    let folder = folder();
    fs::write(folder.path().join("name"), "localhost\n").expect("a file");
    let text = "[server]\nhttps = [\"127.0.0.1:${BRISK_TEST_NO_PORT:-443}\"]\n[[host]]\nnames = [\"${file:name}\"]\n";
    let resolved = checked(folder.path(), text).expect(text);
    let settings = &resolved.settings;
    assert_eq!(settings.https[0].address.port(), 443);
    assert_eq!(settings.service.hosts[0].tls.names, ["localhost"]);
    assert!(settings.server.files.contains(&folder.path().join("name")), "{:?}", settings.server.files);
    let path = env::var("PATH").expect("a path");
    let rule = "response_headers = { set = { X-Path = \"${PATH}\" } }\n";
    let resolved = accepted(&format!("{LISTENER}{HOST}{rule}"));
    let rules = resolved.settings.service.hosts[0].headers.rules.responses.clone().expect("rules");
    assert!(matches!(&rules.set[0].value, RuleValue::Fixed(value) if *value == path), "{rules:?}");
    refused(
        &format!("{LISTENER}[[host]]\nnames = [\"${{BRISK_TEST_NO_NAME}}\"]\n"),
        "brisk.toml:4:10: host[0].names[0]: the environment has no variable BRISK_TEST_NO_NAME: set it, write \
         ${BRISK_TEST_NO_NAME:-text} with a default, or \"$${\" for these characters",
    );
}

#[test]
fn a_bare_word_needs_quotes() {
    for (line, word) in [("https = [127.0.0.1:443]", "127.0.0.1:443"), ("drain_timeout = 10s", "10s")] {
        let message = checked(folder().path(), &format!("[server]\n{line}\n")).expect_err(line);
        let end = format!("; text stands in quotes: \"{word}\"");
        assert!(message.starts_with("brisk.toml:2:") && message.ends_with(&end), "{message}");
    }
}

#[test]
fn brackets_and_braces_that_are_missing_are_named() {
    refused(
        &format!("{LISTENER}[host]\nnames = [\"localhost\"]\n"),
        "brisk.toml:3:1: host: expected a list, found a table; a list of tables is written [{ ... }], or under a head \
         with two brackets, as [[host]]",
    );
    refused(
        &format!("{LISTENER}[[tls]]\n{HOST}"),
        "brisk.toml:3:1: tls: expected a table, found a list; its head has one pair of brackets, as [server]",
    );
    refused(
        &format!("{LISTENER}{HOST}hsts = true\n"),
        "brisk.toml:5:8: host[0].hsts: expected a table, found `true`; a table is written { key = value }",
    );
}

#[test]
fn the_message_about_an_upstream_that_is_a_url_names_its_place() {
    let route =
        |upstream: &str| format!("{LISTENER}{HOST}[[host.route]]\npath = \"/\"\nupstream = \"{upstream}\"\n");
    refused(
        &route("http://127.0.0.1:1"),
        "brisk.toml:7:12: host[0].route[0].upstream: \"http://127.0.0.1:1\" is a URL and here stands a name: write \
         [upstream.app] with servers = [\"http://127.0.0.1:1\"], and \"app\" here",
    );
}

#[test]
fn an_upstream_that_no_route_asks_is_a_warning() {
    let text = format!("{LISTENER}{HOST}[upstream.old]\nservers = [\"http://127.0.0.1:1\"]\n");
    assert_eq!(accepted(&text).warnings, ["[upstream.old]: no route has upstream = \"old\""]);
}

#[test]
fn a_redirect_has_known_variables_and_a_host_that_no_client_chooses() {
    let route = |keys: &str| format!("{LISTENER}{HOST}[[host.route]]\n{keys}\n");
    refused(
        &route("path = \"/\"\nredirect = \"/{pth}\""),
        "brisk.toml:7:12: host[0].route[0].redirect: \"/{pth}\" is no place to redirect to: {pth} is no variable; \
         known here: {client.address}, {client.port}, {client.certificate.subject}, {user}, {server.address}, {server.port}, {request.id}, \
         {request.method}, {request.scheme}, {request.host}, {request.path}, {request.decoded_path}, {request.query}, {request.query_part}, {request.target}, {request.version}, \
         {tls.version}, {tls.cipher}, {tls.server_name}, {tls.client.fingerprint}, {ja4}, {time.unix}, {upstream.address}, \
         {response.status}, {request.header.NAME}, {request.cookie.NAME}, {request.query.NAME}, {response.header.NAME}, {map.NAME}",
    );
    refused(
        &route("path = \"/\"\nredirect = \"https://{request.header.x}/\""),
        "brisk.toml:7:12: host[0].route[0].redirect: \"https://{request.header.x}/\" is no place to redirect to: a client could \
         choose the host by a variable in this place: write a slash before it, or a [map.NAME] with the permitted hosts",
    );
}

#[test]
fn a_body_has_known_variables_of_the_request() {
    let route = |body: &str| {
        format!("{LISTENER}{HOST}[[host.route]]\npath = \"/\"\nrespond = {{ body = \"{body}\" }}\n")
    };
    for (body, reason) in [
        ("{response.status}", "variables of the response have no value in its body"),
        ("{1}", "{1} is the text of a group: write one into `when.path_regex`, as \"^/old/(.*)$\""),
        ("{map.x}", "there is no table [map.x]; no table is defined"),
    ] {
        let message = "brisk.toml:7:20: host[0].route[0].respond.body";
        let end = "write \"{{\" for a brace of the text";
        refused(&route(body), &format!("{message}: {reason}; {end}"));
    }
    let fixed = accepted(&route("{ \\\"a\\\": {{b} }"));
    let action = &fixed.settings.service.hosts[0].routes[0].action;
    assert!(matches!(action, Action::Fixed(fixed) if fixed.body == "{ \"a\": {b} }"), "{action:?}");
    let formed = accepted(&route("{ja4} {request.path}"));
    assert!(matches!(formed.settings.service.hosts[0].routes[0].action, Action::Formed(_)));
}

#[test]
fn a_printed_quotation_mark_is_named() {
    refused(
        "[server]\nhttps = [“127.0.0.1:443”]\n",
        "brisk.toml:2:10: not valid TOML: “ is a quotation mark of printed text: write \" at both ends of a text",
    );
}

#[test]
fn a_redirect_to_a_bare_host_is_refused() {
    refused(
        &format!("{LISTENER}{HOST}[[host.route]]\npath = \"/\"\nredirect = \"example.org\"\n"),
        "brisk.toml:7:12: host[0].route[0].redirect: \"example.org\" is no place to redirect to: it begins with a \
         slash, a scheme as \"https://\", {path}, {request.scheme}:// or a {map.NAME}",
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn a_value_of_the_wrong_kind_says_what_belongs_there() {
    for (line, column, message) in [
        ("workers = \"two\"", 11, "workers: expected a whole number from 0 to 65535, found the text \"two\""),
        ("workers = -1", 11, "workers: expected a whole number from 0 to 65535, found the number -1"),
        (
            "http = \"127.0.0.1:80\"",
            8,
            "http: expected a list, found the text \"127.0.0.1:80\"; put it in brackets",
        ),
        ("http = [80]", 9, "http[0]: expected an address in quotes, as \"0.0.0.0:443\", found the number 80"),
        (
            "http = [\"localhost:80\"]",
            9,
            "http[0]: \"localhost:80\" is not an address: write IP address and port, as \"0.0.0.0:443\" or \
             \"[::]:443\"",
        ),
        (
            "drain_timeout = 30",
            17,
            "drain_timeout: expected a duration in quotes, as \"10s\", found the number 30",
        ),
        (
            "drain_timeout = \"30\"",
            17,
            "drain_timeout: \"30\" is not a duration: write a whole number and a unit, as \"500ms\", \"10s\" or \
             \"180d\"",
        ),
        (
            "fast_open = true",
            13,
            "fast_open: expected a queue length from 1 to 65535 or `false`, found `true`",
        ),
        (
            "fast_open = 0",
            13,
            "fast_open: expected a queue length from 1 to 65535 or `false`, found the number 0",
        ),
        (
            "max_connections_per_client = true",
            30,
            "max_connections_per_client: expected a number of connections or `false`, found `true`",
        ),
        (
            "max_connections_per_client = 0",
            30,
            "max_connections_per_client: 0 is out of range: write 1 to 10000000",
        ),
        (
            "proxy_protocol = 1",
            18,
            "proxy_protocol: expected `true`, `false` or a list of networks, found the number 1",
        ),
        (
            "trusted_proxies = [\"10.0.0.0/40\"]",
            20,
            "trusted_proxies[0]: \"10.0.0.0/40\" is not a network: write one as \"10.0.0.0/8\", \
             \"2001:db8::/32\" or \"192.0.2.1\"",
        ),
        (
            "client_header = \"X-Real-IP\"",
            17,
            "client_header: has no effect without `trusted_proxies`, from which it is read",
        ),
        (
            "client_header = \"X Real\"\ntrusted_proxies = [\"10.0.0.1\"]",
            17,
            "client_header: \"X Real\" is not the name of a header: write one as \"X-Real-IP\"",
        ),
        (
            "timeouts = 10",
            12,
            "timeouts: expected a table, found the number 10; a table is written { key = value }",
        ),
        (
            "limits.head_size = \"64 KiB\"",
            20,
            "limits.head_size: \"64 KiB\" is not a size: write a whole number and a unit, as \"64KiB\" or \
             \"10MB\"",
        ),
        (
            "rates.requests = 20",
            18,
            "rates.requests: expected a rate in quotes, as \"20/s\", found the number 20",
        ),
        (
            "rates.requests = \"20\"",
            18,
            "rates.requests: \"20\" is not a rate: write a number from 1 to 1000000 for a second, a minute or an \
             hour, as \"20/s\", \"600/m\" or \"20/s burst 100\"",
        ),
        (
            "limits.body_size = \"many\"",
            20,
            "limits.body_size: \"many\" is not a size: write one as \"10MiB\", or \"none\" for no limit",
        ),
    ] {
        let expected = format!("brisk.toml:3:{column}: server.{message}");
        refused(&format!("{LISTENER}{line}\n{HOST}"), &expected);
    }
}

#[test]
fn toml_that_is_none_has_line_and_column() {
    refused(
        "[server]\nhttps = [\"127.0.0.1:443\"\nworkers = 2\n",
        "brisk.toml:3:1: not valid TOML: missing comma between array elements, expected `,`",
    );
}

#[test]
fn a_missing_file_is_named() {
    let error = check(Path::new("no-such.toml"), &Running::default()).expect_err("there is no such file");
    assert_eq!(error.to_string(), "no-such.toml: cannot be read: No such file or directory (os error 2)");
}

#[test]
fn a_file_in_another_encoding_brings_the_correction() {
    let folder = folder();
    let file = folder.path().join("brisk.toml");
    let text = "[server]\nhttp = []\n";
    let utf16 = text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>();
    for (bytes, expected) in [
        (format!("\u{feff}{text}").into_bytes(), ": line 1 begins with a byte order mark"),
        (utf16.clone(), ": it is UTF-16 instead of UTF-8"),
        ([&[0xff, 0xfe][..], &utf16].concat(), ": it is UTF-16 instead of UTF-8"),
        (b"[server]\n# caf\xe9\n".to_vec(), ":2:6: not UTF-8: save the file as UTF-8"),
    ] {
        fs::write(&file, bytes).unwrap();
        let error = check(&file, &Running::default()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn pipelines_are_written_and_need_repetition() {
    let with = |line: &str| {
        let route = "[[host.route]]\npath = \"/\"\nupstream = \"app\"\n";
        format!("{LISTENER}{HOST}{route}[upstream.app]\nservers = [\"http://app\"]\n{line}\n")
    };
    for (line, pipeline) in [("", 1), ("pipeline = 8", 8)] {
        assert_eq!(accepted(&with(line)).settings.upstreams[0].pipeline, pipeline);
    }
    let message = "upstream.app.pipeline: 33 is out of range: write 1 to 32";
    refused(&with("pipeline = 33"), &format!("brisk.toml:10:12: {message}"));
    let message = "upstream.app.pipeline: a pipeline needs `retry = true`";
    refused(
        &with("retry = false\npipeline = 2"),
        &format!(
            "brisk.toml:11:12: {message}: requests behind a slow response, or on a connection that ends, are sent again"
        ),
    );
}

#[test]
fn a_route_traces_as_its_host_unless_it_says_otherwise() {
    let route = |path: &str, key: &str| format!("[[host.route]]\npath = \"{path}\"\nrespond = {{}}\n{key}");
    let routes = [route("/a", ""), route("/b", "trace = false\n"), route("/c", "trace = \"new\"\n")].concat();
    let settings = accepted(&format!("{LISTENER}{HOST}trace = true\n{routes}")).settings;
    let traces: Vec<_> = settings.service.hosts[0].routes.iter().map(|route| route.trace).collect();
    assert_eq!(traces, [Some(Trace::Continue), None, Some(Trace::Begin)]);
    refused(
        &format!("{LISTENER}{HOST}trace = \"old\"\n"),
        "brisk.toml:5:9: host[0].trace: \"old\" is not known here; known here: `new`",
    );
}

#[test]
fn the_form_of_a_log_line_is_checked() {
    let with = |keys: &str| format!("{LISTENER}[access_log]\n{keys}\n{HOST}");
    let log = |keys: &str| accepted(&with(keys)).settings.access_log.remove(0);
    assert!(matches!(log("format = { template = \"{request.id}\" }").format, AccessLogFormat::Template(_)));
    assert!(log("sample = 0.5").sample.is_some());
    refused(
        &with("format = { template = \"{request.header.cookie}\" }"),
        "brisk.toml:4:23: access_log.format.template: {request.header.cookie} would write credentials into the log",
    );
    refused(
        &with("format = { template = \"{request.id}\" }\nmilestones = true"),
        "brisk.toml:5:14: access_log.milestones: has no effect with a template, which has no variable for them",
    );
    for share in ["0.0", "1.5", "-1.0", "nan"] {
        let message = checked(folder().path(), &with(&format!("sample = {share}"))).expect_err(share);
        assert!(
            message.contains("is no share of requests: write a number above 0 and at most 1, as 0.01"),
            "{message}"
        );
    }
}

#[test]
fn an_access_log_has_several_outputs() {
    let with = |keys: &str| format!("{LISTENER}[access_log]\n{keys}\n{HOST}");
    let outputs = "format = \"json\"\nsample = 0.5\n[[access_log.output]]\nfile = \"stderr\"\nformat = \"text\"\n\
                   [[access_log.output]]\nsample = 1.0\nsyslog = { server = \"udp://[::1]:514\", structured_data = \"a@1\" }\n\
                   [[access_log.output]]\njournal = {}\n";
    let logs = accepted(&with(outputs)).settings.access_log;
    let names: Vec<_> = logs.iter().map(|log| log.target.to_string()).collect();
    assert_eq!(names, ["stderr", "udp://[::1]:514", "journal:/run/systemd/journal/socket"]);
    assert_eq!((&logs[0].format, &logs[1].format), (&AccessLogFormat::Text, &AccessLogFormat::Json));
    assert_eq!((logs[0].sample, logs[1].sample), (Sample::new(0.5), Sample::new(1.0)));
    assert!(accepted(&with(&outputs.replace("json", "off"))).settings.access_log.is_empty());
    let one = |keys: &str| with(&format!("[[access_log.output]]\n{keys}"));
    let syslog = |keys: &str| one(&format!("syslog = {{ {keys} }}"));
    for (text, message) in [
        (
            with("file = \"stdout\"\n[[access_log.output]]\nfile = \"stderr\""),
            "4:8: access_log.file: has no effect beside [[access_log.output]]: write the file as one of the outputs",
        ),
        (one(""), "4:1: access_log.output[0]: needs exactly one of file, syslog and journal"),
        (
            one("file = \"stdout\"\njournal = {}"),
            "4:1: access_log.output[0]: needs exactly one of file, syslog and journal",
        ),
        (
            syslog("server = \"192.0.2.1\""),
            "5:21: access_log.output[0].syslog.server: \"192.0.2.1\" is no syslog server: write one as \
             \"udp://192.0.2.1:514\", \"tcp://log.example.com:601\" or \"unix:/dev/log\"",
        ),
        (
            syslog("server = \"unix:/dev/log\", structured_data = \"access\""),
            "5:56: access_log.output[0].syslog.structured_data: \"access\" is no ID of structured data: write a name and \
             the number of your enterprise at IANA, at most 32 characters, as \"access@32473\"",
        ),
        (
            syslog("server = \"unix:/dev/log\", max_size = \"1MiB\""),
            "5:49: access_log.output[0].syslog.max_size: 1048576 is out of range: write 1024 to 64000",
        ),
        (
            one("journal = { severity = \"information\" }"),
            "5:24: access_log.output[0].journal.severity: \"information\" is no severity; known: emerg, alert, crit, err, \
             warning, notice, info, debug",
        ),
        (
            one("journal = { app_name = \"a b\" }"),
            "5:24: access_log.output[0].journal.app_name: \"a b\" is no name of a program: write 1 to 48 printable ASCII \
             characters without spaces",
        ),
    ] {
        refused(&text, &format!("brisk.toml:{message}"));
    }
    for server in
        ["udp://::1:514", "udp://a", "udp://a:0", "http://a:1", "unix:log", "udp://a b:514", "udp://[::1:5"]
    {
        let text = syslog(&format!("server = \"{server}\""));
        let message = checked(folder().path(), &text).expect_err(server);
        assert!(message.contains("is no syslog server"), "{message}");
    }
    let many = "[[access_log.output]]\nfile = \"stdout\"\n".repeat(63);
    let message = checked(folder().path(), &with(&many)).expect_err("too many");
    assert!(message.contains("access_log.output[62]: more than 62 outputs"), "{message}");
}

#[test]
fn otlp_adds_outputs_for_its_signals() {
    let with = |keys: &str| {
        format!("{LISTENER}[access_log]\nformat = \"off\"\nsample = 0.5\n[otlp]\n{keys}\n{HOST}")
    };
    let endpoint = "endpoint = \"http://127.0.0.1:4318/\"\n";
    let logs = accepted(&with(endpoint)).settings.access_log;
    let names: Vec<_> = logs.iter().map(|log| log.target.to_string()).collect();
    assert_eq!(names, ["http://127.0.0.1:4318/v1/logs", "http://127.0.0.1:4318/v1/traces"]);
    assert_eq!((logs[0].sample, logs[1].sample), (Sample::new(0.5), None));
    assert_eq!(accepted(&with(&format!("{endpoint}logs = false"))).settings.access_log.len(), 1);
    for (keys, message) in [
        (
            "endpoint = \"collector:4318\"",
            "7:12: otlp.endpoint: \"collector:4318\" is no URL: write one as \"http://127.0.0.1:4318\"",
        ),
        (
            "endpoint = \"http://a\"\nlogs = false\ntraces = false",
            "6:1: otlp: exports nothing: logs and traces are false",
        ),
        (
            "endpoint = \"http://a\"\nheaders = { \"a b\" = \"c\" }",
            "8:21: otlp.headers.\"a b\": is no header: write a name and a value of HTTP",
        ),
        (
            "endpoint = \"http://a\"\ntimeout = \"2m\"",
            "8:11: otlp.timeout: is out of range: write \"100ms\" to \"1m\"",
        ),
        (
            "endpoint = \"http://a\"\nsample = 2.0",
            "8:10: otlp.sample: 2 is no share of requests: write a number above 0 and at most 1, as 0.01",
        ),
    ] {
        refused(&with(keys), &format!("brisk.toml:{message}"));
    }
}
