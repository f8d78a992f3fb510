//! Clients of remote object stores, and the terms that messages use for them.
//!
//! A client retries a request a few times within seconds, so that failures are reported soon. The
//! LSM retries for longer ([`crate::StoreOptions::object_store_retries_max`]).

use std::sync::Arc;
use std::time::Duration;

use slatedb::object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use slatedb::object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use slatedb::object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use slatedb::object_store::path::Path as ObjectPath;
use slatedb::object_store::{BackoffConfig, ClientConfigKey, ObjectStore, RetryConfig};

use crate::lsm::objects::uploads::{S3Uploads, Uploads};
use crate::remote::{AzureOptions, GcsOptions, RemoteOptions, S3Options};

/// Maximum number of retries of a client, and their total time.
const RETRIES_MAX: usize = 2;
const RETRY_TIMEOUT: Duration = Duration::from_secs(10);

/// Kind of a remote object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::lsm) enum Kind {
    S3,
    Gcs,
    Azure,
}

/// Remote object store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::lsm) struct Remote {
    pub(in crate::lsm) kind: Kind,
    /// Name of the bucket.
    pub(in crate::lsm) bucket: String,
    /// Configured endpoint, if any.
    pub(in crate::lsm) endpoint: Option<String>,
}

impl Kind {
    /// Returns the kind for a URL scheme.
    pub(in crate::lsm) fn of_scheme(scheme: &str) -> Option<Kind> {
        match scheme {
            "s3" => Some(Kind::S3),
            "gs" => Some(Kind::Gcs),
            "az" => Some(Kind::Azure),
            _ => None,
        }
    }

    fn scheme(self) -> &'static str {
        match self {
            Kind::S3 => "s3",
            Kind::Gcs => "gs",
            Kind::Azure => "az",
        }
    }

    /// Returns the term for a bucket.
    pub(in crate::lsm) fn bucket(self) -> &'static str {
        match self {
            Kind::S3 | Kind::Gcs => "bucket",
            Kind::Azure => "container",
        }
    }

    /// Returns the term for a server.
    pub(in crate::lsm) fn server(self) -> &'static str {
        match self {
            Kind::S3 => "an S3 server",
            Kind::Gcs => "Google Cloud Storage",
            Kind::Azure => "Azure Blob Storage",
        }
    }

    /// Returns the settings of the endpoint.
    pub(in crate::lsm) fn endpoint_setting(self) -> &'static str {
        match self {
            Kind::S3 => "--storage.s3.endpoint (or AWS_ENDPOINT_URL)",
            Kind::Gcs => "--storage.gcs.endpoint (or GOOGLE_BASE_URL)",
            Kind::Azure => "--storage.azure.endpoint and the account (or AZURE_STORAGE_ENDPOINT)",
        }
    }

    /// Returns the settings of the credentials.
    pub(in crate::lsm) fn credentials_setting(self) -> &'static str {
        match self {
            Kind::S3 => {
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or storage.s3 in the configuration \
                 file"
            }
            Kind::Gcs => "GOOGLE_APPLICATION_CREDENTIALS, or storage.gcs in the configuration file",
            Kind::Azure => {
                "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or storage.azure in \
                 the configuration file"
            }
        }
    }

    /// Returns the permissions that a key needs.
    pub(in crate::lsm) fn rights(self) -> &'static str {
        match self {
            Kind::S3 => "s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket",
            Kind::Gcs => "the role Storage Object User (roles/storage.objectUser)",
            Kind::Azure => "the role Storage Blob Data Contributor",
        }
    }
}

/// Client of an object store, and of its multipart uploads if it can list them.
pub(in crate::lsm) struct Client {
    pub(in crate::lsm) objects: Arc<dyn ObjectStore>,
    pub(in crate::lsm) uploads: Option<Arc<dyn Uploads>>,
    /// Configured endpoint, if any.
    endpoint: Option<String>,
}

