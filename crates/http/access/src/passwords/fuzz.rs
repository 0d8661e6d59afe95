//! Properties of the parser of files with users, for tests and libFuzzer.

use super::Credentials;
use super::hash::PasswordHash;
use super::users::Table;

/// Every line is a comment, a user or an error, and an error contains nothing of a hash. Hashes that are read are bounded in
/// their cost, and are read as they were written.
pub fn users(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    match Table::read(text) {
        Ok(table) => {
            for line in text.lines() {
                let Some((name, _)) = line.split_once(':').filter(|_| !line.starts_with('#')) else {
                    continue;
                };
                assert_eq!(table.name(name.as_bytes()).map(|name| &**name), Some(name));
            }
            assert!(table.len() <= text.lines().count());
        }
        Err(errors) => {
            let lines = text.lines().count();
            assert!(!errors.is_empty() && errors.iter().all(|error| (1..=lines).contains(&error.line)));
        }
    }
    let _ = PasswordHash::read(text);
    if let Some(credentials) = Credentials::read(bytes) {
        assert!(credentials.text().len() <= 512 && !credentials.name().contains(&b':'));
    }
}

#[cfg(test)]
mod tests {
    use brisk_testkit::fuzz::drive;

    #[test]
    fn fuzz_users() {
        drive("users", &[], super::users);
    }
}
