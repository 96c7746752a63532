//! Rows of every shape and what becomes of them.
