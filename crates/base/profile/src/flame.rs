//! Flame graphs of a [`Profile`] as SVG: one box for each function on each stack, above its caller; the width is its share of
//! the samples.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::Profile;

/// Layout in pixels.
const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 8.0;
const ROW: usize = 18;
const LINE: usize = 17;
/// Average width of a character, in pixels.
const LETTER: f64 = 6.7;
/// Boxes below this width are omitted. Some are visible after a zoom only.
const NARROWEST: f64 = 0.1;

/// Zoom and search. Without scripts, the graph is complete, and boxes have their names as tooltips.
const SCRIPT: &str = include_str!("flame.js");

/// The script of a flame graph as a source in a content security policy.
pub const SCRIPT_SOURCE: &str = "'sha256-n+uCQ6b4VLXjmJC7+1rurI5G+NbOboMyI6XTtavDZ1M='";

/// Prefixes of names, labels and colours. The gateway's own code comes first, with the most visible colour, because the
/// reader can change it.
const ORIGINS: [(&str, &str, &str); 4] = [
    ("brisk", "brisk", "#f2a65a"),
    ("rustls", "rustls", "#ecd06f"),
    ("aws_lc", "cryptography", "#93bdea"),
    ("tokio", "tokio", "#cbc0e8"),
];
const THREAD: &str = "#cfd5dc";
const OTHER: &str = "#e6e2da";

/// A function on a stack, with its callees.
#[derive(Default)]
struct Node<'p> {
    samples: u64,
    callees: BTreeMap<&'p str, Node<'p>>,
}

impl Node<'_> {
    /// Number of rows with visible boxes.
    fn rows(&self, scale: f64) -> usize {
        let callees = self.callees.values().filter(|node| node.samples as f64 * scale >= NARROWEST);
        1 + callees.map(|node| node.rows(scale)).max().unwrap_or(0)
    }
}

fn tree(profile: &Profile) -> Node<'_> {
    let mut root = Node::default();
    for (stack, samples) in &profile.stacks {
        let mut node = &mut root;
        node.samples += samples;
        for number in stack {
            node = node.callees.entry(profile.name(*number)).or_default();
            node.samples += samples;
        }
    }
    root
}

/// Renders the graph with `notes` above it.
pub(crate) fn graph(profile: &Profile, notes: &[String]) -> String {
    let root = tree(profile);
    let scale = (WIDTH - 2.0 * MARGIN) / root.samples.max(1) as f64;
    let lines = head(profile, root.samples, notes);
    let top = (lines.len() + 1) * LINE + 12;
    let height = top + root.rows(scale) * ROW + 10;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"monospace\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    for (number, line) in lines.iter().enumerate() {
        let (size, fill) = if number == 0 { (14, "#111") } else { (12, "#444") };
        let y = (number + 1) * LINE;
        // Writing to a `String` cannot fail, here and below.
        let _ = writeln!(
            svg,
            "<text x=\"{MARGIN}\" y=\"{y}\" font-family=\"sans-serif\" font-size=\"{size}\" fill=\"{fill}\">{}</text>",
            escaped(line)
        );
    }
    legend(&mut svg, (lines.len() + 1) * LINE);
    let place = Drawing { scale, bottom: height - 10 - ROW, profile, all: root.samples.max(1) };
    place.draw(&mut svg, "all threads", &root, (MARGIN, 0));
    // The hash of a policy covers the text of the element, without the markup of the section.
    let _ = write!(svg, "<script><![CDATA[{SCRIPT}]]></script>\n</svg>\n");
    svg
}

/// Lines of text above the graph: figures, [`Profile::gaps`] and `notes`.
fn head(profile: &Profile, samples: u64, notes: &[String]) -> Vec<String> {
    let used = profile.period().as_secs_f64() * samples as f64;
    let mut lines = vec![format!(
        "Processor time of brisk in {:.1} s: {used:.2} s, {samples} samples at {} for each second of it",
        profile.length.as_secs_f64(),
        profile.frequency
    )];
    if samples == 0 {
        lines.push("No thread used the processor for long enough to be seen.".to_owned());
    }
    lines.extend(profile.gaps());
    lines.extend_from_slice(notes);
    lines.push(
        "Each box is a function, above the one that called it; the lowest are threads. Rest the pointer on one for its name \
         and share, click it to enlarge it."
            .to_owned(),
    );
    lines
}

fn legend(svg: &mut String, y: usize) {
    let kinds = ORIGINS.iter().map(|(_, label, colour)| (*label, *colour));
    for (number, (label, colour)) in kinds.chain([("other", OTHER)]).enumerate() {
        let x = MARGIN + 120.0 * number as f64;
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{colour}\"/><text x=\"{}\" y=\"{y}\">{label}</text>",
            y - 10,
            x + 16.0
        );
    }
}

struct Drawing<'p> {
    profile: &'p Profile,
    /// Pixels per sample.
    scale: f64,
    bottom: usize,
    all: u64,
}

