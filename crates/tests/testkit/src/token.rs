//! Tokens of SoftHSM, in which keys are generated and which they never leave. Each token is a folder that a test can
//! remove and restore.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::process::{Finished, command, run};

/// Paths of the module on Debian.
const MODULES: [&str; 2] =
    ["/usr/lib/softhsm/libsofthsm2.so", "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so"];

/// Environment variable with the module's settings. It applies to a process, so all tokens of a process are in one
/// folder.
pub const VARIABLE: &str = "SOFTHSM2_CONF";

/// PIN of every token.
pub const PIN: &str = "2468135790246813579024681357";

/// Prefix of the `SubjectPublicKeyInfo` of a P-384 key, before the point.
const P384_HEAD: [u8; 23] = [
    0x30, 0x76, 0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81,
    0x04, 0x00, 0x22, 0x03, 0x62, 0x00,
];

/// RSA keys of 3072 bits take seconds, and minutes on a busy machine, on which a test generates several.
const LIMIT: Duration = Duration::from_mins(20);

/// Path of the SoftHSM module.
pub fn module() -> PathBuf {
    let module = MODULES.map(PathBuf::from).into_iter().find(|path| path.is_file());
    module.expect("the module of SoftHSM is missing: run `make setup`")
}

/// Key types by the names of `pkcs11-tool`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// RSA of 2048 bits.
    Rsa2048,
    /// RSA of 3072 bits.
    Rsa3072,
    /// ECDSA on secp256r1.
    P256,
    /// ECDSA on secp384r1.
    P384,
}

impl TokenKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Rsa2048 => "rsa:2048",
            Self::Rsa3072 => "rsa:3072",
            Self::P256 => "EC:prime256v1",
            Self::P384 => "EC:secp384r1",
        }
    }
}

/// Environment variable with the folder, for a test that runs in a process of its own.
const FOLDER: &str = "BRISK_TEST_TOKENS";

/// A folder with tokens.
#[derive(Debug)]
pub struct Tokens {
    folder: PathBuf,
    /// Removes the folder; set in the process that created it.
    _temporary: Option<TempDir>,
}

impl Tokens {
    /// Creates a folder without tokens.
    pub fn new() -> Self {
        let temporary = TempDir::with_prefix("brisk-test-token-").expect("a temporary folder");
        let folder = temporary.path().to_owned();
        let tokens = folder.join("tokens");
        fs::create_dir(&tokens).expect("a temporary folder");
        let settings = format!("directories.tokendir = {}\nobjectstore.backend = file\n", tokens.display());
        fs::write(folder.join("softhsm2.conf"), settings).expect("a temporary file");
        let pin = folder.join("pin");
        fs::write(&pin, format!("{PIN}\n")).expect("a temporary file");
        fs::set_permissions(&pin, Permissions::from_mode(0o600)).expect("a file of ours");
        Self { folder, _temporary: Some(temporary) }
    }

    /// The tokens that the parent test passed to this process.
    pub fn of_this_process() -> Option<Self> {
        let folder = PathBuf::from(env::var_os(FOLDER)?);
        Some(Self { folder, _temporary: None })
    }

    /// Runs `body` in a process of its own with tokens of its own, by executing the test named `test` again: the module
    /// finds its tokens by the environment, which belongs to a process.
    #[track_caller]
    pub fn in_own_process(test: &str, body: impl FnOnce(&Self)) {
        if let Some(tokens) = Self::of_this_process() {
            return body(&tokens);
        }
        let (tokens, program) = (Self::new(), env::current_exe().expect("the program of the tests"));
        let mut command = Command::new(program);
        command.args([test, "--exact", "--nocapture"]).env(FOLDER, &tokens.folder);
        let finished = run(command.env(VARIABLE, tokens.settings()), b"", LIMIT);
        let text = finished.text();
        // A wrong name would run no test, and succeed.
        assert!(finished.status.success() && text.contains("test result: ok. 1 passed"), "{text}");
    }

    /// The value of [`VARIABLE`] for processes that use these tokens.
    pub fn settings(&self) -> String {
        self.folder.join("softhsm2.conf").display().to_string()
    }

    /// Path of the file with the PIN.
    pub fn pin_file(&self) -> PathBuf {
        self.folder.join("pin")
    }

    /// Creates a token.
    pub fn add(&self, label: &str) {
        let mut util = command("softhsm2-util");
        util.args(["--init-token", "--free", "--label", label, "--pin", PIN, "--so-pin", "87654321"]);
        run(util.env(VARIABLE, self.settings()), b"", LIMIT).success();
    }

    /// Generates a key in a token; `id` is hexadecimal. `more` are further arguments of `pkcs11-tool`.
    pub fn generate(&self, token: &str, label: &str, id: &str, kind: TokenKind, more: &[&str]) {
        let words = ["--login", "--pin", PIN, "--keypairgen", "--key-type", kind.name(), "--label", label];
        self.tool(token, &[&words[..], &["--id", id], more].concat()).success();
    }

    /// Deletes a private key.
    pub fn delete(&self, token: &str, label: &str) {
        let words = ["--login", "--pin", PIN, "--delete-object", "--type", "privkey", "--label", label];
        self.tool(token, &words).success();
    }

    /// The public key: DER `SubjectPublicKeyInfo`.
    pub fn public_key(&self, token: &str, label: &str) -> Vec<u8> {
        let file = self.folder.join("public.der");
        let path = file.display().to_string();
        let words = ["--read-object", "--type", "pubkey", "--label", label, "--output-file", &path];
        if self.tool(token, &words).status.success() {
            return fs::read(&file).expect("what pkcs11-tool wrote");
        }
        // `OpenSC` 0.23 reads only RSA and P-256 keys, but lists the points of all.
        let list = self.tool(token, &["--list-objects", "--type", "pubkey"]).success();
        let of_label =
            |object: &&str| object.lines().any(|line| line.split_whitespace().eq(["label:", label]));
        let object = list.split("Public Key Object").find(of_label).expect("a public key");
        let point = object.lines().find_map(|line| line.trim().strip_prefix("EC_POINT:")).expect("a point");
        let digits =
            point.trim().strip_prefix("0461").expect("an uncompressed point of P-384 in an OCTET STRING");
        let byte = |place| u8::from_str_radix(&digits[place..place + 2], 16).expect("hexadecimal digits");
        let point = (0..digits.len()).step_by(2).map(byte);
        P384_HEAD.iter().copied().chain(point).collect()
    }

    fn tool(&self, token: &str, words: &[&str]) -> Finished {
        let mut tool = command("pkcs11-tool");
        tool.arg("--module").arg(module()).args(["--token-label", token]).args(words);
        run(tool.env(VARIABLE, self.settings()), b"", LIMIT)
    }

    /// The URI of a key, with module and PIN.
    pub fn uri(&self, token: &str, object: &str) -> String {
        let (pin, module) = (self.pin_file(), module());
        format!(
            "pkcs11:token={token};object={object}?pin-source=file:{}&module-path={}",
            pin.display(),
            module.display()
        )
    }

    /// Removes all tokens.
    pub fn take_away(&self) {
        fs::rename(self.tokens(), self.away()).expect("tokens that are there");
    }

    /// Restores the removed tokens.
    pub fn put_back(&self) {
        fs::rename(self.away(), self.tokens()).expect("tokens that were taken away");
    }

    fn tokens(&self) -> PathBuf {
        self.folder.join("tokens")
    }

    fn away(&self) -> PathBuf {
        self.folder.join("away")
    }

    /// The folder of all files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Default for Tokens {
    fn default() -> Self {
        Self::new()
    }
}
