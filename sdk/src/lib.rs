//! The async client.
