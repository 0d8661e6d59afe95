//! A wiki in PHP with a front controller: `DokuWiki`.

use std::fs;
use std::path::Path;

use brisk_behaviour::site::{LIMIT, NAME, Site};
use brisk_testkit::php::PhpFpm;
use brisk_testkit::process::{command, run};
use tempfile::TempDir;

use super::snippet;

/// Settings of Debian's package.
const CONF: &str = "/etc/dokuwiki";

/// The wiki with PHP-FPM behind brisk.
struct Wiki {
    site: Site,
    folder: TempDir,
    _php: PhpFpm,
}

/// Folder of settings, folder of pages, and a file that PHP executes first, which names them.
fn prepare(folder: &Path) {
    let conf = folder.join("conf");
    fs::create_dir(&conf).expect("a folder");
    for file in fs::read_dir(CONF).expect("the settings of DokuWiki") {
        let file = file.expect("an entry");
        // Users and their rights are links to files that not every user may read; the test has its own.
        if file.file_type().expect("a type").is_file() {
            fs::copy(file.path(), conf.join(file.file_name())).expect("a file");
        }
    }
    for name in [
        "attic",
        "cache",
        "index",
        "locks",
        "log",
        "media",
        "media_attic",
        "media_meta",
        "meta",
        "pages",
        "tmp",
    ] {
        fs::create_dir_all(folder.join("data").join(name)).expect("a folder");
    }
    let settings = format!(
        "<?php\n$conf['savedir'] = '{}';\n$conf['userewrite'] = 1;\n$conf['useacl'] = 1;\n$conf['superuser'] = 'anna';\n\
         $conf['securecookie'] = 1;\n",
        folder.join("data").display()
    );
    fs::write(conf.join("local.php"), settings).expect("a file");
    let hash = run(command("openssl").args(["passwd", "-1", "secret"]), b"", LIMIT).success();
    fs::write(conf.join("users.auth.php"), format!("anna:{}:Anna:anna@site.test:user\n", hash.trim()))
        .expect("a file");
    fs::write(conf.join("acl.auth.php"), "* @ALL 1\n* @user 8\n").expect("a file");
    fs::write(folder.join("first.php"), format!("<?php define('DOKU_CONF', '{}/');\n", conf.display()))
        .expect("a file");
}

impl Wiki {
    fn start() -> Self {
        let title = "PHP with a front controller";
        let folder = TempDir::with_prefix("brisk-test-wiki-").expect("a temporary folder");
        prepare(folder.path());
        let first = folder.path().join("first.php");
        let settings = format!(
            "php_admin_value[auto_prepend_file] = {}\nphp_admin_value[upload_max_filesize] = 50M\n\
             php_admin_value[post_max_size] = 50M",
            first.display()
        );
        let php = PhpFpm::start(4, &settings);
        let socket = php.socket().display().to_string();
        let tables = snippet(title, "toml").replace("/run/php/php-fpm.sock", &socket);
        Self { site: Site::with(&format!("\n{tables}")), folder, _php: php }
    }

    /// Requests a path as a browser that keeps cookies. Returns head and content of the response.
    fn browse(&self, options: &[&str], path: &str) -> (String, String) {
        let jar = self.folder.path().join("cookies").display().to_string();
        let usual = ["--include", "--cookie", &jar, "--cookie-jar", &jar];
        let text = self.site.curl(&[&usual, options].concat(), path).success();
        // Expect: 100-continue adds an interim response.
        let text = text.strip_prefix("HTTP/2 100 \r\n\r\n").map_or(text.clone(), str::to_owned);
        let (head, content) = text.split_once("\r\n\r\n").expect("a head");
        (head.to_ascii_lowercase(), content.to_owned())
    }

    /// The security token in the forms of a page.
    fn token(&self, path: &str) -> String {
        let (head, content) = self.browse(&[], path);
        let (_, rest) = content
            .split_once("name=\"sectok\" value=\"")
            .unwrap_or_else(|| panic!("no token in {head}\n{content}"));
        rest.split('"').next().expect("an end").to_owned()
    }
}

