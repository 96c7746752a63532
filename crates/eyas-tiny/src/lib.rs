//! Makes models/eyas-tiny from nothing: corpus of checkable tasks, tokenizer, training. A tool of the repository, not shipped.
