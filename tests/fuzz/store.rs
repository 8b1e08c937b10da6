//! A store tried for real: `cargo run --release --example store -- URI [MEGABYTES]`. Writes below
//! `URI/store-probe`, reads it back, removes it, and says how fast it was.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a tool for a terminal")]

use std::time::Instant;

use potable::store::Store;

fn main() {
    let mut args = std::env::args().skip(1);
    let uri = args.next().unwrap_or_else(|| "/tmp/store-probe".to_owned());
    let size: u64 = args.next().map_or(64, |text| text.parse().unwrap()) << 20;
    if let Err(error) = probe(&uri, size) {
        let hint = error.hint().map(|hint| format!("\n  hint: {hint}")).unwrap_or_default();
        println!("error: {error}{hint}");
        std::process::exit(2);
    }
}

fn probe(uri: &str, size: u64) -> Result<(), potable::store::StoreError> {
    let store = Store::open(uri)?.below("store-probe");
    println!("{}", store.uri());
    for (name, _) in store.list("")? {
        store.delete(&name)?;
    }
    println!("put_new of a new name: {}", store.put_new("once", b"one")?);
    println!("put_new of the same name: {}", store.put_new("once", b"two")?);
    println!("its bytes: {:?}", store.get("once")?);
    let wins: usize = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..16u8)
            .map(|n| {
                let store = &store;
                scope.spawn(move || usize::from(store.put_new("race", &[n; 1000]).unwrap()))
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    println!("16 writers of one new name, told that they wrote it: {wins}");
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    write_numbers(&from, size);
    let megabytes = size as f64 / 1e6;
    let start = Instant::now();
    store.put_file("big", &from)?;
    println!("put_file: {:.0} MB in {:.2} s", megabytes, start.elapsed().as_secs_f64());
    let start = Instant::now();
    let (mut at, mut same) = (0, true);
    while at < size {
        let end = (at + (8 << 20)).min(size);
        let bytes = store.get_range("big", at..end)?;
        same &= numbers(at, end) == bytes;
        at = end;
    }
    println!("get_range, 8 MiB each: {:.2} s, same bytes: {same}", start.elapsed().as_secs_f64());
    let start = Instant::now();
    let to = folder.path().join("to");
    store.fetch("big", &to)?;
    println!("fetch: {:.2} s", start.elapsed().as_secs_f64());
    let equal = std::process::Command::new("cmp").args([&from, &to]).status().unwrap().success();
    println!("fetched file equal: {equal}");
    println!("list: {:?}", store.list("")?);
    for (name, _) in store.list("")? {
        store.delete(&name)?;
    }
    println!("left: {:?}", store.list("")?);
    Ok(())
}

/// Bytes `start` to `end` of a file of little-endian numbers 0, 1, 2, …; both are multiples of 8.
fn numbers(start: u64, end: u64) -> Vec<u8> {
    (start / 8..end / 8).flat_map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()).collect()
}

fn write_numbers(path: &std::path::Path, size: u64) {
    use std::io::Write as _;
    let mut file = std::fs::OpenOptions::new().create_new(true).write(true).open(path).unwrap();
    let mut at = 0;
    while at < size {
        let end = (at + (8 << 20)).min(size);
        file.write_all(&numbers(at, end)).unwrap();
        at = end;
    }
}
