//! A body of `POST /generate` cannot make the server take many times its own memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use sglang_server::message::{BatchLimit, GenerateBody};

/// The system's allocator, which counts what each thread holds and remembers the most.
struct Watched;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn hold(change: isize) {
    HELD.set(HELD.get() + change);
    PEAK.set(PEAK.get().max(HELD.get()));
}

// SAFETY: each call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        hold(layout.size() as isize);
        // SAFETY: the caller's promises are those that the system asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        hold(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        hold(size as isize - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static WATCHED: Watched = Watched;

const MIB: usize = 1 << 20;

/// The most that was held while `body` became requests, and whether it did.
fn peak(body: &str) -> (usize, bool) {
    let before = HELD.get();
    PEAK.set(before);
    let requests = GenerateBody::from_json(body.as_bytes())
        .and_then(|body| body.into_requests(BatchLimit::new(-1)));
    (
        usize::try_from(PEAK.get() - before).unwrap(),
        requests.is_ok(),
    )
}

/// A list of `element`, as many as fit in 4 MiB.
fn full_of(element: &str) -> String {
    list(element, 4 * MIB / (element.len() + 1))
}

fn list(element: &str, count: usize) -> String {
    format!("[{}]", vec![element; count].join(","))
}

/// Trees may take 64 MiB, copies may take 64 MiB, and 65,536 prompts have a request each;
/// the rest is a small multiple of the text. No limit of the operator helps.
#[test]
fn memory_is_bounded() {
    let rows = 1 << 16;
    let texts = list("\"a\"", rows);
    let mib = "x".repeat(MIB);
    #[rustfmt::skip]
    let cases = [
        ("ids",                   format!(r#"{{"input_ids":{}}}"#, full_of("1")),                                           true,   12),
        ("short texts",           format!(r#"{{"text":{}}}"#, full_of("\"\"")),                                              false,  2),
        ("short lists of ids",    format!(r#"{{"input_ids":{}}}"#, full_of("[]")),                                           false,  2),
        ("as many as may be",     format!(r#"{{"text":{texts}}}"#),                                                          true,   72),
        ("with parameters each",  format!(r#"{{"text":{texts},"sampling_params":{}}}"#, list(r#"{"n":1}"#, rows)),           true,   72),
        ("and answers",           format!(r#"{{"text":{texts},"sampling_params":{}}}"#, list(r#"{"n":128}"#, rows)),         false,  56),
        ("and answers, once",     format!(r#"{{"text":{texts},"sampling_params":{{"n":128}}}}"#),                            false,  32),
        ("answers to long text",  format!(r#"{{"text":"{mib}","sampling_params":{{"n":128}}}}"#),                            false,  2),
        ("fewer of them",         format!(r#"{{"text":"{mib}","sampling_params":{{"n":64}}}}"#),                             true,   72),
        ("small objects",         format!(r#"{{"text":"a","sampling_params":{{"custom_params":{{"a":{}}}}}}}"#, full_of("{}")), false, 72),
        ("small lists",           format!(r#"{{"text":"a","sampling_params":{{"custom_params":{{"a":{}}}}}}}"#, full_of("[]")), false, 72),
        ("numbers",               format!(r#"{{"text":"a","sampling_params":{{"custom_params":{{"a":{}}}}}}}"#, full_of("1")), false, 72),
        ("objects of one key",    format!(r#"{{"text":"a","sampling_params":{{"custom_params":{{"a":{}}}}}}}"#, full_of(r#"{"a":1}"#)), false, 72),
        ("lists of stop tokens",  format!(r#"{{"text":"a","sampling_params":{{"stop_token_ids":{}}}}}"#, list("1", 900_000)), true,   40),
        ("what nobody knows",     format!(r#"{{"text":"a","x":{}}}"#, full_of(r#"{"a":[1,"b"]}"#)),                          true,   1),
        ("media",                 format!(r#"{{"text":"a","image_data":{}}}"#, full_of("\"https://example.org/a.png\"")),    true,   1),
    ];
    for (name, body, is_ok, most) in cases {
        let (peak, got) = peak(&body);
        assert_eq!(is_ok, got, "{name}");
        assert!(peak <= most * MIB, "{name}: {} MiB", peak.div_ceil(MIB));
    }
}
