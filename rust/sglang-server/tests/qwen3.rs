//! Qwen3's tokenizer: same tokens as the Python package, and correct incremental decoding.
//!
//! `ci/test.py --only tokenizer` downloads the file and runs these tests. To run them by hand:
//! `SGLANG_TEST_QWEN3=.../tokenizer.json cargo nextest run -p sglang-server --test qwen3 --run-ignored all`.

use std::{
    env,
    path::Path,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use proptest::prelude::*;
use serde::Deserialize;
use sglang_server::{
    testing::{DecodeOptions, Decoder, StopFinder, Stops, decode_one},
    tokenizer::{AutoSpecials, TextTokenizer, load},
};

static TOKENIZER: LazyLock<Arc<dyn TextTokenizer>> = LazyLock::new(|| {
    let path = env::var_os("SGLANG_TEST_QWEN3")
        .expect("set SGLANG_TEST_QWEN3 to the path of Qwen3's tokenizer.json");
    load(Some(Path::new(&path))).unwrap()
});

/// A line of the file that `generate_qwen3_golden.py` writes.
#[derive(Deserialize)]
struct Golden {
    text: String,
    ids: Vec<i32>,
    plain: String,
}

fn golden() -> Vec<Golden> {
    let lines = include_str!("golden/qwen3.jsonl").lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn options(skip_special_tokens: bool) -> DecodeOptions {
    DecodeOptions {
        skip_special_tokens,
        ..DecodeOptions::default()
    }
}

/// The text of `ids`, decoded incrementally in chunks of `step` tokens.
fn decode_in_chunks(ids: &[i32], step: usize, skip: bool) -> String {
    let mut decoder = Decoder::new(Arc::clone(&TOKENIZER), options(skip));
    let mut text: String = ids.chunks(step).map(|chunk| decoder.push(chunk)).collect();
    text.push_str(&decoder.finish().unwrap());
    text
}

#[test]
#[ignore = "needs SGLANG_TEST_QWEN3"]
fn tokens_match_the_python_package() {
    for Golden { text, ids, plain } in golden() {
        assert_eq!(ids, TOKENIZER.encode(&text).unwrap(), "{text:?}");
        assert_eq!(
            ids,
            TOKENIZER.encode_with(&text, AutoSpecials::Absent).unwrap(),
            "{text:?}"
        );
        assert_eq!(plain, TOKENIZER.decode(&ids, true).unwrap(), "{text:?}");
        for step in [1, 2, 3, 7, 1000] {
            assert_eq!(
                plain,
                decode_in_chunks(&ids, step, true),
                "{text:?}, chunks of {step}"
            );
        }
    }
    assert!(TOKENIZER.auto_specials().is_empty());
}

#[test]
#[ignore = "needs SGLANG_TEST_QWEN3"]
fn decode_one_matches_decode_for_every_token() {
    assert_eq!(151_669, TOKENIZER.vocab_size());
    for id in 0..TOKENIZER.vocab_size() as i32 {
        let expected = TOKENIZER.decode(&[id], false).unwrap();
        assert_eq!(expected, decode_one(&TOKENIZER, id).unwrap(), "{id}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    #[ignore = "needs SGLANG_TEST_QWEN3"]
    fn random_tokens_give_the_whole_text(ids in prop::collection::vec(-1..151_670, 0..60), step in 1_usize..5, skip in any::<bool>()) {
        prop_assert_eq!(TOKENIZER.decode(&ids, skip).unwrap(), decode_in_chunks(&ids, step, skip));
    }
}

/// The cost of a token must not depend on the number of tokens before it. Run by hand:
/// `cargo test --release -p sglang-server --test qwen3 -- --ignored --nocapture cost_per_token`.
#[test]
#[ignore = "a measurement, and needs SGLANG_TEST_QWEN3"]
#[expect(clippy::print_stdout, reason = "a measurement, read on the terminal")]
fn cost_per_token_does_not_grow() {
    let golden: Vec<i32> = golden().into_iter().flat_map(|golden| golden.ids).collect();
    // Repeat the same hundred tokens, so that every length has the same mixture.
    let hundred: Vec<i32> = golden
        .iter()
        .copied()
        .step_by(golden.len() / 100)
        .take(100)
        .collect();
    let stops: Vec<String> = ["\n\nUser:", "</answer>", "여기서 끝"]
        .map(String::from)
        .to_vec();
    let cost = |tokens: usize| {
        let ids: Vec<i32> = hundred.iter().copied().cycle().take(tokens).collect();
        let once = || {
            let mut decoder = Decoder::new(Arc::clone(&TOKENIZER), options(false));
            let mut stop = StopFinder::new(Stops::new(&stops), false);
            let start = Instant::now();
            let given: usize = ids
                .chunks(1)
                .map(|id| stop.push(decoder.push(id)).len())
                .sum();
            assert!(given > tokens);
            start.elapsed()
        };
        let best: Duration = (0..200_000 / tokens).map(|_| once()).min().unwrap();
        best.as_nanos() as f64 / tokens as f64
    };
    cost(100);
    let costs = [100, 1_000, 10_000].map(|tokens| (tokens, cost(tokens)));
    println!("nanoseconds per token: {costs:?}");
    assert!(costs[2].1 < costs[0].1 * 2.0, "{costs:?}");
}
