//! Properties of the translation, for tests and libFuzzer.

use std::path::Path;

use crate::caddy;
use crate::haproxy;
use crate::nginx::include::Files;
use crate::nginx::translate;

/// Any text as a configuration of nginx: it is refused with a line, or each directive has one class and a repetition gives the
/// same files.
pub fn nginx_configuration(bytes: &[u8]) {
    let Ok((all, files)) = Files::of_text(&String::from_utf8_lossy(bytes)) else { return };
    let imported = translate(&all, &files, Path::new("/nginx.conf"));
    assert_eq!(imported.report.counts().iter().sum::<usize>(), files.count());
    assert_eq!(imported.report.entries().filter(|entry| entry.place.is_empty()).count(), 0);
    // A long input without a repeated server has a bounded result.
    let length: usize = imported.files.iter().map(String::len).sum();
    assert!(length <= (64 << 20), "{length} bytes");
    assert_eq!(translate(&all, &files, Path::new("/nginx.conf")).files, imported.files);
}

/// Any text as a configuration of HAProxy: it is refused with a line, or each line has one class and a repetition gives the same
/// files.
pub fn haproxy_configuration(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let path = Path::new("/haproxy.cfg");
    let import = || {
        let (all, count, files) = haproxy::files::Files::of_text(&text).ok()?;
        haproxy::translate(&all, count, files, path).ok().map(|imported| (imported, count))
    };
    let Some((imported, count)) = import() else { return };
    assert_eq!(imported.report.counts().iter().sum::<usize>(), count);
    assert_eq!(imported.report.entries().filter(|entry| entry.place.is_empty()).count(), 0);
    let length: usize = imported.files.iter().map(String::len).sum();
    assert!(length <= (64 << 20), "{length} bytes");
    assert_eq!(import().map(|(imported, _)| imported.files), Some(imported.files));
}

/// Any text as a Caddyfile: it is refused with a line, or each directive has one class and a repetition gives the same files.
pub fn caddy_configuration(bytes: &[u8]) {
    let Ok((all, files)) = caddy::include::Files::of_text(&String::from_utf8_lossy(bytes)) else { return };
    let imported = caddy::translate(&all, &files, Path::new("/Caddyfile"));
    assert_eq!(imported.report.counts().iter().sum::<usize>(), files.count());
    assert_eq!(imported.report.entries().filter(|entry| entry.place.is_empty()).count(), 0);
    let length: usize = imported.files.iter().map(String::len).sum();
    assert!(length <= (64 << 20), "{length} bytes");
    assert_eq!(caddy::translate(&all, &files, Path::new("/Caddyfile")).files, imported.files);
}

#[cfg(test)]
mod tests {
    use brisk_testkit::fuzz::drive;

    const WORDS: &[&[u8]] = &[
        b"server { ",
        b"location / { ",
        b"location ~ ^/a(.*)$ { ",
        b"} ",
        b"proxy_pass http://app/; ",
        b"rewrite ^/(.*)$ /b/$1 last; ",
        b"if ($arg_a != x) { return 403; } ",
        b"try_files $uri @a; ",
        b"location @a { ",
        b"return 301 https://$host$request_uri; ",
        b"map $uri $x { default 1; ~a 2; } ",
        b"set $y $x; ",
        b"map $x $x { default 1; } ",
        b"add_header X $x; ",
        b"root /srv; ",
        b"fastcgi_pass php; ",
        b"fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; ",
        b"internal; deny all; ",
        b"location ~ ^/(?!a)b { ",
        b"stream { ",
        b"listen 1; ",
        b"proxy_redirect /a/ /b/; ",
        b"\"",
        b"\\",
        b"$",
    ];

    const CADDY: &[&[u8]] = &[
        b"{\n",
        b"}\n",
        b"a.example {\n",
        b"*.example, :80 {\n",
        b"(s) {\n",
        b"&(r) {\n",
        b"import s x {args[0]}\n",
        b"handle /a/* {\n",
        b"handle_path /a* {\n",
        b"route @m {\n",
        b"invoke r\n",
        b"@m path /a *.b /c/*/d\n",
        b"@m {\npath_regexp r ^/a(.*)$\nmethod GET\n}\n",
        b"@m not remote_ip private_ranges\n",
        b"@m host b.example\n",
        b"@m file\n",
        b"respond @m 403\n",
        b"reverse_proxy /x* @m localhost:1 {\n",
        b"header_up Host {upstream_hostport}\n",
        b"uri strip_prefix /a\n",
        b"rewrite * /x{uri}?{query}\n",
        b"redir /a https://{host}{uri} 308\n",
        b"root * /srv\ntry_files {path} /index.html\nfile_server\n",
        b"php_fastcgi unix//x\n",
        b"basic_auth {\na $2a$14$x\n}\n",
        b"header ?X {re.r.1}\n",
        b"handle_errors {\n",
        b"<<E\n",
        b"\"",
        b"`",
        b"\\",
        b"{$X:y}",
    ];

    #[test]
    fn fuzz_caddy_configuration() {
        drive("caddy_configuration", CADDY, super::caddy_configuration);
    }

    #[test]
    fn fuzz_nginx_configuration() {
        drive("nginx_configuration", WORDS, super::nginx_configuration);
    }

    const HAPROXY: &[&[u8]] = &[
        b"\nfrontend f\n mode http\n bind :80\n",
        b"\nfrontend t\n mode tcp\n bind :443\n",
        b"\nlisten l\n mode http\n bind :443 ssl crt /a.pem\n server a 10.0.0.1:80 check\n",
        b"\nbackend b\n mode http\n server a 10.0.0.1:80 weight 2 cookie x\n",
        b"\ndefaults d\n mode http\n timeout client 5s\n",
        b"\n default_backend b",
        b"\n acl a path_beg /a\n acl a hdr(host) -i x.example",
        b"\n acl c hdr_end(host) .example.com\n acl c src 10.0.0.0/8",
        b"\n http-request deny if a !c or { method GET }",
        b"\n http-request set-header X %[src]{a} unless a",
        b"\n http-request replace-path /a(/.*)? \\1 if a",
        b"\n http-request set-path %[path,regsub(^/a,/b)]",
        b"\n use_backend b if { req.ssl_sni -i a.example }",
        b"\n use_backend b if { path_end .png } c",
        b"\n redirect scheme https if !{ ssl_fc }",
        b"\n http-response set-header Y %[res.hdr(z)]",
        b"\n http-request return status 200 string \"{a}$X\" if c",
        b"\n stick-table type ip size 1 store http_req_rate(10s)\n http-request track-sc0 src",
        b"\n http-request deny if { sc_http_req_rate(0) gt 5 }",
        b"\nuserlist u\n user a password $6$b\n",
        b"\n http-request auth unless { http_auth(u) }",
        b" if ",
        b" or ",
        b" { ",
        b" } ",
        b"!",
        b"\"",
        b"'",
        b"\\",
        b"%[",
        b"\n",
    ];

    #[test]
    fn fuzz_haproxy_configuration() {
        drive("haproxy_configuration", HAPROXY, super::haproxy_configuration);
    }
}
