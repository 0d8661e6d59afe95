//! Tests of paths, their conjunctions, and the expressions of brisk (`path_regex`) for them.

use crate::nginx::pattern;

/// Length of the expression for one condition of a route at most: longer lists become several conditions (see `divided`), because
/// the automaton of brisk is bounded.
const LONGEST: usize = 160;

/// Way of comparison of a path, header or other text with a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Match {
    /// `path` or `-m str`: `/a` becomes `^/a$`.
    Exact,
    /// `path_beg` or `-m beg`: `/a` becomes `^/a`.
    Begin,
    /// `path_end` or `-m end`: `.js` becomes `\.js$`.
    End,
    /// `path_sub` or `-m sub`: `a` remains `a`.
    Part,
    /// `path_dir` or `-m dir`: a segment, or several, between slashes. `a/b` becomes `(?:^|/)a/b(?:/|$)`.
    Folder,
    /// `path_dom` or `-m dom`: a part between dots and slashes. `a` becomes `(?:^|[/.])a(?:[/.]|$)`.
    Domain,
    /// `path_reg` or `-m reg`.
    Expression,
}

/// One pattern of an `acl`, with its [`Match`]; `ignore_case` is the flag `-i`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pattern {
    pub(crate) kind: Match,
    pub(crate) text: String,
    pub(crate) ignore_case: bool,
}

impl Pattern {
    /// The expression of brisk: `(?i:^/a)` for `Match::Begin` with the text `/a` and `ignore_case`.
    pub(crate) fn expression(&self) -> String {
        let text = pattern::escaped(&self.text);
        let own = match self.kind {
            Match::Exact => format!("^{text}$"),
            Match::Begin => format!("^{text}"),
            Match::End => format!("{text}$"),
            Match::Part => text,
            Match::Folder | Match::Domain => {
                let (text, set) = (pattern::escaped(self.bare()), self.delimiters());
                if self.kind == Match::Folder {
                    format!("(?:^|/){text}(?:/|$)")
                } else {
                    format!("(?:^|[{set}]){text}(?:[{set}]|$)")
                }
            }
            Match::Expression => self.text.clone(),
        };
        if self.ignore_case { format!("(?i:{own})") } else { own }
    }

