//! Lists the definitions of `benchmarks/` in name order, for `include_str!`.

use std::error::Error;
use std::path::PathBuf;

#[expect(clippy::disallowed_methods, reason = "a build script writes to its own folder")]
fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("benchmarks");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    files.retain(|path| {
        path.extension().is_some_and(|ext| ext == "toml")
            && path.file_stem().is_some_and(|stem| stem != "suites")
    });
    files.sort_by_key(|path| path.file_stem().map(std::ffi::OsStr::to_owned));
    let mut code = String::from("const FILES: &[(&str, &str)] = &[\n");
    for path in files {
        let name = path.file_stem().ok_or("a definition has no name")?.to_string_lossy().into_owned();
        code += &format!("    ({name:?}, include_str!({:?})),\n", path.display().to_string());
    }
    code += "];\n";
    std::fs::write(PathBuf::from(std::env::var("OUT_DIR")?).join("definitions.rs"), code)?;
    Ok(())
}
