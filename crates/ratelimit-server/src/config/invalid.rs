//! Errors of a configuration.

use std::{error::Error, fmt, io, net::SocketAddr, path::PathBuf};

use ratelimit_core::InvalidRedisConfig;
use ratelimit_http::{InvalidSyntax, policy_file::InvalidPolicyFile};

/// An invalid configuration.
#[derive(Debug)]
#[non_exhaustive]
pub enum InvalidConfig {
    /// A file cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The configuration file has errors.
    File {
        /// The file.
        path: PathBuf,
        /// Its diagnostics.
        why: InvalidPolicyFile,
    },
    /// The admin token is shorter than 16 bytes, or not visible ASCII.
    Token {
        /// The file that it was read from.
        path: PathBuf,
    },
    /// Admin calls without a token are allowed beside a token, or beyond this machine.
    AdminWithoutToken {
        /// The address that is not loopback; `None` if there is a token.
        listen: Option<SocketAddr>,
    },
    /// `admin-listen` is the address of `listen`, or one of them is all addresses at the same port.
    SameListener {
        /// The address of `admin-listen`.
        listen: SocketAddr,
    },
    /// One key of a policy can take more bytes than the memory store reserves for a key.
    KeyExceedsMemory {
        /// The policy.
        policy: String,
        /// The maximum size of one of its keys, in bytes.
        bytes: usize,
        /// The maximum size that the memory store enforces limits for, in bytes.
        max_bytes: usize,
    },
    /// The Redis settings are invalid.
    Redis(InvalidRedisConfig),
    /// Certificates cannot be used, or have no effect.
    Tls {
        /// The reason.
        message: String,
    },
    /// A variable of Envoy's own rate limit server is invalid, or asks for something that this server does not do.
    Environment {
        /// The variable.
        variable: &'static str,
        /// The reason.
        message: String,
    },
    /// The URL of the xDS server is invalid.
    XdsServer {
        /// The reason, without the URL: it may contain a password.
        why: &'static str,
    },
    /// The IPv6 prefix is not from 32 to 128.
    Ipv6Prefix(InvalidSyntax),
    /// Two flags, or two entries of a variable, define one policy.
    DuplicatePolicy {
        /// The policy.
        policy: String,
    },
    /// Settings about proxies exclude each other, or one has no effect without another.
    Conflict(ConflictingSettings),
    /// A policy has rules about paths, and forward-auth does not know the path of a request.
    PathRules {
        /// The policy.
        policy: String,
    },
}

impl InvalidConfig {
    /// The setting that the error is about, if it is about one.
    pub(crate) const fn setting(&self) -> Option<&'static str> {
        match self {
            InvalidConfig::Conflict(conflict) => Some(conflict.setting),
            InvalidConfig::AdminWithoutToken { .. } => Some("admin-without-token"),
            InvalidConfig::SameListener { .. } => Some("admin-listen"),
            InvalidConfig::KeyExceedsMemory { .. } | InvalidConfig::PathRules { .. } => {
                Some("policy")
            }
            InvalidConfig::Redis(_) => Some("redis"),
            InvalidConfig::XdsServer { .. } => Some("envoy-xds-server"),
            InvalidConfig::Ipv6Prefix(_) => Some("ipv6-prefix"),
            _ => None,
        }
    }
}

impl fmt::Display for InvalidConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidConfig::Unreadable { path, .. } => {
                write!(f, "{} cannot be read", path.display())
            }
            InvalidConfig::File { path, why } => {
                let findings = why.diagnostics().iter();
                let lines = findings.map(|finding| finding.in_file(path.display()));
                f.write_str(&lines.collect::<Vec<_>>().join("\n"))
            }
            InvalidConfig::Token { path } => write!(
                f,
                "the token in {} must be at least 16 bytes of visible ASCII",
                path.display()
            ),
            InvalidConfig::AdminWithoutToken {
                listen: Some(listen),
            } => write!(
                f,
                "admin-without-token needs a loopback address, and admin calls are served on {listen}; \
                 set admin-listen to one"
            ),
            InvalidConfig::AdminWithoutToken { listen: None } => f.write_str(
                "admin-without-token has no effect beside admin-token-file; remove one of them",
            ),
            InvalidConfig::SameListener { listen } => write!(
                f,
                "admin-listen {listen} is the address of listen: give it another port, or remove it"
            ),
            InvalidConfig::KeyExceedsMemory {
                policy,
                bytes,
                max_bytes,
            } => write!(
                f,
                "a key of policy {policy} takes up to {bytes} bytes, and limits of keys beyond {max_bytes} bytes \
                 do not hold in memory; raise memory-bytes or lower memory-keys"
            ),
            InvalidConfig::Redis(why) => why.fmt(f),
            InvalidConfig::Tls { message } => f.write_str(message),
            InvalidConfig::Environment { variable, message } => {
                write!(f, "{variable}: {message}")
            }
            InvalidConfig::XdsServer { why } => write!(f, "envoy-xds-server: {why}"),
            InvalidConfig::Ipv6Prefix(why) => why.fmt(f),
            InvalidConfig::DuplicatePolicy { policy } => {
                write!(f, "--policy gives {policy} twice")
            }
            InvalidConfig::Conflict(why) => why.fmt(f),
            InvalidConfig::PathRules { policy } => write!(
                f,
                "policy {policy} has rules about paths, and only forward-auth applies rules: set path-header to the \
                 header in which your proxy sends the path, such as X-Forwarded-Uri, or remove the rules"
            ),
        }
    }
}

impl Error for InvalidConfig {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            InvalidConfig::Unreadable { source, .. } => Some(source),
            InvalidConfig::Redis(why) => why.source(),
            _ => None,
        }
    }
}

/// Two settings about proxies that exclude each other, or a setting that has no effect without another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictingSettings {
    /// The name of the setting to change or remove.
    pub(super) setting: &'static str,
    pub(super) why: &'static str,
}

impl fmt::Display for ConflictingSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.setting, self.why)
    }
}

impl Error for ConflictingSettings {}
