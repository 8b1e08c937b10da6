//! Apache Parquet: only the wanted columns, only the wanted rows, and never fewer than promised.

use std::fs::File;
use std::path::Path;

use arrow::array::RecordBatch;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
    RowSelection, RowSelector,
};

use super::error::SourceError;
use super::hub::HubError;
use super::open::{Location, SourceFile};
use super::ranges::{Input, Ranges};
use super::reader::{Chunk, MAX_CHUNK_ROWS, ReadRequest, RowBatch, RowReader, Sampler, require_columns};

/// Reads a range of rows; a row's number is its index in the file.
pub struct ParquetReader {
    file: SourceFile,
    batches: ParquetRecordBatchReader,
    sampler: Sampler,
    /// Next row of the range, and its end.
    row: u64,
    end: u64,
    taken: u64,
    expected: u64,
}

/// What the footer tells of a file.
pub struct Footer {
    /// Rows and uncompressed bytes of each row group.
    pub groups: Vec<(u64, u64)>,
    /// Names of the columns.
    pub columns: Vec<String>,
}

/// Reads the footer.
///
/// # Errors
/// What is not Parquet, or damaged.
pub fn footer(file: &SourceFile) -> Result<Footer, SourceError> {
    let metadata = load(file)?;
    let groups = metadata.metadata().row_groups().iter();
    Ok(Footer {
        groups: groups.map(|g| (g.num_rows().max(0) as u64, g.total_byte_size().max(0) as u64)).collect(),
        columns: metadata.schema().fields().iter().map(|f| f.name().clone()).collect(),
    })
}

/// Uncompressed bytes of the wanted columns.
///
/// # Errors
/// As [`footer`].
pub fn wanted_bytes(file: &SourceFile, columns: &[String]) -> Result<u64, SourceError> {
    let metadata = load(file)?;
    let groups = metadata.metadata().row_groups().iter().flat_map(|group| group.columns());
    let wanted =
        groups.filter(|c| c.column_path().parts().first().is_some_and(|root| columns.contains(root)));
    Ok(wanted.map(|c| c.uncompressed_size().max(0) as u64).sum())
}

impl ParquetReader {
    /// Opens a range of rows. Row groups outside of it are not read; rows that the sampler passes
    /// over are not decoded.
    ///
    /// # Errors
    /// What is not Parquet, damaged data, or a wanted column that is not there.
    pub fn open(file: &SourceFile, source_name: &str, request: &ReadRequest) -> Result<Self, SourceError> {
        if let Some(remote) = file.remote().filter(|_| !file.streams()) {
            // Rows are read by the footer of the file that was checked.
            remote.local(&|_| {})?;
        }
        let metadata = load(file)?;
        let names: Vec<String> = metadata.schema().fields().iter().map(|f| f.name().clone()).collect();
        require_columns(file.path(), source_name, &request.columns, &names)?;
        let total: u64 = metadata.metadata().row_groups().iter().map(|g| g.num_rows().max(0) as u64).sum();
        let start = request.range.start_row().min(total);
        let end = request.range.rows.map_or(total, |rows| (start + rows).min(total));
        let mut reading = Reading { file, metadata, start, end, request };
        let (batches, expected) = reading.build(&names)?;
        Ok(ParquetReader {
            file: file.clone(),
            batches,
            sampler: request.sampler,
            row: start,
            end,
            taken: 0,
            expected,
        })
    }

    fn numbers(&mut self, rows: usize) -> Vec<u64> {
        let mut numbers = Vec::with_capacity(rows);
        while numbers.len() < rows && self.row < self.end {
            if self.sampler.keeps(self.row) {
                numbers.push(self.row);
            }
            self.row += 1;
        }
        numbers
    }

    fn finish(&mut self) -> Result<Option<Chunk>, SourceError> {
        if self.taken != self.expected {
            return Err(SourceError::RowCount {
                path: self.file.path().to_path_buf(),
                got: self.taken,
                expected: self.expected,
            });
        }
        let left = self.end - self.row;
        if left == 0 {
            return Ok(None);
        }
        // The rows after the last one taken were all passed over.
        self.row = self.end;
        let batch = RowBatch::Json(Vec::new(), Vec::new());
        Ok(Some(Chunk { batch, read: left, sampled_out: left, next_row: self.end }))
    }
}

