//! Which files a path stands for.

use super::open::OpenError;
use std::path::{Path, PathBuf};

/// A file to read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DataFile {
    /// Where it lies.
    pub path: PathBuf,
    /// Its name in records and messages: the path as it was given, for a file of a folder the folder as given and the file's name.
    pub name: String,
}

/// The files behind a list of paths.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DataFiles {
    /// In the order given; those of a folder by name.
    pub files: Vec<DataFile>,
    /// What lies in a folder and is not read, because its name is not that of a data file.
    pub passed_over: Vec<String>,
}

/// A name counts as a data file when it ends in one of these, with `.gz` or `.zst` behind it or not.
const EXTENSIONS: [&str; 4] = ["jsonl", "ndjson", "json", "parquet"];

/// Takes files as they are and folders as the data files in them (not in their sub-folders), sorted by name.
pub fn list_data_files(paths: &[PathBuf]) -> Result<DataFiles, OpenError> {
    let mut list = DataFiles::default();
    for path in paths {
        if path.is_dir() {
            list_folder(path, &mut list)?;
        } else {
            list.files.push(data_file(path));
        }
    }
    Ok(list)
}

fn list_folder(folder: &Path, list: &mut DataFiles) -> Result<(), OpenError> {
    let io = |source| OpenError::Io { path: folder.to_owned(), source };
    let mut entries = std::fs::read_dir(folder).map_err(io)?.collect::<Result<Vec<_>, _>>().map_err(io)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    let mut found = Vec::new();
    let n_before = list.files.len();
    for entry in entries {
        let path = entry.path();
        let file = data_file(&path);
        found.push(entry.file_name().to_string_lossy().into_owned());
        if !path.is_dir() && is_data_file(&path) {
            list.files.push(file);
        } else {
            list.passed_over.push(file.name);
        }
    }
    if list.files.len() == n_before {
        return Err(OpenError::NoFiles { path: folder.to_owned(), found });
    }
    Ok(())
}

fn data_file(path: &Path) -> DataFile {
    DataFile { path: path.to_owned(), name: path.to_string_lossy().into_owned() }
}

fn is_data_file(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let name = name.strip_suffix(".gz").or(name.strip_suffix(".zst")).unwrap_or(&name);
    !name.starts_with('.') && name.rsplit_once('.').is_some_and(|(_, extension)| EXTENSIONS.contains(&extension))
}
