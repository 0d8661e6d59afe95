//! Properties of templates, for tests and libFuzzer.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Map, Maps, Template, Values, Variable};

/// The same bytes for every variable.
struct Everywhere<'a>(&'a [u8]);

impl Values for Everywhere<'_> {
    fn append(&self, _: &Variable, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0);
    }
}

/// The first line is a template, the rest is the value of all variables. Every value is one header of visible ASCII, and the text
/// outside of variables is in it as it was written.
pub fn templates(bytes: &[u8]) {
    let (text, rest) = bytes.split_at(bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len()));
    let Ok(text) = str::from_utf8(text) else { return };
    let from = Template::new("{request.header.a}", &Maps::new()).expect("a template");
    let values = BTreeMap::from([("x".to_owned(), "y".to_owned())]);
    let map = Map { from, values, ..Map::default() };
    let Ok(template) = Template::new(text, &Maps::from([("m".to_owned(), Arc::new(map))])) else { return };
    let header = template.fill(&Everywhere(rest)).header("10.0.0.1:80");
    let is_visible = |byte: &u8| matches!(byte, b' '..=b'~');
    assert!(header.as_ref().is_none_or(|value| value.as_bytes().iter().all(is_visible) && !value.is_empty()));
    if let Some(fixed) = template.fixed().filter(|fixed| !fixed.is_empty()) {
        let is_long = fixed.len() >= 16 << 10;
        assert!(is_long || header == Some(fixed));
    }
}

#[cfg(test)]
mod tests {
    use brisk_testkit::fuzz::drive;

    #[test]
    fn fuzz_templates() {
        drive("templates", &[], super::templates);
    }
}
