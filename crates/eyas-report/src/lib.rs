//! What inspect found, as terminal text and JSON. Same bytes for the same input.
