//! Restrictions of nginx are never lost: a restriction that brisk does not have becomes a refusal, and the report names it.

use std::fs;

use brisk_import::{Class, ImportError, Imported, nginx};

fn read(text: &str) -> Result<Imported, ImportError> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("nginx.conf");
    // Some locations need a folder for files.
    fs::create_dir(folder.path().join("data")).expect("a folder");
    fs::write(&path, text).expect("a file");
    nginx(&path)
}

fn import(text: &str) -> Imported {
    read(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn toml(text: &str) -> String {
    import(text).files.join("\n# ---\n")
}

/// Requires that the result refuses requests with the words of the documentation, and does not have `part`.
fn refuses(text: &str, part: &str) {
    let result = toml(text);
    assert!(
        result.contains("NOT CARRIED") && result.contains("respond = { status = 501 }"),
        "{text}\n{result}"
    );
    assert!(!result.contains(part), "{text}\n{result}");
}

fn class_of(imported: &Imported, start: &str) -> Class {
    let mut entries = imported.report.entries();
    entries.find(|entry| entry.text.starts_with(start)).unwrap_or_else(|| panic!("no {start}")).class
}

fn is_missing(text: &str, start: &str) {
    let class = class_of(&import(text), start);
    assert!(matches!(class, Class::NotCarried { .. }), "{text}: {class:?}");
}

#[test]
fn the_restrictions_of_a_fallback_are_kept() {
    for inner in [
        "auth_basic x; auth_basic_user_file /tmp/u;",
        "deny 10.0.0.1;",
        "if ($arg_a) { return 403; }",
        "limit_except GET { deny all; }",
        "auth_jwt x;",
    ] {
        let pass = "proxy_pass http://127.0.0.1:1;";
        refuses(
            &format!(
                "server {{ root data; location / {{ try_files $uri @app; }} location @app {{ {inner} {pass} }} }}"
            ),
            "upstream =",
        );
        refuses(
            &format!(
                "server {{ root data; location / {{ try_files $uri /app/x; }} location /app/ {{ {inner} {pass} }} }}"
            ),
            "fallback =",
        );
    }
    let same = "server { root data; deny 10.0.0.1; location / { try_files $uri @app; } location @app { proxy_pass http://127.0.0.1:1; } }";
    assert!(toml(same).contains("fallback = { upstream ="), "{}", toml(same));
}

#[test]
fn conditions_of_the_target_of_a_rewrite_refuse_its_requests() {
    refuses(
        "server { root data; location /a/ { rewrite ^/a/(.*)$ /b/$1 last; } location /b/ { if ($arg_x) { return 403; } proxy_pass http://127.0.0.1:1; } location / { return 404; } }",
        "rewrite_path",
    );
}

#[test]
fn locations_inside_of_an_internal_one_are_internal() {
    let locations = "location /a/ { internal; location /a/b/ { proxy_pass http://127.0.0.1:1; } } location / { return 204; }";
    let result = toml(&format!("server {{ error_page 404 /a/b/c; {locations} }}"));
    assert!(result.contains("upstream = \"127-0-0-1-1\"\ninternal = true"), "{result}");
    let result = toml(&format!("server {{ {locations} }}"));
    assert!(result.contains("path = \"/a/b/\"\nrespond = { status = 404 }"), "nothing leads there: {result}");
}

#[test]
fn servers_of_other_addresses_are_not_merged() {
    let text = "server { listen unix:/run/admin.sock; location / { proxy_pass http://127.0.0.1:9; } }
        server { listen 80; server_name www.example.com; return 204; }
        server { listen 127.0.0.1:80; server_name status.local; return 200 ok; }";
    let imported = import(text);
    assert_eq!(imported.files.len(), 2, "{:?}", imported.files);
    assert!(imported.files.iter().all(|file| !file.contains("127.0.0.1:9")));
    assert!(!imported.files[0].contains("status.local"), "{}", imported.files[0]);
    is_missing(text, "listen unix:");
    let both = "server { listen 80; listen [::]:80; server_name a.example; return 301 https://$host$request_uri; }
        server { listen 443 ssl; server_name a.example; ssl_certificate c; ssl_certificate_key k; return 204; }";
    assert_eq!(import(both).files.len(), 1);
    assert!(matches!(read("server { listen unix:/run/x; }"), Err(ImportError::Empty { .. })));
}

#[test]
fn conditions_about_the_host_are_hosts_only_if_they_end_all_requests() {
    let pass = "location / { proxy_pass http://127.0.0.1:1; }";
    let result = toml(&format!(
        "server {{ server_name a.example b.example; if ($host = b.example) {{ set $x 1; }} {pass} }}"
    ));
    assert_eq!(result.matches("[[host]]").count(), 1, "{result}");
    refuses(
        &format!(r"server {{ server_name _; if ($host !~ ^(a|b)\.example$) {{ return 444; }} {pass} }}"),
        "upstream",
    );
    let moved = toml(&format!(
        "server {{ server_name a.example b.example; ssl_verify_client on; ssl_client_certificate ca; add_header X-A 1; if ($host = b.example) {{ return 301 https://a.example$request_uri; }} {pass} }}"
    ));
    assert_eq!(moved.matches("client_certificates").count(), 2, "{moved}");
    assert_eq!(moved.matches("X-A").count(), 2, "{moved}");
}

#[test]
fn restrictions_of_other_modules_refuse_requests() {
    for restriction in [
        "auth_jwt x",
        "auth_oidc p",
        "auth_digest x",
        "auth_ldap x",
        "auth_pam x",
        "auth_gss on",
        "access_by_lua_file x",
        "access_by_lua_block { ngx.exit(403) }",
        "perl_access x",
        "secure_link_secret x",
        "modsecurity on",
    ] {
        let end = if restriction.ends_with('}') { "" } else { ";" };
        let text = format!("server {{ {restriction}{end} location / {{ proxy_pass http://127.0.0.1:1; }} }}");
        refuses(&text, "upstream =");
        is_missing(&text, restriction.split(' ').next().unwrap_or_default());
    }
    refuses(
        "server { location / { auth_request /no; proxy_pass http://127.0.0.1:1; } location = /no { return 403; } }",
        "upstream =",
    );
}

#[test]
fn longer_prefixes_stand_where_their_requests_arrive() {
    for text in [
        "server { location /app { proxy_pass http://127.0.0.1:1; } location /app/x- { deny all; return 204; } }",
        "server { root .; location /data { } location /data/config.json { deny all; } }",
    ] {
        let result = toml(text);
        let base = if text.contains("/app") { "/app" } else { "/data" };
        let part = result.find("path_regex").unwrap_or_else(|| panic!("{result}"));
        let start = result[..part].rfind("path = ").unwrap_or_default();
        assert!(result[start..].starts_with(&format!("path = \"{base}\"\n")), "{result}");
        let own = result.rfind(&format!("path = \"{base}\"\n")).unwrap_or_default();
        assert!(own > start, "{result}");
    }
}

#[test]
fn maps_that_refer_to_each_other_are_refused() {
    is_missing(
        "map $b $a { default 1; } map $a $b { default 2; } server { add_header X $a; return 204; }",
        "add_header",
    );
    is_missing("map $x $x { default 1; } server { add_header X $x; return 204; }", "add_header");
    let chain = (0..2000)
        .map(|number| format!("map $v{} $v{number} {{ default 1; }} ", number + 1))
        .collect::<Vec<_>>()
        .concat();
    is_missing(&format!("{chain} server {{ add_header X $v0; return 204; }}"), "add_header");
}

#[test]
fn methods_of_some_clients_are_not_open_to_all() {
    let text = |rules: &str| {
        format!("server {{ location / {{ limit_except GET {{ {rules} }} proxy_pass http://127.0.0.1:1; }} }}")
    };
    let mixed = text("deny 10.1.0.0/16; allow 10.0.0.0/8; deny all;");
    assert_eq!(toml(&mixed).matches("upstream = ").count(), 1, "{}", toml(&mixed));
    is_missing(&mixed, "limit_except");
    let passwords = text("allow 10.0.0.0/8; deny all; auth_basic x; auth_basic_user_file u;");
    assert_eq!(toml(&passwords).matches("upstream = ").count(), 1, "{}", toml(&passwords));
    assert_eq!(toml(&text("allow 10.0.0.0/8; deny all;")).matches("upstream = ").count(), 2);
    // The location has GET and HEAD only, so the first condition never holds, and the second one always.
    let never = "server { location / { limit_except GET { deny all; } if ($request_method = POST) { set $x 1; } if ($request_method != PUT) { return 405; } proxy_pass http://127.0.0.1:1; } }";
    let result = toml(never);
    assert!(result.contains("when = { methods = [\"GET\"] }\nrespond = { status = 405 }"), "{result}");
    assert!(!result.contains("upstream") && result.matches("[[host.route]]").count() == 2, "{result}");
    let some = "server { location / { limit_except GET PUT { deny all; } if ($request_method ~ ^(HEAD|POST)$) { return 204; } return 201; } }";
    assert!(
        toml(some).contains("when = { methods = [\"HEAD\"] }\nrespond = { status = 204 }"),
        "{}",
        toml(some)
    );
}

#[test]
fn conditions_mean_what_nginx_means() {
    let server = |condition: &str| {
        format!("server {{ location / {{ if ({condition}) {{ return 403; }} return 204; }} }}")
    };
    // An exact text wins.
    let map = "map $http_x $x { ~a 1; abc 0; default 0; } ";
    is_missing(&format!("{map}{}", server("$x")), "if");
    is_missing(&format!("geo $arg_ip $g {{ 10.0.0.0/8 1; }} {}", server("$g")), "if");
    is_missing(&server(r"$request_uri ~ \.php"), "if");
    is_missing(&server("$request_uri = /a"), "if");
    assert!(toml(&server("$request_uri ~ ^/a/b")).contains("path_regex = \"^/a/b\""));
    assert!(toml(&server("$request_method ~* ^(get|head)$")).contains("methods = [\"GET\", \"HEAD\"]"));
}

#[test]
fn large_inputs_are_refused_as_a_whole_and_nothing_is_left_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let main = folder.path().join("nginx.conf");
    fs::write(&main, "include sites/*.conf;").expect("a file");
    let sites = folder.path().join("sites");
    fs::create_dir(&sites).expect("a folder");
    for number in 0..1500 {
        fs::write(sites.join(format!("{number}.txt")), "").expect("a file");
    }
    fs::write(sites.join("z.conf"), "server { return 204; }").expect("a file");
    assert_eq!(nginx(&main).expect("an import").files.len(), 1);
    for number in 0..1001 {
        fs::write(sites.join(format!("{number}.conf")), "").expect("a file");
    }
    assert!(matches!(nginx(&main), Err(ImportError::TooLarge { .. })));
    assert!(matches!(read(&"a;".repeat(200_001)), Err(ImportError::TooLarge { .. })));
    let locations = (0..200)
        .map(|number| {
            format!("location /a{number} {{ return 204; }} location ~ x{number} {{ return 204; }} ")
        })
        .collect::<Vec<_>>()
        .concat();
    let result = toml(&format!("server {{ {locations} }}"));
    assert!(result.matches("[[host.route]]").count() < 30_000);
    assert!(result.contains("NOT CARRIED"));
}

#[test]
fn numbers_and_names_are_valid_in_the_result() {
    let limit = |zone: &str, limit: &str| {
        format!(
            "limit_req_zone $binary_remote_addr zone=z:1m rate={zone}; limit_conn_zone $binary_remote_addr zone=c:1m; server {{ location / {{ {limit} proxy_pass http://127.0.0.1:1; }} }}"
        )
    };
    toml(&limit("1r/s", "limit_req zone=z burst=18446744073709551615;"));
    is_missing(&limit("1r/s", "limit_conn c x=1;"), "limit_conn c");
    is_missing(&limit("1r/s", "limit_conn c 1; limit_conn_status 4x;"), "limit_conn c");
    let result = toml("server { add_header X.Y 1; return 204; }");
    assert!(result.contains("\"X.Y\" = "), "{result}");
    let result = toml("server { location / { deny bad.example; proxy_pass http://127.0.0.1:1; } }");
    assert!(result.contains("deny = [\"0.0.0.0/0\", \"::/0\"]"), "{result}");
    is_missing(
        "upstream a { server 127.0.0.1:1 weight=x; } server { location / { proxy_pass http://a; } }",
        "server 127",
    );
}

#[test]
fn settings_with_an_effect_are_not_unneeded() {
    for setting in [
        "proxy_pass_request_headers off;",
        "proxy_pass_request_body off;",
        "disable_symlinks on;",
        "proxy_bind 127.0.0.2;",
        "try_files $uri =404;",
    ] {
        let text = format!("server {{ location / {{ {setting} proxy_pass http://127.0.0.1:1; }} }}");
        is_missing(&text, setting.trim_end_matches(';'));
    }
}

#[test]
fn refusals_by_a_table_that_cannot_be_expressed_are_kept() {
    // The operators of expressions compare results, which no route does.
    refuses(
        "geo $g { default 0; 10.0.0.0/8 bad; } server { location / { if ($g ~ ^b) { return 403; } proxy_pass http://127.0.0.1:1; } }",
        "upstream =",
    );
    // No line has the text, so the condition always holds.
    let always = "map $http_x $m { a b; } server { location / { if ($m != x) { return 403; } proxy_pass http://127.0.0.1:1; } }";
    assert!(toml(always).contains("respond = { status = 403 }"), "{}", toml(always));
}

#[test]
fn a_check_of_links_hides_no_other_restriction() {
    let links = "secure_link $arg_md5,$arg_expires; secure_link_md5 \"$secure_link_expires$uri secret\";";
    let refused = "if ($secure_link = \"\") { return 403; } if ($secure_link = \"0\") { return 410; }";
    let location = |more: &str| {
        format!("server {{ location / {{ {more} {links} {refused} proxy_pass http://127.0.0.1:1; }} }}")
    };
    assert!(toml(&location("")).contains("signed_links = "), "{}", toml(&location("")));
    refuses(&location("modsecurity on;"), "upstream");
}

#[test]
fn locations_whose_expression_brisk_does_not_have_stay_closed() {
    let location = |pattern: &str| {
        format!(
            "server {{ location ~ \"{pattern}\" {{ deny all; }} location / {{ proxy_pass http://127.0.0.1:1; }} }}"
        )
    };
    for (pattern, wider) in [
        (r"^/u/(?!\\d)", "^/u/"),
        ("^/(?!a|b)", "^/"),
        ("^/[^/]++/x", "^/[^/]+/x"),
        ("^/(?>a)b", "^/(?:a)b"),
        ("^/(?!x)[a*+]b", "^/[a*+]b"),
    ] {
        let result = toml(&location(pattern));
        let expected = format!("when = {{ path_regex = \"{wider}\" }}\nrespond = {{ status = 501 }}");
        assert!(result.contains(&expected), "{pattern}\n{result}");
    }
    let slash = toml(&location("^/(?!static/)"));
    assert!(slash.contains("stati[^c]|static[^/]|"), "{slash}");
    assert!(toml(&location(r"^/\\<a")).contains("path_regex = \"^/<a\""), "{}", toml(&location(r"^/\\<a")));
}

#[test]
fn the_longest_network_of_a_geo_decides_wherever_it_stands() {
    let server = |lines: &str| {
        format!(
            "geo $g {{ {lines} }} server {{ location / {{ if ($g) {{ return 403; }} proxy_pass http://127.0.0.1:1; }} }}"
        )
    };
    for lines in [
        "default 1; 10.1.0.0/16 1; 10.0.0.0/8 0;",
        "default 1; 10.0.0.0/8 0; 10.1.0.0/16 1;",
        "10.0.0.0/8 1; 10.1.2.3 0;",
        "default 0; 10.1.2.3 0; ::/0 1; 10.2.0.0/16 1; 10.0.0.0/8 1;",
        "0.0.0.0/0 0; 10.1.2.3 0; 10.2.0.0/16 0; 10.0.0.0/8 1;",
        "10.0.0.0/33 1;",
    ] {
        refuses(&server(lines), "upstream =");
    }
    let twice = toml(&server("10.0.0.0/8 1; 10.1.2.3/8 0; 10.2.0.0/16 1; 2001:db8::/32 1;"));
    assert!(twice.contains("networks = [\"10.2.0.0/16\", \"2001:db8::/32\"]"), "{twice}");
    let inner = toml(&server("10.0.0.0/8 1; 10.1.0.0/16 1;"));
    assert!(inner.contains("networks = [\"10.0.0.0/8\", \"10.1.0.0/16\"]"), "{inner}");
}

#[test]
fn locations_inside_of_others_have_their_own_response() {
    for outer in [
        "proxy_pass http://127.0.0.1:1;",
        "grpc_pass 127.0.0.1:1;",
        "fastcgi_pass 127.0.0.1:1;",
        "uwsgi_pass 127.0.0.1:1;",
        "scgi_pass 127.0.0.1:1;",
        "memcached_pass 127.0.0.1:1;",
        "return 204;",
        "try_files /no =404;",
        "stub_status;",
        "limit_except GET { deny all; }",
        "if ($arg_a) { return 403; }",
        "rewrite ^ /b redirect;",
    ] {
        let text = format!("server {{ location / {{ {outer} location /data {{ root .; }} }} }}");
        let result = toml(&text);
        assert!(result.contains("path = \"/data\"\nstatic = "), "{outer}\n{result}");
        // The source text of scripts has a route of its own.
        let count = if outer.starts_with("fastcgi") { 2 } else { 1 };
        assert_eq!(result.matches("path = \"/data\"\n").count(), count, "{outer}\n{result}");
    }
    // Restrictions are inherited, and the server of a location is that of its `if`.
    let inherited = toml(
        "server { location / { allow 10.0.0.0/8; deny all; auth_basic x; auth_basic_user_file u; location /data { root .; if ($arg_a) { set $b 1; } } } }",
    );
    assert_eq!(inherited.matches("basic_auth = ").count(), 2, "{inherited}");
    let inside = toml("server { location / { proxy_pass http://127.0.0.1:1; if ($arg_a) { set $b 1; } } }");
    assert_eq!(inside.matches("upstream = ").count(), 2, "{inside}");
    // Paths without a location have the files of the server.
    let whole = toml("server { root data; try_files $uri /index.html; location /a { return 204; } }");
    assert!(whole.contains("fallback = \"/index.html\""), "{whole}");
    let unused = toml("server { root data; try_files $uri /index.html; location / { } }");
    assert!(!unused.contains("fallback"), "{unused}");
}

#[test]
fn folders_of_an_alias_are_those_of_its_location() {
    let text = "server { location /a/ { alias /x/y/; location /a/b/ { } location = /a/c { } location ^~ /a/d- { } } }";
    let result = toml(text);
    assert!(result.contains("path = \"/a/\"\nstatic = \"/x/y\""), "{result}");
    assert!(result.contains("path = \"/a/b/\"\nstatic = \"/x/y/b\""), "{result}");
    assert!(
        result.contains("path = \"/a/c\"\nexact = true\nstatic = \"/x/y\"\nfallback = \"/c\""),
        "{result}"
    );
    refuses("server { location /a- { alias /x/; } location / { return 204; } }", "static");
}

#[test]
fn keys_of_a_map_are_compared_without_their_case() {
    let closed = |map: &str| {
        toml(&format!(
            "{map} server {{ location / {{ if ($b) {{ return 403; }} proxy_pass http://127.0.0.1:1; }} }}"
        ))
    };
    for (map, expected) in [
        ("map $http_x $b { Bad.1 1; }", r"headers = { x = { regex = '(?i)^Bad\.1$' } }"),
        ("map $cookie_x $b { a 1; b 0; c 1; }", "cookies = { x = { regex = \"(?i)^c$\" } }"),
        ("map $arg_x $b { 7 1; }", "query = { x = \"7\" }"),
        ("map $uri $b { /a 1; }", "path_regex = \"(?i)^/a$\""),
        ("map $request_method $b { trace 1; }", "methods = [\"TRACE\"]"),
        ("map $http_x $b { \"\" 1; }", "headers = { x = { regex = \"^$\" } }"),
        ("map $http_x $b { ~~a 1; }", "headers = { x = { regex = \"~a\" } }"),
    ] {
        let result = closed(map);
        let part = format!("{expected} }}\nrespond = {{ status = 403 }}");
        assert!(result.contains(&part), "{map}\n{result}");
    }
    for map in [
        "map $http_x $b { hostnames; *.a.example 1; }",
        "map $http_x $b { include /no/such/file; default 0; }",
    ] {
        let result = closed(map);
        assert!(result.contains("status = 501") && !result.contains("upstream ="), "{map}\n{result}");
    }
    let table = |map: &str| {
        let text = format!(
            "{map} server {{ location / {{ add_header X $b; if ($arg_a) {{ return 200; }} return 204; }} }}"
        );
        let result = toml(&text);
        assert_eq!(result.matches("[map.b]").count(), 1, "{result}");
        result.split("from = ").nth(1).unwrap_or_default().to_owned()
    };
    for (map, expected) in [
        (
            "map $http_x $b { Bad 1; 5 2; default $http_x; ~^a 3; }",
            "values = { \"5\" = \"2\" }\npatterns = [{ regex = \"(?i)^Bad$\", value = \"1\" }, { regex = \"^a\", value = \"3\" }, { regex = \"(.*)\", value = \"{1}\" }]",
        ),
        ("map $host $b { A.example 1; }", "values = { \"a.example\" = \"1\" }"),
        ("map $request_method $b { get 1; }", "values = { \"GET\" = \"1\" }"),
        (
            "map $http_x $b { hostnames; ~a 1; *.b.example 2; www.* 3; .c.b.example 4; }",
            r#"patterns = [{ regex = '(?i)(^|\.)c\.b\.example$', value = "4" }, { regex = '(?i)\.b\.example$', value = "2" }, { regex = '(?i)^www\.[^.]+', value = "3" }, { regex = "a", value = "1" }]"#,
        ),
    ] {
        let result = table(map);
        assert!(result.contains(expected), "{map}\n{result}");
    }
    let many: String = (0..101).map(|number| format!("a{number} {number}; ")).collect();
    assert!(table(&format!("map $http_x $b {{ {many} }}")).contains("\"a100\" = \"100\""));
}

#[test]
fn valid_referers_are_served_and_all_others_refused() {
    let server = |names: &str, valid: &str, condition: &str| {
        format!(
            "server {{ server_name {names}; location / {{ {valid} if ({condition}) {{ return 403; }} proxy_pass http://127.0.0.1:1; }} }}"
        )
    };
    let invalid = "$invalid_referer";
    let valid =
        "valid_referers none blocked; valid_referers server_names example.org/gallery/ www.example.* ~^goo;";
    let result = toml(&server("a.example *.b.example", valid, invalid));
    let hosts = r"(?:(?i:a\.example)(?:[/:]|$)|[^/:]*\.(?i:b\.example)(?:[/:]|$)|(?i:example\.org)(?::[^/]*)?/gallery/|(?i:www\.example)\.[^/:]+(?:[/:]|$)|(?i:goo))";
    assert!(result.contains(&format!("Referer = {{ regex = '^(?i:https?)://{hosts}' }}")), "{result}");
    assert!(result.contains("Referer = false") && result.contains("https[^:]"), "{result}");
    assert_eq!(result.matches("upstream = \"").count(), 3, "{result}");
    assert!(result.contains("respond = { status = 403 }"), "{result}");
    refuses(&server("~^a", "valid_referers server_names;", invalid), "upstream =");
    refuses(&server("a", "valid_referers ~(?=a);", invalid), "upstream =");
    refuses(&server("a", "valid_referers a;", "$invalid_referer = \"\""), "upstream =");
    let clash = server("a", "valid_referers a; if ($http_referer = x) { set $a 1; }", invalid);
    assert!(toml(&clash).contains("status = 501"), "{}", toml(&clash));
}

#[test]
fn empty_values_are_compared_as_nginx_does() {
    let server = |condition: &str| {
        format!(
            "server {{ location / {{ if ({condition}) {{ return 403; }} proxy_pass http://127.0.0.1:1; }} }}"
        )
    };
    for (condition, tests) in [
        ("$http_x = \"\"", vec!["headers = { x = false }", "headers = { x = { regex = \"^$\" } }"]),
        ("$arg_x = ''", vec!["query = { x = false }", "query = { x = { regex = \"^$\" } }"]),
        ("$cookie_x != \"\"", vec!["cookies = { x = { regex = \".\" } }"]),
        ("$http_x", vec!["headers = { x = { regex = \"^0?[^0]|^00\" } }"]),
    ] {
        let result = toml(&server(condition));
        for test in tests {
            let part = format!("when = {{ {test} }}\nrespond = {{ status = 403 }}");
            assert!(result.contains(&part), "{condition}\n{result}");
        }
    }
    // Networks are texts in nginx, and parameters are not decoded.
    refuses(&server("$remote_addr != 10.0.0.0/8"), "upstream =");
    refuses(&server("$arg_x ~ \"%27\""), "upstream =");
    for condition in ["$arg_x = 1", "$cookie_x = 1", "$request_method = GET"] {
        let class = class_of(&import(&server(condition)), "if");
        assert!(matches!(class, Class::Difference(_)), "{condition}: {class:?}");
    }
}

#[test]
fn refusals_by_files_are_kept() {
    let server = |block: &str| {
        format!("server {{ location / {{ root data; {block} proxy_pass http://127.0.0.1:1; }} }}")
    };
    for block in [
        "if (!-f $request_filename) { return 403; }",
        "if (-f $request_filename) { return 403; }",
        "if (-f /locked) { return 403; }",
        "if (-f $arg_a) { return 503; }",
        "if (-d $request_filename) { return 403; }",
        "if (!-e $request_filename) { rewrite ^ /index.html last; } if ($http_x) { return 403; }",
        "if (-f $request_filename) { break; } if ($http_x) { return 403; }",
    ] {
        refuses(&server(block), "upstream =");
    }
    let switch = toml(&server("if (-f /locked) { return 503; }"));
    assert!(switch.contains("maintenance = { file = \"/locked\" }"), "{switch}");
    let missing = toml(
        "server { location / { root data; if (!-f $request_filename) { proxy_pass http://127.0.0.1:1; } } }",
    );
    assert!(missing.contains("fallback = { upstream = "), "{missing}");
}

#[test]
fn changed_paths_reach_no_restricted_location() {
    let closed = "location /private/ { deny all; } location ~ ^/also/ { return 403; } location / { proxy_pass http://127.0.0.1:1; }";
    let route = |result: &str, path: &str| {
        let start = format!("path = \"{path}\"\n");
        result.split(&start).nth(1).unwrap_or_else(|| panic!("{result}")).lines().take(2).collect::<String>()
    };
    for (text, path) in [
        ("location /x/ { rewrite ^/x/(.*)$ /$1 last; }", "/x/"),
        ("location /x/ { rewrite ^/x/(.*)$ /private$1; }", "/x/"),
        ("rewrite ^/x/(.*)$ /private/$1 break; location /x/ { proxy_pass http://127.0.0.1:1; }", "/x/"),
        ("rewrite ^/(?=a)x /private/b; location /x/ { proxy_pass http://127.0.0.1:1; }", "/x/"),
        ("location /x/ { root /no/such; try_files $uri /al$uri; }", "/x/"),
        (
            "location /x/ { root /no/such; try_files $uri @y; } location @y { rewrite ^/(.*)$ /$1 last; }",
            "/x/",
        ),
    ] {
        let result = toml(&format!("server {{ {text} {closed} }}"));
        let own = route(&result, path);
        assert!(own.contains("status = 501"), "{text}\n{own}\n{result}");
    }
    let lost = toml(
        "server { rewrite ^/(.*)$ /b/$1 break; location /a/ { proxy_pass http://127.0.0.1:1; } location /b/ { root /no/such; } }",
    );
    assert!(
        lost.contains("path = \"/a/\"\nwhen = { path_regex = \"^/(.*)$\" }\nrespond = { status = 501 }"),
        "{lost}"
    );
    let ended = toml("server { location / { root data; rewrite ^ /f.txt break; return 204; } }");
    assert!(ended.contains("fallback = \"/f.txt\"") && !ended.contains("204"), "{ended}");
    let some = toml(&format!("server {{ rewrite ^/s/(.*)$ /private/$1 break; {closed} }}"));
    assert!(some.contains("path_regex = \"^/s/(.*)$\" }\nrespond = { status = 501 }"), "{some}");
    assert!(some.contains("path = \"/\"\nupstream ="), "{some}");
    let front = toml(
        "server { root /no/such; location ~ ^/(?:data|lib)/ { return 404; } location / { try_files $uri /index.php$request_uri; } location ~ [.]php { fastcgi_pass 127.0.0.1:1; } }",
    );
    assert!(front.contains("fallback = { upstream = \"php\" }"), "{front}");
    for text in [
        "location /x/ { rewrite ^/x/(.*)$ /$1 break; proxy_pass http://127.0.0.1:1; }",
        "location /x/ { rewrite ^/x/(.*)$ /y?q=$1 last; }",
        "location /x/ { rewrite ^/x/(.*)$ /y/$1 last; }",
    ] {
        let result = toml(&format!("server {{ {text} {closed} }}"));
        assert!(result.contains("rewrite_path") && !result.contains("status = 501"), "{text}\n{result}");
    }
}

#[test]
fn files_that_were_not_read_may_have_restrictions() {
    for (text, is_open) in [
        ("server { include /no/such/file; return 204; }", true),
        ("server { location / { include /no/such/file; return 204; } }", true),
        ("include /no/such/file; server { return 204; }", false),
        ("server { include /no/such/*.conf; location / { include fastcgi_params; return 204; } }", false),
    ] {
        let imported = import(text);
        assert_eq!(imported.report.open().len(), usize::from(is_open), "{text}");
        assert_eq!(imported.files[0].starts_with("# WARNING"), is_open, "{text}");
    }
}

#[test]
fn certificates_of_clients_are_required_or_the_result_warns() {
    let server = |lines: &str| {
        format!(
            "server {{ listen 443 ssl; ssl_certificate c; ssl_certificate_key k; {lines} location / {{ return 204; }} }}"
        )
    };
    let trusted = toml(&server("ssl_verify_client on; ssl_trusted_certificate t;"));
    assert!(trusted.contains("client_certificates = { mode = \"required\", ca = "), "{trusted}");
    for lines in [
        "ssl_verify_client on;",
        "ssl_verify_client on; ssl_client_certificate $a;",
        "ssl_verify_client on; ssl_client_certificate ca; ssl_ocsp on;",
    ] {
        let result = toml(&server(lines));
        assert!(result.starts_with("# WARNING"), "{lines}\n{result}");
    }
    is_missing(&server("ssl_verify_client on; ssl_client_certificate ca; ssl_ocsp leaf;"), "ssl_ocsp");
}

#[test]
fn networks_of_the_host_are_a_restriction_of_its_routes() {
    let server = |rules: &str| {
        toml(&format!(
            "server {{ {rules} location / {{ auth_basic x; auth_basic_user_file u; proxy_pass http://127.0.0.1:1; }} }}"
        ))
    };
    let any = server("satisfy any; allow 10.0.0.0/8; deny all;");
    let route = any.split("[[host.route]]").nth(1).unwrap_or_default();
    assert!(route.contains("allow = [\"10.0.0.0/8\"]") && route.contains("satisfy = \"any\""), "{any}");
    let all = server("allow 10.0.0.0/8; deny all;");
    let route = all.split("[[host.route]]").nth(1).unwrap_or_default();
    assert!(!route.contains("allow = ") && all.contains("allow = [\"10.0.0.0/8\"]"), "{all}");
    let none = server("satisfy any;");
    assert!(none.contains("basic_auth = ") && !none.contains("satisfy") && !none.contains("allow"), "{none}");
    let open = server("satisfy any; allow all;");
    assert!(open.contains("basic_auth = ") && !open.contains("satisfy"), "{open}");
    let zero = server("allow 10.0.0.1; deny 0.0.0.0/0;");
    assert!(zero.contains("allow = [\"::/0\", \"10.0.0.1\"]\ndeny = [\"0.0.0.0/0\"]"), "{zero}");
}

#[test]
fn clients_do_not_choose_headers_that_nginx_sets() {
    let server = |lines: &str| {
        toml(&format!(
            "server {{ location /no {{ proxy_pass http://127.0.0.1:2; }} location / {{ {lines} proxy_pass http://127.0.0.1:1; }} }}"
        ))
    };
    for (lines, removed) in [
        ("proxy_set_header X-User $remote_user;", "X-User"),
        ("proxy_set_header X-Verified $ssl_client_verify; proxy_set_header Host $unknown;", "X-Verified"),
        ("auth_request /no; auth_request_set $u $upstream_http_x_a; proxy_set_header X-B $u;", "X-B"),
        ("auth_request /no; auth_request_set $u $upstream_http_x_a$x; proxy_set_header X-A $u;", "X-A"),
    ] {
        let result = server(lines);
        let rule = format!("request_headers = {{ remove = [\"{removed}\"] }}");
        assert!(result.contains(&rule), "{lines}\n{result}");
    }
    let copied = server("auth_request /no; auth_request_set $u $upstream_http_x_a; proxy_set_header X-A $u;");
    assert!(copied.contains("copy_headers = [\"X-A\"]") && !copied.contains("remove"), "{copied}");
    let script =
        toml("server { location / { fastcgi_pass 127.0.0.1:1; fastcgi_param HTTP_X_USER $remote_user; } }");
    assert!(script.contains("params = { HTTP_X_USER = \"\" }"), "{script}");
}

#[test]
fn addresses_that_clients_may_choose_are_no_restriction() {
    for (lines, is_open) in [
        ("real_ip_header X-Real-IP; allow 10.0.0.1; deny all;", true),
        ("deny 10.0.0.1;", true),
        ("if ($remote_addr = 10.0.0.1) { return 403; }", true),
        ("real_ip_header X-Real-IP;", false),
        ("real_ip_header X-Forwarded-For; deny 10.0.0.1;", false),
        ("real_ip_header CF-Connecting-IP; deny 10.0.0.1;", false),
    ] {
        let text = format!(
            "server {{ set_real_ip_from 192.0.2.1; {lines} location / {{ proxy_pass http://127.0.0.1:1; }} }}"
        );
        assert_eq!(import(&text).report.open().len(), usize::from(is_open), "{text}");
    }
}

#[test]
fn restricted_prefixes_concern_all_paths_with_the_same_beginning() {
    let server = |inner: &str| {
        format!("server {{ location / {{ proxy_pass http://127.0.0.1:1; }} location /adm {{ {inner} }} }}")
    };
    for inner in
        ["deny all; root /no/such;", "auth_basic x; auth_basic_user_file u; proxy_pass http://127.0.0.1:2;"]
    {
        let text = server(inner);
        let result = toml(&text);
        let own = result
            .find("path = \"/\"\nwhen = { path_regex = \"^/adm[^/]\" }")
            .unwrap_or_else(|| panic!("{result}"));
        assert!(result.rfind("path = \"/\"\n").unwrap_or_default() > own, "{result}");
        assert!(matches!(class_of(&import(&text), "location /adm"), Class::Carried), "{text}");
    }
    let open = server("proxy_pass http://127.0.0.1:2;");
    assert!(!toml(&open).contains("path_regex"), "{}", toml(&open));
    assert!(matches!(class_of(&import(&open), "location /adm"), Class::Difference(_)));
}

#[test]
fn routes_are_not_repeated_and_have_an_action() {
    let condition = "if ($http_x) { return 403; }";
    let twice = toml(&format!("server {{ location / {{ {condition} {condition} return 204; }} }}"));
    assert_eq!(twice.matches("[[host.route]]").count(), 2, "{twice}");
    let page = toml(
        "server { location / { error_page 404 @n; proxy_pass http://127.0.0.1:1; } location @n { if ($uri ~ a) { return 403; } proxy_pass http://127.0.0.1:1; } }",
    );
    assert_eq!(page.matches("path = \"/.error/n\"").count(), 1, "{page}");
    let missing = toml("server { location / { try_files $uri /index.html; } }");
    assert!(missing.contains("path = \"/\"\nrespond = { status = 404 }"), "{missing}");
    let folder = toml("server { location = /no/x { root data; } location = /x { root data; } }");
    assert!(folder.contains("path = \"/no/x\"\nexact = true\nrespond = { status = 404 }"), "{folder}");
    assert!(folder.contains("exact = true\nstatic = "), "{folder}");
}

#[test]
fn methods_are_compared_before_the_directives_of_the_location() {
    let text = "server { if ($http_x) { return 405; } location / { limit_except GET { allow 10.0.0.0/8; deny all; } if ($http_y) { return 201; } return 204; proxy_pass http://127.0.0.1:1; } }";
    let result = toml(text);
    for (status, count) in [(201, 1), (204, 1), (403, 1)] {
        assert_eq!(result.matches(&format!("status = {status}")).count(), count, "{result}");
    }
    for part in result.split("[[host.route]]").filter(|part| part.contains("status = 20")) {
        assert!(part.contains("methods = [\"GET\"]"), "{result}");
    }
    let open = result.split("[[host.route]]").find(|part| part.contains("upstream = ")).unwrap_or_default();
    assert!(open.contains("networks = [\"10.0.0.0/8\"]") && !open.contains("methods"), "{result}");
}

#[test]
fn requests_without_files_do_not_reach_the_next_route() {
    let text = "server { location / { if ($remote_addr != 10.0.0.1) { return 204; } } }";
    let result = toml(text);
    assert!(result.contains("networks = [\"10.0.0.1\"] }\nrespond = { status = 404 }"), "{result}");
    // The response of a route with a changed path and files is not carried.
    refuses("server { root data; location / { rewrite ^ /x break; try_files $uri =404; } }", "static");
}

#[test]
fn parameters_of_segments_are_no_part_of_paths() {
    for inner in [
        "location ~ \";\" { deny all; }",
        "location ~ \"^/a\\;b\" { return 403; }",
        "location \"/a;b\" { deny all; }",
    ] {
        let text = format!("server {{ {inner} location / {{ proxy_pass http://127.0.0.1:1; }} }}");
        let imported = import(&text);
        assert_eq!(imported.report.open().len(), 1, "{text}\n{:?}", imported.files);
    }
    refuses(
        "server { location / { if ($uri ~ \";\") { return 403; } proxy_pass http://127.0.0.1:1; } }",
        "upstream =",
    );
    let class = toml("server { location ~ \"^/[^;]+$\" { deny all; } location / { return 204; } }");
    assert!(class.contains("path_regex = \"^/[^;]+$\""), "{class}");
}

#[test]
fn nested_locations_are_reached_through_the_outer_one_only() {
    let pass = "proxy_pass http://127.0.0.1:1;";
    let text = format!(
        "server {{ location /a {{ location /a/b/c {{ {pass} }} location /a/x {{ return 201; }} }} location /a/b {{ deny all; {pass} }} }}"
    );
    let result = toml(&text);
    assert!(!result.contains("path = \"/a/b/c\"") && result.contains("path = \"/a/x\""), "{result}");
    assert!(matches!(class_of(&import(&text), "location /a/b/c"), Class::Difference(_)));
    let internal = format!(
        "server {{ root /no/such; location /a/ {{ internal; root /no/such; try_files $uri @b; }} location @b {{ {pass} }} location / {{ {pass} }} }}"
    );
    let result = toml(&internal);
    assert!(result.contains("path = \"/a/\"\nrespond = { status = 501 }\ninternal = true"), "{result}");
}
