//! The formats without a table, `olmo`, `megatron` and `mds`, back to packs.

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use super::{Names, Packs, Parts, ReadError};
use crate::pack::{Pack, PackedSample};
use crate::shard::megatron::{INT32, MAGIC};

/// Reads the format `olmo`: ids, mask, borders with ids of samples.
pub(super) fn olmo(paths: &[PathBuf]) -> Result<Packs, ReadError> {
    let [ids_path, mask_path, borders_path] = paths else { return Ok(Box::new(std::iter::empty())) };
    let mask = read(mask_path)?;
    let ids = numbers(ids_path, &read(ids_path)?, mask.len())?;
    let borders = borders(borders_path)?;
    let path = ids_path.clone();
    let mut end = 0;
    let mut packs = Vec::with_capacity(borders.len());
    for (start, stop, name) in borders {
        let wrong = |reason: String| ReadError::malformed(&path, format!("sample `{name}`: {reason}"));
        let range = start..stop;
        let (Some(ids), Some(mask)) = (ids.get(range.clone()), mask.get(range)) else {
            return Err(wrong(format!("{start} to {stop} of {} tokens", ids.len())));
        };
        if start != end {
            return Err(wrong(format!("begins at {start}, and the one before ends at {end}")));
        }
        end = stop;
        let trained = runs(mask).map_err(wrong)?;
        let sample = PackedSample { name: name.clone(), ids: ids.to_vec(), trained };
        packs.push(Ok(Pack { samples: vec![sample] }));
    }
    if end != ids.len() {
        return Err(ReadError::malformed(&path, format!("borders for {end} of {} tokens", ids.len())));
    }
    Ok(Box::new(packs.into_iter()))
}

/// Reads the format `megatron`: ids, lengths, ids of samples. Every token but the first of a document
/// is trained on.
pub(super) fn megatron(paths: &[PathBuf]) -> Result<Packs, ReadError> {
    let [tokens_path, index_path, names_path] = paths else { return Ok(Box::new(std::iter::empty())) };
    let lengths = lengths(index_path)?;
    let bytes = read(tokens_path)?;
    let ids = numbers(tokens_path, &bytes, bytes.len() / 4)?;
    let mut names = Names::read(names_path)?;
    let (mut at, mut packs) = (0, Vec::with_capacity(lengths.len()));
    for length in lengths {
        let ids = ids
            .get(at..at + length)
            .ok_or_else(|| ReadError::malformed(tokens_path, format!("ends before token {}", at + length)))?;
        at += length;
        let name = names.one().map_err(|reason| ReadError::malformed(names_path, reason))?;
        let trained = if length > 1 { vec![(1, length as u32 - 1)] } else { Vec::new() };
        packs.push(Ok(Pack { samples: vec![PackedSample { name, ids: ids.to_vec(), trained }] }));
    }
    if at != ids.len() {
        return Err(ReadError::malformed(tokens_path, format!("lengths for {at} of {} tokens", ids.len())));
    }
    Ok(Box::new(packs.into_iter()))
}

/// Reads the format `mds`.
pub(super) fn mds(path: &Path) -> Result<Packs, ReadError> {
    let bytes = read(path)?;
    let wrong = |reason: String| ReadError::malformed(path, reason);
    let word = |at: usize| word(&bytes, at);
    let rows = word(0).ok_or_else(|| wrong("the head is cut short".to_owned()))?;
    let mut packs = Vec::with_capacity(rows.min(1 << 20));
    for row in 0..rows {
        let range = word(4 + 4 * row).zip(word(8 + 4 * row));
        let row_bytes = range.and_then(|(from, to)| bytes.get(from..to));
        let row_bytes = row_bytes.ok_or_else(|| wrong(format!("row {row} is cut short")))?;
        packs.push(Ok(mds_row(row_bytes).map_err(|reason| wrong(format!("row {row}: {reason}")))?));
    }
    Ok(Box::new(packs.into_iter()))
}

fn mds_row(bytes: &[u8]) -> Result<Pack, String> {
    let short = || "a column is cut short".to_owned();
    let mut at = 16usize;
    let mut columns: Vec<&[u8]> = Vec::with_capacity(4);
    for column in 0..4 {
        let size = word(bytes, column * 4).ok_or_else(short)?;
        columns.push(bytes.get(at..at.saturating_add(size)).ok_or_else(short)?);
        at += size;
    }
    let [ids, labels, names, lengths] = columns.as_slice() else { return Err(short()) };
    let names: Vec<String> = serde_json::from_slice(names).map_err(|e| e.to_string())?;
    Parts::pack(names, &array(ids)?, &array(labels)?, &array(lengths)?)
}

