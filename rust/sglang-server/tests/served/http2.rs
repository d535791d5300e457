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
use sglang_server::Server;
use tokio::{net::TcpStream, runtime::Runtime, task::JoinHandle};

use crate::common::{
    Echo, eventually, expect_abort, finish, metric, nothing_received, receive, start_server, step,
    wait_until_idle,
};

const STREAMS: usize = 100;

/// One connection.
struct Client {
    runtime: Runtime,
    requests: SendRequest<Bytes>,
    connection: JoinHandle<()>,
}

/// A request on the connection, before its response.
struct Stream {
    response: ResponseFuture,
    request: h2::SendStream<Bytes>,
}

/// A response whose body is being read.
struct Response {
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
        // An error is expected if the test ends the connection.
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

    fn begin(&self, stream: Stream) -> Response {
        let response = self.runtime.block_on(stream.response).unwrap();
        let (head, body) = response.into_parts();
        Response {
            request: stream.request,
            status: head.status,
            headers: head.headers,
            body,
            text: String::new(),
        }
    }

    /// Reads a piece of the body. Returns false at its end.
    fn read(&self, response: &mut Response) -> bool {
        let Some(data) = self.runtime.block_on(response.body.data()) else {
            return false;
        };
        let data = data.unwrap();
        let flow = response.body.flow_control();
        flow.release_capacity(data.len()).unwrap();
        response.text.push_str(str::from_utf8(&data).unwrap());
        true
    }

    fn read_all(&self, response: &mut Response) {
        while self.read(response) {}
    }

    /// Ends the connection like a client that was killed.
    fn disconnect(self) {
        self.connection.abort();
        let ended = self.runtime.block_on(self.connection);
        assert!(ended.is_err_and(|error| error.is_cancelled()));
    }
}

fn body_with_rid(rid: usize, stream: bool) -> Value {
    json!({"input_ids": [1], "rid": rid.to_string(), "stream": stream})
}

/// The rids of the next `count` messages, sorted by the number that the client gave as rid.
fn rids(server: &Server, tag: &str, count: usize) -> Vec<String> {
    let messages = (0..count).map(|_| receive(server));
    let mut rids: Vec<String> = messages
        .map(|message| {
            assert_eq!(tag, message.tag);
            message.rid
        })
        .collect();
    rids.sort_by_key(|rid| rid.split('#').next().unwrap().parse::<usize>().unwrap());
    rids
}

#[test]
fn a_hundred_concurrent_streams_are_answered() {
    let echo = Echo::new();
    let mut client = Client::connect(echo.address());
    let streams: Vec<Stream> = (0..STREAMS)
        .map(|index| {
            let text = format!("this is number {index}");
            client.ask(&json!({"text": text, "stream": index % 2 == 1}))
        })
        .collect();
    for (index, stream) in streams.into_iter().enumerate() {
        let mut response = client.begin(stream);
        client.read_all(&mut response);
        assert_eq!(StatusCode::OK, response.status, "{}", response.text);
        let last = if index % 2 == 1 {
            assert_eq!(
                "text/event-stream; charset=utf-8",
                response.headers["content-type"]
            );
            let events = response.text.strip_suffix("\n\ndata: [DONE]\n\n").unwrap();
            events.rsplit_once("data: ").unwrap().1
        } else {
            &response.text
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

/// Answers `rid` with two tokens, and checks the response.
fn check_answered(server: &Server, client: &Client, stream: Stream, rid: &str) {
    step(server, rid, &[65], &Value::Null, 1);
    finish(server, rid, &[66]);
    let mut response = client.begin(stream);
    client.read_all(&mut response);
    assert_eq!(StatusCode::OK, response.status);
    assert!(
        response.text.contains(r#""text":"AB""#),
        "{}",
        response.text
    );
}

/// The stream is reset before its answer, and in the middle of it. The other streams continue.
#[test]
fn a_reset_stream_aborts_only_its_request() {
    let server = start_server();
    let mut client = Client::connect(server.address());
    let rounds = [(false, false), (true, false), (true, true)];
    for (round, (stream, begin)) in rounds.into_iter().enumerate() {
        // New rids in each round: the rid of a reset stream is not free at once.
        let mut streams: Vec<Stream> = (3 * round..3 * round + 3)
            .map(|rid| client.ask(&body_with_rid(rid, stream)))
            .collect();
        let rids = rids(&server, "TokenizedGenerateReqInput", 3);
        let mut reset = streams.remove(1);
        if begin {
            step(&server, &rids[1], &[65], &Value::Null, 1);
            let mut response = client.begin(reset);
            assert!(client.read(&mut response));
            response.request.send_reset(Reason::CANCEL);
        } else {
            reset.request.send_reset(Reason::CANCEL);
        }
        expect_abort(&server, &rids[1]);
        eventually("two are live", || {
            metric(&server, "sglang_requests_live") == 2
        });
        for (stream, rid) in streams.into_iter().zip([&rids[0], &rids[2]]) {
            check_answered(&server, &client, stream, rid);
        }
        wait_until_idle(&server);
        assert!(nothing_received(&server));
    }
    assert_eq!(3, metric(&server, "sglang_requests_aborted_total"));
    // The end of the connection does not abort answered requests.
    client.disconnect();
    server.shutdown(Duration::ZERO);
    assert!(nothing_received(&server));
}

#[test]
fn the_end_of_a_connection_aborts_all_its_requests() {
    let server = start_server();
    let mut client = Client::connect(server.address());
    let mut streams: Vec<Stream> = (0..STREAMS)
        .map(|rid| client.ask(&body_with_rid(rid, rid % 2 == 1)))
        .collect();
    let requests = rids(&server, "TokenizedGenerateReqInput", STREAMS);
    // The first request is answered, the second has begun.
    finish(&server, &requests[0], &[65]);
    step(&server, &requests[1], &[65], &Value::Null, 1);
    let mut read = Vec::new();
    for stream in streams.drain(..2) {
        let mut response = client.begin(stream);
        assert!(client.read(&mut response));
        assert_eq!(StatusCode::OK, response.status);
        read.push(response);
    }
    eventually("the first request has ended", || {
        metric(&server, "sglang_requests_live") == STREAMS as u64 - 1
    });
    client.disconnect();
    assert_eq!(requests[1..], rids(&server, "AbortReq", STREAMS - 1));
    wait_until_idle(&server);
    assert!(nothing_received(&server));
    // New connections are served.
    let mut other = Client::connect(server.address());
    let stream = other.ask(&body_with_rid(0, false));
    finish(&server, &receive(&server).rid, &[65]);
    assert_eq!(StatusCode::OK, other.begin(stream).status);
}
