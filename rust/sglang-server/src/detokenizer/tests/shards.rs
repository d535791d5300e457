//! Routing of events to sinks, and how requests and shards end.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    super::{Event, Options},
    Reader, Running, byte_level, faulty, run, step,
};
use crate::{
    error::RequestError,
    ids::Rid,
    live::{LiveNames, Sink},
    message::{ResponseEvent, Step},
    tokenizer::ByteTokenizer,
};

/// Steps for an unknown rid, after the end of a request, and after it was deregistered.
#[test]
fn steps_for_unknown_requests_are_dropped() {
    let running = run(Some(Arc::new(ByteTokenizer::default())), 1);
    let end = step(&[97], &json!({"type": "length", "length": 1}));
    let mut reader = running.register(8, Options::default());
    running.steps(&Rid::mint(), [end.clone()]);
    running.steps(&reader.rid, [end.clone(), end]);
    assert_eq!(1, reader.all_chunks().len());
    let mut deregistered = running.register(8, Options::default());
    running.send(
        &deregistered.rid,
        Event::Deregister(deregistered.rid.clone()),
    );
    running.steps(&deregistered.rid, [step(&[97], &Value::Null)]);
    assert_eq!(None, deregistered.next());
    assert!(running.end().is_empty());
}

#[test]
fn a_full_sink_fails_the_request_and_aborts_it() {
    let running = byte_level();
    let names = LiveNames::default();
    let (sink, events) = Sink::new(2, names.take("x"));
    let rid = Rid::from_client("x");
    let register = Event::Register {
        rid: rid.clone(),
        sink,
        options: Some(Options::default()),
    };
    running.send(&rid, register);
    running.steps(&rid, [97, 98, 99, 100].map(|id| step(&[id], &Value::Null)));
    assert_eq!(
        Ok(rid.clone()),
        running.aborts.recv_timeout(Duration::from_secs(20))
    );
    let mut reader = Reader { rid, events };
    assert_eq!(["a", "b"], [reader.chunk().text, reader.chunk().text][..]);
    assert_eq!(503, reader.error().status());
    assert_eq!(None, reader.next());
    assert!(names.take("x").is_some());
    assert!(running.end().is_empty());
}

/// A sink has a reserved slot for the last event.
#[test]
fn a_slow_reader_gets_its_last_chunk() {
    let running = byte_level();
    let mut reader = running.register(1, Options::default());
    running.steps(
        &reader.rid,
        [
            step(&[97], &Value::Null),
            step(&[98], &json!({"type": "length", "length": 2})),
        ],
    );
    assert!(running.end().is_empty());
    assert_eq!(
        ["a", "b"],
        reader
            .all_chunks()
            .iter()
            .map(|chunk| chunk.text.as_str())
            .collect::<Vec<_>>()[..]
    );
}

/// A reader that leaves sends an abort itself, so the shard must not send a second one.
#[test]
fn after_the_reader_left_the_shard_sends_no_abort() {
    type Start = fn() -> Running;
    type Ends = fn(&Running, &Rid);
    let ends: [(&str, Start, Ends); 5] = [
        ("token", faulty, |running, rid| {
            running.steps(rid, [step(&[97], &Value::Null)]);
        }),
        ("stop string", byte_level, |running, rid| {
            running.steps(rid, [step(&[98], &Value::Null)]);
        }),
        ("panic", faulty, |running, rid| {
            let end = json!({"type": "length", "length": 1});
            running.steps(rid, [step(&[9], &end)]);
        }),
        ("malformed frame", faulty, |running, rid| {
            let error = RequestError::Codec("no".into());
            running.send(rid, Event::Fail(rid.clone(), error));
        }),
        ("internal error", faulty, |running, rid| {
            let error = RequestError::Internal("no".into());
            running.send(rid, Event::Fail(rid.clone(), error));
        }),
    ];
    for (name, start, end) in ends {
        for left in [true, false] {
            let running = start();
            let reader = running.register(4, super::with_stops(&["b"]));
            let rid = reader.rid.clone();
            let reader = (!left).then_some(reader);
            end(&running, &rid);
            let aborts = running.end();
            let expected = usize::from(!left && name != "token");
            assert_eq!(expected, aborts.len(), "{name}, left: {left}");
            drop(reader);
        }
    }
}

#[test]
fn a_closed_sink_removes_the_request_without_an_abort() {
    let running = byte_level();
    let names = LiveNames::default();
    let (sink, events) = Sink::new(2, names.take("x"));
    let rid = Rid::mint();
    drop(events);
    let register = Event::Register {
        rid: rid.clone(),
        sink,
        options: Some(Options::default()),
    };
    running.send(&rid, register);
    running.steps(&rid, [step(&[97], &Value::Null)]);
    assert!(running.end().is_empty());
    assert!(names.take("x").is_some());
}

#[test]
fn requests_of_one_shard_keep_their_own_sinks() {
    let running = run(Some(Arc::new(ByteTokenizer::default())), 1);
    let mut readers: Vec<Reader> = (0..3)
        .map(|_| running.register(8, Options::default()))
        .collect();
    for (id, reader) in (97..).zip(&readers) {
        running.steps(&reader.rid, [step(&[id], &Value::Null)]);
    }
    let all: Vec<(String, Step)> = (100..)
        .zip(&readers)
        .map(|(id, reader)| {
            (
                reader.rid.to_string(),
                step(&[id], &json!({"type": "length"})),
            )
        })
        .collect();
    running.shards.inboxes().send_steps(all).unwrap();
    let texts = readers.iter_mut().map(|reader| {
        reader
            .all_chunks()
            .iter()
            .map(|chunk| chunk.text.as_str())
            .collect::<String>()
    });
    assert_eq!(["ad", "be", "cf"], texts.collect::<Vec<_>>()[..]);
}

