//! Packs a processed request as the scheduler expects it: one array per kind of value, items
//! in order.
//!
//! Invariant: [`process_packed`] copies no feature, and [`pack_output`] copies none for a
//! single item. No hash is computed here.

use crate::{
    common::{
        fetch::FetchPolicy,
        memory::{OutOfMemory, empty},
    },
    driver::{self, DriverError, MmInput, Output, OutputItem, Packed},
    pipeline::{FamilyError, Geometry, PositionOutput, Tensor, TensorData},
};

use super::{GRID, QwenVl};

/// The arrays of a processed request.
#[derive(Clone, Debug, PartialEq)]
pub struct QwenPackedOutput {
    /// Token ids of the expanded prompt.
    pub input_ids: Vec<i32>,
    /// Patches of all items, one item after the other.
    pub features: Vec<f32>,
    /// Patches of each item along time, height and width.
    pub grids: Vec<[u32; 3]>,
    /// Content hash of each item.
    pub hashes: Vec<u64>,
    /// Index of the first and of the last token of each item.
    pub offsets: Vec<(u32, u32)>,
    /// Three rows of positions (time, height, width), each as long as the expanded prompt.
    pub mrope: Vec<i64>,
    /// See [`PositionOutput::MRope`].
    pub mrope_delta: i64,
}

/// The output could not be packed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// The positions do not have three rows, so another family made the output.
    #[error("qwen_vl pack: expected M-RoPE positions")]
    Positions,
    /// A feature is not of type `f32`, so another family made the output.
    #[error("qwen_vl pack: feature of item {item} is not F32")]
    Feature {
        /// Index of the item.
        item: usize,
    },
    /// The grid is missing, or is not three integers that fit `u32`.
    #[error("qwen_vl pack: item {item} has no usable {GRID}")]
    Grid {
        /// Index of the item.
        item: usize,
    },
    /// The memory for all features together could not be allocated.
    #[error("qwen_vl pack: not enough memory for the features of all items")]
    TooLarge,
}

/// Processes `input`; features are written to one array from the start.
///
/// # Errors
///
/// As [`driver::process_packed`].
pub fn process_packed<E: Into<FamilyError>>(
    family: &QwenVl,
    input: MmInput<'_>,
    policy: &FetchPolicy,
    tokenize: impl FnOnce(&str) -> Result<Vec<i32>, E>,
) -> Result<QwenPackedOutput, DriverError> {
    let packed: Packed = driver::process_packed(family, input, policy, tokenize)?;
    let PositionOutput::MRope { positions, delta } = packed.positions else {
        return Err(DriverError::Positions(PackError::Positions.into()));
    };
    let grid = |Geometry::Grid(grid): Geometry| grid;
    Ok(QwenPackedOutput {
        input_ids: packed.input_ids,
        features: packed.features,
        grids: packed.geometries.into_iter().map(grid).collect(),
        hashes: packed.hashes,
        offsets: packed.offsets,
        mrope: positions,
        mrope_delta: delta,
    })
}

/// Joins the items of `output` into one array per kind of value.
///
/// # Errors
///
/// If `output` comes from another family, or memory is insufficient.
pub fn pack_output(output: Output) -> Result<QwenPackedOutput, PackError> {
    let PositionOutput::MRope { positions, delta } = output.positions else {
        return Err(PackError::Positions);
    };
    let hashes = output.items.iter().map(|item| item.hash).collect();
    let mut grids = Vec::with_capacity(output.items.len());
    let mut features = Vec::with_capacity(output.items.len());
    for (item, processed) in output.items.into_iter().enumerate() {
        grids.push(grid(&processed).ok_or(PackError::Grid { item })?);
        let TensorData::F32(feature) = processed.feature.data else {
            return Err(PackError::Feature { item });
        };
        features.push(feature);
    }
    Ok(QwenPackedOutput {
        input_ids: output.input_ids,
        features: joined(features).map_err(|OutOfMemory| PackError::TooLarge)?,
        grids,
        hashes,
        offsets: output.offsets,
        mrope: positions,
        mrope_delta: delta,
    })
}

fn grid(item: &OutputItem) -> Option<[u32; 3]> {
    let (_, tensor) = item.aux.iter().find(|(name, _)| name == GRID)?;
    let Tensor {
        data: TensorData::I64(sides),
        ..
    } = tensor
    else {
        return None;
    };
    let &[time, height, width] = sides.as_slice() else {
        return None;
    };
    let side = |side| u32::try_from(side).ok();
    Some([side(time)?, side(height)?, side(width)?])
}

