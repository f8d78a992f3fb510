//! A world in which everything fails that can, and what must hold in it.
//!
//! A seed decides the lives of some processes on one object store: what is written, deleted, sealed
//! and read, which requests fail and how, when a process dies and when another one takes over,
//! what clocks say. [`known::Known`] is told what was sent and answered, and compares. Stores have small
//! [`Sizes`](crate::sizes::Sizes), so that the few series fill many blocks and writes; every fourth
//! seed (1, 5, 9 and so on) runs with the shipped ones.
//!
//! `SIMULATION_SEEDS=10000` runs so many, `SIMULATION_SEED=7` that one, with all that it does.
//! Time is tokio's, which does not pass while there is something to do: hours of waiting cost nothing, and a
//! request lasts as long as the seed says. What a seed does not decide is the order in which the
//! branches of `select!` are polled and hash maps are walked in tokio and slatedb, and how far other
//! tasks get while a thread encodes blocks. So a seed that fails may have to be run a few times.

mod chance;
mod known;
mod life;
mod objects;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once};

use life::World;
use objects::lock;

/// Seeds of an ordinary run.
const SEEDS: u64 = 150;

/// Seeds that have found something. 1071: a manifest that arrives late while the next process makes
/// the first one. 1383: records of deleted days in a log epoch that is still wanted, and a clock that
/// is set back. 3712: writes that were answered to be late, and land while all is compared. 20280: the
/// same of a delete, which goes on in turns. 1099: a compaction that stays claimed by a process that has
/// died, whose clock was ahead. 9523: a list of compactions by a clock that was ahead, which arrives while
/// the next process opens the store.
const PERMANENT: [u64; 6] = [1071, 1099, 1383, 3712, 9523, 20280];

/// What the threads of a world are called.
const THREAD_NAME: &str = "simulation";

/// Panics on threads of simulations, which tokio keeps to itself where it can.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or_default();
            if name.starts_with(THREAD_NAME) {
                lock(&PANICS).push(format!("{name}: {info}"));
            } else {
                before(info);
            }
        }));
    });
}

/// Runs a seed; what was wrong.
fn run(seed: u64) -> Result<(u64, u64), String> {
    let name = format!("{THREAD_NAME} {seed};");
    let thread = std::thread::Builder::new().name(name.clone());
    let run = move || {
        let mut world = World::new(seed);
        catch_unwind(AssertUnwindSafe(|| world.run()))
            .is_ok()
            .then_some((world.trace, world.requests))
    };
    let joined = thread.spawn(run).expect("a thread can be started").join();
    let mut panics = lock(&PANICS);
    let own: Vec<String> = panics.extract_if(.., |p| p.starts_with(&name)).collect();
    match joined {
        Ok(Some(done)) if own.is_empty() => Ok(done),
        _ => Err(own.join("\n")),
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

#[test]
fn what_is_acknowledged_holds_whatever_fails() {
    note_panics();
    let seeds: Vec<u64> = match number("SIMULATION_SEED") {
        Some(seed) => vec![seed],
        None => {
            let first = number("SIMULATION_FROM").unwrap_or(0);
            let count = number("SIMULATION_SEEDS").unwrap_or(SEEDS);
            PERMANENT.into_iter().chain(first..first + count).collect()
        }
    };
    let next = AtomicU64::new(0);
    let failed = Mutex::new(Vec::new());
    // In a run of all tests the other ones go on beside it, some with limits of time.
    let is_alone = number("SIMULATION_SEEDS").is_some();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if is_alone { cores.min(seeds.len()) } else { 1 };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    if let Err(wrong) = run(*seed) {
                        eprintln!("seed {seed}: {wrong}\nagain: SIMULATION_SEED={seed} cargo test --workspace -p storage simulation");
                        lock(&failed).push(*seed);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_default();
    assert!(failed.is_empty(), "{} of {} seeds failed: {failed:?}", failed.len(), seeds.len());
}
