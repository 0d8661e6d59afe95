//! Changed paths reach the location that nginx chooses, or the routes refuse them.

use super::*;

const PASS: &str = "proxy_pass http://127.0.0.1:1;";

#[test]
fn changed_paths_send_no_source_text() {
    let scripts = r"location ~ \.php$ { fastcgi_pass unix:/x; }";
    for text in [
        format!("location / {{ rewrite ^/([a-z]+)$ /$1.php last; }} {scripts}"),
        format!("location / {{ rewrite ^/([a-z]+)$ /$1.php; }} {scripts}"),
        format!("rewrite ^/([a-z]+)$ /$1.php break; location / {{ }} {scripts}"),
        format!("location ^~ /p/ {{ rewrite ^/p/(.*)$ /$1 last; }} location / {{ }} {scripts}"),
        format!("location /p/ {{ rewrite ^/p/(.*)/raw$ /$1 last; }} location / {{ }} {scripts}"),
        format!("location / {{ rewrite ^/([a-z]+)$ /$1.php break; }} {scripts}"),
        format!("location /p/ {{ try_files /a.php =404; }} {scripts}"),
        format!("location /p/ {{ try_files $uri.PHP =404; }} {scripts}"),
        format!(
            "location / {{ rewrite ^/a/(.*)$ /x/$1 break; rewrite ^/([a-z]+)$ /$1.php break; }} {scripts}"
        ),
    ] {
        refuses(&format!("server {{ root /w; {text} }}"), "rewrite_path");
    }
    // The path of the client has the same end, and is that of the scripts already.
    let kept = format!("server {{ root /w; location /p/ {{ rewrite ^/p/(.*)$ /f/$1 last; }} {scripts} }}");
    assert!(toml(&kept).contains("to = \"/f/{1}\"") && !toml(&kept).contains("501"), "{}", toml(&kept));
    let front =
        format!("server {{ root /w; location / {{ rewrite ^/(.*)$ /index.php?p=$1 last; }} {scripts} }}");
    assert!(toml(&front).contains("to = \"/index.php?p={1}\""), "{}", toml(&front));
}

#[test]
fn changes_without_a_counterpart_refuse_their_paths() {
    for text in [
        "location / { root /srv/app; rewrite ^ /public$uri break; }",
        "location / { root /srv/app; rewrite ^/(?!public/)(.*)$ /public/$1 break; }",
        "location / { proxy_pass http://127.0.0.1:1; rewrite ^ /public$uri break; }",
    ] {
        let result = toml(&format!("server {{ {text} }}"));
        let first = result.split("[[host.route]]").nth(1).unwrap_or_default();
        assert!(first.contains("respond = { status = 501 }") && !first.contains("when"), "{text}\n{result}");
    }
    // Without a flag, nginx compares the changed path with the second expression.
    let second =
        toml("server { location / { root /w; rewrite ^/a/(.*)$ /x/$1; rewrite ^/b/(.*)$ /y/$1 break; } }");
    let refused = "when = { path_regex = \"^/b/(.*)$\" }\nrespond = { status = 501 }";
    assert!(second.contains(refused) && second.contains("to = \"/x/{1}\""), "{second}");
    // The expression matches no path of this location.
    let other = toml(&format!("server {{ rewrite ^/o/(?=a)b /x break; location /p/ {{ {PASS} }} }}"));
    assert!(other.contains("path = \"/p/\"\nupstream = "), "{other}");
    let named = "location / { root /w; try_files $uri @y; } location ~ [.]php$ { fastcgi_pass 127.0.0.1:1; } location @y";
    let several = toml(&format!(
        "server {{ {named} {{ rewrite ^/a/(.*)$ /b/$1 break; rewrite ^/(.*)$ /index.php?q=$1 last; }} }}"
    ));
    let refused = "when = { path_regex = \"^/a/(.*)$\" }\nrespond = { status = 501 }";
    assert!(several.contains(refused) && several.contains("fallback = { upstream = "), "{several}");
    refuses(
        &format!(
            "server {{ {named} {{ if ($arg_a) {{ return 403; }} rewrite ^/(.*)$ /index.php?q=$1 last; }} }}"
        ),
        "fallback",
    );
}

