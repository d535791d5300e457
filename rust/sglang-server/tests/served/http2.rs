//! HTTP/2 without TLS, with prior knowledge: many requests on one connection.

use std::{net::SocketAddr, time::Duration};

use axum::{
    body::Bytes,
    http::{HeaderMap, Request, StatusCode},
};
use h2::{
    Reason,
    client::{ResponseFuture, SendRequest},
};
use serde_json::{Value, json};
use sglang_server::{config::FrontendConfig, runtime::Server};
use tokio::{net::TcpStream, runtime::Runtime, task::JoinHandle};

use crate::common::{Echo, args, eventually, finish, metric, silent, step, told};

const STREAMS: usize = 100;

/// One connection.
struct Client {
    runtime: Runtime,
    requests: SendRequest<Bytes>,
    connection: JoinHandle<()>,
}

/// One request on it, whose answer is yet to be read.
struct Stream {
    response: ResponseFuture,
    request: h2::SendStream<Bytes>,
}

/// An answer that is not read to its end yet.
struct Begun {
    request: h2::SendStream<Bytes>,
    status: StatusCode,
    headers: HeaderMap,
    body: h2::RecvStream,
    text: String,
}

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let runtime = Runtime::new().unwrap();
        let (requests, connection) = runtime.block_on(async {
            let stream = TcpStream::connect(address).await.unwrap();
            h2::client::handshake(stream).await.unwrap()
        });
        // It ends with an error where the test ends it.
        let connection = runtime.spawn(async { drop(connection.await) });
        Self {
            runtime,
            requests,
            connection,
        }
    }

    fn ask(&mut self, body: &Value) -> Stream {
        let request = Request::post("http://test/generate")
            .header("content-type", "application/json")
            .body(())
            .unwrap();
        let body = body.to_string().into();
        let (response, mut request) = self.runtime.block_on(async {
            let requests = self.requests.clone().ready().await;
            requests.unwrap().send_request(request, false).unwrap()
        });
        request.send_data(body, true).unwrap();
        Stream { response, request }
    }

    fn begin(&self, stream: Stream) -> Begun {
        let response = self.runtime.block_on(stream.response).unwrap();
        let (head, body) = response.into_parts();
        Begun {
            request: stream.request,
            status: head.status,
            headers: head.headers,
            body,
            text: String::new(),
        }
    }

    /// Reads a piece of the body; false at its end.
    fn read(&self, begun: &mut Begun) -> bool {
        let Some(data) = self.runtime.block_on(begun.body.data()) else {
            return false;
        };
        let data = data.unwrap();
        let flow = begun.body.flow_control();
        flow.release_capacity(data.len()).unwrap();
        begun.text.push_str(str::from_utf8(&data).unwrap());
        true
    }

    fn read_all(&self, begun: &mut Begun) {
        while self.read(begun) {}
    }

    /// Ends the connection as a client does that is killed.
    fn leave(self) {
        self.connection.abort();
        let ended = self.runtime.block_on(self.connection);
        assert!(ended.is_err_and(|error| error.is_cancelled()));
    }
}

fn server() -> Server {
    Server::start(args(), FrontendConfig::default(), 0, &[]).unwrap()
}

/// A request that is known as `rid`.
fn named(rid: usize, stream: bool) -> Value {
    json!({"input_ids": [1], "rid": rid.to_string(), "stream": stream})
}

/// The names by which the scheduler knows requests, in the order of their clients' names.
fn rids(server: &Server, tag: &str, count: usize) -> Vec<String> {
    let messages = (0..count).map(|_| told(server));
    let mut rids: Vec<String> = messages
        .map(|message| {
            assert_eq!(tag, message.tag);
            message.rid
        })
        .collect();
    rids.sort_by_key(|rid| rid.split('#').next().unwrap().parse::<usize>().unwrap());
    rids
}

fn nothing_lives(server: &Server) {
    eventually("nothing is live", || {
        metric(server, "sglang_requests_live") == 0
    });
}

