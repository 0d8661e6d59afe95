//! Variables with fingerprints of clients: JA4, and the SHA-256 of client certificates.

use std::fmt::Write as _;

use brisk_behaviour::h3_client;
use brisk_behaviour::site::{LIMIT, NAME, Site};
use brisk_testkit::ca::TestCa;
use brisk_testkit::client::TlsClient;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::{command, run};

const ROUTE: &str = "\n[[host.route]]\npath = \"/\"\nrespond = { body = \"x\" }\n\
                     response_headers = { set = { X-Ja4 = \"{ja4}\", X-Certificate = \"<{tls.client.fingerprint}>\" } }\n";

/// The value of a header in the response to a client.
fn header(client: &TlsClient, site: &Site, name: &str) -> Option<String> {
    let mut connection = client.connect(site.brisk.https()).expect("a handshake");
    connection.get(NAME, "/").header(name).map(str::to_owned)
}

/// The first twelve digits of the SHA-256 of a text.
fn hash(text: &str) -> String {
    let digest = run(command("openssl").args(["dgst", "-sha256", "-r"]), text.as_bytes(), LIMIT).success();
    digest[..12].to_owned()
}

/// JA4 of a hello, formed from the fields that tshark finds in it.
fn of_tshark(hello: &[u8]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("hello.pcap");
    let mut dump = "000000".to_owned();
    for byte in hello {
        write!(dump, " {byte:02x}").expect("memory");
    }
    let mut text2pcap = command("text2pcap");
    run(text2pcap.args(["-q", "-T", "40000,443", "-"]).arg(&file), format!("{dump}\n").as_bytes(), LIMIT)
        .success();
    let mut tshark = command("tshark");
    tshark.arg("-r").arg(&file).args(["-T", "fields", "-E", "separator=|"]);
    for field in [
        "ciphersuite",
        "extension.type",
        "sig_hash_alg",
        "extensions.supported_version",
        "extensions_alpn_str",
    ] {
        tshark.args(["-e", &format!("tls.handshake.{field}")]);
    }
    let output = run(&mut tshark, b"", LIMIT).success();
    let fields: Vec<_> = output.trim_end_matches('\n').split('|').collect();
    let [suites, extensions, schemes, versions, alpn] = fields[..] else { panic!("{output}") };
    let numbers = |text: &str| -> Vec<u16> {
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u16::from_str_radix(digits, 16).expect("a number"),
            None => text.parse().expect("a number"),
        };
        text.split(',').filter(|text| !text.is_empty()).map(number).collect()
    };
    let listed =
        |numbers: &[u16]| numbers.iter().map(|number| format!("{number:04x}")).collect::<Vec<_>>().join(",");
    let sorted = |mut numbers: Vec<u16>| {
        numbers.sort_unstable();
        listed(&numbers)
    };
    let version = if numbers(versions).contains(&0x0304) { "13" } else { "12" };
    let first = alpn.split(',').next().unwrap_or_default();
    let first = match (first.chars().next(), first.chars().next_back()) {
        (Some(one), Some(other)) => format!("{one}{other}"),
        _ => "00".to_owned(),
    };
    let all = numbers(extensions);
    let rest = all.iter().copied().filter(|number| !matches!(number, 0 | 16)).collect();
    format!(
        "t{version}d{:02}{:02}{first}_{}_{}",
        numbers(suites).len(),
        all.len(),
        hash(&sorted(numbers(suites))),
        hash(&format!("{}_{}", sorted(rest), listed(&numbers(schemes))))
    )
}

#[test]
fn ja4_of_a_client_has_the_parts_that_tshark_finds_in_its_hello() {
    let site = Site::with(ROUTE);
    let clients = [
        site.client(),
        site.client().alpn(&["http/1.1"]),
        site.client().tls12().alpn(&["http/1.1", "http/0.9"]),
    ];
    for (client, start) in clients.into_iter().zip(["t13d", "t13d", "t12d"]) {
        let expected = of_tshark(&client.hello());
        assert!(expected.starts_with(start), "{expected}");
        assert_eq!(header(&client, &site, "x-ja4"), Some(expected));
    }
    assert_eq!(header(&site.client(), &site, "x-certificate").as_deref(), Some("<>"));
}

#[test]
fn ja4_of_a_client_over_http3_names_its_transport() {
    let site = h3_client::h3_site("", ROUTE);
    let mut connection = h3_client::connect(&h3_client::client(&site), site.brisk.https());
    let response = h3_client::get(&mut connection, "/");
    let over_quic = response.field("x-ja4").expect("a value").to_owned();
    let over_tcp = header(&site.client().alpn(&["h3", "http/1.1"]), &site, "x-ja4");
    assert!(over_quic.starts_with("q13d") && over_quic[..10].ends_with("h3"), "{over_quic}");
    assert!(over_tcp.as_deref().is_none_or(|value| value.starts_with("t13d")), "{over_tcp:?}");
    let parts: Vec<_> = over_quic.split('_').map(str::len).collect();
    assert_eq!(parts, [10, 12, 12]);
}

#[test]
fn a_client_certificate_has_the_fingerprint_of_openssl() {
    let ca = TestCa::new();
    let alice = ca.client("alice").issue();
    let origin = Origin::fixed("x");
    let tables = format!(
        "client_certificates = {{ mode = \"optional\", ca = \"clients.pem\" }}\n\
         [[host.route]]\npath = \"/\"\nupstream = \"app\"\n\
         request_headers = {{ set = {{ X-Certificate = \"{{tls.client.fingerprint}}\" }} }}\n\
         [upstream.app]\nservers = [{:?}]\n",
        origin.url()
    );
    let keys = "access_log.format = { template = '{request.path} [{tls.client.fingerprint}] [{ja4}]' }";
    let site = Site::custom(keys, &tables, |setup| setup.file("clients.pem", ca.root_pem()));
    let mut openssl = command("openssl");
    openssl.args(["x509", "-noout", "-fingerprint", "-sha256", "-in"]).arg(&alice.chain);
    let line = run(&mut openssl, b"", LIMIT).success();
    let expected = line.trim().split('=').nth(1).expect("a value").replace(':', "").to_lowercase();
    // The second connection resumes the session of the first.
    let client = site.client().identity(&alice);
    let ja4 = of_tshark(&client.hello());
    for _ in 0..2 {
        assert_eq!(header(&client, &site, "x-none"), None);
        assert_eq!(origin.last_request().header("x-certificate"), Some(expected.as_str()));
    }
    let logged = site.brisk.logged("/ [");
    assert_eq!(logged, format!("/ [{expected}] [{ja4}]"));
    assert_eq!(header(&site.client(), &site, "x-none"), None);
    assert_eq!(origin.last_request().header("x-certificate"), None);
}

#[test]
fn requests_are_limited_and_redirected_by_ja4() {
    let site = Site::with(
        "\n[[host.route]]\npath = \"/\"\nredirect = { to = \"/from/{ja4}\", status = 302 }\nlimits = [\"clients\"]\n\
         [limit.clients]\nrate = \"1/h\"\nby = \"{ja4}\"\n",
    );
    // Without sessions of earlier connections, whose resumption has a JA4 of its own.
    let (one, other) = (|| site.client(), || site.client().alpn(&["http/1.1"]));
    let get = |client: TlsClient| client.connect(site.brisk.https()).expect("a handshake").get(NAME, "/");
    let first = get(one());
    let expected = format!("/from/{}", of_tshark(&one().hello()));
    assert_eq!((first.status(), first.header("location")), (302, Some(expected.as_str())));
    assert_eq!([one(), other(), other()].map(|client| get(client).status()), [429, 302, 429]);
}
