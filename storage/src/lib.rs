//! Gorilla-encoded series with one index in an object-store LSM.

pub mod chunk;
