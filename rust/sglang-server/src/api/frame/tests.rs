use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::Frames;
use crate::{
    ids::Rid,
    message::{Chunk, Extras, FinishReason, GenerateRequest, Prompt, response::TextLogprob},
};

fn request(logprobs: bool, top: i64, ids: bool, hidden: bool) -> GenerateRequest {
    GenerateRequest {
        stream: true,
        return_logprob: logprobs,
        top_logprobs_num: top,
        token_ids_logprob: ids.then(|| vec![1]),
        return_hidden_states: hidden,
        ..GenerateRequest::plain(Rid::from_client("r\"1"), Prompt::Ids(vec![1]))
    }
}

fn entry((logprob, id, text): (f32, i32, Option<String>)) -> TextLogprob {
    let logprob = (!logprob.is_nan()).then_some(logprob);
    TextLogprob { logprob, id, text }
}

fn entries() -> impl Strategy<Value = Vec<TextLogprob>> {
    let logprob = prop_oneof![
        -50.0_f32..0.0,
        Just(f32::NAN),
        Just(f32::NEG_INFINITY),
        Just(f32::INFINITY),
        Just(f32::MIN),
    ];
    prop::collection::vec(
        (logprob, any::<i32>(), any::<Option<String>>()).prop_map(entry),
        0..3,
    )
}

fn ragged() -> impl Strategy<Value = Vec<Vec<TextLogprob>>> {
    prop::collection::vec(entries(), 0..3)
}

prop_compose! {
    fn extras()(
        output in entries(),
        input in entries(),
        output_top in ragged(),
        input_top in ragged(),
        output_ids in ragged(),
        input_ids in ragged(),
        hidden in prop::collection::vec(prop::collection::vec(-2.0_f32..2.0, 0..3), 0..2),
    ) -> Extras<TextLogprob> {
        Extras { output, input, output_top, input_top, output_ids, input_ids, hidden }
    }
}

type Piece = (String, Vec<i32>, Option<Extras<TextLogprob>>);

prop_compose! {
    fn chunks()(
        steps in prop::collection::vec(
            (any::<String>(), prop::collection::vec(any::<i32>(), 0..4), prop::option::of(extras())),
            1..6,
        ),
        ends: bool,
    ) -> Vec<Chunk> {
        let last = steps.len() - 1;
        let finish = json!({"type": "length", "length": 3});
        let chunk = |(at, (text, output_ids, extras)): (usize, Piece)| Chunk {
            text,
            completion_tokens: at as u32 * 2 + 1,
            prompt_tokens: 7,
            finish: (ends && at == last).then(|| FinishReason(finish.as_object().cloned().unwrap())),
            extras: extras.map(Box::new),
            output_ids,
        };
        steps.into_iter().enumerate().map(chunk).collect()
    }
}

/// The reference: the object of all `chunks`, built at once.
fn reference(request: &GenerateRequest, chunks: &[Chunk]) -> Value {
    let last = chunks.last().unwrap();
    let text: String = chunks.iter().map(|chunk| chunk.text.as_str()).collect();
    let ids: Vec<i32> = chunks
        .iter()
        .flat_map(|chunk| chunk.output_ids.clone())
        .collect();
    let mut meta = json!({
        "id": "r\"1",
        "prompt_tokens": last.prompt_tokens,
        "completion_tokens": last.completion_tokens,
        "finish_reason": last.finish.as_ref().map(|reason| &reason.0),
    });
    if last.finish.is_some() {
        meta["e2e_latency"] = json!(1.5);
    }
    add_logprobs(&mut meta, request, chunks);
    if request.return_hidden_states {
        let rows = |extras: &Extras<_>| extras.hidden.iter().map(|row| json!(row)).collect();
        meta["hidden_states"] = all(chunks, rows);
    }
    let mut object = json!({"text": text, "meta_info": meta, "index": 4});
    if !ids.is_empty() {
        object["output_ids"] = json!(ids);
    }
    object
}

fn add_logprobs(meta: &mut Value, request: &GenerateRequest, chunks: &[Chunk]) {
    let entry = |entry: &TextLogprob| {
        json!([
            entry.logprob.filter(|l| l.is_finite()),
            entry.id,
            entry.text
        ])
    };
    let position = |entries: &Vec<TextLogprob>| match entries.as_slice() {
        [] => Value::Null,
        entries => entries.iter().map(entry).collect(),
    };
    if !request.return_logprob {
        return;
    }
    meta["output_token_logprobs"] = all(chunks, |e| e.output.iter().map(entry).collect());
    meta["input_token_logprobs"] = all(chunks, |e| e.input.iter().map(entry).collect());
    if request.top_logprobs_num > 0 {
        meta["output_top_logprobs"] = all(chunks, |e| e.output_top.iter().map(position).collect());
        meta["input_top_logprobs"] = all(chunks, |e| e.input_top.iter().map(position).collect());
    }
    if request.token_ids_logprob.is_some() {
        meta["output_token_ids_logprobs"] =
            all(chunks, |e| e.output_ids.iter().map(position).collect());
        meta["input_token_ids_logprobs"] =
            all(chunks, |e| e.input_ids.iter().map(position).collect());
    }
}

/// The values of all extras, in one array.
fn all(chunks: &[Chunk], of: impl Fn(&Extras<TextLogprob>) -> Vec<Value>) -> Value {
    let extras = chunks.iter().filter_map(|chunk| chunk.extras.as_deref());
    extras.flat_map(of).collect()
}

fn parsed(frames: &Frames) -> Value {
    let frame = frames.frame(Duration::from_millis(1500));
    serde_json::from_str(&frame).unwrap_or_else(|error| panic!("{error}: {frame}"))
}

/// Compares JSON values. Numbers are equal if they are equal as 32-bit floats.
fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            left == right || left.as_f64().map(|n| n as f32) == right.as_f64().map(|n| n as f32)
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(l, r)| equal(l, r))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(key, l)| right.get(key).is_some_and(|r| equal(l, r)))
        }
        _ => left == right,
    }
}

proptest! {
    #[test]
    fn frame_equals_the_object_of_all_steps(
        chunks in chunks(),
        logprobs: bool,
        top in 0_i64..2,
        ids: bool,
        hidden: bool,
    ) {
        let request = request(logprobs, top, ids, hidden);
        let mut cumulative = Frames::new(&request, Some(4), true);
        let mut deltas = Frames::new(&request, Some(4), false);
        for (at, chunk) in chunks.iter().enumerate() {
            cumulative.push(chunk.clone());
            deltas.push(chunk.clone());
            let expected = reference(&request, &chunks[..=at]);
            prop_assert!(equal(&expected, &parsed(&cumulative)), "{expected} {}", parsed(&cumulative));
            let expected = reference(&request, std::slice::from_ref(chunk));
            prop_assert!(equal(&expected, &parsed(&deltas)), "{expected} {}", parsed(&deltas));
        }
    }
}

#[test]
fn single_generation_has_no_index() {
    let mut frames = Frames::new(&request(true, 0, false, false), None, true);
    frames.push(Chunk {
        text: "a\n\"b".into(),
        prompt_tokens: 2,
        ..Chunk::default()
    });
    assert_eq!(
        r#"{"text":"a\n\"b","meta_info":{"id":"r\"1","prompt_tokens":2,"completion_tokens":0,"finish_reason":null,"output_token_logprobs":[],"input_token_logprobs":[]}}"#,
        frames.frame(Duration::ZERO)
    );
}
