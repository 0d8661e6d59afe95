//! Patterns of paths: variable parts become `*`, so that pages with ids are one page.

/// Maximum number of segments of a [`pattern`]; the rest is one `*`.
const SEGMENTS: usize = 8;
/// Maximum length of a pattern in bytes.
const LONGEST: usize = 120;
/// Length of a segment from which it counts as variable.
const LONG: usize = 40;
/// Length from which a mixture of digits and letters can be an id.
const ID: usize = 8;

/// The pattern of `path`, which may have a route of the application after `#`. A query is omitted.
pub(crate) fn pattern(path: &str) -> String {
    let (path, route) = path.split_once('#').map_or((path, None), |(path, route)| (path, Some(route)));
    let mut pattern = String::new();
    push(path, &mut pattern);
    if let Some(route) = route {
        pattern.push('#');
        push(route, &mut pattern);
    }
    pattern.truncate(pattern.floor_char_boundary(LONGEST));
    pattern
}

fn push(path: &str, pattern: &mut String) {
    let path = path.split('?').next().unwrap_or_default();
    for (place, segment) in path.split('/').enumerate() {
        if place > 0 {
            pattern.push('/');
        }
        if place > SEGMENTS {
            pattern.push('*');
            return;
        }
        let (stem, end) = match segment.rsplit_once('.') {
            Some((stem, end)) if is_extension(end) && !segment.contains(['@', '%']) => (stem, Some(end)),
            _ => (segment, None),
        };
        if is_variable(stem) {
            pattern.push('*');
            pattern.extend(end.into_iter().flat_map(|end| [".", end]));
        } else {
            // Patterns are displayed in terminals and pages, and clients choose the paths.
            pattern.extend(segment.chars().filter(|char| !char.is_control()));
        }
    }
}

fn is_extension(end: &str) -> bool {
    end.len() <= 5 && end.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// Whether a segment looks like an id, a date, a token or an address of e-mail.
fn is_variable(segment: &str) -> bool {
    let (mut digits, mut upper, mut lower, mut letters, mut hexadecimal, mut other) =
        (0, 0, 0, 0, true, false);
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'0'..=b'9' => digits += 1,
            b'a'..=b'z' => lower += 1,
            b'A'..=b'Z' => upper += 1,
            b'@' => return true,
            // UUIDs and dates are divided by these characters, which count neither as digits nor as letters.
            b'-' | b'_' => continue,
            b'%' => {
                let code = [bytes.next(), bytes.next()];
                // `%40` is an encoded `@`: addresses of e-mail must not be stored.
                if code == [Some(b'4'), Some(b'0')] {
                    return true;
                }
                other = true;
                continue;
            }
            _ => {
                other = true;
                continue;
            }
        }
        letters += 1;
        hexadecimal &= byte.is_ascii_hexdigit();
    }
    let is_number = digits > 0 && digits == letters && !other;
    let is_hexadecimal = hexadecimal && digits > 0 && letters >= ID && !other;
    let is_mostly_digits = digits >= 4 && 2 * digits >= segment.len();
    let is_token = digits > 0 && upper > 0 && lower > 0 && letters >= ID && !other;
    is_number || is_hexadecimal || is_mostly_digits || is_token || segment.len() >= LONG
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_one_page_and_words_are_many() {
        for (path, expected) in [
            ("/", "/"),
            ("/about/team", "/about/team"),
            ("/users/42/orders/1007", "/users/*/orders/*"),
            ("/users/42?tab=mail", "/users/*"),
            ("/o/5f2d6c1e-9f0a-4b7c-8d1e-2f3a4b5c6d7e/edit", "/o/*/edit"),
            ("/commit/3b91fdcb", "/commit/*"),
            ("/v/dQw4w9WgXcQ", "/v/*"),
            ("/news/2026-11-28/storm", "/news/*/storm"),
            ("/post/10-tips-for-tls", "/post/10-tips-for-tls"),
            ("/facade", "/facade"),
            ("/page/12.html", "/page/*.html"),
            ("/0.html", "/*.html"),
            ("/me@example.com", "/*"),
            ("/me%40example.com", "/*"),
            ("/%D0%BF%D1%80%D0%B8%D0%B2%D0%B5%D1%82", "/%D0%BF%D1%80%D0%B8%D0%B2%D0%B5%D1%82"),
            ("/app#/users/7", "/app#/users/*"),
            ("/app#!/inbox?page=2", "/app#!/inbox"),
            ("/a/b/c/d/e/f/g/h/i/j", "/a/b/c/d/e/f/g/h/*"),
        ] {
            assert_eq!(pattern(path), expected, "{path}");
        }
        assert_eq!(pattern(&format!("/{}", "x".repeat(50))), "/*");
        assert!(pattern(&format!("/{}", "xy-z/".repeat(160))).len() < LONGEST);
        assert!(
            pattern(&format!("/{}#/{}", "abcdefghijklmnopqrstuvwxyz/".repeat(8), "é".repeat(15))).len()
                <= LONGEST
        );
        assert_eq!(pattern("/a\u{7}b\n"), "/ab");
    }
}
