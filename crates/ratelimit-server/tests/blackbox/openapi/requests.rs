//! Requests made from schemas, aimed at their edges.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use ratelimit_tests::random::Random;
use serde_json::{Map, Value, json};

use super::document::Document;

/// Makes values that are mostly what a schema describes, and often just not.
pub(super) struct Maker<'a> {
    pub(super) document: &'a Document,
    pub(super) random: Random,
    /// Receipts that the server gave, to be asked with again.
    pub(super) receipts: &'a [String],
}

impl Maker<'_> {
    pub(super) fn value(&mut self, schema: &Value) -> Value {
        let document = self.document;
        let schema = document.resolve(schema);
        if self.random.one_in(24) {
            return self.anything();
        }
        if let Some(choices) = list(schema, "enum") {
            return self.choice(choices);
        }
        match schema["type"].as_str() {
            Some("string") if schema["format"] == "receipt" => self.receipt(),
            Some("string") => self.text(),
            Some("boolean") => self.random.one_in(2).into(),
            Some("integer") => self.number(schema),
            Some("array") => self.array(schema),
            Some("object") => Value::Object(self.object(schema)),
            _ => match list(schema, "oneOf").or_else(|| list(schema, "anyOf")) {
                Some(kinds) => {
                    let kind = self.one_of(kinds);
                    self.value(kind)
                }
                None => Value::Null,
            },
        }
    }

    /// Members of an object that are described, each there or not, and now and then one that is not.
    pub(super) fn object(&mut self, schema: &Value) -> Map<String, Value> {
        let document = self.document;
        let schema = document.resolve(schema);
        let mut members = Map::new();
        for part in list(schema, "allOf").unwrap_or_default() {
            members.extend(self.object(part));
        }
        let required = list(schema, "required").unwrap_or_default();
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            let is_needed = required.iter().any(|needed| needed == name);
            if (is_needed && !self.random.one_in(16)) || self.random.one_in(3) {
                members.insert(name.clone(), self.value(schema));
            }
        }
        if self.random.one_in(16) {
            members.insert("other".to_owned(), self.anything());
        }
        members
    }

    fn array(&mut self, schema: &Value) -> Value {
        let most = schema["maxItems"].as_u64().unwrap();
        if self.random.one_in(16) {
            let length = most + self.random.range(0, 1);
            return json!(vec![json!({}); usize::try_from(length).unwrap()]);
        }
        let length = self.random.range(0, 4);
        (0..length).map(|_| self.value(&schema["items"])).collect()
    }

    fn choice(&mut self, choices: &[Value]) -> Value {
        let choice = self.one_of(choices).clone();
        match (self.random.range(0, 11), &choice) {
            (0, Value::String(text)) => format!("{text}X").into(),
            (1, Value::String(text)) => text[1..].into(),
            (2, _) => "".into(),
            _ => choice,
        }
    }

    fn text(&mut self) -> Value {
        let length = usize::try_from(self.random.range(1, 12)).unwrap();
        let repeated = |text: &str, times: usize| Value::from(text.repeat(times));
        match self.random.range(0, 19) {
            0 => repeated("k", 256),
            1 => repeated("k", 257),
            2 => repeated("\u{10ffff}", 64),
            3 => repeated("é", 257),
            4 => repeated("", 1),
            5 => format!("a{}", char::from(self.random.one_of(b"\0\t\n\r\x1f\x7f"))).into(),
            6 => self
                .random
                .one_of(&["&", "=", "%", "+", "#", "?", "%41", "{}", " ", "\u{80}"])
                .into(),
            7 => "null".into(),
            _ => repeated(self.random.one_of(&["k", "user:", "é", "/", "日"]), length),
        }
    }

    fn receipt(&mut self) -> Value {
        let last = self.receipts.len() as u64 - 1;
        let receipt = &self.receipts[usize::try_from(self.random.range(0, last)).unwrap()];
        match self.random.range(0, 5) {
            0 => self.text(),
            1 => receipt.to_uppercase().into(),
            2 => receipt[2..].into(),
            _ => receipt.clone().into(),
        }
    }

    fn number(&mut self, schema: &Value) -> Value {
        let (least, most) = (&schema["minimum"], &schema["maximum"]);
        match self.random.range(0, 15) {
            0 => least.clone(),
            1 => (least.as_i64().unwrap() - 1).into(),
            2 => most.clone(),
            3 => serde_json::from_str(&format!("{}", u128::from(most.as_u64().unwrap()) + 1))
                .unwrap(),
            4 => (-1).into(),
            5 => json!(1.5),
            6 => json!(2.0),
            7 => json!("1"),
            8 => json!(1e308),
            _ => self.random.range(1, 120).into(),
        }
    }

    fn anything(&mut self) -> Value {
        let all = [
            json!(null),
            json!(true),
            json!(-7),
            json!([]),
            json!({}),
            json!("x"),
            json!([1]),
        ];
        self.one_of(&all).clone()
    }

    fn one_of<'v>(&mut self, values: &'v [Value]) -> &'v Value {
        let last = values.len() as u64 - 1;
        &values[usize::try_from(self.random.range(0, last)).unwrap()]
    }
}

fn list<'v>(schema: &'v Value, name: &str) -> Option<&'v [Value]> {
    schema[name].as_array().map(Vec::as_slice)
}

/// An object as a query, and as who reads the query understands it.
pub(super) fn query(members: &Map<String, Value>) -> (String, Value) {
    let mut pairs = Vec::new();
    let mut read = Map::new();
    for (name, value) in members {
        let text = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let encoded = utf8_percent_encode(&text, NON_ALPHANUMERIC);
        pairs.push(format!("{name}={encoded}"));
        // Only these are numbers; whatever does not look like one stays a text.
        let is_number = matches!(&**name, "permits" | "most" | "limit") && is_plain_number(&text);
        let value = if is_number {
            serde_json::from_str(&text).unwrap()
        } else {
            text.into()
        };
        read.insert(name.clone(), value);
    }
    (pairs.join("&"), read.into())
}

fn is_plain_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain && (digits == "0" || !digits.starts_with('0'))
}
