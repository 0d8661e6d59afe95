//! Sending of a request and its body.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use brisk_http::error::ConnectionError;
use brisk_http::http1::request::Output;
use http_body::{Body as _, Frame};
use tokio::io::{AsyncRead, AsyncWrite};

use super::Messages;

impl<T: AsyncRead + AsyncWrite + Unpin> Messages<T> {
    /// Sends pending parts of the request, as the first step of a turn.
    ///
    /// # Errors
    ///
    /// [`ConnectionError`] only if the request body fails. If the server does not accept the request, its response must still
    /// be read, so the error is kept in `unsent`.
    pub(in crate::http1) fn poll_send(&mut self, context: &mut Context<'_>) -> Result<(), ConnectionError> {
        self.turn.begin();
        self.send(context)
    }

    /// Sends pending parts of the request, until the turn has reached the limit of [`TurnLimit`](brisk_net::TurnLimit).
    pub(super) fn send(&mut self, context: &mut Context<'_>) -> Result<(), ConnectionError> {
        if self.is_sent() {
            return Ok(());
        }
        let mut waits = self.upload.is_none();
        loop {
            while !waits && self.output.has_room() {
                if self.turn.is_reached() {
                    context.waker().wake_by_ref();
                    waits = true;
                } else if let Poll::Ready(result) = self.poll_upload(context) {
                    result?;
                    waits = self.upload.is_none();
                } else {
                    waits = true;
                }
            }
            match self.poll_flush(context) {
                Poll::Ready(Ok(())) if !waits => {}
                Poll::Ready(Ok(())) | Poll::Pending => return Ok(()),
                Poll::Ready(Err(error)) => {
                    self.unsent = Some(error);
                    // The server reads no more of the request, so the client need not send the rest.
                    self.upload = None;
                    self.uploaded = None;
                    self.output = Output::default();
                    self.unflushed = false;
                    return Ok(());
                }
            }
        }
    }

    /// Ready once the request is sent completely, or with [`ConnectionError::Io`].
    pub(in crate::http1) fn poll_sent(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), ConnectionError>> {
        self.poll_send(context)?;
        match self.unsent.take() {
            Some(error) => Poll::Ready(Err(ConnectionError::Io(error))),
            None if self.is_sent() => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    }

    /// Moves a piece of the request body into `output`.
    fn poll_upload(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        let Some(upload) = &mut self.upload else { return Poll::Ready(Ok(())) };
        let frame = ready!(Pin::new(&mut upload.body).poll_frame(context)).transpose()?;
        let mut trailers = None;
        match frame.map(Frame::into_data) {
            Some(Ok(data)) => {
                self.turn.take(data.len());
                upload.writer.data(data, &mut self.output)?;
                if !upload.body.is_end_stream() {
                    return Poll::Ready(Ok(()));
                }
            }
            Some(Err(frame)) => trailers = frame.into_trailers().ok(),
            None => {}
        }
        upload.writer.end(trailers.as_ref(), &mut self.output)?;
        self.uploaded = self.upload.take().map(|upload| upload.body);
        Poll::Ready(Ok(()))
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.output.is_empty() {
            let written = match self.output.only() {
                Some(bytes) => Pin::new(&mut self.io).poll_write(context, bytes),
                None => Pin::new(&mut self.io).poll_write_vectored(context, &self.output.slices()),
            };
            match ready!(written)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                length => {
                    self.output.advance(length);
                    self.unflushed = true;
                }
            }
        }
        self.uploaded = None;
        ready!(Pin::new(&mut self.io).poll_flush(context))?;
        self.unflushed = false;
        Poll::Ready(Ok(()))
    }
}
