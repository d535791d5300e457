//! Compares patches written from rows with patches cut from a whole resized image by the formula.

use std::{mem::MaybeUninit, slice};

use proptest::prelude::*;

use super::{Element, Interleaved, Planar, ValueTable};
use crate::common::{
    Size,
    resize::{Filter, PassOrder, Resample, ResizeError, Resizing, resize_rgb},
};

/// A table of pseudo-random values.
fn table<T: Copy + Default>(of: impl Fn(u32) -> T) -> ValueTable<T> {
    let mut table = ValueTable([[T::default(); 256]; 3]);
    let values = table.0.as_flattened_mut().iter_mut();
    for (value, at) in values.zip(0_u32..) {
        *value = of(at.wrapping_mul(2_654_435_761));
    }
    table
}

fn floats() -> (ValueTable<f32>, [f32; 3]) {
    // The table has NaN and infinity too, so tests compare bits.
    let table = table(f32::from_bits);
    (table, [f32::NEG_INFINITY, -0.0, 7.0])
}

fn halves() -> (ValueTable<u16>, [u16; 3]) {
    (table(|bits| (bits >> 16) as u16), [1, 0, 0xffff])
}

/// An image on a canvas of patches.
#[derive(Clone, Debug)]
struct Case {
    from: Size,
    to: Size,
    how: Resample,
    patch: usize,
    rows: usize,
    columns: usize,
    merge: usize,
    copies: usize,
    top: usize,
    left: usize,
}

impl Case {
    fn source(&self) -> Vec<u8> {
        let bytes = 0..self.from.rgb_len().unwrap();
        bytes.map(|at| (at * at / 7 % 256) as u8).collect()
    }

    /// The expected value at `[y, x, channel]` of the canvas.
    fn at<T: Copy>(&self, image: &[u8], values: &(ValueTable<T>, [T; 3]), at: [usize; 3]) -> T {
        let [y, x, c] = at;
        let inside = |at: usize, start, len| at.checked_sub(start).filter(|at| *at < len);
        match (
            inside(y, self.top, self.to.height),
            inside(x, self.left, self.to.width),
        ) {
            (Some(y), Some(x)) => {
                values.0.0[c][usize::from(image[(y * self.to.width + x) * 3 + c])]
            }
            _ => values.1[c],
        }
    }

    fn resized(&self) -> Vec<u8> {
        resize_rgb(&self.source(), self.from, self.to, self.how).unwrap()
    }

    /// `[block row][block][row in block][column in block][channel][copy][y][x]`.
    fn planar_by_formula<T: Copy>(&self, values: &(ValueTable<T>, [T; 3])) -> Vec<T> {
        let image = self.resized();
        let (patch, merge) = (self.patch, self.merge);
        let mut out = Vec::new();
        for index in 0..self.rows * self.columns {
            let (block, within) = (index / (merge * merge), index % (merge * merge));
            let blocks = self.columns / merge;
            let row = block / blocks * merge + within / merge;
            let column = block % blocks * merge + within % merge;
            for c in 0..3 {
                for _ in 0..self.copies {
                    for at in 0..patch * patch {
                        let (y, x) = (row * patch + at / patch, column * patch + at % patch);
                        out.push(self.at(&image, values, [y, x, c]));
                    }
                }
            }
        }
        out
    }

    /// `[row][column][y][x][channel]`.
    fn interleaved_by_formula<T: Copy>(&self, values: &(ValueTable<T>, [T; 3])) -> Vec<T> {
        let image = self.resized();
        let patch = self.patch;
        let mut out = Vec::new();
        for index in 0..self.rows * self.columns {
            let (row, column) = (index / self.columns, index % self.columns);
            for at in 0..patch * patch {
                let (y, x) = (row * patch + at / patch, column * patch + at % patch);
                out.extend([0, 1, 2].map(|c| self.at(&image, values, [y, x, c])));
            }
        }
        out
    }

    fn planar<T: Element + Default>(&self, values: &(ValueTable<T>, [T; 3])) -> Vec<T> {
        let writer = Planar {
            table: &values.0,
            padding: values.1,
            patch: self.patch,
            columns: self.columns,
            merge: self.merge,
            copies: self.copies,
            left: self.left,
        };
        self.into(writer.len(self.rows), |resizing, out| {
            writer.fill(resizing, self.top, self.rows, out)
        })
    }

