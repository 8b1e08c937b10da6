//! Rows in the schema of a card: Parquet, Arrow, JSONL and JSON files from the columns that a card lists and
//! a few values. No tests.

use std::io::Cursor;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanBuilder, Float64Builder, Int64Array, ListArray, NullArray, RecordBatch, StringBuilder,
    StructArray, new_null_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Fields, Schema, TimeUnit};
use parquet::basic::Compression;
use potable::recipe::card::{Card, CardConfig};
use potable::source::Format;
use serde_json::{Map, Value, json};

use super::harness::{lines, parquet_bytes};

/// Rows with all columns that the card lists for a configuration: those that are given, the others filled.
pub fn rows(card: &Card, config: &CardConfig, given: &[Value]) -> Vec<Value> {
    let columns: Vec<(String, DataType)> = columns(card, config);
    given
        .iter()
        .map(|row| {
            let mut full = Map::new();
            for (name, kind) in &columns {
                full.insert(name.clone(), row.get(name).cloned().unwrap_or_else(|| filler(kind)));
            }
            for name in row.as_object().unwrap().keys() {
                assert!(full.contains_key(name), "{}: the card has no column {name}", card.id);
            }
            Value::Object(full)
        })
        .collect()
}

/// The rows as a file in the format of the configuration.
pub fn file(card: &Card, config: &CardConfig, rows: &[Value]) -> Vec<u8> {
    match config.format {
        Format::Jsonl => lines(rows.to_vec()).into_bytes(),
        Format::Json => serde_json::to_vec_pretty(rows).unwrap(),
        Format::Parquet => parquet_bytes(&table(card, config, rows), Compression::SNAPPY, 100),
        Format::Arrow => {
            let batch = table(card, config, rows);
            let mut out = Cursor::new(Vec::new());
            let mut writer = arrow::ipc::writer::StreamWriter::try_new(&mut out, &batch.schema()).unwrap();
            writer.write(&batch).unwrap();
            writer.finish().unwrap();
            drop(writer);
            out.into_inner()
        }
        Format::Csv => unreachable!("no corpus is CSV"),
    }
}

/// Rows as Parquet, in the types of the first one's values.
pub fn parquet_of(rows: &[Value]) -> Vec<u8> {
    let first = rows[0].as_object().unwrap();
    let columns = first.iter().map(|(name, value)| {
        let kind = kind_of(value);
        let values: Vec<&Value> = rows.iter().map(|row| &row[name]).collect();
        (name.clone(), array(&kind, &values))
    });
    parquet_bytes(&RecordBatch::try_from_iter(columns).unwrap(), Compression::SNAPPY, 100)
}

fn kind_of(value: &Value) -> DataType {
    match value {
        Value::Bool(_) => DataType::Boolean,
        Value::Number(number) if number.is_i64() => DataType::Int64,
        Value::Number(_) => DataType::Float64,
        Value::String(_) => DataType::Utf8,
        Value::Array(items) => DataType::List(Arc::new(Field::new("item", kind_of(&items[0]), true))),
        Value::Object(fields) => DataType::Struct(
            fields.iter().map(|(name, value)| Field::new(name, kind_of(value), true)).collect(),
        ),
        Value::Null => DataType::Null,
    }
}

/// A name that a glob of a card matches.
pub fn file_name(glob: &str) -> String {
    let name = glob.replace("**/", "a/");
    match name.contains("part-*") {
        true => name.replace("part-*", "part-0001-of-0300"),
        false => name.replace('*', "00000-of-00001"),
    }
}

