//! Login of users by oauth2-proxy at a provider of `OpenID` Connect, with the configuration of `docs/applications.md`.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use brisk_behaviour::page::{block, section};
use brisk_behaviour::site::{NAME, Site};
use brisk_testkit::origin::Origin;
use brisk_testkit::process::{Process, command, free_port, serve_on_free_port, wait_until};
use tempfile::TempDir;

const PAGE: &str = include_str!("../../../../../docs/applications.md");

/// An application whose users log in, and a browser.
struct Portal {
    site: Site,
    origin: Origin,
    proxy: Process,
    _provider: Process,
    folder: TempDir,
}

impl Portal {
    /// Starts all programs. A session is renewed when a second has passed.
    fn start() -> Self {
        let text = section(PAGE, "Login with oauth2-proxy");
        let proxy = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let origin = Origin::answering(|request, stream| {
            let body = format!("page of {}", request.header("x-auth-request-email").unwrap_or("nobody"));
            brisk_testkit::origin::write_response(stream, body.as_bytes())
        });
        let tables = block(text, "toml").replace("10.0.0.5:8080", &origin.address().to_string());
        let site = Site::with(&format!("\n{}", tables.replace("127.0.0.1:4180", &proxy.to_string())));
        let here = site.url("");
        let (provider, issuer) = serve_on_free_port(|port| {
            let mut provider = command("oidc-server");
            provider.env("PORT", port.to_string()).env("REDIRECT_URI", format!("{here}/oauth2/callback"));
            provider
        });
        let folder = TempDir::with_prefix("brisk-test-login-").expect("a temporary folder");
        let settings = block(text, "cfg")
            .replace("127.0.0.1:4180", &proxy.to_string())
            .replace("https://www.example.com", &here)
            .replace("https://id.example.com/", &format!("http://localhost:{}/", issuer.port()))
            .replace("cookie_refresh = \"1h\"", "cookie_refresh = \"1s\"");
        let file = folder.path().join("oauth2-proxy.cfg");
        fs::write(&file, settings).expect("a temporary file");
        let mut program = Process::start(command("oauth2-proxy").arg("--config").arg(&file));
        wait_until("oauth2-proxy that listens", || {
            assert!(program.ended().is_none(), "{}{}", program.stdout(), program.stderr());
            TcpStream::connect(proxy).ok()
        });
        Self { site, origin, proxy: program, _provider: provider, folder }
    }

    /// Requests a URL as a browser that keeps cookies. Returns the last status, URL and content.
    fn browse(&self, options: &[&str], url: &str) -> (String, String, String) {
        let jar = self.folder.path().join("cookies").display().to_string();
        let usual =
            ["--cookie", &jar, "--cookie-jar", &jar, "--write-out", "\n%{http_code} %{url_effective}"];
        let text = self.site.curl_url(&[&usual, options].concat(), url).success();
        let (content, last) = text.rsplit_once('\n').expect("a last line");
        let (status, url) = last.split_once(' ').expect("two words");
        (status.to_owned(), url.to_owned(), content.to_owned())
    }

    /// Follows redirects to the form of the provider, and sends it.
    fn log_in(&self, url: &str) -> (String, String, String) {
        let (status, form, content) = self.browse(&["--location"], url);
        let (place, id) =
            form.split_once("?authRequestID=").unwrap_or_else(|| panic!("{status} {form}: {content}"));
        assert!(content.contains("name=\"password\""), "{content}");
        let id = format!("id={id}");
        self.browse(
            &[
                "--location",
                "--data",
                &id,
                "--data",
                "username=test-user@localhost",
                "--data",
                "password=verysecure",
            ],
            place,
        )
    }
}

#[test]
fn a_user_logs_in_with_oauth2_proxy_sees_the_page_and_logs_out() {
    let portal = Portal::start();
    let page = portal.site.url("/private/page?a=1&b=%20");
    // Without a session: a redirect for people, 401 for scripts, and nothing for the application.
    assert_eq!(portal.browse(&[], &page).0, "302");
    assert_eq!(portal.browse(&["--header", "Accept: application/json"], &page).0, "401");
    let forged =
        ["X-Auth-Request-Email: root@site.test", "X_Auth_Request_User: root", "X-Auth-Request-User: root"];
    let forged = forged.map(|line| ["--header", line]).concat();
    assert_eq!(portal.browse(&forged, &page).0, "302");
    assert!(portal.origin.requests().is_empty());

    let (status, url, content) = portal.log_in(&page);
    let log = portal.proxy.stdout() + &portal.proxy.stderr();
    assert_eq!((&*status, &*url, &*content), ("200", &*page, "page of test-user@zitadel.ch"), "{log}");
    // Headers of the client do not change the identity of the session.
    assert_eq!(portal.browse(&forged, &page).2, "page of test-user@zitadel.ch");
    let head = portal.origin.last_request().head;
    assert_eq!(head.line, "GET /private/page?a=1&b=%20 HTTP/1.1");
    assert_eq!(head.all("x-auth-request-user"), ["id1"]);
    assert_eq!(head.all("x-auth-request-email"), ["test-user@zitadel.ch"]);
    assert_eq!(
        (head.header("x_auth_request_user"), head.header("host")),
        (None, Some(&*format!("{NAME}:{}", portal.site.brisk.https().port())))
    );
    // With the session, a form and HTTP/1.1 work as well.
    let (status, _, content) = portal.browse(&["--http1.1", "--data", "x=1"], &page);
    assert_eq!((&*status, &*content), ("200", "page of test-user@zitadel.ch"));
    assert_eq!(portal.origin.last_request().text(), "x=1");

    // A permission renews the session, whose cookie reaches the browser.
    let renewed = wait_until("a renewed session", || {
        let (status, _, content) = portal.browse(&["--include"], &page);
        assert_eq!(status, "200", "{content}");
        content
            .lines()
            .find(|line| line.to_ascii_lowercase().starts_with("set-cookie: _oauth2_proxy="))
            .map(str::to_owned)
    });
    assert!(renewed.contains("; secure") || renewed.contains("; Secure"), "{renewed}");
    assert_eq!(portal.browse(&[], &page).0, "200");

    let reached = portal.origin.requests().len();
    assert_eq!(portal.browse(&[], &portal.site.url("/oauth2/sign_out")).0, "302");
    assert_eq!(portal.browse(&[], &page).0, "302");
    assert_eq!(portal.origin.requests().len(), reached);
}