impl Drawing<'_> {
    /// Draws a function and its callees. `left` is its left edge in pixels.
    fn draw(&self, svg: &mut String, name: &str, node: &Node<'_>, (left, row): (f64, usize)) {
        let width = node.samples as f64 * self.scale;
        if width < NARROWEST {
            return;
        }
        let (top, percent) = (self.bottom - row * ROW, 100.0 * node.samples as f64 / self.all as f64);
        let seconds = self.profile.period().as_secs_f64() * node.samples as f64;
        let letters = ((width - 6.0) / LETTER).max(0.0) as usize;
        let label: String =
            if letters < 3 { String::new() } else { short(name).chars().take(letters).collect() };
        let _ = writeln!(
            svg,
            "<g class=\"f\"><title>{} ({percent:.2} %, {seconds:.2} s, samples: {})</title><rect x=\"{left:.1}\" y=\"{top}\" \
             width=\"{width:.1}\" height=\"{}\" rx=\"1\" fill=\"{}\" stroke=\"#fff\" stroke-width=\".6\"/>\
             <text x=\"{:.1}\" y=\"{}\">{}</text></g>",
            escaped(name),
            node.samples,
            ROW - 1,
            colour(name, row),
            left + 3.0,
            top + 13,
            escaped(&label)
        );
        let mut at = left;
        for (callee, node) in &node.callees {
            self.draw(svg, callee, node, (at, row + 1));
            at += node.samples as f64 * self.scale;
        }
    }
}

/// The last two segments of a path. Names with type parameters stay complete, because their segments cannot be split
/// easily.
fn short(name: &str) -> &str {
    if name.contains(['<', ' ', '[']) {
        return name;
    }
    name.rmatch_indices("::").nth(1).map_or(name, |(at, _)| &name[at + 2..])
}

fn colour(name: &str, row: usize) -> &'static str {
    if row < 2 {
        return THREAD;
    }
    // A trait method such as `<brisk_tls::Stream as Read>::read` gets the colour of its type.
    let name = name.trim_start_matches(['<', '&']);
    let origin = ORIGINS.iter().find(|(start, ..)| name.starts_with(start));
    origin.map_or(OTHER, |(.., colour)| colour)
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    // XML 1.0 section 2.2 excludes control characters and these two.
    text.chars().filter(|letter| !letter.is_control() && !['\u{fffe}', '\u{ffff}'].contains(letter)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_is_as_wide_as_its_share_and_above_its_caller() {
        let profile = Profile::of(&[(&["worker-0", "a", "b"], 300), (&["worker-0", "c"], 100)]);
        let svg = graph(&profile, &["a note".to_owned()]);
        let attributes = |name: &str| {
            let title = format!("<title>{name} (");
            let line =
                svg.lines().find(|line| line.contains(&title)).unwrap_or_else(|| panic!("{name} in {svg}"));
            let number = |key: &str| {
                let rect = line.split_once("<rect").expect("a box").1;
                let value = rect.split_once(&format!(" {key}=\"")).expect("an attribute").1;
                value.split_once('"').expect("its end").0.parse::<f64>().expect("a number")
            };
            (number("x"), number("y"), number("width"))
        };
        let (a, b, c) = (attributes("a"), attributes("b"), attributes("c"));
        assert_eq!((a.0, a.2), (8.0, 888.0));
        assert_eq!((c.0, c.2), (896.0, 296.0));
        assert_eq!((b.0, b.1, b.2), (a.0, a.1 - ROW as f64, a.2));
        assert!(svg.contains("<title>a (75.00 %, 3.00 s, samples: 300)</title>"), "{svg}");
        assert!(svg.contains("4.00 s, 400 samples at 100") && svg.contains("a note"), "{svg}");
    }

    #[test]
    fn names_are_text() {
        let svg = graph(&Profile::of(&[(&["<script>\u{7}&\"", "]]>"], 1)]), &["<b>".to_owned()]);
        // The only script is that of the graph.
        assert!(svg.matches("<script>").count() == 1 && !svg.contains("<b>"), "{svg}");
        assert!(svg.contains(&format!("<script><![CDATA[{SCRIPT}]]></script>")) && !SCRIPT.contains("]]>"));
        assert!(svg.contains("&lt;script&gt;&amp;&quot; (") && svg.contains("]]&gt;"), "{svg}");
        assert_eq!(short("brisk_tls::acceptor::accept"), "acceptor::accept");
        assert_eq!(short("<a::b::C as d::E>::f"), "<a::b::C as d::E>::f");
    }

    #[test]
    fn the_policy_permits_the_script() {
        use base64::Engine as _;
        use sha2::Digest as _;
        let hash = base64::engine::general_purpose::STANDARD.encode(sha2::Sha256::digest(SCRIPT));
        assert_eq!(SCRIPT_SOURCE, format!("'sha256-{hash}'"));
    }

    #[test]
    fn what_is_wrong_with_a_profile_is_said() {
        assert!(graph(&Profile::of(&[]), &[]).contains("No thread used the processor"));
        let unread = vec!["libx.so".to_owned()];
        let profile = Profile { lost: 7, left_out: 2, unread, ..Profile::of(&[(&["a"], 1)]) };
        let pprof = crate::pprof::encoded(&profile);
        let svg = graph(&profile, &[]);
        for gap in ["7 samples were lost", "2 threads could not be sampled", "libx.so could not be read"] {
            assert!(
                svg.contains(gap) && pprof.windows(gap.len()).any(|part| part == gap.as_bytes()),
                "{gap}: {svg}"
            );
        }
    }

    #[test]
    fn a_graph_of_many_narrow_stacks_is_small() {
        let names: Vec<_> = (0..20_000).map(|number| format!("f{number}")).collect();
        let stacks: Vec<_> = names.iter().map(|name| ["t", name.as_str()]).collect();
        let stacks: Vec<_> = stacks.iter().map(|stack| (&stack[..], 1)).collect();
        let root = graph(&Profile::of(&stacks), &[]);
        assert!(root.len() < 10_000, "{}", root.len());
    }
}
