//! Certificates that a test creates for itself.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tokio_rustls::rustls::pki_types::CertificateDer;

/// An authority, with a directory for the certificates that it signs.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate.
    pub(crate) pem: String,
    pub(crate) der: CertificateDer<'static>,
    dir: TempDir,
}

/// A certificate for this machine, and its key; both PEM.
pub(crate) struct Signed {
    pub(crate) cert: String,
    pub(crate) key: String,
    pub(crate) der: CertificateDer<'static>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let cert = params.self_signed(&key).unwrap();
        let (pem, der) = (cert.pem(), cert.der().clone());
        Self { issuer: Issuer::new(params, key), pem, der, dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn sign(&self) -> Signed {
        self.sign_until(4_000)
    }

    /// A certificate that is valid until the first of January of this year.
    pub(crate) fn sign_until(&self, year: i32) -> Signed {
        let key = KeyPair::generate().unwrap();
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        Signed { cert: cert.pem(), key: key.serialize_pem(), der: cert.der().clone() }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Where the certificate and the key of the host are.
    pub(crate) fn files(&self) -> (PathBuf, PathBuf) {
        (self.dir().join("cert.pem"), self.dir().join("key.pem"))
    }

    pub(crate) fn write(&self, signed: &Signed) {
        let (cert, key) = self.files();
        fs::write(cert, &signed.cert).unwrap();
        fs::write(key, &signed.key).unwrap();
    }

    /// A file with the certificate of the authority.
    pub(crate) fn pem_file(&self) -> PathBuf {
        let path = self.dir().join("authority.pem");
        fs::write(&path, &self.pem).unwrap();
        path
    }
}
