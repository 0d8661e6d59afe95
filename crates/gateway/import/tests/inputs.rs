//! Configurations of nginx as they are used with well-known applications: nothing is dropped, and the result is short.

use std::fs;
use std::path::{Path, PathBuf};

use brisk_import::{Class, Imported, nginx};

fn inputs() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nginx");
    let mut paths: Vec<_> =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path()).collect();
    paths.sort();
    paths
}

fn imported(name: &str) -> Imported {
    nginx(&Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/nginx/{name}.conf"))).expect(name)
}

/// The text of a small configuration, with one `server` around the directives of a location.
fn import_text(text: &str) -> Imported {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("nginx.conf");
    fs::write(&path, text).expect("a file");
    nginx(&path).expect("an import")
}

#[test]
fn each_directive_of_each_input_has_a_class_and_none_is_unknown() {
    let inputs = inputs();
    assert!(inputs.len() >= 30);
    for path in inputs {
        let report = nginx(&path).expect("an import").report;
        for entry in report.entries() {
            let is_unknown = matches!(&entry.class, Class::NotCarried { reason, .. } if reason.contains("does not know the directive"));
            assert!(!is_unknown, "{}: {}", entry.place, entry.text);
            assert!(entry.place.contains(".conf:"), "{}", entry.text);
        }
        assert_eq!(report.counts().iter().sum::<usize>(), report.entries().count());
    }
}

#[test]
fn the_results_are_at_most_two_fifths_longer_than_their_inputs() {
    let content = |text: &str| -> usize {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(|line| line.len() + 1).sum()
    };
    let shares: Vec<_> = inputs()
        .iter()
        .map(|path| {
            let result = nginx(path).expect("an import").files.concat();
            // Relative paths become absolute, which says nothing about the translation.
            let result = result.replace(&format!("{}/", path.parent().expect("a folder").display()), "");
            100 * content(&result) / content(&fs::read_to_string(path).expect("a file"))
        })
        .collect();
    let mean = shares.iter().sum::<usize>() / shares.len();
    assert!(mean <= 140, "{mean} % of nginx on average: {shares:?}");
}

#[test]
fn an_unknown_directive_is_reported_with_its_line() {
    let report = import_text("server {\n  some_module_setting on;\n}\n").report;
    let missing: Vec<_> =
        report.entries().filter(|entry| matches!(entry.class, Class::NotCarried { .. })).collect();
    assert_eq!(missing.len(), 1);
    assert!(missing[0].place.ends_with("nginx.conf:2"), "{}", missing[0].place);
}

#[test]
fn settings_that_no_server_uses_are_known() {
    let text = "ssl_protocols TLSv1.3; ssl_session_timeout 1d; brotli on; server { listen 80; return 204; }";
    let counts = import_text(text).report.counts();
    assert_eq!(counts[3], 0, "{counts:?}");
}

#[test]
fn expressions_precede_prefixes_but_not_those_with_a_stop() {
    let text = "server { location / { root /a; } location ^~ /img/ { root /b; } location ~ \\.png$ { root /c; } location /web/ { root /d; } }";
    let result = import_text(text).files.concat();
    let position = |part: &str| result.find(part).unwrap_or_else(|| panic!("{part} is missing in {result}"));
    assert!(position("static = \"/c\"") < position("static = \"/a\""));
    assert!(position("static = \"/c/web\"") < position("static = \"/d/web\""));
    assert!(!result.contains("/c/img"), "{result}");
}

#[test]
fn lists_of_an_inner_level_replace_those_of_the_outer_one() {
    let text = "server { add_header X-A 1; add_header X-B 2; location / { add_header X-C 3; return 204; } location /b/ { return 204; } }";
    let result = import_text(text).files.concat();
    assert!(result.contains("response_headers = { inherit = false, add = { X-C = \"3\" } }"), "{result}");
    assert_eq!(result.matches("response_headers").count(), 2, "{result}");
}

#[test]
fn a_location_that_is_not_carried_refuses_requests() {
    let text = "server { location / { root /a; } location ~ \\.php$ { memcached_pass 127.0.0.1:1; } }";
    let result = import_text(text).files.concat();
    assert!(result.contains("path_regex = '\\.php$' }\nrespond = { status = 501 }"), "{result}");
    let text =
        "server { location / { auth_basic x; auth_basic_user_file $f; proxy_pass http://127.0.0.1:1; } }";
    let result = import_text(text).files.concat();
    assert!(result.contains("respond = { status = 501 }") && !result.contains("upstream = "), "{result}");
}

#[test]
fn servers_at_other_addresses_get_a_file_of_their_own() {
    let files = imported("hosts").files;
    assert_eq!(files.len(), 2);
    assert!(!files[0].contains("8081") && files[1].contains("127.0.0.1:8081"));
}

#[test]
fn refusals_that_brisk_cannot_express_refuse_more_or_are_a_warning() {
    let text = "server { location / { root /a; } location ~ ^/(?!open/).*[.]key$ { deny all; } }";
    let imported = import_text(text);
    let result = imported.files.concat();
    assert!(
        result.contains("path_regex = '^/.*[.]key$' }\nrespond = { status = 501 }")
            || result.contains("^/.*[.]key$"),
        "{result}"
    );
    assert!(result.contains("status = 501") && imported.report.open().is_empty(), "{result}");
    let text = "server { location / { root /a; } location ~ ^/(a)\\1$ { internal; } if ($geoip_country_code = XX) { return 403; } }";
    let imported = import_text(text);
    assert!(imported.files[0].starts_with("# WARNING: nginx refuses requests"), "{:?}", imported.files);
    assert_eq!(imported.report.open().len(), 2);
    let text = "server { location /a/ { if ($request_time = 1) { return 403; } root /a; } location /b/ { auth_jwt x; root /b; } }";
    let result = import_text(text).files.concat();
    assert!(result.matches("status = 501").count() == 2 && !result.contains("static"), "{result}");
}

#[test]
fn front_controllers_and_preflights_are_not_refused() {
    // The paths that the locations with refusals have cannot begin with that of the front controller.
    let cloud = imported("cloud").files.concat();
    assert!(!cloud.contains("status = 501") && cloud.contains("fallback = { upstream ="), "{cloud}");
    let cors = imported("cors").files.concat();
    assert!(cors.contains("when = { methods = [\"OPTIONS\"] }\nrespond = { status = 204 }"), "{cors}");
}

#[test]
fn the_source_text_of_scripts_is_never_sent() {
    let text = "server { root /w; location / { try_files $uri =404; } location ^~ /up/ { } location ^~ /my/ { location ~ [.]php$ { fastcgi_pass unix:/x; include fastcgi.conf; } } location ~ [.]php$ { fastcgi_pass unix:/x; include fastcgi.conf; } }";
    let result = import_text(text).files.concat();
    let routes: Vec<_> = result.split("[[host.route]]").collect();
    for path in ["/", "/up/", "/my/"] {
        let own: Vec<_> =
            routes.iter().filter(|route| route.contains(&format!("path = \"{path}\"\n"))).collect();
        assert!(own.len() == 2 && own[0].contains("php") && own[1].contains("static = "), "{result}");
    }
    assert!(
        result.contains(
            "path = \"/up/\"\nwhen = { path_regex = '(?i)\\.(php|phtml|phar)$' }\nrespond = { status = 404 }"
        ),
        "{result}"
    );
}

#[test]
fn redirects_cookies_and_statuses_of_servers_are_carried() {
    let text = "server { location / { proxy_pass http://127.0.0.1:1; proxy_redirect http:// $scheme://; proxy_redirect ~x /y; proxy_cookie_path /a/ \"/b/; HttpOnly\"; proxy_cookie_flags one secure; proxy_next_upstream http_500; client_max_body_size 2m; } }";
    let imported = import_text(text);
    let result = imported.files.concat();
    for part in [
        "rewrite_location = { \"http://\" = \"https://\" }",
        "cookies = { http_only = true, path = { \"/a/\" = \"/b/\" } }",
        "retry = { statuses = [500] }",
        "body_size = \"2MiB\"\nbuffer_request = true",
    ] {
        assert!(result.contains(part), "{part} is missing in {result}");
    }
    assert_eq!(imported.report.counts()[3], 2);
}

#[test]
fn servers_of_https_are_verified_as_in_nginx() {
    for (directives, tls) in [
        ("", "verify = false"),
        ("proxy_ssl_verify off; proxy_ssl_trusted_certificate /ca.pem;", "verify = false"),
        ("proxy_ssl_verify on; proxy_ssl_trusted_certificate /ca.pem;", "ca = \"/ca.pem\""),
        ("proxy_ssl_verify on; proxy_ssl_name a.example:1;", "server_name = \"a.example\""),
    ] {
        let imported =
            import_text(&format!("server {{ location / {{ proxy_pass https://10.0.0.1; {directives} }} }}"));
        let result = imported.files.concat();
        assert!(result.contains(&format!("tls = {{ {tls} }}")), "{directives}: {result}");
        let report = imported.report.to_string();
        let is_warning = report.contains("any certificate of the server is accepted");
        assert_eq!((is_warning, imported.report.counts()[3]), (tls.starts_with("verify"), 0), "{report}");
    }
}

#[test]
fn stream_becomes_tcp_and_a_restriction_keeps_the_address_closed() {
    let text = "stream { server { listen 1; proxy_pass 10.0.0.1:2; proxy_ssl on; } server { listen 3; js_access x; proxy_pass 10.0.0.1:4; } server { listen 53 udp; proxy_pass 10.0.0.1:53; } }";
    let imported = import_text(text);
    let result = imported.files.concat();
    assert!(result.contains("servers = [\"tls://10.0.0.1:2\"]"), "{result}");
    assert!(result.matches("[[tcp]]").count() == 1 && !result.contains("0.0.0.0:3"), "{result}");
    assert!(imported.report.counts()[3] >= 2);
}

#[test]
fn scripts_of_the_usual_snippets_are_found() {
    let text = "server { root /w; index index.php; location / { try_files $uri $uri/ /index.php?$args; } location ~ [.]php$ { include snippets/fastcgi-php.conf; if (!-f $document_root$fastcgi_script_name) { return 404; } fastcgi_pass 127.0.0.1:9000; } location = /one { include fastcgi_params; fastcgi_param SCRIPT_FILENAME /w/one.php; fastcgi_pass 127.0.0.1:9000; } }";
    let imported = import_text(text);
    let result = imported.files.concat();
    assert!(result.contains("cgi = { root = \"/w\", script = \"index.php\" }"), "{result}");
    assert!(
        result.contains("params = { SCRIPT_FILENAME = \"/w/one.php\", SCRIPT_NAME = \"/one.php\" }"),
        "{result}"
    );
    assert_eq!((imported.report.counts()[3], result.matches("[[host.route]]").count()), (0, 2), "{result}");
}

#[test]
fn thousands_of_locations_are_translated() {
    const COUNT: usize = 5000;
    let locations = (0..COUNT).map(|number| match number % 5 {
        0 => format!(
            "location /a/{number}/ {{ proxy_pass http://127.0.0.1:{}; proxy_read_timeout {number}s; }}",
            1 + number % 9
        ),
        1 => format!("location /wp-{number} {{ return 403; }}"),
        2 => format!("location = /e/{number} {{ return 301 /to/{number}; }}"),
        3 => format!("location /i/{number}/ {{ internal; alias /no/such/; }}"),
        _ => format!("location /n/{number}/ {{ location /n/{number}/x/ {{ root /no/such; }} deny all; }}"),
    });
    let all = locations.collect::<Vec<_>>().join("\n");
    let expressions =
        (0..COUNT / 20).map(|number| format!("location ~ ^/x{number}/[0-9]+$ {{ return 204; }}"));
    let all = all + &expressions.collect::<Vec<_>>().concat();
    let text = format!(
        "server {{ server_name a.example; error_page 404 /a/5/; {all} location / {{ root /no/such; }} }}"
    );
    let result = import_text(&text).files.concat();
    // A search of all locations for each pair of them would take minutes.
    assert!(result.matches("[[host.route]]").count() >= COUNT, "{}", result.len());
    assert!(result.contains("path = \"/a/4995/\"\nupstream = ") && !result.contains("status = 501"));
}

#[test]
fn paths_without_their_final_slash_are_redirected_as_in_nginx() {
    let server = "proxy_pass http://127.0.0.1:1;";
    let text = format!(
        "server {{ location / {{ return 204; }} location /a/b/ {{ {server} }} location /c/ {{ {server} }} location = /c {{ return 204; }} \
         location /d/ {{ return 204; }} location /e/ {{ internal; {server} }} }}"
    );
    let result = import_text(&text).files.concat();
    let expected = "path = \"/a/b/\"\nupstream = \"local-1\"\ninternal_redirects = true\nfinal_slash = true";
    assert!(result.contains(expected), "{result}");
    assert_eq!(result.matches("final_slash").count(), 1, "{result}");
    // brisk redirects by itself.
    let alone = import_text(&format!("server {{ location /a/ {{ {server} }} }}")).files.concat();
    assert!(!alone.contains("final_slash"), "{alone}");
}

#[test]
fn changed_paths_of_files_and_links_in_paths_are_carried() {
    let text = "server { server_name a.example; root /no/such; \
                location /p/ { secure_link_secret foo; if ($secure_link = \"\") { return 403; } rewrite ^ /secure/$secure_link; } \
                location /secure/ { internal; alias /no/files/; } \
                location /v/ { rewrite ^/v/[0-9]+/(.*)$ /$1 break; } \
                location ~ ^/client/(.*\\.js)$ { alias /no/dist/$1; } \
                location /gitea/ { rewrite ^ $request_uri; rewrite ^(/gitea)?(/.*) $2 break; proxy_pass http://127.0.0.1:1$uri; } \
                location / { rewrite ^(.+)/+$ $1 permanent; } }";
    let result = import_text(text).files.concat();
    let link = "^/p/(?P<secure_hash>[0-9A-Fa-f]{32})/(?P<secure_link>.+)$";
    for expected in [
        "signed_links = { md5 = true, text = \"{secure_link}foo\", signature = \"{secure_hash}\", expires = \"none\" }",
        &format!(
            "static = \"/no/files\"\nrewrite_path = {{ pattern = \"{link}\", to = \"/{{secure_link}}\" }}"
        ),
        "path = \"/p/\"\nrespond = { status = 403 }",
        "when = { path_regex = \"^/v/[0-9]+/(.*)$\" }\nstatic = \"/no/such\"\nrewrite_path = { pattern = \"^/v/[0-9]+/(.*)$\", to = \"/{1}\" }",
        "static = \"/no/dist\"\nrewrite_path = { pattern = '^/client/(.*\\.js)$', to = \"/{1}\" }",
        "path = \"/gitea/\"\nupstream = \"local-1\"\nstrip_prefix = true",
        "when = { path_regex = \"^/(.*)/+$\" }\nredirect = { to = \"/{1}{request.query_part}\", status = 301 }",
    ] {
        assert!(result.contains(expected), "{expected} is missing in {result}");
    }
    assert!(!result.contains("status = 501"), "{result}");
}

#[test]
fn the_time_of_a_request_is_carried() {
    let forum = imported("forum");
    let result = forum.files.concat();
    assert!(result.contains("X-Request-Start = \"t={time.unix}\""), "{result}");
}

#[test]
fn a_map_of_method_and_header_chooses_the_server() {
    let board = imported("board");
    let result = board.files.concat();
    let accepts = r"headers = { accept = { regex = '^.*?application/(?:activity|ld)\+json' } }";
    let parts = [
        format!("when = {{ methods = [\"GET\", \"HEAD\"], {accepts} }}\nupstream = \"federation\"\n"),
        "when = { methods = [\"GET\", \"HEAD\"] }\nupstream = \"pages\"\n".to_owned(),
        "path = \"/\"\nupstream = \"federation\"\n".to_owned(),
    ];
    let places =
        parts.map(|part| result.find(&part).unwrap_or_else(|| panic!("{part} is missing in {result}")));
    assert!(places.is_sorted() && !result.contains("status = 501"), "{result}");
    assert_eq!((result.matches("[[host.route]]").count(), board.report.counts()[3]), (4, 0), "{result}");
}

#[test]
fn files_at_changed_paths_precede_the_application() {
    let videos = imported("videos");
    let result = videos.files.concat();
    for expected in [
        "forward_auth = { upstream = \"tube\", path = \"/check-auth\" }",
        "static = \"/no/tube\"\nrewrite_files = { pattern = \"^/client/(icons/.+[.]png|logo[.]svg)$\", to = [\"/storage/overrides/{1}\", \"/dist/{1}\"] }\nfallback = { upstream = \"tube\" }",
        "static = \"/no/storage\"\nrewrite_files = { pattern = \"^/static/(.*)$\", to = \"/{1}\" }\nfallback = { upstream = \"tube\" }",
        "rewrite_path = [{ pattern = \"^/static/videos/(.*)$\", to = \"/web/{1}\" }, { pattern = \"^/static/(.*)$\", to = \"/{1}\" }]",
        "bandwidth = { rate = \"800KiB\", after = \"5MiB\" }",
    ] {
        assert!(result.contains(expected), "{expected} is missing in {result}");
    }
    assert!(!result.contains("status = 501"), "{result}");
    assert_eq!(videos.report.counts()[3], 0, "{}", videos.report);
}

#[test]
fn sites_below_paths_have_the_files_and_scripts_of_the_first_one() {
    let result = imported("sites").files.concat();
    for expected in [
        "when = { path_regex = \"/wp-admin$\" }\nredirect = { to = \"{request.scheme}://{host}{path}/\", status = 301 }",
        "static = \"/no/sites\"\nrewrite_files = [{ pattern = \"^(/[^/]+)?(/wp-.*)\", to = [\"{0}\", \"{2}\"] }]\n",
        r#"rewrite_path = [{ pattern = "^(/[^/]+)?(/wp-.*)", to = "{2}" }, { pattern = '^(/[^/]+)?(/.*\.php)', to = "{2}" }]"#,
        "rewrite_path = { pattern = \"^/files/(.*)$\", to = \"/wp-includes/ms-files.php?file={1}?\" }",
    ] {
        assert!(result.contains(expected), "{expected} is missing in {result}");
    }
    assert!(!result.contains("status = 501"), "{result}");
}

#[test]
fn candidates_for_files_are_carried() {
    let text = "server { root /no/such; location / { try_files $uri $uri.html $uri/ =404; } \
                location /d/ { try_files /off.html $uri @app; } location @app { proxy_pass http://127.0.0.1:1; } \
                location ~ ^/api/(.*)$ { try_files $uri $uri/ /api.php?query=$1&$args; } \
                location ~ ^/found$ { fastcgi_pass 127.0.0.1:9000; try_files /one.php =404; } \
                location ~ [.]php$ { fastcgi_pass 127.0.0.1:9000; } }";
    let result = import_text(text).files.concat();
    for expected in [
        "rewrite_files = { pattern = \"^.*$\", to = [\"{0}\", \"{0}.html\"] }",
        "rewrite_files = { pattern = \"^.*$\", to = [\"/off.html\", \"{0}\"] }\nfallback = { upstream = \"local-1\" }",
        "rewrite_path = { pattern = \"^/api/(.*)$\", to = \"/api.php?query={1}\" }",
        "rewrite_path = { pattern = \"^.*$\", to = \"/one.php\" }",
    ] {
        assert!(result.contains(expected), "{expected} is missing in {result}");
    }
    assert!(!result.contains("status = 501"), "{result}");
    let folder_first = "server { root /no/such; location / { try_files $uri $uri/ $uri.html =404; } }";
    for (text, is_different) in [(text, false), (folder_first, true)] {
        let report = import_text(text).report.to_string();
        assert_eq!(report.contains("the file of a later entry"), is_different, "{report}");
    }
}

#[test]
fn large_applications_are_carried() {
    let carried = |name: &str, parts: &[&str]| {
        let imported = imported(name);
        let result = imported.files.concat();
        for expected in parts {
            assert!(result.contains(expected), "{expected} is missing in {result}");
        }
        (result.matches("status = 501").count(), imported.report.counts()[3])
    };
    let team = [
        "502 = \"/no/static/bundles/5xx.html\"",
        "error_pages = { 404 = { route = \"/django_static_404.html\" } }",
        "upstream = \"tornado\"",
        "patterns = [{ regex = \"^\", value = \"{request.scheme}\" }]",
        "internal = true",
    ];
    // An `alias` without a final slash has other folders beside its own: `/internal/local/uploadsx` is `filesx`.
    assert_eq!(carried("team", &team), (1, 1));
    let design = [
        "rewrite_files = { pattern = \"^.*$\", to = [\"{0}\", \"/index.html\"] }",
        "redirect = { to = \"/404\", status = 301 }",
        "internal_redirects = true",
    ];
    // As before, and `Last-Modified` with the time of the response.
    assert_eq!(carried("design", &design), (1, 2));
    let mail = [
        "rewrite_path = { pattern = \"^(.*)$\", to = \"{1}.php\" }",
        "rewrite_path = { pattern = \"^/api/v1/(.*)$\", to = \"/json_api.php?query={1}\" }",
        "rewrite_path = { pattern = \"^.*$\", to = \"/autodiscover.php\" }",
        "copy_headers = { x-webobjects-remote-user = \"x-user\", Authorization = \"x-auth\" }",
        "redirect = { to = \"{request.scheme}://{host}/SOGo\", status = 301 }",
        "502 = \"/no/web/_status.502.html\"",
    ];
    assert_eq!(carried("mail", &mail), (0, 0));
}

#[test]
fn users_and_certificates_of_clients_are_carried() {
    let tls = "listen 443 ssl; ssl_certificate a; ssl_certificate_key b; ssl_client_certificate c;";
    let text = |mode: &str| {
        let test = "if ($ssl_client_verify != SUCCESS) { return 403; }";
        format!(
            "server {{ {tls} ssl_verify_client {mode}; location / {{ {test} proxy_set_header X-User $remote_user; \
             proxy_set_header X-Verify $ssl_client_verify; proxy_set_header X-Path $uri; proxy_pass http://127.0.0.1:1; }} }}"
        )
    };
    let result = import_text(&text("optional")).files.concat();
    let set = "X-User = \"{user}\", X-Verify = \"{map.client-verify}\", X-Path = \"{request.decoded_path}\"";
    for expected in
        [set, "client_certificate = {}", "[map.client-verify]\nfrom = \"{tls.client.fingerprint}\""]
    {
        assert!(result.contains(expected), "{expected} is missing in {result}");
    }
    // Without authorities, no certificate is verified.
    let open = import_text(&text("optional_no_ca")).files.concat();
    assert!(open.contains("status = 501") && !open.contains("upstream = "), "{open}");
}

#[test]
fn conditions_with_look_around_refuse_more() {
    let text = "server { location /v2/ { if ($http_user_agent ~ \"^(docker\\/1\\.(3|4|5(?!\\.[0-9]-dev))|Go ).*$\") { return 404; } \
                proxy_pass http://127.0.0.1:1; } location /a/ { if ($arg_a ~ ^(?!b)c) { return 204; } return 201; } }";
    let imported = import_text(text);
    let result = imported.files.concat();
    assert!(result.contains("(3|4|5)|Go ).*$") && result.contains("respond = { status = 404 }"), "{result}");
    assert!(result.contains("upstream = ") && !result.contains("status = 501"), "{result}");
    // Only refusals may concern more requests.
    assert!(!result.contains("status = 204") && imported.report.counts()[3] > 0, "{}", imported.report);
}

#[test]
fn conditions_of_logs_are_those_of_outputs() {
    let text = "map $status $errors { ~^[23] 0; default 1; } map $request_uri $health { /up 0; default 1; } \
                map $http_user_agent $bots { default 0; ~*bot 1; Probe 1; } \
                log_format own '$status'; access_log e.log own if=$errors; access_log b.log own if=$bots; \
                server { access_log a.log own if=$health; access_log r.log own if=$http_x_log; \
                         access_log q.log own if=$arg_log; return 204; }";
    let imported = import_text(text);
    let result = imported.files.concat();
    for expected in [
        "only = { value = \"{request.header.user-agent}\", regex = \"(?i:^Probe$)|(?:(?i)bot)\" }",
        "except = { value = \"{response.status}\", regex = \"(?:^[23])\" }",
        "except = { value = \"{request.target}\", regex = \"(?i:^/up$)\" }",
        "only = { value = \"{request.header.x-log}\", regex = \"^0?[^0]|^00\" }",
    ] {
        assert!(result.contains(expected), "{expected} is missing in {result}");
    }
    let report = imported.report.to_string();
    assert!(report.contains("no variable for $arg_log") && imported.report.counts()[3] == 0, "{report}");
}

#[test]
fn pages_of_folders_are_carried() {
    let text = "server { server_name a.example; root /no/such; location / { index index.html index.htm index.php; } \
                location /b/ { index $server_name.html /c.html; } location /d/ { index index.html; } }";
    let imported = import_text(text);
    let result = imported.files.concat();
    assert!(result.contains("index = [\"index.html\", \"index.htm\"]"), "{result}");
    assert!(result.contains("index = [\"a.example.html\"]"), "{result}");
    assert_eq!((result.matches("index = ").count(), imported.report.counts()[2]), (2, 1), "{result}");
}

#[test]
fn bodies_of_unknown_length_are_sent_at_once_unless_php_reads_them() {
    for (params, expected) in [
        ("", true),
        ("root /w; fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;", false),
        ("fastcgi_param SCRIPT_FILENAME /w/one.php;", false),
    ] {
        let text = format!(
            "server {{ location / {{ {params} fastcgi_request_buffering off; fastcgi_pass 127.0.0.1:9000; }} }}"
        );
        let imported = import_text(&text);
        let result = imported.files.concat();
        assert_eq!(result.contains("stream_bodies = true"), expected, "{result}");
        assert_eq!(imported.report.counts()[3], 0, "{}", imported.report);
    }
}

#[test]
fn a_response_with_variables_is_a_body_with_variables() {
    let text = "map $arg_a $chosen { x y; default z; } server { \
                location / { return 200 \"$uri {x} {1} ${chosen}\\n\"; } \
                location ~ ^/g/(.*)$ { default_type text/html; return 200 $1; } \
                location /braces { return 200 \"{$uri} {{a}} {{ b }} {{c d}\"; } \
                location /none { return 200 $connection_requests; } }";
    let imported = import_text(text);
    let result = imported.files.concat();
    for expected in [
        "respond = { body = \"{request.decoded_path} {{x} {{1} {map.chosen}\\n\" }",
        "respond = { body = \"{{{request.decoded_path}} {{{{a}} {{ b }} {{c d}\" }",
        "respond = { body = \"{1}\", content_type = \"text/html\" }",
        "path = \"/none\"\nrespond = { status = 501 }",
    ] {
        assert!(result.contains(expected), "{expected} is missing in {result}");
    }
    assert_eq!(imported.report.counts()[3], 1);
    let differences = imported.report.entries().filter(
        |entry| matches!(&entry.class, Class::Difference(detail) if detail.contains("escapes the values")),
    );
    assert_eq!(differences.count(), 1);
}

#[test]
fn pages_for_errors_are_files_or_responses_of_routes() {
    let text = "server { root /no/such; proxy_intercept_errors on; \
                error_page 403 /403.html; error_page 404 = /missing?of=$uri; error_page 410 =200 /gone; \
                error_page 502 504 @closed; error_page 500 https://status.example/; error_page 501 =301 /old; \
                location / { proxy_pass http://127.0.0.1:1; } location = /403.html { } \
                location /missing { return 200 none; } \
                location /gone { internal; proxy_pass http://127.0.0.1:2; } \
                location @closed { proxy_pass http://127.0.0.1:3; access_log off; } }";
    let imported = import_text(text);
    let result = imported.files.concat();
    for expected in [
        "403 = \"/no/such/403.html\"",
        "404 = { route = \"/missing?of={request.path}\", status = \"route\" }",
        "410 = { route = \"/gone\", status = 200 }",
        "502 = { route = \"/.error/closed{request.target}\" }",
        "504 = { route = \"/.error/closed{request.target}\" }",
        "501 = { route = \"/old\", status = 301 }",
        "redirect = { to = \"https://status.example/\", status = 302 }\ninternal = true",
        "intercept = true",
        "path = \"/gone\"\nupstream = \"local-2\"\ninternal = true",
        "path = \"/.error/closed\"\nupstream = \"local-3\"\nstrip_prefix = true\ninternal = true",
    ] {
        assert!(result.contains(expected), "{expected} is missing in {result}");
    }
    assert_eq!(imported.report.counts()[3], 0, "{result}");
}

#[test]
fn internal_locations_without_a_page_stay_closed() {
    let text = "server { location / { proxy_pass http://127.0.0.1:1; } location = /page { internal; return 200 x; } }";
    let result = import_text(text).files.concat();
    assert!(result.contains("path = \"/page\"\nexact = true\nrespond = { status = 404 }"), "{result}");
}

#[test]
fn servers_that_clients_could_choose_are_reported_and_their_routes_refuse_requests() {
    for pass in [
        "proxy_pass http://$host;",
        "proxy_pass http://$arg_to/x;",
        "proxy_pass http://127.0.0.1:$arg_port;",
        "proxy_pass $scheme://$http_x_to$request_uri;",
        "set $to $arg_to; proxy_pass http://$to;",
        "grpc_pass $arg_to;",
        "fastcgi_pass $arg_to;",
        "uwsgi_pass $arg_to;",
    ] {
        let imported = import_text(&format!("server {{ location / {{ {pass} }} }}"));
        let result = imported.files.concat();
        assert!(result.contains("respond = { status = 501 }") && !result.contains("[upstream."), "{result}");
        let missing: Vec<_> = imported
            .report
            .entries()
            .filter_map(|entry| match entry.class {
                Class::NotCarried { reason, .. } => Some(reason),
                _ => None,
            })
            .collect();
        assert!(missing.iter().any(|reason| reason.contains("so that no client chooses one")), "{missing:?}");
    }
}

#[test]
fn a_line_of_the_log_has_only_variables_that_brisk_can_log() {
    let lines = |format: &str| {
        let text = format!("log_format own '{format}'; access_log a.log own; server {{ return 204; }}");
        import_text(&text).files.concat()
    };
    let result = lines("$request_time $upstream_response_time $http_x_own $time_iso8601");
    let expected = "template = \"{duration} {upstream.time} {request.header.x-own} {time}\"";
    assert!(result.contains(expected), "{result}");
    for variable in ["$sent_http_etag", "$cookie_a", "$arg_a", "$http_cookie", "$uri$is_args$args"] {
        let result = lines(variable);
        assert!(!result.contains("template"), "{variable}: {result}");
    }
}
