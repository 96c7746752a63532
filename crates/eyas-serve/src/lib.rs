//! A small SGLang-compatible server over the embedded target, or over a script of lengths and faults.
