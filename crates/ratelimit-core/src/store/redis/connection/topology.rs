//! The reply of one cluster node about the slot map: CLUSTER SLOTS, and masters without slots.

use redis::{RedisResult, Value};

/// A range of hash slots and its master, or a master without slots.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::store::redis) struct SlotRange {
    /// First and last hash slot, both included. `None` for a master without slots.
    pub(in crate::store::redis) slots: Option<(u16, u16)>,
    /// The host as the cluster announces it.
    pub(in crate::store::redis) host: String,
    pub(in crate::store::redis) port: u16,
}

impl SlotRange {
    /// Whether the hash slot is in the range.
    pub(in crate::store::redis) fn contains(&self, slot: u16) -> bool {
        self.slots
            .is_some_and(|(first, last)| (first..=last).contains(&slot))
    }
}

/// Fills in the host that was queried where a node left it out, because it has no announced address.
pub(in crate::store::redis) fn complete_hosts(ranges: &mut [SlotRange], host: &str) {
    let nameless = ranges.iter_mut().filter(|range| range.host.is_empty());
    nameless.for_each(|range| host.clone_into(&mut range.host));
}

/// Fetches the slot map from one node, in one round trip.
pub(in crate::store::redis) async fn request_topology(
    mut connection: redis::aio::MultiplexedConnection,
) -> RedisResult<Vec<SlotRange>> {
    let mut pipeline = redis::pipe();
    pipeline
        .cmd("CLUSTER")
        .arg("SLOTS")
        .cmd("CLUSTER")
        .arg("NODES");
    let (slots, nodes): (Vec<Value>, String) = pipeline.query_async(&mut connection).await?;
    let mut ranges: Vec<SlotRange> = slots.iter().filter_map(SlotRange::decode).collect();
    // Hash slots may be moving to a master without slots, and ASK redirects to it before it serves any.
    ranges.extend(nodes.lines().filter_map(master_without_slots));
    Ok(ranges)
}

/// The master of a line of CLUSTER NODES that has no slots: `id host:port@bus flags master ...`.
fn master_without_slots(line: &str) -> Option<SlotRange> {
    let words: Vec<&str> = line.split(' ').collect();
    let &[_, address, flags, _, _, _, _, "connected"] = words.as_slice() else {
        return None;
    };
    let flags: Vec<&str> = flags.split(',').collect();
    let unfit = ["slave", "fail", "fail?", "handshake", "noaddr"];
    if !flags.contains(&"master") || unfit.iter().any(|flag| flags.contains(flag)) {
        return None;
    }
    let (host, port) = address.split('@').next()?.rsplit_once(':')?;
    Some(SlotRange {
        slots: None,
        host: host.to_owned(),
        port: port.parse().ok()?,
    })
}

impl SlotRange {
    /// Reads one range of a reply to CLUSTER SLOTS: first, last, master, replicas. A row of another
    /// shape is skipped.
    fn decode(row: &Value) -> Option<SlotRange> {
        let Value::Array(row) = row else { return None };
        let [
            Value::Int(first),
            Value::Int(last),
            Value::Array(master),
            ..,
        ] = row.as_slice()
        else {
            return None;
        };
        let [host, Value::Int(port), ..] = master.as_slice() else {
            return None;
        };
        Some(SlotRange {
            slots: Some((u16::try_from(*first).ok()?, u16::try_from(*last).ok()?)),
            host: match host {
                Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
                Value::SimpleString(host) => host.clone(),
                Value::Nil => String::new(),
                _ => return None,
            },
            port: u16::try_from(*port).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_without_slots_is_known_and_others_are_not_taken_for_one() {
        let idle = "07c3 127.0.0.1:7006@17006 master - 0 1426238317239 4 connected";
        let found = master_without_slots(idle).unwrap();
        assert_eq!(
            (found.host.as_str(), found.port, found.slots),
            ("127.0.0.1", 7006, None)
        );

        for line in [
            "67ed 127.0.0.1:7002@17002 master - 0 1426238316232 2 connected 5461-10922",
            "6ec2 127.0.0.1:7003@17003 slave 67ed 0 1426238318243 3 connected",
            "824f 127.0.0.1:7004@17004 master,fail - 0 1426238317741 5 disconnected",
            "",
        ] {
            assert_eq!(master_without_slots(line), None, "{line}");
        }
    }
}
