//! [`SessionStore`], sealed sessions in a folder.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::rand::rand_bytes;
use openssl::sign::Signer;
use openssl::symm::{Cipher, decrypt_aead, encrypt_aead};

/// Longest life of a session: a client must not use a TLS 1.3 ticket after 7 days (RFC 8446 section 4.6.1).
pub const LONGEST_LIFE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Sessions kept for a server; another one replaces the oldest.
pub const SESSIONS_PER_SERVER: usize = 4;

/// Files in a folder; further sessions replace the oldest.
const MOST_FILES: usize = 1024;
/// Size of a file: a session contains a certificate chain.
const LARGEST_FILE: u64 = 256 * 1024;

const KEY: usize = 32;
const NONCE: usize = 12;
const TAG: usize = 16;
const TIME: usize = 8;
const SUFFIX: &str = ".session";

/// Sealed sessions in a folder, for one network. Clones share the folder and its key.
///
/// Several processes may use a folder. Operations block on the file system.
#[derive(Clone)]
pub struct SessionStore {
    folder: PathBuf,
    key: Arc<PrivateKey>,
    network: String,
}

struct PrivateKey([u8; KEY]);

impl SessionStore {
    /// Opens `folder`, which is created if it is missing, with the key in its file `key`, which is created with mode 600.
    ///
    /// Protects the sessions from readers of a backup without that file. An application with access to a keychain passes
    /// a key from there to [`with_key`](Self::with_key).
    pub fn open(folder: &Path) -> io::Result<Self> {
        create(folder)?;
        let path = folder.join("key");
        let mut key = [0; KEY];
        rand_bytes(&mut key)?;
        // Complete before it has its name, or another process might read half of a key.
        let temporary = folder.join(format!("key.{}", hex(&random::<8>()?)));
        write_new(&temporary, |file| file.write_all(&key))?;
        let linked = fs::hard_link(&temporary, &path);
        fs::remove_file(&temporary)?;
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let file = File::open(&path)?;
        let metadata = file.metadata()?;
        if metadata.mode() & 0o077 != 0 {
            let message = format!("{}: others than its owner may use it; chmod 600 it", path.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
        if metadata.len() != KEY as u64 {
            let message =
                format!("{}: not a key of {KEY} bytes; remove it, and it is created again", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        (&file).read_exact(&mut key)?;
        Ok(Self { folder: folder.to_owned(), key: Arc::new(PrivateKey(key)), network: String::new() })
    }

    /// Opens `folder` with a key of the application: 32 random bytes.
    pub fn with_key(folder: &Path, key: [u8; 32]) -> io::Result<Self> {
        create(folder)?;
        Ok(Self { folder: folder.to_owned(), key: Arc::new(PrivateKey(key)), network: String::new() })
    }

    /// The store for sessions on another network, for example the name of a wireless network. A session that is used on
    /// two networks shows an observer of both that it is the same client.
    #[must_use]
    pub fn on_network(&self, network: &str) -> Self {
        Self { network: network.to_owned(), ..self.clone() }
    }

    /// Stores a session of `server`, for example `example.com:443`, until `expires`, at most [`LONGEST_LIFE`].
    pub fn put(&self, server: &str, session: &[u8], expires: SystemTime) -> io::Result<()> {
        let expires = expires.min(SystemTime::now() + LONGEST_LIFE);
        let expires = expires.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let prefix = self.prefix(server)?;
        self.make_room(&prefix)?;
        let name = format!("{prefix}{}{SUFFIX}", hex(&random::<16>()?));
        let temporary = self.folder.join(format!("{name}.new"));
        let plain = [&expires.to_be_bytes()[..], session].concat();
        write_new(&temporary, |file| {
            let nonce = random::<NONCE>()?;
            let mut tag = [0; TAG];
            let bound = self.bound(server, &name, file)?;
            let sealed =
                encrypt_aead(Cipher::aes_256_gcm(), &self.key.0, Some(&nonce), &bound, &plain, &mut tag)?;
            file.write_all(&[&nonce[..], &sealed, &tag].concat())
        })?;
        fs::rename(&temporary, self.folder.join(&name))
    }

    /// Removes the newest valid session of `server` from the folder and returns it. `None` if there is none; a file that
    /// does not open is removed.
    pub fn take(&self, server: &str) -> Option<Vec<u8>> {
        let mut files = self.files(&self.prefix(server).ok()?);
        files.sort_by_key(|file| std::cmp::Reverse(file.0));
        files.into_iter().find_map(|(_, name)| self.take_file(server, &name))
    }

    /// Removes all sessions, for example because the application trusts other authorities from now on: the certificate
    /// of a server is not verified again when a session resumes.
    pub fn clear(&self) {
        for (_, name) in self.files("") {
            let _ = fs::remove_file(self.folder.join(name));
        }
    }

    fn take_file(&self, server: &str, name: &str) -> Option<Vec<u8>> {
        let taken = self.folder.join(format!("{name}.{}", hex(&random::<8>().ok()?)));
        // Only one of several processes succeeds: no ticket is used twice.
        fs::rename(self.folder.join(name), &taken).ok()?;
        let opened = File::open(&taken).and_then(|file| {
            let mut sealed = Vec::new();
            (&file).take(LARGEST_FILE).read_to_end(&mut sealed)?;
            Ok((self.bound(server, name, &file)?, sealed))
        });
        // A session whose file remains would be used twice.
        fs::remove_file(&taken).ok()?;
        let (bound, sealed) = opened.ok()?;
        let (nonce, sealed) = sealed.split_at_checked(NONCE)?;
        let (sealed, tag) = sealed.split_at_checked(sealed.len().checked_sub(TAG)?)?;
        let plain =
            decrypt_aead(Cipher::aes_256_gcm(), &self.key.0, Some(nonce), &bound, sealed, tag).ok()?;
        let (expires, session) = plain.split_first_chunk::<TIME>()?;
        let expires = UNIX_EPOCH.checked_add(Duration::from_secs(u64::from_be_bytes(*expires)))?;
        (SystemTime::now() < expires).then(|| session.to_vec())
    }

    /// Data that a sealed session is bound to: network, server, name, and the number of the file, which a copy lacks.
    fn bound(&self, server: &str, name: &str, file: &File) -> io::Result<Vec<u8>> {
        let length = |text: &str| (text.len() as u64).to_be_bytes();
        let file = file.metadata()?.ino().to_be_bytes();
        let texts = [self.network.as_str(), server, name];
        Ok(texts.iter().flat_map(|text| [&length(text)[..], text.as_bytes()].concat()).chain(file).collect())
    }

    /// Start of the names of a server's files; does not reveal the server without the key.
    fn prefix(&self, server: &str) -> io::Result<String> {
        let key = PKey::hmac(&self.key.0)?;
        let mut signer = Signer::new(MessageDigest::sha256(), &key)?;
        signer.update(&(self.network.len() as u64).to_be_bytes())?;
        signer.update(self.network.as_bytes())?;
        signer.update(server.as_bytes())?;
        Ok(format!("{}-", hex(&signer.sign_to_vec()?[..16])))
    }

    /// Sessions with this prefix, and the times at which they were stored.
    fn files(&self, prefix: &str) -> Vec<(SystemTime, String)> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().filter_map(Result::ok);
        let names = entries.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let time = entry.metadata().and_then(|metadata| metadata.modified()).ok()?;
            Some((time, name))
        });
        names.filter(|(_, name)| name.starts_with(prefix) && name.ends_with(SUFFIX)).collect()
    }

    /// Removes expired sessions, and the oldest ones where there are too many.
    fn make_room(&self, prefix: &str) -> io::Result<()> {
        let mut files = self.files("");
        files.sort();
        let remove = |name: &str| match fs::remove_file(self.folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        let excess = (files.len() + 1).saturating_sub(MOST_FILES);
        let mut own = files.iter().filter(|(_, name)| name.starts_with(prefix)).count();
        for (index, (time, name)) in files.iter().enumerate() {
            let is_own = name.starts_with(prefix);
            let is_expired = time.elapsed().is_ok_and(|age| age > LONGEST_LIFE);
            if index < excess || is_expired || (is_own && own >= SESSIONS_PER_SERVER) {
                remove(name)?;
                own -= usize::from(is_own);
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for SessionStore {
    /// Writes everything but the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionStore")
            .field("folder", &self.folder)
            .field("network", &self.network)
            .finish_non_exhaustive()
    }
}

fn create(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn write_new(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    write(&mut file).inspect_err(|_| {
        let _ = fs::remove_file(path);
    })
}

fn random<const LENGTH: usize>() -> io::Result<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    rand_bytes(&mut bytes)?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    let digits =
        |byte: u8| [byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16).expect("below 16"));
    bytes.iter().flat_map(|byte| digits(*byte)).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const SERVER: &str = "a.test:443";

    fn soon() -> SystemTime {
        SystemTime::now() + Duration::from_secs(60)
    }

    fn file_of(store: &SessionStore) -> PathBuf {
        let files = store.files("");
        assert_eq!(files.len(), 1);
        store.folder.join(&files[0].1)
    }

    #[test]
    fn a_session_is_returned_once_also_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        SessionStore::open(folder.path()).unwrap().put(SERVER, b"session", soon()).unwrap();
        let store = SessionStore::open(folder.path()).unwrap();
        assert_eq!(store.take("b.test:443"), None);
        assert_eq!(store.on_network("cafe").take(SERVER), None);
        assert_eq!(store.take(SERVER).as_deref(), Some(&b"session"[..]));
        assert_eq!(store.take(SERVER), None);
    }

    #[test]
    fn the_newest_comes_first_and_the_number_is_limited() {
        let folder = tempfile::tempdir().unwrap();
        let store = SessionStore::with_key(folder.path(), [1; 32]).unwrap();
        store.put("b.test:443", b"other", soon()).unwrap();
        for number in 0..10 {
            store.put(SERVER, &[number], soon()).unwrap();
        }
        assert_eq!(store.files("").len(), 1 + SESSIONS_PER_SERVER);
        assert_eq!(store.take(SERVER), Some(vec![9]));
        store.clear();
        assert_eq!((store.take(SERVER), store.take("b.test:443")), (None, None));
    }

    #[test]
    fn a_modified_copied_or_renamed_file_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let store = SessionStore::open(folder.path()).unwrap();
        for position in [0, 20, 40] {
            store.put(SERVER, b"a longer session", soon()).unwrap();
            let file = file_of(&store);
            let mut bytes = fs::read(&file).unwrap();
            bytes[position] ^= 1;
            fs::write(&file, &bytes).unwrap();
            assert_eq!(store.take(SERVER), None, "byte {position}");
        }
        for length in [0, 5, 30] {
            store.put(SERVER, b"a longer session", soon()).unwrap();
            File::options().write(true).open(file_of(&store)).unwrap().set_len(length).unwrap();
            assert_eq!(store.take(SERVER), None, "{length} bytes");
        }
        store.put(SERVER, b"session", soon()).unwrap();
        let file = file_of(&store);
        let copy = folder.path().join("copy");
        fs::copy(&file, &copy).unwrap();
        assert!(store.take(SERVER).is_some());
        fs::rename(&copy, &file).unwrap();
        assert_eq!(store.take(SERVER), None, "a copy of a used session");
        store.put(SERVER, b"session", soon()).unwrap();
        let other = store.prefix("b.test:443").unwrap();
        fs::rename(file_of(&store), folder.path().join(format!("{other}00{SUFFIX}"))).unwrap();
        assert_eq!(store.take("b.test:443"), None, "the session of another server");
    }

    #[test]
    fn an_expired_session_and_one_under_another_key_are_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let store = SessionStore::with_key(folder.path(), [1; 32]).unwrap();
        store.put(SERVER, b"session", UNIX_EPOCH).unwrap();
        assert_eq!(store.take(SERVER), None);
        store.put(SERVER, b"session", soon()).unwrap();
        assert_eq!(SessionStore::with_key(folder.path(), [2; 32]).unwrap().take(SERVER), None);
    }

    #[test]
    fn the_key_is_private() {
        let folder = tempfile::tempdir().unwrap();
        SessionStore::open(folder.path()).unwrap();
        let key = folder.path().join("key");
        assert_eq!(key.metadata().unwrap().mode() & 0o777, 0o600);
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(SessionStore::open(folder.path()).unwrap_err().to_string().contains("chmod 600"));
    }
}
