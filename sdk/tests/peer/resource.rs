//! Warnings before a limit is met, and what is used.

use std::sync::mpsc::{self, Receiver};

use agentvm_sdk::{
    AgentOs, ClientError, LimitWarning, ProcessLimits, Resource, SpawnOptions,
    wire::{
        message::{Event, Request, Response},
        resource::{self, ResourceUsage},
    },
};
use tokio::join;

use crate::{
    NONE,
    scene::{caught_up, scene, scene_with, started},
};

fn warnings(vm: &AgentOs) -> Receiver<LimitWarning> {
    let (sender, warnings) = mpsc::channel();
    vm.on_limit_warning(move |warning| sender.send(warning).unwrap()).detach();
    warnings
}

/// The next warning: it is called for on another thread.
fn next(warnings: &Receiver<LimitWarning>) -> (String, u64, u64, u32) {
    let warning = warnings.recv_timeout(std::time::Duration::from_secs(20)).expect("a warning");
    (warning.limit, warning.observed, warning.capacity, warning.fill_percent)
}

fn told(observed: u64) -> Event {
    Event::LimitWarning(resource::LimitWarning {
        limit: "max_processes".to_owned(),
        observed,
        capacity: 10,
        fill_percent: u32::try_from(observed * 10).unwrap(),
    })
}

#[test]
fn a_warning_of_the_sidecar_reaches_every_handler_and_a_dropped_one_no_more() {
    scene(async |vm, peer| {
        let (first, second) = (warnings(&vm), warnings(&vm));
        let (sender, unsubscribed) = mpsc::channel();
        drop(vm.on_limit_warning(move |warning| sender.send(warning).unwrap()));
        let panicking = vm.on_limit_warning(|_| panic!("a handler that misbehaves"));
        for observed in [8, 9] {
            peer.event(told(observed)).await;
        }
        for warnings in [&first, &second] {
            assert_eq!(next(warnings), ("max_processes".to_owned(), 8, 10, 80));
            assert_eq!(next(warnings), ("max_processes".to_owned(), 9, 10, 90));
        }
        assert!(unsubscribed.recv().is_err(), "it is gone, and heard nothing");
        drop(panicking);
    });
}

#[test]
fn warnings_that_a_busy_handler_misses_are_counted() {
    scene(async |vm, peer| {
        let (sender, warned) = mpsc::channel();
        let (go, gone) = mpsc::channel::<()>();
        let subscription = vm.on_limit_warning(move |warning| {
            sender.send((warning.observed, warning.dropped)).unwrap();
            // Held up until the test lets go of it.
            let _ = gone.recv();
        });
        peer.event(told(0)).await;
        assert_eq!(warned.recv().unwrap(), (0, 0));
        for observed in 1..=100 {
            peer.event(told(observed)).await;
        }
        caught_up(&vm, peer).await;
        drop(go);
        assert_eq!(warned.recv().unwrap(), (37, 36), "64 wait, the oldest go");
        assert_eq!(warned.iter().take(63).last(), Some((100, 0)));
        drop(subscription);
    });
}

#[test]
fn a_registry_that_fills_with_live_processes_is_warned_of_before_it_refuses() {
    let mut limits = ProcessLimits::default();
    limits.spawned = 10;
    scene_with(limits, async |vm, peer| {
        let warnings = warnings(&vm);
        // Ended ones make room and count for nothing.
        for _ in 0..10 {
            vm.spawn("worker", NONE, SpawnOptions::new()).unwrap();
            let guest = peer.starts().await;
            peer.exits(&guest, 0).await;
            caught_up(&vm, peer).await;
        }
        let mut live = Vec::new();
        for _ in 0..10 {
            live.push(started(&vm, peer).await);
        }
        assert_eq!(next(&warnings), ("spawned_processes".to_owned(), 8, 10, 80));
        let refused = vm.spawn("worker", NONE, SpawnOptions::new()).unwrap_err();
        let ClientError::ResourceLimit { name, limit, observed } = refused else { panic!("{refused}") };
        assert_eq!((name, limit, observed), ("spawned_processes", 10, 10));
        assert!(warnings.try_recv().is_err(), "once");
    });
}

#[test]
fn retained_output_is_warned_of_and_told() {
    let mut limits = ProcessLimits::default();
    limits.vm_retained_output_bytes = 512 << 10;
    scene_with(limits, async |vm, peer| {
        let warnings = warnings(&vm);
        let (_process, guest) = started(&vm, peer).await;
        peer.floods(guest.stdout(), 256 << 10).await;
        caught_up(&vm, peer).await;
        assert!(warnings.try_recv().is_err(), "half full");
        peer.floods(guest.stdout(), 448 << 10).await;
        let (limit, observed, capacity, _) = next(&warnings);
        assert_eq!((&*limit, capacity), ("vm_retained_output_bytes", 512 << 10));
        assert!(observed >= capacity / 100 * 80, "{observed}");

        let counted = Resource {
            name: "max_processes".to_owned(),
            used: 1,
            limit: Some(10),
            unit: "processes".to_owned(),
        };
        let (usage, ()) = join!(vm.resource_usage(), async {
            let (id, _, Request::ResourceUsage(_)) = peer.request().await else { panic!("resource_usage") };
            let resources = vec![counted.clone()];
            peer.answer(id, &Response::ResourceUsage(ResourceUsage { resources })).await;
        });
        let usage = usage.unwrap().resources;
        assert_eq!(usage[0], counted);
        assert_eq!((&*usage[1].name, usage[1].used, usage[1].limit), ("spawned_processes", 1, Some(1024)));
        assert_eq!((&*usage[2].name, usage[2].limit), ("vm_retained_output_bytes", Some(512 << 10)));
        assert!(usage[2].used >= 448 << 10, "{usage:?}");
    });
}
