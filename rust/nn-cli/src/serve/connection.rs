//! A connection: hyper's for HTTP/1.1, with limits of time, size and number, and OpenAI's errors.
//!
//! hyper answers bytes that are no request with an empty body, and bounds neither how long a client may take to read an answer
//! nor how long a connection may wait. So the stream beneath it does.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Sleep, sleep, timeout};

use super::api::{API, ApiError};
use super::app::Stage;
use super::exchange::Peer;

/// Serves a connection until its client leaves, or the server drains and it has nothing to do.
pub(super) async fn serve(stream: TcpStream, router: Router, mut stage: watch::Receiver<Stage>) {
    // Events go out as they come.
    let _ = stream.set_nodelay(true);
    let peer = Peer { address: stream.peer_addr().ok().map(|address| address.ip()), ..Peer::default() };
    let (busy, answered) = (Arc::clone(&peer.busy), Arc::clone(&peer.ended));
    let refused = Arc::clone(&peer.refused);
    let routes = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        peer.busy.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(peer.clone());
        routes.call(request)
    });
    let mut builder = http1::Builder::new();
    builder.max_buf_size(API.limits.header_bytes).max_headers(2 * API.limits.headers).header_read_timeout(None);
    let mut connection = builder.serve_connection(TokioIo::new(Stream::new(stream, busy)), service);
    let mut draining = false;
    let ended = loop {
        let drained = async {
            // The sender lives as long as the server.
            let _ = stage.wait_for(|stage| *stage >= Stage::Draining).await;
        };
        tokio::select! {
            ended = poll_fn(|context| {
                let ended = connection.poll_without_shutdown(context);
                if answered.swap(false, Ordering::Relaxed) {
                    // hyper waits for bytes that it asked for during the answer: it must ask again, which begins the time in
                    // which a further head has to come.
                    context.waker().wake_by_ref();
                }
                ended
            }) => break ended,
            () = drained, if !draining => {
                draining = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
        }
    };
    let mut stream = connection.into_parts().io.into_inner();
    if let Some(error) = stream.problem.take() {
        refuse(&mut stream.inner, &error).await;
    }
    if stream.refused || ended.is_ok() && refused.load(Ordering::Relaxed) {
        linger(stream.inner).await;
    }
}

/// Answers without a service.
pub(super) async fn refuse(stream: &mut TcpStream, error: &ApiError) {
    // Who does not read it does not get it.
    let _ = timeout(Duration::from_secs(1), stream.write_all(refusal(error).as_bytes())).await;
}

fn refusal(error: &ApiError) -> String {
    let (body, status) = (error.body(), error.status);
    format!(
        "HTTP/1.1 {status} \r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// Reads on for a while: a client that still sends when the connection is closed may lose the answer.
async fn linger(mut stream: TcpStream) {
    if stream.shutdown().await.is_err() {
        return;
    }
    let mut bytes = [0; 4096];
    let read = async { while matches!(stream.read(&mut bytes).await, Ok(1..)) {} };
    let _ = timeout(Duration::from_secs(API.limits.linger_seconds), read).await;
}

/// A client's stream, which ends when the client is too slow.
struct Stream {
    inner: TcpStream,
    /// Whether a request is being answered.
    busy: Arc<AtomicBool>,
    /// While a head is awaited: until when, and how many of its bytes came.
    head: Option<(Pin<Box<Sleep>>, usize)>,
    first: bool,
    writing: Option<Pin<Box<Sleep>>>,
    /// What is to be answered when hyper has given up.
    problem: Option<ApiError>,
    /// Whether an answer of hyper's own was written, in our words.
    refused: bool,
}

impl Stream {
    fn new(inner: TcpStream, busy: Arc<AtomicBool>) -> Self {
        Self { inner, busy, head: None, first: true, writing: None, problem: None, refused: false }
    }

    /// Whether the client has had the time there is for the head of a request.
    fn late(&mut self, context: &mut Context<'_>) -> bool {
        let limits = &API.limits;
        if self.busy.load(Ordering::Relaxed) {
            self.head = None;
            self.first = false;
            return false;
        }
        let seconds = if self.first { limits.header_seconds } else { limits.keep_alive_seconds };
        let first = self.first;
        let (timer, bytes) = self.head.get_or_insert_with(|| (Box::pin(sleep(Duration::from_secs(seconds))), 0));
        if timer.as_mut().poll(context).is_pending() {
            return false;
        }
        if first || *bytes > 0 {
            self.problem = Some(ApiError::new("body_too_slow", &[("seconds", &limits.header_seconds)]));
        }
        true
    }

    /// Counts bytes of a head; from the first one on there is a time for the rest.
    fn came(&mut self, count: usize) -> io::Result<()> {
        let limits = &API.limits;
        let Some((timer, bytes)) = &mut self.head else { return Ok(()) };
        if *bytes == 0 && !self.first {
            *timer = Box::pin(sleep(Duration::from_secs(limits.header_seconds)));
        }
        *bytes += count;
        Ok(())
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.late(context) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        Poll::Ready(self.came(buffer.filled().len() - before))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // What hyper says of bytes that are no request, before any service has seen one.
        if !self.busy.load(Ordering::Relaxed) && bytes.starts_with(b"HTTP/1.1 4") && is_bare(bytes) {
            let limits = &API.limits;
            let code = if bytes.starts_with(b"HTTP/1.1 431") { "headers_too_large" } else { "bad_http" };
            self.problem = Some(ApiError::new(code, &[("most", &limits.header_bytes), ("count", &limits.headers)]));
            self.refused = true;
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.bounded(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

impl Stream {
    /// A write that waits for its client, but not for ever.
    fn bounded<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.writing = None;
            return written;
        }
        let limit = Duration::from_secs(API.limits.write_seconds);
        let timer = self.writing.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

/// Whether a response has no body: those of this server have one.
fn is_bare(head: &[u8]) -> bool {
    head.ends_with(b"\r\n\r\n") && !head.windows(13).any(|part| part.eq_ignore_ascii_case(b"content-type:"))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::thread;

    use axum::routing::get;
    use tokio::net::TcpListener;
    use tokio::runtime::Builder;

    use super::*;

    /// What a client gets for bytes that it sends to a server with one route.
    fn answer(sent: Vec<u8>) -> String {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let client = thread::spawn(move || {
                let mut stream = std::net::TcpStream::connect(address).unwrap();
                stream.write_all(&sent).unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).unwrap();
                answer
            });
            let (stream, _) = listener.accept().await.unwrap();
            let stage = watch::Sender::new(Stage::Serving);
            let router = Router::new().route("/", get(|| async { "here" }));
            serve(stream, router, stage.subscribe()).await;
            client.join().unwrap()
        })
    }

    #[test]
    fn requests_are_answered() {
        let found = answer(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_vec());
        assert!(found.starts_with("HTTP/1.1 200 OK\r\n") && found.ends_with("\r\n\r\nhere"), "{found}");
    }

    #[test]
    fn what_is_no_request_gets_an_error_of_openai() {
        let long = format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}", "y".repeat(40_000));
        for (sent, status, code) in [
            ("hello\r\n\r\n", "400", "bad_http"),
            ("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\n", "400", "bad_http"),
            (long.as_str(), "431", "headers_too_large"),
        ] {
            let found = answer(sent.as_bytes().to_vec());
            assert!(found.starts_with(&format!("HTTP/1.1 {status} ")), "{found}");
            assert!(found.contains("\r\ncontent-type: application/json\r\n"), "{found}");
            assert!(found.ends_with(&format!("\"param\":null,\"code\":\"{code}\"}}}}")), "{found}");
        }
    }
}
