//! What no client can do to its key, whatever bytes it sends.

use std::{
    fmt::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
};
use ratelimit_http::{
    client_ip::{
        ChainHeader, ClientIpResolver, ClientIpSource, TrustedProxies, WalkVerdict,
        has_forwarding_headers, is_private, parse_address,
    },
    key::ExplicitKey,
};

type Lines = Vec<(&'static str, Vec<u8>)>;

const PROXY: &str = "10.0.0.1";
const CHAINS: [&str; 3] = ["x-forwarded-for", "forwarded", "x-real-ip"];

const GARBAGE: &[&str] = &[
    "010.0.0.2",
    "0x0a.0.0.2",
    "167772162",
    "10.2",
    "10.0.0.2/32",
    "10.0.0.2:",
    "10.0.0.2:65536",
    "[10.0.0.2]",
    "unknown",
    "_hidden",
    "fd00::2%",
    "[fd00::2",
    "fd00::2]",
    "\"10.0.0.2\"",
    "for=10.0.0.2",
    "10.0.0.2 10.0.0.3",
    "::ffff:010.0.0.2",
    "\u{a0}10.0.0.2",
    "\u{b}10.0.0.2",
    "localhost",
];

const NAMES: &[&str] = &[
    "x-forwarded-for",
    "forwarded",
    "x-real-ip",
    "cf-connecting-ip",
    "cloudfront-viewer-address",
];

fn search() -> ClientIpResolver {
    ClientIpResolver::behind(
        TrustedProxies::parse(["10.0.0.0/8", "fd00::/8"]).expect("two networks"),
    )
}

fn key(search: &ClientIpResolver, peer: IpAddr, lines: &Lines) -> String {
    search
        .resolve(Some(peer), &lines[..])
        .expect("the peer has an address")
        .to_string()
}

fn key_of(addr: IpAddr, prefix: u8) -> String {
    let search = ClientIpResolver::default()
        .ipv6_prefix(prefix)
        .expect("32 to 128");
    key(&search, addr, &Lines::new())
}

/// Bytes that mean something to the parsers, mixed with any others.
fn text() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: &[&str] = &[
        "for=",
        "For=\"",
        "\"",
        "\\",
        "\\\"",
        ",",
        ", ",
        ";",
        "=",
        "[",
        "]",
        "::",
        ":",
        ":80",
        "%",
        "%eth0",
        "%4",
        "_x",
        "unknown",
        "10.0.0.2",
        "6.6.6.6",
        "010.0.0.2",
        "fd00::2",
        "2001:db8::1",
        "::ffff:10.0.0.2",
        " ",
        "\t",
        "host=a",
    ];
    const ELEMENTS: &[&str] = &[
        "6.6.6.6",
        "[2001:db8::6]:80",
        "for=6.6.6.6",
        "for=\"[2001:db8::6]\"",
        "proto=http;for=\"\\6.6.6.6:_x\";host=\"a\\\",\\\\\"",
        "6.6.6.6:80",
    ];
    let piece = prop_oneof![
        4 => select(PIECES).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..4),
    ];
    let cut =
        |(element, end): (&str, Index)| element.as_bytes()[..=end.index(element.len())].to_vec();
    prop_oneof![
        2 => vec(piece, 0..8).prop_map(|pieces| pieces.concat()),
        1 => select(ELEMENTS).prop_map(|element| element.as_bytes().to_vec()),
        1 => (select(ELEMENTS), any::<Index>()).prop_map(cut),
    ]
}

fn lines() -> impl Strategy<Value = Lines> {
    vec((select(NAMES), text()), 0..6)
}

