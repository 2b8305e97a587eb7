//! A Unix stream socket that wakes its owner for nothing but input: what client and sidecar speak over.
//!
//! tokio's own stream asks for room to write, too, and the kernel announces that each time the other end has read
//! something: a thread would be woken for every message it has sent. Here room is asked for only while there is none.

#![forbid(unsafe_code)]

use std::{
    io::{self, Write as _},
    net::Shutdown,
    os::{fd::OwnedFd, unix::net::UnixStream},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{self, unix::pipe},
};

/// A connected Unix stream socket, bound to the runtime it was made in.
#[derive(Debug)]
pub struct Socket {
    /// tokio's reading end of a pipe is what it has that asks for input alone; a socket is read in the same way.
    input: pipe::Receiver,
    output: UnixStream,
    /// Watches the same socket while a write waits for room.
    room: Option<net::UnixStream>,
}

impl Socket {
    /// Takes over a connected stream. Panics outside of a tokio runtime with I/O enabled.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let input = OwnedFd::from(stream.try_clone()?);
        Ok(Self { input: pipe::Receiver::from_owned_fd_unchecked(input)?, output: stream, room: None })
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            if let Some(room) = &self.room {
                ready!(room.poll_write_ready(cx))?;
                self.room = None;
            }
            match self.output.write(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.room = Some(net::UnixStream::from_std(self.output.try_clone()?)?);
                }
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.output.shutdown(Shutdown::Write))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::{Socket, UnixStream};

    fn pair() -> (Socket, Socket) {
        let (one, other) = UnixStream::pair().unwrap();
        (Socket::new(one).unwrap(), Socket::new(other).unwrap())
    }

    #[tokio::test]
    async fn more_than_the_socket_holds_arrives_whole_in_both_directions_at_once() {
        let (mut one, mut other) = pair();
        let sent: Vec<u8> = (0..3_000_000_u32).map(|n| n.to_le_bytes()[1]).collect();
        let (mut reader, mut writer) = tokio::io::split(&mut one);
        let (mut far_reader, mut far_writer) = tokio::io::split(&mut other);
        let (mut there, mut back) = (vec![0; sent.len()], vec![0; sent.len()]);
        let done = tokio::join!(
            writer.write_all(&sent),
            far_writer.write_all(&sent),
            far_reader.read_exact(&mut there),
            reader.read_exact(&mut back),
        );
        assert!(done.0.is_ok() && done.1.is_ok() && done.2.is_ok() && done.3.is_ok());
        assert!(there == sent && back == sent);
    }

    #[tokio::test]
    async fn the_end_is_seen_behind_everything_that_was_written() {
        let (mut one, mut other) = pair();
        one.write_all(b"last words").await.unwrap();
        one.shutdown().await.unwrap();
        let mut heard = String::new();
        other.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "last words");
        drop(other);
        assert!(one.write_all(b"anybody there?").await.is_err());
    }
}
