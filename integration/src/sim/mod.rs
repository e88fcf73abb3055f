//! A simulator of a vLLM server, for tests and demos without a model.
//!
//! What a gateway can see of the real server is imitated: when headers leave, what the queue does,
//! error shapes, usage rules, metrics names, what happens when either side goes away. What a
//! gateway cannot see is made up: the text is meaningless and the times come from a configuration.
//!
//! Each simulator runs on two threads of its own, one that serves and one for the engine, so that
//! a test may be synchronous or not, and several simulators disturb each other no more than needed.
//!
//! Paths under `/sim/` are not vLLM's: `POST /sim/fault` scripts a [`Fault`], `GET /sim/stats`
//! returns [`Stats`], `GET /sim/log` the requests as [`Logged`].

mod ask;
mod batch;
mod config;
mod connection;
mod engine;
mod journal;
mod lax;
mod metrics;
mod pages;
mod reply;
mod server;
mod stream;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

pub use config::{Counting, Fault, Scheduling, SimConfig};
pub use journal::{Logged, Seen, Stats};

use server::Server;

/// A running simulator; dropping it closes it and all its connections.
#[derive(Debug)]
pub struct Sim {
    addr: SocketAddr,
    server: Arc<Server>,
    /// The one that serves, and the engine's.
    threads: Vec<JoinHandle<()>>,
}

impl Sim {
    /// Starts a simulator and returns when it accepts connections.
    ///
    /// # Errors
    /// The address cannot be bound, or the runtime cannot be made.
    pub fn start(config: SimConfig) -> io::Result<Self> {
        let listener = TcpListener::bind(config.listen)?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let server = Server::new(config);
        let (engine, serving) = (Arc::clone(&server), Arc::clone(&server));
        let named = |name: &str| std::thread::Builder::new().name(name.into());
        let engine = named("sim-engine").spawn(move || engine.run_engine())?;
        let serving = named("sim-http").spawn(move || {
            runtime.block_on(serving.serve(listener));
            // Whatever is still open is cut, as when a process ends.
            runtime.shutdown_background();
        });
        let serving = match serving {
            Ok(thread) => thread,
            Err(err) => {
                server.close();
                return Err(err);
            }
        };
        Ok(Self { addr, server, threads: vec![serving, engine] })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://address:port`.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Counters and peaks as of now.
    pub fn stats(&self) -> Stats {
        self.server.engine().stats()
    }

    /// The requests taken so far, in the order of their arrival.
    pub fn log(&self) -> Vec<Logged> {
        self.server.engine().journal(journal::Journal::logged)
    }

    /// Ids of the requests that have started, in the order in which they started.
    pub fn start_order(&self) -> Vec<String> {
        let mut log = self.log();
        log.retain(|entry| entry.started_rank.is_some());
        log.sort_by_key(|entry| entry.started_rank);
        log.into_iter().map(|entry| entry.id).collect()
    }

    /// Scripts a fault.
    pub fn fault(&self, fault: &Fault) {
        self.server.apply(fault);
    }

    /// Whether it still accepts connections; false after `die`, and at the end of a drain.
    pub fn is_open(&self) -> bool {
        self.threads.first().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.server.close();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
