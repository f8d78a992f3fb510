//! How object stores are reached: what is set here counts more than the environment.

use std::fmt;

/// Something that is never shown: prints as `<secret>`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The secret itself, for whoever signs with it.
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

/// How object stores are reached. What is `None` comes from the environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemoteOptions {
    /// For `s3://` URLs.
    pub s3: S3Options,
    /// For `gs://` URLs.
    pub gcs: GcsOptions,
    /// For `az://` URLs.
    pub azure: AzureOptions,
}

/// How S3, or what speaks like it, is reached. Else the variables `AWS_…` count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct S3Options {
    /// The URL of the server.
    pub endpoint: Option<String>,
    /// The region.
    pub region: Option<String>,
    /// Whether the bucket stands in the path of requests, and not in front of the host's name.
    pub is_path_style: Option<bool>,
    /// Whether the connection may be one without TLS.
    pub allow_http: Option<bool>,
    /// Who asks.
    pub access_key_id: Option<String>,
    /// What proves it.
    pub secret_access_key: Option<Secret>,
    /// What proves it for a while.
    pub session_token: Option<Secret>,
}

/// How Google Cloud Storage is reached. Else the variables `GOOGLE_…` count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GcsOptions {
    /// The URL of the server.
    pub endpoint: Option<String>,
    /// The path of the file with the service account's key.
    pub service_account_file: Option<String>,
    /// That key itself, as JSON.
    pub service_account_key: Option<Secret>,
}

/// How Azure Blob Storage is reached. Else the variables `AZURE_…` count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AzureOptions {
    /// The URL of the server.
    pub endpoint: Option<String>,
    /// Whether the connection may be one without TLS.
    pub allow_http: Option<bool>,
    /// The storage account.
    pub account: Option<String>,
    /// Its key.
    pub access_key: Option<Secret>,
    /// The application that asks.
    pub client_id: Option<String>,
    /// Its secret.
    pub client_secret: Option<Secret>,
    /// Its directory.
    pub tenant_id: Option<String>,
}

/// A URL without the user and password that may stand in it.
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
