//! `client-key`: the key that a request would be charged to.

use std::{
    ffi::{OsStr, OsString},
    io::Write,
    net::{IpAddr, SocketAddr},
    os::unix::ffi::OsStrExt as _,
};

use clap::Args;
use ratelimit_http::{
    client_ip::{
        ChainHeader, ClientIpError, ClientIpResolver, ClientIpSource, TrustedProxies, WalkStep,
        parse_address,
    },
    key::ExplicitKey,
};
use serde::Serialize;

use crate::cli_error::CliError;

/// Says whose budget a request would spend, and how that was found.
///
/// Prints {"key":...,"source":...}, or {"error":...} with one of `bad_config`, `bad_key`,
/// `ambiguous_key` and `no_client`; both are answers, and end with 0.
#[derive(Args, Clone, Debug, Default)]
pub struct ClientKey {
    /// A proxy or network of proxies that may name the client; repeatable
    #[arg(long, value_name = "CIDR", allow_hyphen_values = true)]
    trusted: Vec<String>,

    /// The address at the other end of the connection; without one, it is a Unix socket
    #[arg(long, value_name = "ADDR", value_parser = parse_peer)]
    peer: Option<IpAddr>,

    /// A header line "Name: value" as it was received, byte for byte; repeatable
    #[arg(long, value_name = "LINE", allow_hyphen_values = true, value_parser = HeaderParser)]
    header: Vec<Header>,

    /// The raw query string of the request
    #[arg(long, value_name = "QUERY", allow_hyphen_values = true)]
    query: Option<OsString>,

    /// The header in which proxies name the client [default: x-forwarded-for]
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    chain_header: Option<String>,

    /// Takes that element of the chain, counted from the right, in place of --trusted: every peer is a proxy
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    hops: Option<String>,

    /// How many trusted elements of the chain are walked at most [default: 32]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    max_hops: Option<String>,

    /// How many leading bits tell IPv6 clients apart, 32 to 128 [default: 64]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    ipv6_prefix: Option<String>,

    /// Never reads X-Real-IP
    #[arg(long)]
    no_real_ip: bool,

    /// Trusts peers without an address
    #[arg(long)]
    trust_unix: bool,

    /// Prints the steps from the connection to the client as well
    #[arg(long)]
    walk: bool,

    /// A key that the application named itself
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    explicit: Option<OsString>,

    /// The header from which the application takes keys
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    explicit_header: Option<String>,

    /// The query parameter from which the application takes keys
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    explicit_query: Option<String>,
}

/// Name and value of a header line.
pub(crate) type Header = (String, Vec<u8>);

#[derive(Serialize)]
#[serde(untagged)]
enum KeyReport {
    Key { key: String, source: String },
    Error { error: &'static str },
}

/// The answer of the command.
#[derive(Serialize)]
struct KeyReportWithWalk {
    #[serde(flatten)]
    found: KeyReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<Vec<WalkStepView>>,
}

/// A step of the walk to the client, as JSON.
#[derive(Serialize)]
pub(crate) struct WalkStepView {
    from: String,
    value: String,
    verdict: &'static str,
}

impl WalkStepView {
    pub(crate) fn new(step: &WalkStep) -> WalkStepView {
        let from = step.header.as_deref().map(written_header);
        let is_unix = step.header.is_none() && step.value.is_empty();
        WalkStepView {
            from: from.unwrap_or_else(|| "the connection".to_owned()),
            value: if is_unix {
                "a Unix socket".to_owned()
            } else {
                step.value.clone()
            },
            verdict: step.verdict.as_str(),
        }
    }
}

/// The name of a header as it is usually written: `X-Forwarded-For`.
pub(crate) fn written_header(name: &str) -> String {
    let words = name.split('-').map(|word| match word {
        "ip" => "IP".to_owned(),
        "cf" => "CF".to_owned(),
        word => {
            let (first, rest) = word.split_at(word.len().min(1));
            first.to_uppercase() + rest
        }
    });
    words.collect::<Vec<String>>().join("-")
}

impl ClientKey {
    /// Writes the key or the error as one line of JSON.
    ///
    /// # Errors
    ///
    /// Fails if `out` cannot be written.
    pub fn run(&self, out: &mut impl Write) -> Result<(), CliError> {
        let found = self
            .find()
            .unwrap_or_else(|error| KeyReport::Error { error });
        let found = KeyReportWithWalk {
            found,
            steps: self.steps(),
        };
        writeln!(out, "{}", serde_json::to_string(&found)?)?;
        Ok(())
    }

