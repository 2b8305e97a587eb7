//! Serving the client that launched this process.

use std::{io, os::unix::net::UnixStream};

use agentvm_socket::Socket;
use tokio_util::sync::CancellationToken;

use super::{ServeError, accept, run};
use crate::{
    launch,
    session::{self, Admission, Policy},
    zygote::Zygote,
};

/// Serves the socket inherited as standard input until it closes; every VM is gone when this returns.
///
/// Whoever holds the other end launched this process: no token, no deadline.
pub(crate) fn serve_inherited() -> Result<(), ServeError> {
    let socket = take_socket().map_err(ServeError::NoSocket)?;
    let zygote = Zygote::start();
    run(async {
        let socket = Socket::new(socket).map_err(ServeError::NoSocket)?;
        let socket = accept(socket).await.map_err(|error| ServeError::Handshake(Box::new(error)))?;
        // Its client alone says when it ends.
        session::serve(zygote, socket, Admission::Launched, Policy::everything(), CancellationToken::new())
            .await;
        Ok(())
    })
}

fn take_socket() -> io::Result<UnixStream> {
    let socket = launch::take_standard_input(1)?;
    rustix::net::sockopt::socket_type(&socket)?;
    Ok(socket.into())
}
