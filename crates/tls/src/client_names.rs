//! Verification of client certificates: signed by a trusted CA, and with one of the allowed names.
//!
//! rustls's own verifier runs first. Names are checked only on a valid certificate, and only on the
//! client's own, never on one above it. `webpki`, by which rustls parses certificates, is used
//! directly because rustls does not give a certificate's URIs.
//!
//! What it deliberately does not do: match patterns or parts of a URI. A trust domain alone admits
//! nobody.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use webpki::EndEntityCert;

/// Admits clients whose certificate has one of the names.
#[derive(Debug)]
pub(crate) struct ClientNameVerifier {
    pub(crate) verifier: Arc<dyn ClientCertVerifier>,
    pub(crate) names: Vec<ClientName>,
}

/// A name that a client's certificate may have.
#[derive(Clone, Debug)]
pub enum ClientName {
    /// A DNS name or an address, matched as for a server: a wildcard in the certificate covers it.
    Host(ServerName<'static>),
    /// A URI, compared byte for byte.
    Uri(String),
}

// === impl ClientName ===

impl ClientName {
    /// Parses a name.
    pub fn of(text: &str) -> Option<Self> {
        if is_uri(text) {
            return Some(Self::Uri(text.to_owned()));
        }
        let host = ServerName::try_from(text.to_owned()).ok()?;
        Some(Self::Host(host))
    }

    fn matches(&self, certificate: &EndEntityCert<'_>) -> bool {
        match self {
            Self::Host(host) => certificate.verify_is_valid_for_subject_name(host).is_ok(),
            Self::Uri(uri) => certificate.valid_uri_names().any(|borne| borne == uri),
        }
    }
}

/// Whether a text is a scheme, `://`, and characters that a certificate may hold: ASCII, no blanks.
fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else {
        return false;
    };
    let in_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(in_scheme)
        && !rest.is_empty()
        && rest.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The name in a client's certificate, for people: its common name, else its first URI, else its
/// first DNS name.
pub fn client_name(certificate: &[u8]) -> Option<String> {
    let certificate = CertificateDer::from(certificate);
    let certificate = EndEntityCert::try_from(&certificate).ok()?;
    common_name(certificate.subject())
        .or_else(|| certificate.valid_uri_names().next().map(str::to_owned))
        .or_else(|| certificate.valid_dns_names().next().map(str::to_owned))
}

/// The common name in the DER of a subject.
fn common_name(subject: &[u8]) -> Option<String> {
    /// The object identifier of a common name, 2.5.4.3, with its tag and length.
    const COMMON_NAME: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x03];
    let mut places = subject.windows(COMMON_NAME.len());
    let at = places.position(|place| place == COMMON_NAME)?;
    let value = subject.get(at.checked_add(COMMON_NAME.len())?..)?;
    // A tag, a length of one byte, and the text.
    let [_, length, text @ ..] = value else {
        return None;
    };
    let text = text.get(..usize::from(*length)).filter(|_| *length < 128)?;
    let name = std::str::from_utf8(text).ok()?;
    (!name.is_empty()).then(|| name.to_owned())
}

// === impl ClientNameVerifier ===

impl ClientNameVerifier {
    /// Checks that the certificate has one of the names.
    fn verify_name(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let certificate = EndEntityCert::try_from(certificate);
        let certificate = certificate.map_err(|_| CertificateError::BadEncoding)?;
        if self.names.iter().any(|name| name.matches(&certificate)) {
            Ok(())
        } else {
            Err(CertificateError::NotValidForName.into())
        }
    }
}

