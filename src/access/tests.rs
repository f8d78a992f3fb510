//! Authentication, and its cost.

use axum::http::HeaderValue;

use super::*;

fn user(name: &str) -> User {
    User { name: Arc::from(name), is_read_only: false }
}

fn with_users(users: &[(&str, &str)]) -> Access {
    let mut access = Access::new();
    for (name, password) in users {
        access.add_user(user(name), &bcrypt::hash(password, 4).unwrap()).unwrap();
    }
    access
}

fn basic(name: &str, password: &str) -> HeaderMap {
    let pair = STANDARD.encode(format!("{name}:{password}"));
    authorization(&format!("Basic {pair}"))
}

fn authorization(value: &str) -> HeaderMap {
    let value = HeaderValue::from_str(value).unwrap();
    HeaderMap::from_iter([(header::AUTHORIZATION, value)])
}

#[tokio::test]
async fn a_password_is_that_of_its_user_whatever_is_remembered() {
    let access = with_users(&[("a", "x"), ("b", "y"), ("ä", "ü:ö")]);
    let checks = PasswordChecks::default();
    for _ in 0..2 {
        for (name, password, is_right) in [
            ("a", "x", true),
            ("b", "y", true),
            ("ä", "ü:ö", true),
            ("a", "y", false),
            ("b", "x", false),
            ("c", "x", false),
            ("", "", false),
            ("a", "x\0", false),
            ("ax", "", false),
            ("", "ax", false),
        ] {
            let expected =
                if is_right { Ok(Some(user(name))) } else { Err(Refusal::Unauthenticated) };
            let found = access.authenticate(&basic(name, password), &checks).await;
            assert_eq!(found, expected, "{name} {password}");
        }
    }
    // bcrypt truncates longer passwords.
    let (long, longer) = ("p".repeat(72), "p".repeat(90));
    let access = with_users(&[("a", &long)]);
    assert!(access.authenticate(&basic("a", &longer), &checks).await.is_ok());
}

#[tokio::test]
async fn what_was_shown_before_needs_no_permit_and_others_wait_for_theirs() {
    let access = with_users(&[("a", "x")]);
    let checks = PasswordChecks::default();
    let (right, wrong, unknown) = (basic("a", "x"), basic("a", "y"), basic("b", "x"));
    assert!(access.authenticate(&right, &checks).await.is_ok());
    assert!(access.authenticate(&wrong, &checks).await.is_err());
    assert!(access.authenticate(&unknown, &checks).await.is_err());
    let permit = checks.acquire().await.unwrap();
    assert!(access.authenticate(&right, &checks).await.is_ok());
    assert_eq!(access.authenticate(&wrong, &checks).await, Err(Refusal::Unauthenticated));
    assert_eq!(access.authenticate(&unknown, &checks).await, Err(Refusal::Unauthenticated));
    // A hundred checks may wait, of known and unknown users.
    let headers: Vec<_> =
        (0..101).map(|at| basic(if at % 2 == 0 { "a" } else { "c" }, &at.to_string())).collect();
    let mut waiting: Vec<_> =
        headers.iter().map(|headers| Box::pin(access.authenticate(headers, &checks))).collect();
    let mut last = waiting.pop().unwrap();
    for waits in &mut waiting {
        assert!(futures::poll!(waits).is_pending());
    }
    assert_eq!(futures::poll!(&mut last), std::task::Poll::Ready(Err(Refusal::Busy)));
    drop(permit);
    for outcome in futures::future::join_all(waiting).await {
        assert_eq!(outcome, Err(Refusal::Unauthenticated));
    }
}

#[tokio::test]
async fn the_same_password_shown_at_once_is_computed_once() {
    let access = with_users(&[("a", "x")]);
    let checks = PasswordChecks::default();
    let headers = basic("a", "x");
    let permit = checks.acquire().await.unwrap();
    let mut both = [0, 1].map(|_| Box::pin(access.authenticate(&headers, &checks)));
    for waits in &mut both {
        assert!(futures::poll!(waits).is_pending());
    }
    drop(permit);
    let [first, mut second] = both;
    assert!(first.await.is_ok());
    // It gets its permit, and returns in the same step: nothing is computed.
    assert!(matches!(futures::poll!(&mut second), std::task::Poll::Ready(Ok(Some(_)))));
}