impl RowReader for ParquetReader {
    fn next_chunk(&mut self) -> Result<Option<Chunk>, SourceError> {
        let batches = &mut self.batches;
        let next: Option<RecordBatch> = match super::guard(|| batches.next().transpose()) {
            Ok(Ok(next)) => next,
            Ok(Err(e)) => {
                let remote = self.file.remote().and_then(|remote| remote.take_failure());
                return Err(remote.unwrap_or_else(|| damaged(&self.file, self.row, e.to_string())));
            }
            Err(panic) => return Err(damaged(&self.file, self.row, panic)),
        };
        let Some(batch) = next else { return self.finish() };
        let before = self.row;
        let numbers = self.numbers(batch.num_rows());
        self.taken += batch.num_rows() as u64;
        if numbers.len() != batch.num_rows() {
            return Err(SourceError::RowCount {
                path: self.file.path().to_path_buf(),
                got: self.taken,
                expected: self.expected,
            });
        }
        let read = self.row - before;
        let sampled_out = read - numbers.len() as u64;
        let batch = RowBatch::Table(batch, numbers);
        Ok(Some(Chunk { batch, read, sampled_out, next_row: self.row }))
    }
}

struct Reading<'a> {
    file: &'a SourceFile,
    metadata: ArrowReaderMetadata,
    start: u64,
    end: u64,
    request: &'a ReadRequest,
}

impl Reading<'_> {
    fn build(&mut self, names: &[String]) -> Result<(ParquetRecordBatchReader, u64), SourceError> {
        let (groups, first) = self.groups();
        let (selection, expected) = self.selection(first);
        let roots = names.iter().enumerate().filter(|(_, name)| self.request.wants(name));
        let mask = ProjectionMask::roots(self.metadata.parquet_schema(), roots.map(|(i, _)| i));
        let batch_rows = self.batch_rows(&groups, &mask);
        let input = open_file(self.file, self.extents(&groups, &mask))?;
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(input, self.metadata.clone())
            .with_row_groups(groups)
            .with_projection(mask)
            .with_batch_size(batch_rows)
            .with_row_selection(selection);
        let built = super::guard(|| builder.build());
        match built {
            Ok(Ok(reader)) => Ok((reader, expected)),
            Ok(Err(e)) => Err(damaged(self.file, self.start, e.to_string())),
            Err(panic) => Err(damaged(self.file, self.start, panic)),
        }
    }

    /// The row groups that hold rows of the range, and the number of the first row in them.
    fn groups(&self) -> (Vec<usize>, u64) {
        let (mut at, mut first, mut groups) = (0u64, 0, Vec::new());
        for (index, group) in self.metadata.metadata().row_groups().iter().enumerate() {
            let next = at + group.num_rows().max(0) as u64;
            if next > self.start && at < self.end {
                if groups.is_empty() {
                    first = at;
                }
                groups.push(index);
            }
            at = next;
        }
        (groups, first)
    }

    /// Where the wanted columns lie in the file, row group by row group; neighbours as one.
    fn extents(&self, groups: &[usize], mask: &ProjectionMask) -> Vec<(u64, u64)> {
        let mut extents: Vec<(u64, u64)> = Vec::new();
        for group in groups.iter().filter_map(|&i| self.metadata.metadata().row_groups().get(i)) {
            let wanted = group.columns().iter().enumerate().filter(|(i, _)| mask.leaf_included(*i));
            let mut own: Vec<(u64, u64)> = wanted.map(|(_, column)| column.byte_range()).collect();
            own.sort_unstable();
            let first = extents.len();
            for (start, len) in own {
                match extents.get_mut(first..).and_then(<[_]>::last_mut) {
                    Some(last) if last.0 + last.1 == start => last.1 += len,
                    _ => extents.push((start, len)),
                }
            }
        }
        extents
    }

    /// Which rows to decode, counted from `first`, and how many.
    fn selection(&self, first: u64) -> (RowSelection, u64) {
        let mut selectors = Vec::new();
        if self.start > first {
            selectors.push(RowSelector::skip((self.start - first) as usize));
        }
        if self.request.sampler.takes_all() {
            selectors.push(RowSelector::select((self.end - self.start) as usize));
            return (RowSelection::from(selectors), self.end - self.start);
        }
        let mut expected = 0;
        for row in self.start..self.end {
            let keep = self.request.sampler.keeps(row);
            expected += u64::from(keep);
            match selectors.last_mut() {
                Some(last) if last.skip != keep => last.row_count += 1,
                _ if keep => selectors.push(RowSelector::select(1)),
                _ => selectors.push(RowSelector::skip(1)),
            }
        }
        (RowSelection::from(selectors), expected)
    }

    /// Rows in a batch, so that a batch holds about `chunk_bytes` of the wanted columns.
    fn batch_rows(&self, groups: &[usize], mask: &ProjectionMask) -> usize {
        let (mut rows, mut bytes) = (0u64, 0u64);
        for group in groups.iter().filter_map(|&i| self.metadata.metadata().row_groups().get(i)) {
            rows += group.num_rows().max(0) as u64;
            let wanted = group.columns().iter().enumerate().filter(|(i, _)| mask.leaf_included(*i));
            bytes += wanted.map(|(_, c)| c.uncompressed_size().max(0) as u64).sum::<u64>();
        }
        let row_bytes = (bytes / rows.max(1)).max(64);
        (self.request.chunk_bytes / row_bytes as usize).clamp(1, MAX_CHUNK_ROWS)
    }
}

