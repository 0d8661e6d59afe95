//! Check whether the `Content-Security-Policy` of a page permits the script and its beacon.
//!
//! Otherwise the script is not inserted: it would only fill the browser's console and the reports of the policy.

use brisk_http::message::HeaderList;
use http::header;

/// Whether every policy of the page allows scripts from its own origin and requests to it.
pub(super) fn allows(headers: &HeaderList) -> bool {
    let lines = headers.get_all(header::CONTENT_SECURITY_POLICY);
    // An unreadable policy may forbid anything.
    lines.map(|line| line.to_str()).all(|line| line.is_ok_and(|line| line.split(',').all(allows_policy)))
}

fn allows_policy(policy: &str) -> bool {
    let mut scripts = Sources::default();
    let mut requests = Sources::default();
    for directive in policy.split(';') {
        let mut words = directive.split_ascii_whitespace();
        let Some(name) = words.next() else { continue };
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        // A sandbox without this token runs no script at all.
        if is("sandbox") && !words.clone().any(|word| word.eq_ignore_ascii_case("allow-scripts")) {
            return false;
        }
        let sources = || allows_own(&words);
        if is("default-src") {
            scripts.offer(0, sources());
            requests.offer(0, sources());
        } else if is("script-src") {
            scripts.offer(1, sources());
        } else if is("script-src-elem") {
            scripts.offer(2, sources());
        } else if is("connect-src") {
            requests.offer(1, sources());
        }
    }
    scripts.allow() && requests.allow()
}

/// The most specific directive: its rank, and whether it allows the own origin.
#[derive(Default)]
struct Sources(Option<(u8, bool)>);

impl Sources {
    /// Records a directive. Of two directives with the same name, the first one applies.
    fn offer(&mut self, rank: u8, allows: bool) {
        if self.0.is_none_or(|(known, _)| rank > known) {
            self.0 = Some((rank, allows));
        }
    }

    fn allow(&self) -> bool {
        self.0.is_none_or(|(_, allows)| allows)
    }
}

fn allows_own<'w>(words: &(impl Iterator<Item = &'w str> + Clone)) -> bool {
    let has = |known: &str| words.clone().any(|word| word.eq_ignore_ascii_case(known));
    // With `'strict-dynamic'`, sources by host have no effect, and the inserted script has no nonce.
    (has("'self'") || has("*") || has("https:")) && !has("'strict-dynamic'")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_policy_decides_about_scripts_and_requests() {
        for (policy, allowed) in [
            ("", true),
            ("img-src 'none'", true),
            ("default-src 'self'", true),
            ("script-src 'self'; connect-src 'self'", true),
            ("default-src 'none'; script-src 'self'; connect-src *", true),
            ("DEFAULT-SRC 'none'; Script-Src-Elem 'SELF'; connect-src https:", true),
            ("default-src 'none'", false),
            ("script-src 'nonce-abc'", false),
            ("script-src 'self' 'strict-dynamic' 'nonce-abc'", false),
            ("script-src 'self'; script-src-elem https://cdn.example", false),
            ("script-src 'self'; script-src 'none'", true),
            ("default-src 'self'; connect-src https://api.example", false),
            ("sandbox", false),
            ("sandbox allow-scripts", true),
            ("script-src 'self', script-src 'none'", false),
        ] {
            let mut headers = HeaderList::new();
            headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
            assert_eq!(allows(&headers), allowed, "{policy}");
        }
        assert!(allows(&HeaderList::new()));
        let mut two = HeaderList::new();
        two.append(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("script-src 'self'"));
        two.append(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("connect-src 'none'"));
        assert!(!allows(&two));
    }
}
