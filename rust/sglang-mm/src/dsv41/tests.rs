//! Tests the values, the places on the canvas, and the refusal of invalid plans.

use super::{Dsv41Error, ImagePlan, resize_patchify, resize_patchify_with, values};
use crate::common::{
    Size,
    resize::{Filter, PassOrder, Resample, resize_rgb},
};

const fn size(height: usize, width: usize) -> Size {
    Size { height, width }
}

/// Image bytes that depend on their position, so that a misplaced byte is detected.
fn image(size: Size) -> Vec<u8> {
    (0..size.height * size.width * 3)
        .map(|at| (at * 7 + at / 256) as u8)
        .collect()
}

fn plan(
    (out_h, out_w): (usize, usize),
    (resize_h, resize_w): (usize, usize),
    (top, left): (usize, usize),
    patch_size: usize,
) -> ImagePlan {
    ImagePlan {
        out_h,
        out_w,
        resize_h,
        resize_w,
        top,
        left,
        patch_size,
    }
}

/// The values of the published model code.
#[test]
fn values_equal_the_published_values() {
    let got = [0, 127, 128, 255].map(|value| values()[value]);
    assert_eq!([0xbf80, 0xbb81, 0x3b81, 0x3f80], got);
}

/// Compares with a slow reference: each output value is computed on its own.
#[test]
fn each_value_equals_the_reference() {
    #[rustfmt::skip]
    let cases = [
        ("narrow, as published",  size(53, 37),  plan((56, 56), (56, 39), (0, 8), 14)),
        ("low, as published",     size(37, 53),  plan((56, 56), (39, 56), (8, 0), 14)),
        ("not resized",           size(28, 28),  plan((28, 28), (28, 28), (0, 0), 14)),
        ("slightly enlarged",     size(91, 157), plan((112, 168), (97, 168), (7, 0), 14)),
        ("canvas on every side",  size(3, 4),    plan((12, 8), (5, 3), (4, 2), 4)),
        ("patches of one pixel",  size(2, 2),    plan((3, 3), (1, 1), (2, 2), 1)),
        ("one row at the bottom", size(1, 1),    plan((9, 6), (1, 6), (8, 0), 3)),
    ];
    for (name, from, plan) in cases {
        let bicubic = Resample::Pil(Filter::Bicubic, PassOrder::default());
        let resized = resize_rgb(&image(from), from, plan.image(), bicubic).unwrap();
        let (ps, columns) = (plan.patch_size, plan.out_w / plan.patch_size);
        let expected: Vec<u16> = (0..plan.out_h * plan.out_w * 3)
            .map(|at| {
                let (rest, x) = (at / ps, at % ps);
                let (rest, y) = (rest / ps, rest % ps);
                let (patch, channel) = (rest / 3, rest % 3);
                let y = (patch / columns * ps + y).wrapping_sub(plan.top);
                let x = (patch % columns * ps + x).wrapping_sub(plan.left);
                let inside = y < plan.resize_h && x < plan.resize_w;
                let value = if inside {
                    resized[(y * plan.resize_w + x) * 3 + channel]
                } else {
                    127
                };
                values()[usize::from(value)]
            })
            .collect();
        assert_eq!(
            Ok(expected),
            resize_patchify(&image(from), from, &plan),
            "{name}"
        );
    }
}

/// For every pass order the result is the resized image on the canvas.
#[test]
fn the_pass_order_is_a_setting() {
    #[rustfmt::skip]
    let cases = [
        ("a tower",    size(1001, 10), plan((504, 7), (500, 5), (2, 1), 7),   [true,  true]),
        ("a portrait", size(401, 100), plan((210, 56), (200, 50), (2, 1), 7), [true,  false]),
        ("a square",   size(100, 100), plan((56, 56), (50, 50), (2, 1), 7),   [false, false]),
    ];
    for (name, from, plan, columns_first) in cases {
        let bits = |order| resize_patchify_with(&image(from), from, &plan, order).unwrap();
        for order in PassOrder::ALL {
            let bicubic = Resample::Pil(Filter::Bicubic, order);
            let resized = resize_rgb(&image(from), from, plan.image(), bicubic).unwrap();
            let placed = resize_patchify(&resized, plan.image(), &plan);
            assert_eq!(placed, Ok(bits(order)), "{name}, {order}");
        }
        let differs = [PassOrder::Pillow13, PassOrder::Pillow12_2]
            .map(|order| bits(order) != bits(PassOrder::Horizontal));
        assert_eq!(columns_first, differs, "{name}");
        assert_eq!(
            Ok(bits(PassOrder::Pillow13)),
            resize_patchify(&image(from), from, &plan),
            "{name}"
        );
    }
}

#[test]
fn invalid_plans_are_refused() {
    let from = size(4, 4);
    let whole = plan((8, 8), (4, 6), (4, 2), 4);
    assert!(resize_patchify(&image(from), from, &whole).is_ok());
    #[rustfmt::skip]
    let cases = [
        ("patch size 0",                       from, ImagePlan { patch_size: 0, ..whole }),
        ("canvas height 0",                    from, ImagePlan { out_h: 0, ..whole }),
        ("canvas width 0",                     from, ImagePlan { out_w: 0, ..whole }),
        ("image height 0",                     from, ImagePlan { resize_h: 0, ..whole }),
        ("image width 0",                      from, ImagePlan { resize_w: 0, ..whole }),
        ("canvas height not a multiple",       from, ImagePlan { out_h: 9, ..whole }),
        ("canvas width not a multiple",        from, ImagePlan { out_w: 9, ..whole }),
        ("image higher than the canvas",       from, ImagePlan { resize_h: 9, top: 0, ..whole }),
        ("image wider than the canvas",        from, ImagePlan { resize_w: 9, left: 0, ..whole }),
        ("image exceeds the bottom",           from, ImagePlan { top: 5, ..whole }),
        ("image exceeds the right edge",       from, ImagePlan { left: 3, ..whole }),
        ("left is the largest integer",        from, ImagePlan { left: usize::MAX, ..whole }),
        ("buffer has another size",            size(4, 5), whole),
        ("stated height 0",                    size(0, 4), whole),
        ("stated size overflows",              size(usize::MAX, 2), whole),
    ];
    for (name, image_size, plan) in cases {
        let refused = resize_patchify(&image(from), image_size, &plan).unwrap_err();
        assert!(matches!(refused, Dsv41Error::Geometry { .. }), "{name}");
        assert!(
            refused
                .to_string()
                .starts_with("invalid V4.1 image geometry: "),
            "{name}"
        );
    }
    let empty = resize_patchify(&[], size(0, 4), &whole);
    assert!(matches!(empty, Err(Dsv41Error::Geometry { .. })));
}

#[test]
fn a_canvas_larger_than_memory_is_refused() {
    let from = size(1, 1);
    for side in [1 << 32, 1 << 27] {
        let plan = plan((side, side), (1, 1), (0, 0), 1);
        let refused = resize_patchify(&image(from), from, &plan).unwrap_err();
        assert!(matches!(refused, Dsv41Error::TooLarge(_)), "{side}");
        assert!(refused.to_string().starts_with("V4.1 output size overflow"));
    }
}
