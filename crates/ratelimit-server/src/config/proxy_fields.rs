//! The fields of the file for the settings about proxies.

use ratelimit_http::{
    client_ip::{ClientIpResolver, TrustedProxies},
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
    let mut networks: Vec<(usize, TrustedProxies, Network)> = Vec::new();
    for entry in node.list(findings).unwrap_or_default() {
        let Some(text) = entry.text(findings) else {
            continue;
        };
        match TrustedProxies::parse([text]) {
            Ok(proxies) => {
                let network = Network(text.trim_ascii().to_owned());
                networks.push((entry.line, proxies, network));
            }
            Err(why) if why.is_everyone() => {
                findings.add(DiagnosticCode::TrustsEveryone, entry.line, why.to_string());
            }
            Err(why) => findings.add(DiagnosticCode::BadValue, entry.line, why.to_string()),
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

fn find_overlaps(networks: &[(usize, TrustedProxies, Network)], findings: &mut Diagnostics) {
    for (place, (line, proxies, network)) in networks.iter().enumerate() {
        let mut others = networks.iter().enumerate();
        let wider = others.find(|(other, (_, wide, _))| {
            let is_first_of_equals = *other < place || !proxies.covers(wide);
            *other != place && wide.covers(proxies) && is_first_of_equals
        });
        if let Some((_, (_, _, wider))) = wider {
            let message = format!(
                "{} lies in {}, which is trusted already",
                network.0, wider.0
            );
            findings.add(DiagnosticCode::OverlappingTrusted, *line, message);
        }
    }
}
