//! A short name for exactly this target, for the fingerprint of a run.

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

/// Files up to this size are hashed whole.
const WHOLE_UP_TO_BYTES: u64 = 64 << 20;
/// Of larger ones, this many windows, evenly spaced over the file, from its first byte to its last.
const N_WINDOWS: u64 = 64;
const WINDOW_BYTES: u64 = 64 << 10;

/// What makes answers of this target what they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetIdentity {
    /// As `config.json` names it.
    pub architecture: String,
    /// Number of weights.
    pub n_params: u64,
    /// How they are held: the arithmetic of the answers. See [`crate::WeightMode`].
    pub weight_mode: String,
    /// xxh3-128 over config, tokenizer and chat template (whole files) and the weights: name, size and content of each file; of a file over
    /// 64 MiB the content of 64 windows of 64 KiB. Cheap: it finds another checkpoint, not a deliberate change of a few bytes.
    pub content_hash: String,
}

/// Hash over `files` that exist, in the order given.
pub(crate) fn content_hash(files: &[PathBuf]) -> io::Result<String> {
    let mut hash = Xxh3::new();
    for path in files.iter().filter(|path| path.exists()) {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        hash.update(name.as_bytes());
        update_with_file(&mut hash, path)?;
    }
    Ok(format!("{:032x}", hash.digest128()))
}

fn update_with_file(hash: &mut Xxh3, path: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    hash.update(&len.to_le_bytes());
    if len <= WHOLE_UP_TO_BYTES {
        return update_with_next(hash, &mut file, len);
    }
    for window in 0..N_WINDOWS {
        file.seek(SeekFrom::Start((len - WINDOW_BYTES) / (N_WINDOWS - 1) * window))?;
        update_with_next(hash, &mut file, WINDOW_BYTES)?;
    }
    file.seek(SeekFrom::End(-(WINDOW_BYTES as i64)))?;
    update_with_next(hash, &mut file, WINDOW_BYTES)
}

fn update_with_next(hash: &mut Xxh3, file: &mut File, len: u64) -> io::Result<()> {
    let mut bytes = vec![0; 1 << 16];
    let mut left = file.take(len);
    loop {
        match left.read(&mut bytes)? {
            0 => return Ok(()),
            n => hash.update(&bytes[..n]),
        }
    }
}