fn load(file: &SourceFile) -> Result<ArrowReaderMetadata, SourceError> {
    let by_ranges = file.remote().is_some_and(|remote| file.streams() || !remote.is_local());
    if !by_ranges {
        check_magic(file)?;
    }
    let input = match file.remote().filter(|_| by_ranges) {
        Some(remote) => Input::Ranges(Ranges::new(remote.clone(), Vec::new())),
        None => open_file(file, Vec::new())?,
    };
    let options = ArrowReaderOptions::new();
    let loaded = super::guard(|| ArrowReaderMetadata::load(&input, options));
    if let Some((remote, error)) = file.remote().and_then(|remote| Some((remote, remote.take_failure()?))) {
        // A server without ranges still has the whole file, where a copy may be kept.
        let ignored = matches!(&error, SourceError::Hub { source, .. } if matches!(**source, HubError::RangeIgnored { .. }));
        if ignored && !file.streams() {
            remote.local(&|_| {})?;
            return load(file);
        }
        return Err(error);
    }
    match loaded {
        Ok(Ok(metadata)) => Ok(metadata),
        Ok(Err(e)) => Err(damaged(file, 0, e.to_string())),
        Err(panic) => Err(damaged(file, 0, panic)),
    }
}

fn check_magic(file: &SourceFile) -> Result<(), SourceError> {
    let mut raw = file.open_raw()?;
    file.sniff(raw.as_mut())?;
    let mut head = [0u8; 4];
    if std::io::Read::read_exact(&mut raw, &mut head).is_err() || (&head != b"PAR1" && &head != b"PARE") {
        return Err(SourceError::NotThisFormat {
            path: file.path().to_path_buf(),
            format: "parquet",
            reason: "it does not begin with `PAR1`".to_owned(),
        });
    }
    Ok(())
}

/// The bytes of a file; `extents` are those that will be read, by row group.
fn open_file(file: &SourceFile, extents: Vec<(u64, u64)>) -> Result<Input, SourceError> {
    let open = |path: &Path| File::open(path).map(Input::File).map_err(|e| file.read_error(e));
    match &file.location {
        Location::Path(path) => open(path),
        Location::Remote(remote) if file.streams() => Ok(Input::Ranges(Ranges::new(remote.clone(), extents))),
        Location::Remote(remote) => open(&remote.local(&|_| {})?),
        Location::Object(object) => open(&object.local()?),
        Location::Embedded(_) => Err(SourceError::NotThisFormat {
            path: Path::new(&file.name).to_path_buf(),
            format: "parquet",
            reason: "the demo's files are text".to_owned(),
        }),
    }
}

fn damaged(file: &SourceFile, row: u64, reason: String) -> SourceError {
    SourceError::Damaged { path: file.path().to_path_buf(), format: "parquet", row, reason }
}
