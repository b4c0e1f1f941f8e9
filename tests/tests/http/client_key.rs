//! The vectors, through the layer's own eyes.

use std::{net::IpAddr, path::Path};

use http::{HeaderName, HeaderValue, Request, request::Parts};
use ratelimit_core::Key;
use ratelimit_http::{
    client_ip::{ChainHeader, ClientIpResolver, TrustedProxies},
    key::{ExplicitKey, is_credential},
};
use ratelimit_tower::{ClientKey, KeyExtractor as _, PeerAddr};
use serde_json::Value;

#[test]
fn the_layer_finds_the_key_of_every_vector() {
    let mut unsendable = 0;
    for (file, at_least) in [("client_key.json", 192), ("client_key_more.json", 310)] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("data")
            .join(file);
        let text = std::fs::read_to_string(path).expect("the vectors are part of the repository");
        let file: Value = serde_json::from_str(&text).expect("the vectors are JSON");
        let vectors = file["vectors"].as_array().expect("a list of vectors");
        assert!(vectors.len() >= at_least, "only {} vectors", vectors.len());

        for vector in vectors {
            let name = vector["name"].as_str().expect("a name");
            let Some(request) = request(vector) else {
                // HTTP lets no control byte in a header come as far as a layer.
                let mut lines = vector["headers"].as_array().into_iter().flatten();
                let value = |line: &Value| line[1].as_str().map(str::to_owned);
                let held =
                    lines.any(|line| value(line).is_some_and(|v| v.contains(char::is_control)));
                assert!(held, "{name} cannot be sent");
                unsendable += 1;
                continue;
            };

            let found = found(vector, request);

            assert_eq!(found, expected(vector), "{name}");
        }
    }
    assert!(unsendable < 20, "{unsendable} vectors were not tried");
}

/// The vector's request, unless it cannot be one.
fn request(vector: &Value) -> Option<Parts> {
    let query = vector["query"].as_str();
    let uri = query.map_or_else(|| "/".to_owned(), |query| format!("/?{query}"));
    let mut request = Request::builder().uri(uri);
    if let Some(peer) = vector["peer"].as_str() {
        request = request.extension(PeerAddr(peer.parse().expect("a socket address")));
    }
    let lines = vector["headers"].as_array().expect("a list of lines");
    for line in lines {
        let value = line[1].as_str().expect("text").chars();
        let bytes: Vec<u8> = value
            .map(|char| u8::try_from(char).expect("Latin-1"))
            .collect();
        let value = HeaderValue::from_bytes(&bytes).ok()?;
        request = request.header(line[0].as_str().expect("text"), value);
    }
    let request = request.body(()).expect("a request");
    Some(request.into_parts().0)
}

fn found(vector: &Value, mut request: Parts) -> Result<Key, String> {
    let explicit = &vector["opts"]["explicit"];
    let mut extractor = extractor(vector)?;
    if let Some(value) = explicit["value"].as_str() {
        let key = ExplicitKey::from_value(value).map_err(|why| why.as_str().to_owned())?;
        let key = key.map(|key| Key::new(key.as_str()).expect("it is not empty"));
        request.extensions.extend(key.map(only).unwrap_or_default());
    }
    if let Some(name) = explicit["header"].as_str() {
        let name = HeaderName::try_from(name).expect("a header's name");
        extractor = extractor.explicit_header(name, |_| true);
    }
    if let Some(name) = explicit["query"].as_str() {
        extractor = extractor.explicit_query(name, |_| true);
    }
    extractor
        .extract(&request)
        .map_err(|why| why.as_str().to_owned())
}

fn only(key: Key) -> http::Extensions {
    let mut extensions = http::Extensions::new();
    extensions.insert(key);
    extensions
}

fn extractor(vector: &Value) -> Result<ClientKey, String> {
    let options = &vector["opts"];
    let count = |name: &str| {
        let number = options[name].as_u64();
        number.map(|number| usize::try_from(number).expect("a small number"))
    };
    let trusted = vector["trusted"].as_array().expect("a list of networks");
    let trusted = trusted
        .iter()
        .map(|entry| entry.as_str().expect("a network"));
    let trusted = TrustedProxies::parse(trusted).map_err(|_| "bad_config".to_owned())?;
    let mut search = match count("hops") {
        None => ClientIpResolver::behind(trusted),
        Some(hops) if trusted == TrustedProxies::none() && options["max_hops"].is_null() => {
            ClientIpResolver::behind_hops(hops)
        }
        Some(_) => return Err("bad_config".to_owned()),
    };
    if let Some(name) = options["chain_header"].as_str() {
        let header: ChainHeader = name.parse().map_err(|_| "bad_config".to_owned())?;
        search = search.chain_header(header);
    }
    if let Some(hops) = count("max_hops") {
        search = search.max_hops(hops);
    }
    if let Some(bits) = count("v6_prefix") {
        let bits = u8::try_from(bits).expect("a prefix");
        search = search
            .ipv6_prefix(bits)
            .map_err(|_| "bad_config".to_owned())?;
    }
    if options["real_ip_fallback"] == false {
        search = search.ignore_x_real_ip();
    }
    if options["trust_unix"] == true {
        search = search.trust_unix_sockets();
    }
    Ok(search.into())
}

fn expected(vector: &Value) -> Result<Key, String> {
    let expect = &vector["expect"];
    if let Some(error) = expect["error"].as_str() {
        return Err(error.to_owned());
    }
    let key = expect["key"].as_str().expect("a key or an error");
    match key.split_once(':').expect("a key has a tag") {
        ("ip", address) => {
            let (network, prefix) = address.split_once('/').unwrap_or((address, "32"));
            let prefix = prefix.parse().expect("a prefix length");
            Ok(Key::network(
                network.parse::<IpAddr>().expect("an address"),
                prefix,
            ))
        }
        // A vector says which value is the key. Under the name of a credential the layer counts by its digest.
        (_, value) if is_secret(vector) => Ok(Key::hashed("key", value).expect("it is not empty")),
        (_, value) => Ok(Key::new(value).expect("it is not empty")),
    }
}

/// Whether the explicit key of a vector has the name of a credential, as `x-api-key` does.
fn is_secret(vector: &Value) -> bool {
    let explicit = &vector["opts"]["explicit"];
    let names = [&explicit["header"], &explicit["query"]];
    names
        .into_iter()
        .filter_map(Value::as_str)
        .any(is_credential)
}
