//! `where`: an SQL predicate over the columns of a source, evaluated by Polars batch by batch.

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, RecordBatch};
use polars::prelude::{
    AggExpr, AnyValue, BooleanChunked, DataFrame, DataType, Expr, Field, IntoLazy, PlSmallStr, PolarsError,
    PolarsResult, Series,
};
use serde::{Deserialize, Serialize};

use super::cell::Cell;
use super::python_json::to_python_json;

/// A predicate ready to run.
#[derive(Clone, Debug)]
pub struct Predicate {
    text: String,
    expression: Expr,
    columns: Vec<String>,
    kinds: Vec<Kind>,
}

/// What the values of a column are, over all rows of a source whose files do not say.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Nothing but nulls so far.
    #[default]
    Null,
    /// Booleans.
    Bool,
    /// Whole numbers.
    Int,
    /// Numbers.
    Float,
    /// Texts, or values of several kinds, which compare as texts.
    Text,
    /// Lists.
    List(Box<Kind>),
    /// Structs, their fields by name.
    Struct(BTreeMap<String, Kind>),
}

/// A predicate that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PredicateError {
    /// Not an SQL expression.
    #[error("`where` of source `{source_name}`: cannot read `{text}`: {reason}")]
    Parse {
        /// The source.
        source_name: String,
        /// The predicate.
        text: String,
        /// The parser's words.
        reason: String,
    },
    /// An expression over several rows: its value would depend on how rows are batched.
    #[error("`where` of source `{source_name}`: `{text}` looks at more than one row")]
    NotRowWise {
        /// The source.
        source_name: String,
        /// The predicate.
        text: String,
    },
    /// An expression that cannot be evaluated over these columns.
    #[error("{place}: `where` cannot be evaluated: {reason}")]
    Evaluate {
        /// File and rows.
        place: String,
        /// The engine's words.
        reason: String,
    },
}

impl PredicateError {
    /// The way out.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            PredicateError::Parse { .. } => {
                "write it as after WHERE in SQL: `score >= 3 AND source = 'web'`; names with odd letters in double quotes".to_owned()
            }
            PredicateError::NotRowWise { .. } => "aggregates and windows have no place in a filter of single rows".to_owned(),
            PredicateError::Evaluate { .. } => "compare numbers with numbers and texts with texts; `CAST(x AS DOUBLE)` converts".to_owned(),
        })
    }
}

impl Predicate {
    /// Reads a predicate.
    ///
    /// # Errors
    /// What is no SQL expression over single rows.
    pub fn parse(text: &str, source_name: &str) -> Result<Self, PredicateError> {
        let expression = polars::sql::sql_expr(text).map_err(|e| PredicateError::Parse {
            source_name: source_name.to_owned(),
            text: text.to_owned(),
            reason: short(&e),
        })?;
        if !expression.into_iter().all(is_row_wise) {
            return Err(PredicateError::NotRowWise {
                source_name: source_name.to_owned(),
                text: text.to_owned(),
            });
        }
        let names = expression.clone().meta().root_names();
        let mut columns: Vec<String> = names.iter().map(ToString::to_string).collect();
        columns.sort();
        columns.dedup();
        Ok(Predicate { text: text.to_owned(), expression, columns, kinds: Vec::new() })
    }

    /// Sets what the columns of rows without a schema hold, one kind a column.
    pub fn with_kinds(mut self, kinds: Vec<Kind>) -> Self {
        self.kinds = kinds;
        self
    }

    /// What the columns hold, one kind a column; empty where the files say it.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// The columns that the predicate reads.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The predicate as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// For each row of a table: whether the predicate is true.
    ///
    /// # Errors
    /// What cannot be evaluated.
    pub fn evaluate_table(&self, batch: &RecordBatch, place: &str) -> Result<Vec<bool>, PredicateError> {
        let series = self
            .columns
            .iter()
            .filter_map(|name| batch.column_by_name(name).map(|column| guarded_series(name, column)));
        self.evaluate(series, batch.num_rows(), place)
    }

    /// For each decoded row: whether the predicate is true. `columns` names the cells.
    ///
    /// # Errors
    /// What cannot be evaluated.
    pub fn evaluate_cells(
        &self,
        rows: &[&[Cell]],
        columns: &[String],
        place: &str,
    ) -> Result<Vec<bool>, PredicateError> {
        let series = self.columns.iter().enumerate().filter_map(|(number, name)| {
            let at = columns.iter().position(|column| column == name)?;
            let kind = self.kinds.get(number).unwrap_or(&Kind::Text);
            let values: Vec<AnyValue> = rows
                .iter()
                .map(|cells| cells.get(at).map_or(AnyValue::Null, |cell| kind.value(cell)))
                .collect();
            Some(Series::from_any_values_and_dtype(
                PlSmallStr::from_str(name),
                &values,
                &kind.data_type(),
                false,
            ))
        });
        self.evaluate(series, rows.len(), place)
    }

