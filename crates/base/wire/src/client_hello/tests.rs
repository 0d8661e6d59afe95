use super::*;

const LIMIT: usize = 16 * 1024;

/// A hello as a browser sends it, built piece by piece.
struct Hello {
    session_id: usize,
    suites: Vec<u16>,
    extensions: Vec<(u16, Vec<u8>)>,
}

impl Hello {
    fn modern() -> Self {
        let mut key_share = vec![0; 2 + 4 + 1216];
        key_share[..6].copy_from_slice(&[0x04, 0xc4, 0x11, 0xec, 0x04, 0xc0]);
        let extensions = vec![
            (0x0a0a, vec![]),
            (0, b"\0\x0e\0\0\x0bExample.com".to_vec()),
            (16, b"\0\x0c\x02h2\x08http/1.1".to_vec()),
            (10, vec![0, 6, 0x11, 0xec, 0, 0x1d, 0, 0x17]),
            (13, vec![0, 4, 4, 3, 8, 4]),
            (43, vec![6, 0x1a, 0x1a, 3, 4, 3, 3]),
            (51, key_share),
        ];
        Self { session_id: 32, suites: vec![0x1301, 0x1302, 0xc02b], extensions }
    }

    fn with(mut self, kind: u16, data: &[u8]) -> Self {
        self.extensions.retain(|(other, _)| *other != kind);
        self.extensions.push((kind, data.to_vec()));
        self
    }

    fn without(mut self, kind: u16) -> Self {
        self.extensions.retain(|(other, _)| *other != kind);
        self
    }

    /// The handshake message.
    fn message(&self) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.push(self.session_id as u8);
        body.extend(vec![9; self.session_id]);
        body.extend((self.suites.len() as u16 * 2).to_be_bytes());
        self.suites.iter().for_each(|suite| body.extend(suite.to_be_bytes()));
        body.extend([1, 0]);
        let extensions = self.extensions.iter().flat_map(|(kind, data)| {
            [kind.to_be_bytes().as_slice(), &(data.len() as u16).to_be_bytes(), data].concat()
        });
        let extensions: Vec<u8> = extensions.collect();
        body.extend((extensions.len() as u16).to_be_bytes());
        body.extend(extensions);
        let mut message = (body.len() as u32).to_be_bytes().to_vec();
        message[0] = 1;
        message.extend(body);
        message
    }

    /// The message in one record.
    fn wire(&self) -> Vec<u8> {
        records(&self.message(), usize::MAX)
    }
}

/// `message` in records of at most `size` bytes.
fn records(message: &[u8], size: usize) -> Vec<u8> {
    let record = |part: &[u8]| [&[22, 3, 1], (part.len() as u16).to_be_bytes().as_slice(), part].concat();
    message.chunks(size).flat_map(record).collect()
}

fn read(bytes: &[u8]) -> ClientHello {
    match ClientHello::read(bytes, LIMIT) {
        Ok(Progress::Complete(hello)) => *hello,
        other => panic!("not complete: {other:?}"),
    }
}

fn error(bytes: &[u8]) -> HelloError {
    ClientHello::read(bytes, LIMIT).expect_err("an error")
}

fn is_malformed(bytes: &[u8]) -> bool {
    matches!(error(bytes), HelloError::Malformed(_))
}

#[test]
fn a_hello_states_its_facts() {
    let hello = read(&Hello::modern().with(35, b"ticket").wire());
    assert_eq!(hello.server_name.as_deref(), Some("example.com"));
    assert_eq!(hello.alpn, [b"h2".to_vec(), b"http/1.1".to_vec()]);
    assert_eq!(hello.versions, [ProtocolVersion(0x1a1a), ProtocolVersion::TLS1_3, ProtocolVersion::TLS1_2]);
    assert_eq!(hello.suites, [CipherSuite(0x1301), CipherSuite(0x1302), CipherSuite(0xc02b)]);
    assert_eq!(hello.groups, [NamedGroup::X25519MLKEM768, NamedGroup::X25519, NamedGroup::SECP256R1]);
    let schemes = [SignatureScheme::ECDSA_SECP256R1_SHA256, SignatureScheme::RSA_PSS_RSAE_SHA256];
    assert_eq!(hello.signature_schemes, schemes);
    assert_eq!(hello.key_shares, Some(vec![NamedGroup::X25519MLKEM768]));
    assert_eq!(hello.session_id_len, 32);
    assert!(hello.has_ticket && !hello.has_psk && !hello.early_data);
    assert!(hello.offers_version(ProtocolVersion::TLS1_3));
}

