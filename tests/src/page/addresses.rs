//! Ports of a page, and the free ones that stand for them.

use std::{cell::RefCell, collections::BTreeMap};

use regex_lite::{Captures, Regex};

use crate::ports::free_port;

const REDIS: u16 = 6379;

/// Which port a page's port is while the page is typed.
#[derive(Debug)]
pub(super) struct Addresses {
    ports: RefCell<BTreeMap<u16, u16>>,
    address: Regex,
}

impl Addresses {
    /// With the ports that programs have when none is given, and a Redis if there is one.
    pub(super) fn new(redis: Option<u16>) -> Addresses {
        let address = r"(redis://)?(localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\])(:[0-9]+)?";
        let addresses = Addresses {
            ports: RefCell::default(),
            address: Regex::new(address).expect("an expression"),
        };
        addresses
            .ports
            .borrow_mut()
            .extend(redis.map(|port| (REDIS, port)));
        for port in [3000, 8080] {
            addresses.port(port);
        }
        addresses
    }

    /// The text with the ports that are used.
    pub(super) fn replace(&self, text: &str) -> String {
        let replaced = self.address.replace_all(text, |found: &Captures<'_>| {
            let scheme = found.get(1).map_or("", |scheme| scheme.as_str());
            let shown = found
                .get(3)
                .and_then(|port| port.as_str()[1..].parse().ok());
            let default = (!scheme.is_empty()).then_some(REDIS);
            let host = match &found[2] {
                "0.0.0.0" if shown.is_some() => "127.0.0.1",
                host => host,
            };
            match shown.or(default) {
                None | Some(0) => found[0].to_owned(),
                Some(port) => format!("{scheme}{host}:{}", self.port(port)),
            }
        });
        replaced.into_owned()
    }

    /// Lines `SHOWN USED` of all ports so far.
    pub(super) fn list(&self) -> String {
        let ports = self.ports.borrow();
        let lines = ports.iter().map(|(shown, used)| format!("{shown} {used}"));
        lines.map(|line| line + "\n").collect()
    }

    fn port(&self, shown: u16) -> u16 {
        *self
            .ports
            .borrow_mut()
            .entry(shown)
            .or_insert_with(free_port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_replaced_by_the_same_one_everywhere() {
        let addresses = Addresses::new(Some(1234));
        let used = addresses.port(8080);

        let text = "curl localhost:8080 http://127.0.0.1:8080/ --listen 0.0.0.0:8080 127.0.0.1:0 10.0.0.1:8080 127.0.0.1";

        assert_eq!(
            addresses.replace(text),
            format!(
                "curl localhost:{used} http://127.0.0.1:{used}/ --listen 127.0.0.1:{used} 127.0.0.1:0 10.0.0.1:8080 127.0.0.1"
            )
        );
        assert_eq!(
            addresses.replace("redis://localhost redis://127.0.0.1:6379"),
            "redis://localhost:1234 redis://127.0.0.1:1234"
        );
    }
}
