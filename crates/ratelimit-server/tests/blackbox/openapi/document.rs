//! The served document: what it lets in, and what it lets out.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use http::Method;
use jsonschema::Validator;
use serde_json::{Value, json};

use crate::server::{HttpResponse, Server};

/// Schemas of answers, which may grow for clients, and not unseen.
const ANSWERS: [&str; 34] = [
    "Answer",
    "Results",
    "Reset",
    "Explanation",
    "Said",
    "Changed",
    "Offenders",
    "Offender",
    "Health",
    "Info",
    "Problem",
    "Simulation",
    "SimulatedRun",
    "LiveHello",
    "LiveHistory",
    "LiveTick",
    "LiveStore",
    "LivePolicy",
    "LiveWatched",
    "Session",
    "PolicyList",
    "PolicyRow",
    "DecidedBy",
    "EnvoyRule",
    "PolicyDetail",
    "PolicyLimit",
    "Forecast",
    "ClientKeyFound",
    "WalkStep",
    "ConfigText",
    "Finding",
    "ConfigFindings",
    "Reloaded",
    "ReloadRejected",
];

pub(super) struct Document {
    json: Value,
    /// Those that were made, by their schemas.
    validators: RefCell<HashMap<String, Rc<Validator>>>,
}

/// One method of one path.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) method: Method,
    pub(super) path: String,
    /// What the query may say, as one object.
    pub(super) query: Option<Value>,
    names: Vec<String>,
    pub(super) body: Option<Value>,
    responses: Value,
}

impl Operation {
    /// The names of all parameters in the query.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    /// Whether the answer does not end.
    pub(super) fn is_stream(&self) -> bool {
        let content = &self.responses["200"]["content"];
        content["text/event-stream"].is_object()
    }

    /// Whether there is anything to be asked wrongly.
    pub(super) fn has_input(&self) -> bool {
        self.body.is_some() || self.query.is_some()
    }
}

impl Document {
    pub(super) async fn of(server: &Server) -> Document {
        let mut json = server.get("/openapi.json").await.json();
        for name in ANSWERS {
            without_more(&mut json["components"]["schemas"][name]);
        }
        Document {
            json,
            validators: RefCell::default(),
        }
    }

    pub(super) fn operations(&self) -> Vec<Operation> {
        let paths = self.json["paths"].as_object().unwrap();
        let each = paths.iter().flat_map(|(path, operations)| {
            let operations = operations.as_object().unwrap();
            operations.iter().map(|(method, it)| Operation {
                method: method.to_uppercase().parse().unwrap(),
                path: self.with_examples(path, &it["parameters"]),
                query: self.query(&it["parameters"]),
                names: self.names(&it["parameters"]),
                body: it
                    .pointer("/requestBody/content/application~1json/schema")
                    .cloned(),
                responses: it["responses"].clone(),
            })
        });
        each.collect()
    }

    /// Follows a reference, if it is one.
    pub(super) fn resolve<'a>(&'a self, schema: &'a Value) -> &'a Value {
        let Some(reference) = schema["$ref"].as_str() else {
            return schema;
        };
        let target = self.json.pointer(reference.strip_prefix('#').unwrap());
        self.resolve(target.unwrap_or_else(|| panic!("{reference} is nowhere")))
    }

    /// All parameters as one object; those that are objects are spread out in the query.
    fn query(&self, parameters: &Value) -> Option<Value> {
        let parameters = parameters.as_array()?.iter().map(|one| self.resolve(one));
        let parameters = parameters.filter(|one| one["in"] != "path");
        let parts = parameters.map(|parameter| {
            assert_eq!(parameter["in"], "query");
            assert_eq!(parameter["required"], false);
            if parameter["explode"] == true {
                return parameter["schema"].clone();
            }
            let name = parameter["name"].as_str().unwrap();
            json!({"type": "object", "properties": {name: parameter["schema"]}})
        });
        let parts: Vec<Value> = parts.collect();
        // OpenAPI cannot say that a call takes no other parameters.
        (!parts.is_empty()).then(|| json!({"allOf": parts, "unevaluatedProperties": false}))
    }

    /// The path with the examples of its parameters.
    fn with_examples(&self, path: &str, parameters: &Value) -> String {
        let parameters = parameters.as_array().into_iter().flatten();
        let parameters = parameters.map(|one| self.resolve(one));
        let of_path = parameters.filter(|one| one["in"] == "path");
        of_path.fold(path.to_owned(), |path, one| {
            let name = format!("{{{}}}", one["name"].as_str().unwrap());
            path.replace(&name, one["example"].as_str().unwrap())
        })
    }

    fn names(&self, parameters: &Value) -> Vec<String> {
        let mut names = Vec::new();
        for parameter in parameters.as_array().into_iter().flatten() {
            let parameter = self.resolve(parameter);
            let members = self.resolve(&parameter["schema"])["properties"].as_object();
            match members {
                Some(members) => names.extend(members.keys().cloned()),
                None => names.extend(parameter["name"].as_str().map(str::to_owned)),
            }
        }
        names
    }

    /// What tells whether a value is what `schema` describes.
    pub(super) fn validator(&self, schema: &Value) -> Rc<Validator> {
        let mut made = self.validators.borrow_mut();
        let validator = made.entry(schema.to_string()).or_insert_with(|| {
            let whole = json!({
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "components": self.json["components"],
                "allOf": [schema],
            });
            Rc::new(jsonschema::validator_for(&whole).unwrap())
        });
        Rc::clone(validator)
    }

    /// What is wrong with an answer, by the document.
    pub(super) fn mistake(&self, operation: &Operation, answer: &HttpResponse) -> Option<String> {
        let response = &operation.responses[answer.status.as_str()];
        if response.is_null() {
            return Some("the status is not in the document".to_owned());
        }
        let response = self.resolve(response);
        self.header_mistake(response, answer)
            .or_else(|| self.body_mistake(response, answer))
    }

    fn header_mistake(&self, response: &Value, answer: &HttpResponse) -> Option<String> {
        let headers = response["headers"].as_object().into_iter().flatten();
        for (name, header) in headers {
            let Some(value) = answer.header(&name.to_lowercase()) else {
                continue;
            };
            let number: Value = serde_json::from_str(value).unwrap_or(Value::Null);
            let schema = &self.resolve(header)["schema"];
            if !self.validator(schema).is_valid(&number) {
                return Some(format!("{name} is {value}"));
            }
        }
        None
    }

    fn body_mistake(&self, response: &Value, answer: &HttpResponse) -> Option<String> {
        let Some(content) = response["content"].as_object() else {
            let nothing = answer.body.is_empty() && answer.header("content-type").is_none();
            return (!nothing).then(|| "there is content".to_owned());
        };
        let content_type = answer.header("content-type").unwrap_or_default();
        let essence = content_type.split(';').next().unwrap_or_default();
        let Some(described) = content.get(essence) else {
            return Some(format!("the content type is {content_type}"));
        };
        let body = match essence {
            "text/plain" => Value::from(&*answer.body),
            _ => answer.json(),
        };
        let validator = self.validator(&described["schema"]);
        let mistake = validator.iter_errors(&body).next();
        mistake.map(|why| why.to_string())
    }
}

/// Lets objects have no members but those that are described.
fn without_more(schema: &mut Value) {
    if schema["properties"].is_object() && schema["additionalProperties"].is_null() {
        schema["additionalProperties"] = false.into();
    }
}
