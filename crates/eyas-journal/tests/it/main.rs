//! What a journal survives.
#![cfg(test)]

mod crash;
mod fake_disk;
mod properties;
