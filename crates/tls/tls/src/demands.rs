//! [`Demands`] of a host on client certificates, in a normalised form for comparisons.

use std::sync::Arc;
use std::time::SystemTime;

use aws_lc_rs::digest;

use crate::settings::{ClientCertificates, Revocation, UnknownRevocation};

/// Demands of a host on the certificates of its clients. The default demands nothing.
///
/// A client that has met the demands of one host may use another host without a new verification only if both have
/// equal demands: on the existing connection, and with a resumed session. Demands are equal if the same certificates
/// are accepted, required and kept, regardless of the order of authorities and revocation lists. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Demands(Option<Arc<Demanded>>);

#[derive(Debug)]
struct Demanded {
    clients: ClientCertificates,
    mark: [u8; 16],
    /// Like `mark`, without the revocation lists.
    authorities: [u8; 16],
    expire: Option<SystemTime>,
}

impl Demands {
    /// Requests certificates from clients. Hashes all authorities and lists.
    pub fn new(clients: ClientCertificates) -> Self {
        let expire = clients.revocation.as_ref().and_then(Revocation::expires);
        let authorities = hash_of_authorities(&clients);
        let mark = first_bytes(with_lists(authorities.clone(), clients.revocation.as_ref()));
        Self(Some(Arc::new(Demanded { clients, mark, authorities: first_bytes(authorities), expire })))
    }

    /// The [`ClientCertificates`] of [`Self::new`]; `None` if no certificate is requested.
    pub fn clients(&self) -> Option<&ClientCertificates> {
        self.0.as_ref().map(|demanded| &demanded.clients)
    }

    /// Whether client certificates are kept for the life of the connection: [`ClientCertificates::keep`].
    pub fn keeps_certificates(&self) -> bool {
        self.clients().is_some_and(|clients| clients.keep)
    }

    /// Whether a connection that met `earlier` for a host may continue to use that host under these demands, after a
    /// reload. It may if both trust the same authorities and agree on whether certificates are required and kept, or if
    /// neither requests certificates; not if less is demanded now. Other revocation lists end no connection, since
    /// certificates are looked up in handshakes only. For another host, whose lists may never have been searched for
    /// this client, compare the demands by [`PartialEq`].
    pub fn are_met_under(&self, earlier: &Self) -> bool {
        match (&self.0, &earlier.0) {
            (None, None) => true,
            (Some(own), Some(earlier)) => {
                own.authorities == earlier.authorities && own.clients.keep == earlier.clients.keep
            }
            _ => false,
        }
    }

    /// The mark of sessions made under these demands, equal in all processes with these demands. It does not depend on
    /// whether certificates are kept, because sessions contain them in any case.
    pub(crate) fn mark(&self) -> Option<&[u8; 16]> {
        self.0.as_ref().map(|demanded| &demanded.mark)
    }

    /// Expiry of the first list of [`Revocation`], if it affects acceptance: not with [`UnknownRevocation::Accept`].
    pub(crate) fn expire(&self) -> Option<SystemTime> {
        self.0.as_ref()?.expire
    }
}

impl PartialEq for Demands {
    fn eq(&self, other: &Self) -> bool {
        self.mark() == other.mark() && self.keeps_certificates() == other.keeps_certificates()
    }
}

impl Eq for Demands {}

fn hash_of_authorities(clients: &ClientCertificates) -> digest::Context {
    let mut hash = digest::Context::new(&digest::SHA256);
    // With a version, because sessions in Redis outlive a restart with another encoding.
    hash.update(b"brisk client certificates 1");
    hash.update(&[u8::from(clients.required)]);
    add(&mut hash, clients.roots.iter().map(AsRef::as_ref));
    hash
}

fn with_lists(mut hash: digest::Context, revocation: Option<&Revocation>) -> digest::Context {
    if let Some(revocation) = revocation {
        hash.update(b"revocation lists");
        hash.update(&[u8::from(revocation.unknown == UnknownRevocation::Refuse)]);
        add(&mut hash, revocation.lists.iter().map(|list| list.der.as_ref()));
    }
    hash
}

fn first_bytes(hash: digest::Context) -> [u8; 16] {
    *hash.finish().as_ref().first_chunk().expect("SHA-256 has 32 bytes")
}

/// Adds a set of certificates or lists to a hash, in an order that depends on the members only.
fn add<'a>(hash: &mut digest::Context, set: impl Iterator<Item = &'a [u8]>) {
    // Each member is hashed by itself, so that the boundaries between members are unambiguous.
    let mut set: Vec<_> = set.map(|der| digest::digest(&digest::SHA256, der)).collect();
    set.sort_by(|one, other| one.as_ref().cmp(other.as_ref()));
    set.dedup_by(|one, other| one.as_ref() == other.as_ref());
    for member in set {
        hash.update(member.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use rustls_pki_types::CertificateDer;

    use super::*;

    fn clients(required: bool, roots: &[&'static [u8]]) -> ClientCertificates {
        let roots = roots.iter().map(|&root| CertificateDer::from(root)).collect();
        ClientCertificates { required, roots, revocation: None, keep: false }
    }

    #[test]
    fn demands_have_the_same_mark_in_every_process() {
        let demands = Demands::new(clients(true, &[b"one", b"two"]));
        // Sessions outlive a process: a changed mark would invalidate all of them.
        let expected = 0xedcf_7755_09b6_cb2b_44f6_b0d2_aab2_e985_u128;
        assert_eq!(demands.mark().copied().map(u128::from_be_bytes), Some(expected));
        assert_eq!(demands, Demands::new(clients(true, &[b"two", b"one", b"two"])));
    }

    #[test]
    fn demands_differ_where_they_accept_require_or_keep_something_else() {
        let demands = Demands::new(clients(true, &[b"one", b"two"]));
        let keeping = ClientCertificates { keep: true, ..clients(true, &[b"one", b"two"]) };
        for other in [clients(false, &[b"one", b"two"]), clients(true, &[b"one"]), keeping.clone()] {
            assert_ne!(demands, Demands::new(other));
        }
        assert_ne!(demands, Demands::default());
        assert_eq!(
            demands.mark(),
            Demands::new(keeping).mark(),
            "a session has the certificates in any case"
        );
    }

    #[test]
    fn connections_go_on_under_other_revocation_lists_only() {
        let revocation = Revocation { lists: Vec::new(), unknown: UnknownRevocation::Accept };
        let plain = || Demands::new(clients(true, &[b"one"]));
        let listed =
            Demands::new(ClientCertificates { revocation: Some(revocation), ..clients(true, &[b"one"]) });
        assert!(plain() != listed && listed.are_met_under(&plain()) && plain().are_met_under(&listed));
        let keeping = ClientCertificates { keep: true, ..clients(true, &[b"one"]) };
        for other in [clients(false, &[b"one"]), clients(true, &[b"other"]), keeping].map(Demands::new) {
            assert!(!other.are_met_under(&plain()) && !plain().are_met_under(&other), "{other:?}");
        }
        assert!(!plain().are_met_under(&Demands::default()) && !Demands::default().are_met_under(&plain()));
        assert!(Demands::default().are_met_under(&Demands::default()));
    }
}
