//! Routes for users with passwords.

use std::net::Ipv4Addr;

use brisk_behaviour::h2::{self, Frames};
use brisk_behaviour::h2_client::Client;
use brisk_behaviour::site::{NAME, Site, connect_from, upstream};
use brisk_testkit::client::TlsStream;
use brisk_testkit::http1::Message;
use brisk_testkit::origin::Origin;

/// The password of both is `password`; the second hash is of `htpasswd -B -C 10`.
const ALICE: &str = "alice:$apr1$8charsal$xES.S6d4oPTiVAh2XwVyp/\n";
const BOB: &str = "bob:$2y$10$gferL2E1YWoMUnVwbCrx0.VNHsy/RCp0ZSY0FTsKfalhg4YE5J7uO\n";

/// `Authorization` with the password `password`, and with another one.
const FOR_ALICE: &str = "Basic YWxpY2U6cGFzc3dvcmQ=";
const FOR_BOB: &str = "Basic Ym9iOnBhc3N3b3Jk";
const WRONG: &str = "Basic YWxpY2U6b3RoZXI=";

fn site(origin: &Origin, keys: &str) -> Site {
    let tables = format!(
        "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n\
         basic_auth = {{ file = \"users\", realm = \"the inside\"{keys} }}\n{}",
        upstream(&[&origin.url()])
    );
    Site::custom("", &tables, |setup| setup.file("users", format!("{ALICE}{BOB}")))
}

fn get(connection: &mut TlsStream, authorization: &str) -> Message {
    let header =
        if authorization.is_empty() { String::new() } else { format!("Authorization: {authorization}\r\n") };
    connection.request(&format!("GET / HTTP/1.1\r\nHost: {NAME}\r\n{header}\r\n"))
}

#[test]
fn a_user_with_the_right_password_passes_over_http1_and_http2() {
    let origin = Origin::fixed("reached");
    let site = site(&origin, "");
    let mut connection = site.connect();
    for (authorization, status) in [
        ("", 401),
        (WRONG, 401),
        (FOR_ALICE, 200),
        (FOR_ALICE, 200),
        (FOR_BOB, 200),
        (WRONG, 401),
        ("Basic ZXZlOnBhc3N3b3Jk", 401),
        ("Bearer YWxpY2U6cGFzc3dvcmQ=", 401),
        ("Basic YWxpY2U6cGFzc3dvcmQ=\r\nAuthorization: Basic ZXZlOnBhc3N3b3Jk", 401),
    ] {
        let reached = origin.requests().len();
        let response = get(&mut connection, authorization);
        assert_eq!(response.status(), status, "{authorization}");
        let challenge = (status == 401).then_some("Basic realm=\"the inside\", charset=\"UTF-8\"");
        assert_eq!(response.header("www-authenticate"), challenge, "{authorization}");
        assert_eq!(origin.requests().len() - reached, usize::from(status == 200), "{authorization}");
        if !authorization.contains('\r') {
            let headers = [("authorization", authorization)];
            let headers = if authorization.is_empty() { &[][..] } else { &headers };
            let mut http2 = Client::connect(&site);
            http2.send(&h2::get_with(1, "/", headers));
            assert_eq!(http2.status(1), status, "{authorization} over HTTP/2");
        }
    }
    assert!(origin.requests().iter().all(|request| request.header("authorization").is_none()));
    assert!(site.brisk.logged("\"user\":\"bob\"").contains("\"status\":200"));
    assert!(site.brisk.logged("\"error\":\"password\"").contains("\"status\":401"));
}

#[test]
fn upstreams_get_the_credentials_if_the_operator_says_so() {
    let origin = Origin::fixed("reached");
    let site = site(&origin, ", forward = true");
    assert_eq!(get(&mut site.connect(), FOR_ALICE).status(), 200);
    assert_eq!(origin.last_request().header("authorization"), Some(FOR_ALICE));
}

#[test]
fn a_changed_file_takes_effect_at_once_and_a_wrong_one_none() {
    let origin = Origin::fixed("reached");
    let site = site(&origin, "");
    let mut connection = site.connect();
    for authorization in [FOR_ALICE, FOR_BOB] {
        assert_eq!(get(&mut connection, authorization).status(), 200);
    }
    site.brisk.write("users", BOB);
    site.brisk.log_with("reloaded: ");
    assert_eq!(get(&mut site.connect(), FOR_ALICE).status(), 401);
    assert_eq!(get(&mut connection, FOR_ALICE).status(), 401, "on a connection of before");
    assert_eq!(get(&mut connection, FOR_BOB).status(), 200);
    site.brisk.write("users", format!("{ALICE}bob:secret\n"));
    site.brisk.log_with("users: line 2: the scheme of the hash is unknown");
    assert_eq!(get(&mut site.connect(), FOR_ALICE).status(), 401);
    assert_eq!(get(&mut site.connect(), FOR_BOB).status(), 200);
}

#[test]
fn one_client_that_guesses_leaves_the_verification_to_others() {
    let origin = Origin::fixed("reached");
    let site = site(&origin, "");
    let mut guessing = site.client().alpn(&["h2"]).connect(site.brisk.https()).expect("a handshake");
    let guess = |number: u32| {
        // Base64 of `bob:` and five characters.
        let authorization = format!("Basic Ym9iOm{:05}A", 10_000 + number);
        h2::get_with(2 * number + 1, "/", &[("authorization", &authorization)])
    };
    let requests: Vec<_> = (0..100).map(guess).collect();
    let mut frames = Frames::exchange(&mut guessing, &[h2::preface(), requests.concat()].concat(), 199);
    let mut other = site
        .client()
        .over(connect_from(Ipv4Addr::new(127, 0, 0, 2), site.brisk.https()))
        .expect("a handshake");
    assert_eq!(get(&mut other, FOR_BOB).status(), 200);
    let mut statuses = Vec::new();
    for stream in (1..200).step_by(2) {
        if !frames.has_ended(stream) {
            frames.read_until_end(&mut guessing, stream);
        }
        let body = frames.body(stream);
        let status =
            ["401 Unauthorized", "503 Service Unavailable"].iter().position(|status| body.contains(status));
        statuses.push(status.unwrap_or_else(|| panic!("{body}")));
    }
    let refused = statuses.iter().sum::<usize>();
    assert!(refused > 0 && refused < 100, "{refused} of 100 guesses were not verified");
    assert!(site.brisk.logged("\"password-queue\"").contains("\"status\":503"));
    assert!(origin.requests().iter().all(|request| request.header("authorization").is_none()));
}