/// Returns the client of a URL, the path in its bucket, and its description.
pub(in crate::lsm) fn connect(
    kind: Kind,
    rest: &str,
    options: &RemoteOptions,
) -> Result<(Client, ObjectPath, Remote), String> {
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let scheme = kind.scheme();
    if bucket.is_empty() {
        return Err(format!(
            "the {} is missing: {scheme}://{}/prefix",
            kind.bucket(),
            kind.bucket()
        ));
    }
    if bucket.contains('@') {
        let settings = kind.credentials_setting();
        return Err(format!("credentials do not belong in it, but in {settings}"));
    }
    if bucket.contains([':', '?', '#']) || prefix.contains(['?', '#']) {
        return Err(format!("expected {scheme}://{}/prefix and nothing else", kind.bucket()));
    }
    let path = ObjectPath::parse(prefix.trim_end_matches('/')).map_err(|e| e.to_string())?;
    let client = match kind {
        Kind::S3 => s3(bucket, &options.s3)?,
        Kind::Gcs => gcs(bucket, &options.gcs)?,
        Kind::Azure => azure(bucket, &options.azure)?,
    };
    let endpoint = client.endpoint.clone();
    Ok((client, path, Remote { kind, bucket: bucket.to_owned(), endpoint }))
}

fn s3(bucket: &str, options: &S3Options) -> Result<Client, String> {
    s3_from(AmazonS3Builder::from_env(), bucket, options)
}

/// Returns the client of settings; these take precedence over the environment.
fn s3_from(
    environment: AmazonS3Builder,
    bucket: &str,
    options: &S3Options,
) -> Result<Client, String> {
    use AmazonS3ConfigKey as Key;
    let allow_http = Key::Client(ClientConfigKey::AllowHttp);
    let mut builder = environment.with_bucket_name(bucket).with_retry(retry());
    for (key, value) in [
        (Key::S3Endpoint, options.endpoint.clone()),
        (Key::Region, options.region.clone()),
        (Key::VirtualHostedStyleRequest, options.is_path_style.map(|path| (!path).to_string())),
        (allow_http, options.allow_http.map(|allow| allow.to_string())),
        (Key::AccessKeyId, options.access_key_id.clone()),
        (Key::SecretAccessKey, options.secret_access_key.as_ref().map(|s| s.expose().to_owned())),
        (Key::Token, options.session_token.as_ref().map(|s| s.expose().to_owned())),
    ] {
        if let Some(value) = value {
            builder = builder.with_config(key, value);
        }
    }
    let endpoint = builder
        .get_config_value(&Key::S3Endpoint)
        .or_else(|| builder.get_config_value(&Key::Endpoint));
    check_endpoint(endpoint.as_deref(), "--storage.s3.endpoint")?;
    let is_http_allowed = builder.get_config_value(&allow_http).as_deref() == Some("true");
    check_http(endpoint.as_deref(), is_http_allowed, "--storage.s3.allow-http", "AWS_ALLOW_HTTP")?;
    if options.is_path_style == Some(false)
        && let Some(endpoint) = &endpoint
    {
        builder = builder.with_config(Key::S3Endpoint, in_front(bucket, endpoint));
    }
    let (objects, uploads) = S3Uploads::build(builder).map_err(|e| mended(&e))?;
    Ok(Client { objects, uploads: Some(Arc::new(uploads)), endpoint })
}

fn gcs(bucket: &str, options: &GcsOptions) -> Result<Client, String> {
    use GoogleConfigKey as Key;
    let mut builder =
        GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket).with_retry(retry());
    for (key, value) in [
        (Key::BaseUrl, options.endpoint.clone()),
        (Key::ServiceAccount, options.service_account_file.clone()),
        (
            Key::ServiceAccountKey,
            options.service_account_key.as_ref().map(|s| s.expose().to_owned()),
        ),
    ] {
        if let Some(value) = value {
            builder = builder.with_config(key, value);
        }
    }
    let endpoint = builder.get_config_value(&Key::BaseUrl);
    check_endpoint(endpoint.as_deref(), "--storage.gcs.endpoint")?;
    let objects = builder.build().map_err(|e| mended(&e))?;
    Ok(Client { objects: Arc::new(objects), uploads: None, endpoint })
}

