//! The class `Server`, with which the scheduler's thread controls the frontend.

use std::{
    mem, process,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use flume::RecvTimeoutError;
use pyo3::{
    exceptions::{PyRuntimeError, PyValueError},
    prelude::*,
    types::{PyBytes, PyList},
};

use super::args::{ServerArgs, seconds};
use crate::{channel::ToScheduler, config::FrontendConfig, runtime, wire};

/// How often a blocking call checks for signals, such as Ctrl-C.
const SIGNAL_CHECK: Duration = Duration::from_millis(100);

/// A running frontend.
#[pyclass(frozen, module = "sglang.srt.rust_extensions._server")]
pub struct Server {
    runtime: Arc<runtime::Server>,
    /// The id of the process that started it. A forked child does not have its threads.
    process: u32,
}

#[pymethods]
impl Server {
    #[new]
    #[pyo3(signature = (
        server_args, port_offset=None, to_scheduler_cap=8192, from_scheduler_cap=8192, stage_channel_cap=8192, cores=None,
        *, frontend_config=None,
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "the arguments of the Python class"
    )]
    fn new(
        py: Python<'_>,
        server_args: ServerArgs,
        port_offset: Option<u16>,
        to_scheduler_cap: usize,
        from_scheduler_cap: usize,
        stage_channel_cap: usize,
        cores: Option<Vec<usize>>,
        frontend_config: Option<FrontendConfig>,
    ) -> PyResult<Self> {
        let config = FrontendConfig {
            to_scheduler_cap,
            from_scheduler_cap,
            stage_cap: stage_channel_cap,
            ..frontend_config.unwrap_or_default()
        };
        let cores = cores.unwrap_or_default();
        let start =
            || runtime::Server::start(server_args.0, config, port_offset.unwrap_or(0), &cores);
        let runtime = py
            .detach(start)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self {
            runtime: Arc::new(runtime),
            process: process::id(),
        })
    }

    /// The host and port that the server listens on.
    #[getter]
    fn address(&self) -> (String, u16) {
        let address = self.runtime.address();
        (address.ip().to_string(), address.port())
    }

    /// Whether the server was shut down, so that no new request will enter the queue.
    #[getter]
    fn is_shut_down(&self) -> bool {
        self.runtime.is_shut_down()
    }

    /// Takes at most `max` requests from the queue. Never waits.
    #[pyo3(signature = (max=256))]
    fn recv_requests(&self, max: usize) -> PyResult<RequestBatch> {
        self.check_process()?;
        Ok(RequestBatch(self.runtime.take(max)))
    }

    /// Waits for a request; returns whether there is one.
    #[pyo3(signature = (timeout_ms=1000))]
    fn wait_request(&self, py: Python<'_>, timeout_ms: u64) -> PyResult<bool> {
        self.check_process()?;
        let (begin, timeout) = (Instant::now(), Duration::from_millis(timeout_ms));
        loop {
            let remaining = timeout.saturating_sub(begin.elapsed());
            if py.detach(|| self.runtime.wait(remaining.min(SIGNAL_CHECK))) {
                return Ok(true);
            }
            py.check_signals()?;
            if begin.elapsed() >= timeout || self.runtime.is_shut_down() {
                return Ok(false);
            }
        }
    }

    /// Sends a decode step of several requests. False once the drain of a shutdown has ended.
    #[expect(clippy::needless_pass_by_value, reason = "pyo3 extracts values")]
    fn push_decode_result_batch(
        &self,
        py: Python<'_>,
        header: &[u8],
        data_cols: Vec<Bound<'_, PyBytes>>,
    ) -> PyResult<bool> {
        self.check_process()?;
        let columns: Vec<&[u8]> = data_cols.iter().map(PyBytesMethods::as_bytes).collect();
        let frame = wire::batch_frame(header, &columns)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(self.push(py, frame))
    }

    /// Answers a control message. False once the drain of a shutdown has ended.
    fn push_control_result(&self, py: Python<'_>, rid: &str, payload: &[u8]) -> PyResult<bool> {
        self.check_process()?;
        Ok(self.push(py, wire::control_frame(rid, payload)))
    }

    /// Fails a request. False once the drain of a shutdown has ended.
    fn push_error(&self, py: Python<'_>, rid: &str, message: &str) -> PyResult<bool> {
        self.check_process()?;
        Ok(self.push(py, wire::error_frame(rid, message)))
    }

    /// Stops accepting connections, waits for requests in flight until the deadline, and fails
    /// the rest. A second call may shorten the deadline. A signal ends only the wait, not the
    /// shutdown.
    #[pyo3(signature = (drain_deadline=None))]
    fn shutdown(&self, py: Python<'_>, drain_deadline: Option<f64>) -> PyResult<()> {
        self.check_process()?;
        let default = self.runtime.drain_deadline();
        let deadline = seconds("drain_deadline", drain_deadline, default)?;
        let runtime = Arc::clone(&self.runtime);
        let (alive, ended) = flume::bounded::<()>(0);
        thread::Builder::new()
            .name("server-shutdown".into())
            .spawn(move || {
                runtime.shutdown(deadline);
                drop(alive);
            })?;
        // Nothing is ever sent: the thread closes the channel when it has finished.
        while py.detach(|| ended.recv_timeout(SIGNAL_CHECK)) == Err(RecvTimeoutError::Timeout) {
            py.check_signals()?;
        }
        Ok(())
    }
}

impl Server {
    /// Tries without releasing the GIL first, because the queue is rarely full.
    fn push(&self, py: Python<'_>, frame: Vec<u8>) -> bool {
        match self.runtime.push(frame) {
            Ok(accepted) => accepted,
            Err(frame) => py.detach(|| self.runtime.push_blocking(frame)),
        }
    }

    fn check_process(&self) -> PyResult<()> {
        let current = process::id();
        if current == self.process {
            return Ok(());
        }
        let owner = self.process;
        Err(PyRuntimeError::new_err(format!(
            "this Server was started in process {owner} and cannot be used in its forked child {current}, \
             which has none of its threads: start a Server after the fork"
        )))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.check_process().is_err() {
            // Leaked on purpose: locks may be held in the child, and the parent owns the sockets.
            mem::forget(Arc::clone(&self.runtime));
            return;
        }
        // The GIL is released because threads that the shutdown waits for may need it.
        let runtime = &self.runtime;
        Python::try_attach(|py| py.detach(|| runtime.shutdown(Duration::ZERO)));
    }
}

/// Requests from the queue to the scheduler.
#[pyclass(frozen, module = "sglang.srt.rust_extensions._server")]
pub struct RequestBatch(Vec<ToScheduler>);

#[pymethods]
impl RequestBatch {
    /// One `MessagePack` header per request.
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(
            py,
            self.0
                .iter()
                .map(|request| PyBytes::new(py, &request.header)),
        )
    }

    /// The token ids of all requests, concatenated, as little-endian int64.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let length = self.0.iter().map(|request| request.ids.len()).sum();
        PyBytes::new_with(py, length, |mut data| {
            for request in &self.0 {
                let (ids, rest) = data.split_at_mut(request.ids.len());
                ids.copy_from_slice(&request.ids);
                data = rest;
            }
            Ok(())
        })
    }

    /// The number of token ids of each request; 0 for control messages.
    #[getter]
    fn lengths(&self) -> Vec<usize> {
        self.0.iter().map(|request| request.ids.len() / 8).collect()
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }
}
