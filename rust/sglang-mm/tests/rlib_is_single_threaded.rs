//! The build without `parallel` starts no thread, so that a server controls its own threads.

#![cfg(all(not(feature = "parallel"), target_os = "linux"))]

use std::{fs, thread};

use sglang_mm_core::{
    common::par::{for_chunks_mut, in_pool, try_map},
    driver::{ImageSource, MmInput, process},
    pipeline::FamilyError,
    registry::pipeline_from_spec,
};

const SPEC: &str = r#"{
    "family": "qwen_vl", "image_token_id": 9, "patch_size": 14, "merge_size": 2, "temporal_patch_size": 2,
    "min_pixels": 3136, "max_pixels": 1003520, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]
}"#;

/// Large enough to be processed in parallel if there were a pool.
const PHOTO: &[u8] = include_bytes!("../../../tests/golden/photo/rocket.jpg");

/// The names of this process's threads.
fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap();
    let mut names: Vec<String> = tasks.map(|task| name(task.unwrap())).collect();
    names.sort();
    names
}

#[test]
fn two_images_start_no_thread() {
    let family = pipeline_from_spec(SPEC).unwrap();
    let before = threads();

    let input = MmInput {
        input_ids: Some(vec![9, 9].into()),
        images: vec![ImageSource::Bytes(PHOTO.into()); 2],
        ..MmInput::default()
    };
    let output = process(family.as_ref(), input, |_| {
        Err::<_, FamilyError>("no text".into())
    });

    assert_eq!(2, output.unwrap().items.len());
    assert_eq!(before, threads());
    assert!(before.iter().all(|name| !name.starts_with("sgl-mm")));
}

#[test]
fn work_stays_on_the_thread_of_the_caller() {
    let caller = thread::current().id();
    let seen: Result<Vec<_>, ()> = try_map(&[0; 64], |_| Ok(thread::current().id()));
    assert!(seen.unwrap().iter().all(|id| *id == caller));
    assert_eq!(caller, in_pool(|| thread::current().id()));
    for_chunks_mut(&mut [0; 64], 1, |_, _| {
        assert_eq!(caller, thread::current().id());
    });
}