#[test]
fn no_key_shares_differ_from_an_empty_list() {
    let shares = |data: &[u8]| read(&Hello::modern().with(51, data).wire()).key_shares;
    assert_eq!(read(&Hello::modern().without(51).wire()).key_shares, None);
    assert_eq!(shares(&[0, 0]), Some(Vec::new()));
    let two = [0, 11, 0, 0x1d, 0, 2, 1, 2, 0, 0x17, 0, 1, 3];
    assert_eq!(shares(&two), Some(vec![NamedGroup::X25519, NamedGroup::SECP256R1]));
    for wrong in [&[][..], &[0], &[0, 1, 0], &[0, 4, 0, 0x1d, 0, 1], &[0, 3, 0, 0x1d, 0], &two[..12]] {
        assert!(is_malformed(&Hello::modern().with(51, wrong).wire()), "{wrong:?}");
    }
}

#[test]
fn a_hello_for_resumption_says_so() {
    let hello = read(&Hello::modern().with(35, b"").with(42, b"").with(41, &[0; 80]).wire());
    assert!(!hello.has_ticket, "an empty ticket asks for one and offers none");
    assert!(hello.has_psk && hello.early_data);
}

#[test]
fn a_hello_without_extensions_is_read() {
    let mut message = Hello::modern().message();
    let body = 4 + 2 + 32 + 1 + 32 + 2 + 6 + 2;
    message.truncate(body);
    message[3] = (body - 4) as u8;
    message[2] = 0;
    let hello = read(&records(&message, usize::MAX));
    assert_eq!(hello.versions, [ProtocolVersion::TLS1_2]);
    assert_eq!(hello.server_name, None);
    assert!(hello.groups.is_empty() && hello.signature_schemes.is_empty() && hello.alpn.is_empty());
}

#[test]
fn a_hello_that_comes_byte_by_byte_is_incomplete_until_its_last_byte() {
    let wire = Hello::modern().wire();
    for length in 0..wire.len() {
        assert_eq!(ClientHello::read(&wire[..length], LIMIT), Ok(Progress::Incomplete), "{length} bytes");
    }
    assert_eq!(read(&wire).server_name.as_deref(), Some("example.com"));
}

#[test]
fn a_hello_may_span_records_of_any_size() {
    let hello = Hello::modern();
    let expected = read(&hello.wire());
    for size in [1, 2, 3, 5, 100, 1000] {
        let wire = records(&hello.message(), size);
        assert_eq!(read(&wire), expected, "records of {size}");
        assert_eq!(ClientHello::read(&wire[..wire.len() - 1], LIMIT), Ok(Progress::Incomplete));
    }
}

#[test]
fn what_follows_the_hello_is_left_alone() {
    let wire = Hello::modern().wire();
    let followed = [wire.as_slice(), &[20, 3, 3, 0, 1, 1, 23, 3, 3, 0, 5]].concat();
    let message = wire.len() - RECORD_HEADER;
    assert_eq!(extent(&followed, LIMIT), Ok(Extent::Complete { wire: wire.len(), message }));
    assert_eq!(read(&followed), read(&wire));
}

#[test]
fn an_announced_size_over_the_limit_is_refused_at_once() {
    assert_eq!(error(&[22, 3, 1, 0x40, 0, 1, 0, 0x40, 0]), HelloError::TooLarge { limit: LIMIT });
    assert_eq!(error(&[22, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff]), HelloError::TooLarge { limit: LIMIT });
    let wire = Hello::modern().wire();
    assert_eq!(ClientHello::read(&wire[..9], wire.len()), Ok(Progress::Incomplete));
    let too_low = wire.len() - 1;
    assert_eq!(ClientHello::read(&wire[..9], too_low), Err(HelloError::TooLarge { limit: too_low }));
}

#[test]
fn headers_count_towards_the_limit() {
    let message = Hello::modern().message();
    let wire = records(&message, 1);
    assert!(matches!(ClientHello::read(&wire, wire.len()), Ok(Progress::Complete(_))));
    let limit = wire.len() - 1;
    assert_eq!(ClientHello::read(&wire, limit), Err(HelloError::TooLarge { limit }));
    assert_eq!(ClientHello::read(&wire[..limit], limit), Err(HelloError::TooLarge { limit }));
}

#[test]
fn a_hello_without_records_has_the_same_fields() {
    let hello = Hello::modern().with(35, b"ticket").with(41, &[0; 80]);
    let message = hello.message();
    let whole = Ok(Progress::Complete(Box::new(read(&hello.wire()))));
    assert_eq!(ClientHello::read_message(&message, message.len()), whole);
    let followed = [message.as_slice(), &[1, 0, 0]].concat();
    assert_eq!(ClientHello::read_message(&followed, LIMIT), whole);
    for length in 0..message.len() {
        let read = ClientHello::read_message(&message[..length], LIMIT);
        assert_eq!(read, Ok(Progress::Incomplete), "{length} bytes");
    }
}

