//! Section `storage` of the configuration file: access to object stores, and retention.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use storage::{AzureOptions, GcsOptions, RemoteOptions, S3Options, Secret};

use super::retention::RetentionConfig;

/// Section `storage`. A start applies its object stores.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StorageConfig {
    s3: S3Config,
    gcs: GcsConfig,
    azure: AzureConfig,
    /// Retention of samples.
    pub(crate) retention: RetentionConfig,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct S3Config {
    endpoint: Option<String>,
    region: Option<String>,
    path_style: Option<bool>,
    allow_http: Option<bool>,
    access_key_id: Option<String>,
    #[serde(deserialize_with = "secret")]
    secret_access_key: Option<Secret>,
    #[serde(deserialize_with = "secret")]
    session_token: Option<Secret>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct GcsConfig {
    endpoint: Option<String>,
    service_account_file: Option<String>,
    #[serde(deserialize_with = "secret")]
    service_account_key: Option<Secret>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AzureConfig {
    endpoint: Option<String>,
    allow_http: Option<bool>,
    account: Option<String>,
    #[serde(deserialize_with = "secret")]
    access_key: Option<Secret>,
    client_id: Option<String>,
    #[serde(deserialize_with = "secret")]
    client_secret: Option<Secret>,
    tenant_id: Option<String>,
}

impl StorageConfig {
    /// Returns the options of the store.
    pub(crate) fn remote(&self) -> RemoteOptions {
        let StorageConfig { s3, gcs, azure, retention: _ } = self.clone();
        RemoteOptions {
            s3: S3Options {
                endpoint: s3.endpoint,
                region: s3.region,
                is_path_style: s3.path_style,
                allow_http: s3.allow_http,
                access_key_id: s3.access_key_id,
                secret_access_key: s3.secret_access_key,
                session_token: s3.session_token,
            },
            gcs: GcsOptions {
                endpoint: gcs.endpoint,
                service_account_file: gcs.service_account_file,
                service_account_key: gcs.service_account_key,
            },
            azure: AzureOptions {
                endpoint: azure.endpoint,
                allow_http: azure.allow_http,
                account: azure.account,
                access_key: azure.access_key,
                client_id: azure.client_id,
                client_secret: azure.client_secret,
                tenant_id: azure.tenant_id,
            },
        }
    }

    /// Returns whether the settings of object stores differ.
    pub(crate) fn has_other_remote(&self, other: &StorageConfig) -> bool {
        let StorageConfig { s3, gcs, azure, retention: _ } = self;
        *s3 != other.s3 || *gcs != other.gcs || *azure != other.azure
    }

    /// Returns the section as YAML with secrets as `<secret>`, empty if nothing is set.
    pub(super) fn to_yaml(&self) -> String {
        let StorageConfig { s3, gcs, azure, retention } = self;
        let mut out = String::new();
        push(
            &mut out,
            "s3",
            &[
                ("endpoint", text(s3.endpoint.as_ref())),
                ("region", text(s3.region.as_ref())),
                ("path_style", s3.path_style.map(|v| v.to_string())),
                ("allow_http", s3.allow_http.map(|v| v.to_string())),
                ("access_key_id", text(s3.access_key_id.as_ref())),
                ("secret_access_key", shown(s3.secret_access_key.as_ref())),
                ("session_token", shown(s3.session_token.as_ref())),
            ],
        );
        push(
            &mut out,
            "gcs",
            &[
                ("endpoint", text(gcs.endpoint.as_ref())),
                ("service_account_file", text(gcs.service_account_file.as_ref())),
                ("service_account_key", shown(gcs.service_account_key.as_ref())),
            ],
        );
        push(
            &mut out,
            "azure",
            &[
                ("endpoint", text(azure.endpoint.as_ref())),
                ("allow_http", azure.allow_http.map(|v| v.to_string())),
                ("account", text(azure.account.as_ref())),
                ("access_key", shown(azure.access_key.as_ref())),
                ("client_id", text(azure.client_id.as_ref())),
                ("client_secret", shown(azure.client_secret.as_ref())),
                ("tenant_id", text(azure.tenant_id.as_ref())),
            ],
        );
        out.push_str(&retention.to_yaml());
        if out.is_empty() { out } else { format!("storage:\n{out}") }
    }
}

/// Returns a text as a quoted scalar, without credentials of a URL.
fn text(value: Option<&String>) -> Option<String> {
    value.map(|value| format!("{:?}", storage::without_credentials(value)))
}

fn shown(secret: Option<&Secret>) -> Option<String> {
    secret.map(ToString::to_string)
}

fn push(out: &mut String, name: &str, fields: &[(&str, Option<String>)]) {
    if fields.iter().all(|(_, value)| value.is_none()) {
        return;
    }
    out.push_str(&format!("  {name}:\n"));
    for (field, value) in fields {
        if let Some(value) = value {
            out.push_str(&format!("    {field}: {value}\n"));
        }
    }
}

/// Parses a secret. Errors do not repeat the text.
fn secret<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Secret>, D::Error> {
    struct Text;

    impl Visitor<'_> for Text {
        type Value = Option<Secret>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a secret as text")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            Ok(Some(Secret::new(text)))
        }
    }

    input.deserialize_str(Text).map_err(|error| {
        let _ = error;
        de::Error::custom("a secret has to be text; put it in quotes")
    })
}
