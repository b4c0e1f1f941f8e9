//! Client keys of pasted headers.

use std::net::IpAddr;

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{Response, StatusCode},
    routing::post,
};
use ratelimit_http::{
    client_ip::{
        ChainHeader, ClientIpError, ClientIpResolver, ClientIpSource, HeaderLines as _,
        TrustedProxies, WalkVerdict, is_private,
    },
    key::ExplicitKey,
};
use serde::{Deserialize, Serialize};

use crate::{
    api_error::ApiError,
    app::App,
    check_keys::{check_pattern, key_text, named_key},
    client_key::{Header, WalkStepView, parse_header, parse_peer, written_header},
    config::ReloadableConfig,
    json_body::{parse, read_up_to},
    json_object::Object,
    json_response::json,
};

const MAX_BODY: usize = 64 << 10;
/// The maximum number of networks in a request.
const MAX_TRUSTED: usize = 100;
/// The maximum number of lines that are reported as malformed.
const MAX_BAD_LINES: usize = 3;
const BAD_CONFIG: &str = "bad_config";

pub(super) fn routes() -> Router<App> {
    Router::new().route("/console/api/client-key", post(client_key))
}

/// A request that the server could receive.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientKeyRequest {
    /// The address at the other end of the connection; none is a Unix socket.
    #[serde(default)]
    peer: Option<String>,
    /// Header lines as they were received.
    #[serde(default)]
    headers: String,
    /// The raw query.
    #[serde(default)]
    query: String,
    /// The trusted proxies, in place of those of the server.
    #[serde(default)]
    trusted: Option<Vec<String>>,
}

/// The key or the error, and how it was found.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ClientKeyResponse {
    #[serde(flatten)]
    found: FoundKey,
    steps: Vec<WalkStepView>,
    /// The number of steps that `steps` omits.
    #[serde(skip_serializing_if = "Option::is_none")]
    more_steps: Option<usize>,
    advice: Vec<String>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum FoundKey {
    Key {
        key: String,
        source: String,
        by: String,
    },
    Error {
        error: &'static str,
    },
}

impl ClientKeyResponse {
    fn error(error: &'static str, advice: String) -> ClientKeyResponse {
        ClientKeyResponse {
            found: FoundKey::Error { error },
            steps: Vec::new(),
            more_steps: None,
            advice: vec![advice],
        }
    }
}

async fn client_key(State(app): State<App>, request: Request) -> Result<Response<Body>, ApiError> {
    let (parts, body) = request.into_parts();
    let bytes = read_up_to(&app, MAX_BODY, &parts.headers, body).await?;
    let Object(call): Object<ClientKeyRequest> = parse(&bytes)?;
    if call
        .trusted
        .as_ref()
        .is_some_and(|all| all.len() > MAX_TRUSTED)
    {
        return Err(ApiError::bad_request(format!(
            "trusted has at most {MAX_TRUSTED} networks"
        )));
    }
    let response = find(&app.rules(), &call).unwrap_or_else(|error| *error);
    Ok(json(StatusCode::OK, &response))
}

/// Finds the key as a check of this server does. `Err` is an answer as well: the request cannot be one.
fn find(
    rules: &ReloadableConfig,
    call: &ClientKeyRequest,
) -> Result<ClientKeyResponse, Box<ClientKeyResponse>> {
    let bad_config = |advice: String| Box::new(ClientKeyResponse::error(BAD_CONFIG, advice));
    let peer = call.peer.as_deref().filter(|peer| !peer.is_empty());
    let peer = peer.map(parse_peer).transpose();
    let peer = peer.map_err(|why| bad_config(format!("peer: {why}")))?;
    let resolver = match &call.trusted {
        None => rules.client.clone(),
        Some(networks) => {
            let trusted = TrustedProxies::parse(networks);
            let trusted = trusted.map_err(|why| bad_config(why.to_string()))?;
            rules.client.clone().with_trusted(trusted)
        }
    };
    let (headers, bad_lines) = header_lines(&call.headers);
    let walk = resolver.trace(peer, &headers[..]);
    let explicit = explicit_key(rules, &call.query);
    let is_explicit = !matches!(explicit, Ok(None));
    let found = match (explicit, &walk.client) {
        (Err(why), _) => FoundKey::Error {
            error: why.as_str(),
        },
        (Ok(Some(key)), _) => FoundKey::Key {
            key,
            source: ClientIpSource::Explicit.as_str().to_owned(),
            by: "the query parameter key".to_owned(),
        },
        (Ok(None), Err(why)) => FoundKey::Error {
            error: why.as_str(),
        },
        (Ok(None), Ok(client)) => FoundKey::Key {
            key: client.to_string(),
            source: client.source().as_str().to_owned(),
            by: written_source(client.source()),
        },
    };
    let steps = walk.steps.iter().map(WalkStepView::new);
    let mut advice = bad_lines;
    if !is_explicit {
        let is_own = call.trusted.is_none();
        advice.extend(advice_about(&resolver, rules, peer, &headers, is_own));
    }
    if walk
        .steps
        .iter()
        .any(|step| step.verdict == WalkVerdict::Bad)
    {
        advice
            .push("an element that is not an address ends the walk at the step before".to_owned());
    }
    Ok(ClientKeyResponse {
        found,
        steps: steps.collect(),
        more_steps: (walk.more_steps > 0).then_some(walk.more_steps),
        advice,
    })
}