#[test]
fn a_second_request_with_the_same_rid_fails_the_first() {
    let running = byte_level();
    let rid = Rid::mint();
    let mut first = running.register_as(rid.clone(), 8, Options::default());
    let mut second = running.register_as(rid.clone(), 8, Options::default());
    running.steps(&rid, [step(&[97], &json!({"type": "length"}))]);
    assert_eq!(500, first.error().status());
    assert_eq!("a", second.all_chunks()[0].text);
}

#[test]
fn control_answers_are_passed_on_unchanged() {
    let running = byte_level();
    let mut reader = running.register(8, None);
    let payload = Bytes::from_static(b"\x81\xa1a\x01");
    let control = |rid: &Rid| Event::Control(rid.clone(), payload.clone());
    running.send(&reader.rid, control(&reader.rid));
    assert_eq!(Some(ResponseEvent::Control(payload.clone())), reader.next());
    assert_eq!(None, reader.next());

    // A control answer for a generation, and tokens for a control message, are errors. The
    // scheduler may still be working on the generation, so it gets an abort.
    let mut generation = running.register(8, Options::default());
    running.send(&generation.rid, control(&generation.rid));
    assert!(matches!(generation.error(), RequestError::Codec(_)));
    let mut message = running.register(8, None);
    running.steps(&message.rid, [step(&[97], &Value::Null)]);
    assert!(matches!(message.error(), RequestError::Codec(_)));
    assert_eq!(vec![generation.rid], running.end());
}

#[test]
fn failures_abort_only_if_the_scheduler_may_still_be_working() {
    #[rustfmt::skip]
    let cases = [
        (RequestError::Codec("malformed".into()),   true),
        (RequestError::Internal("no".into()),       true),
        (RequestError::QueueFull("no".into()),      false),
        (RequestError::Unavailable("no".into()),    false),
        (RequestError::invalid("no"),               false),
    ];
    for (error, aborted) in cases {
        let running = byte_level();
        let mut reader = running.register(8, Options::default());
        running.send(&reader.rid, Event::Fail(reader.rid.clone(), error.clone()));
        let unknown = Rid::mint();
        running.send(&unknown, Event::Fail(unknown.clone(), error.clone()));
        assert_eq!(error, reader.error());
        assert_eq!(None, reader.next());
        let expected: Vec<Rid> = aborted.then_some(reader.rid).into_iter().collect();
        assert_eq!(expected, running.end(), "{error}");
    }
}

#[test]
fn a_panic_fails_only_its_request() {
    let running = faulty();
    let mut bystander = running.register(8, Options::default());
    running.steps(&bystander.rid, [step(&[4], &Value::Null)]);
    let mut reader = running.register(8, Options::default());
    running.steps(
        &reader.rid,
        [
            step(&[4], &Value::Null),
            step(&[9], &json!({"type": "length"})),
        ],
    );
    assert_eq!("", reader.chunk().text);
    assert_eq!(500, reader.error().status());
    assert_eq!(None, reader.next());
    let mut detokenized = running.register(8, Options::default());
    let detokenize = Event::Detokenize {
        rid: detokenized.rid.clone(),
        ids: vec![9],
    };
    running.send(&detokenized.rid, detokenize);
    assert_eq!(500, detokenized.error().status());
    running.steps(&bystander.rid, [step(&[5], &json!({"type": "length"}))]);
    assert_eq!(
        ["", "a▁a"],
        bystander
            .all_chunks()
            .iter()
            .map(|chunk| chunk.text.as_str())
            .collect::<Vec<_>>()[..]
    );
    assert_eq!(2, running.panics.load(Ordering::Relaxed));
    assert_eq!(vec![reader.rid, detokenized.rid], running.end());
}

#[test]
fn shutdown_ends_every_request_once() {
    let running = byte_level();
    let mut readers: Vec<Reader> = (0..20)
        .map(|_| running.register(1, Options::default()))
        .collect();
    for reader in &readers {
        running.steps(&reader.rid, [step(&[97], &Value::Null)]);
    }
    let inboxes = running.shards.inboxes();
    assert!(running.end().is_empty());
    for reader in &mut readers {
        assert_eq!("a", reader.chunk().text);
        assert_eq!(503, reader.error().status());
        assert_eq!(None, reader.next());
    }
    let (sink, mut events) = Sink::new(1, None);
    let rid = Rid::mint();
    let late = Event::Register {
        rid: rid.clone(),
        sink,
        options: Some(Options::default()),
    };
    assert!(inboxes.send(&rid, late).is_err());
    assert_eq!(None, events.blocking_recv());
    let steps = vec![(rid.to_string(), step(&[97], &Value::Null))];
    assert!(inboxes.send_steps(steps).is_err());
}

/// The shards end without a shutdown signal when all senders are dropped.
#[test]
fn shards_end_when_all_senders_are_dropped() {
    let running = byte_level();
    let mut reader = running.register(1, Options::default());
    let Running {
        shards, shutdown, ..
    } = running;
    assert_eq!(0, shards.join(Instant::now() + Duration::from_secs(20)));
    assert_eq!(503, reader.error().status());
    drop(shutdown);
}
