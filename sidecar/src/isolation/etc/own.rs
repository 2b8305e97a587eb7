//! The files of `/etc` that are ours rather than the host's.

use crate::isolation::plan::Plan;

/// The same in every VM.
pub(super) const OF_ALL: [(&str, &str); 6] = [
    (
        "passwd",
        "root:x:0:0:root:/root:/bin/sh\n\
         agentos:x:1000:1000:agentos:/home/agentos:/bin/sh\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    ),
    ("group", "root:x:0:\nagentos:x:1000:\nnogroup:x:65534:\n"),
    (
        "nsswitch.conf",
        "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\nprotocols: files\n",
    ),
    ("resolv.conf", "# No network beyond this VM.\n"),
    ("shells", "/bin/sh\n/bin/bash\n/usr/bin/sh\n/usr/bin/bash\n"),
    ("environment", ""),
];

/// Those that name the VM.
pub(super) fn of_vm(plan: &Plan) -> [(&'static str, String); 2] {
    let name = &plan.hostname;
    [
        ("hostname", format!("{name}\n")),
        ("hosts", format!("127.0.0.1 localhost {name}\n::1 localhost ip6-localhost ip6-loopback\n")),
    ]
}