/// All features in one buffer. Each is freed as soon as it is copied.
///
/// A new buffer is allocated instead of growing the first one: the grown part would be backed
/// by small pages, whose page faults cost more than the copy.
fn joined(mut features: Vec<Vec<f32>>) -> Result<Vec<f32>, OutOfMemory> {
    if features.len() == 1 {
        return Ok(features.remove(0));
    }
    let mut all = empty(features.iter().map(Vec::len).sum())?;
    for feature in features {
        all.extend_from_slice(&feature);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::{PackError, pack_output};
    use crate::{
        driver::{Output, OutputItem},
        pipeline::{PositionOutput, Tensor, TensorData},
    };

    fn tensor(shape: &[usize], data: TensorData) -> Tensor {
        let shape = shape.to_vec();
        Tensor { shape, data }
    }

    fn item(values: &[f32], grid: &[i64], hash: u64) -> OutputItem {
        let grid = tensor(&[grid.len()], TensorData::I64(grid.to_vec()));
        OutputItem {
            feature: tensor(&[1, values.len()], TensorData::F32(values.to_vec())),
            aux: vec![("image_grid_thw".to_owned(), grid)],
            hash,
        }
    }

    fn output(items: Vec<OutputItem>) -> Output {
        Output {
            input_ids: vec![1, 2],
            offsets: (0..items.len() as u32).map(|at| (at, at)).collect(),
            items,
            positions: PositionOutput::MRope {
                positions: vec![0, 1, 0, 1, 0, 1],
                delta: 0,
            },
        }
    }

    #[test]
    fn items_are_joined_in_order() {
        let packed = pack_output(output(vec![
            item(&[1.0, 2.0], &[1, 2, 4], 7),
            item(&[3.0], &[1, 4, 2], 5),
            item(&[4.0], &[1, 2, 2], 7),
        ]))
        .unwrap();
        assert_eq!(vec![1.0, 2.0, 3.0, 4.0], packed.features);
        assert_eq!(vec![[1, 2, 4], [1, 4, 2], [1, 2, 2]], packed.grids);
        assert_eq!(vec![7, 5, 7], packed.hashes);
        assert_eq!(vec![(0, 0), (1, 1), (2, 2)], packed.offsets);
        assert_eq!(vec![1, 2], packed.input_ids);
        assert_eq!(vec![0, 1, 0, 1, 0, 1], packed.mrope);
    }

    #[test]
    fn a_single_item_is_moved() {
        let output = output(vec![item(&[1.0, 2.0], &[1, 2, 4], 7)]);
        let TensorData::F32(feature) = &output.items[0].feature.data else {
            unreachable!("`item` makes features of f32")
        };
        let before = feature.as_ptr();
        assert_eq!(before, pack_output(output).unwrap().features.as_ptr());
    }

    #[test]
    fn output_of_another_family_is_refused() {
        let good = || item(&[1.0], &[1, 2, 2], 0);
        let changed = |change: &dyn Fn(&mut OutputItem)| {
            let mut second = good();
            change(&mut second);
            output(vec![good(), second])
        };
        let one_row = Output {
            positions: PositionOutput::Rope1D,
            ..output(vec![good()])
        };
        let bf16 = changed(&|item| item.feature.data = TensorData::Bf16(vec![1]));
        let grid = |data: TensorData| changed(&|item| item.aux[0].1.data = data.clone());
        #[rustfmt::skip]
        let cases = [
            ("one row of positions", one_row,                                    PackError::Positions),
            ("bf16 feature",         bf16,                                       PackError::Feature { item: 1 }),
            ("no grid",              changed(&|item| item.aux.clear()),          PackError::Grid { item: 1 }),
            ("grid of two sides",    grid(TensorData::I64(vec![1, 2])),          PackError::Grid { item: 1 }),
            ("negative grid",        grid(TensorData::I64(vec![1, -2, 2])),      PackError::Grid { item: 1 }),
            ("huge grid",            grid(TensorData::I64(vec![1, 1 << 32, 2])), PackError::Grid { item: 1 }),
            ("grid of floats",       grid(TensorData::F32(vec![1.0, 2.0, 2.0])), PackError::Grid { item: 1 }),
        ];
        for (name, output, expected) in cases {
            assert_eq!(Err(expected), pack_output(output), "{name}");
        }
    }
}
