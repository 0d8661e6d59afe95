//! `server.overload`.

use brisk_answer::settings::Priority;
use brisk_pressure::Mode;

use super::*;

#[test]
fn overload_has_two_modes() {
    refused(
        &format!("{LISTENER}overload = \"of\"\n{HOST}"),
        "brisk.toml:3:12: server.overload: \"of\" is not known here; known here: `on`, `off`",
    );
    let mode = |keys: &str| accepted(&format!("{LISTENER}{keys}{HOST}")).settings.server.overload;
    assert_eq!((mode(""), mode("overload = \"on\"\n")), (Mode::Shed, Mode::Shed));
    assert_eq!(mode("overload = \"off\"\n"), Mode::Observe);
}

#[test]
fn routes_have_their_priority_or_that_of_their_host() {
    let priorities = |host: &str| {
        let routes = ["", "priority = \"high\"\n"].map(|keys| {
            let path = keys.len();
            format!("[[host.route]]\npath = \"/{path}\"\nrespond = {{}}\n{keys}")
        });
        let resolved = accepted(&format!("{LISTENER}{HOST}{host}{}", routes.concat()));
        resolved.settings.service.hosts[0].routes.iter().map(|route| route.priority).collect::<Vec<_>>()
    };
    assert_eq!(priorities(""), [Priority::Normal, Priority::High]);
    assert_eq!(priorities("priority = \"low\"\n"), [Priority::Low, Priority::High]);
    refused(
        &format!("{LISTENER}{HOST}priority = \"urgent\"\n"),
        "brisk.toml:5:12: host[0].priority: \"urgent\" is not known here; known here: `high`, `normal`, `low`",
    );
}
