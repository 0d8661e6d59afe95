//! [`TextReplacements`]: replacement of texts in responses while they stream.
//!
//! Texts are found in any case of ASCII letters, also across the pieces of a [`Body`]. At most the beginning of a text is held
//! back: [`LONGEST`] bytes.

mod body;

use std::mem;
use std::rc::Rc;
use std::sync::Arc;

use brisk_http::message::Response;
use brisk_http_connection::Connection;
use bytes::Bytes;
use http::StatusCode;
use http::header::{self, HeaderName};
use regex::bytes::{Regex, RegexBuilder};

use self::body::ReplacedBody;
use crate::body::Body;
use crate::compress::weaken;
use crate::digests::DIGESTS;
use crate::header_values::{forbids_transforming, is_identity};
use crate::weak_tags::WeakTags;

/// Maximum length in bytes of a text that is replaced.
pub const LONGEST: usize = 256;

/// Length of output in bytes after which [`Replacing::step`] pauses.
const STEP: usize = 64 << 10;

/// Headers that a changed body contradicts. A range would address bytes of the original, whose time ignores the changes.
const CONTRADICTED: [HeaderName; 3] = [header::CONTENT_LENGTH, header::ACCEPT_RANGES, header::LAST_MODIFIED];

/// The texts that a route replaces, and the media types of its responses.
#[derive(Debug)]
pub struct TextReplacements {
    texts: Box<[Text]>,
    types: MediaTypes,
    /// Whether only the first occurrence of each text is replaced.
    once: bool,
}

/// Media types of the responses in which texts are replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediaTypes {
    /// All.
    All,
    /// These, in lower case, without parameters.
    Listed(Box<[Box<str>]>),
}

/// A text that is replaced.
#[derive(Debug)]
struct Text {
    pattern: Regex,
    /// The text in lower case.
    lower: Box<[u8]>,
}

impl TextReplacements {
    /// Replacements of `texts`, each with 1 to [`LONGEST`] bytes. `None` for texts of other lengths.
    pub fn new(texts: &[&str], types: MediaTypes, once: bool) -> Option<Self> {
        let text = |text: &&str| {
            let is_short = (1..=LONGEST).contains(&text.len());
            let mut pattern = RegexBuilder::new(&regex::escape(text));
            // Without Unicode, because a body may have any charset, and case is ignored for ASCII letters
            // only.
            let pattern = pattern.case_insensitive(true).unicode(false).build().ok()?;
            is_short.then(|| Text { pattern, lower: text.to_ascii_lowercase().into_bytes().into() })
        };
        Some(Self { texts: texts.iter().map(text).collect::<Option<_>>()?, types, once })
    }

    /// Whether texts of responses with the media type `kind` are replaced.
    pub fn concern_type(&self, kind: &str) -> bool {
        match &self.types {
            MediaTypes::All => true,
            MediaTypes::Listed(types) => types.iter().any(|own| own.eq_ignore_ascii_case(kind)),
        }
    }

    /// Whether texts of the response are replaced: its media type is listed, and its body is complete and has no coding.
    fn concern(&self, response: &Response<Body>) -> bool {
        let (headers, status) = (response.headers(), response.status());
        let is_partial = status == StatusCode::PARTIAL_CONTENT || headers.contains_key(header::CONTENT_RANGE);
        let kind = || headers.get(header::CONTENT_TYPE)?.to_str().ok()?.split(';').next();
        let is_listed =
            self.types == MediaTypes::All || kind().is_some_and(|kind| self.concern_type(kind.trim()));
        is_listed
            && !is_partial
            && !status.is_informational()
            && is_identity(headers)
            && !forbids_transforming(headers)
    }

    /// Replaces the texts of a response by those of `to`, which has one for each. The response to `HEAD` gets the headers of the
    /// response to `GET`, and a `304` the tag of the client's copy, which is in `known` if it was changed.
    pub fn apply(
        self: &Arc<Self>,
        to: &Rc<[Bytes]>,
        connection: &Rc<Connection>,
        is_head: bool,
        known: &WeakTags,
        response: &mut Response<Body>,
    ) {
        if response.status() == StatusCode::NOT_MODIFIED {
            // By the tags, because most upstreams omit the type in a `304`.
            return known.confirm(response.headers_mut());
        }
        if !self.concern(response) {
            return;
        }
        let headers = response.headers_mut();
        CONTRADICTED.iter().chain(&DIGESTS).for_each(|name| drop(headers.remove(name)));
        weaken(headers);
        if is_head || response.status() == StatusCode::NO_CONTENT {
            // The body of an upstream is kept, because its end returns the connection to the pool.
            if !matches!(response.body(), Body::Upstream(_)) {
                *response.body_mut() = Body::Empty;
            }
            return;
        }
        let replacing = Replacing::new(Arc::clone(self), Rc::clone(to));
        let source = mem::take(response.body_mut());
        *response.body_mut() = Body::boxed(ReplacedBody::new(source, replacing, Rc::clone(connection)));
    }
}

