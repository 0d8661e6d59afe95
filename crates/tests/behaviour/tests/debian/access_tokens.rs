//! Tokens that openssl signed.

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use brisk_behaviour::site::{LIMIT, NAME, Site};
use brisk_testkit::process::{command, run};
use tempfile::TempDir;

fn openssl(folder: &Path, words: &str) {
    run(command("openssl").current_dir(folder).args(words.split_whitespace()), b"", LIMIT).success();
}

fn text(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A signature of ECDSA in DER as two numbers of the same length (RFC 7518 section 3.4).
fn fixed(der: &[u8], length: usize) -> Vec<u8> {
    let mut rest = &der[2..];
    let mut fixed = Vec::new();
    for _ in 0..2 {
        let end = 2 + usize::from(rest[1]);
        let digits: Vec<_> = rest[2..end].iter().copied().skip_while(|byte| *byte == 0).collect();
        fixed.extend(std::iter::repeat_n(0, length - digits.len()).chain(digits));
        rest = &rest[end..];
    }
    fixed
}

#[test]
fn tokens_signed_by_openssl_pass_with_the_public_key_in_pem() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path();
    for (algorithm, key, sign) in [
        ("RS256", "RSA -pkeyopt rsa_keygen_bits:2048", "dgst -sha256 -sign key.pem -out signature message"),
        ("RS512", "RSA -pkeyopt rsa_keygen_bits:3072", "dgst -sha512 -sign key.pem -out signature message"),
        (
            "PS384",
            "RSA -pkeyopt rsa_keygen_bits:2048",
            "dgst -sha384 -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:-1 -sign key.pem -out signature message",
        ),
        ("ES256", "EC -pkeyopt ec_paramgen_curve:P-256", "dgst -sha256 -sign key.pem -out signature message"),
        ("ES384", "EC -pkeyopt ec_paramgen_curve:P-384", "dgst -sha384 -sign key.pem -out signature message"),
        ("EdDSA", "ED25519", "pkeyutl -sign -rawin -inkey key.pem -in message -out signature"),
    ] {
        openssl(path, &format!("genpkey -algorithm {key} -out key.pem"));
        openssl(path, "pkey -in key.pem -pubout -out public.pem");
        let header = format!("{{\"alg\":\"{algorithm}\",\"typ\":\"JWT\"}}");
        let message = format!("{}.{}", text(header.as_bytes()), text(br#"{"sub":"bob","exp":4102444800}"#));
        fs::write(path.join("message"), &message).expect("a file");
        openssl(path, sign);
        let signature = fs::read(path.join("signature")).expect("a signature");
        let signature = match algorithm {
            "ES256" => fixed(&signature, 32),
            "ES384" => fixed(&signature, 48),
            _ => signature,
        };
        let public = fs::read(path.join("public.pem")).expect("a key");
        let route = "\n[[host.route]]\npath = \"/\"\nrespond = { body = \"x\" }\njwt = { key_file = \"public.pem\" }\n";
        let site = Site::custom("", route, |setup| setup.file("public.pem", &public));
        let status = |token: &str| {
            let request = format!("GET / HTTP/1.1\r\nHost: {NAME}\r\nAuthorization: Bearer {token}\r\n\r\n");
            site.connect().request(&request).status()
        };
        assert_eq!(status(&format!("{message}.{}", text(&signature))), 200, "{algorithm}");
        let other = message.replacen('.', "A.", 1);
        assert_eq!(status(&format!("{other}.{}", text(&signature))), 401, "{algorithm}");
    }
}
