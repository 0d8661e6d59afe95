//! PKCS#11 tokens in the log, the health status and the metrics.

use std::fmt;

use brisk_keys_pkcs11::{TokenStatus, Tokens};
use brisk_telemetry::metrics::{Collector, Encoder};

/// Logs the tokens in use, at the start.
pub(crate) fn log(tokens: &Tokens) {
    for TokenStatus { token, sessions, .. } in tokens.statuses() {
        tracing::info!(token, sessions, "keys in a token are used");
    }
}

/// Error message with the names of unreachable tokens; `None` if all are reachable.
pub(crate) fn trouble(tokens: &Tokens) -> Option<String> {
    let lost: Vec<_> = tokens.statuses().into_iter().filter(|token| !token.is_up).collect();
    let names: Vec<_> = lost.iter().map(|token| format!("{:?}", token.token)).collect();
    (!names.is_empty()).then(|| format!("handshakes with keys of the token {} fail", names.join(", ")))
}

/// [`Collector`] of the tokens in use at the time of the request.
#[derive(Debug)]
pub(crate) struct TokenMetrics(pub(crate) Tokens);

impl Collector for TokenMetrics {
    fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
        collect(page, &self.0.statuses())
    }
}

fn collect(page: &mut Encoder<'_, '_>, tokens: &[TokenStatus]) -> fmt::Result {
    // No families without series, for all programs without tokens.
    if tokens.is_empty() {
        return Ok(());
    }
    let mut family = page.gauge("key_token_up", "Whether the token can be reached.")?;
    for token in tokens {
        family.gauge(&[("token", &token.token)], u64::from(token.is_up))?;
    }
    let mut family =
        page.gauge("key_token_queue_length", "Key operations that wait for a session with the token.")?;
    for token in tokens {
        family.gauge(&[("token", &token.token)], token.waiting as u64)?;
    }
    let mut family = page.counter(
        "key_token_reconnections",
        "Times that the token was reached again after it could not be.",
    )?;
    for token in tokens {
        family.counter(&[("token", &token.token)], token.reconnections)?;
    }
    let mut family = page.counter(
        "key_token_faults",
        "Signatures of the token that failed verification and were discarded.",
    )?;
    for token in tokens {
        family.counter(&[("token", &token.token)], token.faults)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use brisk_telemetry::Metrics;

    use super::*;

    #[derive(Debug)]
    struct Shown(fn() -> Vec<TokenStatus>);

    impl Collector for Shown {
        fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
            collect(page, &(self.0)())
        }
    }

    fn page(tokens: fn() -> Vec<TokenStatus>) -> String {
        let metrics = Metrics::new();
        metrics.register(Shown(tokens));
        metrics.render()
    }

    #[test]
    fn the_metrics_of_tokens_are_documented_and_not_shown_without_one() {
        let page_of_one = page(|| {
            vec![TokenStatus {
                token: "web".to_owned(),
                is_up: true,
                sessions: 8,
                waiting: 3,
                reconnections: 2,
                faults: 1,
            }]
        });
        for line in [
            "brisk_key_token_up{token=\"web\"} 1",
            "brisk_key_token_queue_length{token=\"web\"} 3",
            "brisk_key_token_reconnections_total{token=\"web\"} 2",
            "brisk_key_token_faults_total{token=\"web\"} 1",
        ] {
            assert!(page_of_one.lines().any(|shown| shown == line), "{line} is not in {page_of_one}");
        }
        assert!(!page(Vec::new).contains("brisk_key_token"));
        let documentation = include_str!("../../../../docs/metrics.md");
        for name in page_of_one.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()) {
            let of_tokens = name.starts_with("brisk_key_token");
            assert!(!of_tokens || documentation.contains(&format!("`{name}")), "{name} is not documented");
        }
    }
}
