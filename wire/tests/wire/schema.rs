//! The schemas say what the decoder says.

use agentvm_wire::{
    golden::{self, Input},
    schema,
};
use jsonschema::Validator;
use serde_json::Value;

use crate::{assert_fresh, texts};

fn validator(name: &str) -> Validator {
    let schema: Value = serde_json::from_str(&texts("schema")[name]).unwrap();
    jsonschema::meta::validate(&schema).unwrap();
    jsonschema::validator_for(&schema).unwrap()
}

fn validate(validator: &Validator, name: &str, text: &str) {
    let message = serde_json::from_str(text).unwrap();
    if let Err(error) = validator.validate(&message) {
        panic!("{name}: {error} at {}", error.instance_path());
    }
}

#[test]
fn schemas_are_fresh() {
    assert_fresh(&texts("schema"), &schema::files());
}

#[test]
fn every_example_validates_against_the_schema_of_its_end() {
    for (file, samples) in [("client.json", golden::client()), ("sidecar.json", golden::sidecar())] {
        let validator = validator(file);
        for sample in samples {
            validate(&validator, sample.name, &sample.text());
        }
    }
}

#[test]
fn every_line_of_an_observation_validates() {
    let validator = validator("observer.json");
    for line in golden::observer() {
        validate(&validator, line.name, &line.text());
    }
}

#[test]
fn forms_that_are_only_accepted_validate_too() {
    let (client, sidecar) = (validator("client.json"), validator("sidecar.json"));
    // A body of null is read as none; names of a later version are in no schema of this one.
    let unknown = ["null_body", "unknown_event", "unknown_exit_cause"];
    for form in golden::accepted_only() {
        let message: Value = serde_json::from_str(form.text).unwrap();
        let of_sidecar = matches!(message["kind"].as_str(), Some("response" | "event"));
        let validator = if of_sidecar { &sidecar } else { &client };
        assert_eq!(validator.is_valid(&message), !unknown.contains(&form.name), "{}", form.name);
    }
}

#[test]
fn what_the_decoder_refuses_for_its_shape_no_schema_allows() {
    let validator = validator("client.json");
    // Refused for what came before, or for what a schema does not express.
    let beyond = [
        "before_hello",
        "duplicate_field",
        "id_does_not_rise",
        "not_base64",
        "scope_is_no_vm",
        "second_hello",
    ];
    for rejected in golden::rejected() {
        let Input::Text(text) = rejected.input else { continue };
        let Ok(message) = serde_json::from_str(text) else { continue };
        assert_eq!(validator.is_valid(&message), beyond.contains(&rejected.name), "{}", rejected.name);
    }
}

#[test]
fn every_integer_is_bounded() {
    fn walk(schema: &Value, path: &str) {
        let integer = match &schema["type"] {
            Value::Array(types) => types.contains(&"integer".into()),
            other => other == "integer",
        };
        if integer {
            assert!(schema["minimum"].is_i64() && schema["maximum"].is_u64(), "{path}: {schema}");
            assert!(schema["maximum"].as_u64() < Some(1 << 53), "{path}: {schema}");
        }
        match schema {
            Value::Object(fields) => {
                fields.iter().for_each(|(name, value)| walk(value, &format!("{path}/{name}")));
            }
            Value::Array(items) => items.iter().for_each(|value| walk(value, path)),
            _ => {}
        }
    }
    walk(&schema::client(), "client");
    walk(&schema::sidecar(), "sidecar");
    walk(&schema::observer(), "observer");
}
