//! The eyas command: recipe, commands, live views, exit codes.
fn main() {}