#[test]
fn a_hundred_streams_of_one_connection_are_answered() {
    let echo = Echo::new();
    let mut client = Client::connect(echo.address());
    let asked: Vec<Stream> = (0..STREAMS)
        .map(|index| {
            let text = format!("this is number {index}");
            client.ask(&json!({"text": text, "stream": index % 2 == 1}))
        })
        .collect();
    for (index, stream) in asked.into_iter().enumerate() {
        let mut begun = client.begin(stream);
        client.read_all(&mut begun);
        assert_eq!(StatusCode::OK, begun.status, "{}", begun.text);
        let last = if index % 2 == 1 {
            assert_eq!(
                "text/event-stream; charset=utf-8",
                begun.headers["content-type"]
            );
            let events = begun.text.strip_suffix("\n\ndata: [DONE]\n\n").unwrap();
            events.rsplit_once("data: ").unwrap().1
        } else {
            &begun.text
        };
        let last: Value = serde_json::from_str(last).unwrap();
        assert_eq!(
            format!("this is number {index}"),
            last["text"].as_str().unwrap()
        );
    }
    assert_eq!(
        STREAMS as u64,
        metric(&echo.server, "sglang_requests_total")
    );
    assert_eq!(0, metric(&echo.server, "sglang_requests_aborted_total"));
}

/// Before its answer and in the midst of it: a stream that is reset is one abort, and its
/// neighbours go on.
#[test]
fn one_stream_that_is_reset_aborts_its_own_request() {
    let server = server();
    let mut client = Client::connect(server.address());
    let rounds = [(false, false), (true, false), (true, true)];
    for (round, (stream, begin)) in rounds.into_iter().enumerate() {
        // The name of one who has left is free soon, but not at once.
        let mut asked: Vec<Stream> = (3 * round..3 * round + 3)
            .map(|rid| client.ask(&named(rid, stream)))
            .collect();
        let rids = rids(&server, "TokenizedGenerateReqInput", 3);
        let mut reset = asked.remove(1);
        if begin {
            step(&server, &rids[1], &[65], &Value::Null, 1);
            let mut begun = client.begin(reset);
            assert!(client.read(&mut begun));
            begun.request.send_reset(Reason::CANCEL);
        } else {
            reset.request.send_reset(Reason::CANCEL);
        }
        let abort = told(&server);
        assert_eq!(("AbortReq", &rids[1]), (abort.tag.as_str(), &abort.rid));
        eventually("two are live", || {
            metric(&server, "sglang_requests_live") == 2
        });
        for (stream, rid) in asked.into_iter().zip([&rids[0], &rids[2]]) {
            step(&server, rid, &[65], &Value::Null, 1);
            finish(&server, rid, &[66]);
            let mut begun = client.begin(stream);
            client.read_all(&mut begun);
            assert_eq!(StatusCode::OK, begun.status);
            assert!(begun.text.contains(r#""text":"AB""#), "{}", begun.text);
        }
        nothing_lives(&server);
        assert!(silent(&server));
    }
    assert_eq!(3, metric(&server, "sglang_requests_aborted_total"));
    // What is answered is not aborted by a connection that ends.
    client.leave();
    server.shutdown(Duration::ZERO);
    assert!(silent(&server));
}

#[test]
fn a_connection_that_ends_aborts_all_its_requests() {
    let server = server();
    let mut client = Client::connect(server.address());
    let mut asked: Vec<Stream> = (0..STREAMS)
        .map(|rid| client.ask(&named(rid, rid % 2 == 1)))
        .collect();
    let requests = rids(&server, "TokenizedGenerateReqInput", STREAMS);
    // One has its answer, and one has begun.
    finish(&server, &requests[0], &[65]);
    step(&server, &requests[1], &[65], &Value::Null, 1);
    let mut read = Vec::new();
    for stream in asked.drain(..2) {
        let mut begun = client.begin(stream);
        assert!(client.read(&mut begun));
        assert_eq!(StatusCode::OK, begun.status);
        read.push(begun);
    }
    eventually("one has ended", || {
        metric(&server, "sglang_requests_live") == STREAMS as u64 - 1
    });
    client.leave();
    assert_eq!(requests[1..], rids(&server, "AbortReq", STREAMS - 1));
    nothing_lives(&server);
    assert!(silent(&server));
    // Others are served as before.
    let mut other = Client::connect(server.address());
    let stream = other.ask(&named(0, false));
    finish(&server, &told(&server).rid, &[65]);
    assert_eq!(StatusCode::OK, other.begin(stream).status);
}
