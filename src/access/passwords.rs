//! Users and the bcrypt hashes of their passwords.
//!
//! Such a hash is slow on purpose: 70 ms of a core at the usual cost of 10. It is computed once per
//! password, not per request, on a blocking thread, and one at a time, so that guessing takes at
//! most one core. Checked passwords are remembered as a keyed digest, in memory only.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::str::FromStr as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use bcrypt::HashParts;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Refusal, User};

/// Maximum cost of a bcrypt hash: each step doubles the work, and 15 takes a core for seconds, while
/// the first requests of other users wait.
const COST_MAX: u32 = 15;
/// Maximum number of hashes that are computed at once.
const RUNNING_MAX: usize = 1;
/// Maximum number of passwords that wait for a check.
const WAITING_MAX: usize = 100;
/// Maximum number of wrong passwords that are remembered.
const WRONG_MAX: usize = 1_000;

/// Keyed digest of a name and a password.
type CredentialDigest = [u8; 32];

/// Limits the work of all password checks, across configurations.
#[derive(Debug)]
pub(crate) struct PasswordChecks {
    running: Arc<Semaphore>,
    waiting: Semaphore,
}

impl Default for PasswordChecks {
    fn default() -> PasswordChecks {
        PasswordChecks {
            running: Arc::new(Semaphore::new(RUNNING_MAX)),
            waiting: Semaphore::new(WAITING_MAX),
        }
    }
}

impl PasswordChecks {
    /// Waits for the permit to check a password; `None` if too many wait.
    pub(super) async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        let _waiting = self.waiting.try_acquire().ok()?;
        let running = Arc::clone(&self.running).acquire_owned().await;
        Some(running.expect("the semaphore is never closed"))
    }
}

/// Users with passwords.
pub(super) struct Passwords {
    users: BTreeMap<String, UserEntry>,
    key: hmac::Key,
    wrong: Mutex<Recent>,
}

/// User with the digest of the password, once it is verified.
struct UserEntry {
    user: User,
    hash: String,
    right: Mutex<Option<CredentialDigest>>,
}

/// Most recent wrong credentials.
#[derive(Default)]
struct Recent {
    all: HashSet<CredentialDigest>,
    order: VecDeque<CredentialDigest>,
}

impl std::fmt::Debug for Passwords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Passwords").field("users", &self.users.keys()).finish_non_exhaustive()
    }
}

impl Passwords {
    /// Returns passwords without users.
    pub(super) fn new() -> Passwords {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .expect("the system has random numbers, as TLS needs them too");
        Passwords { users: BTreeMap::new(), key, wrong: Mutex::default() }
    }

    pub(super) fn add(&mut self, user: User, hash: &str) -> Result<(), String> {
        if user.name.contains(':') {
            return Err("a name with a colon cannot be sent by basic authentication".to_owned());
        }
        let parts = HashParts::from_str(hash).map_err(|_| "not a bcrypt hash".to_owned())?;
        let cost = parts.get_cost();
        if cost > COST_MAX {
            return Err(format!(
                "cost {cost} of the bcrypt hash exceeds the limit of {COST_MAX}: make the hash \
                 again with a lower cost, as by htpasswd -nBC 10"
            ));
        }
        if cost < 4 {
            return Err(format!("cost {cost} of the bcrypt hash is below 4"));
        }
        let known = UserEntry { hash: hash.to_owned(), right: Mutex::new(None), user };
        self.users.insert(known.user.name.to_string(), known);
        Ok(())
    }

    /// Takes over verified passwords whose hashes have not changed.
    pub(super) fn inherit(&mut self, before: &Passwords) {
        self.key = before.key.clone();
        for (name, known) in &mut self.users {
            let earlier = before.users.get(name);
            if let Some(earlier) = earlier.filter(|earlier| earlier.hash == known.hash) {
                known.right = Mutex::new(*earlier.right());
            }
        }
        // Wrong credentials have no user, so any changed hash may make them right.
        if self.hashes() == before.hashes() {
            self.wrong = Mutex::new(std::mem::take(&mut before.wrong()));
        }
    }

    /// Returns names and hashes of the users, sorted by name.
    pub(super) fn hashes(&self) -> Vec<(String, String)> {
        let pair = |(name, known): (&String, &UserEntry)| (name.clone(), known.hash.clone());
        self.users.iter().map(pair).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Returns the user of a name if the password is right.
    pub(super) async fn check(
        &self,
        name: &[u8],
        password: Vec<u8>,
        checks: &PasswordChecks,
    ) -> Result<User, Refusal> {
        let Some(decoy) = self.decoy(name) else { return Err(Refusal::Unauthenticated) };
        let known = std::str::from_utf8(name).ok().and_then(|name| self.users.get(name));
        let shown = self.shown(name, &password);
        if let Some(outcome) = self.remembered(known, &shown) {
            return outcome;
        }
        let permit = checks.acquire().await.ok_or(Refusal::Busy)?;
        // Another request may have checked the same credentials meanwhile.
        if let Some(outcome) = self.remembered(known, &shown) {
            return outcome;
        }
        let hash = known.unwrap_or(decoy).hash.clone();
        let is_right = tokio::task::spawn_blocking(move || {
            let is_right = bcrypt::verify(password, &hash).unwrap_or(false);
            // Held until the end even if the request is gone.
            drop(permit);
            is_right
        });
        match (known, is_right.await.unwrap_or(false)) {
            (Some(known), true) => {
                *known.right() = Some(shown);
                Ok(known.user.clone())
            }
            _ => {
                self.wrong().note(shown);
                Err(Refusal::Unauthenticated)
            }
        }
    }

    /// Returns the user whose hash is computed for an unknown name: always the same, so that the time
    /// does not reveal which names exist.
    fn decoy(&self, name: &[u8]) -> Option<&UserEntry> {
        let tag = hmac::sign(&self.key, name);
        let number = tag.as_ref().iter().fold(0_u64, |n, byte| n << 8 | u64::from(*byte));
        let count = self.users.len() as u64;
        let index = number.checked_rem(count).and_then(|index| usize::try_from(index).ok())?;
        self.users.values().nth(index)
    }

    fn shown(&self, name: &[u8], password: &[u8]) -> CredentialDigest {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&(name.len() as u64).to_le_bytes());
        context.update(name);
        context.update(password);
        let mut shown = [0; 32];
        shown.copy_from_slice(context.sign().as_ref());
        shown
    }

    fn remembered(
        &self,
        known: Option<&UserEntry>,
        shown: &CredentialDigest,
    ) -> Option<Result<User, Refusal>> {
        if let Some(known) = known {
            let right = *known.right();
            if right.is_some_and(|right| verify_slices_are_equal(&right, shown).is_ok()) {
                return Some(Ok(known.user.clone()));
            }
        }
        self.wrong().all.contains(shown).then_some(Err(Refusal::Unauthenticated))
    }

    fn wrong(&self) -> MutexGuard<'_, Recent> {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UserEntry {
    fn right(&self) -> MutexGuard<'_, Option<CredentialDigest>> {
        self.right.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recent {
    fn note(&mut self, shown: CredentialDigest) {
        if !self.all.insert(shown) {
            return;
        }
        self.order.push_back(shown);
        if self.order.len() > WRONG_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.all.remove(&oldest);
        }
    }
}
