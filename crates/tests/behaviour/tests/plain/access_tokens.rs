//! Routes for clients with tokens. The tokens here are made without the library that verifies them.

use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use brisk_behaviour::h2;
use brisk_behaviour::h2_client::Client;
use brisk_behaviour::site::{NAME, Site, upstream};
use brisk_testkit::http1::Message;
use brisk_testkit::origin::{Origin, write_response};
use brisk_testkit::process::wait_until;
use serde_json::{Value, json};

/// A key of an issuer.
struct Key {
    id: &'static str,
    pair: Ed25519KeyPair,
}

fn text(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Key {
    fn new(id: &'static str) -> Self {
        Self { id, pair: Ed25519KeyPair::generate().expect("a key") }
    }

    fn jwk(&self) -> Value {
        json!({"kty": "OKP", "crv": "Ed25519", "kid": self.id, "x": text(self.pair.public_key().as_ref())})
    }

    fn token(&self, claims: &Value) -> String {
        let header = json!({"alg": "EdDSA", "kid": self.id});
        let message =
            format!("{}.{}", text(header.to_string().as_bytes()), text(claims.to_string().as_bytes()));
        format!("{message}.{}", text(self.pair.sign(message.as_bytes()).as_ref()))
    }
}

fn set(keys: &[&Key]) -> String {
    json!({"keys": keys.iter().map(|key| key.jwk()).collect::<Vec<_>>()}).to_string()
}

fn claims() -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
    json!({"iss": "https://id.test", "aud": "shop", "sub": "alice", "exp": now + 600, "groups": ["a", "b,c"], "org": {"id": 7}})
}

const CLAIMS: &str =
    r#"claims_to_headers = { X-User = "sub", X-Groups = "groups", X-Org = "org.id", X-Mail = "email" }"#;

fn site(origin: &Origin, jwt: &str, keys: &str, files: &[(&str, String)]) -> Site {
    let tables = format!(
        "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n{keys}\n\
         jwt = {{ issuer = \"https://id.test\", audience = [\"shop\", \"bank\"], {CLAIMS}, {jwt} }}\n{}",
        upstream(&[&origin.url()])
    );
    Site::custom("", &tables, |setup| files.iter().fold(setup, |setup, (name, text)| setup.file(name, text)))
}

