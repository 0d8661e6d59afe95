//! Lists of methods, as `when.methods` has them.

use crate::toml;

/// The methods of both lists, in which `GET` includes `HEAD`.
pub(crate) fn common_methods(first: &str, second: &str) -> String {
    let methods = |list: &str| -> Vec<String> {
        let inner = list.trim_start_matches('[').trim_end_matches(']');
        let all = inner.split(',').map(|method| method.trim().trim_matches('"').to_owned());
        all.filter(|method| !method.is_empty()).collect()
    };
    let (first, second) = (methods(first), methods(second));
    let has = |list: &[String], method: &str| {
        list.iter().any(|own| own == method || (own == "GET" && method == "HEAD"))
    };
    let mut both: Vec<_> = first.iter().filter(|method| has(&second, method)).collect();
    for method in second.iter().filter(|method| has(&first, method)) {
        if !both.contains(&method) {
            both.push(method);
        }
    }
    toml::list(both)
}
