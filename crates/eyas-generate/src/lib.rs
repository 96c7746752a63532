//! Prompts in, journalled responses out: queue, slots, retries, gates and events.
