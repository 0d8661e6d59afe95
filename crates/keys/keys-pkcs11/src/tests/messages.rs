//! Error messages for operators.

use std::{fs, path::Path};

use aws_lc_rs::{
    encoding::AsDer,
    signature::{Ed25519KeyPair, KeyPair},
};

use super::*;

fn refused(tokens: &Tokens, uri: &str, certified: &CertificateKey) -> String {
    attach(tokens, uri, certified).expect_err(uri).to_string()
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn every_mistake_has_its_message() {
    with_tokens("messages::every_mistake_has_its_message", |tokens| {
        tokens.add("web");
        let wanted = CertificateKey {
            public_key: Vec::new(),
            algorithm: KeyAlgorithm::EcdsaP256,
            subject: "CN=site".into(),
        };
        let message = refused(tokens, "pkcs11:token=web;object=site", &wanted);
        assert_eq!(
            message,
            "the token \"web\" has no private key for `pkcs11:token=web;object=site`; it shows no private key at all; is \
             it the right PIN for them?"
        );
        tokens.generate("web", "site", "01", TokenKind::P256, &[]);
        tokens.generate("web", "twin", "02", TokenKind::P256, &[]);
        tokens.generate("web", "twin", "03", TokenKind::P256, &[]);
        tokens.generate("web", "rsa", "04", TokenKind::Rsa2048, &[]);
        let wanted = certified(tokens, "site", TokenKind::P256);

        let message = refused(tokens, "pkcs11:token=web;object=sight", &wanted);
        assert!(
            message.contains("has no private key for `pkcs11:token=web;object=sight`; it has "),
            "{message}"
        );
        assert!(message.contains("object=site;id=%01"), "{message}");
        let message = refused(tokens, "pkcs11:token=web;object=twin", &wanted);
        assert!(
            message.contains("has 2 private keys for `pkcs11:token=web;object=twin`: object=twin;id=%0"),
            "{message}"
        );
        assert!(message.ends_with("; name one of them by both `object` and `id`"), "{message}");
        assert_eq!(
            refused(tokens, "pkcs11:token=web;object=twin;id=%02", &wanted),
            "the key `pkcs11:token=web;object=twin;id=%02` does not belong to the certificate, which is for \"CN=site\": a \
             signature that it made for a trial is not one of the certificate's key"
        );
        let message = refused(tokens, "pkcs11:token=web;object=rsa", &wanted);
        assert!(
            message.ends_with("it is a key of the type CKK_RSA, the certificate's is ECDSA P-256"),
            "{message}"
        );
        let message = refused(tokens, "pkcs11:token=wab;object=site", &wanted);
        assert!(
            message.starts_with(
                "no token fits `pkcs11:token=wab;object=site`; the module shows \"web\" (serial "
            ),
            "{message}"
        );
        let pair = Ed25519KeyPair::generate().expect("a key");
        let public_key = pair.public_key().as_der().expect("its DER").as_ref().to_vec();
        let ed25519 = CertificateKey { public_key, algorithm: KeyAlgorithm::Ed25519, ..wanted.clone() };
        let message = refused(tokens, "pkcs11:token=web;object=site", &ed25519);
        assert!(
            message.ends_with("Ed25519 is not supported in tokens; use ECDSA P-256 or P-384, or RSA"),
            "{message}"
        );
        tokens.generate("web", "asks", "05", TokenKind::P256, &["--always-auth"]);
        let asks = certified(tokens, "asks", TokenKind::P256);
        let message = refused(tokens, "pkcs11:token=web;object=asks", &asks);
        assert!(
            message.contains("it wants the PIN for each signature (CKA_ALWAYS_AUTHENTICATE is true)"),
            "{message}"
        );
        // Any attribute can name the token; without one, the only token is chosen.
        assert!(attach(tokens, "pkcs11:object=site", &wanted).is_ok());
        assert!(attach(tokens, "pkcs11:manufacturer=SoftHSM%20project;id=%01", &wanted).is_ok());
    });
}

#[test]
fn two_tokens_that_fit_are_both_named() {
    with_tokens("messages::two_tokens_that_fit_are_both_named", |tokens| {
        tokens.add("web");
        tokens.add("web");
        let wanted = CertificateKey {
            public_key: Vec::new(),
            algorithm: KeyAlgorithm::EcdsaP256,
            subject: String::new(),
        };
        let message = refused(tokens, "pkcs11:token=web;object=site", &wanted);
        assert!(
            message.starts_with("several tokens fit `pkcs11:token=web;object=site`: \"web\" (serial "),
            "{message}"
        );
        assert!(message.ends_with("add `serial` or `slot-id` to mean one of them"), "{message}");
    });
}

#[test]
fn a_wrong_pin_is_offered_once() {
    with_tokens("messages::a_wrong_pin_is_offered_once", |tokens| {
        tokens.add("web");
        tokens.generate("web", "site", "01", TokenKind::P256, &[]);
        let (uri, wanted) = ("pkcs11:token=web;object=site", certified(tokens, "site", TokenKind::P256));
        let right = fs::read(tokens.pin_file()).unwrap();
        fs::write(tokens.pin_file(), "135790\n").unwrap();
        let message = refused(tokens, uri, &wanted);
        let file = tokens.pin_file();
        let start =
            format!("the token \"web\" refuses the PIN in {}: C_Login: CKR_PIN_INCORRECT; ", file.display());
        assert!(message.starts_with(&start), "{message}");
        let message = refused(tokens, uri, &wanted);
        assert!(message.contains(": it was wrong before; "), "{message}");
        fs::write(&file, "1\n2\n").unwrap();
        assert!(refused(tokens, uri, &wanted).ends_with("wanted a PIN in one line of text"));
        fs::remove_file(&file).unwrap();
        assert!(refused(tokens, uri, &wanted).starts_with("cannot read the PIN in "));
        let none = IN_USE.attach(TokenSettings::default(), &uri.parse().unwrap(), &module(), None, &wanted);
        let message = none.expect_err("no PIN").to_string();
        assert!(
            message.starts_with("the token \"web\" wants a PIN: append ?pin-source=file:/PATH"),
            "{message}"
        );
        fs::write(&file, right).unwrap();
        assert!(attach(tokens, uri, &wanted).is_ok());
    });
}

#[test]
fn a_module_that_is_none_is_named() {
    let attach = |module: &Path| {
        let wanted = CertificateKey {
            public_key: Vec::new(),
            algorithm: KeyAlgorithm::EcdsaP256,
            subject: String::new(),
        };
        let (settings, uri) = (TokenSettings::default(), "pkcs11:object=a".parse().unwrap());
        let attached = IN_USE.attach(settings, &uri, module, None, &wanted);
        attached.expect_err("no module").to_string()
    };
    let message = attach(Path::new("/no/such/module.so"));
    assert_eq!(
        message,
        "cannot load the PKCS #11 module /no/such/module.so: No such file or directory (os error 2)"
    );
    let message = attach(Path::new("/etc/passwd"));
    assert!(
        message.contains("/etc/passwd: ") && message.ends_with("the shared library of the token's maker"),
        "{message}"
    );
    let library = ["/lib/x86_64-linux-gnu/libm.so.6", "/lib/aarch64-linux-gnu/libm.so.6"];
    if let Some(library) = library.into_iter().map(Path::new).find(|library| library.is_file()) {
        let message = attach(library);
        assert!(
            message.ends_with("it has no C_GetFunctionList: a shared library, but no PKCS #11 module"),
            "{message}"
        );
    }
}
