//! Certificate authorities, the leaf certificates that they sign, and folders laid out like a
//! mounted Kubernetes secret.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, IsCa, Issuer, KeyPair,
    PKCS_RSA_SHA256, SanType, date_time_ymd,
};
use tempfile::TempDir;

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

/// A certificate and its key.
#[derive(Clone)]
pub struct Leaf {
    pub certificate: String,
    pub key: String,
}

/// The time in which a certificate is valid.
#[derive(Clone, Copy, Debug)]
pub enum Validity {
    Valid,
    /// Until 2001.
    Expired,
    /// From 2100 on.
    NotYetValid,
}

/// A secret as a pod sees it: `tls.crt`, `tls.key` and `ca.crt` are links through a folder that is
/// replaced as a whole.
pub struct Secret {
    directory: TempDir,
    version: u32,
}

// === impl Authority ===

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// A certificate for these names that is its own authority, as `openssl req -x509` makes it.
    pub fn self_signed(names: &[&str], good: Validity) -> Leaf {
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        good.limit(&mut params);
        let key = KeyPair::generate().unwrap();
        Leaf {
            certificate: params.self_signed(&key).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    /// Signs for these names, now.
    pub fn signs(&self, names: &[&str]) -> Leaf {
        self.signs_for(names, Validity::Valid)
    }

    pub fn signs_for(&self, names: &[&str], good: Validity) -> Leaf {
        self.signs_key(names, good, &KeyPair::generate().unwrap())
    }

    /// Signs an RSA key without extended key usage, as Envoy Gateway does.
    pub fn signs_rsa(&self, names: &[&str]) -> Leaf {
        let pem = include_str!("rsa.pem");
        let key = KeyPair::from_pem_and_sign_algo(pem, &PKCS_RSA_SHA256).unwrap();
        self.signs_key(names, Validity::Valid, &key)
    }

    fn signs_key(&self, names: &[&str], good: Validity, key: &KeyPair) -> Leaf {
        let (uris, names): (Vec<_>, Vec<_>) = names
            .iter()
            .map(ToString::to_string)
            .partition(|name| name.contains("://"));
        let mut params = CertificateParams::new(names).unwrap();
        let uris = uris.into_iter();
        let uris = uris.map(|uri| SanType::URI(uri.try_into().unwrap()));
        params.subject_alt_names.extend(uris);
        params
            .distinguished_name
            .push(DnType::CommonName, "somebody");
        // rustls ignores an extension that it does not know.
        let unknown = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
        params.custom_extensions.push(unknown);
        good.limit(&mut params);
        let certificate = params.signed_by(key, &self.issuer).unwrap();
        Leaf {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}

// === impl Validity ===

impl Validity {
    fn limit(self, params: &mut CertificateParams) {
        match self {
            Self::Valid => {}
            Self::Expired => {
                params.not_before = date_time_ymd(2000, 1, 1);
                params.not_after = date_time_ymd(2001, 1, 1);
            }
            Self::NotYetValid => params.not_before = date_time_ymd(2100, 1, 1),
        }
    }
}

// === impl Secret ===

impl Secret {
    pub fn new(leaf: &Leaf, authority: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut secret = Self {
            directory,
            version: 0,
        };
        secret.exchange(&leaf.certificate, &leaf.key, authority);
        for name in ["tls.crt", "tls.key", "ca.crt"] {
            symlink(format!("..data/{name}"), secret.path(name)).unwrap();
        }
        secret
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn file(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Replaces all files at once.
    pub fn exchange(&mut self, certificate: &str, key: &str, authority: &str) {
        self.version += 1;
        let folder = format!("..2026_11_21_{}", self.version);
        std::fs::create_dir(self.path(&folder)).unwrap();
        for (name, text) in [
            ("tls.crt", certificate),
            ("tls.key", key),
            ("ca.crt", authority),
        ] {
            std::fs::write(self.path(&format!("{folder}/{name}")), text).unwrap();
        }
        symlink(&folder, self.path("..data_tmp")).unwrap();
        std::fs::rename(self.path("..data_tmp"), self.path("..data")).unwrap();
    }
}
