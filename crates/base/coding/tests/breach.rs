//! The attack BREACH on the lengths of compressed pages, without and with padding of random length.
//!
//! `cargo test -p brisk-coding --test breach -- --nocapture` prints the figures of docs/pages.md.

use brisk_coding::{Coding, Encoder, pad_gzip, padding_length};

const DIGITS: &[u8; 16] = b"0123456789abcdef";
const TOKEN: &str = "7f3a91c5e0b86d24f1a9c07be35d8264";
const KNOWN: &str = "name=\"csrf\" value=\"";
/// Characters that the page does not contain: with more of them, the last bit moves within its byte.
const FILLERS: [&str; 8] = ["", "Q", "QZ", "QZ~", "QZ~^", "QZ~^`", "QZ~^`|", "QZ~^`|\\"];

/// Responses of an application that repeats the search term of a request beside a secret.
struct Application {
    /// Random numbers of the padding; `None` without padding.
    noise: Option<fastrand::Rng>,
    requests: u64,
}

impl Application {
    /// Length of the response to a search, as an observer of the network sees it.
    fn length(&mut self, term: &str) -> i64 {
        self.requests += 1;
        let row = |row: u32| {
            format!("<tr><td>item {row}</td><td>{}</td></tr>\n", row.wrapping_mul(2_654_435_761) >> 8)
        };
        let rows = (0..60).map(row).collect::<Vec<_>>().concat();
        let page = format!(
            "<!doctype html><title>shop</title><form><input type=hidden {KNOWN}{TOKEN}\"></form>\n\
             <p>results for {term}</p><table>{rows}</table>"
        );
        let mut content = Vec::new();
        Encoder::new(Coding::Gzip, 6).write_whole(page.as_bytes(), &mut content).expect("an encoder");
        if let Some(noise) = &mut self.noise {
            pad_gzip(&mut content, padding_length(noise.u32(..)));
        }
        i64::try_from(content.len()).expect("a short page")
    }

    /// Bytes by which responses are shorter if `digit` follows `known` in the search term than if it follows later.
    fn saved(&mut self, known: &str, digit: u8, filler: &str) -> i64 {
        let digit = char::from(digit);
        // Matches of one length have the same code, for known and unknown parts of the token.
        let known = format!("{KNOWN}{known}");
        let known = &known[known.len() - 8..];
        let control = self.length(&format!("{known}{filler}#{digit}"));
        control - self.length(&format!("{known}{digit}{filler}#"))
    }

    /// The digit after `known` for which most bytes are saved, with `rounds` measurements of each digit.
    fn next_digit(&mut self, known: &str, rounds: usize) -> u8 {
        let fillers: Vec<_> = FILLERS.into_iter().cycle().take(rounds).collect();
        let saved = |digit: &u8, all: &mut Self| -> i64 {
            fillers.iter().map(|filler| all.saved(known, *digit, filler)).sum()
        };
        *DIGITS.iter().max_by_key(|digit| saved(digit, self)).expect("16 digits")
    }
}

#[test]
fn without_padding_a_secret_is_found() {
    let mut application = Application { noise: None, requests: 0 };
    let mut found = String::new();
    while found.len() < TOKEN.len() {
        found.push(application.next_digit(&found, FILLERS.len()).into());
    }
    println!("without padding: {} digits in {} requests", found.len(), application.requests);
    assert_eq!(found, TOKEN);
}

#[test]
fn with_padding_the_same_attack_guesses() {
    let attacks = 150;
    let mut application = Application { noise: Some(fastrand::Rng::with_seed(7)), requests: 0 };
    let hits =
        (0..attacks).filter(|_| application.next_digit("", FILLERS.len()) == TOKEN.as_bytes()[0]).count();
    println!(
        "with padding: {hits} of {attacks} first digits in {} requests each",
        application.requests / attacks
    );
    // Guesses hit one in 16: 9 of 150. The probability of 25 is below 0.0002 %.
    assert!(hits < 25, "{hits}");
}

/// Probability of each length of padding.
fn distribution() -> Vec<f64> {
    let mut sums = vec![1.0];
    for _ in 0..4 {
        let mut longer = vec![0.0; sums.len() + 255];
        for (sum, probability) in sums.iter().enumerate() {
            for byte in 0..256 {
                longer[sum + byte] += probability / 256.0;
            }
        }
        sums = longer;
    }
    sums
}

/// Upper bound of the probability that an observer of `lengths` responses tells apart two texts whose compressed lengths
/// differ by `difference` bytes, with any method. Without observation the probability is one half.
///
/// From the Bhattacharyya coefficient, which is multiplied with each independent observation: the total variation is at
/// most `sqrt(1 - coefficient^2)`.
fn recognition(difference: usize, lengths: i32) -> f64 {
    let padding = distribution();
    let overlap: f64 =
        padding.iter().zip(&padding[difference..]).map(|(one, other)| (one * other).sqrt()).sum();
    let coefficient = overlap.powi(lengths);
    f64::midpoint(1.0, (1.0 - coefficient * coefficient).sqrt())
}

#[test]
fn the_permitted_responses_do_not_reveal_a_difference_of_a_byte() {
    println!("bytes of difference, responses: probability of the right answer at most");
    for difference in [1, 2, 4, 8, 16] {
        let line =
            [1, 16, 128, 1000, 10_000].map(|lengths| format!("{:.3}", recognition(difference, lengths)));
        println!("{difference}: {}", line.join(" "));
    }
    assert!(recognition(1, 16) < 0.52 && recognition(1, 128) < 0.55);
    // The bound is not trivial: many responses do reveal a difference.
    assert!(recognition(1, 100_000) > 0.9);
}
