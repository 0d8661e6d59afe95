//! Snippets of documentation pages, with which tests configure programs.

/// The section of `page` with this title, without the title.
///
/// # Panics
///
/// Without such a section.
pub fn section<'p>(page: &'p str, title: &str) -> &'p str {
    let sections = page.split("\n## ").skip(1);
    let section = sections.filter_map(|text| text.split_once('\n')).find(|(own, _)| *own == title);
    section.unwrap_or_else(|| panic!("no section {title}")).1
}

/// The first code block of `kind` in `text`.
///
/// # Panics
///
/// Without such a block.
pub fn block<'t>(text: &'t str, kind: &str) -> &'t str {
    let (_, rest) = text.split_once(&format!("```{kind}\n")).unwrap_or_else(|| panic!("no {kind}: {text}"));
    rest.split("```").next().expect("an end")
}
