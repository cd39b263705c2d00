//! sqlxmq wants its migration files copied. They are taken from wherever cargo keeps the crate.

use std::path::Path;
use std::process::Command;

fn main() {
    let cargo = std::env::var("CARGO").expect("cargo sets CARGO");
    // Of other platforms' dependencies nothing has been downloaded.
    let target = std::env::var("TARGET").expect("cargo sets TARGET");
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--locked", "--offline"])
        .args(["--filter-platform", &target])
        .output()
        .expect("cargo metadata runs");
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let packages = metadata["packages"].as_array().expect("has packages");
    let manifest = packages
        .iter()
        .find(|package| package["name"] == "sqlxmq")
        .and_then(|package| package["manifest_path"].as_str())
        .expect("sqlxmq is a dependency");
    let folder = Path::new(manifest).with_file_name("migrations");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("sqlxmq has migrations")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.to_string_lossy().ends_with(".up.sql"))
        .collect();
    files.sort();
    let list: String = files
        .iter()
        .map(|path| format!("include_str!({path:?}),\n"))
        .collect();
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(Path::new(&out).join("migrations.rs"), format!("&[{list}]"))
        .expect("OUT_DIR can be written");
}
