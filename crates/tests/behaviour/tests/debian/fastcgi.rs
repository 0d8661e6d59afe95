//! PHP behind FastCGI: scripts of PHP-FPM, a front controller, files first, and connections.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;

use brisk_behaviour::site::{NAME, Site};
use brisk_testkit::php::PhpFpm;
use brisk_testkit::process::{run, wait_until};
use serde_json::Value;
use tempfile::TempDir;

/// Prints the variables of the request.
const VARIABLES: &str = r"<?php
header('Content-Type: application/json');
header('X-Script: ' . basename(__FILE__));
$body = file_get_contents('php://input');
echo json_encode(['server' => $_SERVER, 'get' => $_GET, 'post' => $_POST, 'cookie' => $_COOKIE,
  'length' => strlen($body), 'sum' => md5($body), 'pid' => getmypid(),
  'files' => array_map(fn($file) => [$file['size'], md5_file($file['tmp_name'])], $_FILES)]);
";

/// A front controller as of frameworks: it reads the path itself.
const FRONT: &str = r"<?php
$path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
switch ($path) {
  case '/redirect': header('Location: /target'); break;
  case '/moved': header('Location: https://other.test/', true, 301); break;
  case '/cookies': setcookie('a', '1'); setcookie('b', '2'); break;
  case '/missing': http_response_code(404); echo 'nothing here'; break;
  case '/length': header('Content-Length: 5'); echo 'hello'; break;
  case '/none': http_response_code(204); break;
  case '/large': for ($i = 0; $i < 3000; $i++) { echo str_repeat('x', 1024); } break;
  case '/slow': echo 'first'; ob_flush(); flush();
    while (!file_exists(__DIR__ . '/../go')) { usleep(10000); clearstatcache(); } echo 'second'; break;
  case '/notice': error_log('a complaint of the application'); echo 'noticed'; break;
  case '/wait': file_put_contents(__DIR__ . '/../began', ''); ignore_user_abort(false);
    for ($i = 0; $i < 6000; $i++) { echo str_repeat(' ', 8192); flush(); usleep(10000);
      if (connection_aborted()) { break; } } break;
  default: echo 'front ', $path, ' ', $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['QUERY_STRING'];
}
";

/// A folder of a site with files and scripts.
fn folder() -> TempDir {
    let folder = TempDir::with_prefix("brisk-test-site-").expect("a temporary folder");
    for (name, text) in [
        ("public/index.php", FRONT),
        ("public/variables.php", VARIABLES),
        ("public/admin/index.php", VARIABLES),
        ("public/style.css", "body {}"),
        ("public/docs/index.html", "<p>docs</p>"),
        ("public/upload/photo.jpg", "<?php echo 'executed';"),
        ("public/other.phtml", "<?php secret();"),
        ("public/.git/config.php", "<?php secret();"),
    ] {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        fs::write(file, text).expect("a file");
    }
    folder
}

/// The tables of a site with its files first and PHP for all other paths.
fn tables(php: &str, folder: &Path, further: &str) -> String {
    let root = folder.join("public").display().to_string();
    format!(
        "\n[[host.route]]\npath = \"/\"\nstatic = {root:?}\nfallback = {{ upstream = \"php\" }}\n\n[upstream.php]\n\
         servers = [{php:?}]\ncgi = {{ root = {root:?}, script = \"index.php\"{further} }}\n"
    )
}

fn site(php: &PhpFpm, folder: &TempDir, further: &str) -> Site {
    Site::with(&tables(&php.url(), folder.path(), further))
}

/// Requests a path and returns status, head and body.
fn ask(site: &Site, options: &[&str], path: &str) -> (String, String, String) {
    let text = site.curl(&[&["--include", "--path-as-is"], options].concat(), path).success();
    // Expect: 100-continue adds an interim response.
    let text = match text.split_once("\r\n\r\n") {
        Some((interim, rest))
            if interim.to_ascii_lowercase().contains(" 100") && interim.lines().count() == 1 =>
        {
            rest.to_owned()
        }
        _ => text,
    };
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).unwrap_or_default().to_owned();
    (status, head.to_ascii_lowercase(), body.to_owned())
}

