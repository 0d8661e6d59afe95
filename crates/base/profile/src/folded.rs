//! Folded stacks: one line per stack, the input format of common flame graph programs.

use std::fmt::Write;

use crate::Profile;

pub(crate) fn lines(profile: &Profile) -> String {
    let mut text = String::new();
    for (stack, samples) in &profile.stacks {
        let names: Vec<_> = stack.iter().map(|number| word(profile.name(*number))).collect();
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "{} {samples}", names.join(";"));
    }
    if profile.lost > 0 {
        let _ = writeln!(text, "[lost] {}", profile.lost);
    }
    text
}

/// A name without the separators of the format.
fn word(name: &str) -> String {
    let clean = |letter: char| match letter {
        ';' => ':',
        letter if letter.is_control() => '?',
        letter => letter,
    };
    name.chars().map(clean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_end_a_line_or_a_name() {
        let profile = Profile::of(&[(&["w\n1", "a;b", "<c as d>::e"], 3), (&["w\n1"], 1)]);
        assert_eq!(lines(&profile), "w?1;a:b;<c as d>::e 3\nw?1 1\n");
        assert_eq!(lines(&Profile { lost: 7, ..Profile::of(&[]) }), "[lost] 7\n");
    }
}
