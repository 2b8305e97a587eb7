//! A [`ByteStream`] read like a file.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, ReadBuf};

use super::{ByteStream, Output, StreamLost};

/// What a reader gets as an [`io::Error`] of kind `Other` where bytes are missing; reading on continues behind them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{missed_bytes} bytes of output are missing here")]
pub struct OutputGap {
    /// How many.
    pub missed_bytes: u64,
}

#[derive(Debug)]
pub(super) struct Reader(pub(super) ByteStream);

impl AsyncRead for Reader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = &mut self.0;
        if stream.is_lost() {
            return Poll::Ready(Err(lost()));
        }
        Poll::Ready(match ready!(stream.poll_peek(cx)) {
            Some(Ok(Output::Data(bytes))) => {
                let taken = bytes.len().min(buf.remaining());
                buf.put_slice(&bytes[..taken]);
                stream.advance(taken);
                Ok(())
            }
            Some(Ok(Output::Gap { missed_bytes })) => Err(io::Error::other(OutputGap { missed_bytes })),
            Some(Err(StreamLost)) => Err(lost()),
            None => Ok(()),
        })
    }
}

fn lost() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, StreamLost)
}