    fn find(&self) -> Result<KeyReport, &'static str> {
        let search = self.search()?;
        if let Some(key) = self.explicit_key().map_err(|why| why.as_str())? {
            return Ok(KeyReport::Key {
                key: key.to_string(),
                source: ClientIpSource::Explicit.as_str().to_owned(),
            });
        }
        let client = search.resolve(self.peer, &self.header[..]);
        let client = client.map_err(|why| why.as_str())?;
        Ok(KeyReport::Key {
            key: client.to_string(),
            source: client.source().as_str().to_owned(),
        })
    }

    /// The steps of the walk, if they are asked for.
    fn steps(&self) -> Option<Vec<WalkStepView>> {
        let search = self.search().ok().filter(|_| self.walk)?;
        let walk = search.trace(self.peer, &self.header[..]);
        Some(walk.steps.iter().map(WalkStepView::new).collect())
    }

    fn search(&self) -> Result<ClientIpResolver, &'static str> {
        let trusted = TrustedProxies::parse(&self.trusted).map_err(|_| BAD_CONFIG)?;
        let mut search = match &self.hops {
            None => ClientIpResolver::behind(trusted),
            // Either would have no effect beside a number of hops.
            Some(_) if !self.trusted.is_empty() || self.max_hops.is_some() => {
                return Err(BAD_CONFIG);
            }
            Some(hops) => ClientIpResolver::behind_hops(number(hops)?),
        };
        if let Some(name) = &self.chain_header {
            let header = name.parse::<ChainHeader>();
            search = search.chain_header(header.map_err(|_| BAD_CONFIG)?);
        }
        if let Some(hops) = &self.max_hops {
            search = search.max_hops(number(hops)?);
        }
        if let Some(bits) = &self.ipv6_prefix {
            let bits = u8::try_from(number(bits)?).map_err(|_| BAD_CONFIG)?;
            search = search.ipv6_prefix(bits).map_err(|_| BAD_CONFIG)?;
        }
        if self.no_real_ip {
            search = search.ignore_x_real_ip();
        }
        if self.trust_unix {
            search = search.trust_unix_sockets();
        }
        Ok(search)
    }

    /// The explicit key: from the option, else the header, else the query. Empty values are skipped.
    fn explicit_key(&self) -> Result<Option<ExplicitKey<'_>>, ClientIpError> {
        if let Some(value) = &self.explicit {
            let value = value.to_str().ok_or(ClientIpError::BadKey)?;
            if let Some(key) = ExplicitKey::from_value(value)? {
                return Ok(Some(key));
            }
        }
        if let Some(name) = &self.explicit_header
            && let Some(key) = ExplicitKey::from_header(&self.header[..], name)?
        {
            return Ok(Some(key));
        }
        match (&self.explicit_query, &self.query) {
            (Some(name), Some(query)) => ExplicitKey::from_query(query.as_bytes(), name),
            _ => Ok(None),
        }
    }
}

const BAD_CONFIG: &str = "bad_config";

fn number(text: &str) -> Result<usize, &'static str> {
    text.parse().map_err(|_| BAD_CONFIG)
}

pub(crate) fn parse_peer(text: &str) -> Result<IpAddr, String> {
    let socket = text.parse::<SocketAddr>().map(|socket| socket.ip());
    let addr = socket.ok().or_else(|| parse_address(text.as_bytes()));
    addr.ok_or_else(|| "expected an address such as 10.0.0.1:4711".to_owned())
}

/// Parses a header line as bytes; the value may be any bytes.
#[derive(Clone)]
struct HeaderParser;

impl clap::builder::TypedValueParser for HeaderParser {
    type Value = Header;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _: Option<&clap::Arg>,
        line: &OsStr,
    ) -> Result<Header, clap::Error> {
        parse_header(line.as_bytes()).ok_or_else(|| {
            let expected = "expected a header line such as \"X-Forwarded-For: 1.2.3.4\"\n";
            clap::Error::raw(clap::error::ErrorKind::ValueValidation, expected).with_cmd(command)
        })
    }
}

/// Reads a header line; `None` if it has no name and colon.
pub(crate) fn parse_header(line: &[u8]) -> Option<Header> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let name = str::from_utf8(&line[..colon]).ok()?;
    Some((name.trim().to_owned(), trim(&line[colon + 1..]).to_vec()))
}

/// Trims spaces and tabs, which are not part of a header value.
fn trim(value: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = value.iter().take_while(|byte| is_space(byte)).count();
    let end = value.iter().rev().take_while(|byte| is_space(byte)).count();
    value.get(start..value.len() - end).unwrap_or_default()
}
