//! Settings of a gateway with a dashboard.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use brisk_testkit::brisk::Setup;

/// Configuration key: dashboard on any port of the loopback interface.
pub const ON: &str = "dashboard.listen = \"127.0.0.1:0\"\n";

/// Configuration keys: like [`ON`], with the token file that [`with_token`] writes.
pub const WITH_TOKEN: &str = "dashboard.listen = \"127.0.0.1:0\"\ndashboard.token = \"token\"\n";

/// Token in the file of [`with_token`].
pub const TOKEN: &str = "correct-horse-battery-staple";

/// Adds the token file to `setup`.
pub fn with_token(setup: Setup) -> Setup {
    let setup = setup.file("token", TOKEN);
    // The dashboard refuses a token file that others can read.
    only_its_owners(&setup.folder().join("token"));
    setup
}

/// Restricts `file` to its owner (mode 0600).
pub fn only_its_owners(file: &Path) {
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).expect("a file of its owner's");
}