fn variables(site: &Site, options: &[&str], path: &str) -> Value {
    let (_, head, body) = ask(site, options, path);
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {head}\n{body}"))
}

#[test]
fn a_script_gets_the_variables_that_applications_expect() {
    let (php, folder) = (PhpFpm::start(3, ""), folder());
    let further = ", path_info = true, params = { APP_ENV = \"live\", FROM = \"{client.address}/{request.header.x-a}\" }";
    let site = site(&php, &folder, further);
    let root = folder.path().join("public").display().to_string();
    for (version, protocol) in [("--http1.1", "HTTP/1.1"), ("--http2", "HTTP/2.0")] {
        let headers = ["-H", "X-A: 1", "-H", "X_A: forged", "-H", "Proxy: evil", "-H", "Cookie: a=1; b=2"];
        let found = variables(&site, &[&[version], &headers[..]].concat(), "/variables.php/in/fo?a=b&c=%20d");
        let server = &found["server"];
        for (name, value) in [
            ("SCRIPT_FILENAME", &*format!("{root}/variables.php")),
            ("SCRIPT_NAME", "/variables.php"),
            ("PATH_INFO", "/in/fo"),
            ("PHP_SELF", "/variables.php/in/fo"),
            ("DOCUMENT_URI", "/variables.php/in/fo"),
            ("DOCUMENT_ROOT", &root),
            ("REQUEST_URI", "/variables.php/in/fo?a=b&c=%20d"),
            ("QUERY_STRING", "a=b&c=%20d"),
            ("REQUEST_METHOD", "GET"),
            ("CONTENT_TYPE", ""),
            ("CONTENT_LENGTH", ""),
            ("SERVER_PROTOCOL", protocol),
            ("REQUEST_SCHEME", "https"),
            ("HTTPS", "on"),
            ("GATEWAY_INTERFACE", "CGI/1.1"),
            ("REDIRECT_STATUS", "200"),
            ("REMOTE_ADDR", "127.0.0.1"),
            ("SERVER_ADDR", "127.0.0.1"),
            ("SERVER_NAME", NAME),
            ("SERVER_PORT", &site.brisk.https().port().to_string()),
            ("HTTP_HOST", &format!("{NAME}:{}", site.brisk.https().port())),
            ("HTTP_X_A", "1"),
            ("HTTP_COOKIE", "a=1; b=2"),
            ("APP_ENV", "live"),
            ("FROM", "127.0.0.1/1"),
        ] {
            assert_eq!(server[name], value, "{name}");
        }
        assert_eq!(server["HTTP_PROXY"], Value::Null);
        assert_eq!((&found["get"]["c"], &found["cookie"]["b"]), (&" d".into(), &"2".into()));
    }
}

#[test]
fn files_come_first_and_no_source_text_is_sent() {
    let (php, folder) = (PhpFpm::start(3, "security.limit_extensions ="), folder());
    let site = site(&php, &folder, "");
    for (path, status, body) in [
        ("/style.css", "200", "body {}"),
        ("/docs/", "200", "<p>docs</p>"),
        ("/", "200", "front / /index.php "),
        ("/users/7?page=2", "200", "front /users/7 /index.php page=2"),
        ("/index.php", "200", "front /index.php /index.php "),
        ("/index.php/a", "200", "front /index.php/a /index.php "),
        ("/INDEX.PHP", "200", "front /INDEX.PHP /index.php "),
        ("/missing.php", "200", "front /missing.php /index.php "),
        ("/other.phtml", "200", "front /other.phtml /index.php "),
        ("/.git/config.php", "200", "front /.git/config.php /index.php "),
        ("/admin", "301", ""),
        // The uploads of users are never scripts, although this PHP executes all extensions.
        ("/upload/photo.jpg/x.php", "200", "front /upload/photo.jpg/x.php /index.php "),
        ("/upload/photo.jpg/", "200", "front /upload/photo.jpg/ /index.php "),
        ("/index%2ephp", "200", "front /index%2ephp /index.php "),
        ("/a/../index.php", "200", "front /index.php /index.php "),
        ("/a%00.php", "400", ""),
    ] {
        let (found, head, text) = ask(&site, &[], path);
        assert_eq!(found, status, "{path}: {head}");
        assert!(!text.contains("<?php") && !text.contains("executed"), "{path}: {text}");
        if status == "200" {
            assert_eq!(text, body, "{path}");
        }
    }
    let admin = ask(&site, &[], "/admin?a=b").1;
    assert!(admin.contains("location: /admin/?a=b"), "{admin}");
    assert_eq!(variables(&site, &[], "/admin/?x=1")["server"]["SCRIPT_NAME"], "/admin/index.php");
    assert_eq!(variables(&site, &[], "/variables.php")["server"]["PATH_INFO"], "");
}

