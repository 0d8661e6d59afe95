//! The documentation of this version: embedded Markdown, rendered as pages at the first request.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::OnceLock;

use brisk_telemetry::escape_markup;
use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html};

use crate::assets::{Asset, HTML};

/// Path of the list of documents, and prefix of their paths.
const FOLDER: &str = "/docs/";

macro_rules! documents {
    ($($name:literal),+ $(,)?) => {
        [$(Document { name: $name, text: include_str!(concat!("../../../../docs/", $name, ".md")), page: OnceLock::new() }),+]
    };
}

/// A document of the folder `docs`, and its page once it was requested.
#[derive(Debug)]
struct Document {
    name: &'static str,
    text: &'static str,
    page: OnceLock<Asset>,
}

/// The documents for operators, in the order of the list.
static DOCUMENTS: [Document; 22] = documents![
    "configuration",
    "from-nginx",
    "import",
    "dashboard",
    "operations",
    "overload",
    "certificates",
    "keys",
    "keyless",
    "sessions",
    "pages",
    "http3",
    "visitors",
    "metrics",
    "access-log",
    "security",
    "probe",
    "audit",
    "bench",
    "speed",
    "capture",
    "clients",
];

static LIST: OnceLock<Asset> = OnceLock::new();

/// The page at `path`, if it is one of the documentation. A page is rendered once and kept.
pub(crate) fn page(path: &str) -> Option<&'static Asset> {
    let name = path.strip_prefix(FOLDER)?;
    if name.is_empty() {
        return Some(LIST.get_or_init(|| asset("Documentation", &list())));
    }
    let document = DOCUMENTS.iter().find(|document| document.name == name)?;
    Some(document.page.get_or_init(|| asset(title(document.text), &rendered(document.text))))
}

/// An [`Asset`] for the rest of the process. At most one for each page is made.
fn asset(title: &str, body: &str) -> Asset {
    let title = escape_markup(title);
    let page = include_str!("assets/docs.html").replace("{{title}}", &title).replace("{{body}}", body);
    Asset::new(FOLDER, HTML, Box::leak(page.into_boxed_str()).as_bytes())
}

/// The first heading.
fn title(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim_start_matches("# ")
}

fn list() -> String {
    let mut list = format!("<h1>brisk {}</h1>\n<ul>\n", env!("CARGO_PKG_VERSION"));
    for document in &DOCUMENTS {
        let title = escape_markup(title(document.text));
        // Writing to a string cannot fail.
        let _ = writeln!(list, "<li><a href=\"{FOLDER}{}\">{title}</a></li>", document.name);
    }
    list + "</ul>\n"
}

/// HTML of a document. Headings get the anchors of the usual viewers of Markdown, and tables a frame that scrolls. Pictures are
/// left out, and so are the targets of links to files that are not embedded.
fn rendered(text: &str) -> String {
    let mut events: Vec<Event<'_>> = Parser::new_ext(text, Options::ENABLE_TABLES).collect();
    name_headings(&mut events);
    let (mut is_in_picture, mut keeps_link) = (false, false);
    let shown = events.into_iter().filter_map(|event| match event {
        Event::Start(Tag::Image { .. }) => {
            is_in_picture = true;
            None
        }
        Event::End(TagEnd::Image) => {
            is_in_picture = false;
            None
        }
        Event::Html(_) | Event::InlineHtml(_) => None,
        _ if is_in_picture => None,
        Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
            let dest_url = target(&dest_url);
            keeps_link = dest_url.is_some();
            Some(Event::Start(Tag::Link { link_type, dest_url: dest_url?.into(), title, id }))
        }
        Event::End(TagEnd::Link) => keeps_link.then_some(Event::End(TagEnd::Link)),
        event => Some(event),
    });
    let mut page = String::with_capacity(2 * text.len());
    html::push_html(&mut page, shown);
    let frame = "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table\"><table>";
    // Text of a document cannot contain these tags: it is escaped.
    page.replace("<table>", frame)
        .replace("</table>", "</table></div>")
        .replace("<pre>", "<pre tabindex=\"0\">")
}

