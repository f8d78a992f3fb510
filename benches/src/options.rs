//! What the command lines of the harnesses share.

use clap::builder::RangedU64ValueParser;

/// Reads a number above 0.
pub fn count() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

/// What cargo adds to the arguments of a bench.
#[derive(Debug, Clone, PartialEq, clap::Args)]
pub struct FromCargo {
    #[arg(long = "bench", hide = true)]
    is_bench: bool,
}
