//! The kinds of handshake of new connections, in percent.

use std::fmt;
use std::str::FromStr;

use brisk_telemetry::Resumption;

use crate::choice::Weighted;

/// Kinds of handshake and their shares: `full=20,ticket=50,0-rtt=30`, or a single kind, `full`.
///
/// `ticket` is resumption by a `NewSessionTicket` in any negotiated version; TLS 1.3 treats it as a pre-shared key.
/// `session-id` is TLS 1.2 by definition, `psk` and `0-rtt` are TLS 1.3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix(Vec<(u32, Resumption)>);

/// Invalid text of a [`Mix`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MixError {
    /// The text is not a list of kinds and shares.
    #[error("{0:?} is not a mix of handshakes in percent, such as \"full=20,ticket=50,0-rtt=30\"")]
    Form(String),
    /// A name is not a kind of handshake.
    #[error("{0:?} is not a kind of handshake: full, session-id, ticket, psk or 0-rtt")]
    Kind(String),
    /// A kind has two shares.
    #[error("{0} is there twice")]
    Twice(Resumption),
    /// The shares add up to this number instead of 100 percent.
    #[error("the shares come to {0} percent instead of 100")]
    Sum(u32),
}

impl Mix {
    /// A mix of one kind.
    pub fn only(kind: Resumption) -> Self {
        Self(vec![(100, kind)])
    }

    /// The [`Resumption`] kinds of the mix.
    pub fn kinds(&self) -> impl Iterator<Item = Resumption> {
        self.0.iter().map(|(_, kind)| *kind)
    }

    /// The kinds with their shares as weights.
    pub fn weighted(&self) -> Weighted<Resumption> {
        Weighted::new(self.0.iter().copied()).expect("a mix has kinds with shares")
    }
}

impl Default for Mix {
    fn default() -> Self {
        Self::only(Resumption::Full)
    }
}

impl FromStr for Mix {
    type Err = MixError;

    fn from_str(text: &str) -> Result<Self, MixError> {
        if !text.contains('=') && !text.contains(',') {
            return kind(text).map(Self::only);
        }
        let form = || MixError::Form(text.to_owned());
        let mut shares = Vec::new();
        for part in text.split(',') {
            let (name, share) = part.split_once('=').ok_or_else(form)?;
            let kind = kind(name.trim())?;
            if shares.iter().any(|(_, other)| *other == kind) {
                return Err(MixError::Twice(kind));
            }
            shares.push((share.trim().trim_end_matches('%').parse().map_err(|_| form())?, kind));
        }
        // Saturating, because shares are typed numbers: a sum that wraps around could become 100.
        let sum = shares.iter().fold(0, |sum: u32, (share, _)| sum.saturating_add(*share));
        if sum != 100 {
            return Err(MixError::Sum(sum));
        }
        // After the sum: a kind without a share must not require a version in `Options::handshakes`.
        shares.retain(|(share, _)| *share > 0);
        Ok(Self(shares))
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [(_, kind)] = self.0[..] {
            return f.write_str(kind.name());
        }
        for (index, (share, kind)) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{kind}={share}")?;
        }
        Ok(())
    }
}

fn kind(name: &str) -> Result<Resumption, MixError> {
    let found = Resumption::ALL.iter().find(|kind| kind.name() == name);
    found.copied().ok_or_else(|| MixError::Kind(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_are_read_and_written_alike() {
        for text in ["full", "0-rtt", "full=20,ticket=50,0-rtt=30", "session-id=1,psk=99"] {
            assert_eq!(text.parse::<Mix>().expect(text).to_string(), text);
        }
        assert_eq!("ticket=100%, full=0".parse::<Mix>().expect("a mix").to_string(), "ticket");
    }

    #[test]
    fn what_is_no_mix_says_what_would_be_right() {
        for (text, hint) in [
            ("", "full, session-id, ticket, psk or 0-rtt"),
            ("fool", "full, session-id"),
            ("full=50,ticket", "in percent"),
            ("full=half,ticket=50", "in percent"),
            ("full=50,ticket=40", "90 percent instead of 100"),
            ("full=50,full=50", "full is there twice"),
        ] {
            let error = text.parse::<Mix>().expect_err(text).to_string();
            assert!(error.contains(hint), "{text:?}: {error}");
        }
    }
}
