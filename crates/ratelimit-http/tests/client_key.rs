//! Replays the published vectors: whose key a request gets.

use std::{
    collections::HashSet,
    net::{IpAddr, SocketAddr},
    path::Path,
};

use ratelimit_http::{
    client_ip::{ChainHeader, ClientIpError, ClientIpResolver, ClientIpSource, TrustedProxies},
    key::ExplicitKey,
};
use serde_json::Value;

/// The word of the vectors for settings that the resolver rejects.
const BAD_CONFIG: &str = "bad_config";

#[test]
fn every_vector_gets_the_key_it_expects() {
    replay("client_key.json", 192);
}

#[test]
fn every_further_vector_gets_the_key_it_expects() {
    replay("client_key_more.json", 60);
}

fn replay(file: &str, at_least: usize) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/data")
        .join(file);
    let text = std::fs::read_to_string(&path).expect("the vectors are part of the repository");
    let file: Value = serde_json::from_str(&text).expect("the vectors are JSON");
    let vectors = file["vectors"].as_array().expect("a list of vectors");

    let names: HashSet<_> = vectors
        .iter()
        .map(|vector| vector["name"].as_str())
        .collect();
    let wrong: Vec<_> = vectors.iter().filter_map(disagreement).collect();

    assert_eq!(
        names.len(),
        vectors.len(),
        "each vector has a name of its own"
    );
    assert!(vectors.len() >= at_least, "only {} vectors", vectors.len());
    assert!(
        wrong.is_empty(),
        "{} of {} differ:\n{}",
        wrong.len(),
        vectors.len(),
        wrong.join("\n")
    );
}

fn disagreement(vector: &Value) -> Option<String> {
    let found = match answer(vector) {
        Ok((key, source)) => serde_json::json!({ "key": key, "source": source }),
        Err(error) => serde_json::json!({ "error": error }),
    };
    let expected = &vector["expect"];
    (found != *expected).then(|| format!("{}: expected {expected}, found {found}", vector["name"]))
}

fn answer(vector: &Value) -> Result<(String, String), &'static str> {
    let options = &vector["opts"];
    let search = search(vector, options)?;
    let headers = headers(vector);
    let query = vector["query"].as_str().unwrap_or("").as_bytes();

    if let Some(key) =
        explicit(&options["explicit"], &headers, query).map_err(|error| error.as_str())?
    {
        return Ok((key, ClientIpSource::Explicit.as_str().to_owned()));
    }
    let client = search
        .resolve(peer(vector), &headers[..])
        .map_err(|error| error.as_str())?;
    Ok((client.to_string(), client.source().as_str().to_owned()))
}

fn search(vector: &Value, options: &Value) -> Result<ClientIpResolver, &'static str> {
    let known = [
        "chain_header",
        "explicit",
        "hops",
        "max_hops",
        "real_ip_fallback",
        "trust_unix",
        "v6_prefix",
    ];
    for option in options.as_object().expect("options").keys() {
        assert!(
            known.contains(&&**option),
            "{}: unknown option {option}",
            vector["name"]
        );
    }

    let entries = vector["trusted"].as_array().expect("a list of networks");
    let entries = entries
        .iter()
        .map(|entry| entry.as_str().expect("a network"));
    let proxies = TrustedProxies::parse(entries).map_err(|_| BAD_CONFIG)?;
    let mut search = match options["hops"].as_u64() {
        None => ClientIpResolver::behind(proxies),
        Some(hops) if proxies == TrustedProxies::none() && options["max_hops"].is_null() => {
            ClientIpResolver::behind_hops(usize::try_from(hops).expect("hops"))
        }
        Some(_) => return Err(BAD_CONFIG),
    };
    if let Some(name) = options["chain_header"].as_str() {
        search = search.chain_header(name.parse::<ChainHeader>().map_err(|_| BAD_CONFIG)?);
    }
    if let Some(hops) = options["max_hops"].as_u64() {
        search = search.max_hops(usize::try_from(hops).expect("max_hops"));
    }
    if let Some(bits) = options["v6_prefix"].as_u64() {
        search = search
            .ipv6_prefix(u8::try_from(bits).expect("v6_prefix"))
            .map_err(|_| BAD_CONFIG)?;
    }
    if options["real_ip_fallback"] == false {
        search = search.ignore_x_real_ip();
    }
    if options["trust_unix"] == true {
        search = search.trust_unix_sockets();
    }
    Ok(search)
}

fn explicit(
    options: &Value,
    headers: &[(String, Vec<u8>)],
    query: &[u8],
) -> Result<Option<String>, ClientIpError> {
    let key = if let Some(value) = options["value"].as_str() {
        ExplicitKey::from_value(value)?
    } else if let Some(name) = options["header"].as_str() {
        ExplicitKey::from_header(headers, name)?
    } else if let Some(name) = options["query"].as_str() {
        ExplicitKey::from_query(query, name)?
    } else {
        None
    };
    Ok(key.map(|key| key.to_string()))
}

fn headers(vector: &Value) -> Vec<(String, Vec<u8>)> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let latin1 = |value: String| {
        value
            .chars()
            .map(|char| u8::try_from(char).expect("Latin-1"))
            .collect()
    };
    let lines = vector["headers"].as_array().expect("a list of lines");
    lines
        .iter()
        .map(|line| (text(&line[0]), latin1(text(&line[1]))))
        .collect()
}

fn peer(vector: &Value) -> Option<IpAddr> {
    let peer: SocketAddr = vector["peer"].as_str()?.parse().expect("a socket address");
    Some(peer.ip())
}