fn azure(container: &str, options: &AzureOptions) -> Result<Client, String> {
    use AzureConfigKey as Key;
    let allow_http = Key::Client(ClientConfigKey::AllowHttp);
    let mut builder =
        MicrosoftAzureBuilder::from_env().with_container_name(container).with_retry(retry());
    for (key, value) in [
        (Key::Endpoint, options.endpoint.clone()),
        (allow_http, options.allow_http.map(|allow| allow.to_string())),
        (Key::AccountName, options.account.clone()),
        (Key::AccessKey, options.access_key.as_ref().map(|s| s.expose().to_owned())),
        (Key::ClientId, options.client_id.clone()),
        (Key::ClientSecret, options.client_secret.as_ref().map(|s| s.expose().to_owned())),
        (Key::AuthorityId, options.tenant_id.clone()),
    ] {
        if let Some(value) = value {
            builder = builder.with_config(key, value);
        }
    }
    if builder.get_config_value(&Key::AccountName).is_none() {
        return Err("no storage account is named: set --storage.azure.account (or \
                    AZURE_STORAGE_ACCOUNT_NAME)"
            .to_owned());
    }
    let endpoint = builder.get_config_value(&Key::Endpoint);
    check_endpoint(endpoint.as_deref(), "--storage.azure.endpoint")?;
    let is_http_allowed = builder.get_config_value(&allow_http).as_deref() == Some("true");
    let settings = ("--storage.azure.allow-http", "AZURE_ALLOW_HTTP");
    check_http(endpoint.as_deref(), is_http_allowed, settings.0, settings.1)?;
    let objects = builder.build().map_err(|e| mended(&e))?;
    Ok(Client { objects: Arc::new(objects), uploads: None, endpoint })
}

fn retry() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig { max_backoff: Duration::from_secs(1), ..BackoffConfig::default() },
        max_retries: RETRIES_MAX,
        retry_timeout: RETRY_TIMEOUT,
    }
}

fn check_endpoint(endpoint: Option<&str>, setting: &str) -> Result<(), String> {
    let Some(endpoint) = endpoint else { return Ok(()) };
    let shown = crate::remote::without_credentials(endpoint);
    if shown != endpoint {
        return Err(format!("credentials do not belong in the endpoint {shown} ({setting})"));
    }
    let host = endpoint.strip_prefix("https://").or_else(|| endpoint.strip_prefix("http://"));
    match host {
        Some(host) if !host.is_empty() && !host.starts_with('/') => Ok(()),
        _ => Err(format!(
            "the endpoint {endpoint:?} ({setting}) is not a URL such as https://s3.example.com"
        )),
    }
}

fn check_http(
    endpoint: Option<&str>,
    is_allowed: bool,
    flag: &str,
    variable: &str,
) -> Result<(), String> {
    match endpoint {
        Some(endpoint) if endpoint.starts_with("http://") && !is_allowed => Err(format!(
            "the endpoint {endpoint} does not use TLS: set {flag} (or {variable}=true) to allow it"
        )),
        _ => Ok(()),
    }
}

/// Returns the endpoint with the bucket before its host.
fn in_front(bucket: &str, endpoint: &str) -> String {
    match endpoint.split_once("://") {
        Some((scheme, host)) if !host.starts_with(&format!("{bucket}.")) => {
            format!("{scheme}://{bucket}.{host}")
        }
        _ => endpoint.to_owned(),
    }
}

