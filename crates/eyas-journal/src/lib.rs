//! Append-only JSONL journal: framing, fsync policy, torn tails, lock, resume scan, atomic files. Sync, generic over the record.
//!
//! # Format, version 1
//!
//! A journal is a plain UTF-8 file that any tool can read. One record is one JSON *object*, written compactly on one line that ends in
//! the byte `0x0A`. A record ends at that byte and nowhere else: U+2028, U+2029 and U+0085 are ordinary characters inside a string, and
//! JSON escapes a newline inside a string, so a whole record never holds `0x0A`. Blank lines are allowed and mean nothing. The schema
//! and its version are a field of every record (`"schema":"eyas.response/1"`), not of the file. Two lines of some journal:
//!
//! ```text
//! {"schema":"eyas.response/1","sample_id":"sum-0001","content":"7"}
//! {"schema":"eyas.response/1","sample_id":"sum-0002","content":"12"}
//! ```
//!
//! Beside `NAME` lie `NAME.lock` (an empty-looking file that holds the process id of the last writer; the lock itself is the operating
//! system's and goes with the process) and, after a crash, `NAME.torn-OFFSET` (the bytes that were cut off at OFFSET).
//!
//! # Recovery rule
//!
//! [`JournalWriter::open`] looks at the end of the file before anything is appended:
//!
//! 1. NUL bytes at the very end (some file systems leave them after a power cut) are torn.
//! 2. A last line without a newline is kept when it is a whole JSON object, and its newline is added: no proper prefix of an object is
//!    an object, so it cannot be half a record. Otherwise it is torn.
//! 3. A last line *with* a newline that is no JSON object is torn too.
//!
//! Torn bytes are first copied to `NAME.torn-OFFSET` and synced, then cut off, then reported ([`Torn`]). A crash in between repeats the
//! same steps. Nothing is written when nothing is torn, so opening a finished journal leaves its size and modification time alone.
//!
//! A malformed line further up is never mended: [`scan`] refuses it, or counts and reports it when told to ([`OnMalformed`]).
//!
//! # What is promised
//!
//! A record survives the death of the process once it is written ([`JournalWriter::write_out`]), which takes microseconds, and that of
//! the machine once it is synced, which takes as long as the disk likes; a sync can run on another thread while more is written
//! ([`JournalWriter::begin_sync`]). A record counts as kept when [`JournalWriter::acknowledged`] covers its number: after fsync under [`FsyncPolicy::EachBatch`] and
//! [`FsyncPolicy::Interval`], after the write under [`FsyncPolicy::Never`]. A failed write or fsync poisons the writer: fsync is not
//! tried again, because the kernel may already have dropped the pages that failed and would then report success.

mod atomic;
mod fs;
mod recover;
mod scan;
mod set_aside;
mod writer;

pub use atomic::{write_atomic, write_atomic_in};
pub use fs::{Fs, FsFile, FsLock, FsSync, LockError, RealFs};
pub use recover::{RecoverError, Recovery, Torn};
pub use scan::{Malformed, OnMalformed, Owned, Position, Record, ScanError, ScanOptions, ScanReport, scan, scan_in};
pub use set_aside::{SetAside, set_aside};
pub use writer::{AppendError, FsyncPolicy, JournalOptions, JournalWriter, OpenError, PendingSync, SyncResult};
