//! Limits of queries: memory charged, hostile queries, clients that leave.

mod charges;
mod hostile;
mod stops;
