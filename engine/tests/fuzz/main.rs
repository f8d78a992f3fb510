//! The fuzz targets on seeded random input, a bounded number of times.
//!
//! `FUZZ_SEED` and `FUZZ_COUNT` in the environment choose other input, and more of it.

mod targets;

const SEED: u64 = 1;
const PARSED: u64 = 20_000;
const PLANNED: u64 = 5_000;
const EVALUATED: u64 = 2_000;

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn random_bytes(state: &mut u64, len_max: u64) -> Vec<u8> {
    let len = next(state) % len_max;
    (0..len).map(|_| next(state) as u8).collect()
}

#[test]
fn any_bytes_parse_or_are_refused() {
    const WORDS: [&str; 32] = [
        "a",
        "sum",
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        ",",
        "=",
        "=~",
        "\"x\"",
        "5m",
        ":",
        "offset",
        "@",
        "-",
        "+",
        "by",
        "or",
        "on",
        "bool",
        "1e9",
        "rate",
        "\\",
        "`",
        "'",
        "group_left",
        " ",
        "anchored",
        "#\n",
        "start()",
    ];
    let mut state = setting("FUZZ_SEED", SEED);
    for _ in 0..setting("FUZZ_COUNT", PARSED) {
        targets::parse_bytes(&random_bytes(&mut state, 64));
        let words: Vec<&str> =
            (0..next(&mut state) % 24).map(|_| WORDS[next(&mut state) as usize % 32]).collect();
        targets::parse_bytes(words.concat().as_bytes());
    }
}

#[test]
fn any_query_is_planned_or_refused() {
    let stage = targets::Stage::new();
    let mut state = setting("FUZZ_SEED", SEED);
    for _ in 0..setting("FUZZ_COUNT", PLANNED) {
        stage.plan_bytes(&random_bytes(&mut state, 96));
    }
}

#[test]
fn any_query_has_one_answer() {
    let stage = targets::Stage::new();
    let mut state = setting("FUZZ_SEED", SEED);
    for _ in 0..setting("FUZZ_COUNT", EVALUATED) {
        stage.evaluate_bytes(&random_bytes(&mut state, 96));
    }
}
