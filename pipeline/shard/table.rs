//! The columns of the formats that are tables, and packs as record batches of them.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Int8Builder, Int32Array, Int32Builder, ListBuilder, NullArray, RecordBatch, StringBuilder,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use crate::pack::{Pack, PackedSample};
use crate::run::error::RunError;

/// The label of a token that is not trained on, as PyTorch's cross entropy ignores it.
pub const IGNORED: i32 = -100;

/// Columns that hold nothing, which LLaMA-Factory looks for in tokenised data.
pub(super) const MEDIA: [&str; 3] = ["images", "videos", "audios"];

/// A set of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    /// A row a pack: `input_ids`, `labels`, `seq_lengths`, `sample_ids`.
    Packs,
    /// The same, and `position_ids` that start at 0 in each sample.
    PacksWithPositions,
    /// A row a sample: `input_ids`, `attention_mask`, `labels`. Numbers alone: the collator of a trainer that packs
    /// concatenates whatever columns there are.
    Samples,
    /// A row a sample: `input_ids`, `attention_mask`, `labels`, `lengths`, and [`MEDIA`].
    Datasets,
    /// A row a pack: `input_ids`, `seq_start_id`, `loss_mask` rolled left by one inside each sample,
    /// `sample_ids`.
    Bridge,
}

impl Table {
    /// The schema.
    pub(super) fn schema(self) -> SchemaRef {
        let list = |name: &str, item: DataType| {
            Field::new(name, DataType::List(Arc::new(Field::new_list_field(item, true))), false)
        };
        let numbers = |name: &str| list(name, DataType::Int32);
        let fields = match self {
            Table::Packs | Table::PacksWithPositions => {
                let mut fields = vec![
                    numbers("input_ids"),
                    numbers("labels"),
                    numbers("seq_lengths"),
                    list("sample_ids", DataType::Utf8),
                ];
                if self == Table::PacksWithPositions {
                    fields.push(numbers("position_ids"));
                }
                fields
            }
            Table::Samples => {
                vec![numbers("input_ids"), list("attention_mask", DataType::Int8), numbers("labels")]
            }
            Table::Datasets => {
                let mut fields = vec![
                    numbers("input_ids"),
                    list("attention_mask", DataType::Int8),
                    numbers("labels"),
                    Field::new("lengths", DataType::Int32, false),
                ];
                fields.extend(MEDIA.map(|name| Field::new(name, DataType::Null, true)));
                fields
            }
            Table::Bridge => vec![
                numbers("input_ids"),
                numbers("seq_start_id"),
                list("loss_mask", DataType::Int8),
                list("sample_ids", DataType::Utf8),
            ],
        };
        Arc::new(Schema::new(fields))
    }

    /// Packs as a record batch.
    ///
    /// # Errors
    /// None in practice: the arrays fit the schema.
    pub(super) fn batch(self, packs: &[Pack]) -> Result<RecordBatch, RunError> {
        let samples = || packs.iter().flat_map(|pack| &pack.samples);
        let lengths = |sample: &PackedSample| vec![sample.ids.len() as i32];
        let columns: Vec<ArrayRef> = match self {
            Table::Packs => {
                vec![numbers(packs, ids), numbers(packs, labels), numbers(packs, lengths), names(packs)]
            }
            Table::PacksWithPositions => vec![
                numbers(packs, ids),
                numbers(packs, labels),
                numbers(packs, lengths),
                names(packs),
                numbers(packs, |sample| (0..sample.ids.len() as i32).collect()),
            ],
            Table::Samples => vec![
                numbers(packs, ids),
                bytes(packs, |sample| vec![1; sample.ids.len()]),
                numbers(packs, labels),
            ],
            Table::Datasets => {
                let nothing = || -> ArrayRef { Arc::new(NullArray::new(packs.len())) };
                vec![
                    numbers(packs, ids),
                    bytes(packs, |sample| vec![1; sample.ids.len()]),
                    numbers(packs, labels),
                    Arc::new(Int32Array::from_iter_values(samples().map(|s| s.ids.len() as i32))),
                    nothing(),
                    nothing(),
                    nothing(),
                ]
            }
            Table::Bridge => {
                vec![numbers(packs, ids), starts(packs), bytes(packs, rolled_mask), names(packs)]
            }
        };
        RecordBatch::try_new(self.schema(), columns).map_err(RunError::from)
    }
}

/// Ids of a sample; the sink has checked that every one fits.
pub(super) fn ids(sample: &PackedSample) -> Vec<i32> {
    sample.ids.iter().map(|&id| id as i32).collect()
}

/// Labels of a sample: its ids where trained on, else [`IGNORED`].
pub(super) fn labels(sample: &PackedSample) -> Vec<i32> {
    let mut labels = vec![IGNORED; sample.ids.len()];
    for &(start, len) in &sample.trained {
        let run = start as usize..(start + len) as usize;
        if let (Some(labels), Some(ids)) = (labels.get_mut(run.clone()), sample.ids.get(run)) {
            labels.iter_mut().zip(ids).for_each(|(label, &id)| *label = id as i32);
        }
    }
    labels
}

/// 1 where a token is trained on, else 0.
pub(super) fn mask(sample: &PackedSample) -> Vec<i8> {
    let mut mask = vec![0; sample.ids.len()];
    for &(start, len) in &sample.trained {
        if let Some(run) = mask.get_mut(start as usize..(start + len) as usize) {
            run.fill(1);
        }
    }
    mask
}

/// 1 where the next token is trained on: what the model is asked at a place, not what stands there.
fn rolled_mask(sample: &PackedSample) -> Vec<i8> {
    let mut mask = mask(sample);
    if !mask.is_empty() {
        // The first token is never trained on, so what comes round to the end is 0.
        mask.rotate_left(1);
    }
    mask
}

fn numbers(packs: &[Pack], values: impl Fn(&PackedSample) -> Vec<i32>) -> ArrayRef {
    let mut list = ListBuilder::new(Int32Builder::new());
    for pack in packs {
        for sample in &pack.samples {
            list.values().append_slice(&values(sample));
        }
        list.append(true);
    }
    Arc::new(list.finish())
}

fn bytes(packs: &[Pack], values: impl Fn(&PackedSample) -> Vec<i8>) -> ArrayRef {
    let mut list = ListBuilder::new(Int8Builder::new());
    for pack in packs {
        for sample in &pack.samples {
            list.values().append_slice(&values(sample));
        }
        list.append(true);
    }
    Arc::new(list.finish())
}

fn starts(packs: &[Pack]) -> ArrayRef {
    let mut list = ListBuilder::new(Int32Builder::new());
    for pack in packs {
        let mut start = 0;
        for sample in &pack.samples {
            list.values().append_value(start);
            start += sample.ids.len() as i32;
        }
        list.append(true);
    }
    Arc::new(list.finish())
}

fn names(packs: &[Pack]) -> ArrayRef {
    let mut list = ListBuilder::new(StringBuilder::new());
    for pack in packs {
        for sample in &pack.samples {
            list.values().append_value(&sample.name);
        }
        list.append(true);
    }
    Arc::new(list.finish())
}
