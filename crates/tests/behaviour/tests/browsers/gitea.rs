//! Gitea on a Unix socket. Its build takes minutes: `make gitea` installs it and runs this test.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::Command;

use brisk_behaviour::page::{block, section};
use brisk_behaviour::site::{LIMIT, Site};
use brisk_testkit::process::{Process, command, run, wait_until};
use brisk_testkit::programs::of_target;
use tempfile::TempDir;

const PAGE: &str = include_str!("../../../../../docs/applications.md");

const TITLE: &str = "Gitea on a Unix socket";

/// Settings that the page leaves to the operator. The socket of the test is in the folder.
const SETTINGS: &str = "
RUN_MODE = prod
I_AM_BEING_UNSAFE_RUNNING_AS_ROOT = true
WORK_PATH = FOLDER
[database]
DB_TYPE = sqlite3
PATH = FOLDER/gitea.db
[security]
INSTALL_LOCK = true
[repository]
ROOT = FOLDER/repositories
ENABLE_PUSH_CREATE_USER = true
[log]
LEVEL = info
[oauth2]
ENABLED = false
";

/// A running Gitea behind brisk, with the user `anna`.
struct Forge {
    site: Site,
    server: Process,
    folder: TempDir,
}

impl Forge {
    fn start() -> Self {
        let (program, data) = of_target("gitea");
        let folder = TempDir::with_prefix("brisk-test-gitea-").expect("a temporary folder");
        let base = folder.path().display().to_string();
        let socket = format!("{base}/gitea.sock");
        let tables = block(section(PAGE, TITLE), "toml").replace("/run/gitea/gitea.sock", &socket);
        let site = Site::with(&format!("\n{tables}"));
        let root = format!("https://localhost:{}/", site.brisk.https().port());
        let server = block(section(PAGE, TITLE), "ini")
            .replace("/run/gitea/gitea.sock", &socket)
            .replace("https://www.example.com/", &root);
        let data =
            format!("STATIC_ROOT_PATH = {}\nDISABLE_SSH = true\nOFFLINE_MODE = true\n", data.display());
        let file = folder.path().join("app.ini");
        fs::write(&file, format!("{}{server}{data}", SETTINGS.replace("FOLDER", &base))).expect("a file");
        let gitea = |words: &[&str]| {
            let mut gitea = Command::new(&program);
            gitea.env("HOME", folder.path()).args(words).arg("--config").arg(&file);
            gitea
        };
        run(&mut gitea(&["migrate"]), b"", LIMIT).success();
        let user = [
            "admin",
            "user",
            "create",
            "--username",
            "anna",
            "--password",
            "secret-of-anna",
            "--email",
            "anna@site.test",
        ];
        run(&mut gitea(&[&user[..], &["--must-change-password=false"]].concat()), b"", LIMIT).success();
        let mut server = Process::start(&mut gitea(&["web"]));
        wait_until("the socket of Gitea", || {
            assert!(server.ended().is_none(), "{}{}", server.stdout(), server.stderr());
            (Path::new(&socket).exists() && site.get("/api/healthz").status() == 200).then_some(())
        });
        Self { site, server, folder }
    }

    fn git(&self, folder: &str, words: &[&str]) -> String {
        let mut git = command("git");
        git.current_dir(self.folder.path().join(folder)).env("HOME", self.folder.path());
        git.env("GIT_TERMINAL_PROMPT", "0").env("GIT_SSL_CAINFO", self.site.ca.root_file());
        git.args(["-c", "user.name=anna", "-c", "user.email=anna@site.test"]).args(words);
        let finished = run(&mut git, b"", LIMIT * 5);
        assert!(finished.status.success(), "{}\n{}", finished.text(), self.server.stdout());
        finished.stdout
    }
}

#[test]
#[ignore = "the build of Gitea takes minutes: make gitea"]
fn gitea_takes_and_returns_100_mib_over_https_and_links_to_the_outer_url() {
    let forge = Forge::start();
    let port = forge.site.brisk.https().port();
    forge.git(".", &["init", "--initial-branch", "main", "source"]);
    let source = forge.folder.path().join("source");
    let mut content = Vec::new();
    let random = File::open("/dev/urandom").expect("random bytes");
    random.take(100 << 20).read_to_end(&mut content).expect("random bytes");
    fs::write(source.join("large"), &content).expect("a file");
    fs::write(source.join("readme.md"), "# A *large* file\n").expect("a file");
    forge.git("source", &["add", "."]);
    forge.git("source", &["commit", "--message", "a large file"]);
    let url = format!("https://anna:secret-of-anna@localhost:{port}/anna/large.git");
    forge.git("source", &["push", &url, "main"]);
    forge.git(".", &["clone", &url, "copy"]);
    assert!(fs::read(forge.folder.path().join("copy/large")).expect("a file") == content);
    // A small change over HTTP/1.1.
    fs::write(source.join("readme.md"), "# Changed\n").expect("a file");
    forge.git("source", &["commit", "--all", "--message", "change"]);
    forge.git("source", &["-c", "http.version=HTTP/1.1", "push", &url, "main"]);
    forge.git("copy", &["-c", "http.version=HTTP/1.1", "pull"]);

    let localhost = |options: &[&str], path: &str| {
        forge.site.curl_url(options, &format!("https://localhost:{port}{path}")).success()
    };
    // Repositories that a push creates are private.
    let api = ["--user", "anna:secret-of-anna", "--request", "PATCH", "--json", "{\"private\":false}"];
    let repository = localhost(&api, "/api/v1/repos/anna/large");
    let clone = format!("https://localhost:{port}/anna/large.git");
    assert!(repository.contains(&format!("\"clone_url\":\"{clone}\"")), "{repository}");
    let page = localhost(&["--include"], "/anna/large");
    assert!(page.starts_with("HTTP/2 200") && page.contains(&clone) && page.contains("Changed"), "{page}");
    let cookies = page.lines().filter(|line| line.to_ascii_lowercase().starts_with("set-cookie: "));
    assert!(cookies.clone().count() > 0 && cookies.clone().all(|line| line.contains("Secure")), "{page}");
    let raw = forge.folder.path().join("raw").display().to_string();
    localhost(&["--location", "--output", &raw], "/anna/large/raw/branch/main/large");
    assert!(fs::read(&raw).expect("a file") == content);
    let log = forge.site.brisk.logged("git-receive-pack");
    assert!(log.contains("unix:"), "{log}");
}
