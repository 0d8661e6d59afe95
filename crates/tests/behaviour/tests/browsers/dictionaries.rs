//! Compression dictionaries (RFC 9842), as received by curl and used by Chromium.

use std::io::Write;

use brisk_behaviour::site::{LIMIT, Site, upstream};
use brisk_testkit::origin::Origin;
use brisk_testkit::process::{command, run, wait_until};

use crate::chromium::Chromium;

/// A script of which two versions differ in a line.
fn script(version: u32) -> String {
    let lines = (0..3000).map(|line| format!("var name{line} = {};\n", line * line % 9973));
    lines.collect::<String>() + &format!("document.title = 'version {version}';\n")
}

const ROUTE: &str = "compression = { dictionaries = true }\n\
     response_headers = { set = { Use-As-Dictionary = \"match=\\\"/js/app.*.js\\\"\", Cache-Control = \"max-age=3600\" } }\n";

fn hash_of(bytes: &str) -> String {
    let digest = "openssl dgst -sha256 -binary | openssl base64";
    run(command("sh").args(["-c", digest]), bytes.as_bytes(), LIMIT).success().trim().to_owned()
}

#[test]
fn a_new_version_is_sent_as_its_difference_to_the_old_one() {
    let origin = Origin::answering(|request, stream| {
        let version = if request.head.line.contains("v2") { 2 } else { 1 };
        let body = script(version);
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/javascript\r\nETag: \"x\"\r\n";
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len())
    });
    let proxied = format!("\n[[host.route]]\npath = \"/app/\"\nupstream = \"app\"\n{ROUTE}");
    let files = format!("\n[[host.route]]\npath = \"/js/\"\nstatic = \"www\"\n{ROUTE}");
    let site = Site::custom("", &(proxied + &files + &upstream(&[&origin.url()])), |setup| {
        setup.file("www/app.v1.js", script(1)).file("www/app.v2.js", script(2)).file("old.js", script(1))
    });
    let dictionary = format!("Available-Dictionary: :{}:", hash_of(&script(1)));
    let folder = site.brisk.folder();
    for path in ["/js/app", "/app/app"] {
        let options = ["--header", "Accept-Encoding: gzip, br, zstd, dcb, dcz", "--header", &dictionary];
        let facts = ["--write-out", "%header{content-encoding} %header{vary}", "--output"];
        let output = folder.join("answer");
        let output = output.to_str().expect("text");
        let get = |path: &str, more: &[&str]| {
            site.curl(&[&options[..], &facts, &[output], more].concat(), path).success()
        };
        let vary = "available-dictionary";
        // What was never sent is no dictionary here.
        if path == "/js/app" {
            assert!(get(&format!("{path}.v2.js"), &[]).starts_with("zstd "));
        }
        assert_eq!(site.curl(&[], &format!("{path}.v1.js")).success(), script(1));
        // A response is kept as a dictionary a moment after its end.
        let answer = wait_until("a difference", || {
            Some(get(&format!("{path}.v2.js"), &[])).filter(|answer| answer.starts_with("dcz "))
        });
        assert!(answer.contains(vary), "{path}: {answer}");
        let bytes = std::fs::read(output).expect("an answer");
        assert!(bytes.len() < 400, "{path}: {} bytes", bytes.len());
        std::fs::write(folder.join("frame"), &bytes[40..]).expect("a file");
        let mut zstd = command("zstd");
        zstd.current_dir(folder).args(["-d", "-q", "-f", "--patch-from=old.js", "frame", "-o", "plain.js"]);
        run(&mut zstd, b"", LIMIT).success();
        assert!(std::fs::read_to_string(folder.join("plain.js")).expect("a file") == script(2), "{path}");
        // Another site must not learn from lengths.
        let crossing = get(&format!("{path}.v2.js"), &["--header", "Sec-Fetch-Site: cross-site"]);
        assert!(crossing.starts_with("zstd "), "{path}: {crossing}");
    }
}

#[test]
fn chromium_uses_the_first_version_for_the_second() {
    let page = "<script src=/js/app.v1.js></script><p id=seen>waiting</p><script type=module>
        const wait = time => new Promise(done => setTimeout(done, time));
        for (let tries = 0; tries < 40; tries++) {
          await wait(250);
          const answer = await fetch('/js/app.v2.js?' + tries);
          const text = await answer.text();
          eval(text);
          const length = Number(performance.getEntriesByName(answer.url)[0].encodedBodySize);
          document.getElementById('seen').textContent = document.title + (length < 2000 ? ' as difference' : ' as a whole');
          if (length < 2000) break;
        }
        </script>";
    let routes = format!(
        "\n[[host.route]]\npath = \"/js/\"\nstatic = \"www\"\n{ROUTE}\n[[host.route]]\npath = \"/\"\nstatic = \"page\"\n"
    );
    let site = Site::custom("", &routes, |setup| {
        let setup = setup.file("www/app.v1.js", script(1)).file("www/app.v2.js", script(2));
        setup.file("page/index.html", page)
    });
    let url = format!("https://localhost:{}/", site.brisk.https().port());
    // Chromium uses dictionaries only where a public authority vouches for the server.
    let options = [
        "--disable-features=CompressionDictionaryTransportRequireKnownRootCert",
        "--virtual-time-budget=30000",
        "--dump-dom",
    ];
    let browser = Chromium::new(site.brisk.folder(), &site.brisk);
    let mut seen = Vec::new();
    // On a busy machine, the dictionary may not be stored before the tries of the page are over.
    let is_used = (0..8).any(|_| {
        seen.push(browser.run(&options, &url));
        seen.iter().any(|page| page.contains("version 2 as difference"))
    });
    assert!(is_used, "{seen:#?}");
    assert!(site.brisk.metrics().sum("brisk_compressed_answers_total", &["coding=\"dcz\""]) >= 1.0);
}
