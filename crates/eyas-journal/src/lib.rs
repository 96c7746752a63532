//! Append-only JSONL journal: framing, fsync policy, torn tails, lock, resume scan, atomic files. Sync, generic over the record.
