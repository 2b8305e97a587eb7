//! JSON Schemas of whole text messages, what a client may say and what a sidecar may say, and of a line of an observation.
//!
//! They describe what is *read*: a field with a default is not required, unknown fields are allowed.

use std::collections::BTreeMap;

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Value, json};

use crate::{
    error::Code,
    id::{RequestId, StreamId},
    message::{Event, MAX_INTEGER, Request, Response, Scope},
    observer::ObserverEvent,
};

/// Every file of `schema/`: its name and its text.
pub fn files() -> BTreeMap<String, String> {
    let text = |schema: &Value| serde_json::to_string_pretty(schema).expect("a schema is plain JSON") + "\n";
    BTreeMap::from([
        ("client.json".to_owned(), text(&client())),
        ("observer.json".to_owned(), text(&observer())),
        ("sidecar.json".to_owned(), text(&sidecar())),
    ])
}

/// Any text message of a client.
pub fn client() -> Value {
    let mut schemas = Schemas::new();
    let envelope = [schemas.field::<RequestId>("id", true), schemas.field::<Scope>("scope", false)];
    let mut messages = schemas.typed::<Request>("request", &envelope);
    let cancel = [schemas.field::<RequestId>("id", true)];
    messages.push(plain("cancel", &cancel));
    messages.extend(schemas.of_streams());
    let ack = [schemas.field::<u64>("seq", true)];
    messages.push(plain("ack", &ack));
    schemas.one_of("agentvm protocol v1: a text message of a client", &messages)
}

/// Any text message of a sidecar.
pub fn sidecar() -> Value {
    let mut schemas = Schemas::new();
    let envelope = [schemas.field::<u64>("seq", true), schemas.field::<RequestId>("id", true)];
    let mut messages = schemas.typed::<Response>("response", &envelope);
    let envelope = [schemas.field::<u64>("seq", true), schemas.field::<Scope>("scope", false)];
    messages.extend(schemas.typed::<Event>("event", &envelope));
    messages.extend(schemas.of_streams());
    schemas.one_of("agentvm protocol v1: a text message of a sidecar", &messages)
}

/// One event of an observation.
pub fn observer() -> Value {
    let mut schemas = Schemas::new();
    let event = ObserverEvent::json_schema(&mut schemas.0).to_value();
    schemas.one_of("agentvm protocol v1: a line of an observation's stream", &[event])
}

/// A field of the envelope.
struct Field {
    name: &'static str,
    schema: Value,
    required: bool,
}

struct Schemas(SchemaGenerator);

impl Schemas {
    fn new() -> Self {
        Self(SchemaSettings::draft2020_12().for_deserialize().into_generator())
    }

    fn field<T: JsonSchema>(&mut self, name: &'static str, required: bool) -> Field {
        Field { name, schema: self.0.subschema_for::<T>().to_value(), required }
    }

    /// The messages of a set, each within its envelope.
    fn typed<T: JsonSchema>(&mut self, kind: &str, envelope: &[Field]) -> Vec<Value> {
        let set = T::json_schema(&mut self.0).to_value();
        let messages = set["oneOf"].as_array().expect("a message set is a choice of messages").clone();
        messages.into_iter().map(|message| self.within(kind, envelope, message)).collect()
    }

    /// A message `{type, body}` with the fields of its envelope before them. An absent body is an empty one, so it is
    /// required only where the body itself requires a field.
    fn within(&self, kind: &str, envelope: &[Field], mut message: Value) -> Value {
        let body = message["properties"]["body"]["$ref"].as_str().and_then(|path| path.rsplit('/').next());
        let body = body.and_then(|name| self.0.definitions().get(name));
        let body_required = body.is_none_or(|body| body.get("required").is_some());
        let mut whole = plain(kind, envelope);
        for name in ["type", "body"] {
            whole["properties"][name] = message["properties"][name].take();
        }
        let required = whole["required"].as_array_mut().expect("plain makes a list");
        required.push("type".into());
        required.extend(body_required.then(|| "body".into()));
        whole["description"] = message["description"].take();
        whole
    }

    /// What either end says of a stream.
    fn of_streams(&mut self) -> [Value; 3] {
        let credit = [
            self.field::<StreamId>("stream", true),
            self.field::<u64>("received", true),
            self.field::<u64>("limit", true),
        ];
        let reset = [
            self.field::<StreamId>("stream", true),
            self.field::<Code>("code", true),
            self.field::<String>("message", false),
        ];
        let stop = [self.field::<StreamId>("stream", true), self.field::<Code>("code", true)];
        [plain("credit", &credit), plain("reset", &reset), plain("stop", &stop)]
    }

    fn one_of(mut self, title: &str, messages: &[Value]) -> Value {
        let mut schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": title,
            "oneOf": messages,
            "$defs": self.0.take_definitions(true),
        });
        bound_integers(&mut schema);
        schema
    }
}

/// A message that consists of its kind and fields.
fn plain(kind: &str, fields: &[Field]) -> Value {
    let mut properties = json!({ "kind": { "type": "string", "const": kind } });
    let mut required = vec!["kind"];
    for field in fields {
        properties[field.name] = field.schema.clone();
        required.extend(field.required.then_some(field.name));
    }
    json!({ "type": "object", "properties": properties, "required": required })
}

/// Gives every integer the bounds that its Rust type and the protocol set.
fn bound_integers(schema: &mut Value) {
    let bounds = match schema.get("format").and_then(Value::as_str) {
        Some("uint64") => Some((0, MAX_INTEGER)),
        Some("uint32") => Some((0, u64::from(u32::MAX))),
        Some("int32") => Some((i64::from(i32::MIN), u64::from(i32::MAX.unsigned_abs()))),
        _ => None,
    };
    match schema {
        Value::Object(fields) => {
            if let Some((minimum, maximum)) = bounds {
                fields.insert("minimum".into(), minimum.into());
                fields.insert("maximum".into(), maximum.into());
            }
            fields.values_mut().for_each(bound_integers);
        }
        Value::Array(items) => items.iter_mut().for_each(bound_integers),
        _ => {}
    }
}