#[test]
fn several_changes_of_a_path_are_a_list() {
    let changes = "rewrite ^/a/(.*)$ /x/$1 break; rewrite ^/b/(.*)$ /y/$1 break;";
    let list = "rewrite_path = [{ pattern = \"^/a/(.*)$\", to = \"/x/{1}\" }, { pattern = \"^/b/(.*)$\", to = \"/y/{1}\" }]";
    let all = toml(&format!("server {{ location / {{ root /w; {changes} }} }}"));
    assert!(all.contains(list) && !all.contains("501"), "{all}");
    // Other paths are not those of the folder without the path of the location.
    let part =
        "location /a/ { root /w; } location ~ ^/a/.*[.]txt$ { root /w; rewrite ^/a/b/(.*)$ /x/$1 break; }";
    let part = toml(&format!("server {{ {part} }}"));
    let list = "[{ pattern = \"^/a/b/(.*)$\", to = \"/x/{1}\" }, { pattern = \"^.*$\", to = \"{0}\" }]";
    assert!(part.contains(&format!("static = \"/w\"\nrewrite_path = {list}")), "{part}");
}

#[test]
fn paths_without_a_file_are_changed_for_the_same_location_only() {
    let site = |changes: &str, rest: &str| {
        let scripts = r"location ~ \.php$ { fastcgi_pass unix:/x; }";
        toml(&format!(
            "server {{ root /w; if (!-e $request_filename) {{ {changes} }} location / {{ }} {scripts} {rest} }}"
        ))
    };
    let first = "rewrite ^/a/(.*)$ /$1 last;";
    let kept = "rewrite_files = [{ pattern = \"^/a/(.*)$\", to = [\"{0}\", \"/{1}\"] }]";
    // The first group is not the end of the path of the client, and so may be that of a script.
    for second in
        ["rewrite ^/c/x(.*)$ /$1 last;", "rewrite ^/c/(.*)/raw$ /$1 last;", "rewrite ^/c/(.*)$ /i.php last;"]
    {
        let result = site(&format!("{first} {second}"), "");
        assert!(result.contains(kept), "{second}\n{result}");
    }
    let both = format!("{first} rewrite ^/c/(.*)$ /$1 last;");
    assert!(!site(&both, "location /private/ { deny all; }").contains("rewrite_files"));
    assert!(
        !site(&both.replace("/$1", "/other/$1"), "location /other/ { root /o; }").contains("rewrite_files")
    );
    let app = "location /b/ { try_files $uri @app; } location @app { proxy_pass http://127.0.0.1:1; }";
    let refused = "rewrite ^/b/(.*)x$ /private/f last; rewrite ^/b/(.*)y$ /b/$1 last;";
    let result = site(refused, &format!("location /private/ {{ deny all; }} {app}"));
    assert!(!result.contains("to = \"/private/f\""), "{result}");
    let several = format!("rewrite ^/b/(.*)$ /a/$1; {first}");
    assert!(!site(&several, "").contains("rewrite_files"));
}

#[test]
fn last_entries_of_try_files_reach_no_restricted_location() {
    let files = "location / { root /no; try_files /$http_x$uri /priv/a$uri; } location /priv/ { root /no; }";
    refuses(&format!("server {{ {files} location ~ ^/priv/ab {{ deny all; }} }}"), "rewrite_");
}

