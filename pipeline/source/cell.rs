//! One value of a row, whatever file format it came from.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    ArrowDictionaryKeyType, DataType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// A value of a column: scalars, text, lists and structs (fields in file order).
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Cell {
    /// Absent, null, or a value whose text is not part of any sample (see [`Cell::from_arrow`]).
    #[default]
    Null,
    /// A boolean.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer above `i64::MAX`.
    UInt(u64),
    /// A floating-point number.
    Float(f64),
    /// UTF-8 text.
    Text(String),
    /// Binary data that is not UTF-8.
    Bytes(Vec<u8>),
    /// A list; a fixed-size list, a large list and a list view read alike.
    List(Vec<Cell>),
    /// A struct, a map with text keys or a JSON object.
    Struct(Vec<(String, Cell)>),
}

impl Cell {
    /// The text, if the cell is text.
    pub fn text(&self) -> Option<&str> {
        match self {
            Cell::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The elements, if the cell is a list.
    pub fn list(&self) -> Option<&[Cell]> {
        match self {
            Cell::List(items) => Some(items),
            _ => None,
        }
    }

    /// The field `name`, if the cell is a struct that has it. Field order does not matter.
    pub fn field(&self, name: &str) -> Option<&Cell> {
        match self {
            Cell::Struct(fields) => fields.iter().find(|(key, _)| key == name).map(|(_, v)| v),
            _ => None,
        }
    }

    /// Follows struct fields; a missing field gives [`Cell::Null`].
    pub fn path(&self, fields: &[String]) -> &Cell {
        static NULL: Cell = Cell::Null;
        let mut cell = self;
        for name in fields {
            cell = cell.field(name).unwrap_or(&NULL);
        }
        cell
    }

    /// Takes the value at `fields` out of the cell, leaving nulls behind.
    pub fn take_path(&mut self, fields: &[String]) -> Cell {
        let mut cell = self;
        for name in fields {
            let next = match cell {
                Cell::Struct(entries) => entries.iter_mut().find(|(key, _)| key == name),
                _ => None,
            };
            match next {
                Some((_, value)) => cell = value,
                None => return Cell::Null,
            }
        }
        std::mem::take(cell)
    }

    /// What the value is called in messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Cell::Null => "null",
            Cell::Bool(_) => "a boolean",
            Cell::Int(_) | Cell::UInt(_) => "an integer",
            Cell::Float(_) => "a number",
            Cell::Text(_) => "text",
            Cell::Bytes(_) => "binary",
            Cell::List(_) => "a list",
            Cell::Struct(_) => "a struct",
        }
    }

    /// Reads element `row` of an Arrow array. Dictionary, view and large layouts read as their plain
    /// kinds; binary reads as text when it is UTF-8; timestamps read as their ticks; other types
    /// (dates, decimals, …) read as the text that Arrow displays for them.
    ///
    /// # Errors
    /// Values that Arrow cannot display.
    pub fn from_arrow(array: &ArrayRef, row: usize) -> Result<Cell, String> {
        if array.is_null(row) {
            return Ok(Cell::Null);
        }
        from_arrow_value(array, row)
    }
}

