//! `server.overload`.

use super::*;

#[test]
fn overload_has_two_modes() {
    refused(
        &format!("{LISTENER}overload = \"of\"\n{HOST}"),
        "brisk.toml:3:12: server.overload: \"of\" is not known here; known here: `on`, `off`",
    );
    assert!(accepted(&format!("{LISTENER}{HOST}")).settings.server.sheds_load);
    assert!(!accepted(&format!("{LISTENER}overload = \"off\"\n{HOST}")).settings.server.sheds_load);
}