fn table(card: &Card, config: &CardConfig, rows: &[Value]) -> RecordBatch {
    let columns = columns(card, config);
    let fields: Vec<Field> =
        columns.iter().map(|(name, kind)| Field::new(name, kind.clone(), true)).collect();
    let arrays: Vec<ArrayRef> = columns
        .iter()
        .map(|(name, kind)| {
            let values: Vec<&Value> = rows.iter().map(|row| &row[name]).collect();
            array(kind, &values)
        })
        .collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

fn columns(card: &Card, config: &CardConfig) -> Vec<(String, DataType)> {
    let split = |column: &String| {
        let (name, kind) = column.split_once(": ").unwrap();
        (name.to_owned(), parse(kind).0)
    };
    card.columns_of(config).iter().map(split).collect()
}

/// A type as cards write it, and what stands behind it.
fn parse(text: &str) -> (DataType, &str) {
    if let Some(inner) = text.strip_prefix("list<") {
        let (kind, rest) = parse(inner);
        let rest = rest.split_once('>').unwrap().1;
        return (DataType::List(Arc::new(Field::new("item", kind, true))), rest);
    }
    if let Some(mut inner) = text.strip_prefix("struct<") {
        let mut fields = Vec::new();
        loop {
            let (name, kind) = inner.split_once(": ").unwrap();
            let (kind, rest) = parse(kind);
            fields.push(Field::new(name, kind, true));
            let end = rest.find([',', '>']).unwrap();
            let (mark, rest) = rest.split_at(end).1.split_at(1);
            if mark == ">" {
                return (DataType::Struct(Fields::from(fields)), rest);
            }
            inner = rest.trim_start();
        }
    }
    let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let kind = match name {
        "string" => DataType::Utf8,
        "bool" => DataType::Boolean,
        "int64" | "int32" => DataType::Int64,
        "float64" | "float32" => DataType::Float64,
        "timestamp" => DataType::Timestamp(TimeUnit::Microsecond, None),
        "null" => DataType::Null,
        other => panic!("a card has the type {other}"),
    };
    (kind, rest)
}

fn filler(kind: &DataType) -> Value {
    match kind {
        DataType::Utf8 => json!("x"),
        DataType::Boolean => json!(true),
        DataType::Int64 => json!(1),
        DataType::Float64 => json!(1.0),
        DataType::List(field) => json!([filler(field.data_type())]),
        DataType::Struct(fields) => {
            fields.iter().map(|field| (field.name().clone(), filler(field.data_type()))).collect()
        }
        _ => Value::Null,
    }
}

fn array(kind: &DataType, values: &[&Value]) -> ArrayRef {
    match kind {
        DataType::Utf8 => {
            let mut builder = StringBuilder::new();
            values.iter().for_each(|value| builder.append_option(value.as_str()));
            Arc::new(builder.finish())
        }
        DataType::Boolean => {
            let mut builder = BooleanBuilder::new();
            values.iter().for_each(|value| builder.append_option(value.as_bool()));
            Arc::new(builder.finish())
        }
        DataType::Int64 => Arc::new(Int64Array::from(values.iter().map(|v| v.as_i64()).collect::<Vec<_>>())),
        DataType::Float64 => {
            let mut builder = Float64Builder::new();
            values.iter().for_each(|value| builder.append_option(value.as_f64()));
            Arc::new(builder.finish())
        }
        DataType::List(field) => {
            let lists: Vec<&[Value]> =
                values.iter().map(|v| v.as_array().map_or(&[][..], Vec::as_slice)).collect();
            let inner: Vec<&Value> = lists.iter().copied().flatten().collect();
            let offsets = OffsetBuffer::from_lengths(lists.iter().map(|list| list.len()));
            let nulls = NullBuffer::from_iter(values.iter().map(|value| value.is_array()));
            Arc::new(ListArray::new(field.clone(), offsets, array(field.data_type(), &inner), Some(nulls)))
        }
        DataType::Struct(fields) => {
            let columns = fields.iter().map(|field| {
                let inner: Vec<&Value> =
                    values.iter().map(|value| value.get(field.name()).unwrap_or(&Value::Null)).collect();
                array(field.data_type(), &inner)
            });
            let nulls = NullBuffer::from_iter(values.iter().map(|value| value.is_object()));
            Arc::new(StructArray::new(fields.clone(), columns.collect(), Some(nulls)))
        }
        DataType::Null => Arc::new(NullArray::new(values.len())),
        other => new_null_array(other, values.len()),
    }
}
