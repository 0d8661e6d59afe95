//! Audits as HTML pages: one file without external resources.

use brisk_report::html;

use crate::Audit;

/// The audit as a page.
pub fn html(audit: &Audit) -> String {
    let title = format!("{}: {}", audit.host, audit.grade.letter);
    let lead =
        format!("What can be judged of {} at {} from outside, {}.", audit.host, audit.address, audit.time);
    let mut body = html::head(&title, &lead);
    let score = |value: u32| format!("{value} of 100");
    body.push_str(&html::highlights(&[
        ("grade".to_owned(), audit.grade.letter.to_string()),
        ("protocol".to_owned(), score(audit.grade.protocol)),
        ("key exchange".to_owned(), score(audit.grade.key_exchange)),
        ("cipher".to_owned(), score(audit.grade.cipher)),
    ]));
    body.extend(crate::output::tables(audit).iter().map(brisk_report::Table::to_html));
    html::page(&title, &body)
}
