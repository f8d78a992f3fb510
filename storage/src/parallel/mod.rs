//! Long loops: split among threads ([`shares`]), or interrupted for other tasks ([`yielder`]).

pub(crate) mod shares;
pub(crate) mod yielder;
