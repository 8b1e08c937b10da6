//! Rows by number, in the order of their ids: a row is 8 bytes, and the first of a cluster is its
//! smallest number.

use super::error::DedupError;
use crate::source::row::RowId;

/// The rows of all files, numbered in the order of source, file and row.
#[derive(Clone, Debug, Default)]
pub struct RowNumbers {
    /// Source, file and number of the first row, ascending.
    files: Vec<(u32, u32, u64)>,
    rows: u64,
}

impl RowNumbers {
    /// Numbers the rows of `files`: source, file and how many rows the file has. A file that is named
    /// several times has as many as the largest number says.
    pub fn new(files: impl IntoIterator<Item = (u32, u32, u64)>) -> Self {
        let mut sizes = std::collections::BTreeMap::new();
        for (source, file, rows) in files {
            let size = sizes.entry((source, file)).or_insert(0);
            *size = rows.max(*size);
        }
        let mut numbers = RowNumbers::default();
        for ((source, file), rows) in sizes {
            numbers.files.push((source, file, numbers.rows));
            numbers.rows += rows;
        }
        numbers
    }

    /// How many rows there are.
    pub fn len(&self) -> u64 {
        self.rows
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The number of a row.
    ///
    /// # Errors
    /// A row of no file.
    pub fn number(&self, id: RowId) -> Result<u64, DedupError> {
        let at = self.files.binary_search_by_key(&(id.source, id.file), |&(source, file, _)| (source, file));
        let first = at.ok().and_then(|at| self.files.get(at)).map(|file| file.2);
        let end = at.ok().and_then(|at| self.files.get(at + 1)).map_or(self.rows, |file| file.2);
        let number = first.map(|first| first.saturating_add(id.row)).filter(|number| *number < end);
        let RowId { source: source_index, file, row } = id;
        number.ok_or(DedupError::UnknownRow { source_index, file, row })
    }

    /// The row of a number below [`RowNumbers::len`].
    pub fn id(&self, number: u64) -> RowId {
        let at = self.files.partition_point(|file| file.2 <= number);
        // Files without rows share the number of the next one, which stands after them.
        let (source, file, first) =
            at.checked_sub(1).and_then(|at| self.files.get(at)).copied().unwrap_or_default();
        RowId { source, file, row: number - first }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_the_order_of_ids_and_lead_back_to_them() {
        let numbers = RowNumbers::new([(1, 0, 2), (0, 0, 3), (0, 1, 0), (0, 2, 4), (0, 2, 1)]);
        assert_eq!(numbers.len(), 9);
        let ids: Vec<RowId> = (0..9).map(|number| numbers.id(number)).collect();
        assert!(ids.is_sorted());
        for (number, id) in ids.iter().enumerate() {
            assert_eq!(numbers.number(*id).unwrap(), number as u64);
        }
        assert_eq!(ids[8], RowId { source: 1, file: 0, row: 1 });
    }

    #[test]
    fn a_row_of_no_file_is_an_error() {
        let numbers = RowNumbers::new([(0, 0, 3), (0, 1, 3)]);
        for id in [(0, 0, 3), (0, 2, 0), (1, 0, 0)] {
            let (source, file, row) = id;
            let error = numbers.number(RowId { source, file, row }).unwrap_err();
            assert!(error.to_string().contains("not among the rows"), "{error}");
        }
    }
}
