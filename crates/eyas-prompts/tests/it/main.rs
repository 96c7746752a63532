//! From files to prompts, through the public interface: real troubles by case name, every format and compression, properties.
#![cfg(test)]

mod kit;

mod cases;
mod files;
mod parquet;
mod prepare;
mod properties;
