//! A test binary that starts itself and is killed.
//!
//! The child is the same test, told by an environment variable to play the other part:
//!
//! ```no_run
//! # use eyas_testkit::crash;
//! #[test]
//! fn killed_at_a_random_moment() {
//!     if let Some(dir) = crash::role("append") {
//!         // the child: works until it is killed
//!         return;
//!     }
//!     let mut child = crash::spawn("killed_at_a_random_moment", "append", "/tmp/somewhere");
//!     child.kill_hard();
//! }
//! ```

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

const ROLE: &str = "EYAS_CRASH_ROLE";
const ARGUMENT: &str = "EYAS_CRASH_ARGUMENT";

/// The argument given to [`spawn`], when this process is the child that plays `role`.
pub fn role(role: &str) -> Option<String> {
    (std::env::var(ROLE).ok()? == role).then(|| std::env::var(ARGUMENT).unwrap_or_default())
}

/// A child of this test binary.
#[derive(Debug)]
pub struct CrashChild {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

/// Starts this test binary once more to run only `test` (its full path, as `cargo test` lists it) in the given role.
#[track_caller]
pub fn spawn(test: &str, role: &str, argument: &str) -> CrashChild {
    let mut child = Command::new(std::env::current_exe().expect("path of the test binary"))
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env(ARGUMENT, argument)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("start the test binary");
    let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
    CrashChild { child, stdout }
}

impl CrashChild {
    /// The next line the child prints; `None` when it has ended. Lines of the test harness come too.
    pub fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.stdout.read_line(&mut line) {
            Ok(n) if n > 0 => Some(line.trim_end_matches('\n').to_owned()),
            _ => None,
        }
    }

    /// The rest of the first line that contains `marker`, after it (the harness prints its own words in front, without a newline).
    #[track_caller]
    pub fn wait_for(&mut self, marker: &str) -> String {
        while let Some(line) = self.line() {
            if let Some((_, rest)) = line.split_once(marker) {
                return rest.to_owned();
            }
        }
        panic!("the child ended without printing `{marker}`");
    }

    /// SIGKILL, and wait. Returns the lines that were still in the pipe.
    pub fn kill_hard(&mut self) -> Vec<String> {
        self.child.kill().unwrap_or_default();
        let mut lines = Vec::new();
        while let Some(line) = self.line() {
            lines.push(line);
        }
        self.child.wait().expect("wait for the child");
        lines
    }

    /// Waits for the child to end by itself; whether it succeeded.
    pub fn finish(&mut self) -> bool {
        while self.line().is_some() {}
        self.child.wait().expect("wait for the child").success()
    }
}

impl Drop for CrashChild {
    fn drop(&mut self) {
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}