/// The replacement of the [`TextReplacements`] in one body.
#[derive(Debug)]
struct Replacing {
    rules: Arc<TextReplacements>,
    to: Rc<[Bytes]>,
    /// Input without output: the beginning of a text, below [`LONGEST`] bytes.
    held: Vec<u8>,
    /// Texts that occur no more: all that were found, if each is replaced once.
    used: Box<[bool]>,
}

impl Replacing {
    fn new(rules: Arc<TextReplacements>, to: Rc<[Bytes]>) -> Self {
        let used = vec![false; rules.texts.len()].into();
        Self { rules, to, held: Vec::new(), used }
    }

    /// Bytes that the next step examines, times the texts.
    fn work(&self, added: usize) -> usize {
        (self.held.len() + added) * self.rules.texts.len()
    }

    /// Processes `input` after all earlier input. Returns the output as far as it is decided, and the number of bytes of `input`
    /// that were processed: less than all after [`STEP`] bytes of output. With `is_last`, the end of `input` is decided too.
    fn step(&mut self, input: &[u8], is_last: bool) -> (Vec<u8>, usize) {
        let before = self.held.len();
        let mut source = mem::take(&mut self.held);
        source.extend_from_slice(input);
        let mut output = Vec::with_capacity(source.len());
        let mut done = 0;
        // The next occurrence of each text behind `done`, as far as it is known.
        let mut next: Vec<Option<Occurrence>> = vec![None; self.rules.texts.len()];
        let mut open = if is_last { source.len() } else { self.first_beginning(&source, 0) };
        loop {
            // The place changes only behind it, and when a text is used up: it is not searched for each occurrence.
            if !is_last && (open < done || self.rules.once) {
                open = self.first_beginning(&source, done);
            }
            let first = self.first(&source, done, &mut next);
            let Some((place, index)) = first.filter(|(place, _)| *place < open) else {
                output.extend_from_slice(&source[done..open]);
                self.held = source[open..].to_vec();
                return (output, input.len());
            };
            output.extend_from_slice(&source[done..place]);
            output.extend_from_slice(&self.to[index]);
            done = place + self.rules.texts[index].lower.len();
            self.used[index] = self.rules.once;
            if output.len() >= STEP {
                // The caller keeps the rest of the input, for which no memory is reserved here.
                self.held = source[done..before.max(done)].to_vec();
                return (output, done.saturating_sub(before));
            }
        }
    }

    /// Place and index of the first occurrence in `source` behind `done`; of several at one place, the first text.
    fn first(&self, source: &[u8], done: usize, next: &mut [Option<Occurrence>]) -> Option<(usize, usize)> {
        let mut first = None;
        for (index, (text, known)) in self.rules.texts.iter().zip(next).enumerate() {
            if self.used[index] {
                continue;
            }
            let is_known = known.is_some_and(|known| known.is_none_or(|place| place >= done));
            if !is_known {
                *known = Some(text.pattern.find_at(source, done).map(|found| found.start()));
            }
            let Some(place) = known.flatten() else { continue };
            if first.is_none_or(|(best, _)| place < best) {
                first = Some((place, index));
            }
        }
        first
    }

    /// Place behind `done` from which on `source` may be the beginning of a text; its end if there is none.
    fn first_beginning(&self, source: &[u8], done: usize) -> usize {
        let end = source.len();
        // A beginning is shorter than its text, so only the last bytes can be one.
        let start = done.max(end.saturating_sub(LONGEST - 1));
        let begins = |place: usize| {
            let rest = &source[place..];
            let texts = self.rules.texts.iter().zip(&self.used).filter(|(_, used)| !**used);
            texts.into_iter().any(|(text, _)| {
                rest.len() < text.lower.len() && rest.eq_ignore_ascii_case(&text.lower[..rest.len()])
            })
        };
        (start..end).find(|place| begins(*place)).unwrap_or(end)
    }
}

/// Place of a [`Text`], or `None` if the input has no further one.
type Occurrence = Option<usize>;

#[cfg(test)]
mod tests;
