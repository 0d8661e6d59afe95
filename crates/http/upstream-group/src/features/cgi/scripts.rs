//! Scripts that paths of requests stand for.
//!
//! A path selects a script only if the script exists, or by its whole name. PHP with `cgi.fix_pathinfo` searches for a script that
//! does not exist in the folders above it, and would execute the upload `/files/photo.jpg` for `/files/photo.jpg/x.php`.

use super::CgiSettings;

/// A script, and the rest of the path after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Path below the root, with a slash at its begin: `SCRIPT_NAME`.
    pub name: Vec<u8>,
    /// `PATH_INFO`.
    pub path_info: Vec<u8>,
}

/// Extensions of files that hold source text of PHP, in lower case.
const PHP: [&str; 4] = ["phar", "phps", "pht", "phtml"];

impl CgiSettings {
    /// The script that the decoded path `path` names, which may not exist.
    pub fn named_script(&self, path: &[u8]) -> Option<Script> {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(index, _)| index);
        let ends = ends.filter(|_| self.has_path_info).chain([path.len()]);
        let is_script = |end: &usize| {
            let segment = path[..*end].rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            self.suffixes
                .iter()
                // Longer than the suffix: a file called `.php` is a hidden file, and not a script.
                .any(|suffix| segment.len() > suffix.len() && segment.ends_with(suffix.as_bytes()))
        };
        // The first end: in `/a.php/b.php`, the rest is the path for `/a.php` and must
        // not select another script.
        let end = ends.into_iter().find(is_script)?;
        Some(Script { name: path[..end].to_vec(), path_info: path[end..].to_vec() })
    }

    /// The script of the folder `path`, which ends with a slash. It may not exist.
    pub fn index_script(&self, path: &[u8]) -> Option<Script> {
        let name = [path, self.index.as_bytes()].concat();
        path.ends_with(b"/").then_some(Script { name, path_info: Vec::new() })
    }

    /// The front controller.
    pub fn front_controller(&self) -> Option<Script> {
        let script = self.script.as_ref()?;
        Some(Script { name: [b"/", script.as_bytes()].concat(), path_info: Vec::new() })
    }

    /// The script for `path` without a look at the files. A folder with a dot in its name could be a file.
    pub fn unseen_script(&self, path: &[u8]) -> Option<Script> {
        let has_plain_folders = |script: &Script| {
            let folders = script.name.rsplit(|byte| *byte == b'/').skip(1);
            folders.into_iter().all(|folder| !folder.contains(&b'.'))
        };
        let named = self.named_script(path).filter(has_plain_folders);
        let front = || self.front_controller().or_else(|| self.index_script(path).filter(has_plain_folders));
        named.or_else(front)
    }

    /// Whether a file with the path `path` is the source text of a script, in any case of its letters.
    pub fn is_source(&self, path: &[u8]) -> bool {
        let mut names = path.rsplit(|byte| *byte == b'/').filter(|name| !name.is_empty());
        let name = names.next().unwrap_or_default().to_ascii_lowercase();
        // In lower case: on file systems that ignore case, `/A.PHP` would send the source text of `a.php`.
        let is_script = |suffix: &str| name.ends_with(suffix.to_ascii_lowercase().as_bytes());
        if self.suffixes.iter().any(|suffix| is_script(suffix)) {
            return true;
        }
        let extension = name.rsplit(|byte| *byte == b'.').next().unwrap_or_default();
        let is_php = extension.starts_with(b"php") || PHP.iter().any(|php| php.as_bytes() == extension);
        is_php && extension.len() < name.len() && self.suffixes.iter().any(|suffix| **suffix == *".php")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(script: Option<Script>) -> String {
        script.map_or_else(String::new, |script| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            format!("{} {}", text(&script.name), text(&script.path_info))
        })
    }

    #[test]
    fn a_path_names_a_script_by_its_end() {
        let settings = CgiSettings::default();
        let named = |path: &str| text(settings.named_script(path.as_bytes()));
        assert_eq!(named("/a/b.php"), "/a/b.php ");
        for path in ["/a/b.php/c", "/a/b.phpx", "/.php", "/a/", "/b.PHP", "/b.php/"] {
            assert_eq!(named(path), "", "{path}");
        }
        let settings = CgiSettings { has_path_info: true, ..CgiSettings::default() };
        let named = |path: &str| text(settings.named_script(path.as_bytes()));
        assert_eq!(named("/a/b.php/c/d.php"), "/a/b.php /c/d.php");
        assert_eq!(named("/b.php/"), "/b.php /");
        assert_eq!(named("/b.phpx/c"), "");
    }

    #[test]
    fn without_files_no_folder_of_a_script_has_a_dot() {
        let unseen = |settings: &CgiSettings, path: &str| text(settings.unseen_script(path.as_bytes()));
        let plain = CgiSettings::default();
        assert_eq!(unseen(&plain, "/a/b.php"), "/a/b.php ");
        assert_eq!(unseen(&plain, "/a/"), "/a/index.php ");
        assert_eq!(unseen(&plain, "/files/photo.jpg/x.php"), "");
        assert_eq!(unseen(&plain, "/files/photo.jpg/"), "");
        assert_eq!(unseen(&plain, "/a"), "");
        let front = CgiSettings { script: Some("app/front.php".into()), ..CgiSettings::default() };
        for path in ["/", "/a", "/a/", "/files/photo.jpg/x.php"] {
            assert_eq!(unseen(&front, path), "/app/front.php ", "{path}");
        }
        assert_eq!(unseen(&front, "/b.php"), "/b.php ");
    }

    #[test]
    fn source_text_is_recognized_in_any_spelling() {
        let settings = CgiSettings::default();
        for path in ["/a.php", "/a.PHP", "/a/b.Php7", "/a.phtml", "/a.phar", "/.php", "/a.php5", "/a.php/"] {
            assert!(settings.is_source(path.as_bytes()), "{path}");
        }
        for path in ["/a.css", "/php", "/a.php/b.css", "/phtml", "/"] {
            assert!(!settings.is_source(path.as_bytes()), "{path}");
        }
        let others = CgiSettings { suffixes: vec![".pl".into()], ..CgiSettings::default() };
        assert!(others.is_source(b"/a.PL") && !others.is_source(b"/a.php"));
    }
}
