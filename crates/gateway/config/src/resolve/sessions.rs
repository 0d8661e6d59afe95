//! `[sessions]` and resumption in `[tls]`: sources of ticket keys, and session stores.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use brisk_config_file::{KeyPath, Period, Size};
use brisk_gateway::settings::{FleetStore, SessionSettings};
use brisk_session::{FleetSecret, KeySource, MemorySettings, RotationError, RotationSettings, TicketKeyFile};

use super::context::Context;
use super::{early_data, redis};
use crate::raw;
use crate::values::TicketKeys;

/// Permitted lifetimes. RFC 8446 section 4.6.1 limits tickets to seven days. The minimum is for tests;
/// `docs/sessions.md` recommends values.
pub(super) const LIFETIMES: RangeInclusive<Period> =
    Period(Duration::from_secs(1))..=Period(Duration::from_hours(7 * 24));

/// Keys that machines exchange need some seconds to be known to all of them.
const LEAST_SHARED: Period = Period(Duration::from_secs(12));

/// Settings of resumption for sessions with `lifetime`.
pub(super) fn sessions(raw: &raw::Config, lifetime: Duration, context: &mut Context<'_>) -> SessionSettings {
    let path = KeyPath::of("sessions");
    let rotation = rotation(raw, lifetime, context);
    let secret = secret(&raw.sessions, &path.key("secret"), context);
    without_effect(raw, context);
    not_shared(raw, context);
    let redis = raw.sessions.redis.as_ref().map(|redis| redis::redis(redis, &path.key("redis"), context));
    SessionSettings {
        ticket_keys: key_source(raw, rotation, secret.as_ref(), context),
        memory: memory(&raw.tls.session_cache, context),
        fleet: redis.zip(secret).map(|(redis, secret)| FleetStore { redis, secret }),
    }
}

fn memory(raw: &raw::SessionCache, context: &mut Context<'_>) -> MemorySettings {
    let path = KeyPath::of("tls").key("session_cache").key("size");
    let (usual, sizes) = (MemorySettings::default(), Size(1 << 20)..=Size(1 << 40));
    let size = context.shared.findings.within(&path, raw.size, Size(usual.max_bytes as u64), &sizes);
    MemorySettings {
        max_sessions: raw.entries.map_or(usual.max_sessions, |entries| entries as usize),
        max_bytes: size.0 as usize,
    }
}

fn rotation(raw: &raw::Config, lifetime: Duration, context: &mut Context<'_>) -> RotationSettings {
    let path = KeyPath::of("tls").key("ticket_rotation");
    let usual = Period(Duration::from_hours(12));
    let interval = context.shared.findings.within(&path, raw.tls.ticket_rotation, usual, &LIFETIMES);
    if raw.sessions.ticket_keys == Some(TicketKeys::Redis) && interval < LEAST_SHARED {
        let message = format!(
            "{interval} is too short for keys to reach all machines through Redis: write \"{LEAST_SHARED}\" or more"
        );
        context.shared.findings.wrong(&path, message);
    }
    RotationSettings::new(lifetime, interval.0, Duration::ZERO).unwrap_or_else(|error| {
        let message = match error {
            RotationError::TooManyKeys { least, .. } => format!(
                "{interval} is too short for tickets that live for {}: write \"{}\" or more, or a shorter \
                 session_lifetime",
                Period(lifetime),
                Period(least)
            ),
            error => error.to_string(),
        };
        context.shared.findings.wrong(&path, message);
        RotationSettings::default()
    })
}

/// The fleet's secret, if one is named.
fn secret(raw: &raw::Sessions, path: &KeyPath, context: &mut Context<'_>) -> Option<FleetSecret> {
    let file = context.file(raw.secret.as_ref()?);
    context.shared.read_privately(&file, path, FleetSecret::read)
}

/// Source of ticket keys. Missing settings are reported, and the result is not used then.
fn key_source(
    raw: &raw::Config,
    rotation: RotationSettings,
    secret: Option<&FleetSecret>,
    context: &mut Context<'_>,
) -> KeySource {
    let (path, lifetime) = (KeyPath::of("sessions").key("ticket_keys"), rotation.lifetime());
    if raw.tls.tickets == Some(false) {
        // Without keys, tickets are neither sealed nor opened.
        return KeySource::Files { keys: Vec::new(), lifetime };
    }
    let sessions = KeyPath::of("sessions");
    match raw.sessions.ticket_keys.as_ref().unwrap_or(&TicketKeys::Memory) {
        TicketKeys::Memory => KeySource::Generated(rotation),
        TicketKeys::Files(files) => KeySource::Files { keys: key_files(files, &path, context), lifetime },
        TicketKeys::Redis => {
            if !context.shared.findings.written(&sessions.key("redis")) {
                context.shared.findings.wrong(&path, "needs [sessions.redis] with its `servers`");
            }
            KeySource::Shared { rotation }
        }
        TicketKeys::Secret => {
            if !context.shared.findings.written(&sessions.key("secret")) {
                let message =
                    "needs `secret`, a file that is the same on all machines, as secret = \"fleet.secret\"";
                context.shared.findings.wrong(&path, message);
            }
            // Without a secret, the error is reported already. The result is needed for its type only.
            secret.map_or(KeySource::Generated(rotation), |secret| KeySource::Derived {
                secret: secret.clone(),
                rotation,
            })
        }
    }
}

