//! Certificates for servers that speak TLS.

use std::{fs, path::PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// A root, and a server's certificate signed by it.
#[derive(Debug)]
pub struct Certificates {
    dir: TempDir,
    root: String,
}

impl Certificates {
    /// Makes certificates for 127.0.0.1 and localhost.
    ///
    /// # Panics
    ///
    /// When files cannot be written.
    pub fn new() -> Certificates {
        let root_key = KeyPair::generate().expect("a key");
        let mut root = CertificateParams::new(Vec::new()).expect("no names");
        root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root_certificate = root.self_signed(&root_key).expect("a certificate");
        let issuer = Issuer::new(root, root_key);

        let names = ["127.0.0.1", "localhost"].map(str::to_owned);
        let key = KeyPair::generate().expect("a key");
        let server = CertificateParams::new(names).expect("valid names");
        let certificate = server.signed_by(&key, &issuer).expect("a certificate");

        let dir = TempDir::new().expect("a directory for certificates");
        let write = |name: &str, text: String| {
            fs::write(dir.path().join(name), text).expect("a file");
        };
        write("root.pem", root_certificate.pem());
        write("server.pem", certificate.pem());
        write("server.key", key.serialize_pem());
        Certificates {
            dir,
            root: root_certificate.pem(),
        }
    }

    /// The root's certificate, as text.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// The arguments of a redis-server that speaks TLS on `port`.
    pub fn arguments(&self, port: u16) -> Vec<String> {
        let file = |name: &str| -> String {
            let path: PathBuf = self.dir.path().join(name);
            path.display().to_string()
        };
        let arguments = [
            ["--tls-port", &port.to_string()],
            ["--tls-cert-file", &file("server.pem")],
            ["--tls-key-file", &file("server.key")],
            ["--tls-ca-cert-file", &file("root.pem")],
            ["--tls-auth-clients", "no"],
        ];
        arguments.concat().into_iter().map(str::to_owned).collect()
    }
}

impl Default for Certificates {
    fn default() -> Certificates {
        Certificates::new()
    }
}
