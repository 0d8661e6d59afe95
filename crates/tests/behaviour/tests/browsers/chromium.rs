//! The built-in page in headless Chromium.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use brisk_behaviour::program::brisk_program;
use brisk_behaviour::site::{LIMIT, Site};
use brisk_testkit::brisk::Brisk;
use brisk_testkit::process::{Process, command, run};
use brisk_testkit::programs::program;

use crate::net_log::NetLog;

/// Headless Chromium, which trusts the key of one gateway whatever its CA.
pub(crate) struct Chromium {
    folder: PathBuf,
    key: String,
    behind: Vec<OsString>,
}

impl Chromium {
    /// What it keeps lies in `folder`.
    pub(crate) fn new(folder: &Path, brisk: &Brisk) -> Self {
        Self::behind(&[], folder, brisk)
    }

    /// The same as an argument of this command, which is to become Chromium.
    pub(crate) fn behind(command: &[OsString], folder: &Path, brisk: &Brisk) -> Self {
        Self { folder: folder.to_owned(), key: spki_hash(command, brisk), behind: command.to_vec() }
    }

    /// Opens `url` and runs to its end; returns what it printed.
    pub(crate) fn run(&self, options: &[&str], url: &str) -> String {
        run(&mut self.command(options, url), b"", LIMIT).success()
    }

    /// Opens `url` and runs to its end; returns its net log.
    pub(crate) fn net_log(&self, options: &[&str], url: &str) -> NetLog {
        let file = self.folder.join("net-log.json");
        let log = format!("--log-net-log={}", file.display());
        self.run(&[options, &[&log, "--dump-dom"]].concat(), url);
        NetLog::read(&file)
    }

    /// Opens `url` and stays there.
    pub(crate) fn start(&self, options: &[&str], url: &str) -> Process {
        Process::start(self.command(options, url).arg("--remote-debugging-port=0"))
    }

    fn command(&self, options: &[&str], url: &str) -> Command {
        let mut chromium = command_behind(&self.behind, "chromium");
        // A home of its own: what Chromium keeps outside its profile must not be shared.
        chromium.env("HOME", &self.folder).current_dir(&self.folder);
        chromium.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
        ]);
        let profile = self.folder.join("profile");
        chromium.arg("--disable-background-networking").arg(format!("--user-data-dir={}", profile.display()));
        chromium.arg(format!("--ignore-certificate-errors-spki-list={}", self.key));
        chromium.args(options).arg(url);
        chromium
    }
}

fn chromium(site: &Site, options: &[&str]) -> String {
    let url = format!("https://localhost:{}/", site.brisk.https().port());
    Chromium::new(site.brisk.folder(), &site.brisk).run(options, &url)
}

/// SHA-256 of the public key that brisk shows, in base64.
fn spki_hash(behind: &[OsString], brisk: &Brisk) -> String {
    let script = "openssl s_client -connect $0 -servername localhost </dev/null 2>/dev/null | openssl x509 -noout -pubkey \
                  | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | openssl base64";
    let address = brisk.https().to_string();
    let mut shell = command_behind(behind, "sh");
    run(shell.args(["-c", script, &address]), b"", LIMIT).success().trim().to_owned()
}

/// The command for a program as an argument of another command, if there is one.
fn command_behind(before: &[OsString], name: &str) -> Command {
    let Some((first, words)) = before.split_first() else { return command(name) };
    let mut command = Command::new(first);
    command.args(words).arg(program(name));
    command
}

#[test]
fn the_page_tells_visitors_of_their_connection() {
    let site = Site::new();
    let page = chromium(&site, &["--dump-dom"]).replace("<wbr>", "");
    for fact in
        ["TLS 1.3", "X25519MLKEM768", "ecdsa_secp256r1_sha256", "HTTP/2", "localhost", "full handshake"]
    {
        assert!(page.contains(fact), "{fact} is missing: {page}");
    }
    let picture = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("page.png");
    chromium(&site, &["--window-size=1000,1100", &format!("--screenshot={}", picture.display())]);
    assert!(is_picture(&picture), "no picture in {}", picture.display());
}

/// A PNG that is more than one colour.
fn is_picture(path: &Path) -> bool {
    let bytes = fs::read(path).unwrap_or_default();
    bytes.starts_with(b"\x89PNG") && bytes.len() > 10_000
}

/// Says what a reader of plots on a telephone sees: how wide the page is, how high its letters are, and whether the name of an
/// axis lies over its numbers.
const MEASURE: &str = "<script>
document.documentElement.style.width = '390px';
const boxes = [...document.querySelectorAll('svg text')].map(text => [text.textContent, text.getBoundingClientRect()]);
const names = boxes.filter(([text]) => text === 'requests per second');
const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
const covered = names.filter(name => boxes.some(other => other !== name && meet(name[1], other[1])));
const lowest = Math.min(...boxes.map(([, box]) => box.height));
document.title = `axes=${names.length} covered=${covered.length} readable=${lowest > 11} wide=${
  document.querySelector('main').getBoundingClientRect().width > 390}`;
</script>";

#[test]
fn plots_of_a_load_can_be_read_on_a_telephone() {
    let site = Site::new();
    let page = site.brisk.folder().join("load.html");
    let mut bench = Command::new(brisk_program());
    bench.args(["bench", &format!("https://localhost:{}/", site.brisk.https().port()), "-d", "4s"]);
    bench.args(["--timeout", "150s", "--ca"]);
    run(bench.arg(site.ca.root_file()).arg("--html").arg(&page), b"", LIMIT).success();
    let html = fs::read_to_string(&page).expect("a page") + MEASURE;
    fs::write(&page, html).expect("a temporary file");
    let browser = Chromium::new(site.brisk.folder(), &site.brisk);
    let seen = browser.run(&["--dump-dom"], &format!("file://{}", page.display()));
    assert!(
        seen.contains("<title>axes=1 covered=0 readable=true wide=false"),
        "{}",
        &seen[..seen.len().min(600)]
    );
}
