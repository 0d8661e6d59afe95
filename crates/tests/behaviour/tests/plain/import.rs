//! `brisk import`: the results for well-known applications are right configurations, and mistakes are named with their line.

use std::fs;
use std::path::{Path, PathBuf};

use brisk_behaviour::site::setup;
use brisk_testkit::brisk::Setup;
use brisk_testkit::ca::TestCa;
use tempfile::TempDir;

/// Inputs of the tests of the importer.
const INPUTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../gateway/import/tests/nginx");

/// A line of `htpasswd`.
const USERS: &str = "anna:$6$abcdefgh$ltjgWl6579NluT/Vi1nwEvcil.G5Nbc4NiXZaNGStk8PSwGfQv72N2CKPPrVACtLtip/cZ/1GM/O6IND4WQhG.\n";

/// Files and folders that the inputs name, below `/srv`.
const PLACES: [&str; 33] = [
    "shop/public/x",
    "wiki/x",
    "python/static/x",
    "files/x.txt",
    "log/x",
    "social/public/500.html",
    "blog/x",
    "cloud/x",
    "errors/404.html",
    "errors/502.html",
    "forum/public/x",
    "static/404.html",
    "one/x",
    "closed/x",
    "wide/images/x",
    "users/x",
    "files/x",
    "forms/x",
    "mixed/files/x",
    "app/assets/x",
    "django/static/500.html",
    "django/media/x",
    "challenges/x",
    "gitea/public/x",
    "static/index.html",
    "static/bundles/5xx.html",
    "web/_status.502.html",
    "web/qhandler/x",
    "assets/x",
    "uploads/files/x",
    "sites/wp-content/blogs.dir/x",
    "storage/x",
    "tube/x",
];

/// A temporary folder for a configuration and its result.
struct Place {
    folder: TempDir,
    setup: Setup,
}

