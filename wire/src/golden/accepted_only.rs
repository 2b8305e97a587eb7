//! Forms that are read but never produced: what another implementation, or a later version, may send.

use super::{encode, pretty};
use crate::message::decode;

/// A form that is read but never produced.
#[derive(Debug, Clone, Copy)]
pub struct AcceptedOnly {
    /// Its file, without folder and ending.
    pub name: &'static str,
    /// The message as it may arrive.
    pub text: &'static str,
}

impl AcceptedOnly {
    /// The message that it is read as, in the form in which it would be produced; `None`: it is ignored.
    pub fn means(&self) -> Option<String> {
        encode(&decode(self.text).expect("accepted forms are accepted"))
    }

    pub(super) fn file(&self) -> String {
        let means = self.means().unwrap_or_else(|| "null".into());
        pretty(&format!(r#"{{"read":{},"means":{means}}}"#, self.text))
    }
}

/// Unknown fields, absent defaults, explicit empty values, unknown names.
pub fn accepted_only() -> Vec<AcceptedOnly> {
    let form = |name, text| AcceptedOnly { name, text };
    vec![
        form("absent_body", r#"{"kind":"request","id":4,"type":"list_vms"}"#),
        form("null_body", r#"{"kind":"request","id":4,"type":"list_vms","body":null}"#),
        form("empty_scope", r#"{"kind":"request","id":4,"scope":{},"type":"list_vms","body":{}}"#),
        form("fields_in_any_order", r#"{"body":{},"type":"list_vms","id":4,"kind":"request"}"#),
        form(
            "unknown_fields",
            r#"{"kind":"request","id":4,"trace":"af31","type":"list_vms","body":{"filter":{"deep":[1.5,null]}}}"#,
        ),
        form(
            "vm_config_explicit_defaults",
            r#"{"kind":"request","id":2,"type":"create_vm","body":{"isolation":"sandbox","env":{},"cwd":null,"hostname":null,"user":{},"writable_layer":{"size_bytes":null,"inodes":null},"limits":{"pids":null}}}"#,
        ),
        form(
            "execute_absent_defaults",
            r#"{"kind":"request","id":5,"scope":{"vm":"7d1e5a30-9c0b-4f0e-8a51-2b6c9d3e4f01"},"type":"execute","body":{"process":1000000,"command":"true"}}"#,
        ),
        form(
            "execute_explicit_empty",
            r#"{"kind":"request","id":5,"scope":{"vm":"7d1e5a30-9c0b-4f0e-8a51-2b6c9d3e4f01"},"type":"execute","body":{"process":1000000,"command":"true","command_b64":null,"args":[],"env":{},"cwd":null,"stdin":"null","stdout":"null","stderr":"null","streams":{"stdin":null},"drain":null}}"#,
        ),
        form(
            "bytes_though_utf8",
            r#"{"kind":"request","id":5,"scope":{"vm":"7d1e5a30-9c0b-4f0e-8a51-2b6c9d3e4f01"},"type":"execute","body":{"process":1000000,"command":"ignored","command_b64":"dHJ1ZQ=="}}"#,
        ),
        form(
            "welcome_absent_limits",
            r#"{"kind":"response","seq":1,"id":1,"type":"welcome","body":{"protocol":1,"sidecar":{"name":"other","version":"9"},"os":"linux","arch":"aarch64","session":"s","grace_ms":0,"limits":{"window_bytes":65536}}}"#,
        ),
        form(
            "unknown_error_code",
            r#"{"kind":"response","seq":8,"id":6,"type":"rejected","body":{"code":"EDQUOT","message":"disk quota exceeded","details":{}}}"#,
        ),
        form(
            "unknown_exit_cause",
            r#"{"kind":"event","seq":11,"scope":{"vm":"7d1e5a30-9c0b-4f0e-8a51-2b6c9d3e4f01"},"type":"process_exited","body":{"process":1000000,"exit_code":137,"signal":"SIGKILL","cause":"frozen","user_us":1,"sys_us":2,"max_rss_bytes":3,"exited_at_ms":4}}"#,
        ),
        form("unknown_event", r#"{"kind":"event","seq":12,"type":"weather","body":{"rain":true}}"#),
        form("reset_without_message", r#"{"kind":"reset","stream":2,"code":"EIO"}"#),
        form("ack", r#"{"kind":"ack","seq":12}"#),
    ]
}
