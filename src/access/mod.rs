//! Authentication of users by passwords and tokens, and their permissions.

mod passwords;
pub(crate) mod rate;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub(crate) use self::passwords::PasswordChecks;
use self::passwords::Passwords;

/// Minimum length of a token, in bytes. Its digest is fast to compute, so a token must not be easy to
/// guess.
pub(crate) const TOKEN_BYTES_MIN: usize = 16;

/// Authenticated user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    /// Name of the user or of the token.
    pub(crate) name: Arc<str>,
    /// True if requests may only read.
    pub(crate) is_read_only: bool,
}

/// Users that may send requests. Without users, requests need no authentication.
#[derive(Debug)]
pub(crate) struct Access {
    passwords: Passwords,
    tokens: Vec<(User, TokenDigest)>,
}

/// Reason to reject a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The credentials are absent or wrong.
    Unauthenticated,
    /// Too many password checks wait; retry.
    Busy,
}

/// SHA-256 digest of a token.
#[derive(Clone)]
pub(crate) struct TokenDigest([u8; 32]);

impl std::fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<secret>")
    }
}

impl TokenDigest {
    /// Returns the digest of a token.
    pub(crate) fn of(token: &[u8]) -> TokenDigest {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, token).as_ref());
        TokenDigest(bytes)
    }

    /// Parses 64 hexadecimal digits.
    ///
    /// Errors: the message, which does not repeat the text.
    pub(crate) fn parse(text: &str) -> Result<TokenDigest, &'static str> {
        let wrong = "has to be the SHA-256 digest of the token in 64 hexadecimal digits";
        let digits: Vec<u8> =
            text.chars().map_while(|c| c.to_digit(16)).filter_map(|d| d.try_into().ok()).collect();
        if digits.len() != 64 || text.len() != 64 {
            return Err(wrong);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        Ok(TokenDigest(bytes))
    }
}

/// Credentials of a request.
enum Credentials {
    Basic { name: Vec<u8>, password: Vec<u8> },
    Bearer(Vec<u8>),
}

impl Access {
    /// Returns access without users.
    pub(crate) fn new() -> Access {
        Access { passwords: Passwords::new(), tokens: Vec::new() }
    }

    /// Adds a user with the bcrypt hash of the password.
    ///
    /// Errors: the message, which does not repeat the hash.
    pub(crate) fn add_user(&mut self, user: User, hash: &str) -> Result<(), String> {
        self.passwords.add(user, hash)
    }

    /// Adds a user with a token.
    pub(crate) fn add_token(&mut self, user: User, token: TokenDigest) {
        self.tokens.push((user, token));
    }

    /// Takes over verified passwords whose hashes have not changed.
    pub(crate) fn inherit(&mut self, before: &Access) {
        self.passwords.inherit(&before.passwords);
    }

    /// Returns whether requests need no authentication.
    pub(crate) fn is_open(&self) -> bool {
        self.passwords.is_empty() && self.tokens.is_empty()
    }

    /// Returns the authentication schemes of the challenge.
    ///
    /// Source: `webHandler` of Prometheus' exporter toolkit, which only has `Basic`.
    pub(crate) fn schemes(&self) -> impl Iterator<Item = &'static str> {
        let basic = (!self.passwords.is_empty()).then_some("Basic");
        let bearer = (!self.tokens.is_empty()).then_some("Bearer");
        basic.into_iter().chain(bearer)
    }

    /// Returns the user of a request; `None` if requests need no authentication.
    pub(crate) async fn authenticate(
        &self,
        headers: &HeaderMap,
        checks: &PasswordChecks,
    ) -> Result<Option<User>, Refusal> {
        if self.is_open() {
            return Ok(None);
        }
        match credentials(headers).ok_or(Refusal::Unauthenticated)? {
            Credentials::Basic { name, password } => {
                self.passwords.check(&name, password, checks).await.map(Some)
            }
            Credentials::Bearer(token) => self.bearer(&token).map(Some),
        }
    }

    /// Compares all tokens, so that the time reveals nothing.
    fn bearer(&self, token: &[u8]) -> Result<User, Refusal> {
        let shown = TokenDigest::of(token);
        let mut found = Err(Refusal::Unauthenticated);
        for (user, known) in &self.tokens {
            if verify_slices_are_equal(&shown.0, &known.0).is_ok() {
                found = Ok(user.clone());
            }
        }
        found
    }
}

/// Parses the first header `Authorization` like Go's server.
fn credentials(headers: &HeaderMap) -> Option<Credentials> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let space = value.iter().position(|byte| *byte == b' ')?;
    let (scheme, rest) = (&value[..space], &value[space + 1..]);
    if scheme.eq_ignore_ascii_case(b"Bearer") {
        return Some(Credentials::Bearer(rest.trim_ascii().to_vec()));
    }
    if !scheme.eq_ignore_ascii_case(b"Basic") {
        return None;
    }
    let pair = STANDARD.decode(rest).ok()?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    Some(Credentials::Basic { name: pair[..colon].to_vec(), password: pair[colon + 1..].to_vec() })
}
