//! The listening socket, the connections, and the handle that stops them.

use crate::app::App;
use crate::backend::Backend;
use crate::connection::{Connection, ConnectionControl};
use crate::lifecycle::{Lifecycle, Phase};
use crate::routes;
use axum::Router;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

/// Where and how to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// Address to bind. Default `127.0.0.1:0`: loopback, any free port.
    pub addr: SocketAddr,
    /// Idle connections are closed after this long. Default `None`: never. SGLang (uvicorn) closes them after 5 s.
    pub keep_alive: Option<Duration>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self { addr: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), keep_alive: None }
    }
}

/// The server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be bound.
    #[error("cannot listen on {addr}")]
    Bind {
        /// Address that was asked for.
        addr: SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
}

/// Starts servers.
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Binds, and serves on the calling tokio runtime until the handle is dropped or shut down.
    pub async fn start(backend: impl Into<Backend>, config: ServerConfig) -> Result<ServerHandle, StartError> {
        let bind_error = |source| StartError::Bind { addr: config.addr, source };
        let listener = TcpListener::bind(config.addr).await.map_err(bind_error)?;
        let addr = listener.local_addr().map_err(bind_error)?;
        let lifecycle = Lifecycle::default();
        let app = Arc::new(App::new(backend.into(), lifecycle.clone()));
        let accepting = Accepting {
            addr,
            router: routes::router(Arc::clone(&app)),
            lifecycle: lifecycle.clone(),
            keep_alive: app.backend.script().and_then(|script| script.keep_alive()).or(config.keep_alive),
            down: app.backend.script().and_then(|script| script.down()),
        };
        let driver = app.backend.script().and_then(|script| script.driver()).map(tokio::spawn);
        let task = tokio::spawn(async move {
            accepting.run(listener).await;
            if let Some(driver) = driver {
                driver.abort();
            }
        });
        Ok(ServerHandle { addr, lifecycle, app, task })
    }
}

/// A running server. Dropping it stops the server at once.
pub struct ServerHandle {
    addr: SocketAddr,
    lifecycle: Lifecycle,
    app: Arc<App>,
    task: JoinHandle<()>,
}

impl std::fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerHandle").field("addr", &self.addr).finish_non_exhaustive()
    }
}

impl ServerHandle {
    /// Where it listens; the port is the real one.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://host:port`, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// What a script has counted, as `/script/stats?prompts=true` says it. `None` with a model behind the server.
    pub fn script_stats(&self) -> Option<crate::script::ScriptStats> {
        self.app.backend.script().map(|script| script.stats(&self.app.meters, true))
    }

    /// Waits until the server has died by its script for good; with a `down_ms` in the script, or a model, it never does.
    ///
    /// A process that stands in for a real server exits with a failure then.
    pub async fn died(&self) {
        let mut phase = self.lifecycle.watch();
        let comes_back = self.app.backend.script().is_none_or(|script| script.down().is_some());
        if comes_back || phase.wait_for(|phase| *phase == Phase::Dead).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Stops listening, closes every connection, and waits until that is done. Answers under way are cut.
    pub async fn shutdown(mut self) {
        self.lifecycle.stop();
        // The task ends by itself; had it panicked, there would be nothing left to stop.
        (&mut self.task).await.ok();
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.lifecycle.stop();
    }
}

struct Accepting {
    addr: SocketAddr,
    router: Router,
    lifecycle: Lifecycle,
    keep_alive: Option<Duration>,
    /// How long a dead server stays away; `None`: for good.
    down: Option<Duration>,
}

impl Accepting {
    async fn run(self, listener: TcpListener) {
        let mut phase = self.lifecycle.watch();
        let mut listener = Some(listener);
        loop {
            match listener.take() {
                Some(listener) => self.serve(listener, &mut phase).await,
                None => listener = self.wait_and_rebind(&mut phase).await,
            }
            if *phase.borrow_and_update() == Phase::Stopped {
                return;
            }
        }
    }

    /// Serves until the phase changes; every connection is gone when this returns.
    async fn serve(&self, listener: TcpListener, phase: &mut watch::Receiver<Phase>) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = until(phase, |phase| phase != Phase::Up) => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(serve_connection(stream, self.router.clone(), self.keep_alive));
                    }
                    // Out of file handles, mostly: give the others a moment to close.
                    Err(_) => sleep(Duration::from_millis(20)).await,
                },
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
            }
        }
        drop(listener);
        connections.shutdown().await;
    }

    async fn wait_and_rebind(&self, phase: &mut watch::Receiver<Phase>) -> Option<TcpListener> {
        let wait = async {
            match self.down {
                Some(down) => sleep(down).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = until(phase, |phase| phase == Phase::Stopped) => return None,
            () = wait => {}
        }
        loop {
            match TcpListener::bind(self.addr).await {
                Ok(listener) => {
                    self.lifecycle.revive();
                    return Some(listener);
                }
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
            if *phase.borrow() == Phase::Stopped {
                return None;
            }
        }
    }
}

/// Waits for a phase. The switch lives as long as anyone watches it.
async fn until(phase: &mut watch::Receiver<Phase>, is_it: impl Fn(Phase) -> bool) {
    drop(phase.wait_for(|phase| is_it(*phase)).await.map(|phase| *phase));
}

async fn serve_connection(stream: TcpStream, router: Router, keep_alive: Option<Duration>) {
    // Small answers must not wait for the peer's ack; a socket without the option only loses speed.
    stream.set_nodelay(true).ok();
    let control = Arc::new(ConnectionControl::default());
    let io = TokioIo::new(Connection::new(stream, Arc::clone(&control)));
    let router = TowerToHyperService::new(router);
    let for_requests = Arc::clone(&control);
    let service =
        hyper::service::service_fn(move |request| routes::serve(router.clone(), Arc::clone(&for_requests), request));
    let connection = hyper::server::conn::http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(1 << 20)
        .serve_connection(io, service);
    let mut connection = pin!(connection);
    let idle = idle_for(Arc::clone(&control), keep_alive);
    tokio::select! {
        // A connection error is the client's leaving; nothing is owed to anybody then.
        ended = connection.as_mut() => drop(ended),
        () = control.cut() => {}
        () = idle => {
            connection.as_mut().graceful_shutdown();
            drop(connection.await);
        }
    }
}

/// Waits until the connection has been idle for the whole time.
async fn idle_for(control: Arc<ConnectionControl>, limit: Option<Duration>) {
    let Some(limit) = limit else { return std::future::pending().await };
    let mut idle_since = Instant::now();
    loop {
        sleep(limit / 4).await;
        if control.is_busy() {
            idle_since = Instant::now();
        } else if idle_since.elapsed() >= limit {
            return;
        }
    }
}