/// Returns the text of an error about settings, without the name of the object store.
fn mended(error: &slatedb::object_store::Error) -> String {
    match error {
        slatedb::object_store::Error::Generic { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::remote::Secret;

    /// Answers one request as a proxy; returns its first line.
    fn answer_once(listener: &TcpListener, status: &str, body: &str) -> String {
        let (stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(&stream).lines();
        let first = lines.next().unwrap().unwrap();
        while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
        let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\n");
        write!(&stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        first
    }

    #[test]
    fn uploads_are_listed_over_the_connections_of_the_client() {
        let listing = "<ListMultipartUploadsResult><Upload><Key>p/compacted/a.sst</Key>\
                       <UploadId>one</UploadId></Upload></ListMultipartUploadsResult>";
        for (status, body, expected) in [
            ("200 OK", listing, Ok(1)),
            ("403 Forbidden", "", Err("s3:ListBucketMultipartUploads")),
            ("500 Internal Server Error", "", Err("the response is 500 Internal Server Error")),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let proxy = format!("http://{}", listener.local_addr().unwrap());
            // As AWS_PROXY_URL has it; there is no such server.
            let environment = AmazonS3Builder::new()
                .with_config(AmazonS3ConfigKey::Client(ClientConfigKey::ProxyUrl), proxy);
            let options = S3Options {
                endpoint: Some("http://s3.invalid".to_owned()),
                region: Some("nowhere".to_owned()),
                allow_http: Some(true),
                access_key_id: Some("id".to_owned()),
                secret_access_key: Some(Secret::new("secret".to_owned())),
                ..S3Options::default()
            };
            let client = s3_from(environment, "b", &options).map_err(|e| panic!("{e}")).unwrap();
            let uploads = client.uploads.unwrap();
            let proxied = std::thread::spawn(move || answer_once(&listener, status, body));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let listed = runtime.unwrap().block_on(uploads.list(&"p/compacted".into()));
            match (listed, expected) {
                (Ok(found), Ok(count)) => assert_eq!(found.len(), count),
                (Err(error), Err(part)) => {
                    assert!(error.contains(part), "{error}");
                    let is_named = error.contains("s3:ListBucketMultipartUploads");
                    assert_eq!(is_named, status.starts_with("403"), "{error}");
                }
                (listed, _) => panic!("{status}: {listed:?}"),
            }
            let first = proxied.join().unwrap();
            assert!(first.starts_with("GET http://s3.invalid/b"), "{first}");
            assert!(first.contains("uploads"), "{first}");
        }
    }

    fn refused(kind: Kind, rest: &str, options: &RemoteOptions) -> String {
        connect(kind, rest, options).err().unwrap_or_default()
    }

    fn s3_at(endpoint: &str) -> RemoteOptions {
        let s3 = S3Options { endpoint: Some(endpoint.to_owned()), ..S3Options::default() };
        RemoteOptions { s3, ..RemoteOptions::default() }
    }

    #[test]
    fn wrong_urls_and_endpoints_are_named() {
        let none = RemoteOptions::default();
        for (kind, rest, options, expected) in [
            (Kind::S3, "", &none, "the bucket is missing: s3://bucket/prefix"),
            (Kind::Azure, "/x", &none, "the container is missing: az://container/prefix"),
            (Kind::S3, "key:hush@bucket", &none, "credentials do not belong in it"),
            (Kind::Gcs, "bucket?x=1", &none, "expected gs://bucket/prefix and nothing else"),
            (Kind::S3, "bucket", &s3_at("localhost:9000"), "is not a URL such as"),
            (
                Kind::S3,
                "bucket",
                &s3_at("http://k:hush@h"),
                "do not belong in the endpoint http://h",
            ),
            (Kind::S3, "bucket", &s3_at("http://h:1"), "set --storage.s3.allow-http"),
            (Kind::Azure, "box", &none, "no storage account is named"),
        ] {
            let error = refused(kind, rest, options);
            assert!(error.contains(expected) && !error.contains("hush"), "{rest}: {error}");
        }
    }

    #[test]
    fn clients_are_made_from_settings_alone() {
        let options = RemoteOptions {
            s3: S3Options {
                endpoint: Some("http://127.0.0.1:9".to_owned()),
                allow_http: Some(true),
                is_path_style: Some(true),
                region: Some("here".to_owned()),
                access_key_id: Some("key".to_owned()),
                secret_access_key: Some(Secret::new("hush")),
                session_token: None,
            },
            gcs: GcsOptions {
                endpoint: Some("http://127.0.0.1:9".to_owned()),
                service_account_key: Some(Secret::new(
                    r#"{"gcs_base_url": "http://127.0.0.1:9", "disable_oauth": true,
                        "client_email": "", "private_key": "", "private_key_id": ""}"#,
                )),
                service_account_file: None,
            },
            azure: AzureOptions {
                endpoint: Some("http://127.0.0.1:9/account".to_owned()),
                allow_http: Some(true),
                account: Some("account".to_owned()),
                access_key: Some(Secret::new("aHVzaA==")),
                ..AzureOptions::default()
            },
        };
        for (kind, name) in [(Kind::S3, "S3"), (Kind::Gcs, "Google"), (Kind::Azure, "Azure")] {
            let (client, path, remote) = connect(kind, "bucket/a/b/", &options).unwrap();
            let objects = client.objects.to_string();
            assert!(objects.contains(name), "{objects}");
            assert_eq!(client.uploads.is_some(), kind == Kind::S3);
            assert_eq!(path.as_ref(), "a/b");
            assert_eq!(remote.bucket, "bucket");
            assert!(remote.endpoint.unwrap().starts_with("http://127.0.0.1:9"));
        }
    }

    #[test]
    fn the_bucket_precedes_the_host() {
        assert_eq!(in_front("b", "https://s3.example.com"), "https://b.s3.example.com");
        assert_eq!(in_front("b", "https://b.s3.example.com"), "https://b.s3.example.com");
    }
}
