//! Scheduling: the threads that share the loops of a query, and the turns that queries take.

pub mod crew;
pub mod turn;
