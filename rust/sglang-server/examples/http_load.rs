//! Load generator for `ci/bench.py server`: connections that repeat one request.
//!
//!     http_load ADDRESS CONNECTIONS SECONDS < BODY
//!
//! Posts to `/generate` over HTTP/1.1, one request at a time on each connection, and reads each
//! answer to its end. After SECONDS it prints a report as JSON. Any answer that is incomplete or
//! whose status is not 200 ends the program with an error.

use std::{
    env,
    error::Error,
    io::{self, Read as _, Write as _},
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    task::JoinSet,
};

type Failure = Box<dyn Error + Send + Sync>;

/// Measurements of one or several connections.
#[derive(Default)]
struct Measurements {
    /// Times from sending a request to the first byte of the body.
    first: Vec<Duration>,
    /// Times from sending a request to the end of the body.
    whole: Vec<Duration>,
    events: usize,
    bytes: usize,
}

struct Connection {
    stream: BufReader<TcpStream>,
    line: String,
    measured: Measurements,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [address, connections, seconds] = arguments.as_slice() else {
        return Err("usage: http_load ADDRESS CONNECTIONS SECONDS < BODY".into());
    };
    let (connections, seconds): (usize, f64) = (connections.parse()?, seconds.parse()?);
    let request = request(address)?;
    let mut idle = Vec::with_capacity(connections);
    for _ in 0..connections {
        idle.push(Connection::open(address).await?);
    }
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(seconds);
    let mut busy = JoinSet::new();
    for connection in idle {
        busy.spawn(connection.ask_until(end, Arc::clone(&request)));
    }
    let mut measured = Measurements::default();
    while let Some(ended) = busy.join_next().await {
        measured.add(ended??);
    }
    let report = measured.report(start.elapsed());
    writeln!(io::stdout(), "{report}")?;
    Ok(())
}

fn request(address: &str) -> Result<Arc<[u8]>, Failure> {
    let mut body = String::new();
    io::stdin().read_to_string(&mut body)?;
    let length = body.len();
    let head = format!(
        "POST /generate HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    Ok([head.as_bytes(), body.as_bytes()].concat().into())
}

impl Connection {
    async fn open(address: &str) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::with_capacity(64 << 10, stream),
            line: String::new(),
            measured: Measurements::default(),
        })
    }

    async fn ask_until(
        mut self,
        end: Instant,
        request: Arc<[u8]>,
    ) -> Result<Measurements, Failure> {
        while Instant::now() < end {
            let start = Instant::now();
            self.stream.get_mut().write_all(&request).await?;
            self.answer(start).await?;
            self.measured.whole.push(start.elapsed());
        }
        Ok(self.measured)
    }

    async fn answer(&mut self, start: Instant) -> Result<(), Failure> {
        let status = self.line().await?;
        if !status.starts_with("HTTP/1.1 200") {
            return Err(format!("the server answered {status:?}").into());
        }
        let mut length = None;
        loop {
            let header = self.line().await?;
            if header.is_empty() {
                break;
            }
            if let Some((name, value)) = header.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = Some(value.trim().parse()?);
            }
        }
        self.stream.fill_buf().await?;
        self.measured.first.push(start.elapsed());
        if let Some(length) = length {
            return self.body(length).await;
        }
        loop {
            let length = usize::from_str_radix(self.line().await?, 16)?;
            self.body(length).await?;
            self.line().await?;
            if length == 0 {
                return Ok(());
            }
        }
    }

    /// The next line, without its line break.
    async fn line(&mut self) -> Result<&str, Failure> {
        self.line.clear();
        if self.stream.read_line(&mut self.line).await? == 0 {
            return Err("the server closed the connection".into());
        }
        Ok(self.line.trim_ascii_end())
    }

    async fn body(&mut self, mut length: usize) -> Result<(), Failure> {
        self.measured.bytes += length;
        let mut last = 0;
        while length > 0 {
            let there = self.stream.fill_buf().await?;
            if there.is_empty() {
                return Err("the server closed the connection within an answer".into());
            }
            let taken = there.len().min(length);
            for &byte in &there[..taken] {
                // The JSON of an event has no line breaks, so an empty line is the end of an event.
                self.measured.events += usize::from(byte == b'\n' && last == b'\n');
                last = byte;
            }
            self.stream.consume(taken);
            length -= taken;
        }
        Ok(())
    }
}

impl Measurements {
    fn add(&mut self, other: Self) {
        self.first.extend(other.first);
        self.whole.extend(other.whole);
        self.events += other.events;
        self.bytes += other.bytes;
    }

    fn report(mut self, wall: Duration) -> Value {
        json!({
            "seconds": wall.as_secs_f64(),
            "requests": self.whole.len(),
            "events": self.events,
            "bytes": self.bytes,
            "first_ms": quantiles(&mut self.first),
            "whole_ms": quantiles(&mut self.whole),
        })
    }
}

/// The median and the 99th percentile, in milliseconds.
fn quantiles(times: &mut [Duration]) -> Value {
    times.sort_unstable();
    let at = |quantile: f64| {
        let last = times.len().saturating_sub(1) as f64;
        let time = times.get((last * quantile) as usize);
        time.map(|time| time.as_secs_f64() * 1e3)
    };
    json!({"p50": at(0.5), "p99": at(0.99)})
}
