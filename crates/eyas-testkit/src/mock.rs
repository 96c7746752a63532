//! A scripted server.