    /// Characters between which a folder or domain is. Paths have no query.
    fn delimiters(&self) -> &'static str {
        if self.kind == Match::Domain { "/?.:" } else { "/" }
    }

    /// The text without the delimiters around it.
    pub(crate) fn bare(&self) -> &str {
        self.text.trim_matches(|next| self.delimiters().contains(next))
    }

    /// Whether the pattern accepts a fixed text.
    pub(crate) fn accepts(&self, text: &str) -> bool {
        let (own, text) = if self.ignore_case && self.kind != Match::Expression {
            (self.text.to_lowercase(), text.to_lowercase())
        } else {
            (self.text.clone(), text.to_owned())
        };
        match self.kind {
            Match::Exact => text == own,
            Match::Begin => text.starts_with(&own),
            Match::End => text.ends_with(&own),
            Match::Part => text.contains(&own),
            // The expression has `(?i:` itself, so the flag of `matches` is `false`.
            Match::Folder | Match::Domain | Match::Expression => {
                pattern::matches(&self.expression(), false, &text)
            }
        }
    }

    /// Whether the `text` has no letters of ASCII: then `ignore_case` is taken to make no difference.
    fn is_letterless(&self) -> bool {
        !self.text.bytes().any(|byte| byte.is_ascii_alphabetic())
    }

    /// The texts that both patterns accept: `Ok(None)` if there are none, `Ok(Some(_))` with one [`Pattern`], or `Err(())` if no
    /// such pattern is known. `Begin` with `/a` and `Begin` with `/a/b` give `/a/b`.
    fn and(&self, other: &Self) -> Result<Option<Self>, ()> {
        if self == other {
            return Ok(Some(self.clone()));
        }
        let is_exact = |pattern: &Self| {
            pattern.kind == Match::Exact && (!pattern.ignore_case || pattern.is_letterless())
        };
        if is_exact(self) {
            return Ok(other.accepts(&self.text).then(|| self.clone()));
        }
        if is_exact(other) {
            return Ok(self.accepts(&other.text).then(|| other.clone()));
        }
        let same_case =
            self.ignore_case == other.ignore_case || self.is_letterless() || other.is_letterless();
        // A letter of the beginning in one case may be in the part, in the other one not.
        let is_mixed = |start: &Self, part: &Self| {
            start.ignore_case && !part.ignore_case && !start.is_letterless() && !part.is_letterless()
        };
        match (self.kind, other.kind) {
            (Match::Begin, _) if other.kind != Match::Begin && is_mixed(self, other) => Err(()),
            (_, Match::Begin) if self.kind != Match::Begin && is_mixed(other, self) => Err(()),
            (Match::Begin, Match::Begin) | (Match::End, Match::End) if same_case => {
                let (long, short) =
                    if self.text.len() < other.text.len() { (other, self) } else { (self, other) };
                Ok(short.accepts(&long.text).then(|| long.clone()))
            }
            (Match::Begin, Match::End | Match::Part | Match::Folder | Match::Domain) => {
                Ok(Some(self.then(other)))
            }
            (Match::End | Match::Part | Match::Folder | Match::Domain, Match::Begin) => {
                Ok(Some(other.then(self)))
            }
            (Match::Begin, Match::Expression) if same_case => self.begin_and_expression(other),
            (Match::Expression, Match::Begin) if same_case => other.begin_and_expression(self),
            _ => Err(()),
        }
    }

    /// A `Begin` with an anchored `Expression`, whose matches have one of the beginnings of `starts`: `/a` with `^/a/[0-9]` gives
    /// `^/a/[0-9]`, and `/b` with it gives `Ok(None)`.
    fn begin_and_expression(&self, other: &Self) -> Result<Option<Self>, ()> {
        let starts = starts(&other.text);
        let fold = |text: &str| if self.ignore_case { text.to_lowercase() } else { text.to_owned() };
        let own = fold(&self.text);
        if starts.iter().all(|start| fold(start).starts_with(&own)) {
            Ok(Some(other.clone()))
        } else if starts.iter().all(|start| !fold(start).starts_with(&own) && !own.starts_with(&fold(start)))
        {
            Ok(None)
        } else {
            Err(())
        }
    }

    /// A `Begin` with an `End`, `Part`, `Folder` or `Domain`, which may overlap: `/ab` with the end `bc` gives
    /// `^/ab.*bc$|^/abc$`.
    fn then(&self, other: &Self) -> Self {
        let (bare, set) = (other.bare(), other.delimiters());
        let tail = if other.kind == Match::Folder { "(?:/|$)".to_owned() } else { format!("(?:[{set}]|$)") };
        let before = || set.chars().map(|next| format!("{next}{bare}")).collect::<Vec<_>>();
        let (texts, tail): (_, &str) = match other.kind {
            Match::End => (vec![other.text.clone()], "$"),
            Match::Folder | Match::Domain => (before(), &tail),
            _ => (vec![other.text.clone()], ""),
        };
        // Texts with which a beginning has the whole part.
        let is_whole = |text: &str| match other.kind {
            Match::End => Vec::new(),
            Match::Folder | Match::Domain => set.chars().map(|next| format!("{text}{next}")).collect(),
            _ => vec![text.to_owned()],
        };
        let fold = |text: &str| if other.ignore_case { text.to_lowercase() } else { text.to_owned() };
        let is_in =
            |text: &String| is_whole(text).iter().any(|whole| fold(&self.text).contains(&fold(whole)));
        // A beginning that contains the other text needs no second part in the expression.
        let is_decided = self.ignore_case <= other.ignore_case && texts.iter().any(is_in);
        let mut parts = vec![format!("^{}", self.part(&self.text))];
        if !is_decided {
            parts = texts.iter().flat_map(|text| self.overlaps(other, text, tail)).collect();
        }
        Self { kind: Match::Expression, text: parts.join("|"), ignore_case: false }
    }

    /// A part of the text as an expression: `(?i:a)` for `a` with `ignore_case`.
    fn part(&self, text: &str) -> String {
        let text = pattern::escaped(text);
        if self.ignore_case && !text.is_empty() { format!("(?i:{text})") } else { text }
    }

    /// Expressions for this beginning and `rest` behind it or over its end, before `tail`: `/ab` and `bc` give
    /// `^/ab.*bc` and `^/abc`.
    fn overlaps(&self, other: &Self, rest: &str, tail: &str) -> Vec<String> {
        let fold = |text: &str| {
            if self.ignore_case || other.ignore_case { text.to_lowercase() } else { text.to_owned() }
        };
        let start = self.text.as_str();
        let mut parts = vec![format!("^{}.*{}{tail}", self.part(start), other.part(rest))];
        for at in rest.char_indices().map(|(at, _)| at).chain([rest.len()]).filter(|at| *at > 0) {
            let begin = start.len().checked_sub(at).filter(|begin| start.is_char_boundary(*begin));
            let Some(begin) = begin.filter(|begin| fold(&start[*begin..]) == fold(&rest[..at])) else {
                continue;
            };
            let middle = if self.ignore_case { other.part(&rest[..at]) } else { self.part(&start[begin..]) };
            parts.push(format!("^{}{middle}{}{tail}", self.part(&start[..begin]), other.part(&rest[at..])));
        }
        parts
    }
}

