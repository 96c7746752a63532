//! Whole runs against scripted and simulated servers.
#![cfg(test)]

mod cases;
mod faults;
mod kill;
mod queue;
mod resume;
mod simulated;
mod stopping;
mod support;
