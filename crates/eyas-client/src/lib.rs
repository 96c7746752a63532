//! One request to one server: SGLang /generate and OpenAI-style chat. Wire types, errors by class; knows no files.
