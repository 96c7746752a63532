//! What is watched while answers come in.

use crate::event::{Capture, Warning};

/// What a tripped gate does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GateAction {
    /// Say so and go on.
    Warn,
    /// Say so, admit nothing more, drain, end the run. The default.
    #[default]
    Stop,
}

/// Thresholds. A gate trips at most once in a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gates {
    /// What a tripped gate does.
    pub action: GateAction,
    /// Smallest share of answers with reasoning, in [0, 1], among the first `window` of which it is expected. Default 0.5; 0 is off.
    pub min_reasoning_capture: f64,
    /// Answers after which the share is judged, once. Default 50.
    pub window: u64,
    /// End the run when this many prompts are done (answered or given up) and none is usable. Default 200.
    pub nothing_usable_after: Option<u64>,
    /// End the run when more prompts than this were given up. Default none.
    pub max_failures: Option<u64>,
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            action: GateAction::Stop,
            min_reasoning_capture: 0.5,
            window: 50,
            nothing_usable_after: Some(200),
            max_failures: None,
        }
    }
}

/// Answers without any reasoning after which that is said at once, without waiting for the window.
const SAY_AT_ONCE: u64 = 5;

/// The state of the gates.
#[derive(Debug)]
pub(crate) struct Watch {
    gates: Gates,
    judged: bool,
    said: bool,
    nothing_said: bool,
    n_done: u64,
    n_usable: u64,
}

/// A gate spoke.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    Warn(Warning),
    Stop(Warning),
}

impl Watch {
    pub(crate) fn new(gates: Gates) -> Self {
        Self { gates, judged: false, said: false, nothing_said: false, n_done: 0, n_usable: 0 }
    }

    /// After an answer of which reasoning may be expected (`capture` counts it already).
    pub(crate) fn answered(&mut self, capture: Capture, usable: bool) -> Option<Verdict> {
        self.n_done += 1;
        self.n_usable += u64::from(usable);
        self.reasoning(capture).or_else(|| self.nothing_usable())
    }

    /// After a prompt was given up.
    pub(crate) fn failed(&mut self) -> Option<Verdict> {
        self.n_done += 1;
        self.nothing_usable()
    }

    fn reasoning(&mut self, capture: Capture) -> Option<Verdict> {
        let Capture { n_answers, n_with_reasoning } = capture;
        let Gates { min_reasoning_capture, window, .. } = self.gates;
        if !self.judged && n_answers >= window.max(1) {
            self.judged = true;
            if capture.rate().is_some_and(|rate| rate < min_reasoning_capture) {
                return Some(self.act(Warning::LowReasoningCapture { n_answers, n_with_reasoning }));
            }
        }
        if !self.said && n_answers >= SAY_AT_ONCE && n_with_reasoning == 0 && min_reasoning_capture > 0.0 {
            self.said = true;
            return Some(Verdict::Warn(Warning::NoReasoningAtAll { n_answers }));
        }
        None
    }

    fn nothing_usable(&mut self) -> Option<Verdict> {
        let n_done = self.n_done;
        if self.nothing_said || self.n_usable > 0 || self.gates.nothing_usable_after.is_none_or(|after| n_done < after)
        {
            return None;
        }
        self.nothing_said = true;
        Some(self.act(Warning::NothingUsable { n_done }))
    }

    fn act(&self, warning: Warning) -> Verdict {
        match self.gates.action {
            GateAction::Warn => Verdict::Warn(warning),
            GateAction::Stop => Verdict::Stop(warning),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(gates: Gates, answers: impl IntoIterator<Item = bool>) -> Vec<(u64, Verdict)> {
        let mut watch = Watch::new(gates);
        let mut capture = Capture::default();
        let mut spoken = Vec::new();
        for has_reasoning in answers {
            capture.n_answers += 1;
            capture.n_with_reasoning += u64::from(has_reasoning);
            spoken.extend(watch.answered(capture, true).map(|verdict| (capture.n_answers, verdict)));
        }
        spoken
    }

    #[test]
    fn no_reasoning_is_said_after_five_answers_and_stops_after_fifty() {
        let spoken = feed(Gates::default(), std::iter::repeat_n(false, 60));
        assert_eq!(
            spoken,
            [
                (5, Verdict::Warn(Warning::NoReasoningAtAll { n_answers: 5 })),
                (50, Verdict::Stop(Warning::LowReasoningCapture { n_answers: 50, n_with_reasoning: 0 })),
            ]
        );
    }

    #[test]
    fn half_is_enough_and_a_gate_can_be_told_to_warn_or_be_off() {
        assert_eq!(feed(Gates::default(), (0..100).map(|n| n % 2 == 1)), []);
        let warn = Gates { action: GateAction::Warn, ..Gates::default() };
        let spoken = feed(warn, (0..100).map(|n| n % 3 == 0));
        assert_eq!(spoken, [(50, Verdict::Warn(Warning::LowReasoningCapture { n_answers: 50, n_with_reasoning: 17 }))]);
        assert_eq!(feed(Gates { min_reasoning_capture: 0.0, ..warn }, std::iter::repeat_n(false, 60)), []);
    }

    #[test]
    fn two_hundred_done_and_none_usable_stops() {
        let mut watch = Watch::new(Gates::default());
        for _ in 0..100 {
            assert_eq!(watch.failed(), None);
            assert_eq!(watch.answered(Capture::default(), false).is_some(), watch.n_done == 200);
        }
    }
}
