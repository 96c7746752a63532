//! Differentiable CPU operations, AdamW and schedules for candle: what training the tiny target and the drafter share.
