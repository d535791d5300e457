//! Memory limits while a body of `POST /generate` is read and split into requests.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use sglang_server::testing::{BatchLimit, GenerateBody};

/// The system allocator, with a count of current and peak bytes per thread.
struct CountingAllocator;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(change: isize) {
    HELD.set(HELD.get() + change);
    PEAK.set(PEAK.get().max(HELD.get()));
}

// SAFETY: each call is forwarded unchanged to the system allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller upholds the contract, which is the same for both allocators.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const MIB: usize = 1 << 20;

/// Peak memory while `body` is turned into requests, and whether that succeeded.
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

/// A list that repeats `element` up to a length of 4 MiB.
fn full_of(element: &str) -> String {
    list(element, 4 * MIB / (element.len() + 1))
}

fn list(element: &str, count: usize) -> String {
    format!("[{}]", vec![element; count].join(","))
}

/// Trees take at most 64 MiB, copies take at most 64 MiB, and there are at most 65,536 prompts with
/// a request each. The rest is a small multiple of the text. The operator's batch limit is off.
#[test]
fn memory_is_bounded() {
    let rows = 1 << 16;
    let texts = list("\"a\"", rows);
    let mib = "x".repeat(MIB);
    #[rustfmt::skip]
    let cases = [
        ("token ids",                      format!(r#"{{"input_ids":{}}}"#, full_of("1")),                                           true,   12),
        ("too many short texts",           format!(r#"{{"text":{}}}"#, full_of("\"\"")),                                              false,  2),
        ("too many short lists of ids",    format!(r#"{{"input_ids":{}}}"#, full_of("[]")),                                           false,  2),
        ("maximum number of texts",        format!(r#"{{"text":{texts}}}"#),                                                          true,   72),
        ("parameters for each text",       format!(r#"{{"text":{texts},"sampling_params":{}}}"#, list(r#"{"n":1}"#, rows)),           true,   72),
        ("too many answers in a list",     format!(r#"{{"text":{texts},"sampling_params":{}}}"#, list(r#"{"n":128}"#, rows)),         false,  56),
        ("too many answers for all",       format!(r#"{{"text":{texts},"sampling_params":{{"n":128}}}}"#),                            false,  32),
        ("too many copies of a long text", format!(r#"{{"text":"{mib}","sampling_params":{{"n":128}}}}"#),                            false,  2),
        ("allowed copies of a long text",  format!(r#"{{"text":"{mib}","sampling_params":{{"n":64}}}}"#),                             true,   72),
        ("tree of empty objects",          format!(r#"{{"text":"a","sampling_params":{{"custom_params":{{"a":{}}}}}}}"#, full_of("{}")), false, 72),
        ("tree of empty lists",            format!(r#"{{"text":"a","sampling_params":{{"custom_params":{{"a":{}}}}}}}"#, full_of("[]")), false, 72),
        ("tree of numbers",                format!(r#"{{"text":"a","sampling_params":{{"custom_params":{{"a":{}}}}}}}"#, full_of("1")), false, 72),
        ("tree of objects with one key",   format!(r#"{{"text":"a","sampling_params":{{"custom_params":{{"a":{}}}}}}}"#, full_of(r#"{"a":1}"#)), false, 72),
        ("stop tokens",                    format!(r#"{{"text":"a","sampling_params":{{"stop_token_ids":{}}}}}"#, list("1", 900_000)), true,   40),
        ("unknown field",                  format!(r#"{{"text":"a","x":{}}}"#, full_of(r#"{"a":[1,"b"]}"#)),                          true,   1),
        ("ignored media",                  format!(r#"{{"text":"a","image_data":{}}}"#, full_of("\"https://example.org/a.png\"")),    true,   1),
    ];
    for (name, body, is_ok, most) in cases {
        let (peak, got) = peak(&body);
        assert_eq!(is_ok, got, "{name}");
        assert!(peak <= most * MIB, "{name}: {} MiB", peak.div_ceil(MIB));
    }
}