#[test]
fn bodies_of_any_framing_arrive_whole() {
    let (php, folder) = (
        PhpFpm::start(3, "php_admin_value[post_max_size] = 50M\nphp_admin_value[upload_max_filesize] = 50M"),
        folder(),
    );
    let site = site(&php, &folder, "");
    let file = folder.path().join("file");
    let bytes: Vec<u8> = (0..5_000_000_u32).map(|number| (number % 251) as u8).collect();
    fs::write(&file, &bytes).expect("a file");
    let sum = run(
        brisk_testkit::process::command("openssl").args(["dgst", "-md5", "-r"]).arg(&file),
        b"",
        brisk_behaviour::site::LIMIT,
    )
    .success();
    let sum = sum.split(' ').next().unwrap_or_default();
    for version in ["--http1.1", "--http2"] {
        let form = variables(&site, &[version, "--data", "a=1&b=x%20y"], "/variables.php");
        assert_eq!((&form["post"]["b"], &form["server"]["CONTENT_LENGTH"]), (&"x y".into(), &"11".into()));
        let upload = format!("@{}", file.display());
        for framing in [
            &["-H", "Content-Type: a/b"][..],
            &["-H", "Transfer-Encoding: chunked", "-H", "Content-Type: a/b"],
        ] {
            let sent = [&[version, "--data-binary", &upload], framing].concat();
            let found = variables(&site, &sent, "/variables.php");
            assert_eq!((&found["length"], &found["sum"]), (&5_000_000.into(), &sum.into()), "{sent:?}");
            assert_eq!(found["server"]["CONTENT_LENGTH"], "5000000");
        }
        let field = format!("photo=@{}", file.display());
        let found = variables(&site, &[version, "--form", &field], "/variables.php");
        assert_eq!(found["files"]["photo"], serde_json::json!([5_000_000, sum]));
        let text = site.curl(&[version, "--data", "x=1", "-X", "PUT"], "/put").success();
        assert_eq!(text, "front /put /index.php ");
    }
}

