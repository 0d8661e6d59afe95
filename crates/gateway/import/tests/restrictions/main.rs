//! Restrictions of nginx are never lost: a restriction that brisk does not have becomes a refusal, and the report names it.

mod addresses;
mod changed;
mod requests;

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
    assert!(result.contains("upstream = \"local-1\"\ninternal = true"), "{result}");
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
    let pairs = (0..4000).map(|number| {
        format!("location /a{number} {{ internal; }} location ~ ^/x{number} {{ return 204; }} ")
    });
    let result = toml(&format!("server {{ {} }}", pairs.collect::<Vec<_>>().concat()));
    assert!(result.contains("NOT CARRIED"), "16,000,000 comparisons");
    let long = format!("server {{ location /{} {{ deny all; }} }}", "a/".repeat(3000));
    assert_eq!(import(&long).report.open().len(), 1, "the path has 6,001 bytes");
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