#[test]
fn a_wiki_in_php_has_pages_uploads_and_secure_links_behind_its_front_controller() {
    let wiki = Wiki::start();
    let here = wiki.site.url("");
    // Links and redirects have the scheme and the port that the client uses.
    let (head, content) = wiki.browse(&[], "/");
    assert!(head.starts_with("http/2 200"), "{head}\n{content}");
    let head = wiki.browse(&[], "/a:page").0;
    assert!(head.starts_with("http/2 200") && head.contains("; secure; httponly"), "{head}");

    let token = wiki.token("/start?do=login");
    let login = ["--data", "do=login&id=start&u=anna&p=secret", "--data-urlencode"];
    let head = wiki.browse(&[&login[..], &[&format!("sectok={token}")]].concat(), "/start?do=login").0;
    assert!(head.starts_with("http/2 302") && head.contains(&format!("location: {here}/start")), "{head}");
    assert!(head.contains("; secure") && head.contains("; httponly"), "{head}");

    // A page with several segments and other letters in its name.
    let path = "/raum:%C3%BCbersicht";
    let token = wiki.token(&format!("{path}?do=edit"));
    let save = [
        "--data",
        "do[save]=1&rev=0&prefix=.&suffix=&summary=x",
        "--data-urlencode",
        "wikitext=Some **text** & more",
    ];
    let head = wiki.browse(&[&save[..], &["--data-urlencode", &format!("sectok={token}")]].concat(), path).0;
    assert!(head.starts_with("http/2 302") && head.contains(&format!("location: {here}/raum:")), "{head}");
    let feed = wiki.browse(&[], "/feed.php").1;
    assert!(feed.contains(&format!("{here}/raum:")) && !feed.contains("http://site.test"), "{feed}");
    assert!(wiki.browse(&[], "/_export/raw/raum:%C3%BCbersicht").1.contains("Some **text** & more"));
    let (head, content) = wiki.browse(&["--http1.1"], path);
    let canonical = format!("<link rel=\"canonical\" href=\"{here}/raum:");
    assert!(content.contains(&canonical), "{canonical}\n{content}");
    assert!(
        head.starts_with("http/1.1 200") && content.contains("Some <strong>text</strong> &amp; more"),
        "{content}"
    );

    // A file, which is larger than a buffer of brisk.
    let file = wiki.folder.path().join("numbers.vtt");
    let text = "WEBVTT, and nothing else\n".repeat(150_000);
    fs::write(&file, &text).expect("a file");
    let token = format!("sectok={}", wiki.token("/lib/exe/mediamanager.php?ns="));
    let upload = format!("upload=@{};type=text/vtt", file.display());
    let (head, content) = wiki.browse(
        &["--form", &token, "--form", "ns=", "--form", "mediaid=numbers.vtt", "--form", &upload],
        "/lib/exe/mediamanager.php?ns=",
    );
    assert!(head.contains("http/2 200") && content.contains("numbers.vtt"), "{head}\n{content}");
    let (head, content) = wiki.browse(&["--compressed"], "/_media/numbers.vtt");
    let start: String = content.chars().take(500).collect();
    assert!(content == text, "{head}\n{start}");
    let head = wiki.browse(&["--range", "100-199"], "/_media/numbers.vtt").0;
    assert!(head.starts_with("http/2 206") && head.contains("content-length: 100"), "{head}");

    files_of_the_design(&wiki);
    assert!(wiki.site.brisk.logged("/lib/exe/mediamanager.php").contains(NAME));
}

/// Files of the design come from brisk, and no other files do: their paths are names of pages.
fn files_of_the_design(wiki: &Wiki) {
    for (path, status, is_page) in [
        ("/lib/images/email.png", "200", false),
        ("/lib/tpl/dokuwiki/images/favicon.ico", "200", false),
        ("/lib/exe/css.php", "200", false),
        ("/lib/tpl/index.php", "404", false),
        ("/lib/scripts/../../inc/init.php", "200", true),
        ("/conf/users.auth.php", "200", true),
        ("/data/meta/_htcookiesalt", "200", true),
    ] {
        let (head, content) = wiki.browse(&["--path-as-is"], path);
        assert!(head.starts_with(&format!("http/2 {status}")), "{path}: {head}");
        assert!(!content.contains("anna:$1$") && !content.contains("<?php"), "{path}: {content}");
        assert_eq!(content.contains("DokuWiki]</title>"), is_page, "{path}");
    }
}
