//! Properties of headers that determine the content of a page.

use brisk_coding::{AcceptedCodings, Coding};
use brisk_http::message::HeaderList;
use brisk_http_connection::interim::{LINK_BYTES, LINKS};
use http::HeaderValue;
use http::header::{ACCEPT_ENCODING, LINK};

use crate::features::early_hints::{HintLink, links_of};

/// Each line is a value of `Accept-Encoding` and of `Link`. The best coding is acceptable and has the highest weight.
/// The narrowed list for files has the same meaning. Hints are within their limits and parse as [`HintLink`].
pub fn negotiation(bytes: &[u8]) {
    let mut headers = HeaderList::new();
    for value in bytes.split(|byte| *byte == b'\n').filter_map(|line| HeaderValue::from_bytes(line).ok()) {
        headers.append(ACCEPT_ENCODING, value.clone());
        headers.append(LINK, value);
    }
    let accepted = AcceptedCodings::of(headers.get_all(ACCEPT_ENCODING));
    let best = accepted.best(&Coding::ALL);
    if let Some(best) = best {
        let weight = accepted.weight(best);
        assert!(weight > 0 && Coding::ALL.iter().all(|other| accepted.weight(*other) <= weight));
    }
    let narrowed = accepted.narrowed(&Coding::ALL);
    assert_eq!(narrowed.is_some(), best.is_some());
    if let Some(narrowed) = narrowed {
        let again = AcceptedCodings::of([&narrowed]);
        assert_eq!(again.best(&Coding::ALL), best);
        let takes = |accepted: &AcceptedCodings, coding: &Coding| accepted.weight(*coding) > 0;
        assert!(Coding::ALL.iter().all(|coding| takes(&again, coding) == takes(&accepted, coding)));
    }
    let links = links_of(&headers);
    assert!(links.len() <= LINKS && links.iter().map(HeaderValue::len).sum::<usize>() <= LINK_BYTES);
    for link in links {
        let text = link.to_str().expect("hints are text");
        text.parse::<HintLink>().unwrap_or_else(|error| panic!("{text:?}: {error}"));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_negotiation() {
        let words: &[&[u8]] = &[
            b"gzip",
            b"br",
            b"zstd",
            b"dcz",
            b"identity",
            b"*",
            b";q=0",
            b";q=0.5",
            b", ",
            b"\n",
            b"</a.css>",
            b"; rel=preload",
            b"; as=style",
            b"; rel=\"preconnect\"",
            b"\\\"",
            b"<",
            b">",
            b";",
            b"=",
        ];
        brisk_testkit::fuzz::drive("negotiation", words, super::negotiation);
    }
}
