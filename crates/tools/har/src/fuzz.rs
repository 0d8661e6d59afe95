//! Properties that hold for any HAR file, for tests and for libFuzzer.

use std::time::Duration;

use crate::document::parse;
use crate::model::Findings;

/// A HAR file: no input makes the analysis panic, times are finite and not negative, every request belongs to one origin, and
/// texts for the terminal contain no control characters.
pub fn har(bytes: &[u8]) {
    let Ok(recording) = parse(bytes) else { return };
    for rtt in [None, Some(Duration::from_millis(100))] {
        let Ok(findings) = Findings::of(&recording, rtt) else { continue };
        assert!(serde_json::to_string(&findings).is_ok());
        let requests: usize = findings.origins.iter().map(|origin| origin.requests).sum();
        assert_eq!((requests, findings.requests), (recording.asked.len(), recording.asked.len()));
        assert!(findings.loaded_ms.is_finite() && findings.loaded_consolidated_ms.is_finite());
        let text = findings.text();
        assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text:?}");
    }
}

#[cfg(test)]
mod tests {
    use brisk_testkit::fuzz::drive;

    #[test]
    fn fuzz_har() {
        let words: &[&[u8]] = &[
            b"\"2026-11-28T10:00:00.000+0100\"",
            b"\"startedDateTime\":",
            b"\"HTTPS://A.example:443/\"",
            b"\"data:,\"",
            b"\"timings\":{\"connect\":-1}",
            b"\"_initiator\":",
            b"\"status\":0",
            b"null",
            b"1e308",
            b"\\u001b",
        ];
        drive("har", words, super::har);
    }
}
