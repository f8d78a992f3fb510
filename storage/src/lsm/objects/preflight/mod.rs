//! Checks of an object store before a store is opened on it.
//!
//! ```text
//! put if absent     checks the endpoint, bucket, key, region and the right to write
//! put if absent     must fail now, or two servers could write to one store unnoticed
//! put if unchanged  must fail with a wrong tag and succeed with the right one; optional
//! get, list, delete checks the rights
//! ```
//!
//! The LSM retries failed requests without end. So errors that cannot pass are detected here, and
//! reported with advice.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::StreamExt;
use slatedb::object_store::client::{HttpError, HttpErrorKind};
use slatedb::object_store::path::Path as ObjectPath;
use slatedb::object_store::{
    Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion,
};

use crate::lsm::objects::location::CHECK_FOLDER;
use crate::lsm::objects::location::remote::{Kind, Remote};

/// Timeout for all checks together.
const CHECK_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum length of a server's message.
const DETAIL_BYTES_MAX: usize = 200;

/// Hosts that provide credentials if none are set.
const CREDENTIAL_HOSTS: [&str; 6] = [
    "169.254.169.254",
    "169.254.170.2",
    "metadata.google",
    "oauth2.googleapis.com",
    "login.microsoftonline.com",
    "https://sts.",
];

/// Problem of an object store, and advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) problem: String,
    pub(crate) advice: String,
}

/// Optional features of an object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::lsm) struct Abilities {
    /// Conditional overwrites (If-Match).
    pub(in crate::lsm) has_conditional_overwrite: bool,
}

/// Checks an object store, in a folder of its own.
pub(in crate::lsm) async fn check(
    objects: &dyn ObjectStore,
    folder: &ObjectPath,
    remote: &Remote,
) -> Result<Abilities, Problem> {
    check_within(objects, folder, remote, CHECK_TIMEOUT).await
}

/// Checks that objects can be listed, which is the first request of readers.
pub(in crate::lsm) async fn check_readable(
    objects: &dyn ObjectStore,
    folder: &ObjectPath,
    remote: &Remote,
) -> Result<(), Problem> {
    let look = Look { objects, remote, object: folder.clone() };
    match tokio::time::timeout(CHECK_TIMEOUT, objects.list(Some(folder)).next()).await {
        Ok(Some(Err(error))) => Err(look.problem(&error, "list")),
        Ok(_) => Ok(()),
        Err(_) => Err(look.out_of_time(CHECK_TIMEOUT)),
    }
}

async fn check_within(
    objects: &dyn ObjectStore,
    folder: &ObjectPath,
    remote: &Remote,
    limit: Duration,
) -> Result<Abilities, Problem> {
    let look = Look { objects, remote, object: folder.clone().join(CHECK_FOLDER).join(unique()) };
    match tokio::time::timeout(limit, look.run(folder)).await {
        Ok(result) => result,
        Err(_) => Err(look.out_of_time(limit)),
    }
}

/// Returns a name that no other check uses.
fn unique() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}-{number}", since_epoch.as_nanos(), std::process::id())
}

struct Look<'a> {
    objects: &'a dyn ObjectStore,
    remote: &'a Remote,
    object: ObjectPath,
}