#[tokio::test]
async fn a_new_configuration_remembers_passwords_of_the_same_hashes() {
    let before = with_users(&[("a", "x"), ("b", "y")]);
    let checks = PasswordChecks::default();
    let nobody_waits = async |access: &Access, name: &str, password: &str| {
        let headers = basic(name, password);
        let mut asked = std::pin::pin!(access.authenticate(&headers, &checks));
        matches!(futures::poll!(&mut asked), std::task::Poll::Ready(_))
    };
    for (name, password) in [("a", "x"), ("b", "y"), ("a", "wrong")] {
        let _ = before.authenticate(&basic(name, password), &checks).await;
        assert!(nobody_waits(&before, name, password).await);
    }
    // A user gets another password, so wrong credentials may be right.
    let mut after = with_users(&[("a", "wrong")]);
    let same = &before.passwords.hashes()[1];
    after.add_user(user("b"), &same.1).unwrap();
    after.inherit(&before);
    // While the permit is held, nothing is computed: unknown credentials have to wait.
    let permit = checks.acquire().await.unwrap();
    assert!(nobody_waits(&after, "b", "y").await);
    assert!(!nobody_waits(&after, "a", "x").await && !nobody_waits(&after, "a", "wrong").await);
    drop(permit);
    let found = after.authenticate(&basic("a", "wrong"), &checks).await;
    assert_eq!(found, Ok(Some(user("a"))));
    assert_eq!(after.authenticate(&basic("a", "x"), &checks).await, Err(Refusal::Unauthenticated));
    // With the same users, wrong credentials are remembered, too.
    let mut again = Access::new();
    for (name, hash) in after.passwords.hashes() {
        again.add_user(user(&name), &hash).unwrap();
    }
    again.inherit(&after);
    for (name, password) in [("a", "wrong"), ("a", "x"), ("b", "y")] {
        assert!(nobody_waits(&again, name, password).await, "{name} {password}");
    }
}

#[tokio::test]
async fn tokens_are_those_that_were_hashed() {
    let mut access = Access::new();
    let checks = PasswordChecks::default();
    assert_eq!(access.authenticate(&HeaderMap::new(), &checks).await, Ok(None));
    access.add_token(user("t"), TokenDigest::of(b"token-of-a-robot"));
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    access.add_token(user("abc"), TokenDigest::parse(digest).unwrap());
    for (value, expected) in [
        ("Bearer token-of-a-robot", Ok(Some(user("t")))),
        ("bearer  abc ", Ok(Some(user("abc")))),
        ("Bearer token-of-a-robo", Err(Refusal::Unauthenticated)),
        ("Bearer", Err(Refusal::Unauthenticated)),
        ("token-of-a-robot", Err(Refusal::Unauthenticated)),
        ("Basic dDp0b2tlbi1vZi1hLXJvYm90", Err(Refusal::Unauthenticated)),
    ] {
        assert_eq!(access.authenticate(&authorization(value), &checks).await, expected, "{value}");
    }
    assert_eq!(access.schemes().collect::<Vec<_>>(), ["Bearer"]);
    for wrong in
        [String::new(), digest[1..].to_owned(), format!("{digest}0"), digest.replace('b', "ü")]
    {
        assert!(TokenDigest::parse(&wrong).is_err(), "{wrong}");
    }
}

#[test]
fn nothing_secret_is_shown() {
    let mut access = with_users(&[("a", "x")]);
    access.add_token(user("t"), TokenDigest::of(b"token"));
    let shown = format!("{access:?}");
    assert!(shown.contains("\"a\"") && !shown.contains("$2"), "{shown}");
    assert!(shown.contains("<secret>"), "{shown}");
}
