//! Prompts in, journalled responses out: queue, slots, retries, gates and events.
//!
//! [`Run::open`] reads what lies on disk: which prompts are answered, given up or pending, and whether the settings still are those that
//! the answers were made with. [`Run::execute`] answers the pending ones. Nothing is printed here; the caller listens to [`Event`]s and
//! reads the [`Outcome`].
//!
//! # Who owns what
//!
//! One *dispatcher* owns the state of the run and is the only one to touch it. *Slots*, one task and one connection each, take a prompt,
//! ask their server, split the answer and write it out as a line; they keep nothing. The dispatcher hands the lines of all data sets to
//! the *store* in batches (group commit, off the async threads), and an answer counts only when the store says that its line is on disk.
//! A try that failed waits on a timer, not in a slot. Prompts come from one queue over all data sets, in a seeded interleave by weight.
//!
//! # What holds at every moment
//!
//! `total = answered + failed + pending` for every data set, whatever happens; what was in flight at a kill is pending again. An id is
//! in `raw_responses.jsonl` at most once. A prompt is in `failed.jsonl` when it was given up; if it is answered later, the answer counts.

mod cancel;
mod dispatcher;
mod event;
mod fleet;
mod gate;
mod outcome;
mod plan;
mod record;
mod resume;
mod retry;
mod run;
mod slot;
mod source;
mod split;
mod store;
mod transport;

pub use cancel::Cancel;
pub use event::{Capture, DatasetCounts, EndpointStatus, Event, Snapshot, Warning};
pub use gate::{GateAction, Gates};
pub use outcome::{ExitReason, Outcome};
pub use plan::{DatasetPlan, EndpointPlan, GeneratePlan, OnChange, Patience, Retries};
pub use resume::{DatasetState, OpenError};
pub use run::Run;
pub use split::{FormatSplitter, SplitInput, SplitOutput, Splitter};
pub use transport::{BoxFuture, HttpTransport, Line, Transport};

// What callers need to write a plan, so that they need not name the lower crates for it.
pub use eyas_client::{Endpoint, Protocol, ServerInfo, health, probe};
pub use eyas_journal::FsyncPolicy;
pub use eyas_prompts::reasoning::ReasoningMode;
