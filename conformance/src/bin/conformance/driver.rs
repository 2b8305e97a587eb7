//! The driver over agentvm's Rust SDK: performs the steps it reads, reports each, judges nothing.

mod machine;
mod watched;

use std::{
    io::{self, BufRead as _, Write as _},
    thread,
};

use agentvm_conformance::{report::Report, scenario::Action};
use anyhow::{Context as _, Result};
use serde::Deserialize;
use tokio::sync::mpsc;

use machine::Machine;

#[derive(Deserialize)]
struct Order {
    step: usize,
    #[serde(flatten)]
    action: Action,
}

pub(crate) fn run() -> Result<()> {
    let (sender, orders) = mpsc::unbounded_channel();
    thread::spawn(move || read_orders(&sender));
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(perform(orders))
}

/// The end of standard input is the order to end, whatever is being done.
fn read_orders(sender: &mpsc::UnboundedSender<Result<Order>>) {
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let order = serde_json::from_str(&line).with_context(|| format!("no order: {line}"));
        if sender.send(order).is_err() {
            return;
        }
    }
    std::process::exit(0);
}

async fn perform(mut orders: mpsc::UnboundedReceiver<Result<Order>>) -> Result<()> {
    let mut machine = Machine::default();
    while let Some(order) = orders.recv().await {
        let Order { step, action } = order?;
        let report = machine.perform(action).await.unwrap_or_else(|error| machine::failed(&error));
        let mut stdout = io::stdout().lock();
        serde_json::to_writer(&mut stdout, &Report { step, ..report })?;
        stdout.write_all(b"\n")?;
        stdout.flush()?;
    }
    Ok(())
}
