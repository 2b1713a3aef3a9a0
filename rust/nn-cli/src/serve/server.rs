//! Runs the server on a socket until a signal ends it.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::api::{API, ApiError};
use super::app::{App, Stage};
use super::connection;
use super::log;

/// For clients to take the error that ends what runs.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A socket of that address, which does not listen yet: until a model is loaded, clients are to be told that nobody is there.
/// Port 0 takes a free one.
pub(super) fn bound(host: &str, port: u16) -> io::Result<TcpSocket> {
    let open = || {
        let found = (host, port).to_socket_addrs()?.next();
        let address = found.ok_or_else(|| io::Error::other("there is no such address"))?;
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    };
    open().map_err(|error: io::Error| {
        io::Error::new(error.kind(), format!("{host}:{port}: cannot listen there ({error})"))
    })
}

/// Answers requests until `ends` says how often that was asked: the first time what runs goes on for at most `drain`, the second
/// time it is cut. `started` is called when requests are taken.
pub(super) async fn run(
    app: Arc<App>,
    socket: TcpSocket,
    drain: Duration,
    mut ends: watch::Receiver<usize>,
    started: impl FnOnce(SocketAddr),
) -> io::Result<()> {
    let listener = socket.listen(1024)?;
    started(listener.local_addr()?);
    let mut connections = JoinSet::new();
    let mut stage = app.stage();
    tokio::select! {
        () = accept(&listener, &app, &mut connections) => {}
        asked = ends.wait_for(|count| *count > 0) => drop(asked),
        // The device has failed.
        failed = stage.wait_for(|stage| *stage >= Stage::Draining) => drop(failed),
    }
    drop(listener);
    log::message("info", &format!("shutting down; {} texts are not at their end", app.open()));
    app.advance(Stage::Draining);
    let all = async { while connections.join_next().await.is_some() {} };
    let early = async {
        let asked = ends.wait_for(|count| *count > 1).await;
        drop(asked);
    };
    tokio::select! {
        () = all => return Ok(()),
        () = early => {}
        () = sleep(drain) => {}
    }
    app.advance(Stage::Cut);
    let all = async { while connections.join_next().await.is_some() {} };
    // What is left of them ends with the runtime.
    let _ = timeout(LAST_WORDS, all).await;
    connections.shutdown().await;
    Ok(())
}

/// Takes connections, each of which is served by a task.
async fn accept(listener: &TcpListener, app: &Arc<App>, connections: &mut JoinSet<()>) {
    let router = app.router();
    loop {
        let stream = tokio::select! {
            stream = listener.accept() => stream,
            Some(_) = connections.join_next() => continue,
        };
        match stream {
            Ok((mut stream, _)) if connections.len() >= API.limits.connections => {
                connection::refuse(
                    &mut stream,
                    &ApiError::new("too_many_connections", &[("most", &API.limits.connections)]),
                )
                .await;
            }
            Ok((stream, _)) => {
                connections.spawn(connection::serve(stream, router.clone(), app.stage()));
            }
            Err(error) => {
                // Of one client, or since no file is left: others end.
                log::message("warning", &format!("a connection cannot be taken: {error}"));
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}
