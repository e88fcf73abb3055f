//! Compiles vocabularies in: every `*.vocab` of the folder that `SLOGATE_VOCABULARIES` names, if the
//! feature for the one of `DeepSeek` is on; otherwise none.
#![expect(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "runs where the crate is built; the ban on I/O is for the core"
)]

use std::path::{Path, PathBuf};
use std::{env, fmt::Write as _, fs};

/// The vocabulary that the feature promises.
const PROMISED: &str = "deepseek-v4";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let mut table = String::from("static BUILT_IN: &[(&str, &[u8])] = &[\n");
    if env::var_os("CARGO_FEATURE_VOCAB_DEEPSEEK_V4").is_some() {
        match vocabularies() {
            Ok(files) => {
                for (name, path) in files {
                    let path = path.display().to_string();
                    let _ = writeln!(table, "    ({name:?}, include_bytes!({path:?})),");
                }
            }
            Err(problem) => {
                println!(
                    "cargo::error={problem}; scripts/build.sh makes the vocabularies and sets SLOGATE_VOCABULARIES"
                );
                return;
            }
        }
    }
    table.push_str("];\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("vocabularies.rs");
    if let Err(error) = fs::write(&out, table) {
        println!("cargo::error={}: {error}", out.display());
    }
}

/// Names and paths of the files, in the order of the names.
fn vocabularies() -> Result<Vec<(String, PathBuf)>, String> {
    println!("cargo::rerun-if-env-changed=SLOGATE_VOCABULARIES");
    let folder = env::var_os("SLOGATE_VOCABULARIES").ok_or(
        "the feature vocab-deepseek-v4 needs SLOGATE_VOCABULARIES, a folder with .vocab files",
    )?;
    let folder = Path::new(&folder).canonicalize().map_err(|error| {
        format!("SLOGATE_VOCABULARIES={}: {error}", Path::new(&folder).display())
    })?;
    println!("cargo::rerun-if-changed={}", folder.display());
    let entries =
        fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
        if path.extension().is_none_or(|extension| extension != "vocab") {
            continue;
        }
        println!("cargo::rerun-if-changed={}", path.display());
        files.push((name_of(&path)?, path));
    }
    files.sort();
    if !files.iter().any(|(name, _)| name == PROMISED) {
        return Err(format!("{} has no {PROMISED}.vocab", folder.display()));
    }
    Ok(files)
}

/// The name a vocabulary file carries, which its file name must be too.
fn name_of(path: &Path) -> Result<String, String> {
    let file = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let length = file.get(12).copied().unwrap_or_default();
    let name =
        file.get(13..13 + usize::from(length)).and_then(|name| std::str::from_utf8(name).ok());
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    match name {
        Some(name) if file.starts_with(b"slgvocab") && stem == Some(name) => Ok(name.to_owned()),
        _ => Err(format!("{} is no vocabulary file, or not under its own name", path.display())),
    }
}