fn from_arrow_value(array: &ArrayRef, row: usize) -> Result<Cell, String> {
    macro_rules! int {
        ($t:ty) => {
            Cell::Int(i64::from(array.as_primitive::<$t>().value(row)))
        };
    }
    Ok(match array.data_type() {
        DataType::Null => Cell::Null,
        DataType::Boolean => Cell::Bool(array.as_boolean().value(row)),
        DataType::Int8 => int!(Int8Type),
        DataType::Int16 => int!(Int16Type),
        DataType::Int32 => int!(Int32Type),
        DataType::Int64 => int!(Int64Type),
        DataType::UInt8 => int!(UInt8Type),
        DataType::UInt16 => int!(UInt16Type),
        DataType::UInt32 => int!(UInt32Type),
        DataType::UInt64 => unsigned(array.as_primitive::<UInt64Type>().value(row)),
        DataType::Float16 => Cell::Float(f64::from(array.as_primitive::<Float16Type>().value(row))),
        DataType::Float32 => Cell::Float(f64::from(array.as_primitive::<Float32Type>().value(row))),
        DataType::Float64 => Cell::Float(array.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => Cell::Text(array.as_string::<i32>().value(row).to_owned()),
        DataType::LargeUtf8 => Cell::Text(array.as_string::<i64>().value(row).to_owned()),
        DataType::Utf8View => Cell::Text(array.as_string_view().value(row).to_owned()),
        DataType::Binary => bytes(array.as_binary::<i32>().value(row)),
        DataType::LargeBinary => bytes(array.as_binary::<i64>().value(row)),
        DataType::BinaryView => bytes(array.as_binary_view().value(row)),
        DataType::FixedSizeBinary(_) => bytes(array.as_fixed_size_binary().value(row)),
        DataType::List(_) => list(&array.as_list::<i32>().value(row))?,
        DataType::LargeList(_) => list(&array.as_list::<i64>().value(row))?,
        DataType::ListView(_) => list(&array.as_list_view::<i32>().value(row))?,
        DataType::LargeListView(_) => list(&array.as_list_view::<i64>().value(row))?,
        DataType::FixedSizeList(_, _) => list(&array.as_fixed_size_list().value(row))?,
        DataType::Struct(_) => structure(array, row)?,
        DataType::Map(_, _) => map(array, row)?,
        DataType::Timestamp(unit, _) => ticks(array, *unit, row),
        DataType::Dictionary(key, _) => dictionary(array, key, row)?,
        _ => Cell::Text(arrow::util::display::array_value_to_string(array, row).map_err(|e| e.to_string())?),
    })
}

fn unsigned(value: u64) -> Cell {
    i64::try_from(value).map_or(Cell::UInt(value), Cell::Int)
}

fn bytes(value: &[u8]) -> Cell {
    match std::str::from_utf8(value) {
        Ok(text) => Cell::Text(text.to_owned()),
        Err(_) => Cell::Bytes(value.to_vec()),
    }
}

fn ticks(array: &ArrayRef, unit: TimeUnit, row: usize) -> Cell {
    Cell::Int(match unit {
        TimeUnit::Second => array.as_primitive::<TimestampSecondType>().value(row),
        TimeUnit::Millisecond => array.as_primitive::<TimestampMillisecondType>().value(row),
        TimeUnit::Microsecond => array.as_primitive::<TimestampMicrosecondType>().value(row),
        TimeUnit::Nanosecond => array.as_primitive::<TimestampNanosecondType>().value(row),
    })
}

fn list(items: &ArrayRef) -> Result<Cell, String> {
    (0..items.len()).map(|i| Cell::from_arrow(items, i)).collect::<Result<_, _>>().map(Cell::List)
}

fn structure(array: &ArrayRef, row: usize) -> Result<Cell, String> {
    let array = array.as_struct();
    let names = array.fields().iter().map(|field| field.name().clone());
    let cells = array.columns().iter().map(|c| Cell::from_arrow(c, row));
    names
        .zip(cells)
        .map(|(name, cell)| cell.map(|cell| (name, cell)))
        .collect::<Result<_, _>>()
        .map(Cell::Struct)
}

fn map(array: &ArrayRef, row: usize) -> Result<Cell, String> {
    let entries = array.as_map().value(row);
    let (keys, values) = (entries.column(0), entries.column(1));
    let mut fields = Vec::with_capacity(entries.len());
    for i in 0..entries.len() {
        let key = match Cell::from_arrow(keys, i)? {
            Cell::Text(text) => text,
            _ => arrow::util::display::array_value_to_string(keys, i).map_err(|e| e.to_string())?,
        };
        fields.push((key, Cell::from_arrow(values, i)?));
    }
    Ok(Cell::Struct(fields))
}

fn dictionary(array: &ArrayRef, key: &DataType, row: usize) -> Result<Cell, String> {
    fn at<K: ArrowDictionaryKeyType>(array: &ArrayRef, row: usize) -> Result<Cell, String> {
        let array = array.as_dictionary::<K>();
        match array.key(row) {
            Some(key) => Cell::from_arrow(array.values(), key),
            None => Ok(Cell::Null),
        }
    }
    match key {
        DataType::Int8 => at::<Int8Type>(array, row),
        DataType::Int16 => at::<Int16Type>(array, row),
        DataType::Int32 => at::<Int32Type>(array, row),
        DataType::Int64 => at::<Int64Type>(array, row),
        DataType::UInt8 => at::<UInt8Type>(array, row),
        DataType::UInt16 => at::<UInt16Type>(array, row),
        DataType::UInt32 => at::<UInt32Type>(array, row),
        _ => at::<UInt64Type>(array, row),
    }
}

impl<'de> Deserialize<'de> for Cell {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CellVisitor)
    }
}

struct CellVisitor;

impl<'de> Visitor<'de> for CellVisitor {
    type Value = Cell;

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Cell, E> {
        Ok(Cell::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Cell, E> {
        Ok(Cell::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Cell, E> {
        Ok(Cell::Int(value))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Cell, E> {
        Ok(unsigned(value))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Cell, E> {
        Ok(Cell::Float(value))
    }
    fn visit_str<E>(self, value: &str) -> Result<Cell, E> {
        Ok(Cell::Text(value.to_owned()))
    }
    fn visit_string<E>(self, value: String) -> Result<Cell, E> {
        Ok(Cell::Text(value))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Cell, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Cell::List(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Cell, A::Error> {
        let mut fields: Vec<(String, Cell)> = Vec::new();
        while let Some((key, value)) = map.next_entry::<String, Cell>()? {
            // A key given twice: the last one counts, as in Python's json.
            match fields.iter_mut().find(|(name, _)| *name == key) {
                Some(slot) => slot.1 = value,
                None => fields.push((key, value)),
            }
        }
        Ok(Cell::Struct(fields))
    }
}
