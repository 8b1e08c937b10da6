//! Packs the Qwen3 vocabulary of the registry package `splintr-vocab-qwen` for the binary:
//! token lengths (u8) of ids 0, 1, 2 …, then the token bytes in the same order, all zstd-compressed.

use std::error::Error;
use std::io::Write as _;
use std::path::PathBuf;

#[expect(clippy::disallowed_methods, reason = "a build script writes to its own folder")]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=pipeline/build.rs");
    let tokens = unpack(splintr_vocab_qwen::QWEN3_VOCAB_PACKED)?;
    let mut raw = Vec::new();
    raw.extend_from_slice(&u32::try_from(tokens.len())?.to_le_bytes());
    for token in &tokens {
        raw.push(u8::try_from(token.len())?);
    }
    for token in &tokens {
        raw.extend_from_slice(token);
    }
    let path = PathBuf::from(std::env::var("OUT_DIR")?).join("qwen3.ranks.zst");
    let mut encoder = zstd::Encoder::new(Vec::new(), 19)?;
    encoder.write_all(&raw)?;
    std::fs::write(path, encoder.finish()?)?;
    write_cards()
}

/// Lists the corpus cards of `pipeline/corpora/` in name order, for `include_str!`.
#[expect(clippy::disallowed_methods, reason = "a build script writes to its own folder")]
fn write_cards() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("pipeline/corpora");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    files.retain(|path| path.extension().is_some_and(|ext| ext == "toml"));
    files.sort();
    let mut code = String::from("const CARDS: &[(&str, &str)] = &[\n");
    for path in files {
        let name = path.file_name().ok_or("a card has no name")?.to_string_lossy().into_owned();
        code += &format!("    ({name:?}, include_str!({:?})),\n", path.display().to_string());
    }
    code += "];\n";
    std::fs::write(PathBuf::from(std::env::var("OUT_DIR")?).join("cards.rs"), code)?;
    Ok(())
}

/// Reads the package's layout: an 8-byte magic, a u32 count, then varint(rank) varint(len) bytes.
fn unpack(packed: &[u8]) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let rest = packed.strip_prefix(b"SPLNTRV1").ok_or("the vocabulary package changed its layout")?;
    let (count, mut rest) = rest.split_at_checked(4).ok_or("vocabulary ends early")?;
    let count = u32::from_le_bytes(count.try_into()?) as usize;
    let mut tokens = vec![Vec::new(); count];
    for _ in 0..count {
        let rank = varint(&mut rest)?;
        let len = varint(&mut rest)?;
        let (token, tail) = rest.split_at_checked(len).ok_or("vocabulary ends early")?;
        rest = tail;
        *tokens.get_mut(rank).ok_or("ranks are not contiguous")? = token.to_vec();
    }
    if tokens.iter().any(Vec::is_empty) {
        return Err("ranks are not contiguous".into());
    }
    Ok(tokens)
}

fn varint(bytes: &mut &[u8]) -> Result<usize, Box<dyn Error>> {
    let mut value = 0usize;
    for shift in (0..).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or("vocabulary ends early")?;
        *bytes = rest;
        value |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    Ok(value)
}
