//! `server.user` and `server.sandbox`.

use brisk_sandbox::Granted;

use super::*;

#[test]
fn the_user_must_exist_and_the_sandbox_has_two_modes() {
    refused(
        &format!("{LISTENER}user = \"who-is-this\"\n{HOST}"),
        "brisk.toml:3:8: server.user: there is no user \"who-is-this\": create it, as `useradd --system who-is-this`, or write \
         another one",
    );
    refused(
        &format!("{LISTENER}sandbox = \"of\"\n{HOST}"),
        "brisk.toml:3:11: server.sandbox: \"of\" is not known here; known here: `on`, `off`",
    );
    let Resolved { sandbox, .. } = accepted(&format!("{LISTENER}{HOST}"));
    assert!(sandbox.is_on && sandbox.user.is_none() && sandbox.hardware.is_empty() && !sandbox.runs_programs);
    let Resolved { sandbox, .. } = accepted(&format!("{LISTENER}user = \"root\"\nsandbox = \"off\"\n{HOST}"));
    assert_eq!((sandbox.is_on, sandbox.user.as_deref()), (false, Some("root")));
}

#[test]
fn keys_about_rights_are_read_before_the_others() {
    let folder = folder();
    let file = folder.path().join("brisk.toml");
    let early = |text: &str| {
        fs::write(&file, text).expect("written");
        early_keys(&sources(&file, &Rights::default()).expect("texts"))
    };
    let keys = early(&format!("{LISTENER}user = \"${{BRISK_TEST_NO_NAME:-web}}\"\n"));
    assert_eq!((keys.user.as_deref(), keys.is_sandbox_off, keys.runs_programs), (Some("web"), false, false));
    let keys = early("server.sandbox = \"off\"\n[acme.dns]\nhook = \"/bin/true\"\n");
    assert_eq!((keys.user, keys.is_sandbox_off, keys.runs_programs), (None, true, true));
    let keys = early("no TOML");
    assert!(keys.user.is_none() && keys.isolation.is_none() && !keys.is_sandbox_off);
}

#[test]
fn a_running_process_cannot_take_rights_back() {
    let folder = folder();
    let file = folder.path().join("brisk.toml");
    fs::write(&file, format!("{LISTENER}{HOST}[acme.dns]\nhook = \"/bin/true\"\n")).expect("written");
    let running = Running::default();
    running.rights.granted.set(Granted::default()).expect("empty");
    let message = check(&file, &running).expect_err("a program").to_string();
    let expected = "server.sandbox: acme.dns.hook is a program, and the sandbox of this process starts none: restart brisk to use it";
    assert!(message.contains(expected), "{message}");
}
