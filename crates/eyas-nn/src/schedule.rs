//! Learning-rate schedules.

/// Linear warm-up from nothing to `peak`, then half a cosine down to `floor`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CosineSchedule {
    /// Highest learning rate, reached at the end of the warm-up.
    pub peak: f64,
    /// Learning rate at the last step and after it.
    pub floor: f64,
    /// Steps of warm-up.
    pub warmup_steps: usize,
    /// Steps in all, warm-up included.
    pub total_steps: usize,
}

impl CosineSchedule {
    /// The learning rate of `step`, counted from 0. The first step already moves: its rate is `peak / warmup_steps`.
    pub fn rate(&self, step: usize) -> f64 {
        if step < self.warmup_steps {
            return self.peak * (step + 1) as f64 / self.warmup_steps as f64;
        }
        let decay_steps = self.total_steps.saturating_sub(self.warmup_steps).max(1);
        let progress = ((step - self.warmup_steps) as f64 / decay_steps as f64).min(1.0);
        self.floor + (self.peak - self.floor) * 0.5 * (1.0 + (std::f64::consts::PI * progress).cos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warms_up_and_comes_down() {
        let schedule = CosineSchedule { peak: 1.0, floor: 0.1, warmup_steps: 4, total_steps: 104 };
        let check = |step, expect: f64| assert!((schedule.rate(step) - expect).abs() < 1e-9, "step {step}");
        check(0, 0.25);
        check(3, 1.0);
        check(4, 1.0);
        check(54, 0.55);
        check(104, 0.1);
        check(9999, 0.1);
    }
}