impl Look<'_> {
    async fn run(&self, folder: &ObjectPath) -> Result<Abilities, Problem> {
        let first = self.put("first", PutMode::Create).await;
        let version = match first {
            Ok(version) => Some(version),
            // The response to an earlier attempt was lost.
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => None,
            Err(error) => return Err(self.problem(&error, "write")),
        };
        let result = self.look_on(folder, version).await;
        if let Err(error) = self.objects.delete(&self.object).await {
            let Problem { problem, advice } = self.problem(&error, "delete");
            tracing::warn!(
                %problem,
                %advice,
                "deleted data may keep its space in the object store"
            );
        }
        result
    }

    async fn look_on(
        &self,
        folder: &ObjectPath,
        version: Option<UpdateVersion>,
    ) -> Result<Abilities, Problem> {
        match self.put("second", PutMode::Create).await {
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {}
            Ok(_) => {
                return Err(self.unconditional(
                    "overwrites an object that was to be written only if absent (If-None-Match: *)",
                ));
            }
            Err(error) => return Err(self.problem(&error, "write")),
        }
        let read = match self.objects.get(&self.object).await {
            Ok(found) => found.bytes().await,
            Err(error) => Err(error),
        };
        match read {
            Ok(bytes) if bytes.as_ref() == b"first" => {}
            Ok(_) => {
                return Err(self
                    .unconditional("has refused to overwrite an object, but has overwritten it"));
            }
            Err(error) => return Err(self.problem(&error, "read")),
        }
        if let Some(Err(error)) = self.objects.list(Some(folder)).next().await {
            return Err(self.problem(&error, "list"));
        }
        let has_conditional_overwrite = self.overwrites_unchanged(version).await;
        if !has_conditional_overwrite {
            tracing::warn!(
                "the object store does not support conditional overwrites (If-Match); unreferenced \
                 files are kept longer"
            );
        }
        Ok(Abilities { has_conditional_overwrite })
    }

    /// Returns whether conditional overwrites work.
    async fn overwrites_unchanged(&self, version: Option<UpdateVersion>) -> bool {
        let Some(version) = version else { return false };
        let unchanged = self.put("third", PutMode::Update(version.clone())).await;
        let changed = self.put("fourth", PutMode::Update(version)).await;
        let is_refused = matches!(changed, Err(Error::Precondition { .. }));
        unchanged.is_ok() && is_refused
    }

    async fn put(&self, text: &'static str, mode: PutMode) -> Result<UpdateVersion, Error> {
        let payload = PutPayload::from_static(text.as_bytes());
        let put = self.objects.put_opts(&self.object, payload, mode.into()).await?;
        Ok(UpdateVersion { e_tag: put.e_tag, version: put.version })
    }

    fn unconditional(&self, problem: &str) -> Problem {
        Problem {
            problem: format!("{problem}, so two servers could write to one store unnoticed"),
            advice: "use a server with conditional writes, or a newer version of this one"
                .to_owned(),
        }
    }

    fn out_of_time(&self, limit: Duration) -> Problem {
        Problem {
            problem: format!("has not answered within {} s", limit.as_secs()),
            advice: self.endpoint_advice(),
        }
    }

    fn endpoint_advice(&self) -> String {
        let setting = self.remote.kind.endpoint_setting();
        format!("check {setting}, the network, and that the server is running")
    }

    /// Returns the problem that an error of a request means.
    fn problem(&self, error: &Error, what: &str) -> Problem {
        let kind = self.remote.kind;
        let text = ErrorText::of(error);
        let of = |problem: String, advice: String| Problem { problem, advice };
        let credentials = kind.credentials_setting();
        if text.is_about_credentials {
            return of(
                format!("cannot be accessed, as there are no credentials ({})", text.detail),
                format!("set {credentials}"),
            );
        }
        if matches!(error, Error::NotImplemented { .. }) || text.is("NotImplemented", 501) {
            return self.unconditional(
                "does not implement writing an object only if it is absent (If-None-Match: *)",
            );
        }
        match text.code.as_deref() {
            Some("NoSuchBucket" | "ContainerNotFound" | "InvalidBucketName") => {
                return of(
                    format!("has no {} {:?}", kind.bucket(), self.remote.bucket),
                    format!("create the {}, or fix --storage.url", kind.bucket()),
                );
            }
            Some("InvalidAccessKeyId" | "XAdminUserNotFound" | "InvalidToken" | "ExpiredToken") => {
                return of("does not know the access key".to_owned(), format!("fix {credentials}"));
            }
            Some(
                "SignatureDoesNotMatch" | "AuthenticationFailed" | "InvalidAuthenticationInfo",
            ) => {
                return of("rejects the secret key".to_owned(), format!("fix {credentials}"));
            }
            Some("RequestTimeTooSkewed") => {
                return of(
                    "rejects the clock of this machine".to_owned(),
                    "set the clock".to_owned(),
                );
            }
            Some(
                "AuthorizationHeaderMalformed"
                | "PermanentRedirect"
                | "IllegalLocationConstraintException",
            ) => {
                return of(
                    format!("expects another region ({})", text.detail),
                    "set --storage.s3.region (or AWS_REGION)".to_owned(),
                );
            }
            _ => {}
        }
        self.problem_by_status(&text, what)
    }

    fn problem_by_status(&self, text: &ErrorText, what: &str) -> Problem {
        let kind = self.remote.kind;
        let of = |problem: String, advice: String| Problem { problem, advice };
        match text.status {
            None if text.is_bare_redirect => of(
                format!("expects another region ({})", text.detail),
                "set --storage.s3.region (or AWS_REGION)".to_owned(),
            ),
            None => of(format!("cannot be reached ({})", text.detail), self.endpoint_advice()),
            Some(401 | 403) => of(
                format!("denies this key the right to {what} ({})", text.detail),
                format!(
                    "grant {} on {} {:?}, or use another key ({})",
                    kind.rights(),
                    kind.bucket(),
                    self.remote.bucket,
                    kind.credentials_setting()
                ),
            ),
            Some(404) if text.code.is_none() && kind != Kind::S3 => of(
                format!("has no {} {:?} ({})", kind.bucket(), self.remote.bucket, text.detail),
                format!("create the {}, or fix --storage.url", kind.bucket()),
            ),
            Some(300..=499) if text.code.is_none() => of(
                format!("does not answer as {} does ({})", kind.server(), text.detail),
                format!("check {}", kind.endpoint_setting()),
            ),
            Some(500..) => of(
                format!("fails to {what} ({})", text.detail),
                "start again once it has recovered".to_owned(),
            ),
            Some(_) => of(
                format!("refuses to {what} ({})", text.detail),
                format!("check {} and --storage.url", kind.endpoint_setting()),
            ),
        }
    }
}

