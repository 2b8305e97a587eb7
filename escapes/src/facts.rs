//! What there is on the host for the attacker to look for.

use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};

use anyhow::{Context as _, Result, ensure};

/// Listeners and IPC objects of the host; they are gone when this is dropped.
pub(crate) struct Bait {
    listeners: [Option<TcpListener>; 2],
    holder: Child,
    key: i32,
}

impl Bait {
    pub(crate) fn lay(attacker: &Path) -> Result<Self> {
        // Tests beside each other are one process, and lay one each.
        static LAID: AtomicI32 = AtomicI32::new(0);
        let key = i32::try_from(std::process::id())? << 8 | LAID.fetch_add(1, Ordering::Relaxed) & 0xff;
        let listeners = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]
            .map(|address| TcpListener::bind((address, 0)).ok());
        let mut holder = Command::new(attacker)
            .args(["hold", &key.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{} does not start", attacker.display()))?;
        let mut line = String::new();
        BufReader::new(holder.stdout.take().context("it has an output")?).read_line(&mut line)?;
        let bait = Self { listeners, holder, key };
        ensure!(line == "held\n", "the host's IPC objects could not be made");
        Ok(bait)
    }

    /// The attacker's FACTS.
    pub(crate) fn facts(&self, memory_is_limited: bool) -> String {
        let ports =
            self.listeners.each_ref().map(|listener| Some(listener.as_ref()?.local_addr().ok()?.port()));
        serde_json::json!({
            "host_pid": std::process::id(), "listeners": ports, "lan": lan(), "key": self.key,
            "memory_is_limited": memory_is_limited,
        })
        .to_string()
    }
}

impl Drop for Bait {
    fn drop(&mut self) {
        // Its input ends, and it removes them.
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

/// The address that the host would use towards a network. Connecting a datagram socket sends nothing.
fn lan() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}