#[test]
fn refusals_behind_a_change_without_a_flag_are_kept() {
    let target = format!("location /b/ {{ {PASS} }}");
    let refused = "respond = { status = 501 }";
    for (text, part) in [
        (
            "location /a/ { rewrite ^/a/(.*)$ /b/$1; if ($arg_token = \"\") { return 403; } }",
            "path_regex = \"^/a/(.*)$\" }\n",
        ),
        ("location /a/ { rewrite ^ /b/; return 403; }", "path = \"/a/\"\n"),
        (
            "rewrite ^/a/(.*)$ /b/$1; if ($arg_x) { return 403; } location /a/ { return 204; }",
            "^/a/(.*)$\" }\n",
        ),
        ("location /a/ { rewrite ^/a/(.*)$ /b/$1; return 302 /c; }", "path_regex = \"^/a/(.*)$\" }\n"),
    ] {
        let result = toml(&format!("server {{ {text} {target} }}"));
        assert!(result.contains(&format!("{part}{refused}")), "{text}\n{result}");
        assert!(!result.contains("rewrite_path"), "{text}\n{result}");
    }
    for text in [
        // nginx executes the directives of the new location, and `last` ends those of this one.
        "rewrite ^/a/(.*)$ /b/$1; location /a/ { return 403; }",
        "location /a/ { rewrite ^/a/(.*)$ /b/$1 last; return 403; }",
    ] {
        let result = toml(&format!("server {{ {text} {target} }}"));
        assert!(result.contains("rewrite_path = ") && !result.contains(refused), "{text}\n{result}");
    }
}

#[test]
fn one_file_for_all_paths_opens_no_other_file() {
    for text in [
        "location / { root /srv/app; rewrite ^ /public/index.html break; }",
        "location /spa/ { root /srv/app; try_files /public/index.html =404; }",
        "location = /one { root /srv/app; try_files /public/index.html =404; }",
    ] {
        let result = toml(&format!("server {{ {text} }}"));
        let expected =
            "static = \"/srv/app\"\nrewrite_path = { pattern = \"^\", to = \"/public/index.html\" }";
        assert!(result.contains(expected) && !result.contains("fallback"), "{text}\n{result}");
    }
    refuses(
        "server { root /w; location /a/ { alias /srv/; try_files /f.html =404; } }",
        "static = \"/w\"\nfall",
    );
}

#[test]
fn restrictions_of_expressions_are_those_of_changed_paths() {
    let keys = r"location ~ \.key$ { deny all; }";
    let files = "location /files/ { root /no/srv; }";
    for text in [
        format!("location ^~ /p/ {{ rewrite ^/p/(.*)$ /files/$1 last; }} {keys}"),
        format!("location ~ ^/p/ {{ rewrite ^/p/(.*)$ /files/$1 last; }} {keys}"),
        format!("location /p/ {{ rewrite ^/p/(.*)$ /files/$1.key last; }} {keys}"),
        format!("location /p/ {{ rewrite ^/p/(.*)/x$ /files/$1 last; }} {keys}"),
        "location /p/ { rewrite ^/p/(.*)$ /files/$1 last; } location ~ files/secret { deny all; }".to_owned(),
        "location /p/ { rewrite ^/p/x$ /files/a.key last; } location ~ ^/(?!open/).*[.]key$ { deny all; }"
            .to_owned(),
        "location /p/ { root /no; try_files $uri /files/a.key; } location ~ ^/(?!open/).*[.]key$ { deny all; }"
            .to_owned(),
    ] {
        let result = toml(&format!("server {{ {text} {files} }}"));
        assert!(result.contains("respond = { status = 501 }"), "{text}\n{result}");
        assert!(!result.contains("rewrite_path") && !result.contains("fallback"), "{text}\n{result}");
    }
    for pattern in [r"\.key$", r"/\.", "[.]key$"] {
        let text = format!(
            "server {{ location ~ {pattern} {{ deny all; }} location /p/ {{ rewrite ^/p/(.*)$ /files/$1 last; }} {files} }}"
        );
        let result = toml(&text);
        assert!(result.contains("to = \"/files/{1}\"") && !result.contains("501"), "{text}\n{result}");
    }
}

#[test]
fn folders_of_an_alias_of_an_outer_location_keep_the_rest_of_a_changed_path() {
    let text = "server { location /a/ { alias /srv/x/; auth_basic x; auth_basic_user_file u; \
                location /a/b/ { auth_basic off; rewrite ^/a/b/(.*)$ /a/b/$1.html break; } } }";
    let result = toml(text);
    let expected = "static = \"/srv/x\"\nrewrite_path = { pattern = \"^/a/b/(.*)$\", to = \"/b/{1}.html\" }";
    assert!(result.contains(expected), "{result}");
}
