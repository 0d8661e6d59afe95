//! Restrictions by addresses, tables, files, headers, methods and nested locations.

use super::*;

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
    let many = (0..101).map(|number| format!("a{number} {number}; ")).collect::<Vec<_>>().concat();
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
    let changed = "static = \"/no/such\"\nrewrite_path = { pattern = \"^/(.*)$\", to = \"/b/{1}\" }";
    assert!(
        lost.contains(&format!("path = \"/a/\"\nwhen = {{ path_regex = \"^/(.*)$\" }}\n{changed}")),
        "{lost}"
    );
    let ended = toml("server { location / { root data; rewrite ^ /f.txt break; return 204; } }");
    let only = "rewrite_path = { pattern = \"^\", to = \"/f.txt\" }";
    assert!(ended.contains(only) && !ended.contains("fallback") && !ended.contains("204"), "{ended}");
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
fn a_required_certificate_stays_required_with_satisfy_any() {
    let text = "server { listen 443 ssl; ssl_certificate c; ssl_certificate_key k; ssl_verify_client optional; \
                ssl_client_certificate ca; location / { satisfy any; allow 10.0.0.0/8; deny all; auth_basic x; \
                auth_basic_user_file u; if ($ssl_client_verify != SUCCESS) { return 403; } \
                proxy_pass http://127.0.0.1:1; } }";
    let result = toml(text);
    for expected in ["client_certificate = {}", "allow = [\"10.0.0.0/8\"]", "basic_auth = "] {
        assert!(result.contains(expected), "{expected} is missing in {result}");
    }
    assert!(!result.contains("satisfy = "), "{result}");
    is_missing(text, "satisfy any");
}

#[test]
fn clients_do_not_choose_headers_that_nginx_sets() {
    let server = |lines: &str| {
        toml(&format!(
            "server {{ location /no {{ proxy_pass http://127.0.0.1:2; }} location / {{ {lines} proxy_pass http://127.0.0.1:1; }} }}"
        ))
    };
    for (lines, removed) in [
        ("proxy_set_header X-User $unknown_user;", "X-User"),
        ("proxy_set_header X-Verified $ssl_client_v_end; proxy_set_header Host $unknown;", "X-Verified"),
        ("auth_request off; auth_request_set $u $upstream_http_x_a; proxy_set_header X-A $u;", "X-A"),
        ("auth_request /no; auth_request_set $u $upstream_http_x_a$x; proxy_set_header X-A $u;", "X-A"),
    ] {
        let result = server(lines);
        let rule = format!("request_headers = {{ remove = [\"{removed}\"] }}");
        assert!(result.contains(&rule), "{lines}\n{result}");
    }
    let copied = server("auth_request /no; auth_request_set $u $upstream_http_x_a; proxy_set_header X-A $u;");
    assert!(copied.contains("copy_headers = [\"X-A\"]") && !copied.contains("remove"), "{copied}");
    let renamed =
        server("auth_request /no; auth_request_set $u $upstream_http_x_a; proxy_set_header X-B $u;");
    assert!(renamed.contains("copy_headers = { X-B = \"x-a\" }") && !renamed.contains("remove"), "{renamed}");
    let twice = server(
        "auth_request /no; auth_request_set $u $upstream_http_x_c; auth_request_set $u $upstream_http_x_b; \
         proxy_set_header X-A $u;",
    );
    assert!(twice.contains("copy_headers = { X-A = \"x-b\" }"), "{twice}");
    let script =
        toml("server { location / { fastcgi_pass 127.0.0.1:1; fastcgi_param HTTP_X_USER $unknown_user; } }");
    assert!(script.contains("params = { HTTP_X_USER = \"\" }"), "{script}");
}

#[test]
fn addresses_that_clients_may_choose_are_no_restriction() {
    for (lines, header, is_open) in [
        ("real_ip_header X-Real-IP; allow 10.0.0.1; deny all;", Some("X-Real-IP"), false),
        ("deny 10.0.0.1;", Some("X-Real-IP"), false),
        ("real_ip_header X-Forwarded-For; deny 10.0.0.1;", None, false),
        ("real_ip_header CF-Connecting-IP; deny 10.0.0.1;", Some("CF-Connecting-IP"), false),
        (
            "real_ip_header X-Forwarded-For; location /a/ { real_ip_header X-A; deny 10.0.0.1; return 204; }",
            None,
            true,
        ),
        ("real_ip_header X-Forwarded-For; location /a/ { real_ip_header X-A; return 204; }", None, false),
    ] {
        let text = format!(
            "server {{ set_real_ip_from 192.0.2.1; {lines} location / {{ proxy_pass http://127.0.0.1:1; }} }}"
        );
        let imported = import(&text);
        let result = imported.files.concat();
        assert_eq!(imported.report.open().len(), usize::from(is_open), "{text}");
        assert_eq!(result.contains("client_header = "), header.is_some(), "{result}");
        let line = header.map(|header| format!("client_header = \"{header}\""));
        assert!(line.is_none_or(|line| result.contains(&line)), "{result}");
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
    let files = "server { root data; location / { rewrite ^/(a)$ /x$1 break; try_files $uri @n; } location @n { proxy_pass http://127.0.0.1:1; } }";
    // The files have the changed path, and so has the server.
    let rewrite = "{ pattern = \"^/(a)$\", to = \"/x{1}\" }";
    let both = format!(
        "rewrite_files = {rewrite}\nfallback = {{ upstream = \"local-1\" }}\nrewrite_path = {rewrite}"
    );
    assert!(toml(files).contains(&both), "{}", toml(files));
    let only = toml("server { root /no/such; location / { rewrite ^ /x break; try_files $uri =404; } }");
    assert!(only.contains("rewrite_path = { pattern = \"^\", to = \"/x\" }"), "{only}");
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
