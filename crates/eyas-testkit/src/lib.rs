//! Test helpers: crash harness, fake disk, paths of shared cases, skipped-test lines. Not shipped.
