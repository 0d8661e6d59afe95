//! Keys in tokens: what is found wrong without a token.

use super::*;

fn with_key(keys: &str, key: &str) -> (TempDir, String) {
    let (folder, ca) = (folder(), TestCa::new());
    let leaf = ca.server(&["localhost"]).issue();
    fs::copy(&leaf.chain, folder.path().join("chain.pem")).expect("a copy");
    let text = format!(
        "{LISTENER}[keys]\n{keys}\n{HOST}certificates = [{{ chain = \"chain.pem\", key = \"{key}\" }}]\n"
    );
    (folder, text)
}

#[track_caller]
fn refused_key(keys: &str, key: &str, expected: &str) {
    let (folder, text) = with_key(keys, key);
    let message = checked(folder.path(), &text).expect_err(&text);
    assert_eq!(message, format!("brisk.toml:7:46: host[0].certificates[0].key: {expected}"));
}

#[test]
fn a_uri_is_read_before_any_module_is_loaded() {
    refused_key(
        "",
        "pkcs11:token=web",
        "which key of the token? write object=LABEL or id=%01, as pkcs11:token=web;object=site",
    );
    refused_key(
        "pkcs11_module = \"none.so\"",
        "pkcs11:object=site?pin-value=1234",
        "a PIN has no place in a configuration: write it into a file, and pin-source=file:/PATH here",
    );
    refused_key(
        "",
        "pkcs11:object=site",
        "which PKCS #11 module? write pkcs11_module = \"/PATH.so\" in [keys], or append module-path=/PATH.so to the URI",
    );
}

#[test]
fn the_module_of_the_uri_goes_before_that_of_all() {
    let none =
        |name| format!("cannot load the PKCS #11 module {name}: No such file or directory (os error 2)");
    refused_key("pkcs11_module = \"none.so\"", "pkcs11:object=site", &none("none.so"));
    refused_key("pkcs11_module = \"none.so\"", "pkcs11:object=site?module-path=other.so", &none("other.so"));
}

#[test]
fn sessions_with_tokens_have_a_range() {
    let (folder, text) = with_key("pkcs11_sessions = 0", "none.key");
    let message = checked(folder.path(), &text).expect_err(&text);
    let expected = "brisk.toml:4:19: keys.pkcs11_sessions: 0 is out of range: write 1 to 256";
    assert!(message.starts_with(expected), "{message}");
    assert_eq!(accepted(&format!("{LISTENER}{HOST}")).keys.tokens.sessions.get(), 8);
}