impl ClientCertVerifier for ClientNameVerifier {
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self
            .verifier
            .verify_client_cert(end_entity, intermediates, now)?;
        self.verify_name(end_entity)?;
        Ok(verified)
    }

    signatures_of!(verifier);

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn offer_client_auth(&self) -> bool {
        self.verifier.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.verifier.client_auth_mandatory()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
    use rustls::RootCertStore;
    use rustls::server::WebPkiClientVerifier;

    use super::*;
    use crate::crypto_provider;

    const ENVOY: &str = "spiffe://cluster.local/ns/edge/sa/envoy";

    /// A CA whose root certificate is `root`.
    struct Authority {
        issuer: Issuer<'static, KeyPair>,
        root: CertificateDer<'static>,
    }

    fn uri(text: &str) -> SanType {
        SanType::URI(text.try_into().unwrap())
    }

    fn dns(text: &str) -> SanType {
        SanType::DnsName(text.try_into().unwrap())
    }

    fn authority_named(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params
    }

    // === impl Authority ===

    impl Authority {
        fn new() -> Self {
            let (params, key) = (
                authority_named("an authority"),
                KeyPair::generate().unwrap(),
            );
            let root = params.self_signed(&key).unwrap().der().clone();
            Self {
                issuer: Issuer::new(params, key),
                root,
            }
        }

        /// A client's certificate with these names and, as in SPIFFE, no subject.
        fn signs(&self, names: &[SanType]) -> CertificateDer<'static> {
            let mut params = CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.subject_alt_names = names.to_vec();
            let key = KeyPair::generate().unwrap();
            params.signed_by(&key, &self.issuer).unwrap().der().clone()
        }

        /// A verifier that admits certificates of this CA with one of these names.
        fn lets_in(&self, names: &[&str]) -> ClientNameVerifier {
            let mut roots = RootCertStore::empty();
            roots.add(self.root.clone()).unwrap();
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), crypto_provider());
            ClientNameVerifier {
                verifier: verifier.build().unwrap(),
                names: names
                    .iter()
                    .map(|name| ClientName::of(name).expect(name))
                    .collect(),
            }
        }
    }

    fn asked(
        named: &ClientNameVerifier,
        certificate: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
    ) -> Result<(), Error> {
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_700_000_000));
        named
            .verify_client_cert(certificate, above, now)
            .map(|_| ())
    }

    #[test]
    fn a_uri_has_a_scheme_and_a_rest_that_a_certificate_can_hold() {
        for text in [
            ENVOY,
            "spiffe://a/b?c#d",
            "x+y-z.1://a",
            "https://[::1]:8443/",
        ] {
            assert!(
                matches!(ClientName::of(text), Some(ClientName::Uri(uri)) if uri == text),
                "{text}"
            );
        }
        for text in ["envoy.edge.svc", "10.1.2.3", "::1", "localhost"] {
            let host = ClientName::of(text);
            assert!(matches!(host, Some(ClientName::Host(_))), "{text}");
        }
        for text in [
            "",
            "://a/b",
            "spiffe://",
            "spiffe:/a/b",
            "1spiffe://a/b",
            "spi ffe://a/b",
            "spïffe://a/b",
            "spiffe://a/ b",
            "spiffe://a/b\n",
            "spiffe://ä/b",
            "*.edge.svc",
        ] {
            assert!(ClientName::of(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn a_uri_name_must_match_byte_for_byte() {
        let authority = Authority::new();
        let named = authority.lets_in(&["envoy.edge.svc", ENVOY, "10.1.2.3"]);
        let others = [dns("other.example"), uri("spiffe://cluster.local/other")];
        for good in [
            &[uri(ENVOY)][..],
            &[others[0].clone(), others[1].clone(), uri(ENVOY)],
            &[dns("envoy.edge.svc"), others[1].clone()],
            &[SanType::IpAddress([10, 1, 2, 3].into())],
        ] {
            assert_eq!(
                asked(&named, &authority.signs(good), &[]),
                Ok(()),
                "{good:?}"
            );
        }
        let upper = ENVOY.to_uppercase();
        let more = format!("{ENVOY}/");
        let less = ENVOY.trim_end_matches('y');
        for bad in [
            &[][..],
            &others,
            &[uri("spiffe://cluster.local/ns/edge/sa/other")],
            &[uri("spiffe://other.local/ns/edge/sa/envoy")],
            &[uri("SPIFFE://cluster.local/ns/edge/sa/envoy")],
            &[uri("spiffe://cluster.local/ns/edge/sa/%65nvoy")],
            &[uri("spiffe://cluster.local/ns/edge/./sa/envoy")],
            &[uri("spiffe://cluster.local/ns/edge/sa/*")],
            &[uri(&upper)],
            &[uri(&more)],
            &[uri(less)],
            // The right text as another kind of name, and host names as URIs.
            &[dns(ENVOY)],
            &[SanType::Rfc822Name(ENVOY.try_into().unwrap())],
            &[uri("envoy.edge.svc")],
            &[uri("10.1.2.3")],
        ] {
            assert_eq!(
                asked(&named, &authority.signs(bad), &[]),
                Err(CertificateError::NotValidForName.into()),
                "{bad:?}"
            );
        }
        // The name is not checked on a certificate that is not trusted.
        let unknown = Authority::new().signs(&[uri(ENVOY)]);
        let refused = asked(&named, &unknown, &[]);
        assert!(refused.is_err());
        assert_ne!(refused, Err(CertificateError::NotValidForName.into()));
    }

    #[test]
    fn the_name_of_an_intermediate_ca_is_not_accepted() {
        let authority = Authority::new();
        let (mut params, key) = (authority_named("in between"), KeyPair::generate().unwrap());
        params.subject_alt_names = vec![uri(ENVOY)];
        let between = params.signed_by(&key, &authority.issuer).unwrap();
        let below = Authority {
            issuer: Issuer::new(params, key),
            root: authority.root.clone(),
        };
        let above = [between.der().clone()];
        let named = below.lets_in(&[ENVOY]);
        let signed = below.signs(&[uri(ENVOY)]);
        assert_eq!(asked(&named, &signed, &above), Ok(()));
        let signed = below.signs(&[uri("spiffe://cluster.local/ns/edge/sa/other")]);
        assert_eq!(
            asked(&named, &signed, &above),
            Err(CertificateError::NotValidForName.into())
        );
    }

    #[test]
    fn a_certificate_that_is_garbled_is_refused_without_a_panic() {
        let authority = Authority::new();
        let whole = authority
            .signs(&[dns("other.example"), uri(ENVOY)])
            .to_vec();
        let named = authority.lets_in(&["envoy.edge.svc", ENVOY]);
        // Without the inner verifier, which would reject them all before the name is checked.
        let asked = |der: &[u8]| named.verify_name(&CertificateDer::from(der));
        assert_eq!(asked(&whole), Ok(()));
        for end in 0..whole.len() {
            let cut = asked(&whole[..end]);
            assert_eq!(cut, Err(CertificateError::BadEncoding.into()), "{end}");
        }
        let at = whole
            .windows(ENVOY.len())
            .position(|at| at == ENVOY.as_bytes());
        let at = at.expect("it stands there as it is");
        for place in 0..whole.len() {
            for byte in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut other = whole.clone();
                other[place] = byte;
                let asked = asked(&other);
                // In the URI a changed byte is another name; elsewhere only a panic is wrong.
                if (at..at + ENVOY.len()).contains(&place) {
                    assert_eq!(asked, Err(CertificateError::NotValidForName.into()));
                }
            }
        }
    }
}
