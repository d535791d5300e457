//! The HTTP stage: a tokio runtime and the task that accepts connections in it.

use std::{io, net::TcpListener, sync::Arc, time::Instant};

use sglang_http::{CLOSE_GRACE, Settings, serve};
use tokio::{runtime, task::JoinHandle};

use crate::{api::router, cores::Cores, drain::Drain, frontend::Frontend};

/// The running HTTP stage.
#[derive(Debug)]
pub(super) struct Http {
    runtime: runtime::Runtime,
    /// Ends when the frontend drains and the last connection has closed.
    server: JoinHandle<()>,
}

impl Http {
    /// Serves `listener` until the frontend drains.
    pub(super) fn start(
        listener: TcpListener,
        frontend: &Arc<Frontend>,
        threads: usize,
        cores: &Cores,
    ) -> io::Result<Self> {
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("api-runtime")
            .on_thread_start(cores.http())
            .enable_all()
            .build()?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let stop = frontend.status.draining.clone();
        let settings = Settings {
            read_timeout: frontend.config.read_timeout,
            access_log: frontend.config.access_log,
        };
        let routes = router(Arc::clone(frontend));
        let server = runtime.spawn(serve(listener, routes, settings, stop));
        Ok(Self { runtime, server })
    }

    /// Waits until every connection has ended, and stops the runtime. Connections that are
    /// still open after the drain and [`CLOSE_GRACE`] are cut.
    pub(super) fn end(self, drain: &Arc<Drain>) {
        let _ = drain.block_on(self.server, Instant::now() + CLOSE_GRACE);
        self.runtime.shutdown_background();
    }
}
