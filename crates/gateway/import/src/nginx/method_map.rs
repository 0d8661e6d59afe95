//! A `map` of the method together with another variable, such as `map "$request_method:$http_accept" $server`. Its lines become
//! conditions for both.

use crate::directive::Directive;
use crate::nginx::condition::{When, key_test};
use crate::nginx::variables::only_variable;
use crate::nginx::{maps, pattern};
use crate::toml;

/// Reason for a line with another expression.
const FORM: &str = "the expression does not list methods before the text between both variables";

/// The text between both variables (`:`), and the name of the other variable (`http_accept`).
pub(crate) fn parts(source: &str) -> Option<(&str, &str)> {
    let rest = source.strip_prefix("$request_method").or_else(|| source.strip_prefix("${request_method}"))?;
    let (between, other) = rest.split_at(rest.find('$')?);
    // RFC 9110 section 9.1: a method has none of these characters, so each text has one division.
    let divides = between.starts_with([':', '/', ',', ';', '=', '@', ' ']);
    Some((between, only_variable(other)?)).filter(|_| divides)
}

/// The tests for a key of a line, of which one has to hold. The error is the reason why there are none.
pub(crate) fn key_tests(key: &str, between: &str, other: &str) -> Result<Vec<When>, String> {
    let (operator, text) = maps::comparison(key);
    if operator == "=" {
        let (method, rest) = text.split_once(between).ok_or(FORM)?;
        let methods = When::plain("methods", toml::list([method.to_ascii_uppercase()]));
        return both(&methods, &key_test(other, rest)?);
    }
    let rest = text.strip_prefix('^').ok_or(FORM)?;
    // The colon of `(?:` may be the text between both.
    let end = if rest.starts_with('(') { rest.find(')').map(|end| end + 1) } else { rest.find(between) };
    let (methods, rest) = rest.split_at(end.ok_or(FORM)?);
    let rest = rest.strip_prefix(between).filter(|rest| !pattern::has_outer_alternative(rest)).ok_or(FORM)?;
    let listed = pattern::alternatives(&format!("^{methods}$")).ok_or(FORM)?;
    let methods = When::plain("methods", toml::list(listed.iter().map(|method| in_case(method, operator))));
    if matches!(rest, "" | ".*" | ".*$") {
        return Ok(vec![methods]);
    }
    let rest = format!("^{rest}");
    // A request without the header has no value that an expression could match.
    if pattern::matches(&rest, operator == "~*", "") {
        return Err("the expression matches a missing value too".to_owned());
    }
    both(&methods, &key_test(other, &format!("{operator}{rest}"))?)
}

/// The methods that a line excludes, which is about all others: `~^(?!(GET|HEAD)).*:`.
pub(crate) fn excluded(map: &Directive, line: &Directive) -> Option<When> {
    let (between, _) = parts(map.arg(0))?;
    let (operator, text) = maps::comparison(&line.name);
    let inner = text.strip_prefix("^(?!").filter(|_| operator != "=")?;
    let (listed, behind) = match inner.strip_prefix('(') {
        Some(group) => group.split_once("))")?,
        None => inner.split_once(')')?,
    };
    let behind = behind.trim_end_matches('$');
    let ends = [String::new(), ".*".to_owned(), format!(".*{between}"), format!(".*{between}.*")];
    if !ends.iter().any(|end| end == behind) {
        return None;
    }
    let listed = pattern::alternatives(&format!("^({listed})$"))?;
    Some(When::plain("methods", toml::list(listed.iter().map(|method| in_case(method, operator)))))
}

/// A method as clients write it: in capitals for `~*`.
fn in_case(method: &str, operator: &str) -> String {
    if operator == "~*" { method.to_ascii_uppercase() } else { method.to_owned() }
}

fn both(methods: &When, tests: &[When]) -> Result<Vec<When>, String> {
    let all = tests.iter().map(|test| methods.and(test)).collect::<Option<Vec<_>>>();
    all.ok_or_else(|| "both variables are the method".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_divided_into_methods_and_the_other_value() {
        assert_eq!(parts("$request_method:$http_accept"), Some((":", "http_accept")));
        assert_eq!(parts("${request_method} ${arg_a}"), Some((" ", "arg_a")));
        for other in ["$request_method", "$request_method$http_accept", "$request_methods:$a", "$a:$b"] {
            assert_eq!(parts(other), None, "{other}");
        }
        let tests = |key: &str| {
            let tests = key_tests(key, ":", "http_accept")?;
            Ok::<_, String>(tests.iter().map(When::toml).collect::<Vec<_>>().concat())
        };
        for (key, expected) in [
            ("post:", r#"{ methods = ["POST"], headers = { accept = false } }"#),
            ("~^(?:GET|HEAD):.*", r#"{ methods = ["GET", "HEAD"] }"#),
            ("~*^get:a", r#"{ methods = ["GET"], headers = { accept = { regex = "(?i)^a" } } }"#),
        ] {
            assert!(tests(key).is_ok_and(|found| found.starts_with(expected)), "{key}: {:?}", tests(key));
        }
        for key in ["a", "~GET:a", "~^G.T:a", "~^GET:a?", "~^GET:a|b", "~^GET|POST:a"] {
            assert!(tests(key).is_err(), "{key}");
        }
    }
}
