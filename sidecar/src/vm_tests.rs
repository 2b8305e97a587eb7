//! Behaviour of real VMs, seen from the sidecar and from inside.
use super::*;
use crate::init::*;
use agentvm_wire::id::*;
use std::os::fd::*;
fn spec(command: &str, args: &[&str], env: Vec<(Vec<u8>, Vec<u8>)>, out: OwnedFd) -> StartSpec {
    StartSpec {
        command: command.into(),
        args: args.iter().map(|a| a.as_bytes().to_vec()).collect(),
        env,
        cwd: b"/workspace".to_vec(),
        stdin: Stdio::Null,
        stdout: Stdio::Fd(out),
        stderr: Stdio::ToStdout,
    }
}
#[test]
fn smoke() {
    let z = zygote::Zygote::start().unwrap_or_else(|e| panic!("{e}"));
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    rt.block_on(async {
        let mut vm = z.create_vm(VmId::random(), &Default::default()).await.unwrap_or_else(|e| panic!("{e}"));
        println!("{:#?}", vm.report);
        let (r, w) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        if let Some((u,g)) = vm.guest_ids { rustix::fs::fchown(&w, Some(rustix::fs::Uid::from_raw(u)), Some(rustix::fs::Gid::from_raw(g))).unwrap(); }
        let env = vm.environment.iter().map(|(k,v)| (k.clone().into_bytes(), v.clone().into_bytes())).collect();
        let script = std::env::var("SCRIPT").unwrap_or("id; hostname; ls -la / /dev /etc; pwd; echo hi > /dev/stdout; cat /proc/mounts; ps ax; cat /proc/self/status | grep -E 'Cap|Secc|NoNew'; ulimit -a".into());
        vm.commands.start(ProcessId(1), spec("bash", &["-c", &script], env, w));
        println!("{:?}", vm.events.next().await);
        let t = std::thread::spawn(move || { use std::io::Read; let mut s = String::new(); std::fs::File::from(r).read_to_string(&mut s).unwrap(); s });
        println!("{:?}", vm.events.next().await);
        println!("{}", t.join().unwrap());
        vm.commands.end();
        println!("{:?}", vm.events.next().await);
    });
}