/// An array of one axis (see `shard/mds.rs`).
fn array(bytes: &[u8]) -> Result<Vec<i32>, String> {
    let wrong = || "a column is no array of int32 with one axis".to_owned();
    let width = match bytes.first() {
        Some(4) => 1,
        Some(5) => 2,
        Some(6) => 4,
        Some(7) => 8,
        _ => return Err(wrong()),
    };
    let mut length = [0; 8];
    let stored = bytes.get(1..=width).ok_or_else(wrong)?;
    length.iter_mut().zip(stored).for_each(|(to, from)| *to = *from);
    let values = bytes.get(1 + width..).ok_or_else(wrong)?;
    let (words, rest) = values.as_chunks::<4>();
    if !rest.is_empty() || words.len() as u64 != u64::from_le_bytes(length) {
        return Err(wrong());
    }
    Ok(words.iter().map(|word| i32::from_le_bytes(*word)).collect())
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let word = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*word) as usize)
}

/// Lengths of the sequences of an index of Megatron-LM, whose places must follow from them.
fn lengths(path: &Path) -> Result<Vec<usize>, ReadError> {
    let bytes = read(path)?;
    let wrong = || ReadError::malformed(path, "is no index of one int32 sequence a document");
    let head = bytes.get(..34).filter(|head| head.starts_with(MAGIC)).ok_or_else(wrong)?;
    let long = |at: usize| head.get(at..).and_then(|b| b.first_chunk::<8>()).map(|b| u64::from_le_bytes(*b));
    let (Some(1), Some(&INT32), Some(count), Some(documents)) = (long(9), head.get(17), long(18), long(26))
    else {
        return Err(wrong());
    };
    let size = 34u64.saturating_add(count.saturating_mul(12)).saturating_add(documents.saturating_mul(8));
    if documents != count + 1 || size != bytes.len() as u64 {
        return Err(wrong());
    }
    let (words, _) = bytes.get(34..).unwrap_or_default().as_chunks::<4>();
    let lengths = words.iter().take(count as usize).map(|word| i32::from_le_bytes(*word));
    let lengths = lengths.map(|length| usize::try_from(length).map_err(|_| wrong()));
    let lengths = lengths.collect::<Result<Vec<usize>, _>>()?;
    // Trainers read by the places, not by the lengths.
    let starts = lengths.iter().scan(0, |at, &length| {
        let start = *at;
        *at += 4 * length as u64;
        Some(start)
    });
    let (places, _) = bytes.get(34 + 4 * lengths.len()..).unwrap_or_default().as_chunks::<8>();
    if !places.iter().map(|place| u64::from_le_bytes(*place)).eq(starts.chain(0..=count)) {
        return Err(ReadError::malformed(
            path,
            "its places of sequences and documents do not follow from its lengths",
        ));
    }
    Ok(lengths)
}

/// `count` ids of two or four bytes each.
fn numbers(path: &Path, bytes: &[u8], count: usize) -> Result<Vec<u32>, ReadError> {
    let (words, rest) = bytes.as_chunks::<4>();
    if words.len() == count && rest.is_empty() {
        return Ok(words.iter().map(|word| u32::from_le_bytes(*word)).collect());
    }
    let (halves, rest) = bytes.as_chunks::<2>();
    if halves.len() == count && rest.is_empty() {
        return Ok(halves.iter().map(|half| u32::from(u16::from_le_bytes(*half))).collect());
    }
    Err(ReadError::malformed(path, format!("{} bytes are no {count} ids", bytes.len())))
}

fn runs(mask: &[u8]) -> Result<Vec<(u32, u32)>, String> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for (index, &trained) in (0u32..).zip(mask) {
        match (trained, runs.last_mut()) {
            (0, _) => {}
            (1, _) if index == 0 => return Err("its first token is trained on".to_owned()),
            (1, Some(run)) if run.0 + run.1 == index => run.1 += 1,
            (1, _) => runs.push((index, 1)),
            (other, _) => return Err(format!("a mask of {other}")),
        }
    }
    Ok(runs)
}

/// `start,end,"id"` a line.
fn borders(path: &Path) -> Result<Vec<(usize, usize, String)>, ReadError> {
    let file = std::fs::File::open(path).map_err(|e| ReadError::io(path, e))?;
    let decoder = MultiGzDecoder::new(BufReader::new(file));
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(decoder);
    let mut all = Vec::new();
    for record in reader.deserialize::<(usize, usize, String)>() {
        all.push(record.map_err(|e| ReadError::malformed(path, e.to_string()))?);
    }
    Ok(all)
}

fn read(path: &Path) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path);
    file.and_then(|mut file| file.read_to_end(&mut bytes)).map_err(|e| ReadError::io(path, e))?;
    Ok(bytes)
}