/// The URL for a link of a document; `None` if its target is not embedded.
fn target(link: &str) -> Option<String> {
    if link.starts_with('#') || link.starts_with("https://") {
        return Some(link.to_owned());
    }
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let document = DOCUMENTS.iter().find(|document| file.strip_suffix(".md") == Some(document.name))?;
    let anchor = anchor.map(|anchor| format!("#{anchor}")).unwrap_or_default();
    Some(format!("{FOLDER}{}{anchor}", document.name))
}

/// Gives each heading an anchor: its text in lower case, with hyphens for spaces and without punctuation. A repeated anchor gets
/// a number.
fn name_headings(events: &mut [Event<'_>]) {
    let mut known = HashMap::new();
    let mut next = 0;
    while let Some(at) =
        (next..events.len()).find(|at| matches!(events[*at], Event::Start(Tag::Heading { .. })))
    {
        let words = events[at + 1..].iter().map_while(|event| match event {
            Event::End(TagEnd::Heading(_)) => None,
            Event::Text(text) | Event::Code(text) => Some(&**text),
            _ => Some(""),
        });
        let letters = words.collect::<String>().to_lowercase();
        let anchor = letters.chars().filter_map(|letter| match letter {
            ' ' => Some('-'),
            letter => (letter.is_alphanumeric() || matches!(letter, '-' | '_')).then_some(letter),
        });
        let mut anchor: String = anchor.collect();
        let times = known.entry(anchor.clone()).or_insert(0);
        if *times > 0 {
            let _ = write!(anchor, "-{times}");
        }
        *times += 1;
        if let Event::Start(Tag::Heading { id, .. }) = &mut events[at] {
            *id = Some(CowStr::from(anchor));
        }
        next = at + 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn text(path: &str) -> &'static str {
        str::from_utf8(page(path).unwrap_or_else(|| panic!("no page {path}")).bytes).expect("text")
    }

    /// The values of an attribute.
    fn values<'a>(page: &'a str, attribute: &'a str) -> impl Iterator<Item = &'a str> {
        page.split(attribute).skip(1).map(|rest| rest.split('"').next().expect("a value"))
    }

    #[test]
    fn every_link_leads_to_a_page_and_a_heading_of_it() {
        let mut paths: Vec<_> =
            DOCUMENTS.iter().map(|document| format!("{FOLDER}{}", document.name)).collect();
        paths.push(FOLDER.to_owned());
        for from in &paths {
            for link in values(text(from), " href=\"") {
                let (path, anchor) =
                    link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
                if !(path.starts_with(FOLDER) || path.is_empty()) {
                    continue;
                }
                let target = text(if path.is_empty() { from } else { path });
                let ids: HashSet<_> = values(target, " id=\"").collect();
                assert!(anchor.is_none_or(|anchor| ids.contains(anchor)), "{from}: {link}");
            }
        }
    }

    #[test]
    fn links_to_other_files_are_text_and_pictures_are_left_out() {
        let page = rendered(
            "# A\n\n[figures](results/page.md), [keys](keys.md#a) ![a picture](a.png)<picture><img></picture>\n",
        );
        assert_eq!(page, "<h1 id=\"a\">A</h1>\n<p>figures, <a href=\"/docs/keys#a\">keys</a> </p>\n");
    }

    #[test]
    fn headings_have_the_anchors_of_viewers() {
        let page = rendered("## `tls` and *more*: it's\n\n## Use\n\n## Use\n");
        assert_eq!(values(&page, " id=\"").collect::<Vec<_>>(), ["tls-and-more-its", "use", "use-1"]);
    }

    #[test]
    fn tables_scroll_within_their_frame() {
        let page = text("/docs/metrics");
        assert_eq!(page.matches("<table>").count(), page.matches("role=\"region\"").count());
        assert!(page.contains("<th>"), "tables are tables");
    }

    #[test]
    fn other_paths_have_no_page() {
        assert!(
            page("/docs/nothing").is_none() && page("/docs/../page.html").is_none() && page("/").is_none()
        );
    }
}
