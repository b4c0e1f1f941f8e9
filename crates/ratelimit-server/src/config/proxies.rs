//! The settings about proxies: which peers are trusted, and what their headers tell.

use ratelimit_http::client_ip::{ChainHeader, ClientIpResolver, TrustedProxies};

use super::{
    invalid::{ConflictingSettings, InvalidConfig},
    settings::Settings,
};

/// The resolver that the settings describe.
pub(super) fn resolver(settings: &Settings) -> Result<ClientIpResolver, InvalidConfig> {
    check_exclusions(settings).map_err(InvalidConfig::Conflict)?;
    check_trust(settings).map_err(InvalidConfig::Conflict)?;
    let mut resolver = match settings.hops {
        Some(hops) => ClientIpResolver::behind_hops(hops),
        None => ClientIpResolver::behind(trusted(settings)),
    };
    if let Some(header) = &settings.chain_header {
        resolver = resolver.chain_header(header.0.clone());
    }
    if let Some(hops) = settings.max_hops {
        resolver = resolver.max_hops(hops);
    }
    if let Some(bits) = settings.ipv6_prefix {
        let checked = resolver.ipv6_prefix(bits);
        resolver = checked.map_err(InvalidConfig::Ipv6Prefix)?;
    }
    if settings.no_real_ip == Some(true) {
        resolver = resolver.ignore_x_real_ip();
    }
    Ok(resolver)
}

/// The networks of trusted peers, for operators.
#[cfg(feature = "console")]
pub(super) fn trusted_networks(settings: &Settings) -> Vec<String> {
    if settings.trust_everyone == Some(true) {
        return vec!["0.0.0.0/0".to_owned(), "::/0".to_owned()];
    }
    let networks = settings.trusted.iter();
    networks.map(|network| network.0.clone()).collect()
}

fn trusted(settings: &Settings) -> TrustedProxies {
    if settings.trust_everyone == Some(true) {
        return TrustedProxies::everyone();
    }
    let networks = settings.trusted.iter().map(|network| &network.0);
    TrustedProxies::parse(networks).expect("each was checked when it was read")
}

/// Checks that no setting makes another one meaningless.
pub(super) fn check_exclusions(settings: &Settings) -> Result<(), ConflictingSettings> {
    let has_list = !settings.trusted.is_empty();
    let trusts_everyone = settings.trust_everyone == Some(true);
    let chain_header = settings.chain_header.as_ref().map(|header| &header.0);
    let has_provider_header = matches!(chain_header, Some(ChainHeader::Provider(_)));
    let conflicts = [
        (
            settings.hops.is_some() && has_list,
            "hops",
            "excludes trusted: give the number of the proxies or their addresses",
        ),
        (
            settings.hops.is_some() && trusts_everyone,
            "hops",
            "excludes trust-everyone: with hops every peer is a proxy already",
        ),
        (
            settings.hops.is_some() && settings.max_hops.is_some(),
            "max-hops",
            "has no effect with hops, which takes one element and walks over none",
        ),
        (
            settings.hops.is_some_and(|hops| hops > 1) && has_provider_header,
            "hops",
            "above 1 finds nothing in this chain-header, which holds one address",
        ),
        (
            settings.max_hops.is_some() && has_provider_header,
            "max-hops",
            "has no effect with this chain-header, which holds one address",
        ),
        (
            has_list && trusts_everyone,
            "trust-everyone",
            "excludes trusted: leave out one of them",
        ),
    ];
    first_of(conflicts)
}

/// Checks that a peer is trusted if a setting is about the headers of trusted peers.
fn check_trust(settings: &Settings) -> Result<(), ConflictingSettings> {
    let is_anyone_trusted = settings.hops.is_some_and(|hops| hops > 0)
        || settings.trust_everyone == Some(true)
        || !settings.trusted.is_empty();
    if is_anyone_trusted {
        return Ok(());
    }
    let why = "has no effect: no peer is trusted, so set trusted or hops";
    first_of([
        (settings.path_header.is_some(), "path-header", why),
        (settings.chain_header.is_some(), "chain-header", why),
        (settings.max_hops.is_some(), "max-hops", why),
        (settings.no_real_ip == Some(true), "no-real-ip", why),
    ])
}

fn first_of<const N: usize>(
    conflicts: [(bool, &'static str, &'static str); N],
) -> Result<(), ConflictingSettings> {
    match conflicts.into_iter().find(|(is_given, ..)| *is_given) {
        Some((_, setting, why)) => Err(ConflictingSettings { setting, why }),
        None => Ok(()),
    }
}