/// Addresses that are often close to each other and to the edges of networks.
fn addr() -> impl Strategy<Value = IpAddr> {
    let v4 = prop_oneof![any::<u32>(), (0..256_u32).prop_map(|low| 0xcb00_7100 | low)];
    let v6 = prop_oneof![
        any::<u128>(),
        (0..128_u32).prop_map(|bit| 0x2001_0db8_0000_0000_0000_0000_0000_0000 ^ 1 << bit),
        any::<u32>().prop_map(|v4| 0xffff_0000_0000 | u128::from(v4)),
        any::<u32>().prop_map(u128::from),
    ];
    prop_oneof![
        v4.prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        v6.prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))),
    ]
}

/// Two addresses, often different in one bit only.
fn neighbours() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    let flip = |(addr, bit): (IpAddr, u32)| match addr {
        IpAddr::V4(v4) => (
            addr,
            IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() ^ 1 << (bit % 32))),
        ),
        IpAddr::V6(v6) => (
            addr,
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() ^ 1 << bit)),
        ),
    };
    let mapped = |v4: Ipv4Addr| (IpAddr::V4(v4), IpAddr::V6(v4.to_ipv6_mapped()));
    let compatible = |v4: Ipv4Addr| {
        (
            IpAddr::V4(v4),
            IpAddr::V6(Ipv6Addr::from_bits(v4.to_bits().into())),
        )
    };
    prop_oneof![
        (addr(), addr()),
        (addr(), 0..128_u32).prop_map(flip),
        any::<Ipv4Addr>().prop_map(mapped),
        any::<Ipv4Addr>().prop_map(compatible),
    ]
}

/// How many leading bits two addresses of one family share.
fn shared_bits(a: IpAddr, b: IpAddr) -> Option<u32> {
    match (a.to_canonical(), b.to_canonical()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => Some((a.to_bits() ^ b.to_bits()).leading_zeros()),
        (IpAddr::V6(a), IpAddr::V6(b)) => Some((a.to_bits() ^ b.to_bits()).leading_zeros()),
        _ => None,
    }
}

fn client() -> impl Strategy<Value = IpAddr> {
    let trusted = TrustedProxies::parse(["10.0.0.0/8", "fd00::/8"]).expect("two networks");
    addr().prop_filter("a client is no proxy", move |addr| !trusted.contains(*addr))
}

/// One address, as each of many programs writes it.
fn spelling(addr: IpAddr) -> impl Strategy<Value = String> {
    let mut spellings = Vec::new();
    let v6 = match addr.to_canonical() {
        IpAddr::V4(v4) => {
            spellings.extend([v4.to_string(), format!("{v4}:0"), format!("{v4}:65535")]);
            spellings.extend([format!("::ffff:{v4}"), format!("0:0:0:0:0:FFFF:{v4}")]);
            v4.to_ipv6_mapped()
        }
        IpAddr::V6(v6) => v6,
    };
    let groups = v6.segments().map(|group| format!("{group:x}")).join(":");
    let padded = v6.segments().map(|group| format!("{group:04X}")).join(":");
    for v6 in [v6.to_string(), groups, padded] {
        let upper = v6.to_uppercase();
        spellings.extend([
            format!("[{v6}]"),
            format!("[{v6}]:443"),
            format!("{v6}%eth0"),
            format!("[{v6}%25en1]:1"),
        ]);
        spellings.extend([v6, upper]);
    }
    select(spellings)
}

/// How a proxy writes the address it saw into `name`.
fn element(name: &str, addr: IpAddr, port: Option<u16>) -> String {
    let mut node = match (addr, port) {
        (IpAddr::V6(v6), _) if name == "forwarded" => format!("[{v6}]"),
        (IpAddr::V6(v6), Some(_)) => format!("[{v6}]"),
        (addr, _) => addr.to_string(),
    };
    if let Some(port) = port {
        write!(node, ":{port}").expect("a string takes all");
    }
    match name {
        "forwarded" => format!("proto=https;for=\"{node}\";host=\"a\\\", for=6.6.6.6;b=\\\"c\""),
        _ => node,
    }
}