fn key_files(files: &[PathBuf], path: &KeyPath, context: &mut Context<'_>) -> Vec<TicketKeyFile> {
    if files.is_empty() && !context.shared.findings.written(&path.index(0)) {
        context
            .shared
            .findings
            .wrong(path, "no file: write at least one, made with `openssl rand -out FILE 80`");
    }
    let mut keys: Vec<TicketKeyFile> = Vec::new();
    for (index, file) in files.iter().enumerate() {
        let (path, file) = (path.index(index), context.file(file));
        let Some(key) = context.shared.read_privately(&file, &path, TicketKeyFile::read) else { continue };
        // By identity and not by path: two files may hold one key, whose tickets have one name.
        if keys.iter().any(|other| other.id() == key.id()) {
            context
                .shared
                .findings
                .wrong(&path, format!("{}: a file before it holds this key already", file.display()));
        }
        keys.push(key);
    }
    keys
}

/// Reports keys without effect, and keys that lack another key that they need.
fn without_effect(raw: &raw::Config, context: &mut Context<'_>) {
    let (tls, sessions) = (KeyPath::of("tls"), KeyPath::of("sessions"));
    let findings = &mut context.shared.findings;
    let (source, secret) = (raw.sessions.ticket_keys.as_ref(), sessions.key("secret"));
    let redis = findings.written(&sessions.key("redis"));
    if raw.sessions.secret.is_some() && !redis && source != Some(&TicketKeys::Secret) {
        let message = "has no effect: it is for ticket_keys = \"secret\" and for [sessions.redis]";
        findings.wrong(&secret, message);
    }
    if redis && !findings.written(&secret) {
        let message =
            "needs `secret` in [sessions]: what is kept in Redis is sealed with a key derived from it";
        findings.incomplete(&sessions.key("redis"), message);
    }
    if source.is_some() && raw.tls.tickets == Some(false) {
        findings.wrong(&sessions.key("ticket_keys"), "has no effect with tls.tickets = false");
    }
    if matches!(source, Some(TicketKeys::Files(_))) && raw.tls.ticket_rotation.is_some() {
        let message = "has no effect on key files: they change when you replace them";
        findings.wrong(&tls.key("ticket_rotation"), message);
    }
    if raw.tls.stateful == Some(true) && raw.tls.session_cache.entries == Some(0) && !redis {
        let message = "nothing keeps sessions: session_cache.entries is 0, and there is no [sessions.redis]";
        findings.wrong(&tls.key("stateful"), message);
    }
}

/// Warns of sessions that resume on one machine only, although the file shares others.
fn not_shared(raw: &raw::Config, context: &mut Context<'_>) {
    let redis = raw.sessions.redis.is_some();
    // `"memory"` can be written, which states that the operator means it.
    if redis && raw.tls.tickets != Some(false) && raw.sessions.ticket_keys.is_none() {
        context.shared.findings.warn(
            "[sessions.redis]: tickets still resume only where they were made; ticket_keys = \"redis\" shares their \
             keys, and \"memory\" says that this is meant",
        );
    }
    // Memory is not shared by intention.
    let shared = match &raw.sessions.ticket_keys {
        Some(TicketKeys::Secret) => "\"secret\"",
        Some(TicketKeys::Files(_)) => "[...]",
        Some(TicketKeys::Redis | TicketKeys::Memory) | None => return,
    };
    if redis {
        return;
    }
    if raw.tls.stateful == Some(true) {
        context.shared.findings.warn(
            "tls.stateful: sessions of TLS 1.3 resume only where they were made; [sessions.redis] shares them",
        );
        return;
    }
    for (index, host) in raw.host.iter().enumerate().filter(|(_, host)| early_data::is_allowed(host)) {
        let name = host.names().first().map_or("", String::as_str);
        context.shared.findings.warn(format!(
            "host[{index}], {name}: early_data keeps its TLS 1.3 sessions in the memory of one machine, so they resume only \
             where they were made; sessions.ticket_keys = {shared} shares TLS 1.2 only, and [sessions.redis] shares both"
        ));
    }
}
