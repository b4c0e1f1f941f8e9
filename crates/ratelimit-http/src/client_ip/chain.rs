//! The elements of the headers that name a client, nearest hop first.

use std::net::IpAddr;

use crate::client_ip::{
    forwarded,
    headers::{self, ChainHeader, HeaderLines, ProviderHeader},
    parse::{self, parse_address},
};
use crate::syntax::trim;

/// One element of a header, and its address if it has one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element<'a> {
    pub(super) text: &'a [u8],
    pub(super) addr: Option<IpAddr>,
}

/// The elements of all `X-Forwarded-For` lines.
pub(super) fn x_forwarded_for(
    headers: &(impl HeaderLines + ?Sized),
) -> impl Iterator<Item = Element<'_>> {
    let lines = headers.lines(headers::X_FORWARDED_FOR).rev();
    let elements = lines.flat_map(|line| line.rsplit(|byte| *byte == b','));
    with_addresses(elements, parse_address)
}

/// The elements of all `Forwarded` lines, with their `for` parameters.
pub(super) fn forwarded(
    headers: &(impl HeaderLines + ?Sized),
) -> impl Iterator<Item = Element<'_>> {
    let lines = headers.lines(headers::FORWARDED).rev();
    let elements = lines.flat_map(forwarded::elements_from_the_right);
    with_addresses(elements, forwarded::client)
}

/// The elements without spaces around them, and without empty ones.
fn with_addresses<'a>(
    elements: impl Iterator<Item = &'a [u8]>,
    address: impl Fn(&[u8]) -> Option<IpAddr>,
) -> impl Iterator<Item = Element<'a>> {
    elements
        .map(trim)
        .filter(|element| !element.is_empty())
        .map(move |text| Element {
            text,
            addr: address(text),
        })
}

/// The value of a provider's header.
pub(super) fn provider<'a>(
    header: &'a ProviderHeader,
    headers: &'a (impl HeaderLines + ?Sized),
) -> Option<Element<'a>> {
    let text = single(headers.lines(header.name()))?;
    let addr = provider_address(header, text);
    Some(Element { text, addr })
}

fn provider_address(header: &ProviderHeader, value: &[u8]) -> Option<IpAddr> {
    if !header.always_ends_in_port() {
        return parse_address(value);
    }
    let colon = value.iter().rposition(|byte| *byte == b':')?;
    let (addr, port) = (&value[..colon], &value[colon + 1..]);
    if !parse::is_port(port) {
        return None;
    }
    parse::bare(addr).or_else(|| parse::with_port(addr, |_| false))
}

/// The value of a single `X-Real-IP`.
pub(super) fn x_real_ip(headers: &(impl HeaderLines + ?Sized)) -> Option<Element<'_>> {
    let text = single(headers.lines(headers::X_REAL_IP))?;
    let addr = parse_address(text);
    Some(Element { text, addr })
}

/// The texts of all lines of a header, nearest hop first: its elements, or whole lines of a provider's header.
pub(super) fn texts<'a>(
    header: &'a ChainHeader,
    headers: &'a (impl HeaderLines + ?Sized),
) -> Vec<&'a [u8]> {
    match header {
        ChainHeader::XForwardedFor => x_forwarded_for(headers).map(|one| one.text).collect(),
        ChainHeader::Forwarded => forwarded(headers).map(|one| one.text).collect(),
        ChainHeader::Provider(header) => headers.lines(header.name()).rev().map(trim).collect(),
    }
}

/// The value of a field that has one line. Of two lines the client may have written one.
fn single<'a>(mut lines: impl Iterator<Item = &'a [u8]>) -> Option<&'a [u8]> {
    let value = lines.next()?;
    if lines.next().is_some() {
        return None;
    }
    Some(trim(value))
}