impl Place {
    fn new() -> Self {
        Self {
            folder: TempDir::with_prefix("brisk-test-import-").expect("a temporary folder"),
            setup: setup(),
        }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    /// Imports the file `name`, and checks each file of the result. Returns their number.
    fn import(&self, server: &str, name: &str, input: &Path) -> usize {
        let [conf, output, report] = [name, "brisk.toml", "report.md"].map(|name| self.path(name));
        let run = self.setup.run("import", &[server, &conf, "-o", &output, "--report", &report, "--force"]);
        // One input for HAProxy has a refusal without a counterpart, which the exit status shows.
        let is_open = run.stderr.contains("HAProxy refuses requests");
        assert!(run.status.success() || is_open, "{}: {}", input.display(), run.text());
        for file in run.stdout.lines() {
            let checked = self.setup.run("check", &[file]);
            let text = fs::read_to_string(file).expect("a result");
            assert!(checked.status.success(), "{}: {}\n{text}", input.display(), checked.text());
        }
        run.stdout.lines().count()
    }
}

/// The inputs in a folder: a file and its text. Folders beside them are left out.
fn inputs(folder: &str) -> Vec<(PathBuf, String)> {
    let paths = fs::read_dir(folder).expect("inputs").map(|input| input.expect("an input").path());
    let files = paths.filter(|path| path.is_file());
    files.map(|path| (path.clone(), fs::read_to_string(path).expect("text"))).collect()
}

#[test]
fn imported_configurations_pass_the_check() {
    let place = Place::new();
    for name in PLACES {
        place.write(&format!("srv/{name}"), "x");
    }
    let leaf = TestCa::new().server(&["x.example"]).issue();
    for (name, file) in [("site.pem", &leaf.chain), ("site.key", &leaf.key), ("ca.pem", &leaf.chain)] {
        place.write(name, fs::read(file).expect("a file"));
    }
    place.write("users", USERS);
    let srv = place.path("srv/");
    let count: usize = inputs(INPUTS)
        .into_iter()
        .map(|(input, text)| {
            let text = text.replace("/srv/", &srv).replace("/no/", &srv);
            let text = text.replace("/usr/share/nginx/html", &format!("{srv}static"));
            place.write("nginx.conf", text);
            place.import("nginx", "nginx.conf", &input)
        })
        .sum();
    assert!(count >= 30, "{count} files");
}

/// Inputs of the tests of the importer for HAProxy.
const HAPROXY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../gateway/import/tests/haproxy");

/// Files with a certificate and its key that these inputs name, below `/srv`.
const PAIRS: [&str; 7] = [
    "site.pem",
    "other.pem",
    "certs/example.com.pem",
    "certs/example.org.pem",
    "certs/api.example.com.pem",
    "certs/shop.example.com.pem",
    "certs/www.shop.example.com.pem",
];

#[test]
fn imported_configurations_of_haproxy_pass_the_check() {
    let place = Place::new();
    let leaf = TestCa::new().server(&["x.example"]).issue();
    let [chain, key] = [&leaf.chain, &leaf.key].map(|path| fs::read(path).expect("a file"));
    for name in PAIRS {
        place.write(&format!("srv/{name}"), [chain.clone(), key.clone()].concat());
    }
    place.write("srv/ca.pem", &chain);
    place.write("srv/trusted.lst", "10.0.0.0/8\n");
    place.write("pushers.users", USERS);
    let srv = place.path("srv/");
    // The tests of the importer lie beside their inputs.
    let configurations =
        inputs(HAPROXY).into_iter().filter(|(input, _)| input.extension().is_some_and(|end| end == "cfg"));
    let count: usize = configurations
        .map(|(input, text)| {
            place.write("haproxy.cfg", text.replace("/srv/", &srv));
            place.import("haproxy", "haproxy.cfg", &input)
        })
        .sum();
    assert!(count >= 15, "{count} files");
}

/// Caddyfiles of the tests of the importer.
const CADDYFILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../gateway/import/tests/caddy");

/// Folders and files below `/srv` that the Caddyfiles name.
const SITES: [&str; 12] = [
    "cloud/x",
    "www/x",
    "mautic/x",
    "birds/x",
    "files/x",
    "blog/x",
    "app/404.html",
    "app/index.html",
    "social/public/500.html",
    "shop/public/x",
    "log/x",
    "app/assets/x",
];

/// A line of a file of users, with a password as Caddy hashes it.
const CADDY_USERS: &str = "birdnet:$2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG\n";

#[test]
fn imported_caddyfiles_pass_the_check() {
    let place = Place::new();
    for name in SITES {
        place.write(&format!("srv/{name}"), "x");
    }
    let ca = TestCa::new();
    let pairs: [(&str, &[&str]); 2] = [
        ("registry", &["registry.example.com"]),
        (".brisk/ha-home-lan", &["ha.home.lan", "printer.home.lan"]),
    ];
    for (name, names) in pairs {
        let leaf = ca.server(names).issue();
        let [chain, key] = [&leaf.chain, &leaf.key].map(|path| fs::read(path).expect("a file"));
        place.write(&format!("{name}.pem"), &chain);
        place.write(&format!("{name}.key"), key);
        place.write("clients.pem", chain);
    }
    place.write(".brisk/users-1", CADDY_USERS);
    for (snippet, text) in inputs(&format!("{CADDYFILES}/snippets")) {
        let name = snippet.file_name().expect("a name").to_string_lossy();
        place.write(&format!("snippets/{name}"), text);
    }
    let here = place.path("");
    let count: usize = inputs(CADDYFILES)
        .into_iter()
        .map(|(input, text)| {
            let text = text
                .replace("/srv/", &format!("{here}srv/"))
                .replace("/etc/ssl/", &here)
                .replace("/var/log/caddy/", &format!("{here}srv/log/"));
            place.write("Caddyfile", text);
            place.import("caddy", "Caddyfile", &input)
        })
        .sum();
    assert!(count >= 17, "{count} files");
}

#[test]
fn mistakes_and_existing_files_are_named() {
    let place = Place::new();
    let setup = &place.setup;
    let path = |name: &str| place.path(name);
    let [conf, output] = ["wrong.conf", "brisk.toml"].map(path);
    place.write("wrong.conf", "server {\n  listen 80;\n");
    let failed = setup.run("import", &["nginx", &conf, "-o", &output]);
    assert!(failed.stderr.contains("wrong.conf:1: the block has no end: add }"), "{}", failed.text());
    fs::write(&conf, "server { listen 80; server_name a.example; proxy_cache x; return 204; }")
        .expect("a file");
    let done = setup.run("import", &["nginx", &conf, "-o", &output]);
    assert!(done.stderr.contains("NOT CARRIED: brisk has no shared cache"), "{}", done.text());
    fs::write(
        &conf,
        "server { listen 80; if ($geoip_country_code = XX) { return 403; } location / { return 204; } }",
    )
    .expect("a file");
    let open = setup.run("import", &["nginx", &conf, "-o", &path("open.toml")]);
    assert!(!open.status.success() && open.stderr.contains("nginx refuses requests"), "{}", open.text());
    let again = setup.run("import", &["nginx", &conf, "-o", &output]);
    assert!(!again.status.success() && again.stderr.contains("add --force"), "{}", again.text());
}
