//! Tests of the whole: the house (layers, licences, documents) and the command as a user runs it.
#![cfg(test)]

mod cli;
mod house;
mod interop;
mod support;
