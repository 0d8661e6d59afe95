//! The options that differ from the defaults, for reports.

use super::Options;
use brisk_tls_client::SessionUse;

impl Options {
    /// Options with their values, named as on the command line (`--rate`); the value of a flag is empty.
    pub(super) fn listing(&self) -> Vec<(&'static str, String)> {
        let parts = [self.listing_of_workload(), self.listing_of_handshakes(), self.listing_of_schedule()];
        parts.concat()
    }

    fn listing_of_workload(&self) -> Vec<(&'static str, String)> {
        let mut list = Vec::new();
        text(&mut list, "--connect", self.connect.as_ref());
        flag(&mut list, "--fast-open", self.fast_open);
        flag(&mut list, "--handshake-only", self.handshake_only);
        text(&mut list, "--per-connection", self.per_connection.as_ref());
        text(&mut list, "--h2", self.streams.as_ref());
        text(&mut list, "--h3", self.http3.as_ref());
        text(&mut list, "--method", self.method.as_ref());
        self.headers.iter().for_each(|header| text(&mut list, "--header", Some(header)));
        text(&mut list, "--body", self.body.as_ref().map(|path| path.display()).as_ref());
        text(&mut list, "--urls", self.urls.as_ref().map(|path| path.display()).as_ref());
        list
    }

    /// The options that need TLS.
    pub(super) fn listing_of_handshakes(&self) -> Vec<(&'static str, String)> {
        let mut list = Vec::new();
        text(&mut list, "--mix", self.mix.as_ref());
        let name = |used| if used == SessionUse::Once { "once" } else { "many" };
        text(&mut list, "--sessions", self.session_use.map(name).as_ref());
        self.versions.iter().for_each(|version| {
            let number = version.to_string();
            // As typed: the option takes the number alone.
            text(&mut list, "--tls", Some(&number.trim_start_matches("TLS ")));
        });
        self.suites.iter().for_each(|suite| text(&mut list, "--suite", Some(suite)));
        self.groups.iter().for_each(|group| text(&mut list, "--group", Some(group)));
        text(&mut list, "--cert", self.certificate.map(super::CertificateType::name).as_ref());
        text(&mut list, "--sni", self.name.as_ref());
        flag(&mut list, "--no-sni", self.no_sni);
        let protocols = self.alpn.as_ref().map(|names| names.join(","));
        text(
            &mut list,
            "--alpn",
            protocols.map(|all| if all.is_empty() { "none".to_owned() } else { all }).as_ref(),
        );
        text(&mut list, "--client-cert", self.identity.as_ref().map(|(chain, _)| chain.display()).as_ref());
        self.authorities.iter().for_each(|file| text(&mut list, "--ca", Some(&file.display())));
        flag(&mut list, "--insecure", self.insecure);
        flag(&mut list, "--ocsp", self.ocsp);
        flag(&mut list, "--fresh-keys", self.fresh_keys);
        flag(&mut list, "--unit-keys", self.unit_keys);
        list
    }

    fn listing_of_schedule(&self) -> Vec<(&'static str, String)> {
        let mut list = Vec::new();
        text(&mut list, "-c", self.connections.as_ref());
        text(&mut list, "--rate", self.rate.as_ref());
        text(&mut list, "--ramp", self.ramp.as_ref());
        text(&mut list, "--ramp-connections", self.ramp_connections.as_ref());
        text(&mut list, "-d", self.time.map(|time| format!("{time:?}")).as_ref());
        text(&mut list, "-n", self.count.as_ref());
        text(&mut list, "--warmup", self.warmup.map(|time| format!("{time:?}")).as_ref());
        text(&mut list, "-t", self.threads.as_ref());
        text(&mut list, "--timeout", self.timeout.map(|time| format!("{time:?}")).as_ref());
        text(&mut list, "--backlog", self.backlog.as_ref());
        text(&mut list, "--server-pid", self.server.as_ref());
        list
    }
}

fn text(list: &mut Vec<(&'static str, String)>, option: &'static str, value: Option<&impl ToString>) {
    list.extend(value.map(|value| (option, value.to_string())));
}

fn flag(list: &mut Vec<(&'static str, String)>, option: &'static str, is_set: bool) {
    list.extend(is_set.then(|| (option, String::new())));
}
