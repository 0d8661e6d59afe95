//! Warnings about settings without the effect that operators expect.

use super::*;

#[test]
fn settings_without_effect_are_warnings() {
    let route = "[[host.route]]\npath = \"/x\"\nwhen = { path_regex = \"^/y\" }\nrespond = {}\n";
    let warnings = accepted(&format!("{LISTENER}{HOST}{route}")).warnings;
    let expected = "host[0].route[0]: no request uses this route, because no path that begins with \"/x\" matches \"^/y\": \
                    path_regex is compared with the whole path";
    assert_eq!(warnings, [expected]);
    let fine = route.replace("^/y", "^/x/[0-9]+$");
    assert_eq!(accepted(&format!("{LISTENER}{HOST}{fine}")).warnings, [""; 0]);

    let twice = "[[host.route]]\npath = \"/\"\nupstream = \"app\"\n[upstream.app]\nservers = [\"http://a.test\", \"http://a.test\"]\n";
    assert_eq!(
        accepted(&format!("{LISTENER}unknown_host = \"default\"\n{HOST}{twice}")).warnings,
        [
            "[upstream.app]: http://a.test is in `servers` more than once: write it once, with weight = 2 for twice the requests"
        ]
    );
}