#[test]
fn a_message_without_records_keeps_to_its_limit() {
    let message = Hello::modern().message();
    let limit = message.len() - 1;
    let too_large = Err(HelloError::TooLarge { limit });
    assert_eq!(ClientHello::read_message(&message[..4], limit), too_large);
    assert_eq!(ClientHello::read_message(&message, limit), too_large);
    assert_eq!(ClientHello::read_message(&message[..3], limit), Ok(Progress::Incomplete));
    assert!(matches!(ClientHello::read_message(&[2], LIMIT), Err(HelloError::Malformed(_))));
    assert!(matches!(ClientHello::read_message(&[1, 0, 0, 0], LIMIT), Err(HelloError::Malformed(_))));
}

#[test]
fn plain_http_is_recognised() {
    for request in [
        "GET / HTTP/1.1\r\n",
        "POST /x HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET http://localhost/ HTTP/1.1",
        "CONNECT example.com:443 HTTP/1.1",
        "VERSION-CONTROL /x HTTP/1.1",
    ] {
        assert_eq!(error(request.as_bytes()), HelloError::PlainHttp, "{request}");
        assert_eq!(ClientHello::read(&request.as_bytes()[..3], LIMIT), Ok(Progress::Incomplete), "{request}");
    }
}

#[test]
fn what_is_neither_tls_nor_http_is_refused() {
    let cases: [&[u8]; 9] = [
        b"\0",
        b"\xff\xff",
        b"SSH-2.0-OpenSSH_9\r\n",
        b"get / HTTP/1.1",
        b"GET  /",
        b"GET\r\n",
        b"\x80\x2e\x01\x03\x01",
        b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        b"\x16\x02",
    ];
    for bytes in cases {
        assert_eq!(error(bytes), HelloError::NotTls, "{bytes:?}");
    }
    assert_eq!(ClientHello::read(b"", LIMIT), Ok(Progress::Incomplete));
}

#[test]
fn records_that_no_hello_has_are_malformed() {
    assert!(is_malformed(&[22, 3, 1, 0, 0]), "an empty record");
    assert!(is_malformed(&[22, 3, 1, 0x40, 1]), "a record over 2^14 bytes");
    assert!(is_malformed(&[22, 3, 1, 0, 4, 2]), "a ServerHello");
    assert!(is_malformed(&[21, 3, 1, 0, 2, 1, 0]), "an alert");
    assert!(is_malformed(&[23, 3, 3]), "application data");
    assert_eq!(error(&[21, 7]), HelloError::NotTls);
    let mut interrupted = records(&Hello::modern().message()[..50], usize::MAX);
    interrupted.extend([21, 3, 3, 0, 2, 1, 0]);
    assert!(is_malformed(&interrupted), "an alert between the records");
}

#[test]
fn extensions_that_are_wrong_are_malformed() {
    let malformed = |kind, data: &[u8]| is_malformed(&Hello::modern().with(kind, data).wire());
    assert!(malformed(16, b"\0\0"), "no protocol name");
    assert!(malformed(10, &[0, 3, 0, 0x1d, 0]), "half a group");
    assert!(malformed(10, &[0, 0]), "no group");
    assert!(malformed(13, &[0, 9, 4, 3]), "schemes shorter than they say");
    assert!(malformed(43, &[4, 3, 4]), "versions shorter than they say");
    assert!(malformed(43, &[]), "no versions");
    assert!(malformed(0, b"\0\x06\0\0\x03a/b"), "no host name");
    let mut twice = Hello::modern();
    twice.extensions.push((13, vec![0, 2, 4, 3]));
    assert!(is_malformed(&twice.wire()));
}

#[test]
fn a_message_whose_parts_do_not_add_up_is_malformed() {
    let mut no_suite = Hello::modern();
    no_suite.suites.clear();
    assert!(is_malformed(&no_suite.wire()));
    let mut long_session_id = Hello::modern();
    long_session_id.session_id = 33;
    assert!(is_malformed(&long_session_id.wire()));
    assert!(is_malformed(&records(&[1, 0, 0, 0], usize::MAX)), "an empty body");
    let mut trailing = Hello::modern().message();
    trailing.push(0);
    let length = (trailing.len() - 4) as u16;
    trailing[2..4].copy_from_slice(&length.to_be_bytes());
    assert!(is_malformed(&records(&trailing, usize::MAX)));
}

#[test]
fn no_change_of_one_byte_makes_it_panic() {
    let hello = Hello::modern().without(51);
    for wire in [hello.wire(), records(&hello.message(), 7)] {
        for index in 0..wire.len() {
            for value in [0, 1, 0x7f, 0xff, wire[index] ^ 1, wire[index] ^ 0x80] {
                let mut changed = wire.clone();
                changed[index] = value;
                let _ = ClientHello::read(&changed, LIMIT);
            }
        }
    }
}
