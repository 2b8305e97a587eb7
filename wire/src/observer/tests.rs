//! Names that are stable, and the table as text.

use super::*;

#[test]
fn names_are_what_they_are_on_the_wire() {
    fn assert_named<T: Serialize + Copy>(all: &[T], name: fn(T) -> &'static str) {
        for choice in all {
            assert_eq!(serde_json::to_value(choice).unwrap(), name(*choice));
        }
    }
    assert_named(TraceScope::ALL, TraceScope::as_str);
    assert_named(EventCategory::ALL, EventCategory::as_str);
    assert_named(CapabilitySupport::ALL, CapabilitySupport::as_str);
    let categories: Vec<_> = EventCategory::ALL.iter().map(|category| category.as_str()).collect();
    assert_eq!(categories, ["lifecycle", "file", "network", "process"]);
}

#[test]
fn a_kind_is_called_the_same_on_the_wire() {
    for event in crate::golden::observer().iter().map(|sample| &sample.event) {
        assert_eq!(serde_json::to_value(&event.kind).unwrap()["type"], event.kind.as_str());
    }
}

#[test]
fn a_death_by_signal_is_folded_below_zero() {
    let exited = |exit_code, signal| ObserverEventKind::Exited { exit_code, signal }.folded_code();
    assert_eq!(exited(Some(7), None), Some(7));
    assert_eq!(exited(None, Some(9)), Some(-9));
    assert_eq!(ObserverEventKind::Complete.folded_code(), None);
}

#[test]
fn the_summary_is_a_title_and_padded_rows() {
    let capabilities = ObserverCapabilities {
        scope: TraceScope::LaunchedProcessTree,
        categories: vec![
            CategoryCapability::supported(EventCategory::Lifecycle, ObserverBackend::Spawn),
            CategoryCapability::unavailable(EventCategory::File, "seccomp_unotify(2): EBUSY"),
            CategoryCapability::partial(
                EventCategory::Process,
                ObserverBackend::Polling,
                "ptrace(2): EPERM",
                vec!["sampled".to_owned()],
            ),
        ],
    };
    let summary = "observer capabilities (scope=launched-process-tree):\n\
                      \x20 lifecycle  supported    spawn\n\
                   \x20 file       unavailable  -        seccomp_unotify(2): EBUSY\n\
                   \x20 process    partial      polling  ptrace(2): EPERM; gaps: sampled\n";
    assert_eq!(capabilities.render_summary(), summary);
    assert!(capabilities.is_supported(EventCategory::Lifecycle));
    assert!(!capabilities.is_supported(EventCategory::Process));
    assert_eq!(capabilities.support(EventCategory::Network), CapabilitySupport::Unavailable);
}
