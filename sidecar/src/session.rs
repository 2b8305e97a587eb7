//! A session: one client, its VMs, and what it asks.

mod policy;

use std::{
    collections::{BTreeMap, HashMap},
    future::pending,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use agentvm_wire::{
    connection::Violation,
    error::{Code, Rejection},
    id::{RequestId, VmId},
    message::{Request, Response, Scope},
    session::{BUILD, Hello, Limits, Peer, Welcome, negotiate},
    vm::{VmConfig, VmCreated, Vms},
};
use futures_util::FutureExt as _;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
    task::JoinSet,
};
use tokio_tungstenite::WebSocketStream;
use tokio_util::sync::CancellationToken;

use crate::{
    errno,
    isolation::Step,
    link::{self, Ended, Handler, Link},
    observer::capabilities,
    server::{Proof, Token},
    vm::Vm,
    zygote::{BootError, Zygote},
};

pub use policy::Policy;

/// All that a client without the token learns.
const UNAUTHENTICATED: &str = "unauthenticated";

/// One client's session.
struct Session {
    zygote: Zygote,
    policy: Policy,
    link: Arc<Link>,
    vms: Mutex<Residents>,
    /// The session is over: what is still being built is given up.
    over: CancellationToken,
}

#[derive(Default)]
struct Residents {
    ready: HashMap<VmId, Arc<Vm>>,
    /// Their ids in the order of their creation, by its number.
    order: BTreeMap<u64, VmId>,
    created: u64,
    building: u64,
}

impl Residents {
    /// A VM that was being built is ready; its number by creation.
    fn admit(&mut self, vm: &Arc<Vm>) -> u64 {
        self.building -= 1;
        self.created += 1;
        self.order.insert(self.created, vm.id);
        self.ready.insert(vm.id, vm.clone());
        self.created
    }

    fn remove(&mut self, number: u64) {
        let id = self.order.remove(&number);
        id.and_then(|id| self.ready.remove(&id));
    }
}

/// A VM that was asked for.
struct Order {
    request: RequestId,
    received: Instant,
    config: VmConfig,
}

/// How a client shows that it may have a session.
pub(crate) enum Admission {
    /// It launched this process.
    Launched,
    /// It knows the token, and says so in time.
    Token {
        /// What it must know.
        token: Token,
        /// How long it may take to say so.
        limit: Duration,
        /// Lifts the bounds of a connection that has shown nothing yet.
        proof: Proof,
    },
}

impl Admission {
    fn admits(&self, hello: &Hello) -> bool {
        match self {
            Self::Launched => true,
            Self::Token { token, proof, .. } => {
                let admitted = token.is(hello.token.as_deref());
                if admitted {
                    proof.accept();
                }
                admitted
            }
        }
    }

    /// Resolves if the session is not open in time.
    async fn overdue(&self, link: &Link) {
        match self {
            Self::Token { limit, .. } => {
                tokio::time::sleep(*limit).await;
                if link.is_open() {
                    pending::<()>().await;
                }
            }
            Self::Launched => pending().await,
        }
    }
}

/// Serves one client to its end, or until `leave`: returns once every VM of it is gone.
pub(crate) async fn serve<S>(
    zygote: Zygote,
    socket: WebSocketStream<S>,
    admission: Admission,
    policy: Policy,
    leave: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let link = Arc::new(Link::new(Limits::default()));
    let session = Arc::new(Session {
        zygote,
        policy,
        link: link.clone(),
        vms: Mutex::default(),
        over: CancellationToken::new(),
    });
    // From the handler to the loop below; never more than `max_vms` wait, since those being built count.
    let (orders, mut ordered) = mpsc::unbounded_channel();
    let mut vms = JoinSet::new();
    let admission = Arc::new(admission);
    let mut handler = Requests { session: session.clone(), orders, admission: admission.clone() };
    {
        let mut overdue = std::pin::pin!(admission.overdue(&link));
        let mut connection = std::pin::pin!(link::drive(&link, socket, &mut handler, &leave));
        let ended = loop {
            tokio::select! {
                ended = &mut connection => break ended,
                Some(order) = ordered.recv() => drop(vms.spawn(session.clone().live(order))),
                Some(_) = vms.join_next() => {}
                () = &mut overdue => break Ended::Closed,
            }
        };
        if let Ended::Violation(violation) = ended {
            tracing::warn!(%violation, "client broke the protocol");
        }
    }
    session.close();
    while vms.join_next().await.is_some() {}
}

