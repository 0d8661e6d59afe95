//! Settings of a gateway with a dashboard.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use brisk_testkit::brisk::Setup;

/// A dashboard on any port of the loopback interface.
pub const ON: &str = "dashboard.listen = \"127.0.0.1:0\"\n";

/// The same with the token that [`with_token`] writes.
pub const WITH_TOKEN: &str = "dashboard.listen = \"127.0.0.1:0\"\ndashboard.token = \"token\"\n";

/// The token.
pub const TOKEN: &str = "correct-horse-battery-staple";

/// A setup with a token for the dashboard.
pub fn with_token(setup: Setup) -> Setup {
    let setup = setup.file("token", TOKEN);
    only_its_owners(&setup.folder().join("token"));
    setup
}

/// Restricts `file` to its owner.
pub fn only_its_owners(file: &Path) {
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).expect("a file of its owner's");
}