    fn interleaved<T: Element + Default>(&self, values: &(ValueTable<T>, [T; 3])) -> Vec<T> {
        let writer = Interleaved {
            table: &values.0,
            padding: values.1,
            patch: self.patch,
            columns: self.columns,
            left: self.left,
        };
        self.into(writer.len(self.rows), |resizing, out| {
            writer.fill(resizing, self.top, self.rows, out)
        })
    }

    /// The output of `fill`. Runs it on memory of zeros and on memory of ones: an element that `fill`
    /// did not write would differ.
    fn into<T: Element + Default>(
        &self,
        len: Option<usize>,
        fill: impl for<'o> Fn(
            &Resizing<'_>,
            &'o mut [MaybeUninit<T>],
        ) -> Result<&'o mut [T], ResizeError>,
    ) -> Vec<T> {
        let resizing = Resizing {
            rgb: &self.source(),
            from: self.from,
            to: self.to,
            resample: self.how,
        };
        let [zeros, ones] = [0, 0xff].map(|byte| {
            let mut out = vec![MaybeUninit::uninit(); len.unwrap()];
            let bytes = size_of_val(out.as_slice());
            // SAFETY: uninitialised memory may hold any byte, and the slice has `bytes` bytes.
            unsafe { out.as_mut_ptr().cast::<u8>().write_bytes(byte, bytes) };
            fill(&resizing, &mut out).unwrap().to_vec()
        });
        let bits = |values: &[T]| -> Vec<u8> {
            let bytes = size_of_val(values);
            // SAFETY: the elements are numbers without padding, and all are initialised.
            unsafe { slice::from_raw_parts(values.as_ptr().cast(), bytes) }.to_vec()
        };
        assert!(bits(&zeros) == bits(&ones), "an element was not written");
        zeros
    }
}

fn methods() -> Vec<Resample> {
    let mut methods = vec![Resample::AtenU8];
    for order in PassOrder::ALL {
        methods.push(Resample::Pil(Filter::Bicubic, order));
        methods.push(Resample::Pil(Filter::Lanczos, order));
    }
    methods
}

fn size() -> impl Strategy<Value = Size> {
    let side = || prop_oneof![1..6_usize, 1..150_usize];
    (side(), side()).prop_map(|(height, width)| Size { height, width })
}

prop_compose! {
    /// The image fits its canvas. A third of the images keep their size.
    fn case()(
        from in size(),
        to in size(),
        same in prop::sample::select(vec![true, false, false]),
        how in prop::sample::select(methods()),
        patch in prop_oneof![1..5_usize, Just(14), Just(16), 1..45_usize],
        merge in 1..4_usize,
        copies in 1..4_usize,
        (more_rows, more_columns) in (0..3_usize, 0..3_usize),
        (top, left) in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
    ) -> Case {
        let to = if same { from } else { to };
        let blocks = |side: usize, more| (side.div_ceil(patch * merge) + more) * merge;
        let (rows, columns) = (blocks(to.height, more_rows), blocks(to.width, more_columns));
        let (top, left) = (
            top.index(rows * patch - to.height + 1),
            left.index(columns * patch - to.width + 1),
        );
        Case { from, to, how, patch, rows, columns, merge, copies, top, left }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn planar_matches_the_formula(case in case()) {
        let bits = |values: Vec<f32>| -> Vec<u32> { values.into_iter().map(f32::to_bits).collect() };
        prop_assert_eq!(bits(case.planar_by_formula(&floats())), bits(case.planar(&floats())));
        prop_assert_eq!(case.planar_by_formula(&halves()), case.planar(&halves()));
    }

    #[test]
    fn interleaved_matches_the_formula(case in case()) {
        let bits = |values: Vec<f32>| -> Vec<u32> { values.into_iter().map(f32::to_bits).collect() };
        let case = Case { merge: 1, copies: 1, ..case };
        prop_assert_eq!(
            bits(case.interleaved_by_formula(&floats())),
            bits(case.interleaved(&floats()))
        );
        prop_assert_eq!(case.interleaved_by_formula(&halves()), case.interleaved(&halves()));
    }
}
