//! Tests the order of results, the choice of error and the byte budget with a minimal family.

use std::{
    cell::Cell,
    mem::MaybeUninit,
    sync::atomic::{AtomicUsize, Ordering},
};

use super::{
    DriverError, ImageSource, MAX_ITEMS_PER_REQUEST, MAX_REQUEST_BYTES, MmInput, Output, Packed,
    process, process_packed,
};
use crate::{
    common::{
        Size, content_hash::content_hash_u64, fetch::FetchPolicy,
        token_layout::layout_by_placeholder,
    },
    pipeline::{
        DecodedMedia, FamilyError, Geometry, MmFamilyProcessor, PackedFamily, PositionOutput,
        ProcessedItem, Tensor, TensorData, TokenLayout,
    },
};

const PAD: i32 = 9;

/// A BMP of one row of `width` pixels, whose samples are all `grey`.
fn bmp(width: u8, grey: u8) -> Vec<u8> {
    let row = (3 * usize::from(width)).next_multiple_of(4);
    let mut file = b"BM".to_vec();
    file.extend((54 + row as u32).to_le_bytes());
    file.extend([0; 4]);
    file.extend([54_u32, 40].map(u32::to_le_bytes).concat());
    file.extend([u32::from(width), 1].map(u32::to_le_bytes).concat());
    file.extend([1_u16, 24].map(u16::to_le_bytes).concat());
    file.extend([0; 24]);
    file.resize(54 + row, grey);
    file
}

/// A minimal family: an image has one token per pixel, and its feature is its first sample.
/// It fails on grey 254 and panics on grey 255.
#[derive(Default)]
struct Widths {
    processed: AtomicUsize,
}

impl MmFamilyProcessor for Widths {
    fn process_item(&self, media: &DecodedMedia) -> Result<ProcessedItem, FamilyError> {
        self.processed.fetch_add(1, Ordering::Relaxed);
        let DecodedMedia::Image { rgb, width, .. } = media;
        assert_ne!(255, rgb[0], "too bright");
        if rgb[0] == 254 {
            return Err("a shade too bright".into());
        }
        let scalar = |value: u8| Tensor {
            shape: vec![1],
            data: TensorData::I64(vec![value.into()]),
        };
        Ok(ProcessedItem {
            feature: scalar(rgb[0]),
            aux: vec![("same".to_owned(), scalar(rgb[0]))],
            geometry: Geometry::Grid([1, 1, *width as u32]),
        })
    }

    fn layout(&self, ids: &[i32], geometries: &[Geometry]) -> Result<TokenLayout, FamilyError> {
        let tokens = |Geometry::Grid([.., width]): &Geometry| *width as usize;
        let counts: Vec<usize> = geometries.iter().map(tokens).collect();
        // For a prompt that begins with 1, returns a layout that does not cover it.
        if ids[0] == 1 {
            return Ok(TokenLayout::default());
        }
        Ok(layout_by_placeholder(ids, PAD, &counts)?)
    }
}

impl PackedFamily for Widths {
    fn feature_len(&self, size: Size) -> Result<usize, FamilyError> {
        match size.width {
            200.. => Err("a pixel too wide".into()),
            width => Ok(width),
        }
    }

    fn write_feature<'r>(
        &self,
        media: &DecodedMedia,
        out: &'r mut [MaybeUninit<f32>],
    ) -> Result<(&'r mut [f32], Geometry), FamilyError> {
        let item = self.process_item(media)?;
        let DecodedMedia::Image { rgb, .. } = media;
        out.fill(MaybeUninit::new(rgb[0].into()));
        // SAFETY: the line above writes every element.
        Ok((unsafe { out.assume_init_mut() }, item.geometry))
    }
}

fn bytes(data: &[u8]) -> ImageSource<'_> {
    ImageSource::Bytes(data.into())
}