/// Parsed text of an error.
#[derive(Debug, Default)]
struct ErrorText {
    status: Option<u16>,
    /// Error code in the response.
    code: Option<String>,
    is_bare_redirect: bool,
    /// Set if the error comes from a provider of credentials.
    is_about_credentials: bool,
    detail: String,
}

impl ErrorText {
    fn of(error: &Error) -> ErrorText {
        let text = error.to_string();
        let status = between(&text, "status code: ", " ")
            .and_then(|status| status.trim_end_matches(':').parse().ok());
        let code = ["<Code>", "<code>"]
            .iter()
            .find_map(|open| between(&text, open, "<"))
            .map(str::to_owned);
        let message = between(&text, "<Message>", "<");
        let is_bare_redirect = text.contains("redirect without LOCATION");
        let detail = match (&code, status) {
            (Some(code), Some(status)) => {
                format!("status {status}, {code}: {}", message.unwrap_or("no message"))
            }
            (None, Some(status)) => format!("status {status}"),
            _ if is_bare_redirect => "it redirects without a location".to_owned(),
            _ => innermost(error),
        };
        ErrorText {
            status,
            code,
            is_bare_redirect,
            is_about_credentials: CREDENTIAL_HOSTS.iter().any(|host| text.contains(host)),
            detail: shortened(&detail),
        }
    }

    fn is(&self, code: &str, status: u16) -> bool {
        self.code.as_deref() == Some(code) || self.status == Some(status)
    }
}

/// Returns the text between two others, if it is not empty or too long.
fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let rest = &text[text.find(start)? + start.len()..];
    let found = &rest[..rest.find(end)?];
    (!found.is_empty() && found.len() <= DETAIL_BYTES_MAX).then_some(found)
}

/// Returns the innermost cause.
fn innermost(error: &Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    let mut is_timeout = false;
    while let Some(source) = cause.source() {
        cause = source;
        is_timeout |= cause
            .downcast_ref::<HttpError>()
            .is_some_and(|error| error.kind() == HttpErrorKind::Timeout);
    }
    if is_timeout { "it does not answer in time".to_owned() } else { cause.to_string() }
}

fn shortened(text: &str) -> String {
    let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match one_line.char_indices().find(|(at, _)| *at >= DETAIL_BYTES_MAX) {
        Some((at, _)) => format!("{}…", &one_line[..at]),
        None => one_line,
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.problem, self.advice)
    }
}

#[cfg(test)]
mod tests;
