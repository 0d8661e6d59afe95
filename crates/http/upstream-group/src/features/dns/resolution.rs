//! Resolution of the servers that DNS names, once per process.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use brisk_dns::{Answer, DnsError, Known, Question, Resolver};
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::time::sleep;

use crate::group::GroupState;
use crate::settings::GroupSettings;

use super::DnsSettings;

/// Longest pause after repeated failures, unless [`DnsSettings::min_ttl`] is longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Asks DNS for the servers of a group for as long as it is polled. Returns at once if DNS names none.
///
/// Run it once per process and group, not per worker: all workers share the answers.
pub async fn run_resolution(group: Arc<GroupState>) {
    let entries = group.settings().servers.iter().enumerate();
    let questions = entries.filter_map(|(index, server)| Some((index, server.question()?)));
    join_all(questions.map(|(index, question)| follow(&group, index, question))).await;
}

/// Follows the addresses of one entry of the settings.
async fn follow(group: &GroupState, index: usize, question: Question<'_>) {
    let GroupSettings { name: group_name, dns: settings, .. } = group.settings();
    let (Question::Host(name, _) | Question::Service(name)) = question;
    let (mut resolver, mut known) = (None, group.known(index));
    let (mut before, mut failures, mut is_cut) = (Outcome::Whole, 0_u32, false);
    // An entry whose addresses are those of an earlier configuration has had its first outcome.
    let mut is_first = !group.servers().iter().any(|known| known.is_of(index));
    loop {
        let answer = caught(name, ask(&mut resolver, settings, question, &mut known)).await;
        let outcome = Outcome::of(&answer);
        failures = if outcome == Outcome::Whole { 0 } else { failures.saturating_add(1) };
        if outcome != before {
            log(group_name, name, &answer);
        }
        // After a failure too: any first outcome ends the wait of requests.
        group.resolved(index, answer.as_ref().ok().map(|answer| &*answer.endpoints), is_first);
        if let Some(ignored) = newly_ignored(&answer, &mut is_cut) {
            tracing::warn!(
                group = group_name,
                name,
                ignored,
                "a name has more addresses than `dns.max_addresses`"
            );
        }
        // A failure leaves `known` unchanged.
        if answer.is_ok() {
            group.remember(index, &known);
        }
        sleep(pause(answer.ok().map(|answer| answer.lifetime), failures, settings)).await;
        (before, is_first) = (outcome, false);
    }
}

/// Number of addresses that were ignored, if none were in the answer before. `is_cut` states that some were in the last answer.
fn newly_ignored(answer: &Result<Answer, String>, is_cut: &mut bool) -> Option<usize> {
    // A failure leaves `is_cut` unchanged. A warning for each answer would be one a second, where TTLs are short.
    let ignored = answer.as_ref().ok()?.ignored;
    let was_cut = std::mem::replace(is_cut, ignored > 0);
    (ignored > 0 && !was_cut).then_some(ignored)
}

/// The answer of `asking`, or the reason of its failure. A question that panics has failed like others: its panic would end
/// the task, and no address of the group would be renewed any more.
async fn caught(
    name: &str,
    asking: impl Future<Output = Result<Answer, DnsError>>,
) -> Result<Answer, String> {
    match AssertUnwindSafe(asking).catch_unwind().await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("the question for {name} panicked; the log has the reason")),
    }
}

/// Outcome of [`ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// All addresses are renewed.
    Whole,
    /// One family, or one target of a service, could not be renewed.
    Part,
    /// No address could be renewed.
    Nothing,
}

impl Outcome {
    fn of(answer: &Result<Answer, String>) -> Self {
        match answer {
            Ok(Answer { failure: None, .. }) => Self::Whole,
            Ok(_) => Self::Part,
            Err(_) => Self::Nothing,
        }
    }
}

/// Logs an outcome that differs from the one before.
fn log(group: &str, name: &str, answer: &Result<Answer, String>) {
    match answer {
        Ok(Answer { failure: None, .. }) => {
            tracing::info!(group, name, "a name of upstream servers is resolved again");
        }
        Ok(Answer { failure: Some(error), .. }) => tracing::warn!(
            group,
            name,
            %error,
            "some addresses of upstream servers are missing from DNS: known ones are kept, the others are renewed"
        ),
        Err(error) => {
            tracing::warn!(group, %error, "no addresses of upstream servers from DNS: the known ones are kept");
        }
    }
}

/// Time until the next question: `lifetime` within [`DnsSettings::min_ttl`] and [`DnsSettings::max_ttl`]. After failures, also
/// of a part, it begins with the minimum and doubles, up to 32 times the minimum and to [`LONGEST_PAUSE`].
fn pause(lifetime: Option<Duration>, failures: u32, settings: &DnsSettings) -> Duration {
    let lifetime = lifetime.map(|lifetime| lifetime.clamp(settings.min_ttl, settings.max_ttl));
    let repeated = failures.checked_sub(1).map(|earlier| {
        let doubled = settings.min_ttl * 2_u32.pow(earlier.min(5));
        doubled.min(LONGEST_PAUSE.max(settings.min_ttl))
    });
    // The earlier of both: the part that was renewed may expire before the failed part is due again.
    lifetime.into_iter().chain(repeated).min().unwrap_or(settings.max_ttl)
}

/// Asks with the resolver of the last question, or with a new one.
async fn ask(
    resolver: &mut Option<Resolver>,
    settings: &DnsSettings,
    question: Question<'_>,
    known: &mut Known,
) -> Result<Answer, DnsError> {
    let asked = match resolver.take() {
        Some(resolver) => resolver,
        None => Resolver::new(&settings.resolver)?,
    };
    // After a failure, `/etc/resolv.conf` is read again, since it may have changed.
    let answer = asked.ask(question, known).await?;
    *resolver = Some(asked);
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use futures_util::future::lazy;

    use super::*;

    #[test]
    fn ignored_addresses_are_reported_once_until_all_are_used_again() {
        let answer = |ignored| {
            Ok(Answer { endpoints: Vec::new(), lifetime: Duration::from_secs(1), ignored, failure: None })
        };
        let failed = || Err("no answer".to_owned());
        let answers = [answer(0), answer(3), answer(4), failed(), answer(3), answer(0), answer(2)];
        let mut is_cut = false;
        let reported = answers.iter().filter_map(|answer| newly_ignored(answer, &mut is_cut));
        assert_eq!(reported.collect::<Vec<_>>(), [3, 2]);
    }

    #[tokio::test]
    async fn a_question_that_panics_has_failed() {
        let broken = lazy(|_| -> Result<Answer, DnsError> { panic!("as a bug would") });
        let reason = caught("app.test", broken).await.expect_err("it panics");
        assert_eq!(reason, "the question for app.test panicked; the log has the reason");
    }
}
