//! Scan JSONL of model answers: find the fields, count, and describe. Pure over bytes and records, prints nothing.
