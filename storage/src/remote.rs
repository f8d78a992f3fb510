//! Access to object stores; these options take precedence over the environment.

use std::fmt;

/// Secret text, which prints as `<secret>`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// Returns the text of the secret, for signing requests.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

/// Access to object stores. `None` takes the value from the environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemoteOptions {
    /// For `s3://` URLs.
    pub s3: S3Options,
    /// For `gs://` URLs.
    pub gcs: GcsOptions,
    /// For `az://` URLs.
    pub azure: AzureOptions,
}

/// Access to S3 or a compatible server. The environment variables are `AWS_…`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct S3Options {
    /// The URL of the server.
    pub endpoint: Option<String>,
    /// The region.
    pub region: Option<String>,
    /// Puts the bucket in the path of requests instead of the host name.
    pub is_path_style: Option<bool>,
    /// Allows connections without TLS.
    pub allow_http: Option<bool>,
    /// ID of the access key.
    pub access_key_id: Option<String>,
    /// Secret of the access key.
    pub secret_access_key: Option<Secret>,
    /// Token of temporary credentials.
    pub session_token: Option<Secret>,
}

/// Access to Google Cloud Storage. The environment variables are `GOOGLE_…`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GcsOptions {
    /// The URL of the server.
    pub endpoint: Option<String>,
    /// The path of the file with the service account's key.
    pub service_account_file: Option<String>,
    /// That key itself, as JSON.
    pub service_account_key: Option<Secret>,
}

/// Access to Azure Blob Storage. The environment variables are `AZURE_…`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AzureOptions {
    /// The URL of the server.
    pub endpoint: Option<String>,
    /// Allows connections without TLS.
    pub allow_http: Option<bool>,
    /// The storage account.
    pub account: Option<String>,
    /// Its key.
    pub access_key: Option<Secret>,
    /// Client ID of the application.
    pub client_id: Option<String>,
    /// Client secret of the application.
    pub client_secret: Option<Secret>,
    /// Directory (tenant) of the application.
    pub tenant_id: Option<String>,
}

/// Returns a URL without the user and password that it may contain.
pub fn without_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..authority_end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let s3 = S3Options {
            secret_access_key: Some(Secret::new("hush")),
            session_token: Some(Secret::new("hush")),
            ..S3Options::default()
        };
        let shown = format!("{s3:?} {}", Secret::new("hush"));
        assert!(shown.contains("<secret>") && !shown.contains("hush"), "{shown}");
    }

    #[test]
    fn credentials_are_cut_out_of_urls() {
        for (url, shown) in [
            ("./data", "./data"),
            ("s3://bucket/prefix", "s3://bucket/prefix"),
            ("s3://key:hush@bucket/pre@fix", "s3://bucket/pre@fix"),
            ("s3://key:hu@sh@bucket", "s3://bucket"),
        ] {
            assert_eq!(without_credentials(url), shown);
        }
    }
}
