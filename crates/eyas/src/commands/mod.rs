//! One file per command: a plan is checked, executed, and shown.

pub(crate) mod demo;
pub(crate) mod generate;
pub(crate) mod inspect;
pub(crate) mod prepare;
pub(crate) mod run;
pub(crate) mod serve;