/// Beginnings of the matches of an expression: the one of `fixed_start`, with each text of a plain group behind it. `^/(a|b)` has
/// `/a` and `/b`.
fn starts(expression: &str) -> Vec<String> {
    let start = pattern::fixed_start(expression);
    let rest = expression.strip_prefix('^').and_then(|text| text.strip_prefix(start.as_str()));
    let group = rest.and_then(|text| text.strip_prefix("(?:").or_else(|| text.strip_prefix('(')));
    let Some((inner, behind)) = group.and_then(|text| text.split_once(')')) else { return vec![start] };
    let is_plain = inner.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"|/_-".contains(&byte));
    // A group that may be absent is no part of each match.
    if !is_plain || behind.starts_with(['?', '*', '{']) {
        return vec![start];
    }
    inner.split('|').map(|text| format!("{start}{text}")).collect()
}

/// The expression for any of the patterns, as for `path_regex`: `^/a|^/b`, with `(?i)` in front if all ignore case.
pub(crate) fn any(patterns: &[Pattern]) -> String {
    if patterns.len() > 1 && patterns.iter().all(|pattern| pattern.ignore_case) {
        let plain =
            patterns.iter().map(|pattern| Pattern { ignore_case: false, ..pattern.clone() }.expression());
        return format!("(?i){}", plain.collect::<Vec<_>>().join("|"));
    }
    match patterns {
        [one] if one.ignore_case => {
            format!("(?i){}", Pattern { ignore_case: false, ..one.clone() }.expression())
        }
        _ => patterns.iter().map(Pattern::expression).collect::<Vec<_>>().join("|"),
    }
}

/// Patterns for the texts that one of each list accepts: an empty list if no text does, `Err(())` without such patterns.
pub(crate) fn both(first: &[Pattern], second: &[Pattern]) -> Result<Vec<Pattern>, ()> {
    // Each pair may become a pattern.
    if first.len() * second.len() > 64 {
        return Err(());
    }
    let mut all = Vec::new();
    for one in first {
        for other in second {
            all.extend(one.and(other)?);
        }
    }
    all.dedup();
    Ok(all)
}

/// Lists of patterns whose texts together have about `LONGEST` bytes at most; a longer pattern is alone in its list.
pub(crate) fn divided(patterns: Vec<Pattern>) -> Vec<Vec<Pattern>> {
    let mut lists: Vec<Vec<Pattern>> = Vec::new();
    let mut size = LONGEST;
    for pattern in patterns {
        size += pattern.text.len() + 4;
        if size > LONGEST || lists.is_empty() {
            lists.push(Vec::new());
            size = pattern.text.len();
        }
        lists.last_mut().expect("a list").push(pattern);
    }
    lists
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(kind: Match, text: &str) -> Pattern {
        Pattern { kind, text: text.to_owned(), ignore_case: false }
    }

    #[test]
    fn conjunctions_accept_the_texts_that_both_accept() {
        use Match::{Begin, End, Exact, Expression, Folder, Part};
        for (first, second, expected) in [
            (pattern(Exact, "/a"), pattern(Begin, "/"), Ok(Some("^/a$"))),
            (pattern(Exact, "/a"), pattern(Begin, "/b"), Ok(None)),
            (pattern(Begin, "/a"), pattern(Begin, "/a/b"), Ok(Some("^/a/b"))),
            (pattern(Begin, "/a"), pattern(Begin, "/b"), Ok(None)),
            (pattern(Begin, "/ab"), pattern(End, "bc"), Ok(Some("^/ab.*bc$|^/abc$"))),
            (pattern(Begin, "/a"), pattern(Part, "/a"), Ok(Some("^/a"))),
            (pattern(Begin, "/a"), pattern(Expression, "^/a/[0-9]"), Ok(Some("^/a/[0-9]"))),
            (pattern(Begin, "/b"), pattern(Expression, "^/a/[0-9]"), Ok(None)),
            (pattern(Begin, "/b"), pattern(Expression, "[0-9]"), Err(())),
            (pattern(Begin, "/a/x"), pattern(Folder, "xy"), Ok(Some("^/a/x.*/xy(?:/|$)|^/a/xy(?:/|$)"))),
            (pattern(Begin, "/a/x/"), pattern(Folder, "/x"), Ok(Some("^/a/x/"))),
            (pattern(Begin, "/v1/"), pattern(Expression, "^/(metrics|debug)(/|$)"), Ok(None)),
            (
                pattern(Begin, "/a.P"),
                Pattern { ignore_case: true, ..pattern(End, ".php") },
                Ok(Some(r"^/a\.P.*(?i:\.php)$|^/a\.P(?i:hp)$")),
            ),
        ] {
            let both = first.and(&second).map(|both| both.map(|both| both.expression()));
            assert_eq!(both, expected.map(|text| text.map(str::to_owned)), "{first:?} {second:?}");
        }
    }

    #[test]
    fn long_lists_are_divided() {
        let patterns: Vec<_> =
            (0..100).map(|number| pattern(Match::Begin, &format!("/path/{number}"))).collect();
        let lists = divided(patterns.clone());
        assert!(lists.len() > 5 && lists.iter().all(|list| any(list).len() < 2 * LONGEST));
        assert_eq!(lists.concat(), patterns);
    }
}