/// Processes a prompt of token ids with [`process`].
fn check(ids: &[i32], images: &[ImageSource<'_>]) -> Result<Output, DriverError> {
    let input = MmInput {
        text: None,
        input_ids: Some(ids.into()),
        images: images.to_vec(),
    };
    process(&Widths::default(), input, |_| -> Result<_, FamilyError> {
        unreachable!("there is no text")
    })
}

/// Like [`check`], but with [`process_packed`].
fn check_packed(ids: &[i32], images: &[ImageSource<'_>]) -> Result<Packed, DriverError> {
    let input = MmInput {
        text: None,
        input_ids: Some(ids.into()),
        images: images.to_vec(),
    };
    let policy = FetchPolicy::open();
    process_packed(
        &Widths::default(),
        input,
        &policy,
        |_| -> Result<_, FamilyError> { unreachable!("there is no text") },
    )
}

#[test]
fn results_are_in_request_order() {
    let files = [bmp(3, 5), bmp(1, 7), bmp(2, 5)];
    let images: Vec<_> = files.iter().map(|file| bytes(file)).collect();
    let output = check(&[PAD, 0, PAD, PAD], &images).unwrap();
    assert_eq!(vec![PAD, PAD, PAD, 0, PAD, PAD, PAD], output.input_ids);
    assert_eq!(vec![(0, 2), (4, 4), (5, 6)], output.offsets);
    assert_eq!(PositionOutput::Rope1D, output.positions);
    for (item, file) in output.items.iter().zip(&files) {
        let grey = TensorData::I64(vec![(*file.last().unwrap()).into()]);
        assert_eq!(grey, item.feature.data);
        assert_eq!(grey, item.aux[0].1.data);
        assert_eq!(content_hash_u64(file), item.hash);
    }
}

#[test]
fn packed_features_are_contiguous_and_in_order() {
    let files = [bmp(3, 5), bmp(1, 7), bmp(2, 9)];
    let images: Vec<_> = files.iter().map(|file| bytes(file)).collect();
    let packed = check_packed(&[PAD, 0, PAD, PAD], &images).unwrap();
    assert_eq!(vec![5.0, 5.0, 5.0, 7.0, 9.0, 9.0], packed.features);
    let grid = |width| Geometry::Grid([1, 1, width]);
    assert_eq!(vec![grid(3), grid(1), grid(2)], packed.geometries);
    let output = check(&[PAD, 0, PAD, PAD], &images).unwrap();
    let hashes: Vec<u64> = output.items.iter().map(|item| item.hash).collect();
    assert_eq!(hashes, packed.hashes);
    assert_eq!(output.input_ids, packed.input_ids);
    assert_eq!(output.offsets, packed.offsets);
    assert_eq!(output.positions, packed.positions);
}

/// An item with a bad header is refused before it is decoded; an earlier item's error wins.
#[test]
fn packed_items_are_refused_because_of_their_headers() {
    let [good, bad, wide] = [bmp(1, 5), bmp(1, 254), bmp(200, 255)];
    let [good, bad, wide] = [bytes(&good), bytes(&bad), bytes(&wide)];
    let error = |images: &[_]| check_packed(&[PAD; 3], images).unwrap_err().to_string();
    let too_wide = error(&[good.clone(), wide.clone(), bad.clone()]);
    assert_eq!("media item 1: a pixel too wide", too_wide);
    let too_bright = error(&[good, bad, wide]);
    assert_eq!("media item 1: a shade too bright", too_bright);
}

#[test]
fn a_base64_source_gives_the_same_output_as_its_bytes() {
    let file = bmp(3, 5);
    let encoded = {
        use ::base64::{Engine as _, engine::general_purpose::STANDARD};
        STANDARD.encode(&file)
    };
    let url = format!("data:image/bmp;base64,{encoded}");
    let expected = check(&[PAD], &[bytes(&file)]).unwrap();
    for text in [encoded, url] {
        let got = check(&[PAD], &[ImageSource::String(text.into())]).unwrap();
        assert_eq!(expected, got);
    }
}

/// Token ids take precedence over text, an empty list of ids counts as absent, and an error
/// of the tokenizer is returned.
#[test]
fn the_tokenizer_is_called_only_without_token_ids() {
    let file = bmp(1, 5);
    let tokenizer_called = Cell::new(false);
    let ids_of = |text: Option<&'static str>, ids: Option<Vec<i32>>| {
        tokenizer_called.set(false);
        let input = MmInput {
            text: text.map(Into::into),
            input_ids: ids.map(Into::into),
            images: vec![bytes(&file)],
        };
        let tokenize = |text: &str| {
            tokenizer_called.set(true);
            match text {
                "fails" => Err("no such word".to_owned()),
                _ => Ok(vec![7, PAD]),
            }
        };
        let output = process(&Widths::default(), input, tokenize);
        let ids = output.map(|output| output.input_ids);
        (
            ids.map_err(|error| error.to_string()),
            tokenizer_called.get(),
        )
    };
    assert_eq!((Ok(vec![7, PAD]), true), ids_of(Some("words"), None));
    assert_eq!(
        (Ok(vec![7, PAD]), true),
        ids_of(Some("words"), Some(vec![]))
    );
    assert_eq!(
        (Ok(vec![PAD]), false),
        ids_of(Some("fails"), Some(vec![PAD]))
    );
    let (error, _) = ids_of(Some("fails"), None);
    assert!(error.unwrap_err().ends_with("no such word"));
    let no_prompt = "multimodal request without text or input_ids".to_owned();
    assert_eq!((Err(no_prompt.clone()), false), ids_of(None, None));
    assert_eq!((Err(no_prompt), false), ids_of(None, Some(vec![])));
}

#[test]
fn invalid_requests_are_refused() {
    let (good, bad, panics) = (bmp(1, 5), bmp(1, 254), bmp(1, 255));
    let (good, bad, panics) = (bytes(&good), bytes(&bad), bytes(&panics));
    let broken = bytes(b"not an image");
    let no_file = ImageSource::String(concat!(env!("CARGO_MANIFEST_DIR"), "/absent").into());
    let too_many = vec![good.clone(); MAX_ITEMS_PER_REQUEST + 1];
    #[rustfmt::skip]
    let cases: &[(&str, &[i32], &[ImageSource<'_>], &str)] = &[
        ("no images", &[PAD], &[], "multimodal request without image sources"),
        ("65 images", &[PAD], &too_many, "multimodal request exceeds 64 media items"),
        ("no prompt", &[], std::slice::from_ref(&broken), "multimodal request without text or input_ids"),
        ("file does not exist", &[PAD; 2], &[broken.clone(), no_file], "media item 1: media fetch: "),
        ("file is not an image", &[PAD; 2], &[good.clone(), broken.clone()], "media item 1: image decode: "),
        ("family refuses", &[PAD; 2], &[good.clone(), bad.clone()], "media item 1: a shade too bright"),
        ("family panics", &[PAD; 2], &[good.clone(), panics.clone()], "media item 1: bug in sglang-mm: "),
        ("several fail", &[PAD; 4], &[good.clone(), bad, panics, broken.clone()], "media item 1: a shade too bright"),
        ("no placeholder", &[0], std::slice::from_ref(&good), "prompt has 0 media placeholder(s) but 1 media item(s)"),
        ("layout covers no token", &[1, PAD], std::slice::from_ref(&good), "layout: covers 0 of 2 source token(s)"),
    ];
    for (name, ids, images, expected) in cases {
        let error = check(ids, images).expect_err(name).to_string();
        assert!(error.starts_with(expected), "{name}: {error}");
        let packed = check_packed(ids, images).expect_err(name).to_string();
        assert_eq!(error, packed, "{name}, packed");
    }
}

#[test]
fn a_request_without_prompt_processes_no_item() {
    let file = bmp(1, 5);
    let family = Widths::default();
    let input = MmInput {
        images: vec![bytes(&file)],
        ..MmInput::default()
    };
    let tokenize = |_: &str| Err::<_, FamilyError>("not called".into());
    let refused = process(&family, input, tokenize);
    assert!(matches!(refused, Err(DriverError::NoPrompt)));
    assert_eq!(0, family.processed.into_inner());
}

/// Bytes that the caller passes count against the request's byte budget, like fetched bytes.
#[test]
fn passed_bytes_count_against_the_byte_budget() {
    let blob = vec![0; 1 << 26];
    let fits = usize::try_from(MAX_REQUEST_BYTES).unwrap() / blob.len();
    let error = |count: usize| {
        check(&[PAD], &vec![bytes(&blob); count])
            .unwrap_err()
            .to_string()
    };
    assert!(error(fits).contains("image decode"));
    let over = error(fits + 1);
    assert!(over.contains("request media byte budget"), "{over}");
    assert!(over.starts_with(&format!("media item {fits}: ")), "{over}");
}
