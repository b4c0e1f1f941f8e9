//! The fields of the file for the settings about proxies.

use std::collections::HashMap;

use ratelimit_http::{
    client_ip::{Cidr, ClientIpResolver, TrustedProxies},
    policy_file::{DiagnosticCode, Diagnostics, Field, Node},
};

use super::{
    settings::Settings,
    values::{Network, WHOLE_NUMBER},
};

/// The fields; each has the name of its flag.
pub(super) const PROXY_FIELDS: &[Field<Settings>] = &[
    Field::new("trusted", |to, node, found| {
        to.trusted = trusted(node, found);
    }),
    Field::new("trust-everyone", |to, node, found| {
        to.trust_everyone = trust_everyone(node, found);
    }),
    Field::new("chain-header", |to, node, found| {
        to.chain_header = node.parsed(found);
    }),
    Field::new("path-header", |to, node, found| {
        to.path_header = node.parsed(found);
    }),
    Field::new("hops", |to, node, found| {
        to.hops = node.integer(WHOLE_NUMBER, found);
    }),
    Field::new("max-hops", |to, node, found| {
        to.max_hops = node.integer(WHOLE_NUMBER, found);
    }),
    Field::new("ipv6-prefix", |to, node, found| {
        to.ipv6_prefix = ipv6_prefix(node, found);
    }),
    Field::new("no-real-ip", |to, node, found| {
        to.no_real_ip = node.boolean(found);
    }),
];

fn ipv6_prefix(node: &Node, findings: &mut Diagnostics) -> Option<u8> {
    let bits = node.integer("a whole number from 32 to 128", findings)?;
    let checked = ClientIpResolver::behind(TrustedProxies::none()).ipv6_prefix(bits);
    if let Err(why) = &checked {
        findings.add(DiagnosticCode::BadValue, node.line, why.to_string());
    }
    checked.ok().map(|_| bits)
}

fn trust_everyone(node: &Node, findings: &mut Diagnostics) -> Option<bool> {
    let everyone = node.boolean(findings)?;
    if everyone {
        let message = "whoever connects can choose the key of its budget";
        findings.add(DiagnosticCode::AnyPeerTrusted, node.line, message);
    }
    Some(everyone)
}

fn trusted(node: &Node, findings: &mut Diagnostics) -> Vec<Network> {
    let mut networks: Vec<(usize, Cidr, Network)> = Vec::new();
    for entry in node.list(findings).unwrap_or_default() {
        let Some(text) = entry.text(findings) else {
            continue;
        };
        match (TrustedProxies::parse([text]), text.parse()) {
            (Ok(_), Ok(block)) => {
                let network = Network(text.trim_ascii().to_owned());
                networks.push((entry.line, block, network));
            }
            (Err(why), _) | (_, Err(why)) if why.is_everyone() => {
                findings.add(DiagnosticCode::TrustsEveryone, entry.line, why.to_string());
            }
            (Err(why), _) | (_, Err(why)) => {
                findings.add(DiagnosticCode::BadValue, entry.line, why.to_string());
            }
        }
    }
    find_overlaps(&networks, findings);
    let networks: Vec<_> = networks
        .into_iter()
        .map(|(_, _, network)| network)
        .collect();
    let all = TrustedProxies::parse(networks.iter().map(|network| &network.0));
    if all.is_ok_and(|proxies| proxies.is_everyone()) {
        let message = "these networks together are the whole internet";
        findings.add(DiagnosticCode::TrustsEveryone, node.line, message);
    }
    networks
}

/// Reports each network that lies in another one. A lookup does not depend on the number of networks: a hostile text can
/// have 100,000 of them.
fn find_overlaps(networks: &[(usize, Cidr, Network)], findings: &mut Diagnostics) {
    let mut places = HashMap::with_capacity(networks.len());
    for (place, (_, block, _)) in networks.iter().enumerate() {
        places.entry(*block).or_insert(place);
    }
    for (place, (line, block, network)) in networks.iter().enumerate() {
        let supernets = block.supernets();
        let wider = supernets.filter_map(|wider| places.get(&wider).copied());
        // Of equal networks all but the first are reported.
        let equal = places.get(block).copied().filter(|first| *first < place);
        if let Some(wider) = wider.chain(equal).min() {
            let message = format!(
                "{} lies in {}, which is trusted already",
                network.0, networks[wider].2.0
            );
            findings.add(DiagnosticCode::OverlappingTrusted, *line, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_thousand_networks_are_compared_in_a_moment() {
        let text = |number: u32| std::net::Ipv4Addr::from_bits(number * 2).to_string();
        let networks = (1..100_000).map(|number| {
            let text = text(number);
            (1, text.parse().unwrap(), Network(text))
        });
        let networks: Vec<_> = networks.collect();
        let begin = std::time::Instant::now();

        find_overlaps(&networks, &mut Diagnostics::new());

        assert!(begin.elapsed().as_secs() < 10, "{:?}", begin.elapsed());
    }
}
