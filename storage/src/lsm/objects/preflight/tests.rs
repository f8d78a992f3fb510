use std::sync::Arc;

use async_trait::async_trait;
use slatedb::object_store::memory::InMemory;
use slatedb::object_store::{PutOptions, PutResult, Result};

use super::*;
use crate::lsm::{Layer, Layered};

/// Behavior of an object store on conditional writes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Conditions {
    Kept,
    CreateIgnored,
    CreateUnknown,
    UpdateIgnored,
    UpdateUnknown,
    Silent,
}

#[derive(Debug)]
struct Lax(Arc<InMemory>, Conditions);

fn unknown() -> Error {
    Error::NotImplemented { operation: "put".to_owned(), implementer: "lax".to_owned() }
}

#[async_trait]
impl Layer for Lax {
    fn below(&self) -> &dyn ObjectStore {
        &*self.0
    }

    async fn put_opts(
        &self,
        to: &ObjectPath,
        bytes: PutPayload,
        mut how: PutOptions,
    ) -> Result<PutResult> {
        match (self.1, &how.mode) {
            (Conditions::Silent, _) => std::future::pending().await,
            (Conditions::CreateUnknown, PutMode::Create) => return Err(unknown()),
            (Conditions::UpdateUnknown, PutMode::Update(_)) => return Err(unknown()),
            (Conditions::CreateIgnored, PutMode::Create)
            | (Conditions::UpdateIgnored, PutMode::Update(_)) => how.mode = PutMode::Overwrite,
            _ => {}
        }
        self.0.put_opts(to, bytes, how).await
    }
}

fn remote() -> Remote {
    Remote { kind: Kind::S3, bucket: "bkt".to_owned(), endpoint: None }
}

fn checked(conditions: Conditions) -> (std::result::Result<Abilities, Problem>, usize) {
    crate::tests::harness::run(async {
        let objects = Arc::new(InMemory::new());
        let lax = Layered(Lax(Arc::clone(&objects), conditions));
        let limit =
            Duration::from_millis(if conditions == Conditions::Silent { 50 } else { 20_000 });
        let found = check_within(&lax, &ObjectPath::from("a"), &remote(), limit).await;
        (found, objects.list(None).count().await)
    })
}

#[test]
fn conditions_are_found_out_and_nothing_is_left() {
    for (conditions, has_conditional_overwrite) in [
        (Conditions::Kept, true),
        (Conditions::UpdateIgnored, false),
        (Conditions::UpdateUnknown, false),
    ] {
        let (found, left) = checked(conditions);
        assert_eq!(found, Ok(Abilities { has_conditional_overwrite }), "{conditions:?}");
        assert_eq!(left, 0, "{conditions:?}");
    }
    for (conditions, problem) in [
        (Conditions::CreateIgnored, "overwrites an object that was to be written only if absent"),
        (Conditions::CreateUnknown, "does not implement writing an object only if it is absent"),
        (Conditions::Silent, "has not answered within 0 s"),
    ] {
        let (found, left) = checked(conditions);
        let found = found.unwrap_err().to_string();
        assert!(found.starts_with(problem), "{conditions:?}: {found}");
        assert_eq!(left, 0, "{conditions:?}");
    }
}

#[test]
fn errors_are_distinguished() {
    let objects = InMemory::new();
    let remote = remote();
    let look = Look { objects: &objects, remote: &remote, object: ObjectPath::from("x") };
    let answered = |status: &str, body: &str| Error::Generic {
        store: "S3",
        source: format!(
            "Error performing PUT http://h/bkt/x in 1ms - Server returned non-2xx status code: \
             {status}: {body}"
        )
        .into(),
    };
    let coded = |status: &str, code: &str| {
        answered(status, &format!("<Error><Code>{code}</Code><Message>so it is</Message></Error>"))
    };
    let plain = |text: &str| Error::Generic { store: "S3", source: text.into() };
    for (error, problem, advice) in [
        (coded("404 Not Found", "NoSuchBucket"), "has no bucket \"bkt\"", "create the bucket"),
        (coded("403 Forbidden", "InvalidAccessKeyId"), "does not know the access key", "AWS_"),
        (coded("403 Forbidden", "SignatureDoesNotMatch"), "rejects the secret key", "AWS_"),
        (
            coded("403 Forbidden", "AccessDenied"),
            "denies this key the right to write (status 403, AccessDenied: so it is)",
            "grant s3:GetObject, s3:PutObject",
        ),
        (coded("403 Forbidden", "RequestTimeTooSkewed"), "rejects the clock", "set the clock"),
        (
            coded("400 Bad Request", "AuthorizationHeaderMalformed"),
            "expects another region",
            "region",
        ),
        (coded("501 Not Implemented", "NotImplemented"), "does not implement writing", "newer"),
        (answered("404 Not Found", "<html>"), "does not answer as an S3 server does", "endpoint"),
        (
            answered("405 Method Not Allowed", ""),
            "does not answer as an S3 server does",
            "endpoint",
        ),
        (coded("503 Slow Down", "SlowDown"), "fails to write (status 503, SlowDown", "recovered"),
        (plain("connection refused"), "cannot be reached (connection refused)", "endpoint"),
        (
            plain("Error performing PUT http://169.254.169.254/latest/api/token"),
            "cannot be accessed, as there are no credentials",
            "AWS_ACCESS_KEY_ID",
        ),
    ] {
        let found = look.problem(&error, "write");
        assert!(found.problem.starts_with(problem), "{found}");
        assert!(found.advice.contains(advice), "{found}");
    }
}