#[test]
fn responses_have_the_status_and_headers_of_the_application() {
    let (php, folder) = (PhpFpm::start(3, ""), folder());
    let site = site(&php, &folder, "");
    for version in ["--http1.1", "--http2"] {
        for (path, status, line) in [
            ("/redirect", "302", "location: /target"),
            ("/moved", "301", "location: https://other.test/"),
            ("/cookies", "200", "set-cookie: b=2"),
            ("/missing", "404", "content-type: text/html"),
            ("/length", "200", "content-length: 5"),
            ("/none", "204", ""),
        ] {
            let (found, head, _) = ask(&site, &[version], path);
            assert_eq!(found, status, "{path}");
            assert!(head.contains(line), "{path}: {head}");
            assert!(!head.contains("\r\nstatus:"), "{head}");
        }
        assert_eq!(ask(&site, &[version], "/missing").2, "nothing here");
        assert_eq!(site.curl(&[version, "--head"], "/large").success().split(' ').nth(1), Some("200"));
        assert_eq!(site.curl(&[version], "/large").success().len(), 3000 << 10);
    }
    // The first part arrives before the script goes on.
    let mut connection = site.connect();
    write!(connection, "GET /slow HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n").expect("a server");
    let mut text = String::new();
    let mut buffer = [0; 4096];
    while !text.contains("first") {
        let read = connection.read(&mut buffer).expect("a response");
        assert!(read > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
    assert!(!text.contains("second"));
    fs::write(folder.path().join("go"), "").expect("a file");
    connection.read_to_string(&mut text).expect("the rest");
    assert!(text.contains("second"), "{text}");
    assert_eq!(ask(&site, &[], "/notice").2, "noticed");
    site.brisk.log_with("a complaint of the application");
}

#[test]
fn an_abandoned_request_ends_its_script() {
    let (php, folder) = (PhpFpm::start(1, ""), folder());
    let site = site(&php, &folder, "");
    let mut connection = site.connect();
    write!(connection, "GET /wait HTTP/1.1\r\nHost: {NAME}\r\n\r\n").expect("a server");
    let exists = |name: &str| folder.path().join(name).exists().then_some(());
    wait_until("the script", || exists("began"));
    drop(connection);
    // PHP ends a script whose output nobody takes; its only process is free again.
    assert_eq!(site.curl(&[], "/again").success(), "front /again /index.php ");
}

#[test]
fn connections_are_kept_only_if_the_operator_says_so() {
    // A request waits until the connection is free again, which may be after the response has arrived.
    for (pool, is_kept) in [("", false), ("pool = { idle_connections = 1, max_connections = 1 }\n", true)] {
        let (php, folder) = (PhpFpm::start(4, ""), folder());
        let root = folder.path().join("public").display().to_string();
        let tables = format!(
            "\n[[host.route]]\npath = \"/\"\nupstream = \"php\"\n\n[upstream.php]\nservers = [{:?}]\n{pool}\
             cgi = {{ root = {root:?}, files = \"none\", script = \"index.php\" }}\n",
            php.url()
        );
        let site = Site::custom("server.workers = 1\n", &tables, |setup| setup);
        for path in ["/a", "/length", "/missing", "/variables.php", "/cookies", "/none"] {
            drop(ask(&site, &[], path));
        }
        drop(site.curl(&["--head"], "/a").success());
        drop(site.curl(&["--data", "x=1"], "/a").success());
        let opened = site.brisk.metrics().sum("brisk_upstream_connections_total", &[]);
        assert_eq!(opened as u32, if is_kept { 1 } else { 8 });
    }
}

#[test]
fn a_restarted_server_is_used_again() {
    let (mut php, folder) = (PhpFpm::start(2, ""), folder());
    let tables = tables(&php.url(), folder.path(), "") + "pool = { idle_connections = 2 }\n";
    let checks = "health = { path = \"/ping\", interval = \"1s\", timeout = \"1s\", healthy_after = 1, unhealthy_after = 1 }\n";
    let site = Site::with(&(tables + checks));
    let served = |path: &str| {
        wait_until(path, || {
            let (status, _, body) = ask(&site, &[], path);
            // 503: a check exceeded its timeout on a busy machine.
            (status != "503").then_some(body)
        })
    };
    let becomes = |healthy: u32| {
        wait_until(&format!("{healthy} healthy servers"), || {
            let now = site.brisk.metrics().sum("brisk_upstream_healthy", &["group=\"php\""]);
            (now.round() as u32 == healthy).then_some(())
        });
    };
    assert_eq!(served("/a"), "front /a /index.php ");
    php.restart(2, "");
    assert_eq!(served("/b"), "front /b /index.php ");
    php.restart(2, "ping.path = /another");
    becomes(0);
    site.brisk.log_with("upstream server is down");
    php.restart(2, "");
    becomes(1);
    site.brisk.log_with("upstream server is up again");
    assert_eq!(served("/c"), "front /c /index.php ");
}
