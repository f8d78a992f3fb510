//! Who may ask: users with passwords, bearers of tokens, and what of it they may do.

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

/// The shortest token that is taken, in bytes: its digest is one that is quick to compute, so what
/// it is of must not be guessed.
pub(crate) const TOKEN_BYTES_MIN: usize = 16;

/// Whoever has said who they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    /// The name of the user, or of the token.
    pub(crate) name: Arc<str>,
    /// Whether nothing but reading is allowed.
    pub(crate) is_read_only: bool,
}

/// Everybody who may ask. Where there is nobody in it, everybody may.
#[derive(Debug)]
pub(crate) struct Access {
    passwords: Passwords,
    tokens: Vec<(User, TokenDigest)>,
}

/// Why a request is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It has no credentials, or wrong ones.
    Unauthenticated,
    /// So many passwords are being checked that another one has to wait; send it again.
    Busy,
}

/// What is kept of a token.
#[derive(Clone)]
pub(crate) struct TokenDigest([u8; 32]);

impl std::fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<secret>")
    }
}

impl TokenDigest {
    /// Of a token.
    pub(crate) fn of(token: &[u8]) -> TokenDigest {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, token).as_ref());
        TokenDigest(bytes)
    }

    /// From its 64 hexadecimal digits.
    ///
    /// Errors: the text for people, which does not repeat what was read.
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

/// What a request shows.
enum Credentials {
    Basic { name: Vec<u8>, password: Vec<u8> },
    Bearer(Vec<u8>),
}

impl Access {
    /// Nobody.
    pub(crate) fn new() -> Access {
        Access { passwords: Passwords::new(), tokens: Vec::new() }
    }

    /// Lets a user in who knows the password that a bcrypt hash is of.
    ///
    /// Errors: the text for people, which does not repeat the hash.
    pub(crate) fn add_user(&mut self, user: User, hash: &str) -> Result<(), String> {
        self.passwords.add(user, hash)
    }

    /// Lets in whoever bears a token.
    pub(crate) fn add_token(&mut self, bearer: User, token: TokenDigest) {
        self.tokens.push((bearer, token));
    }

    /// Goes on with what is remembered of passwords, where their hashes have not changed.
    pub(crate) fn inherit(&mut self, before: &Access) {
        self.passwords.inherit(&before.passwords);
    }

    /// Whether everybody is let in.
    pub(crate) fn is_open(&self) -> bool {
        self.passwords.is_empty() && self.tokens.is_empty()
    }

    /// The schemes by which credentials are asked for.
    ///
    /// Source: `webHandler` of Prometheus' exporter toolkit, which says `Basic` and nothing more.
    pub(crate) fn schemes(&self) -> impl Iterator<Item = &'static str> {
        let basic = (!self.passwords.is_empty()).then_some("Basic");
        let bearer = (!self.tokens.is_empty()).then_some("Bearer");
        basic.into_iter().chain(bearer)
    }

    /// Who has sent a request; `None` where nobody has to say that.
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

    /// Looks at all of them, so that the time tells nothing.
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

/// The first header `Authorization`, as Go's server reads it.
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
