//! Properties of the translation, for tests and libFuzzer.

use std::path::Path;

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

    #[test]
    fn fuzz_nginx_configuration() {
        drive("nginx_configuration", WORDS, super::nginx_configuration);
    }
}
