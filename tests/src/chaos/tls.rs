//! Certificates for servers that speak TLS.

use std::fs;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// A root, and the certificates of a server and of a client signed by it.
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
        // OpenSSL takes a certificate for self-signed if its subject is that of its issuer.
        root.distinguished_name.push(DnType::CommonName, "root");
        root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root_certificate = root.self_signed(&root_key).expect("a certificate");
        let issuer = Issuer::new(root, root_key);

        let signed = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let key = KeyPair::generate().expect("a key");
            let name = names[0].clone();
            let mut params = CertificateParams::new(names).expect("valid names");
            params.distinguished_name.push(DnType::CommonName, name);
            let certificate = params.signed_by(&key, &issuer).expect("a certificate");
            (certificate.pem(), key.serialize_pem())
        };
        let (server, server_key) = signed(&["127.0.0.1", "localhost"]);
        let (client, client_key) = signed(&["client.test"]);

        let dir = TempDir::new().expect("a directory for certificates");
        let write = |name: &str, text: String| {
            fs::write(dir.path().join(name), text).expect("a file");
        };
        write("root.pem", root_certificate.pem());
        write("server.pem", server);
        write("server.key", server_key);
        write("client.pem", client);
        write("client.key", client_key);
        Certificates {
            dir,
            root: root_certificate.pem(),
        }
    }

    /// The root's certificate, as text.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// The path of a file: `root.pem`, `server.pem`, `server.key`, `client.pem` or `client.key`.
    pub fn file(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// The arguments of a redis-server that speaks TLS on `port`.
    pub fn arguments(&self, port: u16) -> Vec<String> {
        let file = |name: &str| self.file(name);
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
