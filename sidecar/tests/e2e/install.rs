//! What `docs/INSTALL.md` hands out, as far as this machine can tell: the files are well formed and say what the page says.
//! That the seccomp profile lets sandboxes be built is tested where it is put into force, in `vm_tests/hosts.rs`.

use std::{path::Path, process::Command};

use serde_json::Value;

const PAGE: &str = include_str!("../../../docs/INSTALL.md");
const APPARMOR: &str = include_str!("../../../docs/install/apparmor");
const POD: &str = include_str!("../../../docs/install/pod.yaml");

#[test]
fn the_apparmor_profile_lets_the_installed_program_make_user_namespaces() {
    let lines: Vec<&str> = APPARMOR.lines().map(str::trim).collect();
    assert!(lines.contains(&"userns,"), "{APPARMOR}");
    let folders = "/usr/{bin,local/bin,libexec}/agentvm-sidecar";
    assert!(
        lines.contains(&&*format!("profile agentvm-sidecar {folders} flags=(unconfined) {{")),
        "{APPARMOR}"
    );
    for folder in ["/usr/bin", "/usr/local/bin", "/usr/libexec"] {
        assert!(PAGE.contains(&format!("`{folder}`")), "{folder}");
    }
    let version = Command::new("apparmor_parser").arg("--version").output();
    let version =
        version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let Some(4..) = version.split(' ').find_map(|word| word.split_once('.')?.0.parse::<u32>().ok()) else {
        return println!("skipped: no apparmor_parser of version 4 or later to parse it: {version:?}");
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/install/apparmor");
    let parsed = Command::new("apparmor_parser").args(["-Q", "-K"]).arg(path).output().unwrap();
    assert!(parsed.status.success(), "{}", String::from_utf8_lossy(&parsed.stderr));
}

#[test]
fn the_pod_is_what_the_page_says_of_it() {
    let pod: Value = serde_saphyr::from_str(POD).unwrap();
    let (spec, container) = (&pod["spec"], &pod["spec"]["containers"][0]["securityContext"]);
    assert_eq!((&pod["kind"], &spec["hostUsers"]), (&"Pod".into(), &false.into()));
    assert_eq!(container["procMount"], "Unmasked");
    assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
    assert_eq!(spec["securityContext"]["appArmorProfile"]["type"], "Unconfined");
    let profile = spec["securityContext"]["seccompProfile"]["localhostProfile"].as_str().unwrap();
    assert!(PAGE.contains(&format!("/var/lib/kubelet/seccomp/{profile}")), "{profile}");
    for said in ["hostUsers: false", "procMount: Unmasked", "appArmorProfile: Unconfined", "--json"] {
        assert!(PAGE.contains(said), "{said}");
    }
}

#[test]
fn every_proof_that_the_security_page_names_is_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = include_str!("../../../SECURITY.md");
    let links = page.split('[').filter_map(|link| link.split_once("](")).filter_map(|(name, rest)| {
        let (path, _) = rest.split_once(')')?;
        path.strip_suffix(".rs").map(|_| (name, path))
    });
    let mut proofs = 0;
    for (name, path) in links.filter(|(name, _)| name.strip_suffix(".rs").is_none()) {
        let source =
            std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(source.contains(&format!("fn {name}()")), "{path} has no test {name}");
        proofs += 1;
    }
    assert!(proofs > 20, "{proofs}");
}
