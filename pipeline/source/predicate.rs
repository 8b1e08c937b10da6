//! `where`: an SQL predicate over the columns of a source, evaluated by Polars batch by batch.

use arrow::array::{Array, ArrayRef, RecordBatch};
use polars::prelude::{
    AnyValue, BooleanChunked, DataFrame, Expr, Field, IntoLazy, PlSmallStr, PolarsError, PolarsResult, Series,
};

use super::cell::Cell;

/// A predicate ready to run.
#[derive(Clone, Debug)]
pub struct Predicate {
    text: String,
    expression: Expr,
    columns: Vec<String>,
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
        Ok(Predicate { text: text.to_owned(), expression, columns })
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
            .filter_map(|name| batch.column_by_name(name).map(|column| series_of_array(name, column)));
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
        let series = self.columns.iter().filter_map(|name| {
            let at = columns.iter().position(|column| column == name)?;
            let values: Vec<AnyValue> =
                rows.iter().map(|cells| cells.get(at).map_or(AnyValue::Null, any_value)).collect();
            Some(Series::from_any_values(PlSmallStr::from_str(name), &values, false))
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

/// Whether a node's value at a row depends on that row alone.
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
        Expr::Function { function, .. } => {
            // Shifts, ranks, running sums and the like take part of their value from other rows.
            let name = function.to_string();
            ![
                "cum_",
                "shift",
                "rank",
                "diff",
                "rolling",
                "unique",
                "row_index",
                "sort",
                "reverse",
                "sample",
                "shuffle",
                "first",
                "last",
                "mode",
                "value_counts",
                "fill_null_with",
                "backward_fill",
                "forward_fill",
                "interpolate",
                "ewm",
            ]
            .iter()
            .any(|word| name.starts_with(word))
        }
        _ => false,
    }
}

fn any_value(cell: &Cell) -> AnyValue<'static> {
    match cell {
        Cell::Null => AnyValue::Null,
        Cell::Bool(value) => AnyValue::Boolean(*value),
        Cell::Int(value) => AnyValue::Int64(*value),
        Cell::UInt(value) => AnyValue::UInt64(*value),
        Cell::Float(value) => AnyValue::Float64(*value),
        Cell::Text(text) => AnyValue::StringOwned(PlSmallStr::from_str(text)),
        Cell::Bytes(bytes) => AnyValue::BinaryOwned(bytes.clone()),
        Cell::List(items) => {
            let values: Vec<AnyValue> = items.iter().map(any_value).collect();
            match Series::from_any_values(PlSmallStr::EMPTY, &values, false) {
                Ok(series) => AnyValue::List(series),
                Err(_) => AnyValue::Null,
            }
        }
        Cell::Struct(fields) => {
            let values: Vec<AnyValue> = fields.iter().map(|(_, value)| any_value(value)).collect();
            let types = fields.iter().zip(&values);
            let types = types.map(|((name, _), value)| Field::new(PlSmallStr::from_str(name), value.dtype()));
            AnyValue::StructOwned(Box::new((values.clone(), types.collect())))
        }
    }
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
