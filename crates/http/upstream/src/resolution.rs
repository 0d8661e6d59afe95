//! Resolution of the servers that DNS names, once per process.

use std::sync::Arc;
use std::time::Duration;

use brisk_dns::{Answer, DnsError, Question, Resolver};
use futures_util::future::join_all;
use tokio::time::sleep;

use crate::group::GroupState;
use crate::settings::{DnsSettings, GroupSettings};

/// Longest pause after repeated failures, unless the configured minimum is longer.
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
    let mut resolver = None;
    let mut failures = 0_u32;
    // An entry whose addresses are those of an earlier configuration has had its first outcome.
    let mut is_first = !group.servers().iter().any(|known| known.is_of(index));
    loop {
        let answer = ask(&mut resolver, settings, question).await;
        let pause = match answer {
            Ok(answer) => {
                if failures > 0 {
                    tracing::info!(group = group_name, name, "a name of upstream servers is resolved again");
                }
                failures = 0;
                group.resolved(index, Some(&answer.endpoints), is_first);
                let ignored = answer.ignored;
                if ignored > 0 {
                    tracing::warn!(
                        group = group_name,
                        name,
                        ignored,
                        "a name has more addresses than `dns.max_addresses`"
                    );
                }
                answer.lifetime.clamp(settings.min_ttl, settings.max_ttl)
            }
            Err(error) => {
                if failures == 0 {
                    tracing::warn!(group = group_name, %error, "no addresses of upstream servers from DNS: the known ones are kept");
                }
                group.resolved(index, None, is_first);
                failures = failures.saturating_add(1);
                let pause = settings.min_ttl * 2_u32.pow(failures.min(6) - 1);
                pause.min(LONGEST_PAUSE.max(settings.min_ttl))
            }
        };
        is_first = false;
        sleep(pause).await;
    }
}

/// Asks with the resolver of the last question, or with a new one.
async fn ask(
    resolver: &mut Option<Resolver>,
    settings: &DnsSettings,
    question: Question<'_>,
) -> Result<Answer, DnsError> {
    let asked = match resolver.take() {
        Some(resolver) => resolver,
        None => Resolver::new(&settings.resolver)?,
    };
    // After a failure, `/etc/resolv.conf` is read again, since it may have changed.
    let answer = asked.ask(question).await?;
    *resolver = Some(asked);
    Ok(answer)
}
