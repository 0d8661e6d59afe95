//! HTML pages that need no other file: the style sheet and the charts are embedded, and there is no script. They follow
//! the light or dark setting of the browser and can be printed.

use crate::escape;

/// The style sheet of every page.
pub const STYLE: &str = include_str!("page.css");

/// The heading of a page, and a sentence about its content.
pub fn head(title: &str, lead: &str) -> String {
    format!("<h1>{}</h1>\n<p class=\"lead\">{}</p>\n", escape(title), escape(lead))
}

/// A list of names and values.
pub fn facts(all: &[(&str, String)]) -> String {
    let row = |(name, text): &(&str, String)| format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(text));
    format!("<dl>\n{}</dl>\n", all.iter().map(row).collect::<String>())
}

/// The most important figures in large type: pairs of name and value.
pub fn highlights(all: &[(String, String)]) -> String {
    let figure =
        |(name, value): &(String, String)| format!("<div><b>{}</b>{}</div>\n", escape(value), escape(name));
    format!("<div class=\"cards\">\n{}</div>\n", all.iter().map(figure).collect::<String>())
}

/// A complete page around `body`, which is HTML and is not escaped.
pub fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n<main>\n{body}</main>\n</html>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_the_body_is_not() {
        let body = head("a < b", "c & d") + &facts(&[("e", "\"f\"".to_owned())]);
        let page = page("a < b", &body);
        for part in
            ["<title>a &lt; b</title>", "<h1>a &lt; b</h1>", "c &amp; d", "<dt>e</dt><dd>&quot;f&quot;</dd>"]
        {
            assert!(page.contains(part), "no {part:?} in {page}");
        }
    }
}
