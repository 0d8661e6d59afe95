//! Regular expressions, whose cost is bounded for every text.

use std::fmt;
use std::sync::Arc;

use regex::bytes::{Captures, Regex, RegexBuilder};
use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};

/// Maximum size of a compiled expression in bytes, as instructions and as automaton.
const LARGEST: usize = 64 << 10;

/// Maximum memory in bytes for the construction of an automaton.
const CONSTRUCTION: usize = 512 << 10;

/// Maximum size in bytes of the compiled `groups` of a [`GroupPattern`].
const LARGEST_WITH_GROUPS: usize = 8 << 10;

/// Maximum nesting of an expression.
const NESTING: u32 = 32;

/// A regular expression without look-around and back-references. Classes contain ASCII only.
///
/// A search takes one step per byte of the text: the expression is a deterministic automaton, which the constructor builds as
/// a whole. Measured with 64 KiB of text: at most 0.5 ms. Without the limit for the automaton, `a[ab]{900}c` took 0.5 s.
#[derive(Clone)]
pub struct Pattern {
    text: Arc<str>,
    automaton: Arc<dense::DFA<Vec<u32>>>,
}

impl Pattern {
    /// Compiles `text`.
    ///
    /// # Errors
    ///
    /// The reason if the text is no regular expression, or if its compiled form is too large.
    pub fn new(text: &str) -> Result<Self, String> {
        // The errors of this parser name the fault.
        regex(text, LARGEST)?;
        let automaton = dense::Builder::new()
            .configure(
                dense::Config::new()
                    // Start states for anchored searches too would enlarge the
                    // automaton, and no search here is anchored.
                    .start_kind(StartKind::Unanchored)
                    .dfa_size_limit(Some(LARGEST))
                    .determinize_size_limit(Some(CONSTRUCTION)),
            )
            // Paths and values of headers need not be UTF-8.
            .syntax(syntax::Config::new().unicode(false).utf8(false).nest_limit(NESTING))
            // The automaton has no groups. `GroupPattern` compiles the expression a second time for them.
            .thompson(thompson::Config::new().utf8(false).which_captures(WhichCaptures::None))
            .build(text);
        let automaton = automaton.map_err(|_| {
            let limit = LARGEST >> 10;
            format!(
                "its automaton is larger than {limit} KiB: begin it with \"^\", or shorten its repetitions"
            )
        })?;
        Ok(Self { text: text.into(), automaton: Arc::new(automaton) })
    }

    /// Whether a part of `text` matches.
    pub fn is_match(&self, text: &[u8]) -> bool {
        // `earliest`: the first match suffices, and its end is irrelevant.
        let input = Input::new(text).anchored(Anchored::No).earliest(true);
        let found = self.automaton.try_search_fwd(&input);
        found.expect("an automaton for unanchored searches without bytes that end them").is_some()
    }

    /// The expression as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Pattern").field(&self.text).finish()
    }
}

/// A [`Pattern`] whose groups are used. The search for groups costs the size of the expression times the length of the text, so
/// the expression has at most 8 KiB, and the caller limits the text.
#[derive(Clone, Debug)]
pub struct GroupPattern {
    pattern: Pattern,
    groups: Regex,
}

impl GroupPattern {
    /// Compiles `text`.
    ///
    /// # Errors
    ///
    /// Those of [`Pattern::new`].
    pub fn new(text: &str) -> Result<Self, String> {
        let groups = regex(text, LARGEST_WITH_GROUPS)?;
        Ok(Self { pattern: Pattern::new(text)?, groups })
    }

    /// Whether a part of `text` matches.
    pub fn is_match(&self, text: &[u8]) -> bool {
        self.pattern.is_match(text)
    }

    /// The number of the group called `name`, which may be a number; `None` if there is no such group.
    pub fn group(&self, name: &str) -> Option<usize> {
        let number = name.parse().ok().filter(|number| *number < self.groups.captures_len());
        number.or_else(|| self.groups.capture_names().position(|own| own == Some(name)))
    }

    /// The groups of the first match; `None` if nothing matches.
    pub fn captures<'t>(&self, text: &'t [u8]) -> Option<Captures<'t>> {
        self.groups.captures(text)
    }
}

/// Compiles an expression to at most `largest` bytes.
fn regex(text: &str, largest: usize) -> Result<Regex, String> {
    let built = RegexBuilder::new(text).unicode(false).size_limit(largest).nest_limit(NESTING).build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(limit) => {
            format!("its compiled form is larger than {} KiB: shorten its repetitions", limit >> 10)
        }
        // The last line has the reason, those before it a drawing of the position.
        error => {
            let text = error.to_string();
            text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::new(text).expect(text)
    }

    #[test]
    fn a_pattern_that_is_wrong_or_too_large_is_refused() {
        for (wrong, reason) in [("(", "unclosed"), ("(?=a)", "look-around, "), (r"(a)\1", "backreferences")] {
            assert!(Pattern::new(wrong).expect_err(wrong).starts_with(reason), "{wrong}");
        }
        assert!(Pattern::new("((a{100}){100}){100}").expect_err("too large").contains("64 KiB: shorten"));
    }

    #[test]
    fn a_pattern_whose_automaton_explodes_is_refused() {
        for text in ["a[ab]{900}c", "a.{20}c", "x(?:.*y.{12})z"] {
            assert!(Pattern::new(text).expect_err(text).starts_with("its automaton is larger"), "{text}");
        }
        for text in [
            "^/users/[^/]+/posts/[0-9]+$",
            r"\.(png|jpe?g|gif|css|js)$",
            "(?i)(bot|crawl|spider|slurp)",
            "^/(de|en|fr)/products/([^/]+)/([0-9]+)(/.*)?$",
            "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
            "^/[^/]{1,255}/x$",
            "^.{0,255}$",
            r"\bx\w+\b",
        ] {
            pattern(text);
        }
    }

    #[test]
    fn an_automaton_agrees_with_the_expression() {
        let texts = ["", "a", "/a/b.png", "/a\nb", "x y", "/ü", "aaaa!", "BOT", "-x1-", "\u{1}"];
        for text in [
            "",
            "^$",
            "^a+$",
            "[.]png$",
            "(?i)bot",
            r"\bx\w",
            "a|^/",
            "^.*b$",
            "(?s)^.*b$",
            "^/..$",
            "(?m)^b$",
        ] {
            let (automaton, expression) = (pattern(text), regex(text, LARGEST).expect(text));
            for value in texts {
                let expected = expression.is_match(value.as_bytes());
                assert_eq!(automaton.is_match(value.as_bytes()), expected, "{text:?} on {value:?}");
            }
        }
    }

    #[test]
    fn a_pattern_compares_bytes() {
        assert!(pattern("^/ü.$").is_match("/ü\u{1}".as_bytes()) && pattern("^/.$").is_match(b"/\xff"));
        assert!(!pattern(r"^\w$").is_match("ü".as_bytes()));
    }

    #[test]
    fn groups_need_a_smaller_expression() {
        let long = format!("^/({})$", "[ab]".repeat(200));
        assert!(Pattern::new(&long).is_ok());
        assert!(GroupPattern::new(&long).expect_err("too large").contains("8 KiB"));
        let groups = GroupPattern::new("^/(?P<id>[0-9]+)/(.*)$").expect("groups");
        assert_eq!((groups.group("id"), groups.group("2"), groups.group("3")), (Some(1), Some(2), None));
    }
}
