//! `brisk import`: the results for well-known applications are right configurations, and mistakes are named with their line.

use std::fs;
use std::path::Path;

use brisk_behaviour::site::setup;
use brisk_testkit::ca::TestCa;
use tempfile::TempDir;

/// Inputs of the tests of the importer.
const INPUTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../gateway/import/tests/nginx");

/// A line of `htpasswd`.
const USERS: &str = "anna:$6$abcdefgh$ltjgWl6579NluT/Vi1nwEvcil.G5Nbc4NiXZaNGStk8PSwGfQv72N2CKPPrVACtLtip/cZ/1GM/O6IND4WQhG.\n";

/// Files and folders that the inputs name, below `/srv`.
const PLACES: [&str; 25] = [
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
];

/// A folder with everything that the inputs name.
fn folder() -> TempDir {
    let folder = TempDir::with_prefix("brisk-test-import-").expect("a temporary folder");
    let write = |name: &str, text: &[u8]| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    };
    for place in PLACES {
        write(&format!("srv/{place}"), b"x");
    }
    let ca = TestCa::new();
    let leaf = ca.server(&["x.example"]).issue();
    let read = |path: &Path| fs::read(path).expect("a file");
    write("site.pem", &read(&leaf.chain));
    write("site.key", &read(&leaf.key));
    write("ca.pem", &read(&leaf.chain));
    write("users", USERS.as_bytes());
    folder
}

#[test]
fn imported_configurations_pass_the_check() {
    let (folder, setup) = (folder(), setup());
    let srv = format!("{}/srv/", folder.path().display());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut count = 0;
    for input in fs::read_dir(INPUTS).expect("inputs") {
        let input = input.expect("an input").path();
        let text = fs::read_to_string(&input).expect("text");
        let text = text.replace("/srv/", &srv).replace("/usr/share/nginx/html", &format!("{srv}static"));
        fs::write(folder.path().join("nginx.conf"), text).expect("a file");
        let [conf, output, report] = ["nginx.conf", "brisk.toml", "report.md"].map(path);
        let arguments = ["nginx", &conf, "-o", &output, "--report", &report, "--force"];
        let files = setup.run("import", &arguments).success();
        for file in files.lines() {
            let checked = setup.run("check", &[file]);
            let text = fs::read_to_string(file).expect("a result");
            assert!(checked.status.success(), "{}: {}\n{text}", input.display(), checked.text());
            count += 1;
        }
    }
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
    let (folder, setup) = (TempDir::with_prefix("brisk-test-import-").expect("a temporary folder"), setup());
    let write = |name: &str, text: &[u8]| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    };
    let leaf = TestCa::new().server(&["x.example"]).issue();
    let [chain, key] = [&leaf.chain, &leaf.key].map(|path| fs::read(path).expect("a file"));
    for name in PAIRS {
        write(&format!("srv/{name}"), &[chain.clone(), key.clone()].concat());
    }
    write("srv/ca.pem", &chain);
    write("srv/trusted.lst", b"10.0.0.0/8\n");
    write("pushers.users", USERS.as_bytes());
    let srv = format!("{}/srv/", folder.path().display());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut count = 0;
    for input in fs::read_dir(HAPROXY).expect("inputs") {
        let input = input.expect("an input").path();
        // The tests of the importer lie beside their inputs.
        if input.extension().is_none_or(|end| end != "cfg") {
            continue;
        }
        let text = fs::read_to_string(&input).expect("text").replace("/srv/", &srv);
        write("haproxy.cfg", text.as_bytes());
        let [conf, output, report] = ["haproxy.cfg", "brisk.toml", "report.md"].map(path);
        let arguments = ["haproxy", &conf, "-o", &output, "--report", &report, "--force"];
        // One input has a refusal without a counterpart, which the exit status shows.
        let run = setup.run("import", &arguments);
        let is_open = run.stderr.contains("HAProxy refuses requests");
        assert!(run.status.success() || is_open, "{}: {}", input.display(), run.text());
        for file in run.stdout.lines() {
            let checked = setup.run("check", &[file]);
            let text = fs::read_to_string(file).expect("a result");
            assert!(checked.status.success(), "{}: {}\n{text}", input.display(), checked.text());
            count += 1;
        }
    }
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
    let (folder, setup) = (TempDir::with_prefix("brisk-test-import-").expect("a temporary folder"), setup());
    let write = |name: &str, text: &[u8]| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    };
    for place in SITES {
        write(&format!("srv/{place}"), b"x");
    }
    let ca = TestCa::new();
    let pairs: [(&str, &[&str]); 2] = [
        ("registry", &["registry.example.com"]),
        (".brisk/ha-home-lan", &["ha.home.lan", "printer.home.lan"]),
    ];
    for (name, names) in pairs {
        let leaf = ca.server(names).issue();
        write(&format!("{name}.pem"), &fs::read(&leaf.chain).expect("a file"));
        write(&format!("{name}.key"), &fs::read(&leaf.key).expect("a file"));
        write("clients.pem", &fs::read(&leaf.chain).expect("a file"));
    }
    write(".brisk/users-1", CADDY_USERS.as_bytes());
    let here = format!("{}/", folder.path().display());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut count = 0;
    for input in fs::read_dir(CADDYFILES).expect("inputs") {
        let input = input.expect("an input").path();
        if input.is_dir() {
            for snippet in fs::read_dir(&input).expect("snippets") {
                let snippet = snippet.expect("a snippet").path();
                let name = snippet.file_name().expect("a name").to_string_lossy().into_owned();
                write(&format!("snippets/{name}"), &fs::read(&snippet).expect("a file"));
            }
        }
    }
    for input in fs::read_dir(CADDYFILES).expect("inputs") {
        let input = input.expect("an input").path();
        if input.is_dir() {
            continue;
        }
        let text = fs::read_to_string(&input).expect("text");
        let text = text
            .replace("/srv/", &format!("{here}srv/"))
            .replace("/etc/ssl/", &here)
            .replace("/var/log/caddy/", &format!("{here}srv/log/"));
        fs::write(folder.path().join("Caddyfile"), text).expect("a file");
        let [conf, output, report] = ["Caddyfile", "brisk.toml", "report.md"].map(path);
        let arguments = ["caddy", &conf, "-o", &output, "--report", &report, "--force"];
        let files = setup.run("import", &arguments).success();
        for file in files.lines() {
            let checked = setup.run("check", &[file]);
            let text = fs::read_to_string(file).expect("a result");
            assert!(checked.status.success(), "{}: {}\n{text}", input.display(), checked.text());
            count += 1;
        }
    }
    assert!(count >= 17, "{count} files");
}

#[test]
fn mistakes_and_existing_files_are_named() {
    let (folder, setup) = (folder(), setup());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let [conf, output] = ["wrong.conf", "brisk.toml"].map(path);
    fs::write(&conf, "server {\n  listen 80;\n").expect("a file");
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