    fn evaluate(
        &self,
        series: impl Iterator<Item = PolarsResult<Series>>,
        rows: usize,
        place: &str,
    ) -> Result<Vec<bool>, PredicateError> {
        let failed = |e: &PolarsError| PredicateError::Evaluate { place: place.to_owned(), reason: short(e) };
        if rows == 0 {
            return Ok(Vec::new());
        }
        let columns = series.map(|s| s.map(Into::into)).collect::<PolarsResult<Vec<_>>>();
        let frame = columns.and_then(|columns| DataFrame::new(rows, columns)).map_err(|e| failed(&e))?;
        let kept =
            frame.lazy().select([self.expression.clone().alias("kept")]).collect().map_err(|e| failed(&e))?;
        let column = kept.column("kept").map_err(|e| failed(&e))?;
        let mask: &BooleanChunked = column.bool().map_err(|e| failed(&e))?;
        let mut flags: Vec<bool> = mask.iter().map(|flag| flag == Some(true)).collect();
        if flags.len() == 1 {
            flags = vec![flags.first() == Some(&true); rows];
        }
        Ok(flags)
    }
}

/// Whether a node's value at a row depends on that row alone. What is not known to is refused: a value
/// that other rows decide would change with the batch.
fn is_row_wise(node: &Expr) -> bool {
    match node {
        Expr::Alias(..)
        | Expr::Column(_)
        | Expr::Literal(_)
        | Expr::BinaryExpr { .. }
        | Expr::Cast { .. }
        | Expr::Ternary { .. }
        | Expr::Element
        | Expr::Eval { .. }
        | Expr::StructEval { .. }
        | Expr::Field(_) => true,
        // The list of `x IN (1, 2)`.
        Expr::Agg(AggExpr::Implode { input, .. }) => {
            input.into_iter().all(|inner| matches!(inner, Expr::Literal(_)))
        }
        Expr::Function { function, .. } => {
            let name = function.to_string();
            let name = name.strip_prefix('.').unwrap_or(&name);
            let family = ROW_WISE_FAMILIES.iter().any(|prefix| name.starts_with(prefix));
            (family && !name.contains("concat_vertical"))
                || ROW_WISE.iter().any(|known| is_call_of(name, known))
        }
        _ => false,
    }
}

fn is_call_of(name: &str, known: &str) -> bool {
    name.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('('))
}

/// Name spaces whose functions look at one value.
const ROW_WISE_FAMILIES: [&str; 7] = ["str.", "list.", "arr.", "struct.", "dt.", "bin.", "is_"];

/// Other functions that look at one row.
const ROW_WISE: [&str; 38] = [
    "not",
    "all_horizontal",
    "any_horizontal",
    "abs",
    "negate",
    "round",
    "round_sig_figs",
    "floor",
    "ceil",
    "truncate",
    "pow",
    "sqrt",
    "cbrt",
    "exp",
    "log",
    "log1p",
    "sign",
    "sin",
    "cos",
    "tan",
    "cot",
    "arcsin",
    "arccos",
    "arctan",
    "sinh",
    "cosh",
    "tanh",
    "degrees",
    "radians",
    "max_horizontal",
    "min_horizontal",
    "concat_str",
    "coalesce",
    "fill_null",
    "clip",
    "replace",
    "replace_strict",
    "as_struct",
];

impl Kind {
    /// Takes a value into account.
    pub fn add(&mut self, cell: &Cell) {
        self.merge(match cell {
            Cell::Null => return,
            Cell::Bool(_) => Kind::Bool,
            Cell::Int(_) => Kind::Int,
            Cell::UInt(_) | Cell::Float(_) => Kind::Float,
            Cell::Text(_) | Cell::Bytes(_) => Kind::Text,
            Cell::List(items) => {
                let mut inner = Kind::Null;
                items.iter().for_each(|item| inner.add(item));
                Kind::List(Box::new(inner))
            }
            Cell::Struct(fields) => Kind::Struct(
                fields
                    .iter()
                    .map(|(name, value)| {
                        let mut kind = Kind::Null;
                        kind.add(value);
                        (name.clone(), kind)
                    })
                    .collect(),
            ),
        });
    }