fn get(site: &Site, headers: &str) -> Message {
    site.connect().request(&format!("GET / HTTP/1.1\r\nHost: {NAME}\r\n{headers}\r\n"))
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

#[test]
fn a_valid_token_passes_and_its_claims_reach_the_upstream_over_http1_and_http2() {
    let (origin, key, other) = (Origin::fixed("reached"), Key::new("a"), Key::new("a"));
    let site = site(&origin, "jwks_file = \"keys.json\"", "", &[("keys.json", set(&[&key]))]);
    let token = key.token(&claims());
    let forged = "X-User: root\r\nX_Groups: root\r\nX-Mail: root\r\nx-org: 1\r\n";
    for _ in 0..2 {
        assert_eq!(get(&site, &format!("{forged}{}", bearer(&token))).status(), 200);
        let head = origin.last_request().head;
        let sent = ["x-user", "x-groups", "x-org", "x-mail", "x_groups"].map(|name| head.header(name));
        assert_eq!(sent, [Some("alice"), Some("a,b%2Cc"), Some("7"), None, None]);
        assert_eq!(head.header("authorization"), Some(format!("Bearer {token}").as_str()));
    }
    let mut http2 = Client::connect(&site);
    http2.send(&h2::get_with(1, "/", &[("authorization", &format!("bearer {token}")), ("x-user", "root")]));
    assert_eq!(http2.status(1), 200);
    assert_eq!(origin.last_request().head.header("x-user"), Some("alice"));
    assert!(site.brisk.logged("\"user\":\"alice\"").contains("\"status\":200"));
    let reached = origin.requests().len();
    let changed = |name: &str, value: Value| {
        let mut claims = claims();
        claims[name] = value;
        bearer(&key.token(&claims))
    };
    let invalid = "Bearer error=\"invalid_token\"";
    let (payload, unsigned) = (text(claims().to_string().as_bytes()), text(br#"{"alg":"none"}"#));
    for (headers, challenge, error) in [
        (String::new(), "Bearer", ""),
        ("Authorization: Basic eDp5\r\n".to_owned(), "Bearer", ""),
        (bearer(&other.token(&claims())), invalid, "token-signature"),
        (bearer(&Key::new("b").token(&claims())), invalid, "token-key"),
        (bearer(&format!("{unsigned}.{payload}.")), invalid, "token-algorithm"),
        (bearer("x"), invalid, "\"token\""),
        (changed("exp", json!(1_700_000_000)), invalid, "token-expired"),
        (changed("iss", json!("https://evil.test")), invalid, "token-issuer"),
        (changed("aud", json!("other")), invalid, "token-audience"),
        (format!("{0}{0}", bearer(&token)), invalid, "\"token\""),
        (format!("Cookie: token={token}\r\n"), "Bearer", ""),
    ] {
        let response = get(&site, &headers);
        let answered = (response.status(), response.header("www-authenticate"));
        assert_eq!(answered, (401, Some(challenge)), "{headers}");
        site.brisk.logged(error);
    }
    assert_eq!(origin.requests().len(), reached);
}

#[test]
fn keys_are_fetched_and_replaced_when_the_issuer_changes_them() {
    let (origin, first, second) = (Origin::fixed("reached"), Key::new("a"), Key::new("b"));
    let body = Arc::new(Mutex::new(set(&[&first])));
    let answered = Arc::clone(&body);
    let issuer = Origin::answering(move |_, stream| {
        let body = answered.lock().expect("a lock").clone();
        write_response(stream, body.as_bytes())
    });
    let jwt = format!("jwks_url = \"{}/keys\"", issuer.url());
    let site = site(&origin, &jwt, "", &[]);
    let status = |key: &Key| get(&site, &bearer(&key.token(&claims()))).status();
    // A fetch whose five seconds a pause of the machine uses up is repeated.
    wait_until("the first key", || (status(&first) == 200).then_some(()));
    // At most one fetch in ten seconds, also for tokens with unknown keys.
    let (before, started) = (issuer.requests().len(), Instant::now());
    assert!((0..20).all(|_| status(&second) == 401));
    let fetches = issuer.requests().len();
    let most = before + 1 + started.elapsed().as_secs() as usize / 10;
    assert!(fetches <= most, "{fetches} fetches, {before} before");
    assert_eq!(issuer.last_request().head.header("host"), Some(issuer.address().to_string().as_str()));
    // A reload keeps the keys.
    *body.lock().expect("a lock") = set(&[&second]);
    site.brisk.reload();
    assert_eq!((status(&first), issuer.requests().len()), (200, fetches));
    wait_until("the new key", || (status(&second) == 200).then_some(()));
    assert_eq!(status(&first), 401);
}

#[test]
fn without_keys_of_the_issuer_requests_with_tokens_wait_or_get_503() {
    let (origin, key) = (Origin::fixed("reached"), Key::new("a"));
    let issuer = Origin::answering(|_, stream| write_response(stream, b"<html>"));
    let jwt = format!("jwks_url = \"{}/keys\"", issuer.url());
    let site = site(&origin, &jwt, "", &[]);
    let response = get(&site, &bearer(&key.token(&claims())));
    assert_eq!((response.status(), response.header("retry-after")), (503, Some("2")));
    assert_eq!(get(&site, "").status(), 401);
    // A later attempt, if a pause of the machine uses up the time of the first one.
    let log = site.brisk.log_with("no JSON Web Key Set");
    let line = log.lines().find(|line| line.contains("no JSON Web Key Set")).expect("a line");
    assert!(line.contains("cannot fetch the keys of tokens"), "{line}");
    assert!(site.brisk.logged("\"token-keys\"").contains("\"status\":503"));
    assert_eq!(origin.requests().len(), 0);
}

#[test]
fn one_of_network_password_and_token_is_sufficient_if_the_operator_says_so() {
    let (origin, key) = (Origin::fixed("reached"), Key::new("a"));
    let alice = "alice:$apr1$8charsal$xES.S6d4oPTiVAh2XwVyp/\n".to_owned();
    let files = [("keys.json", set(&[&key])), ("users", alice)];
    let keys = "satisfy = \"any\"\nbasic_auth = { file = \"users\" }\nallow = [\"192.0.2.0/24\"]";
    let site = site(&origin, "jwks_file = \"keys.json\", forward = false", keys, &files);
    for (headers, status) in [
        (bearer(&key.token(&claims())), 200),
        ("Authorization: Basic YWxpY2U6cGFzc3dvcmQ=\r\nX-User: root\r\n".to_owned(), 200),
        ("Authorization: Basic YWxpY2U6b3RoZXI=\r\n".to_owned(), 401),
        (bearer(&Key::new("a").token(&claims())), 401),
        (String::new(), 401),
    ] {
        let response = get(&site, &headers);
        assert_eq!(response.status(), status, "{headers}");
        if status == 200 {
            let head = origin.last_request().head;
            let user = headers.contains("Bearer").then_some("alice");
            assert_eq!((head.header("authorization"), head.header("x-user")), (None, user), "{headers}");
        }
    }
    assert_eq!(origin.requests().len(), 2);
}

#[test]
fn a_cookie_may_have_the_token() {
    let (origin, key) = (Origin::fixed("reached"), Key::new("a"));
    let jwt = "jwks_file = \"keys.json\", cookie = \"session\"";
    let site = site(&origin, jwt, "", &[("keys.json", set(&[&key]))]);
    let token = key.token(&claims());
    assert_eq!(get(&site, &format!("Cookie: a=b; session={token}\r\n")).status(), 200);
    assert_eq!(get(&site, &format!("Cookie: session={token}; session=x\r\n")).status(), 401);
    assert_eq!(get(&site, &bearer(&token)).status(), 401);
    // A changed file takes effect, and a wrong one none.
    let other = Key::new("a");
    site.brisk.write("keys.json", set(&[&other]));
    wait_until("the new keys", || {
        let cookie = format!("Cookie: session={}\r\n", other.token(&claims()));
        (get(&site, &cookie).status() == 200).then_some(())
    });
    assert_eq!(get(&site, &format!("Cookie: session={token}\r\n")).status(), 401);
}
