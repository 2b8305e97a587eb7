//! The golden files, both ways.

use std::collections::BTreeSet;

use agentvm_wire::{
    golden::{self, Outcome},
    message::{Event, Request, Response, decode},
    observer::ObserverEvent,
    stdio::{HEADER_BYTES, Header},
};

use crate::{assert_fresh, texts};

#[test]
fn golden_files_are_fresh() {
    assert_fresh(&texts("golden"), &golden::files());
}

#[test]
fn every_message_has_an_example() {
    let client: BTreeSet<_> = golden::client().iter().map(|sample| golden::name(&sample.envelope)).collect();
    let sidecar: BTreeSet<_> =
        golden::sidecar().iter().map(|sample| golden::name(&sample.envelope)).collect();
    let of_client = Request::NAMES.iter().chain(&["cancel", "credit", "reset", "stop"]);
    let of_sidecar = Response::NAMES.iter().chain(Event::NAMES).chain(&["credit", "reset", "stop"]);
    assert_eq!(client, of_client.copied().collect());
    assert_eq!(sidecar, of_sidecar.copied().collect());
}

#[test]
fn every_example_is_named_for_its_message() {
    for sample in golden::client().iter().chain(&golden::sidecar()) {
        assert!(sample.name.starts_with(golden::name(&sample.envelope)), "{}", sample.name);
    }
}

#[test]
fn each_message_decodes_to_its_value_and_encodes_to_its_text() {
    let files = texts("golden");
    for (folder, samples) in [("client", golden::client()), ("sidecar", golden::sidecar())] {
        for sample in samples {
            let text = &files[&format!("{folder}/{}.json", sample.name)];
            assert_eq!(decode(text).as_ref(), Ok(&sample.envelope), "{}", sample.name);
            assert_eq!(golden::pretty(&sample.text()), *text, "{}", sample.name);
            assert_eq!(decode(&sample.text()), Ok(sample.envelope), "{}", sample.name);
        }
    }
}

#[test]
fn each_line_of_an_observation_decodes_to_its_value_and_encodes_to_its_text() {
    let files = texts("golden");
    for line in golden::observer() {
        let text = &files[&format!("observer/{}.json", line.name)];
        assert_eq!(serde_json::from_str::<ObserverEvent>(text).unwrap(), line.event, "{}", line.name);
        assert_eq!(golden::pretty(&line.text()), *text, "{}", line.name);
        assert!(line.name.starts_with(line.event.kind.as_str()), "{}", line.name);
    }
}

#[test]
fn each_frame_decodes_to_its_value_and_encodes_to_its_bytes() {
    let files = texts("golden");
    for frame in golden::binary() {
        let bytes: Vec<u8> = files[&format!("binary/{}.hex", frame.name)]
            .split_ascii_whitespace()
            .map(|byte| u8::from_str_radix(byte, 16).unwrap())
            .collect();
        assert_eq!(Header::decode(&bytes), Ok(frame.header), "{}", frame.name);
        assert_eq!(&bytes[HEADER_BYTES..], frame.payload, "{}", frame.name);
        assert_eq!(frame.bytes(), bytes, "{}", frame.name);
    }
}

#[test]
fn forms_that_are_only_accepted_are_never_produced() {
    for form in golden::accepted_only() {
        let read = decode(form.text).unwrap();
        let Some(means) = form.means() else { continue };
        assert_ne!(means, form.text, "{}: this form is produced", form.name);
        assert_eq!(decode(&means), Ok(read), "{}: both forms mean the same", form.name);
    }
}

#[test]
fn an_accepted_form_means_what_its_file_says() {
    let files = texts("golden");
    for form in golden::accepted_only() {
        let file: serde_json::Value =
            serde_json::from_str(&files[&format!("accepted-only/{}.json", form.name)]).unwrap();
        let means = form.means().map(|text| serde_json::from_str(&text).unwrap());
        assert_eq!(file["means"], means.unwrap_or(serde_json::Value::Null), "{}", form.name);
    }
}

#[test]
fn rejected_input_gets_exactly_the_recorded_answer() {
    let files = texts("golden");
    for input in golden::rejected() {
        let file: serde_json::Value =
            serde_json::from_str(&files[&format!("rejected/{}.json", input.name)]).unwrap();
        match input.outcome() {
            Outcome::Answer(text) => {
                assert_eq!(file["answer"], serde_json::from_str::<serde_json::Value>(&text).unwrap());
            }
            Outcome::Close(code, reason) => {
                assert_eq!(
                    (&file["close"]["code"], &file["close"]["reason"]),
                    (&code.into(), &reason.into())
                );
            }
        }
    }
}