/// Appends to the last line of `name`, or adds a line, as proxies do.
fn append(lines: &mut Lines, name: &'static str, element: &str, joined: bool) {
    match lines.iter_mut().rfind(|line| line.0 == name) {
        Some(line) if joined => line.1.extend([b", ", element.as_bytes()].concat()),
        _ => lines.push((name, element.as_bytes().to_vec())),
    }
}

/// The network of an address, without bits after the prefix.
fn written(addr: IpAddr, prefix: u8) -> String {
    let network: IpAddr = match addr {
        IpAddr::V4(v4) => {
            let host = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
            Ipv4Addr::from_bits(v4.to_bits() & !host).into()
        }
        IpAddr::V6(v6) => {
            let host = u128::MAX.checked_shr(prefix.into()).unwrap_or(0);
            Ipv6Addr::from_bits(v6.to_bits() & !host).into()
        }
    };
    format!("{network}/{prefix}")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn behind_an_appending_proxy_no_client_bytes_change_the_key(
        sent in lines(),
        client in client(),
        port in any::<Option<u16>>(),
        name in select(&CHAINS[..2]),
        inner in any::<bool>(),
        joined in any::<(bool, bool)>(),
    ) {
        let search = search().chain_header(name.parse().expect("a header's name"));
        let mut lines = sent;

        append(&mut lines, name, &element(name, client, port), joined.0);
        if inner {
            append(&mut lines, name, &element(name, "10.0.0.2".parse().expect("an address"), port), joined.1);
        }

        let found = key(&search, PROXY.parse().expect("an address"), &lines);
        prop_assert_eq!(found, key_of(client, 64));
    }

    #[test]
    fn left_of_garbage_no_bytes_change_the_key(
        sent in lines(),
        garbage in select(GARBAGE),
        inner in any::<bool>(),
        joined in any::<(bool, bool)>(),
    ) {
        let mut lines = sent;

        append(&mut lines, "x-forwarded-for", garbage, joined.0);
        if inner {
            append(&mut lines, "x-forwarded-for", "10.0.0.2", joined.1);
        }

        let verified = if inner { "ip:10.0.0.2" } else { "ip:10.0.0.1" };
        prop_assert_eq!(key(&search(), PROXY.parse().expect("an address"), &lines), verified);
    }

    #[test]
    fn at_a_counted_hop_no_client_bytes_change_the_key(
        sent in lines(),
        client in client(),
        name in select(&CHAINS[..2]),
        hops in 1..4_usize,
        joined in any::<bool>(),
    ) {
        let search = ClientIpResolver::behind_hops(hops).chain_header(name.parse().expect("a header's name"));
        let mut lines = sent;

        append(&mut lines, name, &element(name, client, None), joined);
        for _ in 1..hops {
            append(&mut lines, name, &element(name, "198.51.100.2".parse().expect("an address"), None), joined);
        }

        let found = key(&search, PROXY.parse().expect("an address"), &lines);
        prop_assert_eq!(found, key_of(client, 64));
    }

    #[test]
    fn from_an_untrusted_peer_no_header_matters(
        lines in lines(),
        peer in client(),
        name in select(&["x-forwarded-for", "forwarded", "cf-connecting-ip", "cloudfront-viewer-address"][..]),
    ) {
        let search = search().chain_header(name.parse().expect("a header's name"));

        prop_assert_eq!(key(&search, peer, &lines), key_of(peer, 64));
    }

    #[test]
    fn one_address_in_any_spelling_is_one_key(
        (addr, spelling) in client().prop_flat_map(|addr| (Just(addr), spelling(addr))),
        name in select(&["x-forwarded-for", "x-real-ip"][..]),
        prefix in 32..=128_u8,
    ) {
        let search = search().ipv6_prefix(prefix).expect("32 to 128");
        let lines = vec![(name, spelling.as_bytes().to_vec())];

        prop_assert_eq!(key(&search, PROXY.parse().expect("an address"), &lines), key_of(addr, prefix), "{}", spelling);
    }

    #[test]
    fn one_address_in_any_spelling_is_trusted_or_not(
        (addr, spelling) in addr().prop_flat_map(|addr| (Just(addr), spelling(addr))),
    ) {
        let proxies = TrustedProxies::parse([PROXY.to_owned(), addr.to_string()]).expect("two addresses");
        let lines = vec![("x-forwarded-for", format!("203.0.113.254, {spelling}").into_bytes())];

        for peer in [PROXY, "::ffff:10.0.0.1", "::ffff:a00:1"] {
            let found = key(&ClientIpResolver::behind(proxies.clone()), peer.parse().expect("an address"), &lines);
            prop_assert_eq!(found, "ip:203.0.113.254", "{} from {}", spelling, peer);
        }
    }

    #[test]
    fn two_addresses_are_one_key_only_when_the_prefix_says_so((a, b) in neighbours(), prefix in 32..=128_u8) {
        let same = shared_bits(a, b).is_some_and(|bits| bits >= u32::from(if b.to_canonical().is_ipv4() { 32 } else { prefix }));

        prop_assert_eq!(key_of(a, prefix) == key_of(b, prefix), same);
    }

    #[test]
    fn two_addresses_that_differ_next_to_the_prefix_are_told_apart_exactly(a in any::<u128>(), prefix in 33..128_u8) {
        let flipped = |bit: u8| IpAddr::V6(Ipv6Addr::from_bits(a ^ 1 << (127 - bit)));
        let addr = IpAddr::V6(Ipv6Addr::from_bits(a));

        prop_assert_ne!(key_of(addr, prefix), key_of(flipped(prefix - 1), prefix));
        prop_assert_eq!(key_of(addr, prefix), key_of(flipped(prefix), prefix));
    }

    #[test]
    fn a_network_holds_what_shares_its_prefix((network, addr) in neighbours(), prefix in 1..=128_u8) {
        let network = network.to_canonical();
        let prefix = if network.is_ipv4() { prefix.div_ceil(4) } else { prefix };
        let proxies = TrustedProxies::parse([written(network, prefix)]).expect("a network");

        let holds = shared_bits(network, addr).is_some_and(|bits| bits >= u32::from(prefix));
        prop_assert_eq!(proxies.contains(addr), holds);
    }

    #[test]
    fn a_network_ends_exactly_at_its_prefix(bits in any::<u128>(), prefix in 1..128_u8) {
        let addr = |bits| IpAddr::V6(Ipv6Addr::from_bits(bits));
        let proxies = TrustedProxies::parse([written(addr(bits), prefix)]).expect("a network");

        prop_assert!(proxies.contains(addr(bits ^ 1 << (127 - prefix))));
        prop_assert!(!proxies.contains(addr(bits ^ 1 << (128 - prefix))));
    }

    #[test]
    fn many_networks_hold_what_one_of_them_holds(
        networks in vec((0..64_u32, 20..=32_u8), 0..8),
        low in 0..0x4000_u32,
    ) {
        let entry = |(at, prefix): &(u32, u8)| written(Ipv4Addr::from_bits(0xc000_0000 | at << 8).into(), *prefix);
        let addr = IpAddr::V4(Ipv4Addr::from_bits(0xc000_0000 | low));

        let all = TrustedProxies::parse(networks.iter().map(entry)).expect("networks");
        let any = networks.iter().any(|network| TrustedProxies::parse([entry(network)]).expect("a network").contains(addr));
        prop_assert_eq!(all.contains(addr), any);
    }

    #[test]
    fn a_trace_finds_the_client_that_resolve_finds(
        lines in lines(),
        peer in proptest::option::of(prop_oneof![Just(PROXY.parse().expect("an address")), addr()]),
        name in select(NAMES),
        hops in proptest::option::of(0_usize..5),
        max_hops in 0_usize..5,
    ) {
        let search = match hops {
            Some(hops) => ClientIpResolver::behind_hops(hops),
            None => search().max_hops(max_hops),
        };
        let search = search.chain_header(name.parse().expect("a header's name"));
        for search in [search.clone(), search.trust_unix_sockets()] {
            let walk = search.trace(peer, &lines[..]);

            let found = search.resolve(peer, &lines[..]);
            prop_assert_eq!(walk.client, found);
            let is_end = |verdict| matches!(verdict, WalkVerdict::Client | WalkVerdict::PeerUntrusted);
            let ends: Vec<_> = walk.steps.iter().filter(|step| is_end(step.verdict)).collect();
            let Ok(found) = found else {
                prop_assert!(ends.len() <= 1);
                continue;
            };
            prop_assert_eq!(ends.len(), 1, "{:?}", walk.steps);
            let source = ends[0].header.as_deref();
            match found.source() {
                ClientIpSource::Peer => prop_assert_eq!(source, None),
                ClientIpSource::XRealIp => prop_assert_eq!(source, Some("x-real-ip")),
                _ => prop_assert_eq!(source, Some(name)),
            }
            if let (Some(addr), true) = (parse_address(ends[0].value.as_bytes()), name == "x-forwarded-for") {
                prop_assert_eq!(addr.to_canonical(), found.whole_addr());
            }
        }
    }

    #[test]
    fn nothing_panics_and_every_request_with_a_peer_has_a_key(
        lines in lines(),
        peer in addr(),
        name in prop_oneof![text(), select(&CHAINS[..]).prop_map(|name| name.as_bytes().to_vec())],
        entries in vec(text(), 0..4),
        hops in any::<Option<u8>>(),
        max_hops in any::<usize>(),
        prefix in any::<u8>(),
    ) {
        let lossy = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
        let proxies = TrustedProxies::parse(entries.iter().map(lossy)).unwrap_or_else(|_| TrustedProxies::everyone());
        let chain_header = lossy(&name).parse().unwrap_or(ChainHeader::Forwarded);
        let search = match hops {
            Some(hops) => ClientIpResolver::behind_hops(hops.into()),
            None => ClientIpResolver::behind(proxies).max_hops(max_hops),
        };
        let search = search.chain_header(chain_header).trust_unix_sockets();
        let search = search.clone().ipv6_prefix(prefix).unwrap_or(search);

        prop_assert!(search.resolve(Some(peer), &lines[..]).is_ok());
        for name in NAMES {
            let search = ClientIpResolver::behind(TrustedProxies::everyone()).chain_header(name.parse().expect("a header's name"));
            prop_assert!(search.resolve(Some(peer), &lines[..]).is_ok());
        }
        let _ = search.resolve(None, &lines[..]);
        let _ = search.trusts(Some(peer));
        let _ = search.looks_like_untrusted_proxy(peer, &lines[..]);
        let _ = parse_address(&name);
    }

    #[test]
    fn an_explicit_key_is_short_printable_and_never_empty(
        text in prop_oneof![
            text(),
            vec(any::<u8>(), 0..600),
            vec(select(&b"%0aAzZ=&k\xc3\xa9"[..]), 0..300),
            "[ -$&-~]{250,260}".prop_map(String::into_bytes),
            vec(any::<u8>(), 0..260).prop_map(|bytes| bytes.iter().flat_map(|byte| format!("%{byte:02X}").into_bytes()).collect()),
            vec(32..127_u8, 250..260).prop_map(|bytes| bytes.iter().flat_map(|byte| format!("%{byte:02X}").into_bytes()).collect()),
        ],
    ) {
        let headers = [("x-api-key", text.clone())];
        let query = [b"k=", &text[..]].concat();
        let found = [ExplicitKey::from_header(&headers[..], "x-api-key"), ExplicitKey::from_query(&query, "k")];

        for key in found.into_iter().flatten().flatten() {
            prop_assert!((1..=256).contains(&key.as_str().len()));
            prop_assert!(!key.as_str().bytes().any(|byte| byte.is_ascii_control()));
            prop_assert_eq!(key.to_string(), format!("key:{}", key.as_str()));
        }
    }

    #[test]
    fn a_key_survives_its_percent_encoding(key in "\\PC{1,40}", plain in any::<bool>()) {
        let encode = |byte: u8| match byte {
            byte if plain && byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
            byte => format!("%{byte:02x}"),
        };
        let query = format!("a=b&key={}", key.bytes().map(encode).collect::<String>());

        let found = ExplicitKey::from_query(query.as_bytes(), "key").expect("valid").expect("present");
        prop_assert_eq!(found.as_str(), key);
    }
}