/// The key that the query names, as it is shown in other calls.
fn explicit_key(rules: &ReloadableConfig, query: &str) -> Result<Option<String>, ClientIpError> {
    let query = query.strip_prefix('?').unwrap_or(query);
    let Some(key) = ExplicitKey::from_query(query.as_bytes(), "key")? else {
        return Ok(None);
    };
    let text = key.as_str();
    let key = check_pattern(rules, "the key", text).and_then(|()| named_key(text));
    let key = key.map_err(|_| ClientIpError::BadKey)?;
    // The key of a text is shown with its tag, that of an address has one already.
    let shown = key_text(&key);
    let is_text = shown == text && !shown.starts_with("ip:");
    Ok(Some(if is_text {
        format!("key:{shown}")
    } else {
        shown
    }))
}

/// The header lines of a text, and sentences about the first lines that are none.
fn header_lines(text: &str) -> (Vec<Header>, Vec<String>) {
    let (mut headers, mut bad) = (Vec::new(), Vec::new());
    for (index, line) in text.split('\n').enumerate() {
        let line = line.strip_suffix('\r').unwrap_or(line);
        match parse_header(line.as_bytes()) {
            Some(header) => headers.push(header),
            None if line.trim().is_empty() => {}
            None => bad.push(index + 1),
        }
    }
    let shown = bad.iter().take(MAX_BAD_LINES);
    let shown = shown.map(|line| format!("line {line} is not read: it has no name and colon"));
    let mut sentences: Vec<String> = shown.collect();
    if let Some(hidden @ 1..) = bad.len().checked_sub(MAX_BAD_LINES) {
        sentences.push(format!("and {hidden} more lines are not read"));
    }
    (headers, sentences)
}

/// The advice that the server logs once, and about headers that it does not read.
fn advice_about(
    resolver: &ClientIpResolver,
    rules: &ReloadableConfig,
    peer: Option<IpAddr>,
    headers: &[Header],
    is_own: bool,
) -> Vec<String> {
    let mut advice = Vec::new();
    let Some(peer) = peer else {
        return advice;
    };
    let chain = &rules.chain_header;
    let sent = [chain.name(), "x-forwarded-for", "forwarded", "x-real-ip"];
    let sent = sent
        .into_iter()
        .find(|name| headers.lines(name).next().is_some());
    if let Some(sent) = sent
        && resolver.looks_like_untrusted_proxy(peer, headers)
    {
        advice.push(format!(
            "{peer} is a private address, sends {} and is not trusted: all clients behind it share one budget; if it is \
             your proxy, add --trusted {peer}",
            written_header(sent)
        ));
    }
    let client = resolver.resolve(Some(peer), headers);
    let is_peer = client.is_ok_and(|client| client.source() == ClientIpSource::Peer);
    if !is_peer || !resolver.trusts(Some(peer)) {
        return advice;
    }
    let has_forwarded = headers.lines("forwarded").next().is_some();
    if has_forwarded && *chain == ChainHeader::XForwardedFor {
        advice.push(
            "the proxy names the client in Forwarded, which is not read: --chain-header forwarded reads it"
                .to_owned(),
        );
    } else if is_own || is_private(peer) {
        advice.push(format!(
            "{peer} is trusted and sends no {} with an address: all clients behind it share one budget; let it send the \
             header, or name a key",
            written_header(chain.name())
        ));
    }
    advice
}

fn written_source(source: ClientIpSource<'_>) -> String {
    match source {
        ClientIpSource::Peer => "the connection".to_owned(),
        ClientIpSource::XForwardedFor => written_header("x-forwarded-for"),
        other => written_header(other.as_str()),
    }
}
