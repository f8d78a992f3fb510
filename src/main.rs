//! The Tessella server.

fn main() {}