#[test]
fn ten_thousand_hops_end_the_walk_at_the_limit() {
    let chain = format!("6.6.6.6{}", ", 10.0.0.2".repeat(10_000));
    let lines = vec![("x-forwarded-for", chain.into_bytes())];

    assert_eq!(
        key(&search(), PROXY.parse().expect("an address"), &lines),
        "ip:10.0.0.2"
    );
}

#[test]
fn a_network_of_all_addresses_is_rejected() {
    for entry in ["0.0.0.0/0", "::/0", "::ffff:0:0/96"] {
        let error = TrustedProxies::parse(["10.0.0.0/8", entry]).expect_err("everyone");
        assert_eq!(error.text(), entry);
        assert!(
            error.to_string().contains("TrustedProxies::everyone"),
            "{error}"
        );
    }

    let search = ClientIpResolver::behind(TrustedProxies::everyone());
    let lines = vec![("x-forwarded-for", b"203.0.113.7, 2001:db8::1".to_vec())];
    assert_eq!(
        key(&search, "8.8.8.8".parse().expect("an address"), &lines),
        "ip:203.0.113.7"
    );
}

#[test]
fn a_private_peer_with_forwarding_headers_looks_like_a_proxy() {
    let forwarded = [("x-forwarded-for", b"203.0.113.7")];
    let peer = |text: &str| text.parse().expect("an address");

    assert!(has_forwarding_headers(&forwarded[..]) && is_private(peer("192.168.0.1")));
    assert!(search().looks_like_untrusted_proxy(peer("192.168.0.1"), &forwarded[..]));
    assert!(!search().looks_like_untrusted_proxy(peer("192.168.0.1"), &Lines::new()[..]));
    assert!(!search().looks_like_untrusted_proxy(peer("10.0.0.1"), &forwarded[..]));
    assert!(!search().looks_like_untrusted_proxy(peer("203.0.113.9"), &forwarded[..]));
    assert!(
        !ClientIpResolver::behind_hops(1)
            .looks_like_untrusted_proxy(peer("192.168.0.1"), &forwarded[..])
    );
}

#[test]
fn a_prefix_that_would_join_unrelated_clients_is_rejected() {
    for bits in [0, 1, 31, 129, 255] {
        let error = search().ipv6_prefix(bits).expect_err("not 32 to 128");
        assert!(error.to_string().contains("32 to 128"), "{error}");
    }
    assert!(search().ipv6_prefix(32).is_ok() && search().ipv6_prefix(128).is_ok());
}

#[test]
fn a_hop_count_trusts_every_peer_and_zero_trusts_none() {
    let peer = Some("198.51.100.9".parse().expect("an address"));

    assert!(ClientIpResolver::behind_hops(1).trusts(peer));
    assert!(!ClientIpResolver::behind_hops(0).trusts(peer));
    assert!(!ClientIpResolver::behind_hops(1).trusts(None));
    assert!(search().trust_unix_sockets().trusts(None));
}

#[test]
#[should_panic(expected = "no walk to end")]
fn a_hop_count_has_no_walk_to_bound() {
    let _ = ClientIpResolver::behind_hops(1).max_hops(3);
}
