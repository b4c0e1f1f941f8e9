//! W3C trace context: the header `traceparent`.

use axum::http::HeaderMap;

/// The ids of a valid `traceparent`, in the digits of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceParent<'a> {
    pub(crate) trace_id: &'a str,
    pub(crate) parent_id: &'a str,
}

impl<'a> TraceParent<'a> {
    /// The trace context of a request. An invalid or repeated header counts as none, as the specification asks.
    pub(crate) fn of(headers: &'a HeaderMap) -> Option<TraceParent<'a>> {
        let mut lines = headers.get_all("traceparent").iter();
        let (Some(line), None) = (lines.next(), lines.next()) else {
            return None;
        };
        TraceParent::parse(line.to_str().ok()?)
    }

    /// `VERSION-TRACE_ID-PARENT_ID-FLAGS`, of 2, 32, 16 and 2 lower-case hexadecimal digits.
    ///
    /// Version 00 ends there; a later version may go on after another `-`. Version ff and ids of zeros are invalid.
    fn parse(text: &'a str) -> Option<TraceParent<'a>> {
        let mut fields = text.splitn(5, '-');
        let mut digits = |count: usize| fields.next().filter(|field| is_hex(field, count));
        let version = digits(2).filter(|version| *version != "ff")?;
        let trace_id = digits(32).filter(|id| !is_zero(id))?;
        let parent_id = digits(16).filter(|id| !is_zero(id))?;
        digits(2)?;
        if version == "00" && fields.next().is_some() {
            return None;
        }
        Some(TraceParent {
            trace_id,
            parent_id,
        })
    }
}

fn is_hex(field: &str, count: usize) -> bool {
    field.len() == count
        && field
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_zero(id: &str) -> bool {
    id.bytes().all(|digit| digit == b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn the_example_of_the_specification_is_read() {
        let context = TraceParent::parse(VALID);

        assert_eq!(
            context,
            Some(TraceParent {
                trace_id: "0af7651916cd43dd8448eb211c80319c",
                parent_id: "b7ad6b7169203331",
            })
        );
        let later = VALID.replacen("00", "cc", 1) + "-what-comes-later";
        assert_eq!(TraceParent::parse(&later), context);
    }

    #[test]
    fn everything_else_is_no_context() {
        let zero_trace = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
        let zero_parent = "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01";
        for text in [
            "",
            "00",
            zero_trace,
            zero_parent,
            &VALID.to_uppercase(),
            &VALID.replacen("00", "ff", 1),
            &format!("{VALID}-"),
            &format!("{VALID}-x"),
            &format!("{VALID} "),
            &VALID[..VALID.len() - 1],
            &VALID.replace('-', "_"),
            &format!("cc{}x", &VALID[2..]),
        ] {
            assert_eq!(TraceParent::parse(text), None, "{text}");
        }
    }
}