impl Session {
    fn vms(&self) -> MutexGuard<'_, Residents> {
        self.vms.lock().expect("no code panics under this lock")
    }

    /// A VM's whole life: built, announced, followed to its end.
    async fn live(self: Arc<Self>, order: Order) {
        let id = VmId::random();
        let booted = tokio::select! {
            booted = self.zygote.create_vm(id, &order.config) => booted,
            // Nobody is there to be told, and a zygote that hangs must not keep the sidecar.
            () = self.over.cancelled() => return,
        };
        let booted = match booted {
            Ok(booted) => booted,
            Err(error) => {
                self.vms().building -= 1;
                return self.link.reject(order.request, not_created(&error));
            }
        };
        let created = VmCreated {
            vm: id,
            isolation: booted.report.clone(),
            boot_us: u64::try_from(order.received.elapsed().as_micros()).unwrap_or(u64::MAX),
        };
        let (vm, life) = Vm::new(id, self.link.clone(), booted);
        let number = {
            let mut vms = self.vms();
            if self.over.is_cancelled() {
                vm.end();
            }
            vms.admit(&vm)
        };
        self.link.respond(order.request, &Response::VmCreated(created));
        if AssertUnwindSafe(life).catch_unwind().await.is_err() {
            vm.panicked();
        }
        self.vms().remove(number);
    }

    fn close(&self) {
        self.over.cancel();
        self.vms().ready.values().for_each(|vm| vm.end());
    }

    /// The VM of a scope; unknown and foreign ones are told apart by nobody.
    fn vm(&self, scope: Scope) -> Result<Arc<Vm>, Rejection> {
        let Some(id) = scope.vm else {
            return Err(Rejection::invalid("scope.vm", "this request needs the scope of a VM"));
        };
        self.vms().ready.get(&id).cloned().ok_or_else(Rejection::vm_not_found)
    }

    fn admit(&self) -> Result<(), Rejection> {
        let limit = self.link.limits().max_vms;
        let mut vms = self.vms();
        let observed = vms.ready.len() as u64 + vms.building;
        if observed >= limit {
            return Err(Rejection::limit(Code::RESOURCE_EXHAUSTED, "max_vms", "VMs", limit, observed));
        }
        vms.building += 1;
        Ok(())
    }
}

/// Acts on a session's requests in the order they come.
struct Requests {
    session: Arc<Session>,
    orders: mpsc::UnboundedSender<Order>,
    admission: Arc<Admission>,
}

impl Handler for Requests {
    async fn prepare(&mut self, request: &Request) {
        let session = &self.session;
        if session.link.is_open() && session.policy.allows(capabilities::reach(request)) {
            capabilities::probe_for(request, &self.session.zygote).await;
        }
    }

    fn request(&mut self, id: RequestId, scope: Scope, request: Request) -> Result<(), Violation> {
        let stranger = matches!(&request, Request::Hello(hello) if !self.admission.admits(hello));
        if stranger {
            self.session.link.reject(id, Rejection::new(Code::UNAUTHENTICATED, UNAUTHENTICATED));
            return Err(Violation { close_code: 1008, reason: UNAUTHENTICATED.to_owned() });
        }
        if let Err(rejection) = self.act(id, scope, request) {
            self.session.link.reject(id, rejection);
        }
        Ok(())
    }

    /// Every request so far ends soon by itself; its answer is its end.
    fn cancel(&mut self, _: RequestId) {}
}

impl Requests {
    fn act(&mut self, id: RequestId, scope: Scope, request: Request) -> Result<(), Rejection> {
        let session = &self.session;
        match request {
            Request::Hello(hello) => session.link.respond(id, &Response::Welcome(welcome(&hello, session)?)),
            Request::CreateVm(config) => {
                config.validate()?;
                session.policy.check(&config)?;
                session.admit()?;
                let order = Order { request: id, received: Instant::now(), config };
                // The receiver lives as long as the connection that called this.
                let _ = self.orders.send(order);
            }
            Request::ListVms(_) => {
                let vms = session.vms().order.values().copied().collect();
                session.link.respond(id, &Response::Vms(Vms { vms }));
            }
            Request::DisposeVm(body) => session.vm(scope)?.dispose(id, body.grace_ms),
            Request::Execute(execute) => session.vm(scope)?.execute(id, execute),
            Request::SignalProcess(body) => session.vm(scope)?.signal(id, &body),
            Request::ProcessSnapshot(page) => session.vm(scope)?.snapshot(id, page),
            Request::ReadCmdline(body) => session.vm(scope)?.read_cmdline(id, body),
            Request::ReadFileHandles(body) => session.vm(scope)?.read_file_handles(id, body),
            Request::ObserverCapabilities(body) => {
                let capabilities = if session.policy.allows(body.scope) {
                    capabilities::negotiate_for_scope(body.scope)
                } else {
                    capabilities::of_forbidden_host()
                };
                session.link.respond(id, &Response::ObserverCapabilities(capabilities));
            }
            Request::Observe(body) if !session.policy.allows(body.reach) => {
                return Err(capabilities::forbidden_host());
            }
            Request::Observe(body) => session.vm(scope)?.observe(id, body)?,
            Request::ResourceUsage(_) => session.vm(scope)?.resource_usage(id),
        }
        Ok(())
    }
}

fn welcome(hello: &Hello, session: &Session) -> Result<Welcome, Rejection> {
    Ok(Welcome {
        protocol: negotiate(hello)?,
        sidecar: Peer {
            name: "agentvm-sidecar".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            build: Some(BUILD.to_owned()),
        },
        os: std::env::consts::OS.to_owned(),
        arch: std::env::consts::ARCH.to_owned(),
        session: uuid::Uuid::new_v4().to_string(),
        grace_ms: 0,
        limits: session.link.limits(),
        features: Vec::new(),
    })
}

/// What a client is told of a VM that could not be built: step, errno, path, and what would help.
fn not_created(error: &BootError) -> Rejection {
    let cannot_be_had = error.errno() == libc::EOPNOTSUPP;
    if error.step() == Step::Config || error.step() == Step::Limits && cannot_be_had {
        let mut rejection = Rejection::invalid(error.path().unwrap_or("config"), error.to_string());
        if cannot_be_had {
            rejection.code = Code::UNSUPPORTED;
        }
        return rejection;
    }
    let mut rejection = Rejection::new(Code::from(errno::name(error.errno())), error.to_string());
    rejection.details.step = Some(error.step().to_string());
    rejection.details.errno = Some(error.errno());
    rejection.details.path = error.path().map(str::to_owned);
    rejection
}
