//! Generator of requests: each feature alone, and then features in pairs and threes, from a fixed seed.

use super::request::{Content, Expressible, Request};
use super::upstream::SHAPE;

/// Change of a plain request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Method(&'static str),
    Target(&'static str),
    Version(&'static str),
    Hosts(&'static [&'static str]),
    Headers(&'static [(&'static str, &'static str)]),
    /// Name of the response in the table `SHAPES`.
    Shape(&'static str),
    Whole(&'static str),
    Chunks(&'static [&'static str], &'static [(&'static str, &'static str)]),
    /// Headers with the framing, and bytes after the head.
    Raw(&'static [(&'static str, &'static str)], &'static str),
}

/// A named change. Names of the table `SHAPES`, which begin with `response_`, are features, too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Feature {
    pub(super) name: &'static str,
    pub(super) change: Change,
    pub(super) expressible: Expressible,
}

pub(super) const fn feature(name: &'static str, change: Change) -> Feature {
    Feature { name, change, expressible: Expressible::Everywhere }
}

pub(super) const fn http1(name: &'static str, change: Change) -> Feature {
    Feature { name, change, expressible: Expressible::Http1 }
}

pub(super) const fn multiplexed(name: &'static str, change: Change) -> Feature {
    Feature { name, change, expressible: Expressible::Multiplexed }
}

/// Replaces `{3000}` and `{9000}` by texts of this length.
pub(super) fn expand(text: &str) -> String {
    text.replace("{3000}", &"x".repeat(3000)).replace("{9000}", &"y".repeat(9000))
}

/// Requests for `target`, first one for each feature and pair, then random combinations, `count` in sum.
pub(super) fn requests(
    target: &str,
    features: &[Feature],
    pairs: &[[&str; 2]],
    count: usize,
) -> Vec<Request> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let plain = |number| Request::plain(number, target);
    let find = |name: &str| {
        let found = features.iter().find(|feature| feature.name == name);
        *found.unwrap_or_else(|| panic!("no feature {name}"))
    };
    let singles = features.iter().map(|feature| vec![*feature]);
    let chosen = singles.chain(pairs.iter().map(|pair| pair.iter().map(|name| find(name)).collect()));
    let mut requests: Vec<_> =
        chosen.enumerate().map(|(number, chosen)| composed(plain(number), &chosen)).collect();
    while requests.len() < count {
        let chosen: Vec<_> =
            (0..2 + random.below(2)).map(|_| features[random.below(features.len())]).collect();
        if are_compatible(&chosen) {
            requests.push(composed(plain(requests.len()), &chosen));
        }
    }
    requests
}

/// Whether features change different parts of a request, and a protocol can express them all.
fn are_compatible(features: &[Feature]) -> bool {
    let part = |feature: &Feature| match feature.change {
        Change::Method(_) => "method",
        Change::Target(_) => "target",
        Change::Version(_) => "version",
        Change::Hosts(_) => "hosts",
        Change::Headers([(name, _), ..]) => name,
        Change::Headers([]) => "",
        Change::Shape(_) => SHAPE,
        Change::Whole(_) | Change::Chunks(..) | Change::Raw(..) => "content",
    };
    let is_alone =
        |(index, one): (usize, &Feature)| features[..index].iter().all(|other| part(one) != part(other));
    let has = |expressible| features.iter().any(|one| one.expressible == expressible);
    features.iter().enumerate().all(is_alone) && !(has(Expressible::Http1) && has(Expressible::Multiplexed))
}

fn composed(mut request: Request, features: &[Feature]) -> Request {
    for feature in features {
        request.features.push(feature.name);
        if feature.expressible != Expressible::Everywhere {
            request.expressible = feature.expressible;
        }
        apply(feature.change, &mut request);
    }
    let has_method = features.iter().any(|feature| matches!(feature.change, Change::Method(_)));
    if request.content != Content::Empty && !has_method {
        request.method = "POST";
    }
    request
}

fn apply(change: Change, request: &mut Request) {
    let headers = |lines: &[(&'static str, &str)]| -> Vec<_> {
        lines.iter().map(|(name, value)| (*name, expand(value))).collect()
    };
    match change {
        Change::Method(method) => request.method = method,
        Change::Target(target) => request.target = expand(target),
        Change::Version(version) => request.version = version,
        Change::Hosts(hosts) => request.hosts = hosts,
        Change::Headers(lines) => request.headers.extend(headers(lines)),
        Change::Shape(name) => request.headers.push((SHAPE, name.to_owned())),
        Change::Whole(text) => request.content = Content::Whole(expand(text)),
        Change::Chunks(chunks, trailers) => request.content = Content::Chunks(chunks, trailers),
        Change::Raw(lines, text) => {
            request.headers.extend(headers(lines));
            request.content = Content::Raw(text);
        }
    }
}

/// Generator xorshift64*, whose sequence is always the same.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }
}