    /// What holds values of both kinds.
    pub fn merge(&mut self, other: Kind) {
        let before = std::mem::take(self);
        *self = match (before, other) {
            (Kind::Null, kind) | (kind, Kind::Null) => kind,
            (a, b) if a == b => a,
            (Kind::Int | Kind::Float, Kind::Int | Kind::Float) => Kind::Float,
            (Kind::List(mut a), Kind::List(b)) => {
                a.merge(*b);
                Kind::List(a)
            }
            (Kind::Struct(mut a), Kind::Struct(b)) => {
                for (name, kind) in b {
                    a.entry(name).or_default().merge(kind);
                }
                Kind::Struct(a)
            }
            _ => Kind::Text,
        };
    }

    fn data_type(&self) -> DataType {
        match self {
            Kind::Null => DataType::Null,
            Kind::Text => DataType::String,
            Kind::Bool => DataType::Boolean,
            Kind::Int => DataType::Int64,
            Kind::Float => DataType::Float64,
            Kind::List(inner) => DataType::List(Box::new(inner.data_type())),
            Kind::Struct(fields) => {
                let field =
                    |(name, kind): (&String, &Kind)| Field::new(PlSmallStr::from_str(name), kind.data_type());
                DataType::Struct(fields.iter().map(field).collect())
            }
        }
    }

    /// A cell as a value of this kind.
    fn value(&self, cell: &Cell) -> AnyValue<'static> {
        match (self, cell) {
            (_, Cell::Null) => AnyValue::Null,
            (Kind::Bool, Cell::Bool(value)) => AnyValue::Boolean(*value),
            (Kind::Int, Cell::Int(value)) => AnyValue::Int64(*value),
            (Kind::Float, Cell::Int(value)) => AnyValue::Float64(*value as f64),
            (Kind::Float, Cell::UInt(value)) => AnyValue::Float64(*value as f64),
            (Kind::Float, Cell::Float(value)) => AnyValue::Float64(*value),
            (Kind::List(inner), Cell::List(items)) => {
                let values: Vec<AnyValue> = items.iter().map(|item| inner.value(item)).collect();
                let series =
                    Series::from_any_values_and_dtype(PlSmallStr::EMPTY, &values, &inner.data_type(), false);
                series.map_or(AnyValue::Null, AnyValue::List)
            }
            (Kind::Struct(kinds), value @ Cell::Struct(_)) => {
                let fields = kinds.iter().map(|(name, kind)| {
                    let field = Field::new(PlSmallStr::from_str(name), kind.data_type());
                    (kind.value(value.field(name).unwrap_or(&Cell::Null)), field)
                });
                let (values, fields): (Vec<AnyValue>, Vec<Field>) = fields.unzip();
                AnyValue::StructOwned(Box::new((values, fields)))
            }
            (Kind::Text, Cell::Text(text)) => AnyValue::StringOwned(PlSmallStr::from_str(text)),
            (Kind::Text, other) => AnyValue::StringOwned(PlSmallStr::from_str(&to_python_json(other))),
            _ => AnyValue::Null,
        }
    }
}

/// Polars does not know every type of Arrow, and gives up on some.
fn guarded_series(name: &str, column: &ArrayRef) -> PolarsResult<Series> {
    super::guard(|| series_of_array(name, column)).unwrap_or_else(|_| {
        let reason = format!("column `{name}` of type {} cannot be compared", column.data_type());
        Err(PolarsError::ComputeError(reason.into()))
    })
}

/// Hands an Arrow column to Polars over the C data interface, without a copy.
#[expect(unsafe_code, reason = "the Arrow C data interface")]
fn series_of_array(name: &str, column: &ArrayRef) -> PolarsResult<Series> {
    let data = column.to_data();
    let (array, schema) =
        arrow::ffi::to_ffi(&data).map_err(|e| PolarsError::ComputeError(e.to_string().into()))?;
    // SAFETY: both crates define these structs as the C data interface does (`repr(C)`); ownership,
    // and with it the call of `release`, moves to Polars.
    unsafe {
        let array: polars_arrow::ffi::ArrowArray = std::mem::transmute(array);
        let schema: polars_arrow::ffi::ArrowSchema = std::mem::transmute(schema);
        let field = polars_arrow::ffi::import_field_from_c(&schema)?;
        let array = polars_arrow::ffi::import_array_from_c(array, field.dtype)?;
        Series::try_from((PlSmallStr::from_str(name), array))
    }
}

fn short(error: &PolarsError) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().trim_end_matches(':').to_owned()
}
