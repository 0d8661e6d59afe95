//! Signed links, replaced texts, and the lists of outputs of the access log.

use super::*;

const ROUTE: &str = "[[host.route]]\npath = \"/\"\nrespond = {}\n";

/// The message for a key of a route, without its place.
#[track_caller]
fn message_for(folder: &Path, key: &str) -> String {
    let message = checked(folder, &format!("{LISTENER}{HOST}{ROUTE}{key}\n")).expect_err(key);
    message.split_once("host[0].route[0].").map_or(message.clone(), |(_, message)| message.to_owned())
}

#[test]
fn signed_links_need_secrets_and_known_variables() {
    let folder = folder();
    fs::write(folder.path().join("short"), "123456789012345\n").expect("a file");
    for (keys, expected) in [
        ("", "signed_links: needs keys, the names of 1 to 4 files with secrets"),
        (
            "keys = [\"none\"]",
            "signed_links.keys[0]: cannot read none: No such file or directory (os error 2)",
        ),
        (
            "keys = [\"short\"]",
            "signed_links.keys[0]: short has not 16 to 4096 bytes: write a random secret, as with `openssl rand -hex -out FILE 32`",
        ),
        ("md5 = true", "signed_links: needs text with a secret in it, because MD5 has no key"),
        (
            "md5 = true, text = \"{expires}x\", keys = [\"short\"]",
            "signed_links.keys: has no effect with md5, whose secret is a part of `text`",
        ),
        ("md5 = true, text = \"{expired}\"", "signed_links.text: {expired} is no variable; known here: "),
        (
            "md5 = true, text = \"{expires}\", expires = \"{expires}\"",
            "signed_links.expires: {expires} is no variable; ",
        ),
    ] {
        let message = message_for(folder.path(), &format!("signed_links = {{ {keys} }}"));
        assert!(message.starts_with(expected), "{message}\n{expected}");
    }
    let text = format!(
        "{LISTENER}{HOST}{ROUTE}signed_links = {{ md5 = true, text = \"{{decoded_path}} secret\" }}\n"
    );
    let warnings = accepted(&text).warnings;
    let expected = "host[0].route[0].signed_links.text: lacks {expires}, so that clients can change the expiry of a link: \
                    write {expires}, or expires = \"none\"";
    assert!(warnings.iter().any(|warning| warning == expected), "{warnings:?}");
}

#[test]
fn replaced_texts_are_short_and_their_types_complete() {
    let folder = folder();
    let long = "x".repeat(257);
    for (keys, expected) in [
        (
            "texts = []".to_owned(),
            "replace_text.texts: needs 1 to 16 texts, as [{ from = \"http://app/\", to = \"/\" }]",
        ),
        (
            format!("texts = [{{ from = \"{long}\", to = \"\" }}]"),
            "replace_text.texts[0].from: a text that is replaced has 1 to 256 bytes",
        ),
        (
            format!("texts = [{{ from = \"a\", to = \"{}\" }}]", long.repeat(16)),
            "replace_text.texts[0].to: a text has at most 4096 bytes",
        ),
        (
            "texts = [{ from = \"a\", to = \"{response.status}\" }]".to_owned(),
            "replace_text.texts[0].to: variables of the response have no value in its body",
        ),
        (
            "texts = [{ from = \"a\", to = \"b\" }], types = [\"css\"]".to_owned(),
            "replace_text.types[0]: \"css\" is no media type: write one as \"text/css\", or \"*\" for all",
        ),
    ] {
        assert_eq!(message_for(folder.path(), &format!("replace_text = {{ {keys} }}")), expected);
    }
}

#[test]
fn lists_have_outputs_of_the_access_log() {
    let folder = folder();
    assert_eq!(
        message_for(folder.path(), "access_log = []"),
        "access_log: an empty list: write false for requests without lines"
    );
    assert_eq!(
        message_for(folder.path(), "access_log = [\"shop\"]"),
        "access_log[0]: no output of the access log has the name \"shop\": write [[access_log.output]] with name = \"shop\""
    );
    let message = message_for(folder.path(), "access_log = 1");
    assert!(
        message.contains(
            "expected true, false or a list of names of outputs, as [\"shop\"], found the number 1"
        ),
        "{message}"
    );
    let output = "[[access_log.output]]\nfile = \"stderr\"\nonly_listed = true\n";
    let message = message_for(folder.path(), output);
    let expected = "only_listed: no list can have an output without a name: write name = \"NAME\", and access_log = [\"NAME\"] for a host";
    assert!(message.ends_with(expected), "{message}");
    let named = format!("{LISTENER}{HOST}{ROUTE}access_log = [\"shop\"]\n{output}name = \"shop\"\n");
    assert!(accepted(&named).settings.access_log[0].only_listed);
}
